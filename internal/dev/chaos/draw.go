package chaos

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// NewPlan makes the plan of a seed. Each part has a source of chance of its own, so that most plans stay as they are
// when a kind of trouble is added: a seed that is kept goes on finding what it found.
func NewPlan(seed uint64) *Plan {
	random := source(seed, "cluster")
	chance := func(percent int) bool { return random.IntN(100) < percent }

	plan := &Plan{
		Seed:         seed,
		Endpoint:     pick(random, VIP, VIP, Balancer, NodeAddress),
		Discovery:    chance(50),
		DeclaredMACs: chance(80),
		DHCP:         chance(30),
		OwnCNI:       chance(30),
		Parallel:     chance(50),
		Settled:      chance(70),
		SettledAgain: chance(50),
	}

	drawMachines(source(seed, "machines"), plan)
	drawNewest(source(seed, "newest release"), plan)
	drawOperators(source(seed, "operators"), plan)

	for number := range pick(source(seed, "incidents"), 0, 1, 1, 1, 1, 2, 2, 2, 3, 4) {
		drawTrouble(seed, fmt.Sprint("incident ", number), plan)
	}

	plan.Leases = source(seed, "leases").IntN(4) == 0 && plan.identifiable()
	drawOperation(source(seed, "operation"), plan)

	return plan
}

// identifiable reports whether every machine is the declared one, is declared by its MAC, and has an address of its own
// in its config: then it can be found wherever it is, and answers where it belongs afterwards.
func (p *Plan) identifiable() bool {
	return p.DeclaredMACs && !p.DHCP &&
		!slices.ContainsFunc(p.Incidents, func(incident Incident) bool { return incident.equip != nil })
}

// source is the chance of one part of a plan.
func source(seed uint64, part ...string) *rand.Rand {
	hash := fnv.New64a()

	for _, word := range part {
		hash.Write([]byte(word + "\x00"))
	}

	return rand.New(rand.NewPCG(seed, hash.Sum64())) //nolint:gosec // chance, no secret
}

// drawOperators adds Ctrl-C and a second operator.
func drawOperators(random *rand.Rand, plan *Plan) {
	if random.IntN(10) == 0 {
		plan.Interrupted = between(random, time.Second, 2*time.Minute)
	}

	if random.IntN(5) == 0 {
		plan.Second = pick(random, SameMachine, Elsewhere)
		plan.SecondAfter = between(random, 0, time.Minute)
	}
}

// The Talos releases that machines run.
const (
	newestTalos = "v1.14.1"
	newerTalos  = "v1.13.9"
	olderTalos  = "v1.12.1"
)

// newestForm is the contract of the newest release: machine configs in documents, with an unattended install.
const newestForm = "v1.14"

// drawMachines makes small clusters most of the time, since a run's cost grows with its machines, and a mixed one now
// and then.
func drawMachines(random *rand.Rand, plan *Plan) {
	controlPlanes := pick(random, 1, 1, 1, 1, 2, 3, 3, 3, 3, 4, 5)
	workers := pick(random, 0, 0, 1, 1, 1, 2, 2, 3)

	if random.IntN(40) == 0 {
		workers = 4 + random.IntN(17)
	}

	common := pick(random, newerTalos, olderTalos)
	mixed := random.IntN(4) == 0
	slow := random.IntN(5) == 0

	add := func(prefix string, number int, controlPlane bool) {
		machine := Machine{Name: fmt.Sprint(prefix, number), ControlPlane: controlPlane, TalosVersion: common,
			Timing: drawTiming(random, slow)}
		if mixed {
			machine.TalosVersion = pick(random, newerTalos, olderTalos)
		}

		plan.Machines = append(plan.Machines, machine)
	}

	for number := range controlPlanes {
		add("cp", number+1, true)
	}

	for number := range workers {
		add("worker", number+1, false)
	}
}

// drawNewest lets machines run the newest release instead of the one before it: none, all of them, or some.
func drawNewest(random *rand.Rand, plan *Plan) {
	percent := pick(random, 0, 0, 100, 100, 50)

	for i := range plan.Machines {
		if machine := &plan.Machines[i]; machine.TalosVersion == newerTalos && random.IntN(100) < percent {
			machine.TalosVersion = newestTalos
		}
	}

	plan.Documents = plan.oldestTalos() == newestTalos && random.IntN(3) > 0
}

// drawTiming makes machines that differ; slow ones have a long self-test now and then, and think about an apply.
func drawTiming(random *rand.Rand, slow bool) emulator.Timing {
	timing := emulator.Timing{
		Boot:         between(random, 2*time.Second, 20*time.Second),
		Install:      between(random, 5*time.Second, time.Minute),
		Pods:         between(random, 0, 5*time.Second),
		Stop:         between(random, time.Second, 5*time.Second),
		Reboot:       between(random, 3*time.Second, 20*time.Second),
		Containers:   between(random, time.Second, 5*time.Second),
		Kubelet:      between(random, 2*time.Second, 10*time.Second),
		EtcdData:     between(random, time.Second, 5*time.Second),
		EtcdStart:    between(random, 6*time.Second, 15*time.Second),
		EtcdJoin:     between(random, 2*time.Second, 10*time.Second),
		ControlPlane: between(random, 5*time.Second, 20*time.Second),
		TimeSync:     between(random, time.Second, 5*time.Second),
		// Talos' half hour is a matter of seconds here.
		EtcdJoinLimit: patience,
	}

	if slow && random.IntN(2) == 0 {
		timing.SelfTest = between(random, 10*time.Second, 2*time.Minute)
	}

	if slow && random.IntN(2) == 0 {
		timing.Apply = between(random, time.Second, 30*time.Second)
	}

	return timing
}

// patience is a limit in the machines' time that no run comes near.
const patience = 1000 * time.Hour

// trouble is a kind of fault or mix-up.
type trouble struct {
	name string
	draw func(random *rand.Rand, plan *Plan) []Incident
}

// troubles are all kinds.
func troubles() []trouble {
	var all []trouble

	for _, kind := range faults {
		all = append(all, trouble{kind.name, kind.incidents})
	}

	for _, kind := range mixups {
		all = append(all, trouble{kind.name, kind.incidents})
	}

	return all
}

// drawTrouble adds a random trouble to the plan, unless it does not go with what is there. Every kind draws a lot; the
// highest wins.
func drawTrouble(seed uint64, slot string, plan *Plan) {
	var (
		chosen  trouble
		highest uint64
	)

	for _, kind := range troubles() {
		if lot := source(seed, slot, kind.name).Uint64(); lot >= highest {
			chosen, highest = kind, lot
		}
	}

	drawn := chosen.draw(source(seed, slot, "details"), plan)
	if slices.ContainsFunc(drawn, plan.clashes) {
		return
	}

	for i := range drawn {
		drawn[i].Kind = chosen.name
	}

	plan.Incidents = append(plan.Incidents, drawn...)
}

// clashes tells of an incident that does not go with one that is there: the same at the same machine, two mix-ups of
// one machine, or a machine that forgets its etcd, by a power cut or before anybody can know of it.
func (p *Plan) clashes(drawn Incident) bool {
	return slices.ContainsFunc(p.Incidents, func(there Incident) bool {
		return there.Node == drawn.Node && (there.Kind == drawn.Kind || there.equip != nil && drawn.equip != nil ||
			there.forgets != drawn.forgets &&
				(there.cutsPower || drawn.cutsPower || there.hasEtcd || drawn.hasEtcd))
	})
}

// incidents draws a fault of this kind for some machine.
func (f fault) incidents(random *rand.Rand, plan *Plan) []Incident {
	node := plan.Machines[random.IntN(len(plan.Machines))].Name

	if f.whom == controlPlanes {
		node = pick(random, plan.ControlPlanes()...)
	}

	return []Incident{f.incident(random, plan, node)}
}

// incidents draws a mix-up of this kind that begins with some machine; none if the plan has no room for one.
func (m mixup) incidents(random *rand.Rand, plan *Plan) []Incident {
	drawn, fits := m.draw(random, plan, plan.Machines[random.IntN(len(plan.Machines))].Name)
	if !fits {
		return nil
	}

	return drawn
}

// incident draws a fault of this kind for a machine, its moment and how long it lasts.
func (f fault) incident(random *rand.Rand, plan *Plan, node string) Incident {
	drawn := f.draw(random, plan, node)

	incident := Incident{
		Node: node, Words: drawn.words, Class: drawn.class,
		At: drawMoment(random, f.only),
		on: drawn.on, off: drawn.off, cutsPower: drawn.power, forgets: drawn.forgets,
	}

	if random.IntN(2) == 0 {
		incident.For = between(random, time.Second, pick(random, 10*time.Second, time.Minute, 5*time.Minute))
	}

	return incident
}

func drawMoment(random *rand.Rand, only []Anchor) Moment {
	anchor := pick(random, Before, Started, Started, Started, Configured, Bootstrapped)
	if len(only) > 0 {
		anchor = pick(random, only...)
	}

	switch anchor {
	case Before:
		return Moment{Anchor: Before}
	case Started:
		return Moment{anchor, between(random, 0, 150*time.Second)}
	case Configured:
		return Moment{anchor, between(random, 0, pick(random, 2*time.Second, time.Minute))}
	default:
		return Moment{anchor, between(random, 0, pick(random, 2*time.Second, 40*time.Second))}
	}
}

// number is a machine's place in the plan.
func (p *Plan) number(name string) int {
	return slices.IndexFunc(p.Machines, func(machine Machine) bool { return machine.Name == name })
}
