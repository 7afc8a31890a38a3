package chaos_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/chaos"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

var (
	began  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	struck = began.Add(time.Minute)
	ended  = began.Add(2 * time.Minute)
	healed = began.Add(3 * time.Minute)
)

const (
	secret     = "bm8gc2VjcmV0IGF0IGFsbA=="
	everything = `{"event":"started","step":"verify"}{"event":"started","step":"verifyWorkers"}`
)

// call is one that took effect.
func call(method string, at time.Time) emulator.Call {
	return emulator.Call{Method: "/machine.MachineService/" + method, Mutating: true, Done: true, Code: codes.OK, Time: at}
}

func apply(config string) emulator.Call {
	sent := call("ApplyConfiguration", began)
	sent.ConfigSHA256 = config

	return sent
}

// sound is the history of a bring-up of two control planes and a worker without any incident.
func sound() *chaos.History {
	return &chaos.History{
		DeclaredMACs: true,
		Nodes: []chaos.Declared{
			{Name: "cp1", ControlPlane: true, MAC: "mac of cp1", Config: "config of cp1"},
			{Name: "cp2", ControlPlane: true, MAC: "mac of cp2", Config: "config of cp2"},
			{Name: "cp3", ControlPlane: true, MAC: "mac of cp3", Config: "config of cp3"},
			{Name: "worker1", MAC: "mac of worker1", Config: "config of worker1"},
		},
		Machines: []chaos.Recorded{
			{Name: "cp1", MAC: "mac of cp1", Calls: []emulator.Call{apply("config of cp1"), call("Bootstrap", began)}},
			{Name: "cp2", MAC: "mac of cp2", Calls: []emulator.Call{apply("config of cp2")}},
			{Name: "cp3", MAC: "mac of cp3", Calls: []emulator.Call{apply("config of cp3")}},
			{Name: "worker1", MAC: "mac of worker1", Calls: []emulator.Call{apply("config of worker1")}},
		},
		MadeFirst: 1, Made: 1,
		First: []chaos.Run{{Operator: "first", Began: began, Ended: ended, Output: "done", Report: everything,
			Secrets: []string{secret}}},
		Again: &chaos.Run{Operator: "first", Healed: true, Began: healed, Ended: healed.Add(time.Minute)},
	}
}

// failed is the same, ended by these problems.
func failed(code diagnosis.ExitCode, message string, strikes ...chaos.Strike) *chaos.History {
	h := sound()
	h.First[0].Code, h.First[0].Message, h.Strikes = code, message, strikes

	return h
}

// silence is a node that falls silent, and nothing follows from that for others.
func silence(node string) chaos.Strike {
	return chaos.Strike{
		Incident: chaos.Incident{Kind: "silence", Node: node,
			Class: chaos.Class{Here: []diagnosis.ID{diagnosis.NodeSilent},
				Around: []diagnosis.ID{diagnosis.EtcdIncomplete, diagnosis.WorkerJoining}}},
		Time: struck,
	}
}

// apart is an etcd that lacks members while a control plane's Kubernetes API is down, which may be where they meet.
func apart(node string, meet bool) *chaos.History {
	h := failed(diagnosis.ExitBootstrap, incomplete, chaos.Strike{
		Incident: chaos.Incident{Kind: "Kubernetes API down", Node: node,
			Class: chaos.Class{Unmet: []diagnosis.ID{diagnosis.EtcdIncomplete}}},
		Time: struck,
	})
	h.MeetInKubernetes = meet

	return h
}

const (
	// unregistered is the reason that only Kubernetes can tell of.
	unregistered = "Kubernetes does not know it"
	unanswered   = "verifyWorkers: Kubernetes did not list its nodes for 6m: it refuses connections [TM135]. Next: x"
	silentWorker = "worker1 (192.0.2.14): verifyWorkers: no answer at 192.0.2.14 for 5m [TM091]. Next: power it on"
	silentCP2    = "cp2 (192.0.2.12): verify: no answer at 192.0.2.12 for 5m [TM091]. Next: power it on"
	incomplete   = "bootstrap: etcd works with 2 of 3: cp2 missing [TM112]. Next: bring them up, then mage talos"
	joining      = "worker1 (192.0.2.14): verifyWorkers: port 50000 refused for 8m [TM097]. Next: look at its console"
	swappedNode  = "cp2 (192.0.2.12): preflight: the machine at cp2's address runs the config of cp3 [TM098]. Next: " +
		"compare the addresses"
)

func TestWhatHoldsIsNoViolation(t *testing.T) {
	t.Parallel()

	histories := map[string]*chaos.History{
		"nothing happened":           sound(),
		"the right node, its class":  failed(diagnosis.ExitVerify, silentWorker, silence("worker1")),
		"what follows from it":       failed(diagnosis.ExitBootstrap, incomplete, silence("cp2")),
		"who needs the bootstrapped": failed(diagnosis.ExitVerify, joining, silence("cp1")),
		"members that can't meet":    apart("cp1", true),
		"a swap that is told": failed(diagnosis.ExitVerify, swappedNode,
			chaos.Strike{Incident: chaos.Incident{Node: "cp2", Class: chaos.Class{Here: []diagnosis.ID{diagnosis.NodesSwapped}}},
				Time: struck}),
		"a node whose address an ill one took": failed(diagnosis.ExitVerify, silentWorker, silence("worker2"), chaos.Strike{
			Incident: chaos.Incident{Node: "worker2", Other: "worker1", Class: chaos.Class{Name: "another node's place"}},
			Time:     struck}),
		"a node that fell ill later": sound(),
		"nodes nobody could ask for": failed(diagnosis.ExitVerify, unanswered, chaos.Strike{
			Incident: chaos.Incident{Node: "cp1", Class: chaos.Class{Around: []diagnosis.ID{diagnosis.APINotReady}}},
			Time:     struck}),
		"interrupted, with its code": failed(diagnosis.ExitInterrupt, "stopped by SIGINT"),
		"a lock that another one has": failed(diagnosis.ExitPreflight,
			"cluster: another run is changing this cluster [TM116]. Next: wait"),
	}

	later := silence("worker1")
	later.Healthy = []string{"worker1"}
	histories["a node that fell ill later"].Strikes = []chaos.Strike{later}
	histories["a node that fell ill later"].Unhealthy = map[string]string{"worker1": "it is off"}
	histories["nodes nobody could ask for"].Unhealthy = map[string]string{"worker1": unregistered}
	kept := apply("config of cp1")
	kept.HadEtcd, kept.Roles = true, "os:reader"
	twice := sound()
	twice.Machines[0].FormerEtcd = true
	twice.Machines[0].Calls = append([]emulator.Call{kept, kept}, twice.Machines[0].Calls[1:]...)
	histories["data of an earlier life where the config is sent twice"] = twice

	histories["a swap that is told"].Confused = []string{"cp2"}
	histories["interrupted, with its code"].First[0].Interrupted = true
	histories["a lock that another one has"].Crowded = true

	for name, history := range histories {
		require.Empty(t, history.Check(), name)
	}
}

// cared is a sound history with an operation, changed.
func cared(change func(*chaos.Care)) *chaos.History {
	h := sound()
	copied := []chaos.Snapshot{{Name: "snapshot1.db", Whole: true}}
	h.Care = &chaos.Care{
		Operation:      chaos.Operation{Kind: "etcd:snapshot", Cordoned: "cp2"},
		First:          &chaos.Run{Operator: "first", Secrets: []string{secret}},
		Again:          &chaos.Run{Operator: "first", Healed: true},
		Blows:          []chaos.Blow{{Node: "cp1", Method: "Upgrade", ControlPlane: true, Voters: 3, Up: 3}},
		FirstSnapshots: copied,
		Snapshots:      append([]chaos.Snapshot{{Name: "snapshot2.db", Whole: true}}, copied...),
	}
	change(h.Care)

	return h
}

// removing is the removal of cp3's member, recovering a recovery of etcd without cp3.
func removing(change func(*chaos.Care)) *chaos.History {
	return cared(func(c *chaos.Care) {
		c.Operation = chaos.Operation{Kind: "etcd:removeMember", Node: "cp3", Loss: &chaos.Loss{Destroyed: []string{"cp3"}}}
		c.Blows = []chaos.Blow{{Node: "cp3", Method: "EtcdRemoveMemberByID", ControlPlane: true, Voters: 3, Up: 3}}
		change(c)
	})
}

func recovering(change func(*chaos.Care)) *chaos.History {
	return cared(func(c *chaos.Care) {
		c.Operation = chaos.Operation{Kind: "etcd:recover",
			Loss: &chaos.Loss{Destroyed: []string{"cp3"}, Emptied: []string{"cp2"}}}
		c.Blows = []chaos.Blow{{Node: "cp1", Method: "Reset", ControlPlane: true, Voters: 3, Up: 1}}
		c.Made = 1
		change(c)
	})
}

func meetInKubernetes(h *chaos.History) *chaos.History {
	h.MeetInKubernetes = true
	return h
}

// looked is a look at a cluster that is well.
func looked(target string, change func(*chaos.Look)) *chaos.History {
	return cared(func(c *chaos.Care) {
		look := chaos.Look{Target: target, Run: &chaos.Run{Operator: "first", Secrets: []string{secret}},
			Well: []string{"cp1", "cp2", "cp3", "worker1"}, Steady: true, AllWell: true,
			Bundle: &chaos.Bundle{Mode: 0o600, Text: "nodes/cp1/dmesg.txt"}}
		change(&look)
		c.Looks = []chaos.Look{look}
	})
}

// lacking is a look at a cluster of which worker1 is off.
func lacking(change func(*chaos.Look)) *chaos.History {
	return looked("diagnose", func(l *chaos.Look) {
		l.Well, l.AllWell, l.Ill = l.Well[:3], false, map[string]string{"worker1": "it is off"}
		l.Run.Code, l.Blamed = diagnosis.ExitVerify, []string{"worker1"}
		change(l)
	})
}

// rotating is the renewal of a talosconfig.
func rotating(trouble chaos.FileTrouble, change func(*chaos.Care)) *chaos.History {
	return cared(func(c *chaos.Care) {
		c.Operation = chaos.Operation{Kind: "config:rotate", Ageing: &chaos.Ageing{Expired: true, Trouble: trouble}}
		c.Rotation = &chaos.Rotation{FirstRenewed: true, Renewed: true}
		change(c)
	})
}

// refusedRotation is one that was refused, since the secrets are missing.
func refusedRotation(change func(*chaos.Care)) *chaos.History {
	return rotating(chaos.NoSecrets, func(c *chaos.Care) {
		c.First.Code, c.First.Message, c.Rotation.FirstRenewed = diagnosis.ExitBadInput, noSecretsFile, false
		change(c)
	})
}

// installing is the installation of applications.
func installing(change func(*chaos.Care)) *chaos.History {
	return cared(func(c *chaos.Care) {
		c.Operation, c.Installed = chaos.Operation{Kind: "apps"}, &chaos.Installed{}
		change(c)
	})
}

// failingProgram is one whose release did not get ready.
func failingProgram(change func(*chaos.Care)) *chaos.History {
	return installing(func(c *chaos.Care) {
		c.First.Code, c.First.Message = diagnosis.ExitKubernetes, releaseFails
		c.ProgramFailed, c.Installed.FirstMissing = true, []string{"release"}
		change(c)
	})
}

// modernizing is an upgrade of Kubernetes.
func modernizing(change func(*chaos.Care)) *chaos.History {
	return cared(func(c *chaos.Care) {
		c.Operation = chaos.Operation{Kind: "upgradeK8s"}
		c.Kubernetes = &chaos.KubernetesUpgrade{From: "v1.36.3", To: "v1.36.4"}
		change(c)
	})
}

// killedTalosctl is one whose talosctl was killed on its way.
func killedTalosctl(change func(*chaos.Care)) *chaos.History {
	return modernizing(func(c *chaos.Care) {
		c.First.Code, c.First.Message, c.ProgramFailed = diagnosis.ExitKubernetes, talosctlStopped, true
		c.Kubernetes.FirstOld = []string{"kubelet of cp1 runs v1.36.3"}
		change(c)
	})
}

// failing is an operation that fails while something is wrong with a node.
func failing(code diagnosis.ExitCode, message string, incident *chaos.Incident) func(*chaos.Care) {
	return func(c *chaos.Care) {
		c.Operation.Incident, c.Happened = incident, incident != nil
		c.First.Code, c.First.Message, c.FirstSnapshots = code, message, nil
	}
}

// ill is what is wrong with a node.
func ill(node string) *chaos.Incident {
	incident := silence(node).Incident

	return &incident
}

const (
	memberAnswers = "cp3 (192.0.2.13): etcd:removeMember: failed, as told above [TM129]. Next: power it off"
	formerAnswers = "cp3 (192.0.2.13): replaceNode: failed, as told above [TM142]. Next: power that machine off"
	ambiguous     = "cp3 (192.0.2.13): discover: failed, as told above [TM161]. Next: declare the machine's MAC address"
	notJoined     = "cp3 (192.0.2.13): joinEtcd: failed, as told above [TM112]. Next: talosctl service etcd"
	heldBack      = "etcd:removeMember: no member of etcd is healthy: cp2: no answer [TM130]. Next: mage etcd:status"
	noMember      = "<id> names \"3\", which is no member of etcd [TM128]. Next: mage etcd:members"
	snapshotFails = "cp2 (192.0.2.12): etcd:snapshot: failed, as told above [TM171]. Next: again"
	drainBlocked  = "cp2 (192.0.2.12): upgrade: failed, as told above [TM180]. Next: again"
	stillBooting  = "etcd:recover: failed, as told above [TM146]. Next: mage etcd:recover snapshot0.db -destroyed="
	noSecretsFile = "config:rotate: there is no talsecret.yaml to sign it with [TM406]. Next: bring it back"
	releaseFails  = "apps: the releases were not installed: helmfile says: something is wrong [TM414]. Next: mage apps"
	// talosctlStopped is what is said of a talosctl that was killed.
	talosctlStopped = "cp1 (192.0.2.11): upgradeK8s: talosctl stopped at kubelet: exit status 137 [TM167]. Next: again"
	notNeeded       = "cp1 (192.0.2.11): etcd:recover: failed, as told above [TM145]. Next: mage etcd:status"
)

// violatedCare is what no operation may come to.
func violatedCare() map[string][]*chaos.History {
	return map[string][]*chaos.History{
		"quorum is kept": {
			cared(func(c *chaos.Care) { c.Blows[0].Up = 2 }),
			cared(func(c *chaos.Care) { c.Blows[0].Voters, c.Blows[0].Up = 5, 3 }),
			removing(func(c *chaos.Care) { c.Blows[0].Up = 2 }),
			recovering(func(c *chaos.Care) { c.Blows[0].Voter = true }),
		},
		"one living etcd": {
			cared(func(c *chaos.Care) { c.Made = 1 }),
			recovering(func(c *chaos.Care) { c.Beside = []string{"cp1 beside cp2"} }),
		},
		"the living keep their members": {
			cared(func(c *chaos.Care) { c.Displaced = []string{"cp2"} }),
			removing(func(c *chaos.Care) { c.MemberLeft = true }),
			removing(func(c *chaos.Care) { c.NodeLeft = true }),
		},
		"operations fail rightly": {
			cared(failing(diagnosis.ExitBootstrap, snapshotFails, nil)),
			cared(failing(diagnosis.ExitBootstrap, snapshotFails, ill("worker1"))),
			cared(failing(diagnosis.ExitVerify, snapshotFails, ill("cp2"))), // not its code
			refusedRotation(func(c *chaos.Care) { c.Operation.Ageing.Trouble = chaos.Unwritable }),
			failingProgram(func(c *chaos.Care) { c.ProgramFailed = false }),
			killedTalosctl(func(c *chaos.Care) { c.ProgramFailed = false }),
			cared(failing(diagnosis.ExitBootstrap, snapshotFails, &chaos.Incident{Node: "cp2",
				Class: chaos.Class{Name: "nothing but delay"}})),
			removing(failing(diagnosis.ExitBootstrap, memberAnswers, nil)),
			recovering(failing(diagnosis.ExitBootstrap, stillBooting+"cp1", nil)), // which lost nothing
			cared(func(c *chaos.Care) {
				failing(diagnosis.ExitBootstrap, snapshotFails, ill("cp2"))(c)
				c.Happened = false // it would have come later
			}),
		},
		"one node at a time": {
			cared(func(c *chaos.Care) { c.Blows[0].Down = []string{"cp2"} }),
		},
		"no silent cordon": {
			cared(func(c *chaos.Care) { c.FirstCordons = []string{"cp1"} }),
			cared(func(c *chaos.Care) { c.AgainCordons = []string{"cp1"} }),
			cared(func(c *chaos.Care) { c.Uncordoned = true }),
		},
		"no snapshot lost": {
			cared(func(c *chaos.Care) { c.FirstSnapshots, c.Snapshots = nil, nil }),
			cared(func(c *chaos.Care) { c.Snapshots[0].Whole = false }),
			cared(func(c *chaos.Care) { c.Snapshots = c.Snapshots[:1] }),
			recovering(func(c *chaos.Care) { c.Unsaved = []string{"cp1"} }),
		},
		"talosconfigs are renewed whole": {
			rotating("", func(c *chaos.Care) { c.Rotation.Torn = []string{"0 bytes"} }),
			rotating("", func(c *chaos.Care) { c.Rotation.Lost = true }),
			rotating("", func(c *chaos.Care) { c.Rotation.FirstRenewed = false }),
			rotating("", func(c *chaos.Care) { c.Rotation.Renewed = false }),
			rotating("", func(c *chaos.Care) { c.Rotation.Refusing = []string{"cp1: certificate expired"} }),
			rotating(chaos.OthersSecrets, func(*chaos.Care) {}), // it was renewed
			refusedRotation(func(c *chaos.Care) { c.Operation.Ageing.Trouble, c.Rotation.FirstRenewed = "", true }),
		},
		"applications are installed": {
			installing(func(c *chaos.Care) { c.Installed.FirstMissing = []string{"release"} }),
			installing(func(c *chaos.Care) { c.Installed.Missing = []string{"release"} }),
			installing(func(c *chaos.Care) { c.Installed.Repeated = []string{"Secret/flux-system/sops-age"} }),
			installing(func(c *chaos.Care) { c.Installed.Exposed = []string{"kubectl"} }),
		},
		"Kubernetes is upgraded": {
			modernizing(func(c *chaos.Care) { c.Kubernetes.FirstOld = []string{"kubelet of cp1 runs v1.36.3"} }),
			modernizing(func(c *chaos.Care) { c.Kubernetes.Old = []string{"in the config of worker1"} }),
		},
		"looks change nothing": {
			looked("status", func(l *chaos.Look) { l.Changed = []string{"cp1 got a call of Reboot"} }),
		},
		"looks are true": {
			looked("health", func(l *chaos.Look) { l.Run.Code = diagnosis.ExitKubernetes }),
			looked("etcd:status", func(l *chaos.Look) { l.Run.Code = diagnosis.ExitBootstrap }),
			lacking(func(l *chaos.Look) { l.Run.Code, l.Blamed = diagnosis.ExitOK, nil }),
			lacking(func(l *chaos.Look) { l.Blamed = []string{"cp1"} }),
			lacking(func(l *chaos.Look) { l.Garbled = io.ErrUnexpectedEOF }),
		},
		"bundles are safe": {
			looked("diagnose", func(l *chaos.Look) { l.Bundle = nil }),
			looked("diagnose", func(l *chaos.Look) { l.Bundle.Mode = 0o644 }),
			looked("diagnose", func(l *chaos.Look) { l.Bundle.Text = "token: " + secret }),
		},
		"operations are told": {
			cared(func(c *chaos.Care) { c.First.Code = diagnosis.ExitBootstrap }),
			cared(func(c *chaos.Care) { c.First.Code, c.First.Message = diagnosis.ExitUnexpected, "unexpected" }),
			cared(func(c *chaos.Care) { c.First.Code, c.First.Interrupted = diagnosis.ExitBootstrap, true }),
		},
		"operations converge": {
			cared(func(c *chaos.Care) { c.Again.Code = diagnosis.ExitBootstrap }),
			cared(func(c *chaos.Care) { c.Rejoin = &chaos.Run{Code: diagnosis.ExitVerify} }),
			cared(func(c *chaos.Care) { c.Unhealthy = map[string]string{"cp1": "it is booting"} }),
			removing(func(c *chaos.Care) {
				c.Again.Code, c.Again.Message, c.MemberLeft = diagnosis.ExitBadInput, noMember, true
			}),
			removing(func(c *chaos.Care) { c.Operation.Loss = &chaos.Loss{Living: "cp3"} }), // it did as it was told
		},
		"no secrets": {
			cared(func(c *chaos.Care) { c.First.Output = secret }),
			looked("health", func(l *chaos.Look) { l.Run.Output = secret }),
		},
	}
}

func TestAnOperationThatHoldsIsNoViolation(t *testing.T) {
	t.Parallel()

	for name, history := range map[string]*chaos.History{
		"all is well": cared(func(*chaos.Care) {}),
		"two members, of which none can be spared": cared(func(c *chaos.Care) { c.Blows[0].Voters, c.Blows[0].Up = 2, 2 }),
		"one of five members is ill":               cared(func(c *chaos.Care) { c.Blows[0].Voters, c.Blows[0].Up = 5, 4 }),
		"another one of four is reset": cared(func(c *chaos.Care) {
			c.Blows[0].Method, c.Blows[0].Voters, c.Blows[0].Up = "Reset", 4, 3
		}),
		"members that can't meet after a recovery": meetInKubernetes(recovering(failing(diagnosis.ExitBootstrap, incomplete,
			&chaos.Incident{Node: "cp1", Class: chaos.Class{Unmet: []diagnosis.ID{diagnosis.EtcdIncomplete}}}))),
		"a failure that is told":          cared(failing(diagnosis.ExitBootstrap, snapshotFails, ill("cp2"))),
		"another control plane's trouble": removing(failing(diagnosis.ExitBootstrap, heldBack, ill("cp2"))),
		"a member of a node that lives": removing(func(c *chaos.Care) {
			c.Operation.Loss, c.Blows = &chaos.Loss{Living: "cp3"}, nil
			c.MemberLeft, c.NodeLeft = true, true
			failing(diagnosis.ExitBootstrap, memberAnswers, nil)(c)
			c.Again.Code, c.Again.Message = c.First.Code, c.First.Message
		}),
		"a former machine that comes back": removing(func(c *chaos.Care) {
			c.Operation.Kind, c.Operation.Loss.Returns = "replaceNode", true
			failing(diagnosis.ExitBootstrap, formerAnswers, nil)(c)
		}),
		"a new member that does not get well": removing(func(c *chaos.Care) {
			c.Operation.Kind = "replaceNode"
			failing(diagnosis.ExitKubernetes, notJoined, ill("cp3"))(c)
		}),
		"pods that a budget keeps on another node": cared(failing(diagnosis.ExitBootstrap, drainBlocked, &chaos.Incident{
			Node: "cp1", Class: chaos.Class{Everywhere: []diagnosis.ID{diagnosis.DrainBlocked}}})),
		"one that is found in its place": removing(func(c *chaos.Care) {
			c.Operation.Kind, c.Operation.Loss.Returns = "replaceNode", true
			failing(diagnosis.ExitPreflight, ambiguous, nil)(c)
		}),
		"an etcd without quorum that is wiped": recovering(func(*chaos.Care) {}),
		"a machine without etcd's data that still boots": recovering(func(c *chaos.Care) {
			failing(diagnosis.ExitBootstrap, stillBooting+"cp2", nil)(c)
		}),
		"an etcd that is restored already": recovering(func(c *chaos.Care) {
			c.Again.Code, c.Again.Message = diagnosis.ExitBootstrap, notNeeded
		}),
		"a cordon that is told": cared(func(c *chaos.Care) {
			c.First.Code, c.FirstCordons = diagnosis.ExitKubernetes, []string{"cp3"}
			c.First.Message = "cp3 (192.0.2.13): upgrade: failed, as told above [TM188]. Next: mage upgrade"
			c.First.Output = "warning TM182 cp3 (192.0.2.13) it stays cordoned, so that no pods are placed on it"
			c.Operation.Kind, c.Operation.Incident, c.Happened = "upgrade", ill("cp3"), true
		}),
		"applications that are installed":  installing(func(*chaos.Care) {}),
		"Kubernetes that is upgraded":      modernizing(func(*chaos.Care) {}),
		"a talosctl that is killed":        killedTalosctl(func(*chaos.Care) {}),
		"a release that fails":             failingProgram(func(*chaos.Care) {}),
		"a talosconfig that is renewed":    rotating("", func(*chaos.Care) {}),
		"one that can't be":                refusedRotation(func(*chaos.Care) {}),
		"a look at a cluster that is well": looked("health", func(*chaos.Look) {}),
		"a look that names who is ill":     lacking(func(*chaos.Look) {}),
		"a table of nodes of which one is ill": lacking(func(l *chaos.Look) {
			l.Target, l.Run.Code, l.Blamed = "status", diagnosis.ExitOK, nil
		}),
		"a node that came back meanwhile": lacking(func(l *chaos.Look) {
			l.Ill, l.Steady, l.Blamed = nil, false, []string{"cp1"}
		}),
		"interrupted": cared(func(c *chaos.Care) {
			c.First.Code, c.First.Interrupted = diagnosis.ExitInterrupt, true
			c.FirstSnapshots = nil
		}),
	} {
		require.Empty(t, history.Check(), name)
	}
}

// A check that can't fail would say nothing.
func TestEveryCheckCanFail(t *testing.T) {
	t.Parallel()

	changed := func(change func(*chaos.History)) *chaos.History {
		h := sound()
		change(h)

		return h
	}

	violated := map[string][]*chaos.History{
		"one etcd": {
			changed(func(h *chaos.History) { h.Made = 2 }),
			changed(func(h *chaos.History) { h.Former = 1 }),
		},
		"one Bootstrap": {
			changed(func(h *chaos.History) { h.Machines[1].Calls = append(h.Machines[1].Calls, call("Bootstrap", began)) }),
			changed(func(h *chaos.History) { h.Machines[0].Calls = h.Machines[0].Calls[:1] }),
		},
		"own config only": {
			changed(func(h *chaos.History) { h.Machines[1].Calls[0].ConfigSHA256 = "config of cp3" }),
			changed(func(h *chaos.History) { h.Machines[1].MAC = "mac of nobody" }),
		},
		"etcd left alone": {
			changed(func(h *chaos.History) {
				again := apply("config of cp1")
				again.HadEtcd = true
				h.Machines[0].Calls = append(h.Machines[0].Calls, again)
			}),
			changed(func(h *chaos.History) {
				reboot := call("Reboot", began)
				reboot.HadEtcd = true
				h.Machines[0].Calls = append(h.Machines[0].Calls, reboot)
			}),
			changed(func(h *chaos.History) {
				first, second := apply("config of cp1"), apply("config of cp1")
				first.HadEtcd, second.HadEtcd = true, true
				first.Roles = "os:reader"
				h.Machines[0].FormerEtcd = true
				h.Machines[0].Calls = append([]emulator.Call{first, second}, h.Machines[0].Calls[1:]...)
			}),
		},
		"no secrets": {
			changed(func(h *chaos.History) { h.First[0].Output = "token: " + secret }),
			changed(func(h *chaos.History) { h.First[0].Report += secret }),
			failed(diagnosis.ExitVerify, silentWorker+secret, silence("worker1")),
		},
		"success is true": {
			changed(func(h *chaos.History) { h.Unhealthy = map[string]string{"cp2": "it is booting"} }),
			changed(func(h *chaos.History) {
				h.Unhealthy = map[string]string{"worker1": "it is off"}
				h.Strikes = []chaos.Strike{silence("worker1")} // it was not well before either
			}),
		},
		"swaps are told": {
			changed(func(h *chaos.History) { h.Confused = []string{"cp2"} }),
		},
		"failures are right": {
			failed(diagnosis.ExitVerify, silentWorker),                      // nothing happened
			failed(diagnosis.ExitVerify, silentWorker, silence("cp2")),      // another node
			failed(diagnosis.ExitBootstrap, incomplete, silence("worker1")), // no member
			apart("cp1", false), // they meet elsewhere
			apart("cp3", true),  // they meet at the one that was bootstrapped
			// the others sign certificates
			failed(diagnosis.ExitVerify, joining, silence("cp2")),
			failed(diagnosis.ExitVerify, swappedNode, silence("cp2")),                                   // another class
			failed(diagnosis.ExitVerify, ""),                                                            // without a word
			failed(diagnosis.ExitUnexpected, "unexpected", silence("worker1")),                          // no diagnosis
			failed(diagnosis.ExitVerify, silentWorker, afterwards("worker1")),                           // it came later
			failed(diagnosis.ExitPreflight, "cluster: another run [TM116]. Next: wait", silence("cp1")), // there was nobody else
		},
		"the code fits": {
			failed(diagnosis.ExitApply, silentWorker, silence("worker1")),
			failed(diagnosis.ExitVerify, incomplete, silence("cp2")),
			changed(func(h *chaos.History) { h.First[0].Interrupted = true }),
		},
		"nobody is forgotten": {
			changed(func(h *chaos.History) {
				*h = *failed(diagnosis.ExitVerify, silentWorker, silence("worker1"))
				h.Unhealthy = map[string]string{"worker1": "it is off", "cp3": "it is booting"}
			}),
			changed(func(h *chaos.History) {
				*h = *failed(diagnosis.ExitVerify, silentWorker, silence("worker1"))
				h.Unhealthy = map[string]string{"worker1": "it is off", "cp3": unregistered}
			}),
		},
		"healed is healthy": {
			changed(func(h *chaos.History) { h.Again.Code = diagnosis.ExitVerify }),
			changed(func(h *chaos.History) { h.UnhealthyAgain = map[string]string{"cp1": "it is booting"} }),
		},
		"nothing done twice": {
			changed(func(h *chaos.History) {
				h.Machines[3].Calls = append(h.Machines[3].Calls, call("ApplyConfiguration", healed.Add(time.Second)))
				h.Machines[3].Calls[1].ConfigSHA256 = "config of worker1"
			}),
		},
	}

	for name, histories := range violatedCare() {
		violated[name] = append(violated[name], histories...)
	}

	for _, name := range chaos.Checks() {
		require.NotEmpty(t, violated[name], "nothing violates %q", name)

		for i, history := range violated[name] {
			var found []string

			for _, violation := range history.Check() {
				found = append(found, violation.Check)
			}

			require.Contains(t, found, name, "case %d", i)
		}
	}
}

// afterwards is a silence that began when the run was over.
func afterwards(node string) chaos.Strike {
	strike := silence(node)
	strike.Time = ended.Add(time.Second)

	return strike
}

func TestAFailureTellsItsReplayItsPlanAndWhatTheProgramWrote(t *testing.T) {
	t.Parallel()

	var text strings.Builder

	outcome := chaos.Outcome{Plan: chaos.NewPlan(7), History: sound(),
		Violations: []chaos.Violation{{Check: "one etcd", Text: "2 etcd clusters were made"}}}
	outcome.Write(&text)

	require.True(t, outcome.Failed())

	for _, part := range []string{"go tool mage chaos -seed=7 -runs=1", "control plane", "2 etcd clusters were made",
		"exit code 0\ndone"} {
		require.Contains(t, text.String(), part)
	}
}
