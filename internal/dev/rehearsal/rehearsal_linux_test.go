package rehearsal

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// ownNetwork is a cluster as people declare theirs: static addresses and a virtual one in a private network, and disks
// that machines do not have by chance.
const ownNetwork = `clusterName: home
endpoint: https://192.168.10.10:6443
talosVersion: v1.13.9
kubernetesVersion: v1.36.3
nodes:
  - hostname: cp1
    ipAddress: 192.168.10.11
    controlPlane: true
    installDiskSelector: {size: ">= 600GB", type: nvme}
    nameservers: [192.168.10.1]
    networkInterfaces:
      - deviceSelector: {hardwareAddr: "02:00:00:00:10:11"}
        addresses: [192.168.10.11/24]
        routes: [{network: 0.0.0.0/0, gateway: 192.168.10.1}]
        vip: {ip: 192.168.10.10}
  - hostname: worker1
    ipAddress: 192.168.10.21
    installDisk: /dev/sda
    networkInterfaces:
      - interface: eth0
        addresses: [192.168.10.21/24]
        routes: [{network: 0.0.0.0/0, gateway: 192.168.10.1}]
`

// substitution is the sed command of the page.
var substitution = regexp.MustCompile(`sed -i 's/([^/]+)/([^/]+)/g' rehearsal/`)

// The page's way to a full rehearsal works as it is written there.
func TestACopyOnLoopbackIsAFullRehearsal(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "getting-started.md"))
	require.NoError(t, err)

	sed := substitution.FindSubmatch(page)
	require.NotNil(t, sed, "the page does not say how")

	// Several runs of this test may share the computer.
	network := fmt.Sprintf("127.%d.%d.", 1+os.Getpid()/250%250, 1+os.Getpid()%250)
	require.Regexp(t, `^127\.\d+\.\d+\.$`, string(sed[2]))

	folder := t.TempDir()
	copied := regexp.MustCompile(string(sed[1])).ReplaceAllString(ownNetwork, network)
	require.NotContains(t, copied, "192.168")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "talconfig.yaml"), []byte(copied), 0o600))

	scale := float64(labcluster.TestScale)
	made, err := startRehearsal(&folder, nil, nil, &scale)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, made.cluster.Close()) })

	ctx, cancel := context.WithTimeout(t.Context(), labcluster.Deadline)
	defer cancel()

	require.NoError(t, made.booted(ctx))

	var output bytes.Buffer

	call := invocation.Invocation{Environ: append(made.environ, "TMPDIR="+t.TempDir()), Workdir: folder, Out: &output,
		Err: &output}
	failure := call.Execute(ctx, "talos", nil, steps.Talos)
	require.Nil(t, failure, "%s", &output)

	for _, pair := range made.environ {
		if name, path, _ := strings.Cut(pair, "="); name == "KUBECONFIG" {
			require.FileExists(t, path)
			require.NotContains(t, path, folder, "it is not the user's own")
		}
	}

	require.Contains(t, made.environ, "TALOS_DIR="+folder)
}
