package chaos

import (
	"slices"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Class is how a fault looks to a client. Faults of one class can't be told apart from outside, so one of its diagnoses is right for any of them.
type Class struct {
	Name string
	// Here are the diagnoses that are right for the node that has the fault.
	Here []diagnosis.ID
	// Around are those that are right for the cluster, and for nodes that need the one that has it.
	Around []diagnosis.ID
}

// explains tells whether the class makes a diagnosis right: for the node itself, or for others.
func (c Class) explains(id diagnosis.ID, here bool) bool {
	return here && slices.Contains(c.Here, id) || slices.Contains(c.Around, id)
}

// What follows from a control plane that is not there: etcd lacks a member or its quorum, and where the endpoint leads to it, workers lack
// trustd and everybody lacks the Kubernetes API.
var (
	withoutMember   = []diagnosis.ID{diagnosis.EtcdIncomplete, diagnosis.EtcdNotHealthy}
	withoutEndpoint = []diagnosis.ID{
		diagnosis.WorkerJoining, diagnosis.NodeRefused, diagnosis.APINotReady, diagnosis.EndpointSilent, diagnosis.KubeconfigUnavailable, diagnosis.NotRegistered,
	}
	withoutControlPlane = slices.Concat(withoutMember, withoutEndpoint)
)

// The classes.
var (
	// harmless faults delay; they never make a run fail.
	harmless = Class{Name: "nothing but delay"}
	// silent: nothing answers at the node's address.
	silent = Class{
		Name: "no answer",
		Here: []diagnosis.ID{
			diagnosis.NodeSilent, diagnosis.BootstrapBlocked, diagnosis.ApplyOutcomeUnknown, diagnosis.ApplyGaveUp, diagnosis.NodeRefused, diagnosis.StageStuck,
			diagnosis.WorkerJoining,
		},
		Around: withoutControlPlane,
	}
	// poweredOff: the same, and what a machine has not written to its disk is gone.
	poweredOff = Class{
		Name:   "no answer, and what was not finished has to begin again",
		Here:   append([]diagnosis.ID{diagnosis.InstallFailed, diagnosis.StillMaintenance}, silent.Here...),
		Around: withoutControlPlane,
	}
	// refused: the machine is there and its API port is closed.
	refused = Class{
		Name: "port refused",
		Here: []diagnosis.ID{
			diagnosis.NodeRefused, diagnosis.BootstrapBlocked, diagnosis.ApplyOutcomeUnknown, diagnosis.ApplyGaveUp, diagnosis.StageStuck, diagnosis.WorkerJoining,
		},
		Around: withoutControlPlane,
	}
	// stalled: connections die once a machine config is sent over them.
	stalled = Class{
		Name:   "a call never ends",
		Here:   []diagnosis.ID{diagnosis.ApplyGaveUp, diagnosis.ApplyOutcomeUnknown, diagnosis.BootstrapBlocked},
		Around: withoutControlPlane,
	}
	// notTalos: something else answers.
	notTalos = Class{
		Name:   "not Talos",
		Here:   []diagnosis.ID{diagnosis.NotTalos, diagnosis.BootstrapBlocked},
		Around: withoutControlPlane,
	}
	// wrongMachine: what answers is a Talos machine, and not the declared one.
	wrongMachine = Class{Name: "another machine", Here: []diagnosis.ID{diagnosis.WrongMachine}, Around: withoutControlPlane}
	// foreignNode: what answers runs in another cluster.
	foreignNode = Class{Name: "another cluster's node", Here: []diagnosis.ID{diagnosis.ForeignNode}, Around: withoutControlPlane}
	// swapped: a machine runs another node's config.
	swapped = Class{Name: "another node's config", Here: []diagnosis.ID{diagnosis.NodesSwapped, diagnosis.WrongMachine, diagnosis.BootstrapBlocked}, Around: withoutControlPlane}
	// installFailed: the machine is back in maintenance.
	installFailed = Class{
		Name:   "back in maintenance",
		Here:   []diagnosis.ID{diagnosis.InstallFailed, diagnosis.StillMaintenance, diagnosis.BootstrapBlocked, diagnosis.StageStuck},
		Around: withoutControlPlane,
	}
	// slow: an install or a boot takes longer than anybody waits for.
	slow = Class{
		Name:   "does not get any further",
		Here:   []diagnosis.ID{diagnosis.NodeRefused, diagnosis.NodeSilent, diagnosis.StageStuck, diagnosis.BootstrapBlocked, diagnosis.WorkerJoining, diagnosis.StillMaintenance},
		Around: withoutControlPlane,
	}
	// unsynced: the machine's clock is not synced.
	unsynced = Class{
		Name: "clock not synced",
		Here: []diagnosis.ID{
			diagnosis.TimeNotSynced, diagnosis.StageStuck, diagnosis.BootstrapBlocked, diagnosis.WorkerJoining, diagnosis.NodeRefused,
		},
		Around: withoutControlPlane,
	}
	// offClock: the machine's certificate is not valid at this time, or it takes ours for invalid.
	offClock = Class{
		Name: "clock wrong",
		Here: []diagnosis.ID{
			diagnosis.NodeClock, diagnosis.StageStuck, diagnosis.BootstrapBlocked, diagnosis.WorkerJoining, diagnosis.NodeRefused, diagnosis.CallNotAllowed,
		},
		Around: withoutControlPlane,
	}
	// signerDown: no control plane signs workers' certificates.
	signerDown = Class{Name: "trustd down", Here: []diagnosis.ID{diagnosis.StageStuck}, Around: []diagnosis.ID{diagnosis.WorkerJoining, diagnosis.NodeRefused}}
	// bootstrapFails: the node refuses to bootstrap.
	bootstrapFails = Class{Name: "Bootstrap refused", Here: []diagnosis.ID{diagnosis.BootstrapFailed, diagnosis.BootstrapBlocked}, Around: []diagnosis.ID{diagnosis.EtcdNotHealthy}}
	// etcdApart: etcd runs without this member, or not at all.
	etcdApart = Class{Name: "etcd not whole", Around: withoutControlPlane}
	// apiDown: the Kubernetes API of a control plane does not come up.
	apiDown = Class{Name: "Kubernetes API down", Here: []diagnosis.ID{diagnosis.StageStuck}, Around: withoutEndpoint}
	// kubeletIll: the node does not get Kubernetes running.
	kubeletIll = Class{Name: "kubelet down", Here: []diagnosis.ID{diagnosis.StageStuck}, Around: []diagnosis.ID{diagnosis.NotRegistered, diagnosis.NodesNotReady}}
	// brokenCalls: calls break off, or are never answered.
	brokenCalls = Class{
		Name: "calls break off",
		Here: []diagnosis.ID{
			diagnosis.ApplyGaveUp, diagnosis.ApplyOutcomeUnknown, diagnosis.BootstrapFailed, diagnosis.BootstrapBlocked, diagnosis.StageStuck, diagnosis.FactUnread,
		},
		Around: withoutControlPlane,
	}
	// refusedCalls: calls are answered with an error.
	refusedCalls = Class{
		Name: "calls are refused",
		Here: []diagnosis.ID{
			diagnosis.ApplyGaveUp, diagnosis.ApplyRejected, diagnosis.BootstrapFailed, diagnosis.BootstrapBlocked, diagnosis.StageStuck, diagnosis.FactUnread,
		},
		Around: withoutControlPlane,
	}
	// crowded: somebody else does the same at the same time.
	crowded = Class{
		Name:   "a second operator",
		Here:   []diagnosis.ID{diagnosis.EtcdStopped, diagnosis.LockTaken, diagnosis.ApplyGaveUp, diagnosis.BootstrapFailed},
		Around: []diagnosis.ID{diagnosis.EtcdNotHealthy, diagnosis.EtcdIncomplete, diagnosis.LockTaken},
	}
)
