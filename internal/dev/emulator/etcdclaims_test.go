package emulator_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

func bootstrap(t *testing.T, c *client.Client) error {
	t.Helper()

	return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{})
}

func requireStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	require.Equal(t, code, client.StatusCode(err), "%v", err)
	require.ErrorContains(t, err, text)
}

func TestClaim_4_12_ABootstrapIsCheckedInOrder(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, labcluster.Options{ControlPlanes: 1, Workers: 1, Endpoint: labcluster.FirstControlPlane,
		Edit: func(o *emulator.NodeOptions) {
			if o.Name == "worker1" {
				o.Timing.Install = 1000 * time.Hour
				o.Faults.Bootstrap = emulator.BootstrapTypeUnset

				return
			}

			o.EtcdData, o.Faults.TimeUnsynced = emulator.WholeEtcdData, true
		}})

	plane, worker := cluster.Node("cp1"), cluster.Node("worker1")
	waitStage(t, plane, "maintenance")
	requireStatus(t, bootstrap(t, insecure(t, plane)), codes.PermissionDenied, "not authorized")
	applyOwn(t, cluster, "cp1")

	c := secure(t, cluster.Talosconfig(), plane)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })

	reader := signed(t, cluster, plane, x509.Organization(string(role.Reader)))
	requireStatus(t, bootstrap(t, reader), codes.PermissionDenied, "not authorized")

	// The clock comes before the data.
	eventually(t, func() error { return until(serviceInfo(t, c, "cri").GetHealth().GetHealthy()) })
	requireStatus(t, bootstrap(t, c), codes.FailedPrecondition, "time is not in sync yet")
	plane.Set(func(f *emulator.Faults) { f.TimeUnsynced = false })
	eventually(t, func() error { return until(client.StatusCode(bootstrap(t, c)) == codes.AlreadyExists) })

	// What is to be up comes before the machine's type.
	applyOwn(t, cluster, "worker1")
	waitStage(t, worker, "installing")

	w := secure(t, cluster.Talosconfig(), worker)
	eventually(t, func() error { _, err := w.Version(deadline(t)); return err })
	requireStatus(t, bootstrap(t, w), codes.FailedPrecondition, "bootstrap is not available yet")

	worker.PowerOff()
	cluster.Lab.Remove(worker)

	data, err := cluster.Config("worker1")
	require.NoError(t, err)

	worker, err = cluster.Lab.Start(emulator.NodeOptions{
		Name: "worker1", Address: worker.Address(), Config: data,
		Faults: emulator.Faults{Bootstrap: emulator.BootstrapTypeUnset, TimeUnsynced: true},
	})
	require.NoError(t, err)

	w = secure(t, cluster.Talosconfig(), worker)
	eventually(t, func() error { return until(client.StatusCode(bootstrap(t, w)) == codes.Unimplemented) })
	requireStatus(t, bootstrap(t, w), codes.Unimplemented, "machine type is not set, cannot use bootstrap API")
	worker.Set(func(f *emulator.Faults) { f.Bootstrap = emulator.BootstrapWorks })
	requireStatus(t, bootstrap(t, w), codes.Unimplemented, "bootstrap is only available on control plane nodes")
}

func TestClaim_4_13_TheHistoryOfEtcd(t *testing.T) {
	t.Parallel()

	const all = `Waiting: Waiting for volumes /var/lib, ETCD to be mounted, service "cri" to be "up", time sync, network, etcd spec`

	cluster, node := configured(t,
		labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Faults.TimeUnsynced = true }})
	c := secure(t, cluster.Talosconfig(), node)

	eventually(t, func() error {
		return until(slices.Contains(history(serviceInfo(t, c, "etcd")), "Waiting: Waiting for time sync"))
	})
	node.Set(func(f *emulator.Faults) { f.TimeUnsynced = false })
	eventually(t, func() error { return until(serviceInfo(t, c, "etcd").GetState() == "Preparing") })

	texts := history(serviceInfo(t, c, "etcd"))
	require.Equal(t, "Starting: Starting service", texts[0])
	require.Equal(t, all, texts[1])
	require.Equal(t, "Waiting: Waiting for time sync", texts[len(texts)-2], "the list shrinks")
	require.Equal(t, "Preparing: Running pre state", texts[len(texts)-1])
	require.True(t, serviceInfo(t, c, "etcd").GetHealth().GetUnknown())

	stream, err := c.MachineClient.Events(deadline(t), &machineapi.EventsRequest{})
	require.NoError(t, err)

	_, err = stream.Recv()
	require.NoError(t, err)
	eventually(t, func() error { return bootstrap(t, c) })

	var told []string

	for !slices.Contains(told, "RUNNING: Health check successful") {
		event, err := stream.Recv()
		require.NoError(t, err)

		if change, ok := payload(t, event).(*machineapi.ServiceStateEvent); ok && change.GetService() == "etcd" {
			told = append(told, change.GetAction().String()+": "+
				regexp.MustCompile(`PID \d+`).ReplaceAllString(change.GetMessage(), "PID n"))
		}
	}

	require.Equal(t, []string{
		"FINISHED: Service finished successfully", "FINISHED: Bootstrap requested", "STARTING: Starting service",
		"WAITING: " + strings.TrimPrefix(all, "Waiting: "), "PREPARING: Running pre state",
		"PREPARING: Creating service runner",
		"RUNNING: Started task etcd (PID n) for container etcd", "RUNNING: Health check successful",
	}, told)

	texts = history(serviceInfo(t, c, "etcd"))
	require.Len(t, texts, 6, "the history starts again with the new service")
	require.Equal(t, "Starting: Starting service", texts[0])

	for _, line := range []string{"service[etcd](Finished): Bootstrap requested",
		"service[etcd](Running): Health check successful", "bootstrap request received"} {
		require.Contains(t, console(node), line)
	}
}

func TestClaim_4_14_AControlPlaneAsksForABootstrapAgainAndAgain(t *testing.T) {
	t.Parallel()

	_, node := waiting(t)

	const line = "etcd is waiting to join the cluster, if this node is the first node in the cluster, please run " +
		"`talosctl bootstrap` against one of the following IPs:"

	eventually(t, func() error { return until(strings.Count(console(node), line) >= 2) })

	lines := node.Console()
	at := slices.IndexFunc(lines, func(text string) bool { return strings.Contains(text, line) })
	require.Contains(t, lines[at+1], "["+node.Address().String()+"]")
}

func TestClaim_4_15_BootstrapsAtTheSameTimeBothWork(t *testing.T) {
	t.Parallel()

	// The image of etcd is not there yet, so that no etcd has run when the second one comes.
	cluster, node := configured(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Faults.EtcdImage = true }})
	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { return until(serviceInfo(t, c, "cri").GetHealth().GetHealthy()) })
	eventually(t, func() error { return synced(deadline(t), c) })

	results := make(chan error, 2)

	for range 2 {
		go func() {
			_, err := c.MachineClient.Bootstrap(deadline(t), &machineapi.BootstrapRequest{})
			results <- err
		}()
	}

	require.NoError(t, next(t, results))
	require.NoError(t, next(t, results))
	node.Set(func(f *emulator.Faults) { f.EtcdImage = false })
	require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	require.Equal(t, 1, cluster.Lab.EtcdClusters())
}

// snapshotOf is what a control plane's etcd has.
func snapshotOf(t *testing.T, c *client.Client) []byte {
	t.Helper()

	reader, err := c.EtcdSnapshot(deadline(t), &machineapi.EtcdSnapshotRequest{})
	require.NoError(t, err)

	defer reader.Close() //nolint:errcheck // read to its end

	snapshot, err := io.ReadAll(reader)
	require.NoError(t, err)

	return snapshot
}

func TestClaim_4_16_ASnapshotEndsWithItsHash(t *testing.T) {
	t.Parallel()

	cluster := wholeLab.use(t)
	snapshot := snapshotOf(t, secure(t, cluster.Talosconfig(), cluster.Node("cp1")))

	require.Equal(t, sha256.Size, len(snapshot)%512)

	want := sha256.Sum256(snapshot[:len(snapshot)-sha256.Size])
	require.Equal(t, want[:], snapshot[len(snapshot)-sha256.Size:])
}

func TestClaim_4_17_EtcdIsRecoveredFromASnapshot(t *testing.T) {
	t.Parallel()

	whole := wholeLab.use(t)
	good := snapshotOf(t, secure(t, whole.Talosconfig(), whole.Node("cp1")))
	truncated := good[:len(good)-1024]
	copied := good[:len(good)-sha256.Size]
	flipped := slices.Clone(good)
	flipped[len(flipped)-1] ^= 1

	cluster, node := configured(t, labcluster.Options{})
	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { return until(serviceInfo(t, c, "etcd").GetState() == "Preparing") })

	fails := func(snapshot []byte, skipHash bool, reason string) {
		t.Helper()

		if snapshot != nil {
			_, err := c.EtcdRecover(deadline(t), strings.NewReader(string(snapshot)))
			require.NoError(t, err)
		}

		require.NoError(t, c.Bootstrap(deadline(t),
			&machineapi.BootstrapRequest{RecoverEtcd: true, RecoverSkipHashCheck: skipHash}), "the call tells nothing")
		eventually(t, func() error { return until(serviceInfo(t, c, "etcd").GetState() == "Failed") })

		texts := history(serviceInfo(t, c, "etcd"))
		require.Contains(t, texts[len(texts)-1], "Failed: Failed to run pre stage: "+reason)
	}

	fails(nil, false, "error verifying snapshot: open /var/lib/etcd.snapshot: no such file or directory")
	fails([]byte("no database"), true, "error verifying snapshot: invalid database")
	fails(truncated, false, "error recovering from the snapshot: ")
	fails(flipped, false, "error recovering from the snapshot: expected sha256 ")
	fails(copied, false, "error recovering from the snapshot: snapshot missing hash but --skip-hash-check=false")
	require.Zero(t, cluster.Lab.EtcdClusters())

	// A copied database has no hash, so nobody asks for it.
	require.NoError(t, c.Bootstrap(deadline(t),
		&machineapi.BootstrapRequest{RecoverEtcd: true, RecoverSkipHashCheck: true}))
	require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	require.Contains(t, console(node), "recovering etcd from snapshot: hash ")

	members, err := c.EtcdMemberList(deadline(t), &machineapi.EtcdMemberListRequest{})
	require.NoError(t, err)
	require.Len(t, members.GetMessages()[0].GetMembers(), 1, "the cluster begins with one member again")

	// What a restore begins with outlives a reboot, and is in no etcd that was bootstrapped.
	const begins = "0000000000000001-0000000000000001.snap"

	require.Contains(t, filesIn(t, c, "/var/lib/etcd/member/snap"), begins)

	bootstrapped := secure(t, whole.Talosconfig(), whole.Node("cp1"))
	require.NotContains(t, filesIn(t, bootstrapped, "/var/lib/etcd/member/snap"), begins)
}

// The same address leads to another etcd's Kubernetes then.
func TestNodesTakePartInARestoredCluster(t *testing.T) {
	t.Parallel()

	cluster, c := checkedCluster(t, labcluster.Options{})
	cp1, worker := cluster.Nodes[0], cluster.Nodes[1]
	require.NoError(t, worker.WaitFor(deadline(t), (*emulator.Node).Registered))

	snapshot := snapshotOf(t, c)

	cp1.PowerOff()
	cp1.LoseEtcd()
	cp1.PowerOn()
	eventually(t, func() error {
		_, err := c.EtcdRecover(deadline(t), bytes.NewReader(snapshot))
		return err
	})
	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{RecoverEtcd: true}) })
	require.NoError(t, cp1.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	require.Equal(t, 2, cluster.Lab.EtcdClusters())

	require.NoError(t, cp1.WaitFor(deadline(t), (*emulator.Node).Registered))
	cp1.Cordon(true)
	eventually(t, func() error {
		_, known := worker.Cordons()["cp1"]
		return until(known)
	})
}

func TestClaim_4_18_AnInitNodeBootstrapsItself(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{})
	_, err := apply(t, insecure(t, node),
		edited(t, cluster, "cp1", func(c *v1alpha1.Config) { c.MachineConfig.MachineType = "init" }), modeAuto)
	require.NoError(t, err)
	require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })
	requireStatus(t, bootstrap(t, c), codes.AlreadyExists, "etcd data directory is not empty")
}

func TestClaim_4_19_EtcdGivesUpJoiningAndCanStillBeBootstrapped(t *testing.T) {
	t.Parallel()

	cluster, node := configured(t, labcluster.Options{Timing: emulator.Timing{EtcdJoinLimit: 20 * time.Second}})
	c := secure(t, cluster.Talosconfig(), node)

	eventually(t, func() error { return until(serviceInfo(t, c, "etcd").GetState() == "Failed") })

	texts := history(serviceInfo(t, c, "etcd"))
	require.Contains(t, texts[len(texts)-1], "Failed: Failed to run pre stage: failed to build initial etcd cluster: ")
	require.Equal(t, "booting", node.Stage())

	require.NoError(t, bootstrap(t, c))
	require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
}

func TestClaim_4_20_EtcdCallsAreMadeLocallyOrToAllControlPlanes(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, labcluster.Options{ControlPlanes: 2, Workers: -1, Endpoint: labcluster.FirstControlPlane,
		Edit: func(o *emulator.NodeOptions) {
			if o.Name == "cp2" {
				o.Timing.EtcdData = 1000 * time.Hour
			}
		}})
	bringUp(t, cluster)

	c := secure(t, cluster.Talosconfig(), cluster.Node("cp1"))
	eventually(t, func() error { return bootstrap(t, c) })

	// The second one is about to start: the cluster has a place for it, and no name yet.
	var reply *machineapi.EtcdMemberListResponse

	eventually(t, func() error {
		var err error

		reply, err = c.EtcdMemberList(deadline(t), &machineapi.EtcdMemberListRequest{QueryLocal: true})
		if err != nil {
			return err
		}

		return until(len(reply.GetMessages()[0].GetMembers()) == 2)
	})

	members := reply.GetMessages()[0]
	require.Equal(t, []string{"cp1", ""}, members.GetLegacyMembers())

	first, second := members.GetMembers()[0], members.GetMembers()[1]
	require.Equal(t, "cp1", first.GetHostname())
	require.False(t, first.GetIsLearner())
	require.Equal(t, []string{"https://" + cluster.Node("cp1").Address().String() + ":2380"}, first.GetPeerUrls())
	require.Equal(t, []string{"https://" + cluster.Node("cp1").Address().String() + ":2379"}, first.GetClientUrls())
	require.Empty(t, second.GetHostname())
	require.Empty(t, second.GetClientUrls())
	require.True(t, second.GetIsLearner())
	require.Equal(t, []string{"https://" + cluster.Node("cp2").Address().String() + ":2380"}, second.GetPeerUrls())
	require.NotEqual(t, first.GetId(), second.GetId())

	// Its node can tell the members from the others, but has nothing of its own to tell.
	other := secure(t, cluster.Talosconfig(), cluster.Node("cp2"))
	reply, err := other.EtcdMemberList(deadline(t), &machineapi.EtcdMemberListRequest{})
	require.NoError(t, err)
	require.Len(t, reply.GetMessages()[0].GetMembers(), 2)

	for name, call := range map[string]func(context.Context) error{
		"EtcdMemberList": func(ctx context.Context) error {
			_, err := other.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{QueryLocal: true})

			return err
		},
		"EtcdStatus": func(ctx context.Context) error { _, err := other.EtcdStatus(ctx); return err },
		"EtcdSnapshot": func(ctx context.Context) error {
			return firstFrame(other.MachineClient.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{}))
		},
	} {
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		require.Equal(t, codes.DeadlineExceeded, client.StatusCode(call(short)), name)
		cancel()
	}
}

func TestClaim_4_21_EtcdCallsFailAtOnceWithoutACertificateOrAPlaceToAsk(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Faults.TimeUnsynced = true }})
	_, err := apply(t, insecure(t, node), edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
		c.ClusterConfig.ControlPlane.Endpoint.Host = "nowhere.invalid:6443"
	}), modeAuto)
	require.NoError(t, err)
	installed(t, node)

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })

	const noCertificate = "error building etcd client TLS config: open /system/secrets/etcd/admin.crt: no such file or " +
		"directory"

	for method, text := range map[string]string{
		"EtcdMemberList": noCertificate, "EtcdStatus": "failed to create etcd client: " + noCertificate,
		"EtcdAlarmList": "failed to create etcd client: " + noCertificate,
		"EtcdSnapshot":  "failed to create etcd client: " + noCertificate,
	} {
		requireStatus(t, knock(t, c, deadline(t), "/machine.MachineService/"+method), codes.Unknown, text)
	}

	node.Set(func(f *emulator.Faults) { f.TimeUnsynced = false })
	eventually(t, func() error { return synced(deadline(t), c) })

	_, err = c.EtcdMemberList(deadline(t), &machineapi.EtcdMemberListRequest{})
	requireStatus(t, err, codes.Unknown, "no controlplane endpoints discovered yet")
}

func TestClaim_4_22_ServicesAreListedByNameWithTheirHistory(t *testing.T) {
	t.Parallel()

	cluster := wholeLab.use(t)

	list := func(name string) []*machineapi.ServiceInfo {
		reply, err := secure(t, cluster.Talosconfig(), cluster.Node(name)).ServiceList(deadline(t))
		require.NoError(t, err)

		return reply.GetMessages()[0].GetServices()
	}

	for name, want := range map[string][]string{
		"cp1": {"apid", "auditd", "containerd", "cri", "dashboard", "etcd", "kubelet", "machined", "syslogd", "trustd",
			"udevd"},
		"worker1": {"apid", "auditd", "containerd", "cri", "dashboard", "kubelet", "machined", "syslogd", "udevd"},
	} {
		var ids []string

		for _, service := range list(name) {
			ids = append(ids, service.GetId())
			require.Equal(t, "Running", service.GetState())

			events := service.GetEvents().GetEvents()
			require.Equal(t, "Starting", events[0].GetState(), "the oldest comes first")
			require.Equal(t, "Running", events[len(events)-1].GetState())

			health := service.GetHealth()
			unchecked := service.GetId() == "dashboard"
			require.Equal(t, unchecked, health.GetUnknown(), service.GetId())
			require.Equal(t, !unchecked, health.GetHealthy(), service.GetId())

			if unchecked {
				require.Empty(t, health.GetLastMessage())
				require.Equal(t, 1, health.GetLastChange().AsTime().Year())
			} else {
				require.Equal(t, "Health check successful", events[len(events)-1].GetMsg())
			}
		}

		require.Equal(t, want, ids)
	}
}

func TestClaim_4_23_AServiceKeeps64EntriesOfItsHistory(t *testing.T) {
	t.Parallel()

	_, node, c := ready(t, labcluster.Options{})
	waitStage(t, node, "running")

	const most = 64

	eventually(t, func() error {
		kubelet := serviceInfo(t, c, "kubelet")
		if !kubelet.GetHealth().GetHealthy() {
			return errNotYet
		}

		if len(kubelet.GetEvents().GetEvents()) == most {
			return nil
		}

		require.Less(t, len(kubelet.GetEvents().GetEvents()), most)

		_, err := c.ServiceRestart(deadline(t), "kubelet")
		require.NoError(t, err)

		return errNotYet
	})

	_, err := c.ServiceRestart(deadline(t), "kubelet")
	require.NoError(t, err)
	eventually(t, func() error { return until(serviceInfo(t, c, "kubelet").GetHealth().GetHealthy()) })
	require.Len(t, serviceInfo(t, c, "kubelet").GetEvents().GetEvents(), most)
}

func TestClaim_1_04_EtcdCallsAreUnimplementedInMaintenance(t *testing.T) {
	t.Parallel()

	_, node := idle(t)
	c := insecure(t, node)

	_, err := c.EtcdMemberList(deadline(t), &machineapi.EtcdMemberListRequest{})
	requireStatus(t, err, codes.Unimplemented, "member list is only available on control plane nodes")

	_, err = c.EtcdStatus(deadline(t))
	requireStatus(t, err, codes.Unimplemented, "etcd status is only available on control plane nodes")

	_, err = c.MachineClient.EtcdAlarmList(deadline(t), &emptypb.Empty{})
	requireStatus(t, err, codes.Unimplemented, "etcd alarm list is only available on control plane nodes")
}

func TestClaim_4_24_AHealthHasNoMessageBeforeTheFirstCheck(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, labcluster.Options{ControlPlanes: 1, Workers: -1, Endpoint: labcluster.FirstControlPlane,
		Timing: emulator.Timing{EtcdStart: 1000 * time.Hour}})
	bringUp(t, cluster)

	c := secure(t, cluster.Talosconfig(), cluster.Node("cp1"))
	require.Empty(t, serviceInfo(t, c, "etcd").GetHealth().GetLastMessage())

	eventually(t, func() error { return bootstrap(t, c) })
	eventually(t, func() error { return until(serviceInfo(t, c, "etcd").GetState() == "Running") })

	health := serviceInfo(t, c, "etcd").GetHealth()
	require.True(t, health.GetUnknown())
	require.Empty(t, health.GetLastMessage())
}

func TestClaim_4_25_LearnersJoinOneAtATimeAndFailTheirHealthCheck(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, labcluster.Options{ControlPlanes: 3, Workers: -1, Endpoint: labcluster.FirstControlPlane,
		Edit: func(o *emulator.NodeOptions) { o.Faults.EtcdJoin = 1000 * time.Hour }})
	bringUp(t, cluster)

	clock := cluster.Lab.Clock()
	c := secure(t, cluster.Talosconfig(), cluster.Node("cp1"))
	eventually(t, func() error { return bootstrap(t, c) })

	var learner *emulator.Node

	eventually(t, func() error {
		members, err := c.EtcdMemberList(deadline(t), &machineapi.EtcdMemberListRequest{})
		if err != nil {
			return err
		}

		for _, member := range members.GetMessages()[0].GetMembers() {
			if member.GetIsLearner() && member.GetHostname() != "" {
				learner = cluster.Node(member.GetHostname())
			}
		}

		return until(learner != nil)
	})

	api := secure(t, cluster.Talosconfig(), learner)
	eventually(t, func() error { return until(!serviceInfo(t, api, "etcd").GetHealth().GetUnknown()) })

	health := serviceInfo(t, api, "etcd").GetHealth()
	require.False(t, health.GetHealthy())
	require.Equal(t, "etcdserver: rpc not supported for learner", health.GetLastMessage())

	// The other one waits for its turn: there is one learner, however long it takes.
	members, err := c.EtcdMemberList(deadline(t), &machineapi.EtcdMemberListRequest{})
	require.NoError(t, err)
	require.Len(t, members.GetMessages()[0].GetMembers(), 2)

	caughtUp := clock.Now()

	for _, node := range cluster.Nodes {
		node.Set(func(f *emulator.Faults) { f.EtcdJoin = 0 })
	}

	for _, node := range cluster.Nodes {
		require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	}

	require.GreaterOrEqual(t, clock.Now().Sub(caughtUp), 15*time.Second, "the second needs an attempt of its own")
	eventually(t, func() error {
		health := serviceInfo(t, api, "etcd").GetHealth()

		return until(health.GetHealthy() && health.GetLastMessage() == "")
	})
}

// filesIn are the names in a directory of a node.
func filesIn(t *testing.T, c *client.Client, directory string) (names []string) {
	t.Helper()

	stream, err := c.LS(deadline(t), &machineapi.ListRequest{Root: directory})
	require.NoError(t, err)

	for {
		entry, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return names
		}

		require.NoError(t, err)

		names = append(names, entry.GetRelativeName())
	}
}
