package chaos

import (
	"fmt"
	"slices"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// smallEtcd is the largest number of members of which none can be spared: what takes one down needs consent.
const smallEtcd = 2

// quorumKept: no call of ours took down a member that etcd could not do without.
func quorumKept(c *Care) []string {
	var found []string

	for _, blow := range c.Blows {
		left := blow.Voters
		if blow.Method == removal || blow.Method == "Reset" { // whose node leaves etcd first
			left--
		}

		// A recovery begins without a quorum: it is to wipe nobody who has one.
		if c.Operation.Kind == recoverName {
			if blow.Voter {
				found = append(found, fmt.Sprintf("%s took %s down, a voter of an etcd that worked", blow.Method, blow.Node))
			}

			continue
		}

		if blow.ControlPlane && blow.Voters > smallEtcd && 2*(blow.Up-1) <= left {
			found = append(found, fmt.Sprintf("%s took %s down when %d of %d members were up", blow.Method, blow.Node, blow.Up,
				blow.Voters))
		}
	}

	return found
}

// oneAtATime: no node was taken down while another one of its role was down by our hand.
func oneAtATime(c *Care) []string {
	var found []string

	if c.Operation.Kind == recoverName {
		return nil // it wipes them all at once, by consent
	}

	for _, blow := range c.Blows {
		if len(blow.Down) > 0 {
			found = append(found, fmt.Sprintf("%s took %s down while %v was not back", blow.Method, blow.Node, blow.Down))
		}
	}

	return found
}

// noSilentCordon: a cordon of ours that stays is named, and is gone in the end; one of others stays.
func noSilentCordon(c *Care) []string {
	var found []string

	for _, node := range c.FirstCordons {
		if !c.First.named(node) {
			found = append(found, node+" stayed cordoned, and nobody was told")
		}
	}

	for _, node := range c.AgainCordons {
		found = append(found, node+" stayed cordoned after the healing")
	}

	if c.Uncordoned {
		found = append(found, "somebody else's cordon of "+c.Operation.Cordoned+" was taken back")
	}

	return found
}

// noSnapshotLost: what is left on the disk is whole, and stays; a success has left one, and nothing is wiped unsaved.
func noSnapshotLost(c *Care) []string {
	var found []string

	for _, copied := range slices.Concat(c.FirstSnapshots, c.Snapshots) {
		if !copied.Whole {
			found = append(found, copied.Name+" is not whole")
		}
	}

	for _, copied := range c.FirstSnapshots {
		if !slices.Contains(c.Snapshots, copied) {
			found = append(found, copied.Name+" is gone, or is not what it was")
		}
	}

	for _, node := range c.Unsaved {
		found = append(found, node+" was told to wipe its etcd, and nothing of it was saved")
	}

	if c.Operation.Kind == snapshotName && c.First.Code == diagnosis.ExitOK && len(c.FirstSnapshots) == 0 {
		found = append(found, "a snapshot was reported, and there is none")
	}

	return found
}

// oneLivingEtcd: no etcd was made beside one that lived, and none at all but to restore one.
func oneLivingEtcd(c *Care) []string {
	var found []string

	for _, beside := range c.Beside {
		found = append(found, "an etcd was begun on "+beside+", which was a voter of an etcd that worked")
	}

	if c.Made > 0 && c.Operation.Kind != recoverName {
		found = append(found, fmt.Sprintf("%d etcd clusters were made", c.Made))
	}

	return found
}

// membersKept: no member of a node that lived was removed, and the one that was to go went.
func membersKept(c *Care) []string {
	var found []string

	for _, node := range c.Displaced {
		found = append(found, node+" lived, and its member of etcd was removed")
	}

	removed := c.Operation.Kind == removeName && c.Operation.Loss.Living == ""

	if removed && c.MemberLeft {
		found = append(found, "the member of "+c.Operation.Node+" is in etcd still")
	}

	if removed && c.NodeLeft && !c.First.tells(diagnosis.NodeObjectLeft) && !c.Again.tells(diagnosis.NodeObjectLeft) {
		found = append(found, c.Operation.Node+" is in Kubernetes still, and nobody was told")
	}

	return found
}

// tells reports whether a run names a problem.
func (r Run) tells(id diagnosis.ID) bool {
	return slices.ContainsFunc(r.Problems(), func(problem Problem) bool { return problem.ID == id })
}

// operationsAreTold: an operation that fails says what is wrong, with a diagnosis; Ctrl-C has a code of its own.
func operationsAreTold(c *Care) []string {
	run := c.First

	switch problems := run.Problems(); {
	case run.Interrupted && run.Code != diagnosis.ExitInterrupt && run.Code != diagnosis.ExitOK:
		return []string{fmt.Sprintf("%s was interrupted, and the code is %d", c.Operation.Kind, run.Code)}
	case run.Interrupted || run.Code == diagnosis.ExitOK:
		return nil
	case len(problems) == 0:
		return []string{fmt.Sprintf("%s failed with code %d and without a word", c.Operation.Kind, run.Code)}
	default:
		var found []string

		for _, problem := range problems {
			if problem.ID == "" {
				found = append(found, "no diagnosis: "+problem.Line)
			}
		}

		return found
	}
}

// operationsConverge: once all is healed the same command succeeds, and leaves every node healthy.
func operationsConverge(c *Care) []string {
	var found []string

	if !c.converged() {
		found = append(found, fmt.Sprintf("after the healing it ended with code %d: %s", c.Again.Code, c.Again.Message))
	}

	if c.Rejoin != nil && c.Rejoin.Code != diagnosis.ExitOK {
		found = append(found, fmt.Sprintf("the recipe after it ended with code %d: %s", c.Rejoin.Code, c.Rejoin.Message))
	}

	for node, reason := range c.Unhealthy {
		found = append(found, fmt.Sprintf("at the end %s is not healthy: %s", node, reason))
	}

	slices.Sort(found)

	return found
}

// converged reports whether the call after the healing ended as it has to: well, or, where there is nothing left to
// restore, or nothing that may be removed, with that.
func (c *Care) converged() bool {
	switch {
	case c.Operation.Kind == removeName && c.Operation.Loss.Living != "":
		return c.Again.tells(diagnosis.MemberAnswers)
	case c.Operation.Kind == recoverName && c.Again.tells(diagnosis.RecoverNotNeeded):
		return true // whether all nodes are healthy in the end is judged besides
	default:
		return c.Again.Code == diagnosis.ExitOK
	}
}
