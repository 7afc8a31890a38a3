package emulator_test

import (
	"context"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// partitions names system partitions that are to be wiped.
func partitions(labels ...string) []*machineapi.ResetPartitionSpec {
	specs := make([]*machineapi.ResetPartitionSpec, 0, len(labels))
	for _, label := range labels {
		specs = append(specs, &machineapi.ResetPartitionSpec{Label: label, Wipe: true})
	}

	return specs
}

// twoDisks gives a machine another disk with something on it, and one that can't be written.
func twoDisks(node *emulator.NodeOptions) {
	node.Installed = true
	node.Disks = []emulator.Disk{
		{Name: "vda", Size: 50_000_000_000, Transport: "virtio"},
		{Name: "vdb", Size: 10_000_000_000, Transport: "virtio",
			Volumes: []emulator.Volume{{Partition: "data", Filesystem: "xfs", Size: 1 << 30}}},
		{Name: "vdc", Size: 10_000_000_000, Transport: "virtio", Readonly: true},
	}
}

func TestClaim_8_10_AResetThatAsksForTheImpossibleIsRefusedWithoutACode(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{Edit: twoDisks})
	applyOwn(t, cluster, "cp1")
	waitStage(t, node, "booting")

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })

	for text, request := range map[string]*machineapi.ResetRequest{
		"reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter": {
			Mode: machineapi.ResetRequest_SYSTEM_DISK, UserDisksToWipe: []string{"/dev/vdb"},
		},
		"reset failed: invalid input, wipe mode USER_DISKS doesn't support SystemPartitionsToWipe parameter": {
			Mode: machineapi.ResetRequest_USER_DISKS, SystemPartitionsToWipe: partitions("STATE"),
		},
		"reset user disk failed: device /dev/vdz wasn't found":       {UserDisksToWipe: []string{"/dev/vdz"}},
		"reset user disk failed: device /dev/vdc is readonly":        {UserDisksToWipe: []string{"/dev/vdb", "/dev/vdc"}},
		"reset user disk failed: device /dev/vda is the system disk": {UserDisksToWipe: []string{"/dev/vda"}},
		`failed to get volume status with label "DATA": resource VolumeStatuses.block.talos.dev(runtime/DATA@undefined) doesn't exist`: {
			SystemPartitionsToWipe: partitions("STATE", "DATA"),
		},
	} {
		_, err := c.MachineClient.Reset(deadline(t), request)
		require.Equal(t, codes.Unknown, client.StatusCode(err), text)
		require.ErrorContains(t, err, text)
	}

	require.Equal(t, 1, node.Boots())
	require.Equal(t, "booting", node.Stage())
}

func TestClaim_8_11_WhatAResetWipesDecidesHowTheMachineComesBack(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name    string
		request *machineapi.ResetRequest
		off     bool
		stage   string
		left    []string // what is found on vdb afterwards
		happens func(t *testing.T, node *emulator.Node)
	}{
		{
			name: "everything", request: &machineapi.ResetRequest{Reboot: true}, stage: "maintenance", left: []string{"vdb1"},
			happens: func(t *testing.T, node *emulator.Node) { t.Helper(); require.False(t, node.Installed()) },
		},
		{
			name: "everything, without a reboot", request: &machineapi.ResetRequest{}, off: true, stage: "maintenance",
			left:    []string{"vdb1"},
			happens: func(t *testing.T, node *emulator.Node) { t.Helper(); require.False(t, node.Installed()) },
		},
		{
			name: "another disk alone", stage: "booting",
			request: &machineapi.ResetRequest{Reboot: true, Mode: machineapi.ResetRequest_USER_DISKS,
				UserDisksToWipe: []string{"/dev/vdb"}},
			happens: func(t *testing.T, node *emulator.Node) { t.Helper(); require.NotNil(t, node.Config()) },
		},
		{
			name: "the partition that makes it an installed one", stage: "booting", left: []string{"vdb1"},
			request: &machineapi.ResetRequest{Reboot: true, SystemPartitionsToWipe: partitions(constants.MetaPartitionLabel)},
			happens: func(t *testing.T, node *emulator.Node) {
				t.Helper()
				require.Equal(t, 3, node.Boots(), "it installed itself again")
				require.True(t, node.Installed())
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			cluster, node := alone(t, labcluster.Options{Edit: twoDisks})
			applyOwn(t, cluster, "cp1")
			waitStage(t, node, "booting")

			c := secure(t, cluster.Talosconfig(), node)
			eventually(t, func() error { _, err := c.Version(deadline(t)); return err })
			require.NoError(t, c.ResetGeneric(deadline(t), test.request))

			if test.off {
				waitStage(t, node, "off")
				node.PowerOn()
			}

			require.NoError(t, node.WaitFor(deadline(t), func(n *emulator.Node) bool {
				return n.Boots() > 1 && n.Stage() == test.stage && (n.Installed() || test.stage == "maintenance")
			}))
			test.happens(t, node)
			require.Equal(t, test.left, volumesOn(t, cluster, node, "vdb"))
		})
	}
}

// volumesOn are the partitions that a machine finds on a disk.
func volumesOn(t *testing.T, cluster *labcluster.Cluster, node *emulator.Node, disk string) []string {
	t.Helper()

	c := insecure(t, node)
	if node.Config() != nil {
		c = secure(t, cluster.Talosconfig(), node)
	}

	var names []string

	eventually(t, func() error {
		found, err := safe.StateListAll[*block.DiscoveredVolume](deadline(t), c.COSI)
		if err != nil {
			return err
		}

		names = nil

		for volume := range found.All() {
			if volume.TypedSpec().Parent == disk {
				names = append(names, volume.Metadata().ID())
			}
		}

		return nil
	})

	return names
}

// three is a whole cluster of control planes.
func three(t *testing.T, number int) (*labcluster.Cluster, *client.Client) {
	t.Helper()

	cluster := newCluster(t, labcluster.Options{
		ControlPlanes: number, Workers: -1, Endpoint: labcluster.FirstControlPlane,
		Edit: func(node *emulator.NodeOptions) { node.Installed = true },
	})

	for _, node := range cluster.Nodes {
		applyOwn(t, cluster, node.Name())
	}

	c := secure(t, cluster.Talosconfig(), cluster.Nodes[0])
	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })

	for _, node := range cluster.Nodes {
		require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	}

	return cluster, c
}

func members(t *testing.T, c *client.Client) map[string]uint64 {
	t.Helper()

	reply, err := c.EtcdMemberList(deadline(t), &machineapi.EtcdMemberListRequest{})
	require.NoError(t, err)

	found := map[string]uint64{}
	for _, member := range reply.GetMessages()[0].GetMembers() {
		found[member.GetHostname()] = member.GetId()
	}

	return found
}

func TestClaim_8_12_AGracefulResetLeavesEtcdAndFailsIfItCannot(t *testing.T) {
	t.Parallel()

	request := &machineapi.ResetRequest{
		Graceful: true, Reboot: true,
		SystemPartitionsToWipe: partitions(constants.StatePartitionLabel, constants.EphemeralPartitionLabel),
	}

	cluster, c := three(t, 3)
	last := cluster.Node("cp3")

	require.NoError(t, secure(t, cluster.Talosconfig(), last).ResetGeneric(deadline(t), request))
	require.NoError(t, last.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" }))
	require.NotContains(t, members(t, c), "cp3")
	require.Zero(t, last.EtcdClusterID())

	// The last member of a cluster can't leave it: the machine reboots as it was.
	alone, c := three(t, 1)
	node := alone.Nodes[0]

	require.NoError(t, c.ResetGeneric(deadline(t), request))
	require.NoError(t, node.WaitFor(deadline(t), func(n *emulator.Node) bool { return n.Boots() == 2 && n.EtcdVoter() }))
	require.NotZero(t, node.EtcdClusterID())

	// Without grace it is just cleared.
	request.Graceful = false

	eventually(t, func() error { return c.ResetGeneric(deadline(t), request) })
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 3 && n.Stage() == "maintenance" }))
	require.Zero(t, node.EtcdClusterID())
}

func TestClaim_8_13_MembersLeaveEtcdAndGiveItsLeadershipAway(t *testing.T) {
	t.Parallel()

	cluster, c := three(t, 3)
	ids := members(t, c)

	status, err := c.EtcdStatus(deadline(t))
	require.NoError(t, err)

	var leader, other *emulator.Node

	for _, node := range cluster.Nodes {
		if node.EtcdMemberID() == status.GetMessages()[0].GetMemberStatus().GetLeader() {
			leader = node
		} else {
			other = node
		}
	}

	reply, err := secure(t, cluster.Talosconfig(), other).EtcdForfeitLeadership(deadline(t),
		&machineapi.EtcdForfeitLeadershipRequest{})
	require.NoError(t, err)
	require.Empty(t, reply.GetMessages()[0].GetMember(), "it had none to give")

	reply, err = secure(t, cluster.Talosconfig(), leader).EtcdForfeitLeadership(deadline(t),
		&machineapi.EtcdForfeitLeadershipRequest{})
	require.NoError(t, err)
	require.Contains(t, ids, reply.GetMessages()[0].GetMember())
	require.NotEqual(t, leader.Name(), reply.GetMessages()[0].GetMember())

	err = c.EtcdRemoveMemberByID(deadline(t), &machineapi.EtcdRemoveMemberByIDRequest{MemberId: 7})
	require.Equal(t, codes.NotFound, client.StatusCode(err))
	require.ErrorContains(t, err, "failed to remove member 7: etcdserver: member not found")

	require.NoError(t, secure(t, cluster.Talosconfig(), cluster.Node("cp3")).EtcdLeaveCluster(deadline(t),
		&machineapi.EtcdLeaveClusterRequest{}))
	require.NotContains(t, members(t, c), "cp3")
	require.Zero(t, cluster.Node("cp3").EtcdClusterID())

	// A member that is down can be removed; then the last one stays.
	cluster.Node("cp2").PowerOff()
	require.NoError(t, cluster.Nodes[0].WaitFor(deadline(t), func(n *emulator.Node) bool { return !n.EtcdVoter() }))

	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()

	err = c.EtcdRemoveMemberByID(short, &machineapi.EtcdRemoveMemberByIDRequest{MemberId: ids["cp2"]})
	require.Equal(t, codes.DeadlineExceeded, client.StatusCode(err), "one of two has no quorum to decide anything")

	cluster.Node("cp2").PowerOn()
	require.NoError(t, cluster.Node("cp2").WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
	require.NoError(t, c.EtcdRemoveMemberByID(deadline(t), &machineapi.EtcdRemoveMemberByIDRequest{MemberId: ids["cp2"]}))
	require.Equal(t, map[string]uint64{"cp1": ids["cp1"]}, members(t, c))

	_, err = c.EtcdForfeitLeadership(deadline(t), &machineapi.EtcdForfeitLeadershipRequest{})
	require.ErrorContains(t, err, "failed to forfeit leadership: cannot forfeit leadership, only one member")

	err = c.EtcdLeaveCluster(deadline(t), &machineapi.EtcdLeaveClusterRequest{})
	require.ErrorContains(t, err, "etcdserver: re-configuration failed due to not enough started members")
}
