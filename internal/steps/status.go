package steps

import (
	"context"
	"fmt"
	"slices"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/report"
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

// Status is what all nodes say at once, and the next command.
type Status struct {
	Nodes []NodeStatus
	Next  string
}

// ReadStatus probes all nodes once and changes nothing. It works at every stage of a bring-up.
func ReadStatus(ctx context.Context, run *Run) Status {
	seen := fanout.Collect(ctx, probeLimit, run.Nodes(), func(ctx context.Context, node *inventory.Node) statusSight {
		if node.Role == inventory.ControlPlane {
			etcd := run.askEtcd(ctx, node)

			return statusSight{sight: etcd.sight, etcd: &etcd, version: run.version(ctx, etcd.sight)}
		}

		worker := run.look(ctx, node)

		return statusSight{sight: worker, version: run.version(ctx, worker)}
	}, func(node *inventory.Node, err error) statusSight { return statusSight{sight: unseen(node, err)} })

	status := Status{Next: run.nextCommand(ctx, seen)}

	for _, node := range seen {
		status.Nodes = append(status.Nodes, node.line())
	}

	return status
}

type statusSight struct {
	sight
	etcd    *etcdSight
	version string
}

// version reads the running Talos of a node that answers; a refusal leaves it empty.
func (r *Run) version(ctx context.Context, seen sight) string {
	var (
		conn *talos.Conn
		err  error
	)

	switch seen.State {
	case talos.Maintenance:
		conn, err = r.dialer().Maintenance(ctx, seen.Address)
	case talos.Ours:
		conn, err = r.dialer().Secure(ctx, seen.Address)
	default:
		return ""
	}

	if err != nil {
		return ""
	}
	defer conn.Close()

	version, err := conn.Version(ctx)
	if err != nil {
		return ""
	}

	return version
}

func (s statusSight) line() NodeStatus {
	line := NodeStatus{
		Node:    s.node.Name,
		Role:    s.node.Role.String(),
		Address: s.Address,
		State:   s.State.String(),
		Stage:   s.stage(),
		Version: s.version,
	}

	switch {
	case s.silent():
		line.State = s.Silence.String()
	case s.wrong != nil:
		line.State += " (another machine)"
	}

	if s.status != nil && s.State == talos.Ours && !s.status.Ready && len(s.status.Unmet) > 0 {
		line.Stage += ", " + shortened(s.status.Unmet[0].Reason)
	}

	switch s.config {
	case configSame:
		line.Config = "same"
	case configDrifted:
		line.Config = "drifted"
	case configSwapped:
		line.Config = "that of " + s.owner
	case configUnsent:
		line.Config = "unknown"
	}

	if s.etcd != nil && s.State == talos.Ours {
		line.Etcd = s.etcd.summary()
	}

	return line
}

// reasonWidth keeps the table narrow: a reason can list all static pods of a node.
const reasonWidth = 40

func shortened(reason string) string {
	if runes := []rune(reason); len(runes) > reasonWidth {
		return string(runes[:reasonWidth-1]) + "…"
	}

	return reason
}

// summary is the etcd column.
func (e etcdSight) summary() string {
	switch {
	case e.healthy():
		return "healthy, " + counted(len(e.members), "member")
	case e.running():
		return "running, not healthy"
	case e.stopped():
		return "stopped until reboot"
	case e.empty():
		return "no data"
	case e.data:
		return "data, " + orUnknown(e.etcd.State)
	default:
		return orUnknown(e.etcd.State)
	}
}

// nextCommand is the one line that says how to go on.
func (r *Run) nextCommand(ctx context.Context, nodes []statusSight) string {
	var survey etcdSurvey

	for _, node := range nodes {
		if node.etcd != nil {
			survey = append(survey, *node.etcd)
		}
	}

	silent := filter(nodes, func(node statusSight) bool { return node.silent() })
	maintenance := filter(nodes, func(node statusSight) bool { return node.State == talos.Maintenance })
	strangers := filter(nodes, func(node statusSight) bool {
		return node.stranger() || node.config == configSwapped
	})
	drifted := filter(nodes, func(node statusSight) bool { return node.config == configDrifted })

	switch {
	case len(strangers) > 0:
		return fmt.Sprintf("mage preflight -node=%s (%s)", strangers[0].node.Name, stateText(strangers[0].sight))
	case len(silent) == len(nodes):
		return "boot the machines, or say where they answer with NODE_ADDRESSES; then mage status"
	case len(maintenance) > 0:
		return "mage talos"
	case len(survey) > 0 && !survey.present() && !allUp(survey):
		return "mage verify"
	case len(survey) > 0 && !survey.present():
		return "mage bootstrap"
	case len(survey.unhealthy()) > 0:
		return "mage bootstrap (it waits for etcd and says what is missing)"
	case len(silent) > 0:
		return "mage verify -node=" + silent[0].node.Name
	case !r.apiAnswers(ctx):
		return "mage bootstrap (etcd is healthy, the Kubernetes API does not answer yet)"
	case len(drifted) > 0:
		return fmt.Sprintf("mage applySequential -node=%s -update (%d of %d nodes differ from %s)", drifted[0].node.Name,
			len(drifted), len(nodes), r.Cluster.ConfigDir)
	case !fileExists(r.Settings.Kubeconfig):
		return "mage kubeconfig"
	default:
		return "nothing: all nodes are up with their configs"
	}
}

// allUp reports whether every control plane boots or runs with its install finished.
func allUp(survey etcdSurvey) bool {
	return !slices.ContainsFunc(survey, func(node etcdSight) bool { return !node.up() })
}

func filter(nodes []statusSight, matches func(statusSight) bool) []statusSight {
	var matching []statusSight

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

	survey := run.surveyEtcd(ctx)
	for _, node := range survey {
		if node.member == 0 {
			continue
		}

		rows = append(rows, []string{fmt.Sprintf("%016x", node.member), node.node.Name, yesNo(node.isVoter()),
			yesNo(node.healthy())})
	}

	return rows
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}

	return "no"
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
