package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

func TestIdentity(t *testing.T) {
	t.Parallel()

	const (
		mac1, mac2   = "02:00:00:00:00:11", "02:00:00:00:00:12"
		uuid1, uuid2 = "00000000-0000-4000-8000-0000000000aa", "00000000-0000-4000-8000-0000000000bb"
	)

	links := []talos.Link{
		{Name: "eth0", MAC: mac1, Physical: true},
		{Name: "bond0", MAC: mac2}, // made by software: its address proves nothing
	}
	system := talos.SystemInfo{UUID: uuid1}

	for name, test := range map[string]struct {
		macs, otherMACs []string
		uuid, otherUUID string
		cause           string // empty: the declared machine
	}{
		"nothing declared":                       {},
		"the declared MAC":                       {macs: []string{mac1}},
		"the declared MAC in capitals":           {macs: []string{"02:00:00:00:00:11"}},
		"one of two declared MACs":               {macs: []string{mac1, "02:00:00:00:00:99"}},
		"a pattern that fits":                    {macs: []string{"02:00:*"}},
		"the declared UUID in capitals":          {uuid: "00000000-0000-4000-8000-0000000000AA"},
		"machines of one entry share their MACs": {macs: []string{mac1, mac2}, otherMACs: []string{mac1, mac2}},
		"another MAC": {macs: []string{mac2},
			cause: "the machine has " + mac1 + ", declared is " + mac2},
		"another node's MAC": {macs: []string{mac2}, otherMACs: []string{mac1},
			cause: "this is cp2's machine"},
		"another node's MAC, none declared here": {otherMACs: []string{mac1}, cause: "this is cp2's machine"},
		"another UUID":                           {uuid: uuid2, cause: "UUID is " + uuid1},
		"another node's UUID":                    {uuid: uuid2, otherUUID: uuid1, cause: "this is cp2's machine"},
		"the declared MAC with another UUID":     {macs: []string{mac1}, uuid: uuid2, cause: "UUID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			node := &inventory.Node{Name: "cp1", MACs: test.macs, UUID: test.uuid}
			cluster := &inventory.Cluster{Nodes: []*inventory.Node{node,
				{Name: "cp2", MACs: test.otherMACs, UUID: test.otherUUID}}}

			finding := nodes.Identity(cluster, node, links, system)

			if test.cause == "" {
				require.Nil(t, finding)

				return
			}

			require.NotNil(t, finding)
			require.Equal(t, diagnosis.Failure, finding.Severity)
			require.Equal(t, diagnosis.WrongMachine, finding.ID)
			require.Contains(t, finding.Cause, test.cause)
			require.Contains(t, finding.Next, "NODE_ADDRESSES=cp1=")
		})
	}
}

func TestIdentityIsNeverSkippedAndNeverAssumed(t *testing.T) {
	t.Parallel()

	f := newFixture(t)
	f.options.SkipChecks = []diagnosis.ID{diagnosis.WrongMachine, diagnosis.IdentityUnread}
	f.cluster.Node("cp1").MACs = []string{"02:00:00:00:00:99"}

	require.Contains(t, failures(f.checkNode(t, "cp1", goodFacts())), diagnosis.WrongMachine)

	unread := goodFacts()
	unread.Links = nil
	unread.Unread = []check.Unread{{What: "links", Err: talos.ErrNotAllowed}}

	require.Contains(t, failures(f.checkNode(t, "cp1", unread)), diagnosis.IdentityUnread,
		"a machine that does not tell is not the declared one")
}
