package steps

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/retry"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// EtcdDefrag has the members of etcd give back the space that they no longer need, one at a time.
type EtcdDefrag struct{}

// Name is the step's name.
func (EtcdDefrag) Name() string { return "etcd:defrag" }

// Exit is the code for a member that could not be defragmented.
func (EtcdDefrag) Exit() diagnosis.ExitCode { return diagnosis.ExitBootstrap }

// Mutates marks the step as one that needs the cluster's lock.
func (EtcdDefrag) Mutates() {}

// Run begins only if all members are healthy, ends with the leader, and stops at the first member that is not healthy
// again: a member answers nobody while it defragments.
func (s EtcdDefrag) Run(ctx context.Context, run *Run) error {
	defragmenter := &defragmenter{begin(run, s)}

	survey := run.observer.SurveyEtcd(ctx)
	if !survey.Agree(run.Cluster.ControlPlanes()) {
		return defragmenter.failed(ctx, defragmenter.clusterProblem(diagnosis.DefragHeldBack,
			"not every member is a healthy one of one etcd: "+survey.Describe(), command("etcd:status", nil)))
	}

	slices.SortStableFunc(survey, func(a, b observe.EtcdObservation) int { return cmp.Compare(leads(a), leads(b)) })

	var outcomes []outcome

	for _, member := range survey {
		if !run.selected(member.Node) {
			continue
		}

		outcomes = append(outcomes, defragmenter.finish(defragmenter.defragment(ctx, member), time.Now()))
		if outcomes[len(outcomes)-1].failed() {
			break
		}
	}

	return diagnosis.Join(defragmenter.conclude(outcomes), defragmenter.dryRunOutcome(outcomes))
}

// leads puts the leader after the others.
func leads(member observe.EtcdObservation) int {
	if member.Leader == member.MemberID {
		return 1
	}

	return 0
}

// defragmenter is one run of the step.
type defragmenter struct{ *work }

func (d *defragmenter) defragment(ctx context.Context, member observe.EtcdObservation) outcome {
	result := outcome{node: member.Node, address: member.Address, tries: 1}

	if d.Settings.DryRun {
		result.status, result.detail = report.Planned, fmt.Sprintf("%s, of which %s are in use",
			sizeText(member.Size), sizeText(member.InUse))

		return result
	}

	d.Report.Progress(d.step.Name(), report.Progress{Node: member.Node.Name,
		Text: "defragmenting " + sizeText(member.Size), Since: d.Clock.Now()})

	after, problem := d.change(ctx, member)
	if problem != nil {
		result.status, result.problem = report.Failed, problem

		return result
	}

	result.status = report.Applied
	result.detail = fmt.Sprintf("%s before, %s now", sizeText(member.Size), sizeText(after.Size))

	return result
}

// change defragments a member, and waits until it is healthy again. Where a reply was lost it is asked once more:
// nobody can tell whether it did it, and twice does no harm.
func (d *defragmenter) change(ctx context.Context, member observe.EtcdObservation) (observe.EtcdObservation,
	*diagnosis.Problem) {
	_, err := retry.Do(ctx, d.Clock, d.retries(member.Node),
		func(ctx context.Context, _ int) error { return d.attempt(ctx, member) },
		func(err error) bool { return talos.Classify(talos.OpEtcd, err) == talos.Retry })

	problem, isProblem := diagnosis.AsProblem(err)

	switch {
	case ctx.Err() != nil:
		return member, d.interrupted(ctx, member.Node)
	case isProblem:
		return member, problem
	case err != nil:
		return member, d.problem(member.Observation, diagnosis.DefragFailed, talos.Explain(err),
			command("etcd:status", nil)).From(err)
	}

	since, after := d.Clock.Now(), member

	problem = d.waiter().Until(ctx, func(ctx context.Context) wait.State {
		after = d.observer.ObserveEtcd(ctx, member.Node)

		return wait.State{
			Done: after.Healthy(), Node: member.Node.Name, Asked: after.Asked, Pause: etcdPause,
			Limit: wait.Limit{For: after.Text(), Since: since, Limit: d.Settings.EtcdTimeout},
			TimeUp: func(waited time.Duration) *diagnosis.Problem {
				return d.problem(after.Observation, diagnosis.DefragFailed,
					fmt.Sprintf("not healthy again after %s: %s", waited, after.Text()), command("etcd:status", nil))
			},
		}
	})

	return after, problem
}

// attempt defragments a member if all others are healthy: one may have gone while the member before was worked on.
func (d *defragmenter) attempt(ctx context.Context, member observe.EtcdObservation) error {
	others := d.observer.SurveyEtcd(ctx).Without(member.Node)

	ill := slices.IndexFunc(others, func(other observe.EtcdObservation) bool { return !other.Healthy() })
	if ill < 0 {
		return d.send(ctx, member)
	}

	return d.problem(member.Observation, diagnosis.DefragHeldBack,
		"etcd could not spare it: "+others[ill].Describe(), command("etcd:status", nil))
}

func (d *defragmenter) send(ctx context.Context, member observe.EtcdObservation) error {
	conn, err := d.observer.Dialer().Secure(ctx, member.Address)
	if err != nil {
		return err //nolint:wrapcheck // its class is the caller's to judge
	}
	defer conn.Close()

	limited, stop := d.Clock.WithTimeout(ctx, d.Settings.EtcdTimeout)
	defer stop()

	err = d.gate.Defragment(limited, conn)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return d.problem(member.Observation, diagnosis.DefragFailed,
			fmt.Sprintf("it did not answer for %s, and may still be at it", d.Settings.EtcdTimeout),
			command("etcd:status", nil)).From(err)
	}

	return err //nolint:wrapcheck // as above
}
