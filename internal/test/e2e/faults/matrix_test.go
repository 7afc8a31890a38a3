package faults_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile/baddisk"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// fault is something that goes wrong, and what has to come of it. Of the zero values: the cluster is one control plane,
// the fault is there from the start, the run is the recipe and ends well, and so does the next one.
type fault struct {
	// title says in plain words what goes wrong.
	title string
	// group is the row that it shares in the page with faults that come to the same; empty for a row of its own.
	group string
	// class is what a client can tell of it: faults that look alike share one.
	class string
	// knob is what makes it, as people find it in the emulator or in the settings.
	knob string

	// only reports whether the fault can be made on the release that is played; nil for every one.
	only func() bool

	// cluster is the cluster's shape; edit changes its machines before they are switched on.
	cluster labcluster.Options
	edit    func(t *testing.T, w *world, machine *emulator.NodeOptions)
	// inject makes the fault. Machines have not booted yet: it waits for what it needs.
	inject func(t *testing.T, w *world)
	// run is the target, settings go over the world's.
	run      string
	settings []string
	// during goes on while the run does. The run's end is waited for, so it must end too.
	during func(t *testing.T, w *world)

	// disk has all of it happen with a file system that comes into this state once onDisk was called with its folder, in a
	// process of its own.
	disk   *baddisk.State
	onDisk func(t *testing.T, w *world, folder string)

	// code, id and node are what the run ends with: exit code, kind of trouble, and the node that is named. With code 0 it
	// is a remark; without an id nothing is said at all.
	code diagnosis.ExitCode
	id   diagnosis.ID
	node string
	// says is a part of the cause that is the same each time, where the whole of it is not.
	says string
	// seen is what the run showed of the fault while it went on; empty where it got over it without a word.
	seen string
	// also checks more.
	also func(t *testing.T, w *world, got outcome)

	// repeats has the same run made once more before that: it ends in the same way.
	repeats bool
	// heal ends the fault. Without it the next run meets the fault again, if it is still there.
	heal func(t *testing.T, w *world)
	// next is the next run's exit code, of the recipe or of nextRun with these settings; nextID is what it then says.
	next         diagnosis.ExitCode
	nextRun      string
	nextID       diagnosis.ID
	nextSettings []string
	// nextAlso checks more.
	nextAlso func(t *testing.T, w *world, got outcome)
}

// section is a part of the table.
type section struct {
	title  string
	faults []fault
}

// sections are the whole table.
func sections() []section {
	return []section{
		{"The way to a node", networkFaults()},
		{"Proxies", proxyFaults()},
		{"Single calls", callFaults()},
		{"Machines and addresses", identityFaults()},
		{"Certificates", certificateFaults()},
		{"A node's life", lifeFaults()},
		{"Nodes that install unattended", talos114Faults()},
		{"etcd", etcdFaults()},
		{"Looking after etcd", etcdCareFaults()},
		{"Renewing a talosconfig", rotateFaults()},
		{"Resets", resetFaults()},
		{"Upgrades", append(upgradeFaults(), refusedUpgrades()...)},
		{"A cluster's applications", appsFaults()},
		{"The health of a cluster", healthFaults()},
		{"Upgrades of Kubernetes", upgradeK8sFaults()},
		{"Control planes that are gone for good", memberFaults()},
		{"Two operators", secondOperatorFaults()},
		{"The operator's side", operatorFaults()},
		{"Bring-ups that once went wrong", scenarios()},
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()

	records := &records{}

	t.Run("matrix", func(t *testing.T) {
		for _, section := range sections() {
			played := 0

			for _, f := range section.faults {
				if played == mostOfEach || f.only != nil && !f.only() {
					continue
				}

				played++

				t.Run(f.title, func(t *testing.T) {
					t.Parallel()
					records.add(f.title, f.play(t))
				})
			}
		}
	})

	records.assertPage(t)
}

func TestFaultsAreToldApart(t *testing.T) {
	t.Parallel()

	titles := map[string]bool{}

	for _, section := range sections() {
		for _, f := range section.faults {
			require.False(t, titles[f.title], "two faults are called %q", f.title)
			titles[f.title] = true

			require.NotEmpty(t, f.class, f.title)
			require.NotEmpty(t, f.knob, f.title)
			require.False(t, f.seen == "" && f.id != "", "%s: what is said was seen before", f.title)
		}
	}
}

// play has the fault happen, and gives what is recorded of it.
func (f fault) play(t *testing.T) record {
	t.Helper()

	if f.disk != nil {
		return f.playOnDisk(t)
	}

	return f.playIn(t, newWorld(t, f.cluster, f.edit))
}

// playOnDisk has the fault happen in a second process, which has the bad file system. It tells what it recorded as a
// line of its output.
func (f fault) playOnDisk(t *testing.T) record {
	t.Helper()

	const recorded = "recorded: "

	var w *world

	output := baddisk.Run(t, *f.disk, func(folder string) {
		w = newWorld(t, f.cluster, f.edit)
		f.onDisk(t, w, folder)
	}, func(string) {
		of := f.playIn(t, w)
		told, err := json.Marshal([]string{of.cause, of.next})
		require.NoError(t, err)
		fmt.Println(recorded + string(told))
	})

	for line := range strings.Lines(output) {
		if told, found := strings.CutPrefix(line, recorded); found {
			var parts []string

			require.NoError(t, json.Unmarshal([]byte(told), &parts))
			require.Len(t, parts, 2)

			return record{fault: f, cause: parts[0], next: parts[1]}
		}
	}

	return record{fault: f} // of the second process itself
}

// playIn has the fault happen in a world.
func (f fault) playIn(t *testing.T, w *world) record {
	t.Helper()

	if f.inject != nil {
		f.inject(t, w)
	}

	before := w.remember()
	got := f.runWith(t, w)

	w.keepsPromises(t, before, got)
	require.Equal(t, f.code, got.code, got.told())

	cause := f.judge(t, got)

	if f.also != nil {
		f.also(t, w, got)
	}

	f.isDiagnosed(t, w)

	if f.repeats {
		f.repeat(t, w)
	}

	if f.heal != nil {
		f.heal(t, w)
	}

	return record{fault: f, cause: w.plain(cause), next: f.again(t, w)}
}

// repeat makes the same run while nobody has healed anything.
func (f fault) repeat(t *testing.T, w *world) {
	t.Helper()

	before := w.remember()
	got := w.ends(t, f.code, f.target(), f.settings...)
	w.keepsPromises(t, before, got)
	f.judge(t, got)
}

func (f fault) target() string {
	if f.run == "" {
		return "talos"
	}

	return f.run
}

// runWith makes the run, and what happens during it.
func (f fault) runWith(t *testing.T, w *world) outcome {
	t.Helper()

	var happening sync.WaitGroup

	if f.during != nil {
		happening.Go(func() { f.during(t, w) })
	}

	got := w.run(t, f.target(), f.settings...)
	happening.Wait()

	return got
}

// judge compares what the run said with what it should have, and gives the cause.
func (f fault) judge(t *testing.T, got outcome) string {
	t.Helper()

	// A machine closes its port right after it took its config: on a busy computer the reply can be lost with it.
	lost := f.seen == "config sent" && got.saw(f.node, "reply lost, the ")
	require.True(t, lost || got.saw(f.node, f.seen), "%q was not seen\n%s", f.seen, got.told())

	things := got.failures()
	if f.code == diagnosis.ExitOK {
		things = got.findings()
	}

	if f.id == "" {
		// A computer that is busy with other things may keep a run from hearing a machine in time, or until somebody else has
		// configured it.
		things = slices.DeleteFunc(things,
			func(s said) bool { return s.id == diagnosis.NodeSilent || s.id == diagnosis.NodeRefused })
		require.Empty(t, things, got.told())

		return ""
	}

	index := slices.IndexFunc(things,
		func(s said) bool { return s.id == f.id && s.node == f.node && strings.Contains(s.cause, f.says) })
	require.GreaterOrEqual(t, index, 0, "%s about %q was not said; %+v\n%s", f.id, f.node, things, got.told())

	if f.says != "" {
		return f.says
	}

	return things[index].cause
}

// again makes the next run, and says in a few words what it did.
func (f fault) again(t *testing.T, w *world) string {
	t.Helper()

	before := w.remember()
	got := w.ends(t, f.next, cmp.Or(f.nextRun, "talos"), f.nextSettings...)
	w.keepsPromises(t, before, got)

	if f.nextAlso != nil {
		f.nextAlso(t, w, got)
	}

	if f.next == diagnosis.ExitOK {
		w.isWhole(t, got)

		return "ends well: " + w.deeds(before)
	}

	require.True(t, slices.ContainsFunc(got.failures(), func(s said) bool { return s.id == f.nextID }), got.told())

	return fmt.Sprintf("ends with %d (%s): %s", f.next, f.nextID, w.deeds(before))
}

// deeds are the changes of a run in a few words.
func (w *world) deeds(before past) string {
	made := w.since(before)

	var words []string

	for _, node := range w.Lab.Nodes() {
		for _, call := range made[node.Name()] {
			word := "applies to " + node.Name()

			switch {
			case !call.Succeeded():
				continue
			case call.Name() == "Bootstrap":
				word = "bootstraps " + node.Name()
			case call.Name() == "Upgrade":
				word = "upgrades " + node.Name()
			case slices.Contains(permitted[upgradeTarget], call.Name()):
				continue // they come with the one before
			}

			if !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
	}

	if len(words) == 0 {
		return "changes nothing"
	}

	slices.Sort(words)

	return strings.Join(words, ", ")
}
