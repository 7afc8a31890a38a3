package etcd

import (
	"context"
	"net/netip"
	"slices"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// Joins reports whether the member has a place in its cluster but never ran.
func (m *Member) Joins() bool {
	m.Cluster.clusters.mu.Lock()
	defer m.Cluster.clusters.mu.Unlock()

	return m.learner && !m.startedOnce
}

// Learner reports whether the member is not a voter yet.
func (m *Member) Learner() bool {
	m.Cluster.clusters.mu.Lock()
	defer m.Cluster.clusters.mu.Unlock()

	return m.learner
}

// Votes reports whether the member is a full one of a cluster that works, and runs.
func (m *Member) Votes() bool {
	m.Cluster.clusters.mu.Lock()
	defer m.Cluster.clusters.mu.Unlock()

	return m.host != nil && !m.learner && m.Cluster.quorum()
}

// VotesOn reports the same, if this host runs the member.
func (m *Member) VotesOn(host Host) bool {
	m.Cluster.clusters.mu.Lock()
	defer m.Cluster.clusters.mu.Unlock()

	return m.host == host && !m.learner && m.Cluster.quorum()
}

// Removed reports whether the cluster has let the member go. Its data remains, and is of no use to it.
func (m *Member) Removed() bool {
	m.Cluster.clusters.mu.Lock()
	defer m.Cluster.clusters.mu.Unlock()

	return !slices.Contains(m.Cluster.members, m)
}

// raftSnapshotOfRestore is what a restore of one member begins with, of term 1 and index 1. Source: etcd
// etcdutl/snapshot/v3_snapshot.go.
const raftSnapshotOfRestore = "0000000000000001-0000000000000001.snap"

// SnapFiles are the files of the member's directory of snapshots.
func (m *Member) SnapFiles() []string {
	m.Cluster.clusters.mu.Lock()
	defer m.Cluster.clusters.mu.Unlock()

	if m.restored {
		return []string{raftSnapshotOfRestore, "db"}
	}

	return []string{"db"}
}

// Start makes the member run on a host. A former cluster gets its CA from the first that does.
func (m *Member) Start(host Host, address netip.Addr, ca string) {
	m.Cluster.clusters.mu.Lock()
	defer m.Cluster.clusters.mu.Unlock()

	m.host, m.startedOnce, m.address = host, true, address

	if m.Cluster.ca == "" {
		m.Cluster.ca = ca
	}

	m.Cluster.elect()
}

// Stop ends the member if this host runs it.
func (m *Member) Stop(host Host) {
	m.Cluster.clusters.mu.Lock()
	defer m.Cluster.clusters.mu.Unlock()

	if m.host == host {
		m.host = nil
		m.Cluster.elect()
	}
}

// promoteInterval is between two attempts to make a learner a voter; the first comes too early for any.
const promoteInterval = 15 * time.Second

// Clock is the time of a member's host.
type Clock interface {
	Now() time.Time
	Sleep(ctx context.Context, duration time.Duration) error
}

// AwaitPromotion tries to make a learner a voter until it is one or the context ends: it works once the learner has
// caught up, and while the cluster has quorum. Lag is how long catching up takes, in the host's time.
func (m *Member) AwaitPromotion(ctx context.Context, clock Clock, lag func() time.Duration) {
	started := clock.Now()

	for m.Learner() && clock.Sleep(ctx, promoteInterval) == nil {
		if clock.Now().Sub(started) >= lag() {
			m.promote()
		}
	}
}

// promote makes a learner a voter if the cluster can do it.
func (m *Member) promote() {
	m.Cluster.clusters.mu.Lock()
	defer m.Cluster.clusters.mu.Unlock()

	if m.Cluster.quorum() {
		m.learner = false
		m.Cluster.elect()
	}
}

// Status is what the member tells of itself.
func (m *Member) Status() *machineapi.EtcdMemberStatus {
	m.Cluster.clusters.mu.Lock()
	defer m.Cluster.clusters.mu.Unlock()

	status := &machineapi.EtcdMemberStatus{
		StorageVersion:   storage,
		MemberId:         m.ID,
		ProtocolVersion:  "3.6.12",
		DbSize:           20480,
		DbSizeInUse:      16384,
		Leader:           m.Cluster.leader,
		RaftIndex:        42,
		RaftTerm:         2,
		RaftAppliedIndex: 42,
		IsLearner:        m.learner,
	}

	if m.Cluster.leader == 0 {
		status.Errors = []string{"etcdserver: no leader"}
	}

	return status
}
