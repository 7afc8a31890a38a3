package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
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
	// Loss is what the cluster has lost before; nil for nothing.
	Loss *Loss
	// Ageing is what the talosconfig has become before; nil for nothing.
	Ageing *Ageing
	// Program is a program of the operator's computer that fails once; nil for none.
	Program *ProgramFault
	// Look is a target that looks at the cluster once while what went wrong is there still and once in the end; empty for
	// none.
	Look string
}

// operationKind is one target that looks after a cluster.
type operationKind struct {
	name string
	list func(*settings.Settings) []steps.Step
	// calls are those that it makes, for those that go wrong.
	calls []string
	// whom draws the node that it is for; empty for none, and false if the plan has no room for it.
	whom func(random *rand.Rand, plan *Plan) (node string, fits bool)
	// flags are those of one call, given its number.
	flags func(w *world, operation Operation, call int) settings.Overrides
	// lasts is how long it takes, where that is longer than most.
	lasts time.Duration
	// own draws a fault that only this operation meets; nil for none.
	own func(random *rand.Rand, plan *Plan) *Incident
	// scene is how the cluster comes to need it; the zero value for an operation that any cluster can need.
	scene
	// rejoins is set for an operation after which the recipe has to bring nodes back.
	rejoins bool
}

// The names that more than the table knows.
const (
	snapshotName = "etcd:snapshot"
	resetName    = "reset"
	upgradeName  = "upgrade"
	nodeName     = "upgradeNode"
	rotateName   = "config:rotate"
	appsName     = "apps"
	upK8sName    = "upgradeK8s"
	removeName   = "etcd:removeMember"
	replaceName  = "replaceNode"
	recoverName  = "etcd:recover"
)

// only is the list of a single step.
func only(step steps.Step) func(*settings.Settings) []steps.Step {
	return func(*settings.Settings) []steps.Step { return []steps.Step{step} }
}

var operationKinds = []operationKind{
	{
		name: snapshotName, list: only(steps.EtcdSnapshot{}),
		calls: []string{"EtcdSnapshot", "EtcdStatus", "EtcdMemberList"},
		whom:  everyNode, flags: func(w *world, _ Operation, call int) settings.Overrides {
			return settings.Overrides{"file": w.snapshotFile(call)}
		},
		own: drawCutOff,
	},
	{
		name: "etcd:defrag", list: only(steps.EtcdDefrag{}),
		calls: []string{"EtcdDefragment", "EtcdStatus", "EtcdMemberList"},
		whom:  everyNode, flags: func(*world, Operation, int) settings.Overrides { return nil },
	},
	{
		name: resetName, list: only(steps.Reset{}), calls: []string{"Reset", "EtcdMemberList", "/cosi.resource.State/List"},
		whom: oneOfSeveral, flags: func(_ *world, operation Operation, _ int) settings.Overrides {
			return settings.Overrides{"node": operation.Node, "yes": "true"}
		},
		own:     drawResetFault,
		rejoins: true,
	},
	{
		name: upgradeName, list: only(steps.Upgrade{}),
		calls: []string{"Upgrade", "Reboot", "Version", "/machine.ImageService/Pull", "EtcdSnapshot", "EtcdStatus"},
		whom:  upgradable, flags: func(*world, Operation, int) settings.Overrides {
			return settings.Overrides{"cluster": clusterName, "yes": "true", "parallel": "1"}
		},
		own: drawUpgradeFault,
	},
	{
		name: nodeName, list: only(steps.Upgrade{}),
		calls: []string{"Upgrade", "Reboot", "Version", "/machine.ImageService/Pull", "EtcdSnapshot", "EtcdStatus"},
		whom:  upgradableNode, flags: func(_ *world, operation Operation, _ int) settings.Overrides {
			return settings.Overrides{"<address>": operation.Node, "yes": "true", "parallel": "1"}
		},
		own: drawUpgradeFault,
	},
	{
		name: rotateName, list: only(steps.Rotate{}), calls: []string{"*"}, // it asks nobody
		whom: everyNode, flags: func(*world, Operation, int) settings.Overrides { return nil },
		scene: scene{draw: drawAgeing, before: (*world).age, meanwhile: (*world).watchTalosconfig,
			healed: (*world).repairFiles},
	},
	{
		name: appsName, list: only(steps.Apps{}), calls: []string{"*"}, // it asks Kubernetes
		whom: everyNode, flags: func(*world, Operation, int) settings.Overrides { return nil },
		own:   drawAPIAway,
		scene: scene{draw: drawProgramFault, before: (*world).furnish, healed: (*world).takeStock},
	},
	{
		name: upK8sName, list: only(steps.UpgradeK8s{}),
		calls: []string{"ApplyConfiguration", "ApplyConfiguration", "ImagePull", "/cosi.resource.State/Get", "Kubeconfig"},
		whom:  upgradableKubernetes, flags: func(*world, Operation, int) settings.Overrides { return nil },
		own:   drawReboot,
		lasts: 2 * time.Minute,
		scene: scene{draw: drawProgramFault, before: (*world).declareKubernetes, healed: (*world).noteOld},
	},
	{
		name: removeName, list: only(steps.EtcdRemoveMember{}),
		calls: []string{"EtcdRemoveMemberByID", "EtcdMemberList", "EtcdStatus"},
		whom:  spareControlPlane, flags: func(_ *world, operation Operation, _ int) settings.Overrides {
			return settings.Overrides{"<id>": fmt.Sprintf("%016x", operation.Loss.member)}
		},
		scene: scene{draw: drawGone, before: (*world).loseMachine},
	},
	{
		name: replaceName, list: steps.ReplaceNode,
		calls: []string{"EtcdRemoveMemberByID", "EtcdMemberList", "EtcdStatus", "ApplyConfiguration",
			"/cosi.resource.State/List"},
		whom: replaceable, flags: func(_ *world, operation Operation, _ int) settings.Overrides {
			return settings.Overrides{"<address>": operation.Node}
		},
		scene: scene{draw: drawReplacement, before: (*world).makeRoom, meanwhile: (*world).arrive,
			healed: (*world).putIn},
	},
	{
		name: recoverName, list: only(steps.EtcdRecover{}),
		calls: []string{"Reset", "EtcdRecover", "Bootstrap", "EtcdStatus", "EtcdMemberList", "EtcdSnapshot",
			"/cosi.resource.State/List"},
		whom: severalControlPlanes, flags: func(w *world, operation Operation, _ int) settings.Overrides {
			flags := settings.Overrides{"<file>": w.snapshotFile(0), "yes": "true"}
			if destroyed := operation.Loss.Destroyed; len(destroyed) > 0 {
				flags["destroyed"] = strings.Join(destroyed, ",")
			}

			return flags
		},
		scene:   scene{draw: drawLostQuorum, before: (*world).loseQuorum, healed: (*world).putBack},
		own:     drawRestoreFault,
		rejoins: true,
	},
}

// upgradable is for the release after those that all machines run.
func upgradable(_ *rand.Rand, plan *Plan) (string, bool) { return "", plan.nextTalos() != "" }

// upgradableNode is one of them.
func upgradableNode(random *rand.Rand, plan *Plan) (string, bool) {
	return pick(random, plan.Machines...).Name, plan.nextTalos() != ""
}

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

// workloads are what runs on the cluster while it is looked after: they can be moved, one pod at a time, if there are
// two workers that take pods.
func (p *Plan) workloads() []kubernetes.Workload {
	const enough = 2

	var work []kubernetes.Workload

	open := slices.DeleteFunc(p.Workers(), func(name string) bool { return name == p.Operation.Cordoned })
	if p.Operation.Kind != "" && len(open) >= enough {
		work = []kubernetes.Workload{
			{Name: "web", Replicas: 2, Budget: 1, Starting: 10 * time.Second, EmptyDir: true},
			{Name: "data", Kind: kubernetes.StatefulSet, Ending: 20 * time.Second},
			{Name: "agent", Kind: kubernetes.DaemonSet},
		}
	}

	if incident := p.Operation.Incident; incident != nil && incident.Kind == blockingBudget {
		work = append(work, kubernetes.Workload{Name: "kept", Node: incident.Node})
	}

	return work
}

// everyNode is for operations that are for the cluster.
func everyNode(*rand.Rand, *Plan) (string, bool) { return "", true }

// oneOfSeveral is a node that the cluster can do without for a while.
func oneOfSeveral(random *rand.Rand, plan *Plan) (string, bool) {
	return anyOf(random, append(plan.Workers(), plan.spareControlPlanes()...))
}

// spareControlPlane is a control plane that the cluster can do without for good.
func spareControlPlane(random *rand.Rand, plan *Plan) (string, bool) {
	return anyOf(random, plan.spareControlPlanes())
}

// replaceable is one whose machine can be told from another.
func replaceable(random *rand.Rand, plan *Plan) (string, bool) {
	if !plan.DeclaredMACs {
		return "", false
	}

	return spareControlPlane(random, plan)
}

// severalControlPlanes is for an etcd that can lose its quorum.
func severalControlPlanes(_ *rand.Rand, plan *Plan) (string, bool) {
	return "", len(plan.ControlPlanes()) > smallEtcd
}

// spareControlPlanes are those that etcd can do without, and at whose address the endpoint is not.
func (p *Plan) spareControlPlanes() []string {
	spare := p.ControlPlanes()

	switch {
	case len(spare) <= smallEtcd:
		return nil
	case p.Endpoint == NodeAddress:
		return spare[1:]
	default:
		return spare
	}
}

func anyOf(random *rand.Rand, candidates []string) (string, bool) {
	if len(candidates) == 0 {
		return "", false
	}

	return pick(random, candidates...), true
}

// operationShare is one in how many plans has an operation.
const operationShare = 3

// drawOperation adds what is done once the cluster is up to some plans. Every kind draws a lot; of those that the plan
// has room for the highest wins.
func drawOperation(random *rand.Rand, plan *Plan) {
	if random.IntN(operationShare) > 0 {
		return
	}

	lot := func(kind operationKind) uint64 { return source(plan.Seed, "operation", kind.name).Uint64() }

	kinds := slices.Clone(operationKinds)
	slices.SortFunc(kinds, func(a, b operationKind) int { return cmp.Compare(lot(b), lot(a)) })

	for _, kind := range kinds {
		details := source(plan.Seed, "operation", kind.name, "details")

		if node, fits := kind.whom(details, plan); fits {
			plan.Operation = Operation{Kind: kind.name, Node: node}
			kind.details(details, plan)
			plan.Operation.Look = drawLook(source(plan.Seed, "look"))

			return
		}
	}
}

// details draws what goes wrong, and what else there is to an operation.
func (k operationKind) details(random *rand.Rand, plan *Plan) {
	if k.name == upgradeName || k.name == nodeName {
		plan.Operation.Version = plan.nextTalos()
	}

	if k.draw != nil {
		k.draw(random, plan)
	}

	if random.IntN(3) > 0 {
		plan.Operation.Incident = k.incident(random, plan)
	}

	// Nobody could tell such a node from one that is gone, and its member is removed as was asked for.
	if loss, incident := plan.Operation.Loss, plan.Operation.Incident; loss != nil && incident != nil &&
		loss.Living == incident.Node && slices.Contains([]string{"power cut", "silence", "refused"}, incident.Kind) {
		plan.Operation.Incident = nil
	}

	if random.IntN(6) == 0 {
		plan.Operation.Interrupted = between(random, 0, cmp.Or(k.lasts, 20*time.Second)) //nolint:mnd // as most take
	}

	// An etcd that is restored knows nothing of later cordons.
	if random.IntN(4) == 0 && k.name != recoverName {
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
		return k.own(random, plan)
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

// atOnce is a fault that a node of the operation has from its start.
func atOnce(random *rand.Rand, plan *Plan, kind string, drawn knob) *Incident {
	return &Incident{Kind: kind, Node: plan.Operation.affected(random, plan), Words: drawn.words, Class: drawn.class,
		At: Moment{Anchor: Started}, on: drawn.on, off: drawn.off}
}

// affected is the node that an operation asks: its own, or some control plane that is there.
func (o Operation) affected(random *rand.Rand, plan *Plan) string {
	others := slices.DeleteFunc(plan.ControlPlanes(), func(name string) bool { return o.Loss.gone(name) })
	if o.Node != "" && !o.Loss.gone(o.Node) && (o.Loss == nil || random.IntN(2) == 0) {
		return o.Node
	}

	return pick(random, others...)
}

// drawCutOff has a snapshot end too early, as if it were whole.
func drawCutOff(random *rand.Rand, plan *Plan) *Incident {
	end := 1 + random.IntN(30_000) //nolint:mnd // within the first parts

	return atOnce(random, plan, "broken "+snapshotName, knob{
		words: fmt.Sprintf("cuts snapshots off after %d bytes", end), class: brokenCalls,
		on: func(f *emulator.Faults) { f.SnapshotEnd = end }, off: func(f *emulator.Faults) { f.SnapshotEnd = 0 },
	})
}

// drawResetFault has a reset end otherwise than asked.
func drawResetFault(random *rand.Rand, plan *Plan) *Incident {
	fault := pick(random, emulator.ResetWipeFails, emulator.ResetPowersOff)
	words := map[emulator.ResetFault]string{emulator.ResetWipeFails: "can't wipe its disk",
		emulator.ResetPowersOff: "is off after a reset"}

	return atOnce(random, plan, "broken "+resetName, knob{
		words: words[fault], class: poweredOff,
		on:  func(f *emulator.Faults) { f.Reset = fault },
		off: func(f *emulator.Faults) { f.Reset = emulator.ResetWorks },
	})
}

// blockingBudget is a fault by its name.
const blockingBudget = "blocking budget"

// drawUpgradeFault has a machine fall back to the system that it ran before, or keep its pods.
func drawUpgradeFault(random *rand.Rand, plan *Plan) *Incident {
	if plan.OwnCNI && random.IntN(4) > 0 { // without a CNI no pods run
		drawn := atOnce(random, plan, blockingBudget, knob{
			words: "has pods that their budget lets nobody evict", class: held,
			on:  func(f *emulator.Faults) { f.BudgetBlocks = true },
			off: func(f *emulator.Faults) { f.BudgetBlocks = false },
		})
		drawn.Node = plan.Machines[random.IntN(len(plan.Machines))].Name

		return drawn
	}

	return atOnce(random, plan, "broken "+upgradeName, knob{
		words: "does not boot the new system", class: poweredOff,
		on:  func(f *emulator.Faults) { f.NewSystemFails = true },
		off: func(f *emulator.Faults) { f.NewSystemFails = false },
	})
}

// drawRestoreFault has a snapshot turn out to be damaged on the node.
func drawRestoreFault(random *rand.Rand, plan *Plan) *Incident {
	return atOnce(random, plan, "broken recovery", knob{
		words: "finds the snapshot to be damaged", class: brokenCalls,
		on:  func(f *emulator.Faults) { f.RestoreFails = true },
		off: func(f *emulator.Faults) { f.RestoreFails = false },
	})
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

	if o.Loss != nil {
		text += "; " + o.Loss.String()
	}

	if o.Ageing != nil {
		text += "; " + o.Ageing.String()
	}

	if o.Program != nil {
		text += "; " + o.Program.String()
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

	if o.Look != "" {
		text += "; then " + o.Look
	}

	return text
}

func (w *world) snapshots() string { return filepath.Join(w.folder, "snapshots") }

func (w *world) snapshotFile(call int) string {
	return filepath.Join(w.snapshots(), fmt.Sprintf("snapshot%d.db", call))
}
