package chaos

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/snapshot"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube/drain"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Care is what was done with a cluster that was up, and what the machines recorded of it.
type Care struct {
	Operation Operation
	// First is the call while something went wrong, Again the one after the healing, Rejoin the recipe that brings a node
	// back afterwards; nil for what was not called.
	First, Again, Rejoin *Run
	// Blows are the calls that took a node down, as they arrived.
	Blows []Blow
	// Cordons are the nodes that had a cordon of ours after each call.
	FirstCordons, AgainCordons []string
	// Uncordoned is set if somebody else's cordon was taken back.
	Uncordoned bool
	// Snapshots are the files that there were after the first call and at the end.
	FirstSnapshots, Snapshots []Snapshot
	// Unhealthy is what the nodes lack at the end.
	Unhealthy map[string]string
}

// Snapshot is a copy of etcd.
type Snapshot struct {
	Name  string
	Whole bool
}

// Blow is a call that takes a node away from its cluster for a while.
type Blow struct {
	Node, Method string
	ControlPlane bool
	// Voters are the members of etcd that vote, Up how many of them there were when it arrived, or had been a moment
	// before, with this one.
	Voters, Up int
	// Down are the other nodes of its role that an earlier blow took down and that were not back.
	Down []string
}

// downing are the calls that take a node away.
var downing = []string{"Upgrade", "Reboot", "Shutdown", "Reset", "Rollback", "EtcdLeaveCluster", "EtcdDefragment"}

// knowable is how long something has befallen a machine, in its time, when who does not know can be blamed.
const knowable = 2 * time.Minute

// operate has the plan's operation done to a cluster that is up.
func (w *world) operate(ctx context.Context, history *History) error {
	operation := w.plan.Operation
	if operation.Kind == "" || history.Again.Code != diagnosis.ExitOK || len(history.UnhealthyAgain) > 0 {
		return nil
	}

	care := &Care{Operation: operation}
	history.Care = care

	if operation.Cordoned != "" {
		w.node(operation.Cordoned).Cordon(true)
	}

	if err := makeFolders(w.snapshots()); err != nil {
		return err
	}

	if err := w.declare(operation.Version); err != nil {
		return err
	}

	w.watchBlows(care)
	defer w.watchBlows(nil)

	var err error
	if care.First, err = w.operateOnce(ctx, operation); err != nil {
		return err
	}

	_, care.FirstCordons = w.cordons()
	care.FirstSnapshots = w.copies()

	if err := w.heal(); err != nil {
		return err
	}

	w.recover(ctx, operation.Node)

	if care.Again, err = w.call(ctx, operation, 2); err != nil { //nolint:mnd // the second call
		return err
	}

	care.Again.Healed = true

	if operation.kind().rejoins {
		if care.Rejoin, err = w.operator("first").runRecipe(ctx, w.search()...); err != nil {
			return err
		}

		care.Rejoin.Healed = true
	}

	w.recover(ctx, "")

	var cordoned []string

	cordoned, care.AgainCordons = w.cordons()
	care.Snapshots, care.Unhealthy = w.copies(), w.unhealthyNodes()
	care.Uncordoned = operation.Cordoned != "" && operation.Cordoned != operation.Node &&
		!slices.Contains(cordoned, operation.Cordoned)

	for _, planned := range w.plan.Machines {
		if runs := w.node(planned.Name).TalosVersion(); operation.Version != "" && runs != operation.Version {
			care.Unhealthy[planned.Name] = "it runs " + runs
		}
	}

	return nil
}

// declare has the operator's files name another release of Talos; none leaves them as they are.
func (w *world) declare(version string) error {
	if version == "" {
		return nil
	}

	path := filepath.Join(w.talosDir(), "talenv.yaml")

	data, err := os.ReadFile(path) //nolint:gosec // ours
	if err != nil {
		return fmt.Errorf("read the release: %w", err)
	}

	changed := strings.Replace(string(data), w.plan.oldestTalos(), version, 1)
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		return fmt.Errorf("write the release: %w", err)
	}

	return nil
}

// recover waits until every node is healthy again, but for one that need not be.
func (w *world) recover(ctx context.Context, spared string) {
	// In the machines' time. What a power cut ends is seen for a moment still.
	const enough, moment = 10 * time.Minute, 20 * time.Second

	for clock, began := w.lab.Clock(), w.lab.Clock().Now(); clock.Now().Sub(began) < enough; {
		if clock.Sleep(ctx, moment) != nil {
			return
		}

		ill := w.unhealthyNodes()
		delete(ill, spared)

		if len(ill) == 0 {
			return
		}
	}
}

// operateOnce is the first call, with the incident and Ctrl-C.
func (w *world) operateOnce(ctx context.Context, operation Operation) (*Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	calling, interrupt := context.WithCancel(ctx)
	defer interrupt()

	if operation.Incident != nil {
		defer w.strikeAll(ctx, *operation.Incident)()
	}

	if operation.Interrupted > 0 {
		go func() {
			if w.lab.Clock().Sleep(ctx, operation.Interrupted) == nil {
				interrupt()
			}
		}()
	}

	return w.call(calling, operation, 1)
}

func (w *world) call(ctx context.Context, operation Operation, number int) (*Run, error) {
	kind := operation.kind()

	return w.operator("first").run(ctx, kind.name, kind.flags(w, operation, number),
		func(*settings.Settings) []steps.Step { return []steps.Step{kind.step} }, w.search()...)
}

// cordons are the nodes that Kubernetes puts no pods on, and those of them whose cordon is marked as ours.
func (w *world) cordons() (all, ours []string) {
	for _, node := range w.lab.Nodes() {
		cordons := node.Cordons()

		for _, name := range slices.Sorted(maps.Keys(cordons)) {
			all = append(all, name)

			if cordons[name][drain.Annotation] != "" {
				ours = append(ours, name)
			}
		}

		if cordons != nil {
			break // they all have the same
		}
	}

	return all, ours
}

// copies are the snapshots that there are.
func (w *world) copies() []Snapshot {
	var found []Snapshot

	for _, folder := range []string{w.snapshots(), filepath.Join(w.talosDir(), "snapshots")} {
		files, _ := filepath.Glob(filepath.Join(folder, "*")) // the pattern is right
		for _, path := range files {
			if filepath.Base(path) != ".gitignore" {
				found = append(found, Snapshot{Name: filepath.Base(path), Whole: whole(path)})
			}
		}
	}

	return found
}

func whole(path string) bool {
	file, err := os.Open(path) //nolint:gosec // ours
	if err != nil {
		return false
	}
	defer file.Close() //nolint:errcheck // it was only read

	info, err := file.Stat()

	return err == nil && snapshot.Verify(file, info.Size()) == nil
}

// watchBlows has the calls that take nodes down noted for it from now on; nil ends that.
func (w *world) watchBlows(care *Care) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.care = care
}

// watch is told of every call when it arrives.
func (w *world) watch(node *emulator.Node, call emulator.Call) {
	w.mu.Lock()
	care := w.care
	w.mu.Unlock()

	if care == nil || !call.Mutating || !slices.Contains(downing, call.Name()) {
		return
	}

	blow := w.blow(node.Options().Name, call.Name(), care)

	w.mu.Lock()
	care.Blows = append(care.Blows, blow)
	w.mu.Unlock()
}

func (w *world) blow(name, method string, care *Care) Blow {
	blow := Blow{Node: name, Method: method, ControlPlane: w.plan.machine(name).ControlPlane}

	w.mu.Lock()
	before := slices.Clone(care.Blows)
	w.mu.Unlock()

	for _, planned := range w.plan.Machines {
		up := w.unhealthy(planned.Name) == "" && !w.defragments(planned.Name, name)

		if planned.ControlPlane {
			blow.Voters++

			if up || planned.Name == name || w.justStruck(planned.Name) {
				blow.Up++
			}
		}

		struck := slices.ContainsFunc(before, func(earlier Blow) bool { return earlier.Node == planned.Name })
		if planned.Name != name && planned.ControlPlane == blow.ControlPlane && struck && !up &&
			!w.ill(planned.Name) {
			blow.Down = append(blow.Down, planned.Name)
		}
	}

	return blow
}

// defragments reports whether a member other than this one is at it, and answers nobody.
func (w *world) defragments(name, other string) bool {
	return name != other && slices.ContainsFunc(w.node(name).Calls(),
		func(call emulator.Call) bool { return call.Name() == "EtcdDefragment" && !call.Done })
}

// justStruck reports whether something befell a machine of which nobody need know yet.
func (w *world) justStruck(name string) bool {
	return slices.ContainsFunc(w.struck(), func(strike Strike) bool {
		return strike.Node == name && time.Duration(float64(time.Since(strike.Time))*w.scale) < knowable
	})
}

// ill reports whether something is wrong with a machine that is not our doing.
func (w *world) ill(name string) bool {
	incident := w.plan.Operation.Incident

	return incident != nil && incident.Node == name
}

// careChecks are those of what is done with a cluster that is up.
var careChecks = []check{
	{"quorum is kept", ofCare(quorumKept)},
	{"one node at a time", ofCare(oneAtATime)},
	{"no silent cordon", ofCare(noSilentCordon)},
	{"no snapshot lost", ofCare(noSnapshotLost)},
	{"operations are told", ofCare(operationsAreTold)},
	{"operations converge", ofCare(operationsConverge)},
}

func ofCare(judge func(*Care) []string) func(*History) []string {
	return func(h *History) []string {
		if h.Care == nil {
			return nil
		}

		return judge(h.Care)
	}
}

// runs are those of an operation.
func (c *Care) runs() []Run {
	var runs []Run

	for _, run := range []*Run{c.First, c.Again, c.Rejoin} {
		if run != nil {
			runs = append(runs, *run)
		}
	}

	return runs
}

// named reports whether a run says anything of a node's cordon.
func (r Run) named(node string) bool {
	return strings.Contains(r.Message+r.Output, node) && strings.Contains(r.Message+r.Output, "cordon")
}
