package devtargets

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

	require.Regexp(t, `^127\.\d+\.\d+\.$`, string(sed[2]))

	folder := t.TempDir()
	copied := regexp.MustCompile(string(sed[1])).ReplaceAllString(ownNetwork, loopback(1))
	require.NotContains(t, copied, "192.168")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "talconfig.yaml"), []byte(copied), 0o600))

	environ := rehearse(t, folder)

	for _, pair := range environ {
		if name, path, _ := strings.Cut(pair, "="); name == "KUBECONFIG" {
			require.FileExists(t, path)
			require.NotContains(t, path, folder, "it is not the user's own")
		}
	}

	require.Contains(t, environ, "TALOS_DIR="+folder)
}

// The profile that people are shown makes a healthy cluster of Talos 1.14, with configs in its documents.
func TestTheExampleProfileIsBroughtUp(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS(filepath.Join("..", "..", "..", "examples", "profile"))))

	path := filepath.Join(folder, "cluster.yaml")
	profile, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(profile), "contract: v1.14")
	require.NoError(t, os.WriteFile(path, bytes.ReplaceAll(profile, []byte("192.0.2."), []byte(loopback(2))), 0o600))

	rehearse(t, folder)

	worker, err := os.ReadFile(filepath.Join(folder, "clusterconfig", "lab-w1.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(worker), "kind: KubeletConfig")
	require.Contains(t, string(worker), "topology.kubernetes.io/zone: rack-1")
}

// loopback is a network of one of this file's tests, as several runs of them may share the computer.
func loopback(test int) string {
	return fmt.Sprintf("127.%d.%d.", 1+(os.Getpid()*2+test)/250%250, 1+(os.Getpid()*2+test)%250)
}

// rehearse brings up the cluster of a folder, and returns the environment that led to its nodes.
func rehearse(t *testing.T, folder string) []string {
	t.Helper()

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

	return made.environ
}
