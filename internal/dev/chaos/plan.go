package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// Plan is everything that a seed decides about a run. All times are the machines' time.
type Plan struct {
	Seed     uint64
	Endpoint Endpoint
	// Discovery reports whether the nodes find each other without the endpoint.
	Discovery bool
	// DeclaredMACs reports whether the inventory names every machine's hardware address.
	DeclaredMACs bool
	// DHCP leaves the addresses out of the machine configs.
	DHCP bool
	// Leases has machines answer at drawn addresses in maintenance, and the operators look for them (-discover).
	Leases bool
	// OwnCNI is Talos' own; without it nodes stay NotReady.
	OwnCNI bool
	// Parallel is APPLY_MODE=parallel.
	Parallel bool
	// Machines are control planes first.
	Machines []Machine
	// Settled reports whether the operator starts when all machines that can have booted.
	Settled bool
	// Documents makes machine configs in the form of the newest release.
	Documents bool
	// Interrupted is when the operator presses Ctrl-C; 0 for never.
	Interrupted time.Duration
	Second      SecondOperator
	// SecondAfter is how long after the first operator the second one starts.
	SecondAfter time.Duration
	Incidents   []Incident
	// SettledAgain is Settled for the run after the healing.
	SettledAgain bool
	// Operation is what is done once the cluster is up.
	Operation Operation
}

// Machine is one machine of a plan.
type Machine struct {
	Name         string
	ControlPlane bool
	TalosVersion string
	Timing       emulator.Timing
}

// Endpoint is what the cluster's endpoint is.
type Endpoint string

// Endpoints.
const (
	VIP         Endpoint = "a virtual address"
	Balancer    Endpoint = "a balancer"
	NodeAddress Endpoint = "the address of cp1"
)

// SecondOperator is a person who runs the same recipe on the same inventory at the same time.
type SecondOperator string

// Second operators.
const (
	NoSecond    SecondOperator = ""
	SameMachine SecondOperator = "on the same machine"
	Elsewhere   SecondOperator = "on another machine"
)

// ControlPlanes are the names of the control planes.
func (p *Plan) ControlPlanes() []string { return p.names(true) }

// Workers are the names of the workers.
func (p *Plan) Workers() []string { return p.names(false) }

func (p *Plan) names(controlPlane bool) []string {
	var names []string

	for _, machine := range p.Machines {
		if machine.ControlPlane == controlPlane {
			names = append(names, machine.Name)
		}
	}

	return names
}

func (p *Plan) machine(name string) *Machine {
	for i := range p.Machines {
		if p.Machines[i].Name == name {
			return &p.Machines[i]
		}
	}

	return nil
}

// oldestTalos is the oldest release among the machines.
func (p *Plan) oldestTalos() string {
	for _, release := range []string{olderTalos, newerTalos} {
		if slices.ContainsFunc(p.Machines, func(machine Machine) bool { return machine.TalosVersion == release }) {
			return release
		}
	}

	return newestTalos
}

// String is the plan in plain words.
func (p *Plan) String() string {
	var text strings.Builder

	fmt.Fprintf(&text, "%s and %s; the endpoint is %s\n", counted(len(p.ControlPlanes()), "control plane"),
		counted(len(p.Workers()), "worker"), p.Endpoint)
	fmt.Fprintf(&text, "discovery: %s; MACs declared: %s; addresses by DHCP: %s; Talos' own CNI: %s; applied %s\n",
		yes(p.Discovery), yes(p.DeclaredMACs), yes(p.DHCP), yes(p.OwnCNI),
		map[bool]string{true: "to several at once", false: "one by one"}[p.Parallel])

	if p.Leases {
		text.WriteString("in maintenance machines have other addresses, and are looked for\n")
	}

	if p.Documents {
		text.WriteString("machine configs in the form of " + newestForm + "\n")
	}

	for _, machine := range p.Machines {
		fmt.Fprintf(&text, "%s: Talos %s, %s\n", machine.Name, machine.TalosVersion, timingWords(machine.Timing))
	}

	if p.Settled {
		text.WriteString("the operator starts when the machines have booted\n")
	} else {
		text.WriteString("the operator starts while the machines boot\n")
	}

	if p.Second != NoSecond {
		fmt.Fprintf(&text, "a second operator starts after %s, %s\n", p.SecondAfter, p.Second)
	}

	for _, incident := range p.Incidents {
		text.WriteString(incident.String() + "\n")
	}

	if p.Interrupted > 0 {
		fmt.Fprintf(&text, "after %s the operator presses Ctrl-C\n", p.Interrupted)
	}

	if p.SettledAgain {
		text.WriteString("once everything is healed and the machines have settled, the recipe runs again\n")
	} else {
		text.WriteString("everything is healed, and the recipe runs again at once\n")
	}

	if p.Operation.Kind != "" {
		text.WriteString(p.Operation.String() + "\n")
	}

	return text.String()
}

func timingWords(timing emulator.Timing) string {
	words := fmt.Sprintf("boots in %s, installs in %s, reboots in %s", timing.Boot, timing.Install, timing.Reboot)

	if timing.SelfTest > 0 {
		words += fmt.Sprintf(" after a self-test of %s", timing.SelfTest)
	}

	if timing.Apply > 0 {
		words += fmt.Sprintf(", takes %s to answer an apply", timing.Apply)
	}

	return words
}

func counted(count int, what string) string {
	if count == 1 {
		return "1 " + what
	}

	return fmt.Sprintf("%d %ss", count, what)
}

func yes(value bool) string {
	if value {
		return "yes"
	}

	return "no"
}
