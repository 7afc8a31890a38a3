package steps

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// EtcdStatus is what the control planes say of their etcd, a row each, header first; and two etcd clusters where there
// should be one. It has no error: who does not answer has a row that says so.
func EtcdStatus(ctx context.Context, run *Run) (rows [][]string, findings []diagnosis.Finding, err error) {
	rows = [][]string{{"NODE", "ADDRESS", "MEMBER", "ROLE", "SIZE", "IN USE", "STATE"}}

	survey := run.observer.SurveyEtcd(ctx)
	for _, node := range survey {
		row := []string{node.Node.Name, node.Address, "-", "-", "-", "-", node.Text()}
		if node.MemberID != 0 {
			row = []string{node.Node.Name, node.Address, memberName(node.MemberID), etcdRole(node),
				sizeText(node.Size), sizeText(node.InUse), node.Text()}
		}

		rows = append(rows, row)
	}

	findings = splitFindings(survey)
	for _, node := range outside(survey) {
		findings = append(findings, formerEtcd(node, command("reset", node.Node)))
	}

	return rows, findings, nil
}

// outside are silent control planes that an etcd which works does not list: what they hold is another one's, if
// anything.
func outside(survey observe.EtcdSurvey) observe.EtcdSurvey {
	return filtered(survey, func(node observe.EtcdObservation) bool {
		return node.Silent() && listed(survey) != nil && !survey.Lists(node.Node)
	})
}

func etcdRole(node observe.EtcdObservation) string {
	switch {
	case node.Leader == node.MemberID:
		return "leader"
	case node.Learner:
		return "learner"
	default:
		return "voter"
	}
}

// memberName is how etcd's own programs write the id of a member.
func memberName(id uint64) string { return fmt.Sprintf("%016x", id) }

// EtcdList is the list of members that etcd itself has, a row each, header first; of two lists the longer one, and that
// there are two clusters. The error is that nobody has any.
func EtcdList(ctx context.Context, run *Run) (rows [][]string, findings []diagnosis.Finding, err error) {
	survey := run.observer.SurveyEtcd(ctx)

	var longest []talos.EtcdMember
	for _, node := range survey {
		if len(node.Members) > len(longest) {
			longest = node.Members
		}
	}

	if longest == nil {
		return nil, nil, &Failure{Step: "etcd:members", Code: diagnosis.ExitBootstrap,
			Err: diagnosis.NewProblem(diagnosis.EtcdNotHealthy, "no member gives a list: "+survey.Describe(),
				command("status", nil)).In("etcd:members")}
	}

	rows = [][]string{{"MEMBER", "HOSTNAME", "NODE", "VOTER", "PEER URLS"}}
	for _, member := range longest {
		rows = append(rows, []string{memberName(member.ID), dash(member.Hostname), dash(run.nodeOf(survey, member)),
			yesNo(!member.Learner), strings.Join(member.PeerURLs, ", ")})
	}

	return rows, splitFindings(survey), nil
}

// nodeOf is the node of the inventory that a member runs on; nothing for one that no file declares.
func (r *Run) nodeOf(survey observe.EtcdSurvey, member talos.EtcdMember) string {
	for _, node := range survey {
		if node.MemberID == member.ID {
			return node.Node.Name
		}
	}

	at := slices.IndexFunc(r.Cluster.ControlPlanes(), func(node *inventory.Node) bool {
		return node.Hostname != "" && node.Hostname == member.Hostname
	})
	if at < 0 {
		return ""
	}

	return r.Cluster.ControlPlanes()[at].Name
}

// sizeText is a size for people, as talosctl writes it.
func sizeText(size int64) string { return humanize.Bytes(uint64(max(size, 0))) }
