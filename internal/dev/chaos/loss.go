package chaos

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Loss is what a cluster has lost for good before an operation, and what comes back of it.
type Loss struct {
	// Destroyed are the nodes whose machines are off for good, Emptied those that have lost what their etcd held.
	Destroyed, Emptied []string
	// Living is a node whose member is to be removed by mistake; empty for none.
	Living string
	// Returns is set if a destroyed machine comes back: to a replacement instead of the new one, to a recovery once that
	// was a success.
	Returns bool
	// Arrives is how long after the operation's start the new machine, or the former one, is there.
	Arrives time.Duration
	// NewMAC is set if the new machine is declared with another hardware address than the former one's.
	NewMAC bool

	// member is the id in etcd of the node that the operation is for.
	member uint64
}

// scene is how a cluster comes to need an operation, and what becomes of its machines.
type scene struct {
	// draw adds the loss to the plan's operation.
	draw func(random *rand.Rand, plan *Plan)
	// before makes the loss, meanwhile is what happens besides once the operation has begun, and healed is what people do
	// on the spot before it is called again.
	before    func(w *world, ctx context.Context, care *Care) error
	meanwhile func(w *world, ctx context.Context, care *Care) error
	healed    func(w *world, care *Care) error
}

// gone reports whether a node's machine is off for good when the operation begins.
func (l *Loss) gone(name string) bool { return l != nil && slices.Contains(l.Destroyed, name) }

// String is the loss in plain words.
func (l *Loss) String() string {
	var words []string

	if len(l.Destroyed) > 0 {
		words = append(words, strings.Join(l.Destroyed, " and ")+" gone for good")
	}

	if len(l.Emptied) > 0 {
		words = append(words, strings.Join(l.Emptied, " and ")+" without etcd's data")
	}

	if l.Living != "" {
		words = append(words, l.Living+" lives, and is named by mistake")
	}

	if l.NewMAC {
		words = append(words, "the new machine has another MAC")
	}

	if l.Arrives > 0 {
		words = append(words, fmt.Sprintf("a machine arrives after %s", l.Arrives))
	}

	if l.Returns {
		words = append(words, "the former machine comes back")
	}

	return strings.Join(words, ", ")
}

// drawGone is a machine that is off for good; now and then somebody names one that is not.
func drawGone(random *rand.Rand, plan *Plan) {
	plan.Operation.Loss = &Loss{Destroyed: []string{plan.Operation.Node}}

	if random.IntN(4) == 0 {
		plan.Operation.Loss = &Loss{Living: plan.Operation.Node}
	}
}

// drawReplacement is a machine that died, and what stands in its place some time later.
func drawReplacement(random *rand.Rand, plan *Plan) {
	plan.Operation.Loss = &Loss{Destroyed: []string{plan.Operation.Node}, NewMAC: random.IntN(2) == 0,
		Arrives: between(random, 0, time.Minute)}
	// Only by its MAC can the former machine be told from the new one.
	plan.Operation.Loss.Returns = plan.Operation.Loss.NewMAC && random.IntN(2) == 0
}

// drawLostQuorum takes away so many members of etcd that the others are no majority; one at most with its machine.
func drawLostQuorum(random *rand.Rand, plan *Plan) {
	controlPlanes := plan.ControlPlanes()

	candidates := slices.Clone(controlPlanes)
	if plan.Endpoint == NodeAddress {
		candidates = candidates[1:]
	}

	random.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })

	lost, destroyed := candidates[:(len(controlPlanes)+1)/2], random.IntN(2) //nolint:mnd // a half, at least
	returns := random.IntN(2) == 0 && destroyed > 0
	plan.Operation.Loss = &Loss{Destroyed: lost[:destroyed], Emptied: lost[destroyed:], Returns: returns}
}

// remember notes the member of etcd that the operation's node is.
func (w *world) remember(care *Care) {
	loss := *care.Operation.Loss
	loss.member = w.node(care.Operation.Node).EtcdMemberID()
	care.Operation.Loss = &loss
}

// loseMachine switches the operation's node off for good, unless it is named by mistake.
func (w *world) loseMachine(_ context.Context, care *Care) error {
	w.remember(care)
	w.destroy(care.Operation.Loss.Destroyed...)

	return nil
}

// destroy switches machines off for good.
func (w *world) destroy(names ...string) {
	for _, name := range names {
		w.node(name).PowerOff()

		w.mu.Lock()
		w.gone[name] = true
		w.mu.Unlock()
	}
}

// isGone reports whether nothing stands in a node's place.
func (w *world) isGone(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.gone[name]
}

// back tells that something stands in a node's place again.
func (w *world) back(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	delete(w.gone, name)
}

// makeRoom switches the operation's node off, and declares another machine in its place.
func (w *world) makeRoom(ctx context.Context, care *Care) error {
	if err := w.loseMachine(ctx, care); err != nil {
		return err
	}

	if !care.Operation.Loss.Returns {
		w.takeOut(care.Operation.Node)
	}

	if !care.Operation.Loss.NewMAC {
		return nil
	}

	return w.declareMachine(care.Operation.Node)
}

// takeOut takes a machine away.
func (w *world) takeOut(name string) {
	node := w.node(name)

	w.lab.Remove(node)

	w.mu.Lock()
	w.removed = append(w.removed, node)
	w.mu.Unlock()
}

// declareMachine has the operator's files declare another machine for a node.
func (w *world) declareMachine(name string) error {
	former := w.links(name)[0].MAC
	mac := strings.Replace(former, "52:54:00", "52:54:01", 1)

	w.macs[name] = mac

	declared := func(data []byte) []byte { return bytes.ReplaceAll(data, []byte(former), []byte(mac)) }

	w.generated.Talconfig = declared(w.generated.Talconfig)
	for i := range w.generated.Configs {
		w.generated.Configs[i].Bytes = declared(w.generated.Configs[i].Bytes)
	}

	if err := w.generated.Write(w.talosDir()); err != nil {
		return fmt.Errorf("declare another machine: %w", err)
	}

	return nil
}

// arrive puts the new machine in, or lets the former one come back.
func (w *world) arrive(ctx context.Context, care *Care) error {
	operation := care.Operation

	if w.lab.Clock().Sleep(ctx, operation.Loss.Arrives) != nil {
		return nil //nolint:nilerr // the operation was over before; it is put in later
	}

	if operation.Loss.Returns {
		w.node(operation.Node).PowerOn()

		return nil
	}

	return w.putNew(operation.Node)
}

// putNew puts the declared machine in a place where nothing stands.
func (w *world) putNew(name string) error {
	err := w.start(*w.plan.machine(name), false)
	w.back(name)

	return err
}

// putIn puts the new machine in, if it is not there, and takes the former one away.
func (w *world) putIn(care *Care) error {
	name := care.Operation.Node
	if !w.isGone(name) {
		return nil
	}

	if care.Operation.Loss.Returns {
		w.takeOut(name)
	}

	return w.putNew(name)
}

// loseQuorum takes a snapshot of etcd, and then so many members away that no quorum can be had again.
func (w *world) loseQuorum(ctx context.Context, _ *Care) error {
	operation := w.plan.Operation

	if err := w.takeSnapshot(ctx); err != nil {
		return err
	}

	w.destroy(operation.Loss.Destroyed...)

	for _, name := range operation.Loss.Emptied {
		node := w.node(name)
		node.PowerOff()
		node.LoseEtcd()
		node.PowerOn()
	}

	return nil
}

// takeSnapshot copies an etcd that is well. On a computer that is too busy no node may answer in time, at first.
func (w *world) takeSnapshot(ctx context.Context) error {
	const tries = 3

	var told string

	for range tries {
		run, err := w.operator("first").run(ctx, snapshotName, settings.Overrides{"file": w.snapshotFile(0)},
			only(steps.EtcdSnapshot{}))
		if err != nil || run.Code == diagnosis.ExitOK {
			return err
		}

		told = run.Output
	}

	return fmt.Errorf("take a snapshot of an etcd that is well: %s", told)
}

// putBack puts new machines in the place of the destroyed ones. Once etcd is restored one may come back as it was.
func (w *world) putBack(care *Care) error {
	for _, name := range care.Operation.Loss.Destroyed {
		if care.Operation.Loss.Returns && care.First.Code == diagnosis.ExitOK {
			w.back(name)
			w.node(name).PowerOn()

			continue
		}

		w.takeOut(name)

		if err := w.putNew(name); err != nil {
			return err
		}
	}

	return nil
}
