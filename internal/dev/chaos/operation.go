package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Operation is what an operator does with the cluster once it is up, while something else goes wrong: twice, the second
// time when all is healed again. The zero value is none.
type Operation struct {
	// Kind is the target.
	Kind string
	// Node is the one that it is for; empty for all that it concerns.
	Node string
	// Incident happens meanwhile; its moment counts from the start of the operation.
	Incident *Incident
	// Interrupted is when the operator presses Ctrl-C; 0 for never.
	Interrupted time.Duration
	// Version is the release of Talos that the files declare from then on; empty for none.
	Version string
	// Cordoned is a node that somebody else keeps pods off all the time; empty for none.
	Cordoned string
}

// operationKind is one target that looks after a cluster.
type operationKind struct {
	name string
	step steps.Step
	// calls are those that it makes, for those that go wrong.
	calls []string
	// whom draws the node that it is for; empty for none, and false if the plan has no room for it.
	whom func(random *rand.Rand, plan *Plan) (node string, fits bool)
	// flags are those of one call, given its number.
	flags func(w *world, operation Operation, call int) settings.Overrides
	// own draws a fault that only this operation meets; nil for none.
	own func(random *rand.Rand) knob
	// rejoins is set for an operation after which the recipe has to bring the node back.
	rejoins bool
}

var operationKinds = []operationKind{
	{
		name: "etcd:snapshot", step: steps.EtcdSnapshot{}, calls: []string{"EtcdSnapshot", "EtcdStatus", "EtcdMemberList"},
		whom: everyNode, flags: func(w *world, _ Operation, call int) settings.Overrides {
			return settings.Overrides{"file": w.snapshotFile(call)}
		},
		own: drawCutOff,
	},
	{
		name: "etcd:defrag", step: steps.EtcdDefrag{}, calls: []string{"EtcdDefragment", "EtcdStatus", "EtcdMemberList"},
		whom: everyNode, flags: func(*world, Operation, int) settings.Overrides { return nil },
	},
	{
		name: "reset", step: steps.Reset{}, calls: []string{"Reset", "EtcdMemberList", "/cosi.resource.State/List"},
		whom: oneOfSeveral, flags: func(_ *world, operation Operation, _ int) settings.Overrides {
			return settings.Overrides{"node": operation.Node, "yes": "true"}
		},
		own:     drawResetFault,
		rejoins: true,
	},
	{
		name: "upgrade", step: steps.Upgrade{},
		calls: []string{"Upgrade", "Reboot", "Version", "/machine.ImageService/Pull", "EtcdSnapshot", "EtcdStatus"},
		whom:  upgradable, flags: func(*world, Operation, int) settings.Overrides {
			return settings.Overrides{"cluster": clusterName, "yes": "true", "parallel": "1"}
		},
		own: drawRollback,
	},
}

// upgradable is for the release after those that all machines run.
func upgradable(_ *rand.Rand, plan *Plan) (string, bool) { return "", plan.nextTalos() != "" }

// nextTalos is the release that all machines can be brought to, without leaving one out; empty for none.
func (p *Plan) nextTalos() string {
	older := slices.ContainsFunc(p.Machines, func(machine Machine) bool { return machine.TalosVersion == olderTalos })
	newest := slices.ContainsFunc(p.Machines, func(machine Machine) bool { return machine.TalosVersion == newestTalos })

	switch {
	case older && newest, p.oldestTalos() == newestTalos:
		return ""
	case older:
		return newerTalos
	default:
		return newestTalos
	}
}

// workloads are what runs on the cluster while it is looked after: they can be moved, one pod at a time.
func (p *Plan) workloads() []kubernetes.Workload {
	const enough = 2

	if p.Operation.Kind == "" || len(p.Workers()) < enough {
		return nil
	}

	return []kubernetes.Workload{
		{Name: "web", Replicas: 2, Budget: 1, Starting: 10 * time.Second, EmptyDir: true},
		{Name: "data", Kind: kubernetes.StatefulSet, Ending: 20 * time.Second},
		{Name: "agent", Kind: kubernetes.DaemonSet},
	}
}

// everyNode is for operations that are for the cluster.
func everyNode(*rand.Rand, *Plan) (string, bool) { return "", true }

// oneOfSeveral is a node that the cluster can do without for a while.
func oneOfSeveral(random *rand.Rand, plan *Plan) (string, bool) {
	candidates := plan.Workers()
	if spare := plan.ControlPlanes(); len(spare) > 2 {
		candidates = append(candidates, spare...)
	}

	if plan.Endpoint == NodeAddress {
		candidates = slices.DeleteFunc(candidates, func(name string) bool { return name == plan.Machines[0].Name })
	}

	if len(candidates) == 0 {
		return "", false
	}

	return pick(random, candidates...), true
}

// operationShare is one in how many plans has an operation.
const operationShare = 3

// drawOperation adds what is done once the cluster is up to some plans.
func drawOperation(random *rand.Rand, plan *Plan) {
	if random.IntN(operationShare) > 0 {
		return
	}

	kind := operationKinds[random.IntN(len(operationKinds))]

	node, fits := kind.whom(random, plan)
	if !fits {
		return
	}

	plan.Operation = Operation{Kind: kind.name, Node: node}
	if kind.name == "upgrade" {
		plan.Operation.Version = plan.nextTalos()
	}

	if random.IntN(3) > 0 {
		plan.Operation.Incident = kind.incident(random, plan)
	}

	if random.IntN(6) == 0 {
		plan.Operation.Interrupted = between(random, 0, 20*time.Second)
	}

	if random.IntN(4) == 0 {
		plan.Operation.Cordoned = plan.Machines[random.IntN(len(plan.Machines))].Name
	}
}

// lateFaults are the kinds of trouble that a cluster that is up can have.
var lateFaults = []string{"power cut", "silence", "refused", "stall", "reset on refusal", "wrong clock",
	"etcd unhealthy", "Kubernetes API down"}

// incident draws what goes wrong meanwhile: a fault of a machine, or calls of this kind of operation.
func (k operationKind) incident(random *rand.Rand, plan *Plan) *Incident {
	if random.IntN(2) == 0 {
		return k.brokenCalls(random, plan)
	}

	if k.own != nil && random.IntN(2) == 0 {
		return atOnce(random, plan, "broken "+k.name, k.own(random))
	}

	name := pick(random, lateFaults...)
	i := slices.IndexFunc(faults, func(kind fault) bool { return kind.name == name })

	incident := faults[i].incidents(random, plan)[0]
	incident.Kind = name
	incident.At = Moment{Started, between(random, 0, pick(random, 3*time.Second, 30*time.Second))}

	return &incident
}

func (k operationKind) brokenCalls(random *rand.Rand, plan *Plan) *Incident {
	return atOnce(random, plan, "broken calls of "+k.name, drawCallsOf(random, k.calls))
}

// atOnce is a fault that the operation's node, else some control plane, has from its start.
func atOnce(random *rand.Rand, plan *Plan, kind string, drawn knob) *Incident {
	node := cmp.Or(plan.Operation.Node, pick(random, plan.ControlPlanes()...))

	return &Incident{Kind: kind, Node: node, Words: drawn.words, Class: drawn.class, At: Moment{Anchor: Started},
		on: drawn.on, off: drawn.off}
}

// drawCutOff has a snapshot end too early, as if it were whole.
func drawCutOff(random *rand.Rand) knob {
	end := 1 + random.IntN(30_000) //nolint:mnd // within the first parts

	return knob{
		words: fmt.Sprintf("cuts snapshots off after %d bytes", end), class: brokenCalls,
		on: func(f *emulator.Faults) { f.SnapshotEnd = end }, off: func(f *emulator.Faults) { f.SnapshotEnd = 0 },
	}
}

// drawResetFault has a reset end otherwise than asked.
func drawResetFault(random *rand.Rand) knob {
	fault := pick(random, emulator.ResetWipeFails, emulator.ResetPowersOff)
	words := map[emulator.ResetFault]string{emulator.ResetWipeFails: "can't wipe its disk",
		emulator.ResetPowersOff: "is off after a reset"}

	return knob{
		words: words[fault], class: poweredOff,
		on:  func(f *emulator.Faults) { f.Reset = fault },
		off: func(f *emulator.Faults) { f.Reset = emulator.ResetWorks },
	}
}

// drawRollback has a machine fall back to the system that it ran before.
func drawRollback(*rand.Rand) knob {
	return knob{
		words: "does not boot the new system", class: poweredOff,
		on:  func(f *emulator.Faults) { f.NewSystemFails = true },
		off: func(f *emulator.Faults) { f.NewSystemFails = false },
	}
}

// kind is that of a drawn operation.
func (o Operation) kind() operationKind {
	i := slices.IndexFunc(operationKinds, func(kind operationKind) bool { return kind.name == o.Kind })

	return operationKinds[i]
}

// String is the operation in plain words.
func (o Operation) String() string {
	text := "once the cluster is up: " + o.Kind

	if o.Node != "" {
		text += " of " + o.Node
	}

	if o.Version != "" {
		text += " to " + o.Version
	}

	if o.Cordoned != "" {
		text += fmt.Sprintf("; somebody has cordoned %s", o.Cordoned)
	}

	if o.Incident != nil {
		text += "; " + o.Incident.String()
	}

	if o.Interrupted > 0 {
		text += fmt.Sprintf("; after %s the operator presses Ctrl-C", o.Interrupted)
	}

	return text
}

func (w *world) snapshots() string { return filepath.Join(w.folder, "snapshots") }

func (w *world) snapshotFile(call int) string {
	return filepath.Join(w.snapshots(), fmt.Sprintf("snapshot%d.db", call))
}
