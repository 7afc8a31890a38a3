package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/emulator"
)

// NewPlan makes the plan of a seed.
func NewPlan(seed uint64) *Plan {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // chance, no secret
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

	drawMachines(random, plan)

	if chance(10) {
		plan.Interrupted = between(random, time.Second, 2*time.Minute)
	}

	if chance(20) {
		plan.Second = pick(random, SameMachine, Elsewhere)
		plan.SecondAfter = between(random, 0, time.Minute)
	}

	for range pick(random, 0, 1, 1, 1, 1, 2, 2, 2, 3, 4) {
		drawIncidents(random, plan)
	}

	return plan
}

// The Talos releases that machines run.
const (
	newerTalos = emulator.DefaultTalosVersion
	olderTalos = "v1.12.1"
)

// drawMachines makes small clusters most of the time, since a run's cost grows with its machines, and a mixed one now and then.
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
		machine := Machine{Name: fmt.Sprint(prefix, number), ControlPlane: controlPlane, TalosVersion: common, Timing: drawTiming(random, slow)}
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

// drawIncidents adds a random trouble to the plan, unless it does not go with what is there.
func drawIncidents(random *rand.Rand, plan *Plan) {
	node := plan.Machines[random.IntN(len(plan.Machines))].Name

	// One trouble in five is a mix-up.
	if random.IntN(5) == 0 {
		kind := mixups[random.IntN(len(mixups))]

		drawn, fits := kind.draw(random, plan, node)
		if fits && !plan.mixedUp(drawn) {
			for i := range drawn {
				drawn[i].Kind = kind.name
			}

			plan.Incidents = append(plan.Incidents, drawn...)
		}

		return
	}

	kind := faults[random.IntN(len(faults))]

	if kind.whom == controlPlanes {
		node = pick(random, plan.ControlPlanes()...)
	}

	if plan.has(kind.name, node) {
		return
	}

	plan.Incidents = append(plan.Incidents, kind.incident(random, plan, node))
}

// incident draws a fault of this kind for a machine, its moment and how long it lasts.
func (f fault) incident(random *rand.Rand, plan *Plan, node string) Incident {
	drawn := f.draw(random, plan, node)

	incident := Incident{
		Kind: f.name, Node: node, Words: drawn.words, Class: drawn.class,
		At: drawMoment(random, f.only),
		begin: func(_ *world, node *emulator.Node) {
			node.Set(drawn.on)
		},
		end: func(_ *world, node *emulator.Node) {
			node.Set(drawn.off)
		},
	}

	if drawn.power {
		incident.begin = func(_ *world, node *emulator.Node) { node.PowerOff() }
		incident.end = func(_ *world, node *emulator.Node) { node.PowerOn() }
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

func (p *Plan) has(kind, node string) bool {
	return slices.ContainsFunc(p.Incidents, func(i Incident) bool { return i.Kind == kind && i.Node == node })
}

// mixedUp tells whether one of these machines is part of a mix-up already.
func (p *Plan) mixedUp(drawn []Incident) bool {
	return slices.ContainsFunc(p.Incidents, func(there Incident) bool {
		return there.equip != nil && slices.ContainsFunc(drawn, func(new Incident) bool { return new.Node == there.Node })
	})
}

// number is a machine's place in the plan.
func (p *Plan) number(name string) int {
	return slices.IndexFunc(p.Machines, func(machine Machine) bool { return machine.Name == name })
}
