package chaos

import (
	"slices"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Class is how a fault looks to a client. Faults of one class can't be told apart from outside, so one of its diagnoses
// is right for any of them.
type Class struct {
	Name string
	// Here are the diagnoses that are right for the node that has the fault.
	Here []diagnosis.ID
	// Around are those that are right for the cluster, and for nodes that need the one that has it: a control plane.
	Around []diagnosis.ID
	// Everywhere are right for any node, whichever has the fault.
	Everywhere []diagnosis.ID
	// Unmet are right besides, for both, where control planes meet through the Kubernetes API alone.
	Unmet []diagnosis.ID
}

// What follows from a control plane that is not there.
var (
	// withoutMember: etcd lacks it.
	withoutMember = []diagnosis.ID{diagnosis.EtcdIncomplete}
	// withoutCluster: etcd lacks its quorum, or the endpoint leads nowhere, so that workers lack trustd and everybody the
	// Kubernetes API, and control planes are never ready. One control plane of several has no such consequences, unless
	// the endpoint is its address.
	withoutCluster = []diagnosis.ID{
		diagnosis.EtcdNotHealthy, diagnosis.WorkerJoining, diagnosis.NodeRefused, diagnosis.APINotReady,
		diagnosis.EndpointSilent, diagnosis.StageStuck,
		diagnosis.KubeconfigUnavailable, diagnosis.NotRegistered,
	}
	withoutControlPlane = slices.Concat(withoutMember, withoutCluster)
	// withoutCertificate: a worker's port stays closed, which not every step explains.
	withoutCertificate = []diagnosis.ID{diagnosis.WorkerJoining, diagnosis.NodeRefused}
)

// The classes.
var (
	// harmless faults delay; they never make a run fail.
	harmless = Class{Name: "nothing but delay"}
	// silent: nothing answers at the node's address.
	silent = Class{
		Name: "no answer",
		Here: []diagnosis.ID{diagnosis.NodeSilent, diagnosis.BootstrapBlocked, diagnosis.ApplyOutcomeUnknown,
			diagnosis.ApplyGaveUp, diagnosis.NotRegistered},
		Around: withoutControlPlane,
	}
	// away: nothing answers, or the port is closed, since the machine is at another address, or boots again.
	away = Class{Name: "no answer or port refused",
		Here:   append([]diagnosis.ID{diagnosis.NodeRefused, diagnosis.WorkerJoining}, silent.Here...),
		Around: withoutControlPlane}
	// poweredOff: the same, and what a machine has not written to its disk is gone.
	poweredOff = Class{
		Name:   "no answer, and what was not finished has to begin again",
		Here:   append([]diagnosis.ID{diagnosis.InstallFailed, diagnosis.NodesNotReady}, away.Here...),
		Around: withoutControlPlane,
	}
	// refused: the machine is there and its API port is closed.
	refused = Class{
		Name: "port refused",
		Here: []diagnosis.ID{
			diagnosis.NodeRefused, diagnosis.BootstrapBlocked, diagnosis.ApplyOutcomeUnknown, diagnosis.ApplyGaveUp,
			diagnosis.WorkerJoining,
			diagnosis.StillMaintenance, // what was being sent when the port closed did not arrive
		},
		Around: withoutControlPlane,
	}
	// stalled: connections die once a machine config is sent over them.
	stalled = Class{Name: "an apply never ends",
		Here: []diagnosis.ID{diagnosis.ApplyGaveUp, diagnosis.ApplyOutcomeUnknown}, Around: withoutControlPlane}
	// notTalos: something else answers.
	notTalos = Class{Name: "not Talos", Here: []diagnosis.ID{diagnosis.NotTalos, diagnosis.BootstrapBlocked},
		Around: withoutControlPlane}
	// wrongMachine: what answers is a Talos machine, and not the declared one.
	wrongMachine = Class{Name: "another machine", Here: []diagnosis.ID{diagnosis.WrongMachine},
		Around: withoutControlPlane}
	// foreignNode: what answers runs in another cluster.
	foreignNode = Class{Name: "another cluster's node", Here: []diagnosis.ID{diagnosis.ForeignNode},
		Around: withoutControlPlane}
	// swapped: a machine runs another node's config.
	swapped = Class{Name: "another node's config", Here: []diagnosis.ID{diagnosis.NodesSwapped},
		Around: withoutControlPlane}
	// moved: a machine with its own config answers where another node belongs; a declared MAC tells, else the config does.
	// Until the other one has come to where it belongs itself, nobody is there.
	moved = Class{Name: "another node's place",
		Here:   append([]diagnosis.ID{diagnosis.NodesSwapped, diagnosis.WrongMachine}, away.Here...),
		Around: withoutControlPlane}
	// installFailed: the machine is back in maintenance.
	installFailed = Class{Name: "back in maintenance", Here: []diagnosis.ID{diagnosis.InstallFailed},
		Around: withoutControlPlane}
	// slow: an install takes longer than anybody waits for.
	slow = Class{
		Name: "an install does not end",
		Here: []diagnosis.ID{diagnosis.NodeRefused, diagnosis.StageStuck, diagnosis.BootstrapBlocked,
			diagnosis.WorkerJoining},
		Around: withoutControlPlane,
	}
	// looping: the machine comes and goes.
	looping = Class{
		Name: "a boot does not end",
		Here: []diagnosis.ID{
			diagnosis.NodeRefused, diagnosis.NodeSilent, diagnosis.StageStuck, diagnosis.BootstrapBlocked,
			diagnosis.WorkerJoining, diagnosis.ApplyGaveUp,
		},
		Around: withoutControlPlane,
	}
	// unsynced: the machine's clock is not synced.
	unsynced = Class{Name: "clock not synced",
		Here: append([]diagnosis.ID{diagnosis.TimeNotSynced, diagnosis.StageStuck, diagnosis.BootstrapBlocked},
			withoutCertificate...), Around: withoutControlPlane}
	// offClock: the machine's certificate is not valid at this time, or it takes ours for invalid.
	offClock = Class{Name: "clock wrong",
		Here: append([]diagnosis.ID{diagnosis.NodeClock, diagnosis.ClientRefused, diagnosis.StageStuck,
			diagnosis.BootstrapBlocked}, withoutCertificate...),
		// The kubeconfig that it makes is not valid yet, or no longer; nor is the certificate that it signs for a worker.
		Around: append([]diagnosis.ID{diagnosis.APIRefusesClient, diagnosis.NodeClock}, withoutControlPlane...)}
	// signerDown: no control plane signs workers' certificates.
	signerDown = Class{Name: "trustd down", Here: []diagnosis.ID{diagnosis.StageStuck},
		Around: withoutCertificate}
	// bootstrapFails: the node refuses to bootstrap.
	bootstrapFails = Class{Name: "Bootstrap refused", Here: []diagnosis.ID{diagnosis.BootstrapFailed}}
	// etcdApart: etcd runs without this member, or not at all, so the node never becomes ready.
	etcdApart = Class{Name: "etcd not whole", Here: []diagnosis.ID{diagnosis.StageStuck}, Around: withoutControlPlane}
	// otherEtcd: a control plane brings an etcd of its own.
	otherEtcd = Class{Name: "another etcd", Here: etcdApart.Here,
		Around: append([]diagnosis.ID{diagnosis.EtcdSplit}, withoutControlPlane...)}
	// etcdStuck: etcd does not get as far as running.
	etcdStuck = Class{Name: "etcd does not run",
		Here:   []diagnosis.ID{diagnosis.BootstrapFailed, diagnosis.BootstrapBlocked, diagnosis.StageStuck},
		Around: withoutControlPlane}
	// apiDown: the Kubernetes API of a control plane does not come up.
	apiDown = Class{Name: "Kubernetes API down", Here: []diagnosis.ID{diagnosis.StageStuck}, Around: withoutCluster,
		Unmet: withoutMember}
	// kubeletIll: the node does not get Kubernetes running.
	kubeletIll = Class{Name: "kubelet down",
		Here: []diagnosis.ID{diagnosis.StageStuck, diagnosis.NotRegistered, diagnosis.NodesNotReady}, Unmet: withoutMember}
	// held: the nodes are whole, and pods stay on them: a budget is for all pods of what runs on one, wherever they are.
	held = Class{Name: "an eviction is refused", Everywhere: []diagnosis.ID{diagnosis.DrainBlocked}}
	// brokenCalls: calls break off, or are never answered. A machine that is back in maintenance then does not tell that
	// it has booted meanwhile.
	brokenCalls = Class{
		Name: "calls break off",
		Here: []diagnosis.ID{diagnosis.ApplyGaveUp, diagnosis.ApplyOutcomeUnknown, diagnosis.IdentityUnread,
			diagnosis.StillMaintenance,
			diagnosis.BootstrapFailed, diagnosis.BootstrapBlocked, diagnosis.StageStuck},
		Around: withoutControlPlane,
	}
	// refusedCalls: calls are answered with an error.
	refusedCalls = Class{
		Name: "calls are refused",
		Here: []diagnosis.ID{diagnosis.ApplyGaveUp, diagnosis.ApplyRejected, diagnosis.IdentityUnread,
			diagnosis.StillMaintenance,
			diagnosis.BootstrapFailed, diagnosis.BootstrapBlocked, diagnosis.StageStuck},
		Around: withoutControlPlane,
	}
	// crowded: somebody else does the same at the same time.
	crowded = Class{
		Name:   "a second operator",
		Here:   []diagnosis.ID{diagnosis.EtcdStopped},
		Around: []diagnosis.ID{diagnosis.LockTaken},
	}
)
