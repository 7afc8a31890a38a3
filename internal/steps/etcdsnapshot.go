package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/snapshot"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const snapshotName = "etcd:snapshot"

// EtcdSnapshot copies the data of etcd into a file, and believes the copy by its hash alone.
type EtcdSnapshot struct{}

// Name is the step's name.
func (EtcdSnapshot) Name() string { return snapshotName }

// Exit is the code for a snapshot that could not be had.
func (EtcdSnapshot) Exit() diagnosis.ExitCode { return diagnosis.ExitBootstrap }

// Mutates marks the step as one that needs the cluster's lock.
func (EtcdSnapshot) Mutates() {}

// Run asks one control plane after the other until one has given a whole snapshot.
func (s EtcdSnapshot) Run(ctx context.Context, run *Run) error {
	snapshotter := &snapshotter{begin(run, s)}

	asked := slices.DeleteFunc(run.observer.SurveyEtcd(ctx),
		func(node observe.EtcdObservation) bool { return !run.selected(node.Node) })

	sources, err := snapshotter.sources(asked, len(run.Settings.Node) > 0)
	if err != nil {
		return snapshotter.failed(ctx, err)
	}

	return snapshotter.take(ctx, sources, snapshotter.path(time.Now()))
}

// snapshotter is one run of the step.
type snapshotter struct{ *work }

// snapshotFolder is where snapshots are kept whose file was not named.
func snapshotFolder(settings *settings.Settings) string {
	return filepath.Join(settings.TalosDir, "snapshots")
}

// path is the file that was asked for, or a new one in a folder beside the cluster's files.
func (s *snapshotter) path(now time.Time) string {
	if s.Settings.SnapshotFile != "" {
		return s.Settings.SnapshotFile
	}

	base := filepath.Join(snapshotFolder(s.Settings), s.Cluster.Name+"-"+now.UTC().Format("20060102T150405Z"))
	path := base + ".db"

	// There can be one of the same second.
	for number := 2; ; number++ {
		if _, err := os.Lstat(path); err != nil {
			return path
		}

		path = fmt.Sprintf("%s-%d.db", base, number)
	}
}

// sources are those of some control planes whose etcd can be copied, voters first. Without a leader what a member holds
// may be old, so it is copied from one that was named alone.
func (s *snapshotter) sources(asked observe.EtcdSurvey, named bool) (observe.EtcdSurvey, error) {
	if len(asked) == 0 {
		return nil, s.clusterProblem(diagnosis.SnapshotImpossible,
			text.List(s.Settings.Node)+": etcd runs on control planes only", "name a control plane")
	}

	sources := slices.DeleteFunc(slices.Clone(asked), func(node observe.EtcdObservation) bool {
		return !node.Running() || node.Wrong != nil || node.Leader == 0 && !named
	})

	if len(sources) == 0 {
		return nil, s.clusterProblem(diagnosis.SnapshotImpossible, "no etcd can be copied: "+asked.Describe(),
			command("status", nil))
	}

	slices.SortStableFunc(sources, func(a, b observe.EtcdObservation) int {
		return cmp.Compare(unfit(a), unfit(b))
	})

	return sources, nil
}

// unfit puts healthy voters before the others.
func unfit(node observe.EtcdObservation) int {
	if node.Healthy() {
		return 0
	}

	return 1
}

func (s *snapshotter) take(ctx context.Context, sources observe.EtcdSurvey, path string) error {
	if s.Settings.DryRun {
		return s.wouldWrite(path, path+", copied from "+sources[0].Node.Name)
	}

	var problems []*diagnosis.Problem

	for _, source := range sources {
		size, err := s.copy(ctx, source, path)
		if err == nil {
			s.warnOfGit(ctx, path)

			return s.done(report.Applied, fmt.Sprintf("%s, %s, copied from %s and verified", path, sizeText(size),
				source.Node.Name))
		}

		if problem := ofThisComputer(path, err); problem != nil {
			return s.failed(ctx, problem)
		}

		problems = append(problems, s.problem(source.Observation, diagnosis.SnapshotFailed, talos.Explain(err), s.again(
			sources, source)).From(err))

		if ctx.Err() != nil || errors.Is(err, fs.ErrExist) {
			break
		}

		s.Log.Warn().Str("node", source.Node.Name).Msg(talos.Explain(err))
	}

	return s.failed(ctx, joined(problems))
}

// ofThisComputer is the problem of a file that can't be written here, whatever the node does; nil if it is another.
func ofThisComputer(path string, err error) *diagnosis.Problem {
	local := errors.As(err, new(*fs.PathError)) || errors.As(err, new(*os.LinkError))
	if !local || errors.Is(err, fs.ErrExist) {
		return nil
	}

	return diagnosis.Unwritable(path, err)
}

// again is how to try another control plane.
func (s *snapshotter) again(sources observe.EtcdSurvey, failed observe.EtcdObservation) string {
	others := sources.Without(failed.Node)
	if len(others) == 0 {
		return command(snapshotName, nil)
	}

	return command(snapshotName, others[0].Node)
}

// copy makes the file of one member's snapshot.
func (s *snapshotter) copy(ctx context.Context, source observe.EtcdObservation, path string) (size int64, err error) {
	return s.copyBy(ctx, source, path, (*talos.Conn).EtcdSnapshot, func(file *os.File, size int64) error {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read the snapshot again: %w", err)
		}

		return snapshot.Verify(file, size) //nolint:wrapcheck // it says what is wrong
	})
}

// copyBy makes the file of one member's data in one of the ways; it is whole, or it is not there.
func (s *snapshotter) copyBy(ctx context.Context, source observe.EtcdObservation, path string,
	fetch func(*talos.Conn, context.Context, io.Writer) error,
	verify func(file *os.File, size int64) error) (size int64, err error) {
	conn, err := s.observer.Dialer().Secure(ctx, source.Address)
	if err != nil {
		return 0, err //nolint:wrapcheck // its class is the caller's to judge
	}
	defer conn.Close()

	s.ignoreFolder()

	err = s.gate.CreateFile(path, func(file *os.File) error {
		progress := &copied{to: file, tell: func(size int64) { s.tell(source.Node, size) }}
		if err := fetch(conn, ctx, progress); err != nil {
			return err //nolint:wrapcheck // its class is the caller's to judge
		}

		size = progress.size

		return verify(file, size)
	})

	return size, err //nolint:wrapcheck // it names the file
}

func (s *snapshotter) tell(node *inventory.Node, size int64) {
	s.Report.Progress(s.step.Name(), report.Progress{Node: node.Name, Text: "copied " + sizeText(size),
		Since: s.Clock.Now()})
}

// copied counts what was written, and tells of every part of it.
type copied struct {
	to   io.Writer
	tell func(size int64)
	size int64
}

// partSize is how much is copied before it is told of again, in bytes.
const partSize = 4 << 20

// Write implements io.Writer.
func (c *copied) Write(data []byte) (int, error) {
	written, err := c.to.Write(data)
	before := c.size
	c.size += int64(written)

	if before == 0 || before/partSize != c.size/partSize {
		c.tell(c.size)
	}

	return written, err //nolint:wrapcheck // it names the file
}

// ignoreFolder has git ignore our folder of snapshots, before there is one in it: a snapshot holds all Secrets of the
// cluster.
func (s *snapshotter) ignoreFolder() {
	if s.Settings.SnapshotFile != "" {
		return
	}

	if err := s.gate.KeepOutOfGit(snapshotFolder(s.Settings)); err != nil {
		s.Log.Warn().Err(err).Msg("git is not told to ignore snapshots")
	}
}

// warnOfGit says so if git does not ignore a snapshot.
func (s *snapshotter) warnOfGit(ctx context.Context, path string) {
	if !s.workspace.Unignored(ctx, path) {
		return
	}

	s.Report.Finding(s.step.Name(), diagnosis.Finding{
		ID: diagnosis.SnapshotNotIgnored, Severity: diagnosis.Warning,
		Cause: "git does not ignore " + path + ", which holds all Secrets of the cluster",
		Next:  "list " + filepath.Base(path) + " in " + filepath.Join(filepath.Dir(path), ".gitignore"),
	})
}
