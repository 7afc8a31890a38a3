package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/cluster/snapshot"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube/drain"
)

// Care is what was done with a cluster that was up, and what the machines recorded of it.
type Care struct {
	Operation Operation
	// First is the call while something went wrong, Again the one after the healing, Rejoin the recipe that brings a node
	// back afterwards; nil for what was not called.
	First, Again, Rejoin *Run
	// Looks are the calls of targets that only look.
	Looks []Look
	// Happened is set if the operation's incident did, before the first call was over.
	Happened bool
	// Blows are the calls that took a node down, or a member out of etcd, as they arrived.
	Blows []Blow
	// Made is how many etcd clusters came to be, and Beside are the nodes that were told to make one while another one
	// was a voter of an etcd that worked.
	Made   int
	Beside []string
	// Unsaved are the nodes that were told to wipe their etcd before it was saved.
	Unsaved []string
	// Displaced are the nodes that lived, and whose member of etcd is another one in the end.
	Displaced []string
	// MemberLeft and NodeLeft are set if etcd still has the member, Kubernetes the node, that was to go.
	MemberLeft, NodeLeft bool
	// Rotation is what became of the talosconfig; nil if it was not to be renewed.
	Rotation *Rotation
	// ProgramFailed is set if a program of the operator's computer failed by itself.
	ProgramFailed bool
	// Installed is what became of the applications; nil if none were to be installed.
	Installed *Installed
	// Kubernetes is what became of an upgrade of Kubernetes; nil for none.
	Kubernetes *KubernetesUpgrade
	// Cordons are the nodes that had a cordon of ours after each call.
	FirstCordons, AgainCordons []string
	// Uncordoned is set if somebody else's cordon was taken back.
	Uncordoned bool
	// Snapshots are the files that there were after the first call and at the end.
	FirstSnapshots, Snapshots []Snapshot
	// Unhealthy is what the nodes lack at the end.
	Unhealthy map[string]string

	// members and clusters are those of etcd right before the operation.
	members  map[string]uint64
	clusters int
	// former is the talosconfig right before it.
	former []byte
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
	// Voter is set if this one was a voter of an etcd that worked.
	Voter bool
	// Down are the other nodes of its role that an earlier blow took down and that were not back.
	Down []string
}

// downing are the calls that take a node away.
var downing = []string{"Upgrade", "Reboot", "Shutdown", "Reset", "Rollback", "EtcdLeaveCluster", "EtcdDefragment",
	removal}

// removal is the call that takes another node's member out of etcd.
const removal = "EtcdRemoveMemberByID"

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

	if err := w.begin(ctx, care); err != nil {
		return err
	}
	defer w.watchBlows(nil)

	if err := w.repeat(ctx, care); err != nil {
		return err
	}

	w.recover(ctx, "")
	w.judge(care)

	if care.Installed != nil {
		care.Installed.Missing = w.apps.missing()
	}

	if care.Kubernetes != nil {
		care.Kubernetes.Old = w.oldComponents()
	}

	if care.Rotation != nil {
		if err := w.tryTalosconfig(ctx, care); err != nil {
			return err
		}
	}

	return w.look(ctx, care, 2) //nolint:mnd // the second one
}

// begin makes what the operation is for, and calls it while something goes wrong.
func (w *world) begin(ctx context.Context, care *Care) error {
	kind := care.Operation.kind()

	if kind.before != nil {
		if err := kind.before(w, ctx, care); err != nil {
			return fmt.Errorf("before %s: %w", kind.name, err)
		}
	}

	care.members, care.clusters = w.members(), w.lab.EtcdClusters()

	w.watchBlows(care)

	struck := len(w.struck())

	var err error
	if care.First, err = w.operateOnce(ctx, care); err != nil {
		return err
	}

	care.Happened = len(w.struck()) > struck
	care.FirstCordons = w.cordons().ours()
	care.FirstSnapshots = w.copies()

	if care.Rotation != nil {
		return nil // with a talosconfig that has ended nobody sees anything
	}

	return w.look(ctx, care, 1)
}

// repeat heals everything, and calls the operation again, and what has to follow it.
func (w *world) repeat(ctx context.Context, care *Care) error {
	operation := care.Operation
	kind := operation.kind()

	w.healUp()
	defer w.attend(ctx)()

	if kind.healed != nil {
		if err := kind.healed(w, care); err != nil {
			return err
		}
	}

	// A reset that fails late, after an interruption, is no failure of the call that follows.
	w.settle(ctx)

	// Before etcd is restored nothing can be healthy.
	if operation.Kind != recoverName {
		w.recover(ctx, operation.Node)
	}

	var err error
	if care.Again, err = w.call(ctx, operation, 2); err != nil { //nolint:mnd // the second call
		return err
	}

	care.Again.Healed = true

	if kind.rejoins {
		if care.Rejoin, err = w.operator("first").runRecipe(ctx, w.search()...); err != nil {
			return err
		}

		care.Rejoin.Healed = true
	}

	return nil
}

// judge notes how everything ended.
func (w *world) judge(care *Care) {
	operation := care.Operation

	cordons := w.cordons()
	care.AgainCordons = cordons.ours()
	care.Snapshots, care.Unhealthy = w.copies(), w.unhealthyNodes()
	care.Made = w.lab.EtcdClusters() - care.clusters
	care.Uncordoned = operation.Cordoned != "" && operation.Cordoned != operation.Node &&
		!cordons.on(operation.Cordoned)

	for _, planned := range w.plan.Machines {
		wanted := operation.Version != "" && (operation.Node == "" || operation.Node == planned.Name)
		if runs := w.node(planned.Name).TalosVersion(); wanted && runs != operation.Version {
			care.Unhealthy[planned.Name] = "it runs " + runs
		}
	}

	members := w.members()

	for name, before := range care.members {
		if now := members[name]; now != before && operation.keepsMember(name) {
			care.Displaced = append(care.Displaced, name)
		}
	}

	slices.Sort(care.Displaced)

	if operation.Kind == removeName {
		care.MemberLeft, care.NodeLeft = w.leftOf(operation)
	}
}

// keepsMember reports whether an operation leaves a node's member of etcd what it is.
func (o Operation) keepsMember(name string) bool {
	return o.Kind != recoverName && (o.Node != name || o.Loss != nil && o.Loss.Living == name)
}

// members are the members of etcd that the nodes are.
func (w *world) members() map[string]uint64 {
	members := map[string]uint64{}

	for _, name := range w.plan.ControlPlanes() {
		if node := w.node(name); !w.isGone(name) && node.EtcdMemberID() != 0 {
			members[name] = node.EtcdMemberID()
		}
	}

	return members
}

// leftOf reports whether etcd and Kubernetes still have what an operation was to remove.
func (w *world) leftOf(operation Operation) (member, node bool) {
	for _, name := range w.plan.ControlPlanes() {
		if other := w.node(name); name != operation.Node && other.EtcdVoter() {
			member = member || slices.Contains(other.EtcdMembers(), operation.Loss.member)
			node = node || slices.Contains(other.KubernetesNodes(), operation.Node)
		}
	}

	return member, node
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
func (w *world) operateOnce(ctx context.Context, care *Care) (*Run, error) {
	operation := care.Operation

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

	meanwhile, stop := context.WithCancel(ctx)
	arrived := make(chan error, 1)

	go func() {
		if kind := operation.kind(); kind.meanwhile != nil {
			arrived <- kind.meanwhile(w, meanwhile, care)
		} else {
			arrived <- nil
		}
	}()

	run, err := w.call(calling, operation, 1)

	stop()

	return run, errors.Join(err, <-arrived)
}

func (w *world) call(ctx context.Context, operation Operation, number int) (*Run, error) {
	kind := operation.kind()

	return w.operator("first").run(ctx, kind.name, kind.flags(w, operation, number),
		kind.list, w.search()...)
}

// cordons are the nodes that Kubernetes puts no pods on, each with its annotations; nil if there was nobody to ask.
type cordons map[string]map[string]string

func (w *world) cordons() cordons {
	for _, node := range w.lab.Nodes() {
		if cordons := node.Cordons(); cordons != nil {
			return cordons // they all have the same
		}
	}

	return nil
}

func (c cordons) on(node string) bool {
	_, cordoned := c[node]

	return cordoned
}

// ours are those that this program has marked.
func (c cordons) ours() []string {
	return c.without(func(marks map[string]string) bool { return marks[drain.Annotation] == "" })
}

// others are all but those that a node's own Talos has made, which takes them back once the node is up.
func (c cordons) others() []string {
	return c.without(func(marks map[string]string) bool { return marks[constants.AnnotationCordonedKey] != "" })
}

func (c cordons) without(unwanted func(marks map[string]string) bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c)), func(name string) bool { return unwanted(c[name]) })
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

	if err != nil {
		return false
	}

	// What is copied off a disk before it is wiped has no hash.
	if strings.Contains(path, "-before-recovery-") {
		_, err = snapshot.Identify(file, info.Size())

		return err == nil
	}

	return snapshot.Verify(file, info.Size()) == nil
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

	if care == nil || !call.Mutating {
		return
	}

	name := node.Options().Name

	switch {
	case call.Name() == removal:
		blows := w.removalThrough(node, care)
		w.note(func() { care.Blows = append(care.Blows, blows...) })
	case slices.Contains(downing, call.Name()):
		blow := w.blow(name, call.Name(), care)
		unsaved := care.Operation.Kind == recoverName && call.HadEtcd && !w.saved(name)

		w.note(func() { care.Blows = append(care.Blows, blow) })

		if unsaved {
			w.note(func() { care.Unsaved = append(care.Unsaved, name) })
		}
	case call.Name() == "Bootstrap":
		for _, other := range w.plan.ControlPlanes() {
			if other != name && w.node(other).EtcdVoter() {
				w.note(func() { care.Beside = append(care.Beside, name+" beside "+other) })
			}
		}
	}
}

// note changes what is known of the operation.
func (w *world) note(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()

	change()
}

// saved reports whether what a node's etcd held is on the operator's disk.
func (w *world) saved(name string) bool {
	if w.plan.Operation.Loss.gone(name) {
		return true // who says that it is destroyed can do without
	}

	return slices.ContainsFunc(w.copies(), func(copied Snapshot) bool {
		return copied.Whole && strings.Contains(copied.Name, "-"+name+"-before-recovery-")
	})
}

// removalThrough is the removal of the operation's member by a node; none if that is no member any more.
func (w *world) removalThrough(node *emulator.Node, care *Care) []Blow {
	members := node.EtcdMembers()
	if !slices.Contains(members, care.Operation.Loss.member) {
		return nil
	}

	blow := Blow{Node: care.Operation.Node, Method: removal, ControlPlane: true, Voters: len(members), Up: 1}

	for _, name := range w.plan.ControlPlanes() {
		if name != blow.Node && (w.node(name).EtcdVoter() || w.justStruck(name)) {
			blow.Up++
		}
	}

	return []Blow{blow}
}

func (w *world) blow(name, method string, care *Care) Blow {
	blow := Blow{Node: name, Method: method, ControlPlane: w.plan.machine(name).ControlPlane,
		Voter: w.node(name).EtcdVoter()}

	w.mu.Lock()
	before := slices.Clone(care.Blows)
	w.mu.Unlock()

	for _, planned := range w.plan.Machines {
		busy := w.defragments(planned.Name, name)
		up := w.unhealthy(planned.Name) == "" && !busy

		// etcd needs no more of a node than its vote.
		if planned.ControlPlane {
			blow.Voters++

			if w.node(planned.Name).EtcdVoter() && !busy || planned.Name == name || w.justStruck(planned.Name) {
				blow.Up++
			}
		}

		struck := slices.ContainsFunc(before, func(earlier Blow) bool {
			return earlier.Node == planned.Name && earlier.Method != removal
		})
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
		func(call emulator.Call) bool { return call.Name() == "EtcdDefragment" && call.Working })
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
	{"one living etcd", ofCare(oneLivingEtcd)},
	{"the living keep their members", ofCare(membersKept)},
	{"talosconfigs are renewed whole", ofCare(rotatedSafely)},
	{"applications are installed", ofCare(appsAreInstalled)},
	{"Kubernetes is upgraded", ofCare(kubernetesIsUpgraded)},
	{"operations are told", ofCare(operationsAreTold)},
	{"operations fail rightly", operationsFailRightly},
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

	for _, look := range c.Looks {
		runs = append(runs, *look.Run)
	}

	return runs
}

// named reports whether a run says anything of a node's cordon.
func (r Run) named(node string) bool {
	return strings.Contains(r.Message+r.Output, node) && strings.Contains(r.Message+r.Output, "cordon")
}
