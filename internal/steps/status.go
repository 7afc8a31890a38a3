package steps

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// NodeStatus is one line of `mage status`.
type NodeStatus struct {
	Node    string
	Role    string
	Address string
	State   string
	Stage   string
	Version string
	Config  string
	Etcd    string
}

// Status is what all nodes say at once, what is wrong with the cluster as a whole, and the next command.
type Status struct {
	Nodes    []NodeStatus
	Findings []diagnosis.Finding
	Next     string
}

// ReadStatus probes all nodes once and changes nothing. It works at every stage of a bring-up.
func ReadStatus(ctx context.Context, run *Run) Status {
	seen := fanout.Collect(ctx, observe.Limit, run.Nodes(), func(ctx context.Context,
		node *inventory.Node) nodeObservation {
		if node.Role == inventory.ControlPlane {
			etcd := run.observer.ObserveEtcd(ctx, node)
			etcd.Observation = run.observer.ListenToInstall(ctx, etcd.Observation)

			return nodeObservation{Observation: etcd.Observation, etcd: &etcd,
				version: run.observer.Version(ctx, etcd.Observation)}
		}

		worker := run.observer.ListenToInstall(ctx, run.observer.Observe(ctx, node))
		return nodeObservation{Observation: worker, version: run.observer.Version(ctx, worker)}
	}, func(node *inventory.Node, err error) nodeObservation {
		return nodeObservation{Observation: observe.Unobserved(node, err)}
	})

	status := Status{Findings: clusterFindings(run, seen)}
	status.Next = nextCommand(ctx, run, seen, status.Findings)
	split := surveyOf(seen).Split()
	for _, node := range seen {
		line := node.line()
		if split && node.etcd != nil && node.etcd.Healthy() {
			line.Etcd += ", split"
		}

		status.Nodes = append(status.Nodes, line)
	}

	return status
}

// clusterFindings are what no node's line says: two etcd clusters, why an install fails, and machine configs that are
// out of date.
func clusterFindings(run *Run, nodes []nodeObservation) []diagnosis.Finding {
	findings := splitFindings(surveyOf(nodes))

	for _, node := range nodes {
		if node.InstallFailure != "" {
			findings = append(findings, failingInstall(node.Observation))
		}
	}

	// While nobody is configured the recipe renders them anew by itself.
	if slices.ContainsFunc(nodes, func(node nodeObservation) bool { return node.State == talos.Ours }) {
		if names, _ := run.workspace.Outdated(); len(names) > 0 {
			findings = append(findings, *outdated(run, names))
		}
	}

	return findings
}

// failingInstall is the finding of a node whose unattended install fails so far.
func failingInstall(seen observe.Observation) diagnosis.Finding {
	finding := diagnosis.Finding{
		ID: diagnosis.InstallFailed, Severity: diagnosis.Warning, Node: seen.Node.Name, Address: seen.Address,
		Cause: "its install fails, and the node goes on trying: " + seen.InstallFailure, Next: correctInstall(seen.Node),
	}
	if seen.Relation == observe.ConfigDrifted {
		finding.Next = command("applySequential", seen.Node) + ", as its config has been changed since"
	}

	return finding
}

// surveyOf is what the control planes among some nodes say of their etcd.
func surveyOf(nodes []nodeObservation) observe.EtcdSurvey {
	var survey observe.EtcdSurvey
	for _, node := range nodes {
		if node.etcd != nil {
			survey = append(survey, *node.etcd)
		}
	}

	return survey
}

type nodeObservation struct {
	observe.Observation
	etcd    *observe.EtcdObservation
	version string
}

func (s nodeObservation) line() NodeStatus {
	line := NodeStatus{
		Node:    s.Node.Name,
		Role:    s.Node.Role.String(),
		Address: s.Address,
		State:   s.State.String(),
		Stage:   s.Stage(),
		Version: s.version,
	}
	switch {
	case s.Silent():
		line.State = s.Silence.String()
	case s.Wrong != nil:
		line.State += " (another machine)"
	}

	switch {
	case s.Install != nil && s.Installing():
		line.Stage = shortened(installText(s.Observation))
	case s.Status != nil && s.State == talos.Ours && !s.Status.Ready && len(s.Status.Unmet) > 0:
		line.Stage += ", " + shortened(s.withoutName(s.Status.Unmet[0].Reason))
	}

	switch s.Relation {
	case observe.ConfigSame:
		line.Config = "same"
	case observe.ConfigDrifted:
		line.Config = "drifted"
	case observe.ConfigSwapped:
		line.Config = "that of " + s.Owner
	case observe.ConfigUnsent:
		line.Config = "unknown"
	}

	if s.etcd != nil && s.State == talos.Ours {
		line.Etcd = etcdText(*s.etcd)
	}

	return line
}

// withoutName is a reason in whose place it is said of which node it is.
func (s nodeObservation) withoutName(reason string) string {
	return strings.Replace(reason, fmt.Sprintf("node %q ", s.Node.Hostname), "node ", 1)
}

// reasonWidth keeps the table narrow: a reason can list all static pods of a node.
const reasonWidth = 40

func shortened(reason string) string {
	if runes := []rune(reason); len(runes) > reasonWidth {
		return string(runes[:reasonWidth-1]) + "…"
	}

	return reason
}

// etcdText is the etcd column.
func etcdText(e observe.EtcdObservation) string {
	switch {
	case e.Healthy():
		return "healthy, " + text.Counted(len(e.Members), "member")
	case e.Running():
		return "running, not healthy"
	case e.Stopped():
		return "stopped until reboot"
	case e.Empty():
		return "no data"
	case e.HasData:
		return "data, " + observe.OrUnknown(e.Etcd.State)
	default:
		return observe.OrUnknown(e.Etcd.State)
	}
}

// nextCommand is the one line that says how to go on.
func nextCommand(ctx context.Context, run *Run, nodes []nodeObservation, findings []diagnosis.Finding) string {
	survey := surveyOf(nodes)
	silent := filter(nodes, func(node nodeObservation) bool { return node.Silent() })
	maintenance := filter(nodes, func(node nodeObservation) bool { return node.State == talos.Maintenance })
	others := filter(nodes, func(node nodeObservation) bool {
		return node.NotOurs() || node.Relation == observe.ConfigSwapped
	})
	drifted := filter(nodes, func(node nodeObservation) bool { return node.Relation == observe.ConfigDrifted })
	away := filter(silent, func(node nodeObservation) bool { return node.Node.Role == inventory.ControlPlane })

	switch {
	case survey.Split():
		return nextOf(findings, diagnosis.EtcdSplit)
	case len(others) > 0:
		return fmt.Sprintf("mage preflight -node=%s (%s)", others[0].Node.Name, stateText(others[0].Observation))
	case len(silent) == len(nodes):
		return "boot the machines, then mage status; where they have other addresses: mage discover -save"
	case nextOf(findings, diagnosis.InstallFailed) != "":
		return nextOf(findings, diagnosis.InstallFailed)
	case len(maintenance) > 0:
		return "mage talos"
	case len(survey) > 0 && !survey.Present() && !allUp(survey):
		return "mage verify"
	case len(survey) > 0 && !survey.Present():
		return "mage bootstrap"
	case len(away) > 0:
		return untilBack(away, survey)
	case len(survey.Unhealthy()) > 0:
		return "mage bootstrap (it waits for etcd and says what is missing)"
	case len(silent) > 0:
		return "mage verify -node=" + silent[0].Node.Name
	case !run.observer.APIAnswers(ctx):
		return fmt.Sprintf("mage bootstrap (etcd is healthy, the Kubernetes API %s)", whereAPIAnswers(ctx, run))
	case nextOf(findings, diagnosis.RenderedDiffers) != "":
		return nextOf(findings, diagnosis.RenderedDiffers)
	case len(drifted) > 0:
		return endDrift(run, drifted[0].Observation, fmt.Sprintf("%s -update (%d of %d nodes differ from %s)",
			command("applySequential", drifted[0].Node), len(drifted), len(nodes),
			run.Cluster.Files.Shown(run.Cluster.ConfigDir)))
	case isMissing(run.Settings.Kubeconfig):
		return "mage kubeconfig"
	default:
		return "nothing: all nodes are up with their configs"
	}
}

// whereAPIAnswers says of an API that the endpoint does not lead to whether it is there.
func whereAPIAnswers(ctx context.Context, run *Run) string {
	access := &observe.Kubernetes{Observer: run.observer}
	if own, _ := access.ControlPlaneAPI(ctx); own != "" {
		return fmt.Sprintf("answers at %s, but not at the endpoint %s", own, run.Cluster.Endpoint.Host)
	}

	return "does not answer yet"
}

// untilBack is how to go on without control planes that do not answer: wait for them, or do without them for good.
func untilBack(away []nodeObservation, survey observe.EtcdSurvey) string {
	var names []string
	for _, node := range away {
		names = append(names, node.Node.Name)
	}

	without := "mage replaceNode " + names[0]
	if survey.HealthyCount() == 0 {
		without = "mage etcd:recover <file>"
	}

	return fmt.Sprintf("switch %s on, then mage bootstrap, which waits for etcd; for what is gone for good, %s",
		text.List(names), without)
}

// nextOf is what a finding of a kind advises; empty without one.
func nextOf(findings []diagnosis.Finding, id diagnosis.ID) string {
	for _, finding := range findings {
		if finding.ID == id {
			return finding.Next
		}
	}

	return ""
}

// allUp reports whether every control plane boots or runs with its install finished.
func allUp(survey observe.EtcdSurvey) bool {
	return !slices.ContainsFunc(survey, func(node observe.EtcdObservation) bool { return !node.Up() })
}

func filter(nodes []nodeObservation, matches func(nodeObservation) bool) []nodeObservation {
	var matching []nodeObservation
	for _, node := range nodes {
		if matches(node) {
			matching = append(matching, node)
		}
	}

	return matching
}

// Rows gives the table's cells, header first.
func (s Status) Rows() [][]string {
	rows := [][]string{{"NODE", "ROLE", "ADDRESS", "STATE", "STAGE", "VERSION", "CONFIG", "ETCD"}}
	for _, node := range s.Nodes {
		rows = append(rows, []string{node.Node, node.Role, node.Address, node.State, dash(node.Stage), dash(node.Version),
			dash(node.Config), dash(node.Etcd)})
	}

	return rows
}

func dash(text string) string {
	if text == "" {
		return "-"
	}

	return text
}

// EtcdMembers are the members that the control planes list, for the end of a bring-up.
func EtcdMembers(ctx context.Context, run *Run) [][]string {
	rows := [][]string{{"MEMBER", "HOSTNAME", "VOTER", "HEALTHY"}}

	survey := run.observer.SurveyEtcd(ctx)
	for _, node := range survey {
		if node.MemberID == 0 {
			continue
		}

		rows = append(rows, []string{memberName(node.MemberID), node.Node.Name, yesNo(node.IsVoter()),
			yesNo(node.Healthy())})
	}

	return rows
}

// WholeMembers are the names in such rows if all of them are voters and healthy; none otherwise.
func WholeMembers(rows [][]string) []string {
	var names []string
	for _, row := range rows[1:] {
		if row[2] != yesNo(true) || row[3] != yesNo(true) {
			return nil
		}

		names = append(names, row[1])
	}

	return names
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}

	return "no"
}

// Joining are the nodes that a run left on their way.
func Joining(results []report.Result) (joining []string) {
	last := make(map[string]report.Status)
	for _, result := range results {
		last[result.Node] = result.Status
	}

	for _, result := range results {
		if last[result.Node] == report.Joining {
			joining = text.AppendNew(joining, result.Node)
		}
	}

	return joining
}

// Drifted counts the nodes that differ from the inventory.
func Drifted(results []report.Result) (drifted int) {
	seen := make(map[string]bool)
	for _, result := range results {
		if result.Status == report.Drifted && !seen[result.Node] {
			seen[result.Node] = true
			drifted++
		}
	}

	return drifted
}
