package steps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/retry"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const preflightName = "preflight"

// Preflight finds, before anything is sent, what would make the bring-up fail: in the files, and on each node.
type Preflight struct {
	// InRecipe is set when other steps follow: there silence is never a failure, since apply waits for silent nodes.
	InRecipe bool
}

// Name is the step's name.
func (Preflight) Name() string { return preflightName }

// Exit is the code for a node or a cluster that can't proceed.
func (Preflight) Exit() diagnosis.ExitCode { return diagnosis.ExitPreflight }

// Nodes are those that the run works on.
func (Preflight) Nodes(run *Run) []*inventory.Node { return run.Nodes() }

// EndsRecipe stops a recipe: without this step the ones that follow make no sense.
func (Preflight) EndsRecipe(error) bool { return true }

// Run checks the cluster's files, and all nodes at once.
func (s Preflight) Run(ctx context.Context, run *Run) error {
	if !s.InRecipe { // there it is the configs step that makes them
		run.pretend(ctx, s.Name())
	}

	checker := &checker{work: work{run, s}, inRecipe: s.InRecipe}

	problems := checker.judge(run.fileFindings(ctx, run.preflightOptions()))
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
		checker.result(node)
	}

	if len(problems) == 0 && !answered && !s.InRecipe {
		problems = append(problems, &diagnosis.Problem{Step: s.Name(), Finding: diagnosis.Finding{
			ID:       diagnosis.NobodyAnswers,
			Severity: diagnosis.Failure,
			Cause:    fmt.Sprintf("none of %d nodes answers", len(nodes)),
			Next: "boot the machines, or say where they answer: NODE_ADDRESSES=" + nodes[0].Name +
				"=<address>; then mage preflight",
			Exit: diagnosis.ExitPreflight,
		}})
	}

	return joined(problems)
}

// fileFindings are what the files tell, also about each other; of nodes that -node= leaves out nothing is told.
func (r *Run) fileFindings(ctx context.Context, options check.Settings) []diagnosis.Finding {
	files := r.auditOptions(options)
	files.AsTheyAre, files.CallsFrom = true, check.CallsFrom

	result := table.Run(ctx, check.Read(files))
	findings := append(result.Findings, result.NotRunOfFiles()...)

	return slices.DeleteFunc(findings, func(finding diagnosis.Finding) bool {
		node := r.Cluster.Node(finding.Node)

		return node != nil && !r.selected(node)
	})
}

// checkFiles finds what settings and files alone decide, for a step that preflight did not go before: with bad input
// nothing is sent to anybody.
func (r *Run) checkFiles(ctx context.Context, step string) error {
	if r.filesChecked {
		return nil
	}

	r.filesChecked = true

	return r.refuseFiles(ctx, step, func(diagnosis.Finding) bool { return true })
}

// checkKinship finds only files of different clusters. Steps that send no config leave it at that: a recovery must not
// end at a file that it does not need.
func (r *Run) checkKinship(ctx context.Context, step string) error {
	if r.filesChecked {
		return nil
	}

	return r.refuseFiles(ctx, step, func(finding diagnosis.Finding) bool {
		return finding.ID == diagnosis.TalosconfigForeign || finding.ID == diagnosis.ConfigCA
	})
}

// refuseFiles gives the failures that the files alone decide, of those that matter.
func (r *Run) refuseFiles(ctx context.Context, step string, matters func(diagnosis.Finding) bool) error {
	options := r.preflightOptions()
	options.LookupHost, options.VIPAnswers = nil, nil

	var problems []*diagnosis.Problem

	for _, finding := range r.fileFindings(ctx, options) {
		if finding.Severity == diagnosis.Failure && finding.ExitCode() == diagnosis.ExitBadInput && matters(finding) {
			r.Report.Finding(step, finding)
			problems = append(problems, &diagnosis.Problem{Finding: finding, Step: step})
		}
	}

	return joined(problems)
}

// preflightOptions are the settings that the checks take.
func (r *Run) preflightOptions() check.Settings {
	return check.Settings{
		AllowAmbiguousDisk: r.Settings.AllowAmbiguousDisk,
		SkipChecks:         r.skipChecks(),
		Now:                time.Now(), // certificates live in the world's time, not in the run's
		LookupHost: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		VIPAnswers: func(ctx context.Context, address netip.Addr) (answered, ours bool, err error) {
			//nolint:errcheck // what the last attempt saw is given
			retry.Do(ctx, r.Clock, r.evenly(r.Settings.ReachabilityRetries), func(ctx context.Context, _ int) error {
				answered, ours, err = r.whoServes(ctx, address)
				if err == nil && answered && !ours {
					return errNotOurs
				}

				return nil
			}, func(error) bool { return true })

			return answered, ours, err
		},
	}
}

// errNotOurs is of an API that may be another cluster's, or this one's while it goes down: that hangs up, as anything
// may.
var errNotOurs = errors.New("what answers is not this cluster's API")

// evenly tries so many times in all, with the same pause between.
func (r *Run) evenly(tries int) retry.Policy {
	return retry.Policy{Retries: tries - 1, Initial: r.Settings.ReachabilityDelay, Max: r.Settings.ReachabilityDelay,
		Multiplier: 1}
}

// whoServes reports whether anything answers on the Kubernetes API's port of an address, and whether this cluster's API
// does.
func (r *Run) whoServes(ctx context.Context, address netip.Addr) (answered, ours bool, err error) {
	asking, stop := context.WithTimeout(ctx, r.Settings.DialTimeout)
	defer stop()

	return kube.ServesCA(asking, net.JoinHostPort(address.String(), observe.KubernetesPort), r.kubernetesCA())
}

func (r *Run) skipChecks() []diagnosis.ID {
	ids := make([]diagnosis.ID, 0, len(r.Settings.SkipChecks))
	for _, id := range r.Settings.SkipChecks {
		ids = append(ids, diagnosis.ID(id))
	}

	return ids
}

// kubernetesCA is the CA that the machine configs declare for the Kubernetes API.
func (r *Run) kubernetesCA() []byte {
	for _, node := range r.Cluster.ControlPlanes() {
		if config := r.Configs[node.Name]; config != nil && !throwaway.Made(config.Bytes) {
			return config.KubernetesCA()
		}
	}

	return nil
}

// checker is one run of the preflight step.
type checker struct {
	work
	inRecipe bool
}

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
		c.Report.Finding(preflightName, finding)

		if finding.Severity == diagnosis.Failure {
			problems = append(problems, &diagnosis.Problem{Finding: finding, Step: preflightName})
		}
	}

	return problems
}

func (c *checker) result(checked checkedNode) {
	result := report.Result{
		Node: checked.node.Name, Address: checked.seen.Address, Step: preflightName, Status: report.OK,
		Attempts: checked.tries, Duration: checked.took, Detail: stateText(checked.seen),
	}

	if c.unjudged(checked.seen) {
		result.Status, result.Detail = report.Skipped, "configured, not judged"
	}

	for _, finding := range checked.findings {
		switch {
		case finding.Severity == diagnosis.Failure && result.Err == nil:
			result.Status, result.Err = report.Failed, &diagnosis.Problem{Finding: finding, Step: preflightName}
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
	started := c.Clock.Now()

	c.Report.Progress(preflightName, report.Progress{Node: node.Name, Text: "checking", Since: started})

	checked := checkedNode{node: node}
	tries := c.Settings.ReachabilityRetries

	if c.Settings.DryRun || c.Settings.NoWait {
		tries = 1
	}

	checked.tries, _ = retry.Do(ctx, c.Clock, c.evenly(tries), func(ctx context.Context, _ int) error {
		checked.seen = c.observer.Observe(ctx, node)

		if checked.seen.Silent() {
			return fmt.Errorf("reach node: %w", checked.seen.Err)
		}

		return nil
	}, func(error) bool { return true })

	checked.findings = c.stateFindings(ctx, checked.seen, c.Configs[node.Name])
	checked.took = c.Clock.Now().Sub(started)

	return checked
}

func (c *checker) stateFindings(ctx context.Context, seen observe.Observation,
	config *machineconfig.Config) []diagnosis.Finding {
	finding := diagnosis.Finding{Node: seen.Node.Name, Address: seen.Address, Severity: diagnosis.OK}

	switch {
	case seen.State == talos.Maintenance:
		finding.ID, finding.Cause = diagnosis.NodeState, "in maintenance, ready for its config"

		return append([]diagnosis.Finding{finding}, c.nodeChecks(ctx, seen, config)...)
	case c.unjudged(seen):
		finding.ID, finding.Severity, finding.Cause = diagnosis.NodeState, diagnosis.NotRun, notJudged

		return []diagnosis.Finding{finding}
	case seen.NotOurs():
		return []diagnosis.Finding{c.notOurs(seen).Finding}
	case seen.Silent():
		return []diagnosis.Finding{c.silentFinding(seen, finding)}
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
		finding.Cause = "its config differs from " + seen.Node.ConfigFile + ":\n" +
			machineconfig.Diff(seen.Config, c.Configs[seen.Node.Name])
		finding.Next = command("applySequential", seen.Node) + " (-update once the cluster has an etcd)"
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
	finding.Next = fmt.Sprintf("nothing, if it is booting: apply waits for it; else NODE_ADDRESSES=%s=<address>",
		seen.Node.Name)

	if seen.Silence == talos.Refused {
		finding.ID, finding.Cause = diagnosis.NodeRefused, "port 50000 refused: installing or booting"
	}

	if id, remedy, known := diagnosed(seen.Err); known {
		finding.ID, finding.Cause, finding.Next = id, "not reachable from here", remedy
	}

	if seen.Err != nil {
		finding.Cause += " (" + talos.Explain(seen.Err) + ")"
	}

	return finding
}

// nodeChecks read the machine's facts and evaluate everything that needs them.
func (c *checker) nodeChecks(ctx context.Context, seen observe.Observation,
	config *machineconfig.Config) []diagnosis.Finding {
	facts, fingerprint, err := c.readFacts(ctx, seen)
	if err == nil && facts.Interrupted() {
		err = facts.IdentityUnread()
	}

	// A node that fell silent in the middle is a silent one; apply reads its identity again.
	if err != nil && talos.Classify(talos.OpRead, err) == talos.Retry {
		seen.Err = err

		return []diagnosis.Finding{c.silentFinding(seen, diagnosis.Finding{Node: seen.Node.Name, Address: seen.Address})}
	} else if err != nil {
		return []diagnosis.Finding{c.unreadable(seen, err)}
	}

	facts.State = seen.State
	findings := table.Node(ctx, &check.Node{
		Node: seen.Node, Cluster: c.Cluster, Config: config, Facts: facts, Settings: c.preflightOptions(),
	})

	if config != nil && !hasFailure(findings) {
		c.observer.Note(seen.Node, func(known *observe.Facts) { known.CheckedFingerprint = fingerprint })
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

// readFacts reads a machine's facts, all on one connection: after one that broke in the middle everything is read again
// on the next.
func (c *checker) readFacts(ctx context.Context, seen observe.Observation) (facts check.Facts,
	fingerprint string, err error) {
	_, err = retry.Do(ctx, c.Clock, c.evenly(factTries), func(ctx context.Context, attempt int) error {
		conn, err := c.observer.Dialer().Maintenance(ctx, seen.Address)
		if err != nil {
			return err
		}
		defer conn.Close()

		facts, fingerprint = check.ReadFacts(ctx, conn), conn.Fingerprint()

		if facts.Interrupted() && attempt < factTries {
			return errInterrupted
		}

		return nil
	}, func(err error) bool {
		return errors.Is(err, errInterrupted) || talos.Classify(talos.OpDial, err) == talos.Retry
	})

	return facts, fingerprint, err
}

// errInterrupted is a connection that broke before all was read.
var errInterrupted = errors.New("the connection broke before all was read")

func hasFailure(findings []diagnosis.Finding) bool {
	for _, finding := range findings {
		if finding.Severity == diagnosis.Failure {
			return true
		}
	}

	return false
}
