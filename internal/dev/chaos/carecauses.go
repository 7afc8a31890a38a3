package chaos

import (
	"fmt"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// causes are what an operation may fail with while something is wrong, and its exit codes then.
type causes struct {
	// Here are right for the node that has the fault, Around for others and the cluster if that is a control plane.
	Here, Around []diagnosis.ID
	Codes        []diagnosis.ExitCode
}

// What operations need of a cluster, and may not get.
var (
	withoutSnapshot = []diagnosis.ID{diagnosis.SnapshotImpossible, diagnosis.SnapshotFailed}
	withoutMembers  = []diagnosis.ID{diagnosis.RemovalHeldBack, diagnosis.RemovalFailed, diagnosis.NodeObjectLeft}
)

// withoutKubernetes are those of an upgrade of Kubernetes.
var withoutKubernetes = []diagnosis.ID{diagnosis.K8sUpgradeFailed, diagnosis.K8sUpgradeHeldBack,
	diagnosis.K8sUpgradeNotSeen, diagnosis.NodesNotReady}

// ofUpgrade are those of both upgrades of Talos.
var ofUpgrade = causes{
	Here: slices.Concat(withoutSnapshot, []diagnosis.ID{diagnosis.UpgradeEtcdUnhealthy, diagnosis.UpgradeNodeAway,
		diagnosis.UpgradeUnread, diagnosis.UpgradeEtcdNotBack, diagnosis.UpgradeNotInKubernetes,
		diagnosis.UpgradeOtherSystem, diagnosis.UpgradePullFailed, diagnosis.UpgradeFailed, diagnosis.UpgradeRolledBack}),
	Around: slices.Concat(withoutSnapshot, []diagnosis.ID{diagnosis.UpgradeEtcdUnhealthy,
		diagnosis.UpgradeEtcdNotBack, diagnosis.UpgradeNotInKubernetes}),
	Codes: []diagnosis.ExitCode{diagnosis.ExitApply, diagnosis.ExitPreflight, diagnosis.ExitBootstrap,
		diagnosis.ExitKubernetes},
}

// causesOf are those of each operation, beside those of a fault's class.
var causesOf = map[string]causes{
	snapshotName: {
		Here: withoutSnapshot, Around: withoutSnapshot,
		Codes: []diagnosis.ExitCode{diagnosis.ExitBootstrap},
	},
	"etcd:defrag": {
		Here:   []diagnosis.ID{diagnosis.DefragHeldBack, diagnosis.DefragFailed},
		Around: []diagnosis.ID{diagnosis.DefragHeldBack, diagnosis.DefragFailed},
		Codes:  []diagnosis.ExitCode{diagnosis.ExitBootstrap},
	},
	resetName: {
		Here: []diagnosis.ID{diagnosis.ResetHeldBack, diagnosis.ResetFailed, diagnosis.ResetWithoutEffect,
			diagnosis.ResetNoReturn, diagnosis.NotReset},
		Around: []diagnosis.ID{diagnosis.ResetHeldBack, diagnosis.ResetWithoutEffect}, // etcd does not let the node leave
		Codes:  []diagnosis.ExitCode{diagnosis.ExitApply, diagnosis.ExitBootstrap},
	},
	upgradeName: ofUpgrade,
	nodeName:    ofUpgrade,
	upK8sName: {
		Here:   withoutKubernetes,
		Around: withoutKubernetes,
		Codes:  []diagnosis.ExitCode{diagnosis.ExitKubernetes},
	},
	appsName: {
		Here:   []diagnosis.ID{diagnosis.AppsApplyRefused, diagnosis.AppsReleaseFailed},
		Around: []diagnosis.ID{diagnosis.AppsApplyRefused, diagnosis.AppsReleaseFailed},
		Codes:  []diagnosis.ExitCode{diagnosis.ExitKubernetes},
	},
	rotateName: {Codes: []diagnosis.ExitCode{diagnosis.ExitBadInput}},
	removeName: {
		Here: withoutMembers, Around: withoutMembers,
		Codes: []diagnosis.ExitCode{diagnosis.ExitBootstrap, diagnosis.ExitKubernetes},
	},
	replaceName: {
		Here: slices.Concat(withoutMembers, withoutMember), Around: withoutMembers, // it waits for the new member
		Codes: []diagnosis.ExitCode{diagnosis.ExitPreflight, diagnosis.ExitBootstrap, diagnosis.ExitApply,
			diagnosis.ExitVerify, diagnosis.ExitKubernetes},
	},
	recoverName: {
		Here: []diagnosis.ID{diagnosis.QuorumPossible, diagnosis.MemberUnsaved, diagnosis.MemberUnwiped,
			diagnosis.RecoverFailed},
		Around: []diagnosis.ID{diagnosis.QuorumPossible, diagnosis.RecoverFailed},
		Codes:  []diagnosis.ExitCode{diagnosis.ExitBootstrap, diagnosis.ExitKubernetes},
	},
}

// operationsFailRightly: every line of a failed operation is explained by what happened meanwhile, or by what it was
// called for; and its exit code is one of its own.
func operationsFailRightly(h *History) []string {
	c := h.Care
	if c == nil || c.First.Interrupted || c.First.Code == diagnosis.ExitOK {
		return nil
	}

	var found []string

	if own := causesOf[c.Operation.Kind].Codes; !slices.Contains(own, c.First.Code) {
		found = append(found, fmt.Sprintf("%s ended with code %d", c.Operation.Kind, c.First.Code))
	}

	for _, problem := range c.First.Problems() {
		if !c.lossExplains(problem) && !c.rotationExplains(problem) && !c.programExplains(problem) &&
			!h.incidentExplains(problem) {
			found = append(found, "nothing that happened explains: "+problem.Line)
		}
	}

	return found
}

// lossExplains reports whether an operation fails for what it was called for.
func (c *Care) lossExplains(problem Problem) bool {
	loss := c.Operation.Loss

	switch {
	case loss != nil && problem.ID == diagnosis.QuorumPossible: // by a machine that still boots
		return slices.ContainsFunc(loss.Emptied, func(name string) bool { return strings.Contains(problem.Line, name) })
	case loss == nil || problem.Node != c.Operation.Node:
		return false
	case loss.Living != "":
		return problem.ID == diagnosis.MemberAnswers
	case loss.Returns && c.Operation.Kind == replaceName:
		return slices.Contains([]diagnosis.ID{diagnosis.FormerMachineAnswers, diagnosis.NodeSilent,
			diagnosis.MachineAmbiguous}, problem.ID) // the last by whoever looks for machines
	default:
		return false
	}
}

// incidentExplains reports whether what happened besides makes a problem of an operation right.
func (h *History) incidentExplains(problem Problem) bool {
	incident := h.Care.Operation.Incident
	if incident == nil || !h.Care.Happened {
		return false
	}

	own := causesOf[h.Care.Operation.Kind]
	if incident.Class.Name == harmless.Name || incident.Class.Name == held.Name {
		own = causes{}
	}

	if slices.Contains(incident.Class.Everywhere, problem.ID) || h.undrained(*incident, problem) {
		return true
	}

	named := problem.Node == incident.Node || problem.Node == "" && strings.Contains(problem.Line, incident.Node)
	if named && slices.Contains(slices.Concat(incident.Class.Here, own.Here), problem.ID) {
		return true
	}

	around := slices.Concat(incident.Class.Around, own.Around)
	if h.MeetInKubernetes {
		around = slices.Concat(around, incident.Class.Unmet)
	}

	return (!named || problem.Node == "") && h.isControlPlane(incident.Node) && slices.Contains(around, problem.ID)
}

// undrained reports whether a node, any node, could not be drained by an upgrade since a control plane was struck, and
// with it the Kubernetes API, or since a pod's other replica lost its place. By the older call a node drains itself,
// too, and reboots as it was if it cannot.
func (h *History) undrained(incident Incident, problem Problem) bool {
	operation := h.Care.Operation
	if operation.Kind != upgradeName && operation.Kind != nodeName {
		return false
	}

	switch problem.ID {
	case diagnosis.APINotReady, diagnosis.CordonLeft:
		return h.isControlPlane(incident.Node)
	case diagnosis.UpgradeRolledBack:
		return h.isControlPlane(incident.Node) && strings.HasPrefix(operation.Version, "v1.13.") // from Talos 1.12
	case diagnosis.DrainBlocked, diagnosis.DrainUnending:
		return incident.cutsPower
	default:
		return false
	}
}
