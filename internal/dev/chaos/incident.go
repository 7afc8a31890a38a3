package chaos

import (
	"fmt"
	"time"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// Incident is one thing that goes wrong in a run.
type Incident struct {
	// Kind names it as the summary counts it.
	Kind string
	Node string
	// Other is the second machine of a mix-up.
	Other string
	// Words say what happens, to go on after the node's name.
	Words string
	At    Moment
	// For is how long it lasts; 0 until everything is healed.
	For   time.Duration
	Class Class

	// equip changes the machine before it is switched on the first time.
	equip func(w *world, options *emulator.NodeOptions) error
	// forgets is set for one that makes the machine lose its disk when it boots, cutsPower for one that makes it boot.
	forgets, cutsPower bool
	// hasEtcd is set for one whose machine holds etcd data from the beginning.
	hasEtcd bool
	// on and off turn a knob of the machine; both are nil where there is none to turn.
	on, off func(*emulator.Faults)
}

// begin makes the incident happen to a machine that is on.
func (i Incident) begin(node *emulator.Node) {
	if i.cutsPower {
		node.PowerOff()
	}

	if i.on != nil {
		node.Set(i.on)
	}
}

// end takes it back.
func (i Incident) end(node *emulator.Node) {
	if i.off != nil {
		node.Set(i.off)
	}

	if i.cutsPower {
		node.PowerOn()
	}
}

// Moment is when an incident begins.
type Moment struct {
	Anchor Anchor
	// After is how long after it.
	After time.Duration
}

// Anchor is what a moment is counted from.
type Anchor string

// Anchors.
const (
	// Before is before the machine is switched on; nothing comes after it.
	Before Anchor = "from the beginning"
	// Started is when the first operator starts.
	Started Anchor = "the operator started"
	// Configured is when the machine has accepted a machine config.
	Configured Anchor = "it took its config"
	// Bootstrapped is when any machine has accepted a Bootstrap.
	Bootstrapped Anchor = "etcd was bootstrapped"
)

// String says when.
func (m Moment) String() string {
	if m.Anchor == Before {
		return string(m.Anchor)
	}

	return fmt.Sprintf("%s after %s", m.After, m.Anchor)
}

// String is the incident in plain words.
func (i Incident) String() string {
	text := fmt.Sprintf("%s: %s, %s", i.Node, i.Words, i.At)

	if i.For > 0 {
		text += fmt.Sprintf(", for %s", i.For)
	} else {
		text += ", until it is healed"
	}

	return text
}
