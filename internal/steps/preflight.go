package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/retry"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Preflight finds, before anything is sent, what would make the bring-up fail: in the files, and on each node.
type Preflight struct {
	// InRecipe is set when other steps follow: there silence is never a failure, since apply waits for silent nodes.
	InRecipe bool
}

// Name is the step's name.
func (Preflight) Name() string { return "preflight" }

// Exit is the code for a node or a cluster that can't proceed.
func (Preflight) Exit() diagnosis.ExitCode { return diagnosis.ExitPreflight }

// Nodes are those that the run works on.
func (Preflight) Nodes(run *Run) []*inventory.Node { return run.Nodes() }

// EndsRecipe stops a recipe: without this step the ones that follow make no sense.
func (Preflight) EndsRecipe(error) bool { return true }

// Run checks the cluster's files, and all nodes at once.
func (s Preflight) Run(ctx context.Context, run *Run) error {
	if !s.InRecipe { // there it is the configs step that makes them
		run.workspace.Pretend()
		run.workspace.Compare()
	}

	checker := &checker{begin(run, s)}
	ofFiles := checker.fileFindings(ctx, checker.workspace, checker.checkSettings())
	problems := checker.judge(ofFiles)
	run.filesChecked = true

	nodes := run.Nodes()
	checked := fanout.Collect(ctx, observe.Limit, nodes, checker.check, func(node *inventory.Node, err error) checkedNode {
		return checkedNode{node: node, seen: observe.Unobserved(node, err),
			findings: []diagnosis.Finding{checker.unexpected(node, err).Finding}}
	})

	if ctx.Err() != nil {
		return checker.interrupted(ctx, nodes[0])
	}

	answered := false
	for _, node := range checked {
		answered = answered || !node.seen.Silent()
		problems = append(problems, checker.judge(node.findings)...)
		checker.result(node, ofFiles)
	}

	if len(problems) == 0 && !answered && !s.InRecipe {
		problems = append(problems, diagnosis.NewProblem(diagnosis.NobodyAnswers,
			fmt.Sprintf("none of %d nodes answers", len(nodes)),
			"boot the machines, then mage preflight; where they have other addresses: mage preflight -discover").
			In(s.Name()))
	}

	return joined(problems)
}

// checker is one run of the preflight step.
type checker struct{ *work }

// checkedNode is a node with everything that was found about it.
type checkedNode struct {
	node     *inventory.Node
	seen     observe.Observation
	findings []diagnosis.Finding
	tries    int
	took     time.Duration
}

// judge shows findings, with those that SKIP_CHECKS names as warnings, and gives the failures as problems.
func (c *checker) judge(findings []diagnosis.Finding) []*diagnosis.Problem {
	var problems []*diagnosis.Problem
	for _, finding := range findings {
		c.Report.Finding(c.step.Name(), finding)

		if finding.Severity == diagnosis.Failure {
			problems = append(problems, finding.Problem(c.step.Name(), nil))
		}
	}

	return problems
}

// result records how a node came off, also in its files.
func (c *checker) result(checked checkedNode, ofFiles []diagnosis.Finding) {
	result := report.Result{
		Node: checked.node.Name, Address: checked.seen.Address, Step: c.step.Name(), Status: report.OK,
		Attempts: checked.tries, Duration: checked.took, Detail: stateText(checked.seen),
	}

	if c.unjudged(checked.seen) {
		result.Status, result.Detail = report.Skipped, "configured, not judged"
	}

	own := filtered(ofFiles, func(finding diagnosis.Finding) bool { return finding.Node == checked.node.Name })
	for _, finding := range append(own, checked.findings...) {
		switch {
		case finding.Severity == diagnosis.Failure && result.Err == nil:
			result.Status, result.Err = report.Failed, finding.Problem(c.step.Name(), nil)
		case finding.Severity == diagnosis.Warning && result.Status == report.OK:
			result.Status = report.Warned
		}
	}

	c.Report.Result(result)
}

// stateText is a node's state in a few words.
func stateText(seen observe.Observation) string {
	switch seen.State {
	case talos.Unreachable:
		return seen.Silence.String()
	case talos.Ours:
		return seen.Stage()
	default:
		return seen.State.String()
	}
}

// check looks at one node, again if it does not answer, and runs the checks that its state allows.
func (c *checker) check(ctx context.Context, node *inventory.Node) checkedNode {
	started := time.Now()

	c.Report.Progress(c.step.Name(), report.Progress{Node: node.Name, Text: "checking", Since: c.Clock.Now()})

	var read *machineFacts

	checked := checkedNode{node: node}
	tries := c.Settings.ReachabilityRetries

	if c.Settings.DryRun || c.Settings.NoWait {
		tries = 1
	}

	checked.tries, _ = retry.Do(ctx, c.Clock, observe.Evenly(c.Settings, tries), func(ctx context.Context, _ int) error {
		checked.seen = c.observer.Inspect(ctx, node, func(conn *talos.Conn) { read = readFacts(ctx, conn) })
		if checked.seen.Silent() {
			return fmt.Errorf("reach node: %w", checked.seen.Err)
		}

		return nil
	}, func(error) bool { return true })

	checked.findings = c.stateFindings(ctx, checked.seen, c.Configs[node.Name], read)
	checked.took = time.Since(started)
	return checked
}

// stateFindings judges a node by its state, and one in maintenance by its facts; they are read if they are nil.
func (c *checker) stateFindings(ctx context.Context, seen observe.Observation, config *machineconfig.Config,
	read *machineFacts) []diagnosis.Finding {
	finding := diagnosis.Finding{Node: seen.Node.Name, Address: seen.Address, Severity: diagnosis.OK}
	switch {
	case seen.State == talos.Maintenance:
		finding.ID, finding.Cause = diagnosis.NodeState, "in maintenance, ready for its config"
		return append([]diagnosis.Finding{finding}, c.nodeChecks(ctx, seen, config, read)...)
	case c.unjudged(seen):
		finding.ID, finding.Severity, finding.Cause = diagnosis.NodeState, diagnosis.NotRun, notJudged
		return []diagnosis.Finding{finding}
	case seen.NotOurs():
		return []diagnosis.Finding{c.notOurs(seen).Finding}
	case seen.Silent():
		return []diagnosis.Finding{c.silentFinding(seen, finding)}
	case seen.InstallFailure != "":
		return []diagnosis.Finding{c.configuredFinding(seen, finding), failingInstall(seen)}
	default:
		return []diagnosis.Finding{c.configuredFinding(seen, finding)}
	}
}

func (c *checker) configuredFinding(seen observe.Observation, finding diagnosis.Finding) diagnosis.Finding {
	finding.ID, finding.Cause = diagnosis.NodeState, "has its config already, stage "+seen.Stage()

	switch seen.Relation {
	case observe.ConfigSwapped:
		return c.swapped(seen).Finding
	case observe.ConfigDrifted:
		finding.ID, finding.Severity = diagnosis.ConfigDrifted, diagnosis.Warning
		finding.Cause = "its config differs from " + c.shown(seen.Node.ConfigFile) + ":\n" +
			machineconfig.Diff(seen.Config, c.Configs[seen.Node.Name])
		finding.Next = command("applySequential", seen.Node)

		if seen.InstallFailure == "" {
			finding.Next = endDrift(c.Run, seen, finding.Next+" (-update once the cluster has an etcd)")
		}
	case observe.ConfigUnread:
		finding.Severity, finding.Cause = diagnosis.Warning,
			"configured by this cluster, but its config could not be compared"
		if seen.ReadErr != nil {
			finding.Cause += ": " + talos.Explain(seen.ReadErr)
		}
	}

	return finding
}

func (c *checker) silentFinding(seen observe.Observation, finding diagnosis.Finding) diagnosis.Finding {
	finding.Severity = diagnosis.Warning
	finding.ID, finding.Cause = diagnosis.NodeSilent, "no answer: in its self-test, rebooting, off, or at another address"
	finding.Next = "nothing if it is booting (apply waits for it); otherwise " + c.elsewhere(seen.Node)

	if seen.Silence == talos.Refused {
		finding.ID, finding.Cause = diagnosis.NodeRefused, "port 50000 refused: installing or booting"
	}

	if id, remedy, known := diagnosed(seen.Err); known {
		finding.ID, finding.Cause, finding.Next = id, "not reachable from here", remedy
	}

	if seen.Err != nil {
		finding.Cause += " (" + talos.Explain(seen.Err) + ")"
	}

	if stale := c.observer.Facts(seen.Node).StaleLease; stale != "" {
		finding.Cause += "; " + stale
	}

	return finding
}

// nodeChecks evaluate everything that needs the machine's facts.
func (c *checker) nodeChecks(ctx context.Context, seen observe.Observation, config *machineconfig.Config,
	read *machineFacts) []diagnosis.Finding {
	read, err := c.wholeFacts(ctx, seen, read)
	if err == nil && read.Interrupted() {
		err = read.IdentityUnread()
	}

	// A node that fell silent in the middle is a silent one; apply reads its identity again.
	if err != nil && talos.Classify(talos.OpRead, err) == talos.Retry {
		seen.Err = err
		return []diagnosis.Finding{c.silentFinding(seen, diagnosis.Finding{Node: seen.Node.Name, Address: seen.Address})}
	} else if err != nil {
		return []diagnosis.Finding{c.unreadable(seen, err)}
	}

	facts := read.Facts
	facts.State = seen.State
	findings := table.Node(ctx, &check.Node{
		Node: seen.Node, Cluster: c.Cluster, Config: config, Facts: facts, Settings: c.checkSettings(),
	})
	if config != nil && !hasFailure(findings) {
		c.observer.Note(seen.Node, func(known *observe.Facts) { known.CheckedFingerprint = read.fingerprint })
	}

	return findings
}

// unreadable is a node in maintenance that can't be talked to, for a reason that does not pass.
func (c *checker) unreadable(seen observe.Observation, err error) diagnosis.Finding {
	id, known := talos.Diagnose(err)
	if !known {
		id = diagnosis.IdentityUnread
	}

	entry, _ := diagnosis.Lookup(id)

	return diagnosis.Finding{
		ID: id, Severity: diagnosis.Failure, Node: seen.Node.Name, Address: seen.Address, Cause: talos.Explain(err),
		Next: entry.Remedy,
	}
}

// factTries is how many connections a machine's facts are read on before what is missing counts as unread.
const factTries = 3

// machineFacts are a machine's facts, and the certificate that it had when they were read.
type machineFacts struct {
	check.Facts

	fingerprint string
}

func readFacts(ctx context.Context, conn *talos.Conn) *machineFacts {
	return &machineFacts{check.ReadFacts(ctx, conn), conn.Fingerprint()}
}

// wholeFacts are a machine's facts, all read on one connection: after one that broke in the middle everything is read
// again on the next. The first reading may have been made already.
func (c *checker) wholeFacts(ctx context.Context, seen observe.Observation, read *machineFacts) (*machineFacts, error) {
	_, err := retry.Do(ctx, c.Clock, observe.Evenly(c.Settings, factTries), func(ctx context.Context, attempt int) error {
		if attempt > 1 || read == nil {
			conn, err := c.observer.Dialer().Maintenance(ctx, seen.Address)
			if err != nil {
				return err
			}
			defer conn.Close()

			read = readFacts(ctx, conn)
		}

		if read.Interrupted() && attempt < factTries {
			return errInterrupted
		}

		return nil
	}, func(err error) bool {
		return errors.Is(err, errInterrupted) || talos.Classify(talos.OpDial, err) == talos.Retry
	})

	return read, err
}

// errInterrupted is a connection that broke before all was read.
var errInterrupted = errors.New("the connection broke before all was read")

func hasFailure(findings []diagnosis.Finding) bool {
	return slices.ContainsFunc(findings, func(finding diagnosis.Finding) bool {
		return finding.Severity == diagnosis.Failure
	})
}
