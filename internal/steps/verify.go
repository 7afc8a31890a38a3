package steps

import (
	"context"
	"fmt"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const (
	verifyName        = "verify"
	verifyWorkersName = "verifyWorkers"
)

// Verify waits until the control planes have left maintenance with their own config and their install is over. Of a
// worker it asks only that it is on its way: its API opens when trustd can be reached at the endpoint, which through a
// VIP is after bootstrap. On a cluster that has etcd, workers must be up.
type Verify struct{}

// Name is the step's name.
func (Verify) Name() string { return verifyName }

// Exit is the code for a node that is stuck.
func (Verify) Exit() diagnosis.ExitCode { return diagnosis.ExitVerify }

// Nodes are those that the run works on and no earlier step left out.
func (Verify) Nodes(run *Run) []*inventory.Node { return run.present() }

// Run verifies the control planes, and the workers as far as they can be by now.
func (s Verify) Run(ctx context.Context, run *Run) error {
	work := begin(run, s)
	if err := work.checkKinship(ctx); err != nil {
		return err
	}

	// A cluster that is up already is verified whole.
	whole := !run.Settings.DryRun && run.observer.SurveyEtcd(ctx).Running()
	return verifyNodes(ctx, work, run.present(), whole)
}

// VerifyWorkers waits, after bootstrap, until every worker answers with its own config and runs, and until the control
// planes are through with their boot too: one that is not, though a member of etcd, reboots when Talos loses its
// patience.
type VerifyWorkers struct{}

// Name is the step's name.
func (VerifyWorkers) Name() string { return verifyWorkersName }

// Exit is the code for a node that is stuck.
func (VerifyWorkers) Exit() diagnosis.ExitCode { return diagnosis.ExitVerify }

// Nodes are the workers that no earlier step left out.
func (VerifyWorkers) Nodes(run *Run) []*inventory.Node {
	return ofRole(run.present(), inventory.Worker)
}

// Run verifies the workers, that the control planes lack nothing, and that all nodes are registered in Kubernetes.
func (s VerifyWorkers) Run(ctx context.Context, run *Run) error {
	workers := ofRole(run.present(), inventory.Worker)
	forgiveRefusals(run, workers)

	work := begin(run, s)
	verified := verifyNodes(ctx, work, workers, true)

	if ctx.Err() != nil || run.Settings.DryRun {
		return verified
	}

	started := awaitControlPlanes(ctx, work)
	if ctx.Err() != nil {
		return diagnosis.Join(verified, started)
	}

	return diagnosis.Join(verified, started, work.awaitRegistered(ctx))
}

// awaitControlPlanes waits until the control planes have all that they wait for. Only those are reported that do not
// come so far: they are no workers.
func awaitControlPlanes(ctx context.Context, run *work) error {
	controlPlanes := ofRole(run.present(), inventory.ControlPlane)

	outcomes := fanout.Collect(ctx, observe.Limit, controlPlanes, func(ctx context.Context, node *inventory.Node) outcome {
		started := time.Now()
		verifier := &verifier{work: run, etcdWhole: true}

		result := verifier.verify(ctx, node)
		if result.failed() {
			run.finish(result, started)
		}

		return result
	}, run.broken)

	return run.conclude(outcomes)
}

// forgiveRefusals starts the clock of workers anew that only refused connections so far: before bootstrap nobody could
// sign their certificate.
func forgiveRefusals(run *Run, workers []*inventory.Node) {
	for _, node := range workers {
		run.observer.Note(node, func(facts *observe.Facts) {
			if !facts.SilentSince.IsZero() && !facts.RefusedAt.Before(facts.SilentSince) {
				facts.SilentSince = run.Clock.Now()
			}
		})
	}
}

func verifyNodes(ctx context.Context, run *work, nodes []*inventory.Node, workersUp bool) error {
	if run.Settings.DryRun {
		return run.done(report.Skipped, "dry run: nothing to wait for")
	}

	return run.conclude(fanout.Collect(ctx, observe.Limit, nodes, func(ctx context.Context, node *inventory.Node) outcome {
		started := time.Now()
		verifier := &verifier{work: run, workersUp: workersUp}

		return run.finish(verifier.verify(ctx, node), started)
	}, run.broken))
}

type verifier struct {
	*work
	// workersUp is set when nothing keeps a worker from being up; etcdWhole when nothing keeps a control plane from it.
	workersUp, etcdWhole bool
	// joining is set when the node ended as a worker whose API is not open yet.
	joining bool
}

func (v *verifier) verify(ctx context.Context, node *inventory.Node) outcome {
	seen, problem := v.await(ctx, node, v.judge)
	result := outcome{node: node, address: seen.Address, status: report.OK, detail: seen.Stage()}
	switch {
	case problem != nil:
		result.status, result.problem = report.Failed, v.withCause(ctx, node, problem)
		result.detail = ""
	case v.joining:
		result.status, result.detail = report.Joining, v.joiningText(seen)
	case seen.Relation == observe.ConfigDrifted:
		result.status, result.detail = report.Drifted, seen.Stage()+", differs from "+v.shown(node.ConfigFile)
	case seen.Relation == observe.ConfigUnread:
		result.status, result.detail = report.Warned, seen.Stage()+", its config could not be compared"
	}

	switch was := v.observer.MovedFrom(seen); {
	case problem != nil || seen.Address == "":
	case was != "":
		result.detail += fmt.Sprintf(", was %s, now %s", was, seen.Address)
	case seen.Address != v.observer.Addresses(node)[0]:
		result.detail += ", at " + seen.Address
	}

	return result
}

func (v *verifier) judge(_ context.Context, seen observe.Observation) verdict {
	v.joining = false
	switch {
	case seen.NotOurs():
		return verdict{problem: v.notOurs(seen)}
	case seen.Silent():
		v.joining = v.onItsWay(seen)
		return verdict{done: v.joining}
	case seen.State == talos.Maintenance:
		return v.judgeMaintenance(seen)
	default:
		return v.judgeConfigured(seen)
	}
}

// joiningText says of a worker that is on its way how far it is, as far as that is known.
func (w *work) joiningText(seen observe.Observation) string {
	const opens = "its API opens once the endpoint can be reached"

	silence := "no answer"
	if seen.Silence == talos.Refused {
		silence = "port refused"
	}

	switch {
	case seen.InstallFailure != "":
		return installText(seen)
	case !seen.Silent():
		return orUnread(seen.Stage())
	case w.observer.Facts(seen.Node).Sent == nil:
		return silence + ", and this run sent it no config; if it has one, " + opens
	default:
		return silence + ": " + opens
	}
}

// onItsWay tells of a worker that it need not be waited for yet: nothing before bootstrap depends on it.
func (v *verifier) onItsWay(seen observe.Observation) bool {
	return seen.Node.Role == inventory.Worker && (!v.workersUp || v.servedLater(seen.Node))
}

// servedLater tells of a worker that apply left for its second turn, which comes after this step, whatever etcd there
// is already.
func (v *verifier) servedLater(node *inventory.Node) bool {
	return v.step.Name() == verifyName && v.observer.Facts(node).Joining
}

// judgeMaintenance tells a node that has yet to leave maintenance from one that came back to it: a failed install
// leaves no other trace.
func (v *verifier) judgeMaintenance(seen observe.Observation) verdict {
	facts := v.observer.Facts(seen.Node)
	switch {
	case facts.Sent == nil && facts.Joining && v.onItsWay(seen):
		// Apply found its port closed and left it for after bootstrap: it was only late to boot.
		v.joining = true
		return verdict{done: true}
	case facts.Sent == nil && !facts.LeftMaintenance && !facts.Reopened():
		return verdict{}
	case facts.Sent != nil && facts.InSameBoot():
		return verdict{doing: facts.Receipt() + ", still in maintenance"}
	}

	cause := returnText(facts)
	if facts.InstallFailure != "" {
		cause += ": " + facts.InstallFailure
	} else {
		cause += "; the node keeps no trace of why: the usual causes are an install disk that does not exist, an " +
			"installer image that can't be pulled, or a power cut"
	}

	return verdict{problem: v.problem(seen, diagnosis.InstallFailed, cause, correctInstall(seen.Node))}
}

// returnText says of a node that is back in maintenance what it had before.
func returnText(facts observe.Facts) string {
	switch {
	case facts.Sent == nil && facts.LeftMaintenance:
		return "it had its config and is back in maintenance: the install failed, or its disk was wiped"
	case facts.Sent == nil:
		return "its port was closed, as while a node installs, and now it is in maintenance: the install failed, or it " +
			"has only booted and never had a config"
	case facts.Unsure:
		return "the reply to its config was lost and it is back in maintenance: the config did not arrive, or the " +
			"install failed"
	default:
		return "it accepted its config and came back to maintenance: the install failed"
	}
}

func (v *verifier) judgeConfigured(seen observe.Observation) verdict {
	switch seen.Relation {
	case observe.ConfigSwapped:
		return verdict{problem: v.swapped(seen)}
	case observe.ConfigUnsent:
		return verdict{problem: v.unsent(seen)}
	}

	switch {
	case seen.Node.Role == inventory.Worker && v.workersUp, v.etcdWhole:
		return verdict{done: seen.Stage() == talos.StageRunning && seen.Complete() && seen.Installed()}
	case v.onItsWay(seen):
		v.joining = !seen.Up()
		return verdict{done: true}
	default:
		return verdict{done: seen.Up()}
	}
}

// withCause adds to a worker that is still joining why that may be, and for a node that went silent after its config
// was applied where else it may be.
func (v *verifier) withCause(ctx context.Context, node *inventory.Node, problem *diagnosis.Problem) *diagnosis.Problem {
	if problem.ID != diagnosis.NodeRefused && problem.ID != diagnosis.NodeSilent {
		return problem
	}

	if elsewhere := v.discoveredAddresses(ctx, node); len(elsewhere) > 0 {
		problem.Cause += "; other nodes see it at " + text.List(elsewhere)
		problem.Next = fmt.Sprintf("NODE_ADDRESSES=%s=%s %s", node.Name, elsewhere[0], v.command(node))
		return problem
	}

	if v.workersUp {
		v.unsigned(node, problem)
	}

	return problem
}

// unsigned says of a worker whose port stays closed, though control planes are up, what else that may come from.
func (w *work) unsigned(node *inventory.Node, problem *diagnosis.Problem) {
	if node.Role != inventory.Worker || problem.ID != diagnosis.NodeRefused {
		return
	}

	problem.ID = diagnosis.WorkerJoining
	problem.Cause += fmt.Sprintf("; a worker opens its API when a control plane signs its certificate: can it reach "+
		"%s and the control planes' port 50001, and is its clock right?", w.Cluster.Endpoint.Host)
}

// discoveredAddresses asks the control planes where discovery has seen the node.
func (v *verifier) discoveredAddresses(ctx context.Context, lost *inventory.Node) []string {
	if ctx.Err() != nil {
		return nil
	}

	asking, stop := context.WithTimeout(ctx, 4*v.Settings.DialTimeout)
	defer stop()

	for _, node := range v.Cluster.ControlPlanes() {
		if node == lost {
			continue
		}

		probed := v.observer.Probe(asking, node)
		if probed.State != talos.Ours {
			continue
		}

		conn, err := v.observer.Dialer().Secure(asking, probed.Address)
		if err != nil {
			continue
		}

		members, err := conn.Members(asking)
		conn.Close()

		if err != nil {
			continue
		}

		for _, member := range members {
			if member.Hostname == lost.Hostname && lost.Hostname != "" {
				var elsewhere []string
				for _, address := range member.Addresses {
					if address.String() != lost.Address {
						elsewhere = append(elsewhere, address.String())
					}
				}

				return elsewhere
			}
		}

		return nil
	}

	return nil
}
