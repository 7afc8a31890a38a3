package steps_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/base/syncbuffer"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/documents"
	"github.com/talos-mage/talos-mage/internal/test/emulatortest"
)

// Variables that make this program be a run that is killed.
const (
	victimFolder   = "TALOS_MAGE_VICTIM_IN"
	victimTarget   = "TALOS_MAGE_VICTIM_RUNS"
	victimSettings = "TALOS_MAGE_VICTIM_WITH"
)

// killable are the targets that are killed.
var killable = map[string]func(*settings.Settings) []steps.Step{
	"upgrade":           only(steps.Upgrade{}),
	"upgradeK8s":        only(steps.UpgradeK8s{}),
	"reset":             only(steps.Reset{}),
	"etcd:snapshot":     only(steps.EtcdSnapshot{}),
	"etcd:defrag":       only(steps.EtcdDefrag{}),
	"etcd:removeMember": only(steps.EtcdRemoveMember{}),
	"etcd:recover":      only(steps.EtcdRecover{}),
	"replaceNode":       steps.ReplaceNode,
	"apps":              only(steps.Apps{}),
	"config:rotate":     only(steps.Rotate{}),
}

func only(step steps.Step) func(*settings.Settings) []steps.Step {
	return func(*settings.Settings) []steps.Step { return []steps.Step{step} }
}

// runUntilKilled is the process of such a run.
func runUntilKilled(folder string) int {
	if err := runInVictim(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return 0
}

func runInVictim(folder string) error {
	var given []string
	if err := json.Unmarshal([]byte(os.Getenv(victimSettings)), &given); err != nil {
		return err
	}

	environ, flags := emulatortest.Settings(given)

	loaded, err := settings.Load(environ, flags, folder)
	if err != nil {
		return err
	}

	timepiece := clock.Scaled(scale)
	console := report.NewConsole(report.ConsoleOptions{Out: os.Stdout, Err: os.Stderr, LogFormat: loaded.LogFormat,
		LogLevel: loaded.LogLevel, Now: timepiece.Now})
	recorder := report.NewRecorder(timepiece.Now, console)

	run, err := steps.New(context.Background(), loaded, environ, recorder, console.Logger(), timepiece)
	if err != nil {
		return err
	}

	return steps.Execute(context.Background(), run, killable[os.Getenv(victimTarget)](loaded)...)
}

// moment is when a run is killed: as a call arrives at a node, or once it had time to go through; as one of the user's
// programs is called, or has ended; or as a file changes.
type moment struct {
	node, call string
	program    string // a part of its command line
	file       bool
	number     int // so many of these go well before
	after      bool
}

func (m moment) String() string {
	what := m.node + " " + m.call + m.program
	if m.file {
		what = "a change of a file"
	}

	if m.after {
		what = "after " + what
	}

	return fmt.Sprintf("%s, number %d", what, m.number+1)
}

// killer kills the process of a run at its moment.
type killer struct{ waiting atomic.Pointer[doomed] }

// doomed is a run that is to be killed.
type doomed struct {
	moment

	process *os.Process
	seen    atomic.Int64
}

// watch is told of each call that arrives. A dry run of a change is none of them.
func (k *killer) watch(node *emulator.Node, call emulator.Call) {
	run := k.waiting.Load()
	if run != nil && node.Name() == run.node && call.Name() == run.call && (call.ConfigSHA256 == "" || call.Mutating) {
		run.happens()
	}
}

// changed is told of each change of a file.
func (k *killer) changed() {
	if run := k.waiting.Load(); run != nil && run.file {
		run.happens()
	}
}

// happens counts, and kills when it is time.
func (d *doomed) happens() {
	switch {
	case d.seen.Add(1) != int64(d.number)+1:
	case d.after:
		time.AfterFunc(20*time.Millisecond, func() { _ = d.process.Kill() }) // it may have ended by then
	default:
		_ = d.process.Kill()
	}
}

// kill makes a run that is killed at a moment.
func (k *killer) kill(t *testing.T, l *lab, target string, at moment, settings ...string) {
	t.Helper()

	killed, output := k.mayKill(t, l, target, at, settings...)
	require.True(t, killed, "%s was not killed at %s\n%s", target, at, output)
}

// mayKill makes a run that is killed at a moment, unless it has ended well before that.
func (k *killer) mayKill(t *testing.T, l *lab, target string, at moment, settings ...string) (killed bool,
	output string) {
	t.Helper()

	given, err := json.Marshal(l.environ(settings...))
	require.NoError(t, err)

	var said syncbuffer.Buffer

	process := exec.CommandContext(t.Context(), os.Args[0])
	process.Dir, process.Stdout, process.Stderr = l.folder, &said, &said
	process.Env = append(os.Environ(), victimFolder+"="+l.folder, victimTarget+"="+target,
		victimSettings+"="+string(given), "GOCOVERDIR="+t.TempDir())

	require.NoError(t, process.Start())
	k.waiting.Store(&doomed{moment: at, process: process.Process})

	err = process.Wait()
	k.waiting.Store(nil)

	if err != nil {
		require.ErrorContains(t, err, "signal: killed", "%s: %s\n%s", target, at, &said)
	}

	return err != nil, said.String()
}

// past is what a kill must not take away.
type past struct {
	etcds, snapshots int
	quorum           bool
}

func (l *lab) remember(t *testing.T) past {
	t.Helper()

	return past{l.Lab.EtcdClusters(), len(l.wholeFiles(t)), l.hasQuorum()}
}

// hasQuorum reports whether some member of etcd runs and has the others behind it.
func (l *lab) hasQuorum() bool {
	for _, node := range l.Nodes {
		if node.EtcdVoter() {
			return true
		}
	}

	return false
}

// wholeFiles looks at every file that a run makes: for its owner alone, and whole unless it has yet to get its name. It
// gives the snapshots.
func (l *lab) wholeFiles(t *testing.T) (kept []string) {
	t.Helper()

	require.NoError(t, filepath.WalkDir(l.folder, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)

		info, err := entry.Info()
		require.NoError(t, err)

		switch {
		case entry.IsDir():
			kept = append(kept, snapshots(t, path)...)
		case isUnfinished(path), path == l.Talosconfig():
			require.Equal(t, os.FileMode(0o600), info.Mode(), path)
		}

		return nil
	}))

	return kept
}

func isUnfinished(path string) bool {
	return strings.HasSuffix(path, ".talos-mage-tmp") || strings.Contains(path, "talos-mage-configs-")
}

// isTidy reports that nothing half-written is left of killed runs.
func (l *lab) isTidy(t *testing.T) {
	t.Helper()

	require.NoError(t, filepath.WalkDir(l.folder, func(path string, _ fs.DirEntry, err error) error {
		require.NoError(t, err)
		require.False(t, isUnfinished(path), path)

		return nil
	}))
}

// killing is a target that is killed at one moment after the other of one and the same cluster, until it is let
// through.
type killing struct {
	target                 string
	controlPlanes, workers int
	// settings are those of each run, which prepare can add to when the cluster is up; furnish comes before that.
	settings []string
	furnish  func(t *testing.T, l *lab)
	prepare  func(t *testing.T, l *lab) []string
	moments  []moment
	// restores is how many etcd clusters the runs may make; downs is set where they take etcd's quorum away as asked.
	restores int
	downs    bool
	// between happens before the run that is let through.
	between func(t *testing.T, l *lab)
	ends    func(t *testing.T, l *lab)
}

// A run that is killed says nothing more and takes nothing back: whatever it was at, nothing is harmed, and the next
// one goes on from there.
func TestWhatWasKilledIsContinuedByTheNextRun(t *testing.T) {
	t.Parallel()

	if detectsRaces {
		t.Skip("what is killed are other processes")
	}

	for name, test := range map[string]killing{
		"an upgrade": {
			target: "upgrade", controlPlanes: 3, workers: 1, settings: []string{"-yes=true", "MAX_PARALLEL=1"},
			prepare: toUpgradeTo,
			moments: []moment{
				{node: "cp1", call: "EtcdSnapshot"}, {node: "cp2", call: "Pull"}, {node: "cp2", call: "Upgrade"},
				{node: "cp2", call: "Reboot"}, {node: "cp3", call: "Reboot", after: true},
				{node: "worker1", call: "Reboot", after: true},
			},
			ends: isUpgraded,
		},
		"an upgrade of the only node": {
			target: "upgrade", controlPlanes: 1, settings: []string{"-yes=true"}, prepare: toUpgradeTo, downs: true,
			moments: []moment{{node: "cp1", call: "Reboot", after: true}},
			ends:    isUpgraded,
		},
		"a recovery": {
			target: "etcd:recover", controlPlanes: 3, settings: []string{"-destroyed=cp2,cp3", "-yes=true"},
			prepare: lostQuorum, restores: 1, downs: true,
			moments: []moment{{node: "cp1", call: "EtcdSnapshot"}, {node: "cp1", call: "Reset"},
				{node: "cp1", call: "EtcdRecover"}, {node: "cp1", call: "Bootstrap"}},
			ends: isRecovered,
		},
		"a recovery that had got further, and its node rebooted": {
			target: "etcd:recover", controlPlanes: 3, settings: []string{"-destroyed=cp2,cp3", "-yes=true"},
			prepare: lostQuorum, restores: 1, downs: true,
			moments: []moment{{node: "cp1", call: "Reset", after: true}, {node: "cp1", call: "EtcdRecover", after: true},
				{node: "cp1", call: "Bootstrap", after: true}},
			between: func(t *testing.T, l *lab) {
				t.Helper()
				wait(t, l.Node("cp1"), (*emulator.Node).EtcdVoter)
				l.Node("cp1").PowerOff()
				l.Node("cp1").PowerOn()
			},
			ends: isRecovered,
		},
		"a replacement": {
			target: "replaceNode", controlPlanes: 3, settings: []string{"NODE=cp3"},
			prepare: func(t *testing.T, l *lab) []string {
				t.Helper()
				l.silence("cp3")
				l.Node("cp3").Wipe()
				l.Node("cp3").PowerOn()
				wait(t, l.Node("cp3"), inStage("maintenance"))

				return nil
			},
			moments: []moment{{node: "cp1", call: removeCall, after: true}, {node: "cp3", call: "ApplyConfiguration"},
				{node: "cp3", call: "EtcdStatus"}},
			ends: func(t *testing.T, l *lab) {
				t.Helper()
				require.True(t, l.Node("cp3").EtcdVoter())
				require.Len(t, l.members(t), 3)
				require.Contains(t, l.kubernetesNodes(t), "cp3")
			},
		},
		"a removal of a member": {
			target: "etcd:removeMember", controlPlanes: 3,
			prepare: func(t *testing.T, l *lab) []string {
				t.Helper()

				id := memberID(l.Node("cp3"))
				l.silence("cp3")

				return []string{id}
			},
			moments: []moment{{node: "cp1", call: "EtcdStatus"}, {node: "cp1", call: removeCall}},
			ends: func(t *testing.T, l *lab) {
				t.Helper()
				require.NotContains(t, l.members(t), "cp3")
				require.NotContains(t, l.kubernetesNodes(t), "cp3")
			},
		},
		"a reset of a node": {
			target: "reset", controlPlanes: 1, workers: 1, settings: []string{"NODE=worker1", "-yes=true"},
			moments: []moment{{node: "worker1", call: "Reset", after: true}},
			ends: func(t *testing.T, l *lab) {
				t.Helper()
				require.Equal(t, "maintenance", l.Node("worker1").Stage())
				require.Len(t, resets(l.Node("worker1")), 1)
				require.Equal(t, "running", l.Node("cp1").Stage())
			},
		},
		"a reset of a cluster": {
			target: "reset", controlPlanes: 2, workers: 1, settings: []string{"-cluster=lab", "-yes=true"}, downs: true,
			moments: []moment{{node: "worker1", call: "Reset"}, {node: "cp1", call: "Reset", after: true},
				{node: "cp2", call: "Reset"}},
			ends: func(t *testing.T, l *lab) {
				t.Helper()

				for _, node := range l.Nodes {
					require.Equal(t, "maintenance", node.Stage(), node.Name())
					require.Zero(t, node.EtcdClusterID(), node.Name())
				}
			},
		},
		"a snapshot": {
			target: "etcd:snapshot", controlPlanes: 1,
			prepare: func(t *testing.T, l *lab) []string {
				t.Helper()
				fault(l.Node("cp1"), emulator.CallFault{Method: snapshotCall, When: emulator.AfterEffect, Do: emulator.Hang,
					Times: 1})

				return nil
			},
			moments: []moment{{node: "cp1", call: snapshotCall, after: true}, {node: "cp1", call: snapshotCall}},
			between: func(t *testing.T, l *lab) {
				t.Helper()
				require.FileExists(t, filepath.Join(l.Dir, "snapshots", ".gitignore"))
			},
			ends: func(t *testing.T, l *lab) {
				t.Helper()
				require.Len(t, snapshots(t, filepath.Join(l.Dir, "snapshots")), 1)
			},
		},
		"a defragmentation": {
			target: "etcd:defrag", controlPlanes: 3,
			moments: []moment{{node: "cp1", call: defragCall}, {node: "cp2", call: defragCall, after: true},
				{node: "cp3", call: defragCall}},
			ends: func(t *testing.T, l *lab) {
				t.Helper()

				for _, node := range l.Nodes {
					require.True(t, node.EtcdVoter(), node.Name())
				}
			},
		},
		"an installation of applications": {
			target: "apps", controlPlanes: 1,
			prepare: func(t *testing.T, l *lab) []string { t.Helper(); l.withApps(t); return nil },
			moments: []moment{{program: "get namespaces"}, {program: " apply "}, {program: " apply ", after: true},
				{program: " template "}, {program: " sync "}, {program: " sync ", after: true}},
			ends: func(t *testing.T, l *lab) {
				t.Helper()

				applied := contentOf(t, l.folder, "state", "applied")
				for _, once := range []string{"kind: Namespace", "name: sops-age", "kind: CustomResourceDefinition"} {
					require.Equal(t, 1, strings.Count(applied, once), "%s is applied once\n%s", once, applied)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.play(t)
		})
	}
}

func (k killing) play(t *testing.T, change ...func(*labcluster.Options)) {
	t.Helper()

	var killer killer

	l := newLab(t, k.controlPlanes, k.workers, append(change,
		func(options *labcluster.Options) { options.LabOptions.Watch = killer.watch })...)

	if k.furnish != nil {
		k.furnish(t, l)
	}

	l.up(t)

	given := k.settings
	if k.prepare != nil {
		given = append(given, k.prepare(t, l)...)
	}

	before := l.remember(t)

	for _, at := range k.moments {
		l.programKills(t, at)
		killer.kill(t, l, k.target, at, given...)

		now := l.remember(t)
		require.LessOrEqual(t, now.etcds, before.etcds+k.restores, "%s: there must never be a second etcd", at)
		require.GreaterOrEqual(t, now.snapshots, before.snapshots, "%s: no snapshot is lost", at)
		require.True(t, now.quorum || !before.quorum || k.downs, "%s: etcd keeps its quorum", at)
	}

	if k.between != nil {
		k.between(t, l)
	}

	s := l.session(t, given...)
	s.do(t, killable[k.target](s.Settings)...)

	require.NoError(t, s.err, s.out)

	l.isTidy(t)
	k.ends(t, l)
}

// programKills has the doubles of the user's programs kill who calls them, at a moment that is theirs.
func (l *lab) programKills(t *testing.T, at moment) {
	t.Helper()

	if at.program == "" {
		return
	}

	when := "killBefore"
	if at.after {
		when = "killAfter"
	}

	require.NoError(t, os.WriteFile(filepath.Join(l.folder, "state", when), []byte(at.program), 0o600))
}

func toUpgradeTo(t *testing.T, l *lab) []string {
	t.Helper()
	l.declare(t, l.Generated.Options.TalosVersion, documents.Talos)

	return nil
}

func isUpgraded(t *testing.T, l *lab) {
	t.Helper()
	l.isUpgraded(t, documents.Talos)
}

// lostQuorum takes a snapshot, and the quorum.
func lostQuorum(t *testing.T, l *lab) []string {
	t.Helper()

	file := l.snapshotOf(t)
	l.silence("cp2", "cp3")

	return []string{file}
}

func isRecovered(t *testing.T, l *lab) {
	t.Helper()
	require.True(t, l.Node("cp1").EtcdVoter())
	require.Equal(t, 2, l.Lab.EtcdClusters(), "the one that is lost, and the restored one")
	require.NotEmpty(t, snapshots(t, filepath.Join(l.Dir, "snapshots")), "what cp1 held is saved")
}
