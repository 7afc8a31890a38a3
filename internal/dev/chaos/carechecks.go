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
		if blow.ControlPlane && blow.Voters > smallEtcd && 2*(blow.Up-1) <= blow.Voters {
			found = append(found, fmt.Sprintf("%s took %s down when %d of %d members were up", blow.Method, blow.Node, blow.Up,
				blow.Voters))
		}
	}

	return found
}

// oneAtATime: no node was taken down while another one of its role was down by our hand.
func oneAtATime(c *Care) []string {
	var found []string

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

// noSnapshotLost: what is left on the disk is whole, and stays; a success has left one.
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

	if c.Operation.Kind == "etcd:snapshot" && c.First.Code == diagnosis.ExitOK && len(c.FirstSnapshots) == 0 {
		found = append(found, "a snapshot was reported, and there is none")
	}

	return found
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

	for _, run := range []*Run{c.Again, c.Rejoin} {
		if run != nil && run.Code != diagnosis.ExitOK {
			found = append(found, fmt.Sprintf("after the healing it ended with code %d: %s", run.Code, run.Message))
		}
	}

	for node, reason := range c.Unhealthy {
		found = append(found, fmt.Sprintf("at the end %s is not healthy: %s", node, reason))
	}

	slices.Sort(found)

	return found
}
