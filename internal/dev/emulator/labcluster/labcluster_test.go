package labcluster_test

import (
	"context"
	"crypto/tls"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

func wait(t *testing.T, node *emulator.Node, condition func(*emulator.Node) bool) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), labcluster.Deadline)
	defer cancel()

	require.NoError(t, node.WaitFor(ctx, condition))
}

// apply sends a machine its config, where it answers.
func apply(t *testing.T, cluster *labcluster.Cluster, node *emulator.Node, data []byte) {
	t.Helper()
	wait(t, node, func(n *emulator.Node) bool { return n.Stage() == "maintenance" })

	c, err := client.New(t.Context(), client.WithEndpoints(node.Endpoint()),
		client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true})) //nolint:gosec // maintenance mode has no CA to check
	require.NoError(t, err)

	defer c.Close() //nolint:errcheck // the call is over

	_, err = c.ApplyConfiguration(t.Context(),
		&machineapi.ApplyConfigurationRequest{Data: data, Mode: machineapi.ApplyConfigurationRequest_AUTO})
	require.NoError(t, err)
	require.NotNil(t, cluster.Lab)
}

func TestFilesAreLaidOutAsTalhelperDoes(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	cluster, err := labcluster.New(dir, labcluster.Options{Off: true})
	require.NoError(t, err)

	defer cluster.Close() //nolint:errcheck // nothing runs

	for _, file := range []string{"talconfig.yaml", "talenv.yaml", "clusterconfig/talosconfig",
		"clusterconfig/lab-cp1.yaml", "clusterconfig/lab-worker3.yaml"} {
		require.FileExists(t, filepath.Join(dir, file))
	}

	info, err := os.Stat(cluster.ConfigFile("cp1"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Empty(t, cluster.Nodes)
}

func TestMachinesOfADirectoryAnswerInTheLab(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	generated, err := clusterfiles.Make(clusterfiles.Options{
		ClusterName: "declared", Endpoint: "https://192.0.2.10:6443", VIP: netip.MustParseAddr("192.0.2.10"), CNI: "none",
		InstallDisk: "/dev/nvme0n1",
		Nodes: []clusterfiles.Node{
			{Name: "cp1", Role: machine.TypeControlPlane, Address: netip.MustParsePrefix("192.0.2.11/24"),
				MAC: "02:00:00:00:00:01"},
		},
	})
	require.NoError(t, err)
	require.NoError(t, generated.Write(dir))

	cluster, err := labcluster.FromDirectory(dir, nil, labcluster.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	node := cluster.Node("cp1")
	require.Equal(t, "nvme0n1", node.Options().Disks[0].Name)
	require.Equal(t, "02:00:00:00:00:01", node.Options().Links[0].MAC)
	require.Contains(t, cluster.Environ(), "NODE_ADDRESSES=cp1="+cluster.Lab.Address(11).String()+":50000")

	apply(t, cluster, node, generated.Configs[0].Bytes)
	wait(t, node, func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "booting" })
	require.Equal(t, "192.0.2.11", node.Address().String())
}

func TestAMachineWhoseInstallFailedIsAtTheAddressThatItHadBefore(t *testing.T) {
	t.Parallel()

	lab, err := emulator.NewLab(emulator.LabOptions{TimeScale: labcluster.TestScale})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })

	cluster, err := labcluster.New(t.TempDir(),
		labcluster.Options{Lab: lab, ControlPlanes: 1, Workers: -1, Edit: func(node *emulator.NodeOptions) {
			node.Faults = emulator.Faults{AddressAfter: lab.Address(77), Install: emulator.InstallDiskMissing}
		}})
	require.NoError(t, err)

	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	node := cluster.Node("cp1")
	before := node.Address()

	apply(t, cluster, node, data)
	wait(t, node, func(n *emulator.Node) bool { return n.Address() == lab.Address(77) })
	wait(t, node, func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" })
	require.Equal(t, before, node.Address())
}

func TestMachinesOnOneAddressDifferByPort(t *testing.T) {
	t.Parallel()

	cluster, err := labcluster.New(t.TempDir(), labcluster.Options{
		ControlPlanes: 1, Workers: 1, Endpoint: labcluster.FirstControlPlane,
		LabOptions: emulator.LabOptions{SingleAddress: true, TimeScale: labcluster.TestScale},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	for _, node := range cluster.Nodes {
		require.Equal(t, "127.0.0.1", netip.MustParseAddrPort(node.Endpoint()).Addr().String())

		data, err := cluster.Config(node.Name())
		require.NoError(t, err)
		apply(t, cluster, node, data)
	}

	wait(t, cluster.Node("worker1"), func(n *emulator.Node) bool { return n.Stage() == "running" })

	require.Eventually(t, func() bool {
		conn, err := tls.Dial("tcp", cluster.Node("worker1").Endpoint(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // a look
		if err == nil {
			conn.Close() //nolint:errcheck // it was only a look
		}

		return err == nil
	}, labcluster.Deadline, 10*time.Millisecond, "trustd was reached at its declared address")
}

// Machines have the disks that the files ask for, before any machine config is rendered.
func TestMachinesOfADirectoryHaveTheDeclaredDisks(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "talconfig.yaml"), []byte(`clusterName: lab
endpoint: https://192.0.2.10:6443
talosVersion: v1.13.9
kubernetesVersion: v1.36.3
nodes:
  - hostname: size
    ipAddress: 192.0.2.11
    controlPlane: true
    installDiskSelector: {size: ">= 600GB", type: nvme}
  - hostname: model
    ipAddress: 192.0.2.12
    installDiskSelector: {model: "QEMU*", serial: "0042", busPath: "/pci0000:00/0000:00:1f.2/*"}
  - hostname: path
    ipAddress: 192.0.2.13
    installDisk: /dev/disk/by-id/ata-example
  - hostname: volumes
    ipAddress: 192.0.2.14
    installDisk: /dev/sda
    userVolumes:
      - name: data
        provisioning: {diskSelector: {match: 'disk.transport == "nvme" && disk.size > 3u * TB'}, minSize: 10GB}
      - name: local
        provisioning: {diskSelector: {match: 'disk.serial == "S42"'}, minSize: 1GB}
      - name: rest
        provisioning: {diskSelector: {match: system_disk}, minSize: 1GB}
`), 0o600))

	cluster, err := labcluster.FromDirectory(dir, nil, labcluster.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	disks := func(name string) []emulator.Disk { return cluster.Node(name).Options().Disks }

	require.Len(t, disks("size"), 1)
	require.Equal(t, "nvme", disks("size")[0].Transport)
	require.GreaterOrEqual(t, disks("size")[0].Size, uint64(600_000_000_000))

	require.Len(t, disks("model"), 1)
	require.Equal(t, []string{"QEMU", "0042", "/pci0000:00/0000:00:1f.2/"},
		[]string{disks("model")[0].Model, disks("model")[0].Serial, disks("model")[0].BusPath})

	require.Equal(t, []string{"/dev/disk/by-id/ata-example"}, disks("path")[0].Symlinks)

	require.Len(t, disks("volumes"), 3)
	require.Equal(t, "sda", disks("volumes")[0].Name)
	require.Equal(t, "nvme", disks("volumes")[1].Transport)
	require.Greater(t, disks("volumes")[1].Size, uint64(3_000_000_000_000))
	require.Equal(t, "S42", disks("volumes")[2].Serial)
}
