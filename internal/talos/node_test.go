package talos_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// lab is a cluster's files and credentials, with machines started one by one as a test needs them.
type lab struct {
	*labcluster.Cluster

	dialer *talos.Dialer
}

// Versions of Talos that nodes can run.
const (
	talos112 = "v1.12.1"
	talos113 = "v1.13.9"
)

// newLab makes a cluster of one control plane (cp1) and one worker (worker1) that trusts the control plane's own
// address. Time passes for the machines as the scale says, or quickly when it is 0.
func newLab(t *testing.T, scale float64) *lab {
	t.Helper()

	return newLabOf(t, talos113, scale)
}

// newLabOf makes such a cluster for a version of Talos.
func newLabOf(t *testing.T, version string, scale float64) *lab {
	t.Helper()

	cluster, err := labcluster.New(t.TempDir(), labcluster.Options{
		ControlPlanes: 1, Workers: 1, Endpoint: labcluster.FirstControlPlane, Off: true,
		LabOptions:   emulator.LabOptions{TimeScale: scale},
		TalosVersion: version,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	credentials, err := talos.LoadCredentials(cluster.Talosconfig())
	require.NoError(t, err)

	return &lab{Cluster: cluster, dialer: &talos.Dialer{Credentials: credentials, Timeout: timeout}}
}

func (l *lab) config(t *testing.T, name string) []byte {
	t.Helper()

	data, err := l.Config(name)
	require.NoError(t, err)

	return data
}

// start switches a machine on at the address that the inventory declares.
func (l *lab) start(t *testing.T, name string, options emulator.NodeOptions) *emulator.Node {
	t.Helper()

	for _, generated := range l.Generated.Configs {
		if generated.Node.Name == name {
			options.Name, options.Address = name, generated.Node.Address.Addr()
			options.Links = []emulator.Link{{Name: "eth0", MAC: generated.Node.MAC}}
		}
	}

	if options.TalosVersion == "" {
		options.TalosVersion = l.Generated.Options.TalosVersion
	}

	node, err := l.Lab.Start(options)
	require.NoError(t, err)

	return node
}

// inMaintenance is a machine that waits for its config.
func (l *lab) inMaintenance(t *testing.T, name string, options emulator.NodeOptions) *emulator.Node {
	t.Helper()

	node := l.start(t, name, options)
	l.await(t, node, "maintenance")

	return node
}

// configured is a machine that runs with its config and has no etcd yet; change adapts the config's text.
func (l *lab) configured(t *testing.T, name string, options emulator.NodeOptions,
	change ...func(string) string) *emulator.Node {
	t.Helper()

	config := string(l.config(t, name))
	for _, apply := range change {
		config = apply(config)
	}

	options.Config = []byte(config)
	node := l.start(t, name, options)

	require.Eventually(t, func() bool { return l.dialer.Probe(t.Context(), node.Endpoint()).State == talos.Ours },
		labcluster.Deadline, 5*time.Millisecond)

	return node
}

func (l *lab) await(t *testing.T, node *emulator.Node, stage string) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), labcluster.Deadline)
	defer cancel()

	require.NoError(t, node.WaitFor(ctx, func(n *emulator.Node) bool { return n.Stage() == stage }))
}

func (l *lab) maintenance(t *testing.T, node *emulator.Node) *talos.Conn {
	t.Helper()

	conn, err := l.dialer.Maintenance(t.Context(), node.Endpoint())
	require.NoError(t, err)
	t.Cleanup(conn.Close)

	return conn
}

func (l *lab) secure(t *testing.T, node *emulator.Node) *talos.Conn {
	t.Helper()

	conn, err := l.dialer.Secure(t.Context(), node.Endpoint())
	require.NoError(t, err)
	t.Cleanup(conn.Close)

	return conn
}

// withRole calls the lab's nodes with a client certificate of another role.
func (l *lab) withRole(t *testing.T, roles ...string) *talos.Dialer {
	t.Helper()

	ca := authorityOf(t, l.Generated.Options.Secrets.Certs.OS)

	return &talos.Dialer{Credentials: ca.credentials(t, client(roles...)), Timeout: timeout}
}

// mutating are the calls that would change the machine, as "ApplyConfiguration OK".
func mutating(node *emulator.Node) []string {
	var calls []string
	for _, call := range node.MutatingCalls() {
		calls = append(calls, call.Name()+" "+call.Code.String())
	}

	return calls
}

func TestProbeFollowsANodeThroughItsLife(t *testing.T) {
	t.Parallel()

	for _, version := range []string{talos112, talos113} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			probeALife(t, newLabOf(t, version, 0))
		})
	}
}

func probeALife(t *testing.T, l *lab) {
	t.Helper()

	node := l.inMaintenance(t, "cp1", emulator.NodeOptions{})
	address := node.Endpoint()

	first := l.dialer.Probe(t.Context(), address)
	require.Equal(t, talos.Maintenance, first.State)
	require.Equal(t, first.Fingerprint, l.maintenance(t, node).Fingerprint())

	node.Refuse(true)
	require.Equal(t, talos.Refused, l.dialer.Probe(t.Context(), address).Silence)
	node.Refuse(false)

	_, err := l.maintenance(t, node).Apply(t.Context(), l.config(t, "cp1"), talos.ApplyOptions{})
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		probed := l.dialer.Probe(t.Context(), address)
		require.Contains(t, []talos.State{talos.Ours, talos.Unreachable, talos.Maintenance}, probed.State, "%v", probed.Err)

		return probed.State == talos.Ours && node.Stage() == "booting" && node.Boots() == 2
	}, labcluster.Deadline, 2*time.Millisecond)

	require.Equal(t, talos.UnknownCA, (&talos.Dialer{Timeout: timeout}).Probe(t.Context(), address).State)

	foreign, err := clusterfiles.ForeignSecrets()
	require.NoError(t, err)

	other := &talos.Dialer{Credentials: authorityOf(t, foreign.Certs.OS).credentials(t), Timeout: timeout}
	require.Equal(t, talos.Foreign, other.Probe(t.Context(), address).State)

	_, err = other.Secure(t.Context(), address)
	require.ErrorIs(t, err, talos.ErrForeignCA)

	node.PowerOff()

	patient := *l.dialer
	patient.Timeout = 200 * time.Millisecond
	require.Equal(t, talos.NoAnswer, patient.Probe(t.Context(), address).Silence)
	node.PowerOn()

	require.Equal(t, []string{"ApplyConfiguration OK"}, mutating(node))
}

func TestProbeIsNotFooledByWhatElseAnswers(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.inMaintenance(t, "cp1", emulator.NodeOptions{})

	for _, impostor := range []emulator.Impostor{emulator.HTTPSImpostor, emulator.SSHImpostor,
		emulator.PlainHTTPImpostor} {
		node.Set(func(f *emulator.Faults) { f.Impostor = impostor })

		require.Eventually(t, func() bool {
			return l.dialer.Probe(t.Context(), node.Endpoint()).State == talos.NotTalos
		}, labcluster.Deadline, 5*time.Millisecond, "impostor %d", impostor)

		_, err := l.dialer.Maintenance(t.Context(), node.Endpoint())
		require.Error(t, err, "impostor %d", impostor)

		if impostor != emulator.HTTPSImpostor { // its certificate is refused for its name
			require.ErrorIs(t, err, talos.ErrNotTalos, "impostor %d", impostor)
		}
	}

	node.Set(func(f *emulator.Faults) { f.Impostor = emulator.MuteImpostor })

	impatient := *l.dialer
	impatient.Timeout = 100 * time.Millisecond

	require.Eventually(t, func() bool {
		return impatient.Probe(t.Context(), node.Endpoint()).Silence == talos.NoAnswer
	}, labcluster.Deadline, 5*time.Millisecond)
	require.Empty(t, node.Calls())
}

func TestAWrongClockOnTheNodeIsNamed(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)

	for name, offset := range map[string]time.Duration{"cp1": 100 * time.Hour, "worker1": -100 * time.Hour} {
		node := l.inMaintenance(t, name,
			emulator.NodeOptions{Faults: emulator.Faults{TimeUnsynced: true, ClockOffset: offset}})

		probed := l.dialer.Probe(t.Context(), node.Endpoint())
		require.Equal(t, talos.Maintenance, probed.State)
		require.Equal(t, offset > 0, probed.ClockSkew > 0)
		require.NotZero(t, probed.ClockSkew)
	}
}

func TestReadsInMaintenance(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.inMaintenance(t, "cp1", emulator.NodeOptions{
		UUID: "4C4C4544-0042-3510-8052-B4C04F4E4D32", Manufacturer: "Example", ProductName: "Box", SerialNumber: "S1",
		SecureBoot: true, UKI: true,
		Cmdline: "talos.platform=metal console=tty0",
		Disks: []emulator.Disk{
			{Name: "sda", Size: 10 << 30, Model: "SMALL",
				Volumes: []emulator.Volume{{Name: "sda1", Filesystem: "xfs", Partition: "DATA", Size: 1 << 30}}},
			{Name: "nvme0n1", Size: 500 << 30, Transport: "nvme", Model: "FAST"},
		},
	})
	conn := l.maintenance(t, node)
	ctx := t.Context()

	status, err := conn.MachineStatus(ctx)
	require.NoError(t, err)
	require.Equal(t, talos.StageMaintenance, status.Stage)
	require.True(t, status.Ready)
	require.Empty(t, status.Unmet)

	disks, err := conn.Disks(ctx)
	require.NoError(t, err)
	require.Len(t, disks, 2)

	held, err := conn.DisksState(ctx)
	require.NoError(t, err)

	items, err := held.List(ctx, disks[0].Metadata())
	require.NoError(t, err)
	require.Len(t, items.Items, 2)

	_, installed, err := conn.SystemDisk(ctx)
	require.NoError(t, err)
	require.False(t, installed)

	volumes, err := conn.DiscoveredVolumes(ctx)
	require.NoError(t, err)

	var partition talos.Volume

	for _, volume := range volumes {
		if volume.ID == "sda1" {
			partition = volume
		}
	}

	require.Equal(t, talos.Volume{ID: "sda1", Disk: "/dev/sda", Name: "xfs", Label: "DATA", Size: 1 << 30}, partition)

	links, err := conn.Links(ctx)
	require.NoError(t, err)

	var physical []talos.Link

	for _, link := range links {
		if link.Physical {
			physical = append(physical, link)
		}
	}

	require.Len(t, physical, 1)
	require.Equal(t, "eth0", physical[0].Name)
	require.Equal(t, strings.ToLower(l.Generated.Configs[0].Node.MAC), physical[0].MAC)
	require.True(t, physical[0].Up)

	info, err := conn.SystemInformation(ctx)
	require.NoError(t, err)
	require.False(t, info.Read.IsZero())

	info.Read = time.Time{}
	require.Equal(t, talos.SystemInfo{UUID: "4c4c4544-0042-3510-8052-b4c04f4e4d32", Serial: "S1", Manufacturer: "Example",
		Product: "Box"}, info)

	security, err := conn.SecurityState(ctx)
	require.NoError(t, err)
	require.Equal(t, talos.Security{SecureBoot: true, UKI: true}, security)

	cmdline, err := conn.KernelCmdline(ctx)
	require.NoError(t, err)
	require.Equal(t, "talos.platform=metal console=tty0", cmdline)

	version, err := conn.Version(ctx)
	require.NoError(t, err)
	require.Equal(t, emulator.DefaultTalosVersion, version)

	addresses, err := conn.Addresses(ctx)
	require.NoError(t, err)
	require.Contains(t, addresses[0].Addr().String(), node.Address().String())

	_, err = conn.Hostname(ctx)
	require.ErrorIs(t, err, talos.ErrNotFound)

	members, err := conn.Members(ctx)
	require.NoError(t, err)
	require.Empty(t, members)

	services, err := conn.Services(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, services)

	require.Empty(t, mutating(node))
}

func TestWhatMaintenanceDoesNotAllow(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.inMaintenance(t, "cp1", emulator.NodeOptions{})
	conn := l.maintenance(t, node)
	ctx := t.Context()

	for name, call := range map[string]func() error{
		"MachineConfig": func() error { _, err := conn.MachineConfig(ctx); return err },
		"Bootstrap":     func() error { return conn.Bootstrap(ctx) },
		"Reboot":        func() error { return conn.Reboot(ctx) },
		"Kubeconfig":    func() error { _, err := conn.Kubeconfig(ctx); return err },
		"EtcdMembers":   func() error { _, err := conn.EtcdMembers(ctx, true); return err },
		"EtcdStatus":    func() error { _, err := conn.EtcdStatus(ctx); return err },
		"EtcdAlarms":    func() error { _, err := conn.EtcdAlarms(ctx); return err },
	} {
		err := call()
		require.ErrorIs(t, err, talos.ErrNotAllowed, name)
		require.Equal(t, talos.Final, talos.Classify(talos.OpRead, err), name)
		require.Contains(t, talos.Explain(err), "doesn't allow this here", name)
	}

	for _, call := range node.MutatingCalls() {
		require.Equal(t, codes.PermissionDenied, call.Code, call.Name())
	}
}

func TestReadsOfAConfiguredNode(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{})
	l.await(t, node, "booting")

	conn := l.secure(t, node)
	ctx := t.Context()

	require.False(t, conn.Insecure())
	require.Equal(t, node.Endpoint(), conn.Address())
	require.Equal(t, conn.Leaf().Subject.CommonName, l.dialer.Probe(ctx, node.Endpoint()).Leaf.Subject.CommonName)

	data, err := conn.MachineConfig(ctx)
	require.NoError(t, err)
	require.YAMLEq(t, firstDocument(l.config(t, "cp1")), firstDocument(data))

	disk, installed, err := conn.SystemDisk(ctx)
	require.NoError(t, err)
	require.True(t, installed)
	require.Equal(t, "/dev/vda", disk)

	require.Eventually(t, func() bool {
		hostname, err := conn.Hostname(ctx)

		return err == nil && hostname == "cp1"
	}, labcluster.Deadline, 5*time.Millisecond)

	require.Eventually(t, func() bool {
		synced, err := conn.TimeSynced(ctx)
		require.NoError(t, err)

		return synced
	}, labcluster.Deadline, 5*time.Millisecond)

	require.Eventually(t, func() bool {
		status, err := conn.MachineStatus(ctx)
		require.NoError(t, err)

		return len(status.Unmet) > 0 && status.Unmet[0] == talos.Condition{Name: "services", Reason: "etcd not running"}
	}, labcluster.Deadline, 5*time.Millisecond)

	services, err := conn.Services(ctx)
	require.NoError(t, err)

	found := map[string]talos.Service{}
	for _, service := range services {
		found[service.ID] = service
	}

	require.Equal(t, "Preparing", found["etcd"].State)
	require.True(t, found["etcd"].HealthUnknown)
	require.False(t, found["etcd"].Running())
	require.Equal(t, "Running pre state", found["etcd"].Events[len(found["etcd"].Events)-1].Message)
	require.True(t, found["kubelet"].Running())

	names, err := conn.ListDir(ctx, talos.EtcdDataDir)
	require.NoError(t, err)
	require.Empty(t, names)

	_, err = conn.ListDir(ctx, "/nowhere")
	require.ErrorIs(t, err, talos.ErrNotFound)
	require.Equal(t, talos.Final, talos.Classify(talos.OpList, err))

	members, err := conn.Members(ctx)
	require.NoError(t, err)

	for _, member := range members {
		require.Equal(t, machine.TypeControlPlane, member.Role)
	}

	require.Empty(t, mutating(node))
}

// firstDocument is the v1alpha1 document of a multi-document config.
func firstDocument(config []byte) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(string(config), "---\n"), "\n---\n")

	return first
}
