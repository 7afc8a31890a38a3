package steps

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// healthName is the step's name.
const healthName = "health"

// Health looks at a cluster that is up: its nodes, the check that a control plane makes of all of it, and the
// certificates. It changes nothing.
type Health struct {
	// Live adds what the interoperability profile asks the nodes and Kubernetes.
	Live bool
	// Found is what it came to, once it was run.
	Found *Healthiness
}

// Healthiness is how a cluster is.
type Healthiness struct {
	Nodes        []NodeHealth
	Checks       []talos.HealthCheck // each as it was last
	AskedOf      string              // the control plane that made them
	Certificates []Certificate
	Areas        []check.AreaResult
	Findings     []diagnosis.Finding
	// Healthy is set if nothing failed; Next is how to go on.
	Healthy bool
	Next    string
}

// Name is the step's name.
func (*Health) Name() string { return healthName }

// Exit is the code for a cluster that is not healthy.
func (*Health) Exit() diagnosis.ExitCode { return diagnosis.ExitKubernetes }

// Nodes are those that the run works on.
func (*Health) Nodes(run *Run) []*inventory.Node { return run.Nodes() }

// Run looks at everything, also where some of it fails.
func (s *Health) Run(ctx context.Context, run *Run) error {
	h := &healthChecker{work: begin(run, s), found: &Healthiness{}}
	s.Found = h.found
	h.ofFiles()

	if h.expired {
		return h.conclude(ctx)
	}

	seen := fanout.Collect(ctx, observe.Limit, run.Nodes(), h.lookAt, func(node *inventory.Node, err error) nodeLook {
		return nodeLook{NodeHealth: NodeHealth{Node: node.Name}, node: node,
			findings: []diagnosis.Finding{h.unexpected(node, err).Finding}}
	})
	for _, look := range seen {
		h.take(look)
	}

	h.cluster(ctx, seen)

	if s.Live {
		h.live(ctx, seen)
	}

	return h.conclude(ctx)
}

// healthChecker is one run of the step.
type healthChecker struct {
	*work
	found    *Healthiness
	problems []*diagnosis.Problem
	// expired is set if nodes would refuse every call.
	expired bool
}

// say takes a finding in.
func (h *healthChecker) say(finding diagnosis.Finding) {
	h.found.Findings = append(h.found.Findings, finding)
	h.Report.Finding(h.step.Name(), finding)

	if finding.Severity == diagnosis.Failure {
		problem := finding.Problem(h.step.Name(), nil)
		problem.Exit = cmp.Or(problem.Exit, h.step.Exit())
		h.problems = append(h.problems, problem)
	}
}

// conclude says how the cluster is as a whole.
func (h *healthChecker) conclude(ctx context.Context) error {
	if ctx.Err() != nil {
		return interrupted(ctx, h.step.Name())
	}

	h.found.Healthy = len(h.problems) == 0
	h.found.Next = h.next()

	if h.found.Healthy {
		return h.done(h.overall(), h.summary())
	}

	h.record(report.Result{Status: report.Failed, Detail: h.summary(), Err: joined(h.problems)})

	return joined(h.problems)
}

func (h *healthChecker) overall() report.Status {
	if slices.ContainsFunc(h.found.Findings,
		func(finding diagnosis.Finding) bool { return finding.Severity == diagnosis.Warning }) {
		return report.Warned
	}

	return report.OK
}

// next is the first command that something asks for, failures before warnings.
func (h *healthChecker) next() string {
	for _, severity := range []diagnosis.Severity{diagnosis.Failure, diagnosis.Warning} {
		for _, finding := range h.found.Findings {
			if finding.Severity == severity && finding.Next != "" {
				return finding.Next
			}
		}
	}

	return "nothing: the cluster is healthy"
}

// summary is the cluster in a line.
func (h *healthChecker) summary() string {
	passed, leftOut := 0, 0

	for _, check := range h.found.Checks {
		switch {
		case check.Passed:
			passed++
		case check.LeftOut:
			leftOut++
		}
	}

	answered := len(filtered(h.found.Nodes, func(node NodeHealth) bool { return node.Answers }))
	line := fmt.Sprintf("%d of %s answer, %s passed", answered, text.Counted(len(h.found.Nodes), "node"),
		text.Counted(passed, "check"))

	if leftOut > 0 {
		line += fmt.Sprintf(", %d do not apply", leftOut)
	}

	if h.found.AskedOf != "" {
		line += " (made by " + h.found.AskedOf + ")"
	}

	return line
}

// NodeHealth is how a node is.
type NodeHealth struct {
	Node, Role, Address string
	// Answers is set for a node of this cluster that could be read.
	Answers bool
	// State is a word or two; Version and Schematic are those of the image that it runs.
	State, Version, Schematic string
	Extensions                []string
}

// nodeLook is a node with everything that was found about it.
type nodeLook struct {
	NodeHealth
	node        *inventory.Node
	seen        observe.Observation
	certificate *Certificate
	findings    []diagnosis.Finding
	took        time.Duration
}

// take records how a node came off.
func (h *healthChecker) take(look nodeLook) {
	h.found.Nodes = append(h.found.Nodes, look.NodeHealth)

	if look.certificate != nil {
		h.found.Certificates = append(h.found.Certificates, *look.certificate)
	}

	result := report.Result{Node: look.node.Name, Address: look.Address, Step: h.step.Name(), Status: report.OK,
		Duration: look.took, Detail: look.detail()}

	for _, finding := range look.findings {
		h.say(finding)

		switch {
		case finding.Severity == diagnosis.Failure && result.Err == nil:
			result.Status, result.Err = report.Failed, finding.Problem(h.step.Name(), nil)
		case finding.Severity == diagnosis.Warning && result.Status == report.OK:
			result.Status = report.Warned
		}
	}

	h.Report.Result(result)
}

func (l nodeLook) detail() string {
	detail := l.State
	if l.Version != "" {
		detail += ", " + l.Version
	}

	if l.Schematic != "" {
		detail += ", schematic " + shortID(l.Schematic)
	}

	if len(l.Extensions) > 0 {
		detail += " with " + text.List(l.Extensions)
	}

	return detail
}

// shortID is enough of a schematic's id to tell it from others.
func shortID(id string) string { return id[:min(len(id), 8)] }
