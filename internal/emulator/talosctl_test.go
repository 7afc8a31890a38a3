package emulator_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/emulator"
	"github.com/talos-mage/talos-mage/internal/emulator/labcluster"
)

// TestTalosctlBringsANodeUp drives the real talosctl, where there is one on the PATH.
func TestTalosctlBringsANodeUp(t *testing.T) {
	t.Parallel()

	program, err := exec.LookPath("talosctl")
	if err != nil {
		t.Skip("talosctl is not on the PATH")
	}

	cluster, node := alone(t, labcluster.Options{})
	address := node.Address().String()

	run := func(arguments ...string) (string, error) {
		output, err := exec.CommandContext(deadline(t), program, arguments...).CombinedOutput()

		return string(output), err
	}
	anonymous := func(arguments ...string) (string, error) {
		return run(append(arguments, "--insecure", "--nodes", address)...)
	}
	administrator := func(arguments ...string) (string, error) {
		return run(append([]string{"--talosconfig", cluster.Talosconfig(), "--endpoints", address, "--nodes", address}, arguments...)...)
	}

	for _, test := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"version"}, emulator.DefaultTalosVersion},
		{[]string{"get", "machinestatus"}, "maintenance"},
		{[]string{"get", "disks"}, "vda"},
		{[]string{"get", "links"}, "eth0"},
		{[]string{"apply-config", "--file", cluster.ConfigFile("cp1")}, ""},
	} {
		output, err := anonymous(test.arguments...)
		require.NoError(t, err, output)
		require.Contains(t, output, test.want)
	}

	installed(t, node)

	eventually(t, func() error { _, err := administrator("bootstrap"); return err })
	require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))

	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")

	for _, test := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"version"}, emulator.DefaultTalosVersion},
		{[]string{"get", "machinestatus"}, "running"},
		{[]string{"get", "members"}, "cp1"},
		{[]string{"service"}, "kubelet"},
		{[]string{"etcd", "members"}, "cp1"},
		{[]string{"dmesg"}, "bootstrap request received"},
		{[]string{"kubeconfig", kubeconfig}, ""},
	} {
		output, err := administrator(test.arguments...)
		require.NoError(t, err, output)
		require.Contains(t, output, test.want)
	}

	require.FileExists(t, kubeconfig)

	_, err = administrator("bootstrap")
	require.Error(t, err, "there is a cluster already")
}
