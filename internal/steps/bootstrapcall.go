package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const (
	// resendAfter is the least time between two Bootstrap calls: a second one can stop a starting etcd for good.
	resendAfter = 30 * time.Second
	// refusalPause is the wait after a refusal that may pass.
	refusalPause = 2 * time.Second
)

// sentBootstrap is a Bootstrap whose effect has to be looked for: it was accepted, or its reply was lost.
type sentBootstrap struct {
	at time.Time
	to *inventory.Node
	// history is when the node's etcd service had begun before the call: an effective Bootstrap replaces the service.
	history time.Time
	// boot is the node's boot: what a Bootstrap started and did not write down ends with it.
	boot string
	// earlier is set for one that was not this run's.
	earlier bool
	// toldUndone is set once it was said that the Bootstrap has had no effect.
	toldUndone bool
}

// undone reports whether the node has rebooted since, and that no control plane holds any data: the Bootstrap came to
// nothing.
func (s *sentBootstrap) undone(survey observe.EtcdSurvey) bool {
	rebooted := false
	for _, node := range survey {
		if !node.Empty() {
			return false
		}

		rebooted = rebooted || node.Node == s.to && s.boot != "" && node.Boot != "" && node.Boot != s.boot
	}

	return rebooted
}

// target is the control plane that gets the call: the one asked for, else the first of the inventory that answers and
// is empty.
func (b *bootstrapper) target(survey observe.EtcdSurvey) (observe.EtcdObservation, bool) {
	for _, node := range survey {
		if node.Empty() && (b.Settings.BootstrapNode == "" || namesNode([]string{b.Settings.BootstrapNode}, node.Node)) {
			return node, true
		}
	}

	return observe.EtcdObservation{}, false
}

// earlierBootstrap finds a Bootstrap that took effect before this run looked, and whose etcd has written nothing yet:
// that of a run which was killed, or of another operator. nil, if there is none.
func (b *bootstrapper) earlierBootstrap(survey observe.EtcdSurvey) *sentBootstrap {
	for _, node := range survey {
		if node.Starting() {
			b.Echo.Info().Str("node", node.Node.Name).Msg("etcd is already starting there, so Bootstrap is not called")
			return &sentBootstrap{at: b.Clock.Now(), to: node.Node, boot: node.Boot, earlier: true}
		}
	}

	return nil
}

// call sends Bootstrap to the target, directly, unless one that was sent already may still take effect.
func (b *bootstrapper) call(ctx context.Context, survey observe.EtcdSurvey) wait.State {
	target, found := b.target(survey)
	if !found {
		return wait.State{Problem: b.clusterProblem(diagnosis.BootstrapBlocked,
			"no control plane can be bootstrapped: "+survey.Describe(), command("status", nil))}
	}

	if b.sent == nil {
		b.sent = b.earlierBootstrap(survey)
	}

	if b.sent != nil {
		var problem *diagnosis.Problem

		switch {
		case b.sent.undone(survey):
			problem = b.beginAnew(target)
		case b.tookEffect(survey):
			return wait.State{Done: true}
		default:
			problem = b.beyondResending(target)
		}

		if problem != nil {
			return wait.State{Problem: problem}
		}

		looking := wait.Limit{For: "checking whether the first Bootstrap took effect", Since: b.sent.at, Limit: resendAfter}
		if now := b.Clock.Now(); looking.Left(now) > 0 {
			return wait.State{Limit: looking, Asked: now, Node: b.sent.to.Name, Pause: etcdPause}
		}
	}

	b.Report.Progress(bootstrapName,
		report.Progress{Node: target.Node.Name, Text: "bootstrapping etcd", Since: b.Clock.Now()})

	return b.judgeReply(ctx, target, b.send(ctx, target))
}

// beginAnew is for a Bootstrap that a reboot has undone: the time that the node was off does not count. It ends a run
// in which that happens too often.
func (b *bootstrapper) beginAnew(target observe.EtcdObservation) *diagnosis.Problem {
	if b.sent.toldUndone {
		return nil
	}

	b.sent.toldUndone = true
	b.undone++
	clear(b.since)

	if b.undone > maxReboots {
		return b.problem(target.Observation, diagnosis.BootstrapFailed,
			fmt.Sprintf("it has rebooted right after Bootstrap %d times, before etcd had any data", b.undone),
			command("diagnose", target.Node))
	}

	b.Log.Warn().Str("node", b.sent.to.Name).Msg(
		"it rebooted right after Bootstrap, before etcd had any data: bootstrapping again")

	return nil
}

// beyondResending ends a run whose Bootstraps have come to nothing for as long as etcd may take.
func (b *bootstrapper) beyondResending(target observe.EtcdObservation) *diagnosis.Problem {
	since := b.since.of("bootstrap: no effect", b.sent.at)
	if target.Asked.Sub(since) < b.Settings.EtcdTimeout {
		return nil
	}

	return b.problem(target.Observation, diagnosis.BootstrapFailed,
		fmt.Sprintf("Bootstrap has had no effect for %s: no reply said that it worked, and no control plane holds etcd data",
			b.Clock.Now().Sub(since).Round(time.Second)), command("status", nil))
}

// tookEffect tells of a Bootstrap whose reply was lost that the node has begun a new etcd service, though without data
// so far: its image may take minutes to be pulled.
func (b *bootstrapper) tookEffect(survey observe.EtcdSurvey) bool {
	return slices.ContainsFunc(survey, func(node observe.EtcdObservation) bool {
		return node.Node == b.sent.to && node.State == talos.Ours && node.Began().After(b.sent.history)
	})
}

func (b *bootstrapper) send(ctx context.Context, target observe.EtcdObservation) error {
	conn, err := b.observer.Dialer().Secure(ctx, target.Address)
	if err != nil {
		return err
	}
	defer conn.Close()

	calling, stop := context.WithTimeout(ctx, b.Settings.AttemptTimeout)
	defer stop()

	return b.gate.Bootstrap(calling, conn)
}

func (b *bootstrapper) judgeReply(ctx context.Context, target observe.EtcdObservation, err error) wait.State {
	sent := &sentBootstrap{at: b.Clock.Now(), to: target.Node, history: target.Began(), boot: target.Boot}

	if ctx.Err() != nil {
		return wait.State{}
	}

	switch class := talos.Classify(talos.OpBootstrap, err); {
	case err == nil:
		b.Echo.Info().Str("node", target.Node.Name).Msg("etcd bootstrapped")
		b.sent = sent

		return wait.State{Done: true}
	case class == talos.Done, class == talos.UnknownOutcome:
		// Done means that data appeared meanwhile. Either way: look at etcd before anything else.
		b.Log.Warn().Str("node", target.Node.Name).Msg("checking etcd: " + talos.Explain(err))
		b.sent = sent

		return wait.State{}
	case class == talos.Retry, isUnreached(err): // whatever took its place meanwhile, the next look tells
		return b.retryLater(target, err)
	case talos.IsEtcdNotConfigured(err):
		refused := b.problem(target.Observation, diagnosis.BootstrapFailed,
			"its machine config has no certificate authority for etcd (cluster.etcd.ca), so it can never bootstrap",
			"generate its config with the cluster's secrets (mage config:generate), then "+
				command("applySequential", target.Node)+" -update")
		refused.Err = err
		return wait.State{Problem: refused}
	default:
		refused := b.problem(target.Observation, diagnosis.BootstrapFailed,
			"the node refused to bootstrap: "+talos.Explain(err), command("status", nil))
		refused.Err = err
		return wait.State{Problem: refused}
	}
}

// retryLater waits out a refusal that may pass, such as a clock that is not synced yet.
func (b *bootstrapper) retryLater(target observe.EtcdObservation, cause error) wait.State {
	id, limit, next := diagnosis.BootstrapFailed, b.Settings.StageTimeout, command("bootstrap", nil)

	if talos.IsTimeNotSynced(cause) {
		id, limit, next = diagnosis.TimeNotSynced, b.Settings.TimeSyncTimeout, timeCommand(target.Node)
	} else if known, remedy, found := diagnosed(cause); found && isUnreached(cause) {
		id, next = known, remedy
	}

	now, refusal := b.Clock.Now(), talos.Explain(cause)+waitedFor(target.Observation)

	return wait.State{
		Limit: wait.Limit{For: refusal, Since: b.since.of("bootstrap: "+string(id), now), Limit: limit},
		Asked: now, Node: target.Node.Name, Pause: refusalPause,
		TimeUp: func(waited time.Duration) *diagnosis.Problem {
			refused := b.problem(target.Observation, id, fmt.Sprintf("%s, for %s", refusal, waited), next)
			refused.Err = cause
			return refused
		},
	}
}

// isUnreached reports whether a call did not even reach its node.
func isUnreached(err error) bool {
	var failure *talos.Error
	return errors.As(err, &failure) && failure.Op == talos.OpDial
}

// waitedFor is what a node that does not bootstrap yet waits for itself, as far as it says so.
func waitedFor(seen observe.Observation) string {
	waits := "; the node is " + stageText(seen)
	for _, service := range seen.Services {
		switch {
		case service.ID == "etcd", service.Running(), service.State == "Finished", service.State == "Skipped":
		case service.State == "Running":
			waits += "; its " + service.ID + " is not healthy" + text.Because(service.LastMessage)
		default:
			waits += "; its " + service.ID + " is " + service.State + text.Because(service.LastEvent())
		}
	}

	return waits
}
