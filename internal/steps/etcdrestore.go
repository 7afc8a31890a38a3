package steps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/base/retry"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/snapshot"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// save copies what members hold to this computer: it may be newer than the file, and is the only copy once they are
// wiped.
func (r *recoverer) save(ctx context.Context, holders observe.EtcdSurvey) *diagnosis.Problem {
	if r.Settings.DryRun {
		return nil
	}

	for _, node := range holders {
		if r.saved[node.Node.Name] != "" {
			continue
		}

		path := filepath.Join(snapshotFolder(r.Settings), fmt.Sprintf("%s-%s-before-recovery-%s.db", r.Cluster.Name,
			node.Node.Name, time.Now().UTC().Format("20060102T150405Z")))

		size, err := r.saveOne(ctx, node, path)
		unwritten := ofThisComputer(path, err)

		switch {
		case ctx.Err() != nil:
			return interrupted(ctx, recoverName)
		case unwritten != nil:
			return unwritten.In(recoverName)
		case err != nil && r.destroyed(node.Node):
			r.Log.Warn().Str("node", node.Node.Name).Msg("what it holds can't be saved: " + talos.Explain(err))
			continue
		case err != nil:
			return r.problem(node.Observation, diagnosis.MemberUnsaved, "what its etcd holds can't be saved: "+
				talos.Explain(err), r.typed(node.Node.Name)+", if that is beyond use").From(err)
		}

		r.saved[node.Node.Name] = path
		r.Log.Info().Str("node", node.Node.Name).Str("file", path).Str("size", sizeText(size)).
			Msg("what its etcd holds is saved")
	}

	return nil
}

// saveOne takes a snapshot of an etcd that runs, and else copies the database.
func (r *recoverer) saveOne(ctx context.Context, node observe.EtcdObservation, path string) (size int64, err error) {
	snapshotter := &snapshotter{r.work}

	if node.Running() {
		if size, err = snapshotter.copy(ctx, node, path); err == nil {
			snapshotter.warnOfGit(ctx, path)
			return size, nil
		}
	}

	if size, err = snapshotter.copyBy(ctx, node, path, (*talos.Conn).EtcdDatabase, verifyCopied); err == nil {
		snapshotter.warnOfGit(ctx, path)
	}

	return size, err
}

// verifyCopied looks whether a copied database is whole.
func verifyCopied(file *os.File, size int64) error {
	_, err := snapshot.Identify(file, size)
	return err //nolint:wrapcheck // it says what is wrong
}

// wipe wipes the etcd of control planes, and waits until each says that it holds none.
func (r *recoverer) wipe(ctx context.Context, holders observe.EtcdSurvey) *diagnosis.Problem {
	type wiped struct{ problem *diagnosis.Problem }

	for _, one := range fanout.Collect(ctx, observe.Limit, holders, func(ctx context.Context,
		node observe.EtcdObservation) wiped {
		return wiped{r.wipeOne(ctx, node)}
	}, func(node observe.EtcdObservation, err error) wiped { return wiped{r.unexpected(node.Node, err)} }) {
		if one.problem != nil {
			return one.problem
		}
	}

	return nil
}

// wipeOne asks a node to wipe its etcd, and again if it has not begun a while later.
func (r *recoverer) wipeOne(ctx context.Context, before observe.EtcdObservation) *diagnosis.Problem {
	var asked time.Time

	node := before.Node

	return r.followReset(ctx, node, func(ctx context.Context) (observe.Observation, string, wait.State) {
		now := r.observer.ObserveEtcd(ctx, node)
		state := wait.State{Pause: observeAgain, TimeUp: func(waited time.Duration) *diagnosis.Problem {
			return r.problem(now.Observation, diagnosis.MemberUnwiped, fmt.Sprintf("its etcd is not wiped: %s, for %s",
				wipeText(now), waited), r.typed())
		}}

		switch {
		case now.NotOurs():
			state.Problem = r.notOurs(now.Observation)
		case now.Empty() && !now.Starting(), isAnotherMember(before, now):
			r.finish(outcome{node: node, address: now.Address, status: report.Applied, detail: "its etcd is wiped"}, r.started)

			state.Done = true
		case now.Leader != 0:
			state.Problem = r.works(ctx, observe.EtcdSurvey{now})
		case now.HasData && now.MemberID == before.MemberID && !leaving(now.Observation) &&
			(asked.IsZero() || now.Asked.Sub(asked) >= resendAfter):
			state.Problem, asked = r.sendWipe(ctx, now), r.Clock.Now()
		}

		return now.Observation, wipeText(now), state
	})
}

// isAnotherMember reports whether a node was wiped, and has joined the restored etcd already.
func isAnotherMember(before, now observe.EtcdObservation) bool {
	return rebooted(before.Observation, now.Observation) && now.MemberID != 0 && now.MemberID != before.MemberID
}

func wipeText(now observe.EtcdObservation) string {
	if now.Silent() || leaving(now.Observation) {
		return "wiping its etcd: " + resetText(now.Observation)
	}

	return "wiping its etcd: " + now.Text()
}

// sendWipe sends the reset. One whose reply was lost shows in what the node does next.
func (r *recoverer) sendWipe(ctx context.Context, node observe.EtcdObservation) *diagnosis.Problem {
	conn, err := r.observer.Dialer().Secure(ctx, node.Address)
	if err == nil {
		defer conn.Close()

		err = r.resetEtcd(ctx, conn)
	}

	if err == nil || ctx.Err() != nil || talos.Classify(talos.OpReset, err) != talos.Final {
		return nil
	}

	return r.problem(node.Observation, diagnosis.MemberUnwiped, "the node refused to wipe its etcd: "+talos.Explain(err),
		command("status", node.Node)).From(err)
}

// resetEtcd wipes the partition that etcd's data is on: since Talos 1.14 it may have one of its own.
func (r *recoverer) resetEtcd(ctx context.Context, conn *talos.Conn) error {
	partitions, err := conn.Partitions(ctx)
	if err != nil {
		return err //nolint:wrapcheck // its class is the caller's to judge
	}

	label := constants.EphemeralPartitionLabel
	if slices.ContainsFunc(partitions,
		func(partition talos.Partition) bool { return partition.Label == constants.EtcdDataVolumeID }) {
		label = constants.EtcdDataVolumeID
	}

	calling, stop := context.WithTimeout(ctx, r.Settings.AttemptTimeout)
	defer stop()

	return r.gate.Reset(calling, conn, talos.Reset{Partitions: []string{label}}) //nolint:wrapcheck // as above
}

// restore has one control plane restore etcd from the file, while all the others hold none, and waits until it is
// healthy.
func (r *recoverer) restore(ctx context.Context) (*inventory.Node, *diagnosis.Problem) {
	var (
		restored *inventory.Node
		refusal  = "asked to restore etcd"
		since    = r.Clock.Now()
	)

	problem := r.waiter().Until(ctx, func(ctx context.Context) wait.State {
		survey := r.observer.SurveyEtcd(ctx)

		if r.sent != nil {
			if state, over := r.followed(survey); over {
				restored = r.sent.to
				return state
			}
		}

		if problem := r.refuseRestore(ctx, survey); problem != nil {
			return wait.State{Problem: problem}
		}

		target, found := r.target(survey)

		switch {
		case !found:
			return wait.State{Problem: r.clusterProblem(diagnosis.RecoverFailed, "no control plane can restore etcd: "+
				survey.Describe(), command("status", nil))}
		case r.sent == nil || r.Clock.Now().Sub(r.sent.at) >= resendAfter:
			err := r.ask(ctx, target)
			if problem := r.refusedRestore(target, err); problem != nil && ctx.Err() == nil {
				return wait.State{Problem: problem}
			}

			if err != nil {
				refusal = talos.Explain(err)
			}
		}

		return wait.State{
			Node: target.Node.Name, Asked: target.Asked, Pause: etcdPause,
			Limit: wait.Limit{For: "restoring etcd: " + refusal, Since: since, Limit: r.Settings.EtcdTimeout},
			TimeUp: func(waited time.Duration) *diagnosis.Problem {
				return r.problem(target.Observation, diagnosis.RecoverFailed, fmt.Sprintf("etcd is not restored after %s: %s; %s",
					waited, target.Text(), refusal), r.typed())
			},
		}
	})

	return restored, problem
}

// refuseRestore is why nothing may be started: somebody else holds an etcd, or may.
func (r *recoverer) refuseRestore(ctx context.Context, survey observe.EtcdSurvey) *diagnosis.Problem {
	if problem := r.refuse(ctx, survey); problem != nil {
		return problem
	}

	for _, node := range survey {
		if node.HasData || node.Running() {
			return r.problem(node.Observation, diagnosis.QuorumPossible, "it holds etcd data again: "+node.Text(), r.typed())
		}
	}

	return nil
}

// followed tells how the etcd is doing that was asked to be restored: it is healthy, it failed, or it may yet begin. It
// is not over where nothing has begun.
func (r *recoverer) followed(survey observe.EtcdSurvey) (state wait.State, over bool) {
	at := slices.IndexFunc(survey, func(node observe.EtcdObservation) bool { return node.Node == r.sent.to })
	node := survey[at]

	switch begun := node.Began().After(r.sent.history); {
	case r.sent.undone(survey):
		r.sent = nil
		return wait.State{}, false
	case survey.Split():
		split := splitFinding(survey)
		return wait.State{Problem: r.clusterProblem(split.ID, split.Cause, split.Next)}, true
	case node.Healthy():
		return wait.State{Done: true}, true
	case begun && node.Empty() && node.Etcd.State == "Failed":
		return wait.State{Problem: r.problem(node.Observation, diagnosis.RecoverFailed,
			"it could not restore etcd: "+node.LastEvent(), r.typed()+", perhaps with another file")}, true
	case node.Silent() || node.HasData || node.Running() || node.Starting() || begun && node.Empty():
		return wait.State{
			Node: node.Node.Name, Asked: node.Asked, Pause: etcdPause,
			Limit: wait.Limit{For: "restoring etcd: " + node.Text(), Since: r.sent.at, Limit: r.Settings.EtcdTimeout},
			TimeUp: func(waited time.Duration) *diagnosis.Problem {
				return r.problem(node.Observation, diagnosis.RecoverFailed, fmt.Sprintf("etcd is not healthy %s after it was "+
					"restored: %s", waited, node.Text()), r.typed())
			},
		}, true
	default:
		return wait.State{}, false
	}
}

// ask uploads the file to a node, and has it restore etcd from that.
func (r *recoverer) ask(ctx context.Context, target observe.EtcdObservation) error {
	conn, err := r.observer.Dialer().Secure(ctx, target.Address)
	if err != nil {
		return err //nolint:wrapcheck // its class is the caller's to judge
	}
	defer conn.Close()

	if err := r.upload(ctx, conn, target.Node); err != nil {
		return err
	}

	// It took a while: nobody may have got an etcd meanwhile.
	if problem := r.refuseRestore(ctx, r.observer.SurveyEtcd(ctx)); problem != nil {
		return problem
	}

	calling, stop := context.WithTimeout(ctx, r.Settings.AttemptTimeout)
	defer stop()

	r.sent = &sentBootstrap{at: r.Clock.Now(), to: target.Node, history: target.Began(), boot: target.Boot}

	err = r.gate.BootstrapFromUpload(calling, conn, r.copied)
	if class := talos.Classify(talos.OpBootstrap, err); class == talos.Retry {
		r.sent = nil // it did not reach the node, or the node says that it comes too early
	}

	return err //nolint:wrapcheck // as above
}

func (r *recoverer) upload(ctx context.Context, conn *talos.Conn, node *inventory.Node) error {
	_, err := retry.Do(ctx, r.Clock, r.retries(node), func(ctx context.Context, _ int) error {
		file, _, err := snapshot.Open(r.file)
		if err != nil {
			return err //nolint:wrapcheck // it names the file
		}
		defer file.Close() //nolint:errcheck // it was only read

		r.Report.Progress(recoverName, report.Progress{Node: node.Name, Text: "uploading " + r.file, Since: r.Clock.Now()})

		return r.gate.UploadSnapshot(ctx, conn, io.Reader(file)) //nolint:wrapcheck // its class is judged
	}, func(err error) bool {
		return talos.Classify(talos.OpEtcdUpload, err) == talos.Retry && !errors.Is(err, talos.ErrConnectionLost)
	})

	return err //nolint:wrapcheck // its class is the caller's to judge
}

// refusedRestore is the problem of a node that will never do it.
func (r *recoverer) refusedRestore(target observe.EtcdObservation, err error) *diagnosis.Problem {
	problem, told := diagnosis.AsProblem(err)

	switch {
	case told:
		return problem
	case talos.Classify(talos.OpBootstrap, err) == talos.Final:
		return r.problem(target.Observation, diagnosis.RecoverFailed, "the node refused to restore etcd: "+
			talos.Explain(err), command("status", nil)).From(err)
	default:
		return nil
	}
}
