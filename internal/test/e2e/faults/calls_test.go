package faults_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// read is a call that changes nothing.
type read struct {
	// what it reads, in plain words.
	what string
	// method is its full name, resource the type of resource that it asks for.
	method, resource string
}

const (
	get      = "/cosi.resource.State/Get"
	list     = "/cosi.resource.State/List"
	watch    = "/cosi.resource.State/Watch"
	machines = "/machine.MachineService/"
)

// reads are all that a recipe reads from a control plane.
var reads = []read{
	{"its stage", get, "MachineStatuses.runtime.talos.dev"},
	{"its links", list, "LinkStatuses.net.talos.dev"},
	{"its UUID", get, "SystemInformations.hardware.talos.dev"},
	{"its disks", list, "Disks.block.talos.dev"},
	{"its system disk", get, "SystemDisks.block.talos.dev"},
	{"its volumes", list, "DiscoveredVolumes.block.talos.dev"},
	{"its security state", get, "SecurityStates.talos.dev"},
	{"its kernel arguments", get, "KernelCmdlines.runtime.talos.dev"},
	{"its extensions", list, "ExtensionStatuses.runtime.talos.dev"},
	{"its hostname", get, "HostnameStatuses.net.talos.dev"},
	{"its addresses", get, "NodeAddresses.net.talos.dev"},
	{"its machine config", get, "MachineConfigs.config.talos.dev"},
	{"its services", machines + "ServiceList", ""},
	{"its etcd directory", machines + "List", ""},
	{"its etcd's status", machines + "EtcdStatus", ""},
	{"its etcd's members", machines + "EtcdMemberList", ""},
	{"its kubeconfig", machines + "Kubeconfig", ""},
}

// unhurriedCalls end by themselves: nothing is silent.
var unhurriedCalls = []string{"DIAL_TIMEOUT=20s"}

// callFaults are what can happen to a single call.
func callFaults() []fault {
	var faults []fault

	for _, r := range reads {
		faults = append(faults, fault{
			title: "two resets while a node is asked for " + r.what,
			group: "a reset in the middle of any read, before the node read anything and, the next time, after that",
			class: "a call breaks off", knob: "Calls: Cut",
			inject: onCalls(
				emulator.CallFault{Method: r.method, Resource: r.resource, When: emulator.BeforeEffect, Do: emulator.Cut, Times: 1},
				emulator.CallFault{Method: r.method, Resource: r.resource, When: emulator.AfterEffect, Do: emulator.Cut, Times: 1},
			),
			settings: unhurriedCalls,
			also:     func(t *testing.T, w *world, got outcome) { t.Helper(); w.struck(t, got) },
		})
	}

	return append(faults, changeFaults()...)
}

// onCalls makes calls of the control plane go wrong once it is in maintenance mode.
func onCalls(faults ...emulator.CallFault) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		t.Helper()
		w.inMaintenance(t, cp1)
		w.fault(cp1, faults...)
	}
}

// struck fails if one of the call faults of the control plane never came to pass.
func (w *world) struck(t *testing.T, got outcome) {
	t.Helper()

	for _, f := range w.Node(cp1).Faults().Calls {
		require.Negative(t, f.Times, "%s %s was not called\n%s", f.Method, f.Resource, got.told())
	}
}

// changeFaults are what can happen to a watch, and to the two calls that change a node.
func changeFaults() []fault {
	cut := func(method string, when emulator.When) emulator.CallFault {
		return emulator.CallFault{Method: method, When: when, Do: emulator.Cut, Times: 1}
	}

	return []fault{
		{
			title: "a reset in the middle of a watch", class: "a call breaks off", knob: "Calls: Cut", cluster: withWorker,
			// A worker that is up except for its kubelet is watched.
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1, worker1)
				w.Node(worker1).Set(func(f *emulator.Faults) {
					f.KubeletDown, f.Calls = true, []emulator.CallFault{cut(watch, emulator.BeforeEffect)}
				})
			},
			settings: unhurriedCalls,
			during: func(t *testing.T, w *world) {
				t.Helper()
				eventually(t, func() bool { return w.count(worker1, "Watch") > 1 }, "it is watched again")
				w.Node(worker1).Set(func(f *emulator.Faults) { f.KubeletDown = false })
			},
		},
		{
			title: "a reset of an apply before the node took the config", class: "a reply is lost, nothing has changed",
			knob:     "Calls: Cut, BeforeEffect",
			inject:   onCalls(cut("ApplyConfiguration", emulator.BeforeEffect)),
			settings: unhurriedCalls, seen: "attempt 1 failed: the config was sent, but no reply came and the node is unchanged",
			node: cp1,
			also: applied(2),
		},
		{
			title: "a reset of an apply after the node took the config", class: "a reply is lost, the node went on",
			knob:     "Calls: Cut, AfterEffect",
			inject:   onCalls(cut("ApplyConfiguration", emulator.AfterEffect)),
			settings: unhurriedCalls, seen: "reply lost", node: cp1,
			also: applied(1),
		},
		{
			title:    "the port closes in an apply before the node took the config, and opens again",
			class:    "a reply is lost, nothing has changed",
			knob:     "Refuse, Calls: Hang, BeforeEffect",
			inject:   onCalls(emulator.CallFault{Method: "ApplyConfiguration", Do: emulator.Hang, Times: 1}),
			settings: append([]string{"NODE_REACHABILITY_RETRIES=10"}, unhurriedCalls...),
			during: func(t *testing.T, w *world) {
				t.Helper()
				eventually(t, func() bool { return w.count(cp1, "ApplyConfiguration") == 1 }, "the config is sent")
				w.Node(cp1).Refuse(true)
				require.NoError(t, w.Lab.Clock().Sleep(t.Context(), 5*time.Second))
				w.Node(cp1).Refuse(false)
			},
			seen: "attempt 1 failed: the config was sent, but no reply came and the node is unchanged", node: cp1,
			also: applied(2),
		},
		{
			title: "an apply that never answers, before the node took the config", class: "a reply is lost, nothing has changed",
			knob:     "Calls: Hang, BeforeEffect",
			inject:   onCalls(emulator.CallFault{Method: "ApplyConfiguration", Do: emulator.Hang, Times: 1}),
			settings: unhurriedCalls, seen: "attempt 1 failed: the config was sent, but no reply came and the node is unchanged",
			node: cp1,
			also: applied(2),
		},
		{
			title: "an apply that never answers, after the node took the config", class: "a reply is lost, the node went on",
			knob: "Calls: Hang, AfterEffect",
			inject: onCalls(emulator.CallFault{Method: "ApplyConfiguration", When: emulator.AfterEffect, Do: emulator.Hang,
				Times: 1}),
			settings: unhurriedCalls, seen: "reply lost", node: cp1,
			also: applied(1),
		},
		{
			title: "a connection goes half open in an apply, after the node took the config",
			class: "a reply is lost, the node went on", knob: "Calls: Freeze, AfterEffect",
			inject: onCalls(emulator.CallFault{Method: "ApplyConfiguration", When: emulator.AfterEffect, Do: emulator.Freeze,
				Times: 1}),
			settings: unhurriedCalls, seen: "reply lost", node: cp1,
			also: applied(1),
		},
		{
			title: "a reset of a Bootstrap before it took effect", class: "a reply is lost, nothing has changed",
			knob:     "Calls: Cut, BeforeEffect",
			inject:   onCalls(cut("Bootstrap", emulator.BeforeEffect)),
			settings: unhurriedCalls, seen: "checking whether the first Bootstrap took effect", node: cp1,
			also: bootstrapped(2),
		},
		{
			title: "a reset of a Bootstrap after it took effect", class: "a reply is lost, the node went on",
			knob:     "Calls: Cut, AfterEffect",
			inject:   onCalls(cut("Bootstrap", emulator.AfterEffect)),
			settings: unhurriedCalls, seen: "checking etcd", node: cp1,
			also: bootstrapped(1),
		},
		{
			title: "a Bootstrap that never answers, after it took effect", class: "a reply is lost, the node went on",
			knob:     "Calls: Hang, AfterEffect",
			inject:   onCalls(emulator.CallFault{Method: "Bootstrap", When: emulator.AfterEffect, Do: emulator.Hang, Times: 1}),
			settings: unhurriedCalls, seen: "checking etcd", node: cp1,
			also: bootstrapped(1),
		},
		{
			title: "a node panics in an apply, after it took the config", class: "an answer that tells nothing",
			knob: "Calls: Fail with Internal, AfterEffect",
			inject: onCalls(emulator.CallFault{
				Method: "ApplyConfiguration", When: emulator.AfterEffect, Do: emulator.Fail, Code: codes.Internal,
				Text: "panic recovered", Times: 1,
			}),
			settings: unhurriedCalls, seen: "reply lost", node: cp1,
			also: applied(1),
		},
	}
}

// applied checks how often the control plane was sent a config, and bootstrapped how often a Bootstrap.
func applied(times int) func(*testing.T, *world, outcome)      { return called("ApplyConfiguration", times) }
func bootstrapped(times int) func(*testing.T, *world, outcome) { return called("Bootstrap", times) }

func called(method string, times int) func(*testing.T, *world, outcome) {
	return func(t *testing.T, w *world, got outcome) {
		t.Helper()
		require.Equal(t, times, w.count(cp1, method), got.told())
	}
}

// What a recipe reads is all in the table above.
func TestEveryReadOfARunHasItsFaults(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{Workers: 1}, nil)
	w.ends(t, diagnosis.ExitOK, "talos")
	w.ends(t, diagnosis.ExitOK, "talos")

	for _, node := range w.Nodes {
		for _, call := range node.Calls() {
			known := call.Mutating || call.Method == watch ||
				slices.ContainsFunc(reads, func(r read) bool { return r.method == call.Method && r.resource == call.Resource })
			require.True(t, known, "%s %s", call.Method, call.Resource)
		}
	}
}
