package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/syncbuffer"
	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/emulatortest"
)

// ofCluster is a cause that no single node has.
const ofCluster = ""

// diagnosed is what mage diagnose names first while a fault is still there, by the fault's title: the node, and the
// kind of trouble.
var diagnosed = map[string]struct {
	node string
	id   diagnosis.ID
}{
	"a node of another cluster is at the address":                               {cp1, diagnosis.ForeignNode},
	"two machines stand at each other's addresses, MACs are declared":           {cp1, diagnosis.WrongMachine},
	"HTTPS_PROXY is in force, and the proxy does not lead to the nodes":         {cp1, diagnosis.ProxyInTheWay},
	"a node in maintenance has another certificate than CERT_FINGERPRINTS says": {cp1, diagnosis.FingerprintMismatch},
	"bootstrap meets a node whose clock is two days ahead":                      {cp1, diagnosis.NodeClock},
	"the clock is never synced":                                                 {cp1, diagnosis.TimeNotSynced},
	"the config names a link that the machine does not have":                    {cp1, diagnosis.LinkAbsent},
	"a disk that the TPM does not unlock":                                       {cp1, diagnosis.NodeSilent},
	"trustd never answers":                                                      {worker1, diagnosis.WorkerJoining},
	"a control plane's kubelet never gets healthy":                              {cp1, diagnosis.StageStuck},
	"a worker's kubelet never gets healthy":                                     {worker1, diagnosis.StageStuck},
	"a second Bootstrap stopped the etcd of the first":                          {cp1, diagnosis.EtcdStopped},
	"etcd runs and fails its health checks":                                     {cp1, diagnosis.EtcdNotHealthy},
	"two control planes were bootstrapped":                                      {ofCluster, diagnosis.EtcdSplit},
	"the Kubernetes API never comes up":                                         {ofCluster, diagnosis.APINotReady},
	"no network in spite of Talos' own CNI":                                     {ofCluster, diagnosis.NodesNotReady},
	"the installer image can't be pulled, and the node goes on trying":          {cp1, diagnosis.ImagePullFails},
	"the install disk can't be written to, and the node goes on trying":         {cp1, diagnosis.InstallFailed},
	"a control plane never joins etcd":                                          {cp3, diagnosis.EtcdIncomplete},
	"two of three control planes lose their power":                              {cp2, diagnosis.NodeSilent},
	"a member's machine was reset":                                              {cp3, diagnosis.StillMaintenance},
	"the API port is closed":                                                    {cp1, diagnosis.NodeRefused},
	"every connection goes half open at its first read":                         {cp1, diagnosis.NodeSilent},
	"nothing answers": {cp1, diagnosis.NodeSilent},
	"the port accepts connections and closes them": {cp1, diagnosis.NodeRefused},
	"an SSH server is at the address":              {cp1, diagnosis.NotTalos},
}

// isDiagnosed has mage diagnose look at the fault, and holds it to what it is to find.
func (f fault) isDiagnosed(t *testing.T, w *world) {
	t.Helper()

	want, is := diagnosed[f.title]
	if !is {
		return
	}

	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()

	var out, errs syncbuffer.Buffer

	environ, flags := emulatortest.Settings(slices.Concat(w.settings, f.settings))
	flags["format"] = "json"
	failure := invocation.Invocation{Environ: environ, Workdir: w.root, Out: &out, Err: &errs}.Diagnose(ctx, flags)
	require.NotNil(t, failure, out.String())
	require.Equal(t, diagnosis.ExitVerify, failure.Code, failure.Message)

	type cause struct {
		ID       diagnosis.ID
		Evidence []struct{ From, Text string }
	}

	var document struct {
		Nodes []struct {
			Node   string
			Causes []cause
		}
		Cluster []cause
	}

	require.NoError(t, json.Unmarshal([]byte(out.String()), &document), out.String())

	causes := document.Cluster
	for _, node := range document.Nodes {
		if node.Node == want.node {
			causes = node.Causes
		}
	}

	require.NotEmpty(t, causes, out.String())
	require.Equal(t, want.id, causes[0].ID, out.String())

	for _, secret := range w.secrets {
		require.NotContains(t, out.String()+errs.String()+failure.Message, secret)
	}
}

func TestDiagnosedFaultsAreInTheMatrix(t *testing.T) {
	t.Parallel()

	titles := map[string]bool{}
	for _, section := range sections() {
		for _, f := range section.faults {
			titles[f.title] = true
		}
	}

	for title := range diagnosed {
		require.True(t, titles[title], fmt.Sprintf("no fault is called %q", title))
	}
}
