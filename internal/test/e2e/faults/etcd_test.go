package faults_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// The other control planes of a cluster of three.
const (
	cp2 = "cp2"
	cp3 = "cp3"
)

// three control planes, as etcd likes them.
var three = labcluster.Options{ControlPlanes: 3}

// etcdFaults are what can go wrong with the start of etcd, and what an earlier life or another hand may have left of
// it.
func etcdFaults() []fault {
	return afterBoot(append(append(bootstrapFaults(), joinFaults()...), dataFaults()...))
}

// bootstrapFaults are those of the one call that makes an etcd.
func bootstrapFaults() []fault {
	refused := func(title, knob string, reason emulator.BootstrapFault, says string) fault {
		return fault{
			title: title, class: "Bootstrap refused", knob: knob,
			inject: set(func(f *emulator.Faults) { f.Bootstrap = reason }),
			code:   diagnosis.ExitBootstrap, id: diagnosis.BootstrapFailed, node: cp1, says: says,
			seen: "the node refused to bootstrap",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Equal(t, 1, w.count(cp1, "Bootstrap"), "it is not sent again")
			},
			repeats: true, heal: calm,
		}
	}

	lost := func(title string, call emulator.CallFault, sent int) fault {
		call.Method, call.Times = "Bootstrap", 1

		return fault{
			title: title, class: "Bootstrap without a reply", knob: "Calls",
			inject: func(_ *testing.T, w *world) { w.fault(cp1, call) },
			seen:   "checking etcd", node: cp1,
			also: func(t *testing.T, w *world, _ outcome) { t.Helper(); require.Equal(t, sent, w.count(cp1, "Bootstrap")) },
		}
	}

	return []fault{
		{
			title: "the node never knows what it is", class: "Bootstrap refused, may pass",
			knob: "Bootstrap: BootstrapTypeUnset",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.installed(t)
				w.Node(cp1).Set(func(f *emulator.Faults) { f.Bootstrap = emulator.BootstrapTypeUnset })
			},
			settings: []string{"STAGE_TIMEOUT=60s"},
			code:     diagnosis.ExitBootstrap, id: diagnosis.BootstrapFailed, node: cp1, says: "machine type is not set",
			seen:    "machine type is not set",
			repeats: true, heal: calm,
		},
		refused("the waiting etcd can't be stopped", "Bootstrap: BootstrapEtcdStuck", emulator.BootstrapEtcdStuck,
			"failed to stop etcd"),
		refused("etcd can't be started", "Bootstrap: BootstrapEtcdStartFails", emulator.BootstrapEtcdStartFails,
			"error starting etcd in bootstrap mode"),
		lost("the reply to Bootstrap is lost before it took effect",
			emulator.CallFault{Do: emulator.Cut, When: emulator.BeforeEffect}, 2),
		lost("the reply to Bootstrap is lost after it took effect",
			emulator.CallFault{Do: emulator.Cut, When: emulator.AfterEffect}, 1),
		lost("the node says once that it holds data, and holds none",
			emulator.CallFault{Do: emulator.Fail, Code: codes.AlreadyExists, Text: "etcd data directory is not empty"}, 2),
		{
			title: "the node says for ever that it holds data, and holds none", class: "Bootstrap without an effect",
			knob: "Calls: Fail Bootstrap",
			inject: func(_ *testing.T, w *world) {
				w.fault(cp1, emulator.CallFault{Method: "Bootstrap", Do: emulator.Fail, Code: codes.AlreadyExists,
					Text: "etcd data directory is not empty"})
			},
			settings: []string{"ETCD_TIMEOUT=60s"},
			code:     diagnosis.ExitBootstrap, id: diagnosis.BootstrapFailed, node: cp1, says: "Bootstrap has had no effect",
			seen: "checking etcd",
			heal: calm,
		},
		{
			title: "a control plane never lets itself be bootstrapped", class: "Bootstrap refused",
			knob: "Calls: Fail Bootstrap",
			inject: func(_ *testing.T, w *world) {
				w.fault(cp1, emulator.CallFault{Method: "Bootstrap", Do: emulator.Fail, Code: codes.FailedPrecondition,
					Text: "bootstrap is not available yet"})
			},
			settings: []string{"STAGE_TIMEOUT=60s"},
			code:     diagnosis.ExitBootstrap, id: diagnosis.BootstrapFailed, node: cp1, says: "bootstrap is not available yet",
			seen: "bootstrap is not available yet; the node is",
			heal: calm,
		},
		{
			title: "a control plane says that it is a worker", class: "Bootstrap refused", knob: "Calls: Fail Bootstrap",
			inject: func(_ *testing.T, w *world) {
				w.fault(cp1, emulator.CallFault{
					Method: "Bootstrap", Do: emulator.Fail, Code: codes.Unimplemented,
					Text: "bootstrap is only available on control plane nodes", Times: 1,
				})
			},
			code: diagnosis.ExitBootstrap, id: diagnosis.BootstrapFailed, node: cp1, seen: "the node refused to bootstrap",
			also: func(t *testing.T, w *world, _ outcome) { t.Helper(); require.Equal(t, 1, w.count(cp1, "Bootstrap")) },
		},
		{
			title: "the file of a worker is a control plane's", class: "wrong files", knob: "machine config: machine.type",
			cluster: withWorker,
			inject:  func(t *testing.T, w *world) { t.Helper(); w.edit(t, worker1, "type: worker", "type: controlplane") },
			code:    diagnosis.ExitBadInput, id: diagnosis.ConfigRole, node: worker1, seen: "controlplane",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Zero(t, w.count(cp1, "ApplyConfiguration"))
			},
			heal: func(t *testing.T, w *world) { t.Helper(); w.restore(t, worker1) },
		},
		{
			title: "a control plane is in maintenance when bootstrap is due", class: "in maintenance", knob: "-node=",
			cluster: labcluster.Options{ControlPlanes: 2},
			inject:  func(t *testing.T, w *world) { t.Helper(); w.installed(t, "NODE=cp1") },
			run:     "bootstrap", settings: []string{"VERIFICATION_TIMEOUT=10s"},
			code: diagnosis.ExitBootstrap, id: diagnosis.BootstrapBlocked, node: cp2, says: "in maintenance, for",
			seen:    "in maintenance",
			repeats: true,
		},
		{
			title: "a power cut right after Bootstrap, before etcd wrote anything", class: "no answer, then no etcd data",
			knob: "PowerOff, Timing.EtcdData",
			cluster: labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 20},
				Timing: emulator.Timing{EtcdData: time.Minute}},
			during: func(t *testing.T, w *world) {
				t.Helper()
				eventually(t, func() bool { return w.bootstrapped(cp1) })
				w.Node(cp1).PowerOff()
				require.Zero(t, w.Lab.EtcdClusters(), "etcd had no time to write")
				w.Node(cp1).PowerOn()
			},
			seen: "it rebooted right after Bootstrap, before etcd had any data", node: cp1,
			also: func(t *testing.T, w *world, _ outcome) { t.Helper(); require.Equal(t, 2, w.count(cp1, "Bootstrap")) },
		},
		{
			title: "a power cut right after Bootstrap, once etcd has data", class: "no answer, then etcd data", knob: "PowerOff",
			cluster: three,
			during: func(t *testing.T, w *world) {
				t.Helper()
				w.cutOnceItHasData(t)

				looks := w.count(cp2, "ServiceList")

				eventually(t, func() bool { return w.count(cp2, "ServiceList") >= looks+3 })
				w.Node(cp1).PowerOn()
			},
			seen: "etcd: no answer from its node", node: cp1,
			also: func(t *testing.T, w *world, _ outcome) { t.Helper(); require.Equal(t, 1, w.count(cp1, "Bootstrap")) },
		},
		{
			title: "the node stays off after Bootstrap", class: "no answer", knob: "PowerOff", cluster: three,
			during:   func(t *testing.T, w *world) { t.Helper(); w.cutOnceItHasData(t) },
			settings: []string{"ETCD_TIMEOUT=400s"},
			code:     diagnosis.ExitBootstrap, id: diagnosis.EtcdNotHealthy, says: "cp1: no answer; cp2: ",
			seen: "etcd: no answer from its node",
			also: func(t *testing.T, _ *world, got outcome) {
				t.Helper()
				require.NotContains(t, got.message, " reset ", "the data on cp1 is the cluster's")
			},
			heal: func(_ *testing.T, w *world) { w.Node(cp1).PowerOn() },
		},
		{
			title: "a second Bootstrap stopped the etcd of the first", class: "etcd Finished, with data",
			knob:    "Bootstrap by another client",
			cluster: labcluster.Options{Timing: emulator.Timing{EtcdData: forEver}},
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.installed(t)
				w.bootstrap(t, cp1)

				api := w.client(t, cp1)

				eventually(t, func() bool { return etcdIs(t, api, "Running") })
				require.Error(t, api.Bootstrap(t.Context(), &machine.BootstrapRequest{}))
			},
			code: diagnosis.ExitBootstrap, id: diagnosis.EtcdStopped, node: cp1, seen: "etcd exists, so Bootstrap is not called",
			repeats: true,
			heal: func(t *testing.T, w *world) {
				t.Helper()
				require.NoError(t, w.client(t, cp1).Reboot(t.Context()))
				until(t, w.Node(cp1), (*emulator.Node).EtcdVoter)
			},
		},
		{
			title: "the run that bootstrapped was stopped before it knew", class: "etcd data",
			knob: "Bootstrap by another client",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.installed(t)
				w.bootstrap(t, cp1)
				eventually(t, func() bool { return w.Node(cp1).EtcdClusterID() != 0 })
			},
			seen: "etcd exists, so Bootstrap is not called",
			also: func(t *testing.T, w *world, _ outcome) { t.Helper(); require.Equal(t, 1, w.count(cp1, "Bootstrap")) },
		},
		{
			title: "two control planes were bootstrapped", class: "two lists of members", knob: "Bootstrap by another client",
			cluster: labcluster.Options{ControlPlanes: 2},
			inject: func(t *testing.T, w *world) {
				t.Helper()

				for _, name := range []string{cp1, cp2} {
					w.Node(name).Set(func(f *emulator.Faults) { f.EtcdNever = true }) // until both have their own
				}

				w.installed(t)
				w.bootstrap(t, cp1)
				w.bootstrap(t, cp2)

				for _, name := range []string{cp1, cp2} {
					until(t, w.Node(name), (*emulator.Node).EtcdVoter)
				}
			},
			code: diagnosis.ExitBootstrap, id: diagnosis.EtcdSplit, says: "two etcd clusters exist that do not know each other",
			seen:    "etcd exists, so Bootstrap is not called",
			repeats: true,
			heal: func(t *testing.T, w *world) {
				t.Helper()
				w.reinstall(cp2)
				w.heal(cp1)
				w.inMaintenance(t, cp2)
			},
		},
	}
}

// joinFaults are those of the control planes that join an etcd.
func joinFaults() []fault {
	return []fault{
		{
			title: "a control plane takes a minute to catch up with etcd", class: "etcd learner", knob: "EtcdJoin: 1 min",
			cluster: three,
			inject:  func(_ *testing.T, w *world) { w.Node(cp3).Set(func(f *emulator.Faults) { f.EtcdJoin = time.Minute }) },
			seen:    "etcd is a learner, catching up", node: cp3,
		},
		{
			title: "control planes wait for minutes before they join etcd", class: "etcd Preparing", knob: "EtcdNever",
			cluster: three,
			inject:  func(_ *testing.T, w *world) { w.neverJoin(cp2, cp3) },
			during: func(t *testing.T, w *world) {
				t.Helper()
				until(t, w.Node(cp1), (*emulator.Node).EtcdVoter)

				looks := w.count(cp3, "ServiceList")

				eventually(t, func() bool { return w.count(cp3, "ServiceList") >= looks+3 })
				w.heal(cp2)
				w.heal(cp3)
			},
			seen: "etcd waits to join", node: cp3,
		},
		{
			title: "a control plane never joins etcd", class: "etcd Preparing", knob: "EtcdNever", cluster: three,
			inject: func(_ *testing.T, w *world) { w.neverJoin(cp3) }, settings: []string{"ETCD_JOIN_TIMEOUT=4m"},
			code: diagnosis.ExitBootstrap, id: diagnosis.EtcdIncomplete, says: "etcd works with 2 of 3",
			seen: "etcd waits to join",
			heal: func(_ *testing.T, w *world) { w.heal(cp3) },
		},
		{
			title: "a control plane gives up joining etcd", class: "etcd Failed", knob: "EtcdNever, Timing.EtcdJoinLimit",
			cluster: three,
			edit: func(_ *testing.T, _ *world, machine *emulator.NodeOptions) {
				if machine.Name == cp3 {
					machine.Timing.EtcdJoinLimit, machine.Faults.EtcdNever = time.Second, true
				}
			},
			settings: []string{"ETCD_JOIN_TIMEOUT=4m"},
			code:     diagnosis.ExitBootstrap, id: diagnosis.EtcdIncomplete,
			says: "cp3: no etcd data, service Failed (Failed to run pre stage: failed to build initial etcd cluster",
			seen: "no etcd data, service Failed",
			heal: func(_ *testing.T, w *world) {
				w.heal(cp3)
				w.Node(cp3).PowerOff()
				w.Node(cp3).PowerOn()
			},
		},
		{
			title: "one of three control planes is off, and there is no etcd", class: "no answer", knob: "PowerOff",
			cluster: three,
			inject:  func(_ *testing.T, w *world) { w.Node(cp3).PowerOff() }, settings: []string{"NODE_WAIT=4m"},
			code: diagnosis.ExitApply, id: diagnosis.BootstrapBlocked, node: cp3, says: "there is no etcd yet",
			seen: "no answer",
			heal: func(_ *testing.T, w *world) { w.Node(cp3).PowerOn() },
		},
		{
			title: "one of three control planes is off, and said to be empty", class: "no answer",
			knob: "PowerOff, -assumeEmpty", cluster: three,
			inject:   func(_ *testing.T, w *world) { w.Node(cp3).PowerOff() },
			settings: []string{"NODE_WAIT=4m", "-assumeEmpty=cp3"},
			code:     diagnosis.ExitApply, id: diagnosis.EtcdIncomplete, says: "etcd works with 2 of 3: cp3 missing",
			seen: "no answer",
			heal: func(_ *testing.T, w *world) { w.Node(cp3).PowerOn() },
		},
		{
			title: "two of three control planes are up, and etcd exists", class: "no answer", knob: "PowerOff", cluster: three,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.ends(t, 0, "talos")
				w.Node(cp3).PowerOff()
			},
			run: "bootstrap", code: diagnosis.ExitBootstrap, id: diagnosis.EtcdIncomplete,
			says: "etcd works with 2 of 3: cp3 missing",
			seen: "etcd exists, so Bootstrap is not called", repeats: true,
			heal: func(_ *testing.T, w *world) { w.Node(cp3).PowerOn() },
		},
		{
			title: "a member's machine was reset", class: "in maintenance, and a member of etcd",
			knob: "Reset by another client", cluster: three,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.ends(t, 0, "talos")

				_, err := w.client(t, cp3).MachineClient.Reset(t.Context(), &machine.ResetRequest{
					Reboot: true, SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "STATE", Wipe: true},
						{Label: "EPHEMERAL", Wipe: true}},
				})
				require.NoError(t, err)
				w.inMaintenance(t, cp3)
			},
			run: "bootstrap", code: diagnosis.ExitBootstrap, id: diagnosis.EtcdIncomplete,
			says: "stale members, whose nodes are in maintenance: cp3", seen: "etcd exists, so Bootstrap is not called",
		},
		{
			title: "etcd has a member that the inventory no longer names", class: "an unknown member", knob: "talconfig.yaml",
			cluster: three,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.ends(t, 0, "talos")

				path := filepath.Join(w.Dir, "talconfig.yaml")
				data, err := os.ReadFile(path)
				require.NoError(t, err)

				before, _, found := strings.Cut(string(data), "  - hostname: cp3\n")
				require.True(t, found)
				require.NoError(t, os.WriteFile(path, []byte(before), 0o600))
			},
			id: diagnosis.UnknownMembers, says: "etcd has members that", seen: "etcd exists, so Bootstrap is not called",
		},
	}
}

// dataFaults are those of etcd data that is there already, and of an etcd that is ill.
func dataFaults() []fault {
	holds := func(kind emulator.EtcdData, names ...string) func(*testing.T, *world, *emulator.NodeOptions) {
		return func(_ *testing.T, _ *world, machine *emulator.NodeOptions) {
			for _, name := range names {
				if machine.Name == name {
					machine.Installed, machine.EtcdData = true, kind
				}
			}
		}
	}

	return []fault{
		{
			title: "a control plane holds a whole etcd of an earlier cluster", class: "etcd data, healthy",
			knob:    "NodeOptions.EtcdData: WholeEtcdData",
			cluster: three, edit: holds(emulator.WholeEtcdData, cp2),
			id: diagnosis.AlreadyInstalled, node: cp2, seen: "Talos is already on",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()

				for _, name := range []string{cp1, cp2, cp3} {
					require.Zero(t, w.count(name, "Bootstrap"), "data anywhere means no Bootstrap")
				}
			},
		},
		{
			title: "a control plane holds the etcd of a cluster that is lost", class: "etcd data, no quorum",
			knob:    "NodeOptions.EtcdData: LostEtcdData",
			cluster: three, edit: holds(emulator.LostEtcdData, cp2), settings: []string{"ETCD_TIMEOUT=60s"},
			code: diagnosis.ExitBootstrap, id: diagnosis.EtcdNotHealthy,
			says: "only cp2 holds data, left from an earlier install or a broken bootstrap",
			seen: "etcd exists, so Bootstrap is not called",
			also: func(t *testing.T, w *world, got outcome) {
				t.Helper()
				require.Contains(t, got.message, "this may be the only copy of a cluster: snapshot or copy /var/lib/etcd first")
				require.Zero(t, w.count(cp1, "Bootstrap"))
			},
			repeats: true,
			heal: func(t *testing.T, w *world) {
				t.Helper()

				_, err := w.client(t, cp2).MachineClient.Reset(t.Context(), &machine.ResetRequest{
					Reboot: true, SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}},
				})
				require.NoError(t, err)
				until(t, w.Node(cp2), func(node *emulator.Node) bool {
					return node.EtcdClusterID() == 0 &&
						node.Stage() == "booting"
				})
			},
		},
		{
			title: "two control planes hold the etcd of clusters that are lost", class: "etcd data, no quorum",
			knob:    "NodeOptions.EtcdData: LostEtcdData",
			cluster: three, edit: holds(emulator.LostEtcdData, cp1, cp3), settings: []string{"ETCD_TIMEOUT=60s"},
			code: diagnosis.ExitBootstrap, id: diagnosis.EtcdNotHealthy,
			says: "members: not readable, etcd does not answer without quorum",
			seen: "etcd exists, so Bootstrap is not called",
			also: func(t *testing.T, w *world, got outcome) {
				t.Helper()
				require.NotContains(t, got.message, " reset ", "nobody knows which of the two is worth something")
				require.Zero(t, w.count(cp2, "Bootstrap"))
			},
			next: diagnosis.ExitBootstrap, nextID: diagnosis.EtcdNotHealthy, nextSettings: []string{"ETCD_TIMEOUT=60s"},
		},
		{
			title: "etcd runs and fails its health checks", class: "etcd Running, not healthy", knob: "EtcdUnhealthy",
			inject: set(func(f *emulator.Faults) { f.EtcdUnhealthy = true }), settings: []string{"ETCD_TIMEOUT=60s"},
			code: diagnosis.ExitBootstrap, id: diagnosis.EtcdNotHealthy, says: "etcd is not healthy after", seen: "etcd",
			repeats: true, heal: calm,
		},
	}
}

// neverJoin keeps control planes out of etcd.
func (w *world) neverJoin(names ...string) {
	for _, name := range names {
		w.Node(name).Set(func(f *emulator.Faults) { f.EtcdNever = true })
	}
}

// installed brings all machines to where they wait for a bootstrap.
func (w *world) installed(t *testing.T, settings ...string) {
	t.Helper()

	w.ends(t, 0, "applyParallel", settings...)
	w.ends(t, 0, "verify", settings...)
}

// client is machinery's own, as another tool would use it.
func (w *world) client(t *testing.T, name string) *client.Client {
	t.Helper()

	made, err := w.Client(t.Context(), name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, made.Close()) })

	return made
}

// bootstrap does what the run would do, as somebody else.
func (w *world) bootstrap(t *testing.T, name string) {
	t.Helper()

	api := w.client(t, name)

	eventually(t, func() bool { return etcdIs(t, api, "Preparing") }, "etcd waits for it")
	require.NoError(t, api.Bootstrap(t.Context(), &machine.BootstrapRequest{}))
}

// bootstrapped reports whether a Bootstrap of a machine took effect.
func (w *world) bootstrapped(name string) bool {
	for _, call := range w.Node(name).Calls() {
		if call.Name() == "Bootstrap" && call.Succeeded() {
			return true
		}
	}

	return false
}

// etcdIs asks a machine whether its etcd is in a state.
func etcdIs(t *testing.T, api *client.Client, state string) bool {
	t.Helper()

	services, err := api.ServiceInfo(t.Context(), "etcd")

	return err == nil && len(services) == 1 && services[0].Service.GetState() == state
}

// cutOnceItHasData switches the first control plane off when its new etcd has written its data.
func (w *world) cutOnceItHasData(t *testing.T) {
	t.Helper()
	eventually(t, func() bool { return w.Node(cp1).EtcdClusterID() != 0 })
	w.Node(cp1).PowerOff()
}
