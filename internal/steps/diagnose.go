package steps

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/evidence"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// diagnoseName is the step's name.
const diagnoseName = "diagnose"

// Diagnose finds out why nodes are stuck. It looks once, waits for nobody and changes nothing.
type Diagnose struct {
	// Found is set once it was run.
	Found *Diagnosis
}

// Diagnosis is what a look at some nodes came to.
type Diagnosis struct {
	Nodes []NodeDiagnosis
	// Cluster are the causes that no single node has.
	Cluster []evidence.Cause
	// Next is how to go on.
	Next string
	// Bundle is the file that was written; empty if none was asked for.
	Bundle string
}

// NodeDiagnosis is what was seen of one node, and why it is stuck, best first.
type NodeDiagnosis struct {
	Seen    observe.Observation
	Version string
	Causes  []evidence.Cause

	etcd *observe.EtcdObservation // of a control plane
	told told
	// state is what preflight would make of it.
	state []diagnosis.Finding
}

// Name is the step's name.
func (*Diagnose) Name() string { return diagnoseName }

// Exit is the code where something is found wrong.
func (*Diagnose) Exit() diagnosis.ExitCode { return diagnosis.ExitVerify }

// Nodes are those that the run works on.
func (*Diagnose) Nodes(run *Run) []*inventory.Node { return run.Nodes() }

// gatherLimit bounds the look at one node, in times of the limit of a single call.
const gatherLimit = 4

// Run looks at all nodes at once.
func (s *Diagnose) Run(ctx context.Context, run *Run) error {
	run.workspace.Pretend()

	doctor := &doctor{&checker{begin(run, s)}}

	nodes := fanout.Collect(ctx, observe.Limit, run.Nodes(), doctor.look,
		func(node *inventory.Node, err error) NodeDiagnosis {
			return NodeDiagnosis{Seen: observe.Unobserved(node, err), told: told{unexpected: err}}
		})

	run.Report.Idle(diagnoseName, "")

	if ctx.Err() != nil {
		return interrupted(ctx, diagnoseName)
	}

	survey := doctor.survey(ctx, nodes)
	found := Diagnosis{Nodes: fanout.Collect(ctx, observe.Limit, nodes,
		func(ctx context.Context, node NodeDiagnosis) NodeDiagnosis {
			node.Causes = doctor.explain(ctx, node, survey)
			return node
		}, func(node NodeDiagnosis, err error) NodeDiagnosis {
			node.Causes = []evidence.Cause{{Finding: doctor.unexpected(node.Seen.Node, err).Finding}}
			return node
		})}

	found.Cluster = evidence.Supported(doctor.clusterFindings(ctx, nodes, survey), linesOfAll(nodes))
	found.Next = doctor.next(ctx, found)
	s.Found = &found

	if !run.Settings.Bundle {
		return doctor.outcome(found)
	}

	if err := doctor.bundle(&found); err != nil {
		return diagnosis.Join(err, doctor.outcome(found))
	}

	return doctor.outcome(found)
}

// doctor is one run of the step.
type doctor struct{ *checker }

// look observes a node and reads what it tells of itself.
func (d *doctor) look(ctx context.Context, node *inventory.Node) NodeDiagnosis {
	ctx, stop := context.WithTimeout(ctx, gatherLimit*d.Settings.DialTimeout)
	defer stop()

	d.Report.Progress(diagnoseName, report.Progress{Node: node.Name, Text: "asking", Since: d.Clock.Now()})
	defer d.Report.Idle(diagnoseName, node.Name)

	var seen NodeDiagnosis

	if node.Role == inventory.ControlPlane {
		etcd := d.observer.ObserveEtcd(ctx, node)
		seen.etcd, seen.Seen = &etcd, etcd.Observation
	} else {
		seen.Seen = d.observer.Observe(ctx, node)
	}

	seen.Seen = d.observer.ListenToInstall(ctx, seen.Seen)
	seen.told = d.gather(ctx, seen.Seen)
	seen.Version = seen.told.version
	seen.state = d.stateFindings(ctx, seen.Seen, d.Configs[node.Name], nil)

	return seen
}

// survey is what all control planes say of their etcd, also those that the run leaves out.
func (d *doctor) survey(ctx context.Context, nodes []NodeDiagnosis) observe.EtcdSurvey {
	if len(nodes) < len(d.Cluster.Nodes) {
		return d.observer.SurveyEtcd(ctx)
	}

	var survey observe.EtcdSurvey
	for _, node := range nodes {
		if node.etcd != nil {
			survey = append(survey, *node.etcd)
		}
	}

	return survey
}

// well reports whether a node is up with its config and waits for nothing.
func well(seen observe.Observation) bool {
	return seen.State == talos.Ours && !seen.NotOurs() && seen.Stage() == talos.StageRunning && seen.Complete() &&
		seen.Installed()
}

// explain gives the causes of one node, best first.
func (d *doctor) explain(ctx context.Context, node NodeDiagnosis, survey observe.EtcdSurvey) []evidence.Cause {
	if node.told.unexpected != nil {
		return []evidence.Cause{{Finding: d.unexpected(node.Seen.Node, node.told.unexpected).Finding}}
	}

	seen := node.Seen
	subject := evidence.Subject{Name: seen.Node.Name, Address: seen.Address, Well: well(seen)}
	judged := d.nodeFindings(ctx, node, survey)
	lines := node.lines()
	causes := evidence.Explain(subject, judged, lines)

	if seen.State != talos.Ours || subject.Well || slices.ContainsFunc(causes, isFailure) || survey.AwaitsBootstrap() ||
		node.etcd != nil && node.etcd.CatchingUp() {
		return causes
	}

	// Nothing says why: then it is at least known how far it is.
	stuck := d.problem(seen, diagnosis.StageStuck, stageText(seen), talosctl(seen.Node, logToRead(seen))).Finding

	return evidence.Explain(subject, append(judged, stuck), lines)
}

// logToRead is where a node says why it goes no further: the log of the first service that does not, else the kernel's.
func logToRead(seen observe.Observation) string {
	for _, service := range seen.Services {
		if service.State == "Failed" || service.State == "Running" && !service.Running() {
			return "logs " + service.ID
		}
	}

	return "dmesg"
}

func isFailure(cause evidence.Cause) bool { return cause.Severity == diagnosis.Failure }

// nodeFindings are what the steps of a bring-up make of a node.
func (d *doctor) nodeFindings(ctx context.Context, node NodeDiagnosis,
	survey observe.EtcdSurvey) []diagnosis.Finding {
	seen := node.Seen
	findings := slices.Clone(node.state)

	switch {
	case seen.Silent():
		return []diagnosis.Finding{d.silent(ctx, seen, findings[0], survey)}
	case seen.NotOurs():
		return findings
	case seen.State == talos.Maintenance && fellSilent(findings):
		return []diagnosis.Finding{d.hanging(seen)}
	case seen.State == talos.Maintenance:
		return append(append(findings, node.told.timeFindings(seen)...), d.leftBehind(seen, survey)...)
	}

	// What keeps it from being read is the cause, and not that it could not be compared.
	if _, _, known := diagnosed(seen.ReadErr); known {
		return []diagnosis.Finding{d.readFailure(seen).Finding}
	}

	if seen.Unsynced() {
		findings = append(findings, timeNotSynced(seen))
	}

	findings = append(findings, node.told.clockFindings(seen, d.Settings.ClockScale > 1)...)

	if node.etcd != nil {
		findings = append(findings, etcdFindings(*node.etcd, survey)...)
	}

	return findings
}

// silent is a node that does not answer: where else it may be, and what its own config may have done to it.
func (d *doctor) silent(ctx context.Context, seen observe.Observation, finding diagnosis.Finding,
	survey observe.EtcdSurvey) diagnosis.Finding {
	if seen.Silence == talos.Refused && seen.Node.Role == inventory.Worker && survey.AwaitsBootstrap() {
		finding.ID, finding.Next = diagnosis.WorkerJoining, "mage bootstrap"
		finding.Cause = "port 50000 refused: it opens once the endpoint can be reached, which behind a VIP is after bootstrap"

		return finding
	}

	finding.Severity = diagnosis.Failure
	if _, _, known := diagnosed(seen.Err); !known {
		finding.Next = "wait if it is booting, else " + d.elsewhere(seen.Node)
	}

	if seen.Silence == talos.NoAnswer {
		finding.Cause += d.lossesByConfig(seen.Node)
	}

	verifier := &verifier{work: d.work, workersUp: survey.Running()}

	return verifier.withCause(ctx, seen.Node, finding.Problem(diagnoseName, seen.Err)).Finding
}

// fellSilent reports whether a node that had answered did not let itself be read.
func fellSilent(findings []diagnosis.Finding) bool {
	return slices.ContainsFunc(findings, func(finding diagnosis.Finding) bool {
		return finding.ID == diagnosis.NodeSilent || finding.ID == diagnosis.NodeRefused
	})
}

// hanging is a node that takes connections, and then says nothing on them.
func (d *doctor) hanging(seen observe.Observation) diagnosis.Finding {
	return d.problem(seen, diagnosis.NodeSilent,
		"it accepts connections, and then no answer to any call comes: it hangs, or large packets get lost on the way",
		"compare the MTUs on the way to it, and look at the machine's console").Finding
}

// leftBehind tells of a node in maintenance while others have their configs.
func (d *doctor) leftBehind(seen observe.Observation, survey observe.EtcdSurvey) []diagnosis.Finding {
	if !survey.Configured() {
		return nil
	}

	return []diagnosis.Finding{d.problem(seen, diagnosis.StillMaintenance,
		"it is in maintenance, while other nodes have their configs: it was sent none, or its install failed and left no "+
			"trace",
		command("applySequential", seen.Node)).Finding}
}

// timeNotSynced is the finding of a node that says so itself.
func timeNotSynced(seen observe.Observation) diagnosis.Finding {
	entry, _ := diagnosis.Lookup(diagnosis.TimeNotSynced)

	return diagnosis.Finding{ID: diagnosis.TimeNotSynced, Severity: diagnosis.Failure, Node: seen.Node.Name,
		Address: seen.Address, Cause: "its clock is not synced, and Talos starts etcd only once it is", Next: entry.Remedy}
}

// timeFindings warn of a time server that a node in maintenance does not reach: later it would keep etcd from starting.
func (t told) timeFindings(seen observe.Observation) []diagnosis.Finding {
	if !strings.Contains(t.unread["time"], "NTP server") {
		return nil
	}

	warning := timeNotSynced(seen)
	warning.Severity, warning.Cause = diagnosis.Warning,
		"its time server does not answer, and Talos starts etcd only once its clock is synced"

	return []diagnosis.Finding{warning}
}

// etcdFindings are what is wrong with the etcd of one control plane.
func etcdFindings(node observe.EtcdObservation, survey observe.EtcdSurvey) []diagnosis.Finding {
	finding := diagnosis.Finding{Severity: diagnosis.Failure, Node: node.Node.Name, Address: node.Address,
		Cause: node.Text(), Next: talosctl(node.Node, "logs etcd")}

	switch {
	case node.Healthy(), !survey.Present():
		return nil
	case node.Stopped():
		finding.ID, finding.Next = diagnosis.EtcdStopped, talosctl(node.Node, "reboot")+", then mage bootstrap"
	case node.Empty():
		finding.ID = diagnosis.EtcdIncomplete
		finding.Cause = "its etcd waits to join the others'; what the console says of bootstrap is not meant for it"
	case node.CatchingUp():
		finding.ID, finding.Severity = diagnosis.EtcdNotHealthy, diagnosis.Warning
		finding.Next = "wait; mage bootstrap says when it is healthy"
	default:
		finding.ID = diagnosis.EtcdNotHealthy
	}

	return []diagnosis.Finding{finding}
}

// clusterFindings are what no single node has.
func (d *doctor) clusterFindings(ctx context.Context, nodes []NodeDiagnosis,
	survey observe.EtcdSurvey) []diagnosis.Finding {
	switch {
	case survey.Split():
		return []diagnosis.Finding{splitFinding(survey)}
	case survey.AwaitsBootstrap():
		return []diagnosis.Finding{{ID: diagnosis.EtcdNotBootstrapped, Severity: diagnosis.Failure,
			Cause: "no control plane holds etcd data: they wait for Bootstrap (" + survey.Describe() + ")",
			Next:  "mage bootstrap"}}
	case survey.HealthyCount() == 0:
		return nil
	}

	ctx, stop := context.WithTimeout(ctx, gatherLimit*d.Settings.DialTimeout)
	defer stop()

	access := &observe.Kubernetes{Observer: d.observer}

	seen := access.Registered(ctx, configured(nodes))
	if seen.Complete(d.Cluster.CNI) {
		return nil
	}

	return []diagnosis.Finding{d.registrationProblem(ctx, access, seen, 0).Finding}
}

// configured are the nodes that can be in Kubernetes.
func configured(nodes []NodeDiagnosis) []*inventory.Node {
	var up []*inventory.Node
	for _, node := range nodes {
		if node.Seen.Up() {
			up = append(up, node.Seen.Node)
		}
	}

	return up
}

// outcome is the step's error: who is stuck. Why is shown above.
func (d *doctor) outcome(found Diagnosis) error {
	var stuck []string
	for _, node := range found.Nodes {
		if slices.ContainsFunc(node.Causes, isFailure) {
			stuck = append(stuck, node.Seen.Node.Name)
		}
	}

	first, wrong := found.first()
	if !wrong {
		return nil
	}

	who := "the cluster"
	if len(stuck) > 0 {
		who = text.List(stuck)
	}

	return d.clusterProblem(first.ID, fmt.Sprintf("something is wrong with %s, as listed", who), found.Next)
}

// first is the most likely cause of all.
func (f Diagnosis) first() (evidence.Cause, bool) {
	all := slices.Clone(f.Cluster)
	for _, node := range f.Nodes {
		all = append(all, node.Causes...)
	}

	return evidence.Best(all)
}

// next is how to go on: as the most likely cause says, else as status would.
func (d *doctor) next(ctx context.Context, found Diagnosis) string {
	if first, wrong := found.first(); wrong {
		return first.Next
	}

	seen := make([]nodeObservation, 0, len(found.Nodes))
	for _, node := range found.Nodes {
		seen = append(seen, nodeObservation{Observation: node.Seen, etcd: node.etcd})
	}

	return nextCommand(ctx, d.Run, seen, nil)
}

// clockFindings are what a comparison of clocks shows; that of this computer tells nothing in a rehearsal.
func (t told) clockFindings(seen observe.Observation, rehearsal bool) []diagnosis.Finding {
	if t.time == nil {
		return nil
	}

	entry, _ := diagnosis.Lookup(diagnosis.NodeClock)
	finding := diagnosis.Finding{ID: diagnosis.NodeClock, Severity: diagnosis.Failure, Node: seen.Node.Name,
		Address: seen.Address, Next: entry.Remedy}

	switch node, own := t.time.Node.Sub(t.time.Right), t.time.Asked.Sub(t.time.Right); {
	case isOff(node):
		finding.Cause = fmt.Sprintf("its clock is %s its time server %s", offText(node), t.time.Server)
	case isOff(own) && !rehearsal:
		finding.Cause = fmt.Sprintf("this computer's clock is %s the node's time server %s", offText(own), t.time.Server)
		finding.Next = "correct this computer's clock"
	default:
		return nil
	}

	return []diagnosis.Finding{finding}
}

// tolerance is how far two clocks may be apart: certificates are valid from a while before they were made.
const tolerance = time.Minute

func isOff(by time.Duration) bool { return by.Abs() > tolerance }

func offText(by time.Duration) string {
	if by > 0 {
		return by.Round(time.Second).String() + " ahead of"
	}

	return by.Abs().Round(time.Second).String() + " behind"
}

// linesOfAll are the lines of all nodes, each with its node's name.
func linesOfAll(nodes []NodeDiagnosis) []evidence.Line {
	var all []evidence.Line
	for _, node := range nodes {
		for _, line := range node.lines() {
			all = append(all, evidence.Line{Kind: line.Kind, Text: node.Seen.Node.Name + ": " + line.Text})
		}
	}

	return all
}

// describeService says of a service that does not run how it is, with what last happened to it.
func describeService(service talos.Service) []string {
	if service.Running() || service.State == "Finished" || service.State == "Skipped" {
		return nil
	}

	head := service.ID + " " + service.State
	if service.State == "Running" {
		return []string{head + ", not healthy" + text.Because(service.LastMessage)}
	}

	const shown = 3

	var lines []string
	for _, event := range service.Events[max(0, len(service.Events)-shown):] {
		lines = append(lines, strings.TrimSpace(service.ID+" "+event.State+": "+event.Message))
	}

	if len(lines) == 0 {
		lines = []string{head}
	}

	return lines
}
