package emulator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Why etcd does not let a member go. Source: etcd api/v3rpc/rpctypes.
var (
	errMemberNotFound = errors.New("etcdserver: member not found")
	errTooFewStarted  = errors.New("etcdserver: re-configuration failed due to not enough started members")
	errUnhealthy      = errors.New("etcdserver: unhealthy cluster")
)

// remove takes a member out, unless too few others would be left to decide. Needs Lab.mu.
func (c *etcdCluster) remove(id uint64) error {
	i := slices.IndexFunc(c.members, func(m *etcdMember) bool { return m.id == id })
	if i < 0 {
		return errMemberNotFound
	}

	if member := c.members[i]; !member.learner {
		if err := c.spares(member); err != nil {
			return err
		}
	}

	c.members = slices.Delete(c.members, i, i+1)
	c.elect()

	return nil
}

// spares reports whether the cluster can do without a voter. Needs Lab.mu.
func (c *etcdCluster) spares(leaving *etcdMember) error {
	others, started, running := 0, 0, 0

	for _, member := range c.members {
		if member == leaving || member.learner {
			continue
		}

		others++

		if member.startedOnce {
			started++
		}

		if member.boot != nil {
			running++
		}
	}

	switch quorum := others/2 + 1; {
	case started < quorum:
		return errTooFewStarted
	case leaving.boot != nil && running < quorum: // one that is down is no part of the quorum anyway
		return errUnhealthy
	default:
		return nil
	}
}

// withEtcd uses an etcd that answers, and tells everybody that it may have changed.
func (b *boot) withEtcd(ctx context.Context, use func(*etcdCluster) error) error {
	if err := b.etcdClientReady(); err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}

	var failure error

	if err := b.awaitWorkingEtcd(ctx, func(cluster *etcdCluster) { failure = use(cluster) }); err != nil {
		return err
	}

	b.node.lab.changed.raise()

	return failure
}

// awaitWorkingEtcd waits for an etcd that answers: the node's own, or that of the control planes that it knows of. The
// lab is locked meanwhile.
func (b *boot) awaitWorkingEtcd(ctx context.Context, use func(*etcdCluster)) error {
	return b.awaitEtcd(ctx, func(endpoints []netip.Addr) bool {
		cluster := b.localEtcd()
		if cluster == nil {
			cluster = b.reachableEtcd(endpoints)
		}

		if cluster == nil || !cluster.quorum() {
			return false
		}

		use(cluster)

		return true
	})
}

// How long a node goes on asking to leave an unhealthy cluster, and how often, in node time.
const (
	leaveLimit    = 5 * time.Minute
	leaveInterval = 10 * time.Second
)

// leaveEtcd takes the node out of its etcd cluster for good, and clears its data. Nothing is done where etcd has none
// or does not run.
func (b *boot) leaveEtcd(ctx context.Context) error {
	member := b.node.readDrive().etcd
	if member == nil {
		return nil
	}

	b.mu.Lock()
	svc := b.services[serviceEtcd]
	runs := svc != nil && (svc.state == stateRunning || svc.state == stateStopping || svc.state == stateFailed)
	b.mu.Unlock()

	if !runs {
		return nil
	}

	if err := b.leaveEtcdCluster(ctx, member); err != nil {
		return fmt.Errorf("failed to leave cluster: %w", err)
	}

	return nil
}

func (b *boot) leaveEtcdCluster(ctx context.Context, member *etcdMember) error {
	deadline := b.now().Add(leaveLimit)

	for {
		err := b.withEtcd(ctx, func(cluster *etcdCluster) error { return cluster.remove(member.id) })
		if err == nil || errors.Is(err, errMemberNotFound) {
			break
		}

		if !errors.Is(err, errUnhealthy) || b.now().After(deadline) {
			return fmt.Errorf("1 error(s) occurred:\n\tfailed to remove member %d: %w", member.id, err)
		}

		if err := b.sleep(ctx, leaveInterval); err != nil {
			return err
		}
	}

	b.stopEtcd(errLeaving)
	b.stopServices(serviceEtcd)
	b.node.editDrive(func(d *drive) { d.etcd = nil })
	b.node.lab.changed.raise()

	return nil
}

var errLeaving = errors.New("leaving the etcd cluster")

// EtcdLeaveCluster takes this node out of etcd.
func (s *machineService) EtcdLeaveCluster(ctx context.Context,
	_ *machineapi.EtcdLeaveClusterRequest) (*machineapi.EtcdLeaveClusterResponse, error) {
	b := s.boot

	if err := b.onlyOnControlPlane("etcd leave"); err != nil {
		return nil, err
	}

	member, err := b.ownMember(ctx)
	if err == nil {
		err = b.leaveEtcdCluster(ctx, member)
	}

	if err != nil {
		return nil, fmt.Errorf("failed to leave cluster: %w", err)
	}

	return &machineapi.EtcdLeaveClusterResponse{Messages: []*machineapi.EtcdLeaveCluster{{}}}, nil
}

// memberLimit is how long a node waits until it knows its own member, in node time.
const memberLimit = 3 * time.Minute

// ownMember is the member whose data the node has. It is waited for.
func (b *boot) ownMember(ctx context.Context) (*etcdMember, error) {
	if err := b.etcdClientReady(); err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}

	limited, cancel := b.node.lab.clock.WithTimeout(ctx, memberLimit)
	defer cancel()

	var member *etcdMember

	if err := b.node.lab.changed.until(limited, func() bool {
		member = b.node.readDrive().etcd

		return member != nil
	}); err != nil {
		return nil, fmt.Errorf("failed to get local etcd member ID: %w", context.DeadlineExceeded)
	}

	return member, nil
}

// EtcdForfeitLeadership gives the leadership to another member. The reply names it only if there was something to give.
func (s *machineService) EtcdForfeitLeadership(ctx context.Context,
	_ *machineapi.EtcdForfeitLeadershipRequest) (*machineapi.EtcdForfeitLeadershipResponse, error) {
	b := s.boot

	if err := b.onlyOnControlPlane("etcd forfeit leadership"); err != nil {
		return nil, err
	}

	reply := &machineapi.EtcdForfeitLeadership{}

	member, err := b.ownMember(ctx)
	if err != nil {
		return nil, err
	}

	err = b.withEtcd(ctx, func(cluster *etcdCluster) error {
		switch {
		case len(cluster.members) == 1:
			return errors.New("failed to forfeit leadership: cannot forfeit leadership, only one member")
		case cluster.leader != member.id:
			return nil
		}

		for _, other := range cluster.members {
			if other != member && !other.learner && other.boot != nil {
				cluster.leader = other.id
				reply.Member = other.name

				return nil
			}
		}

		return errors.New("failed to forfeit leadership: etcdserver: bad leader transferee")
	})
	if err != nil {
		return nil, err
	}

	return &machineapi.EtcdForfeitLeadershipResponse{Messages: []*machineapi.EtcdForfeitLeadership{reply}}, nil
}

// EtcdRemoveMemberByID removes any member from etcd.
func (s *machineService) EtcdRemoveMemberByID(ctx context.Context,
	request *machineapi.EtcdRemoveMemberByIDRequest) (*machineapi.EtcdRemoveMemberByIDResponse, error) {
	b := s.boot

	if err := b.onlyOnControlPlane("etcd remove member"); err != nil {
		return nil, err
	}

	err := b.withEtcd(ctx, func(cluster *etcdCluster) error {
		if err := cluster.remove(request.GetMemberId()); err != nil {
			return fmt.Errorf("failed to remove member %d: %w", request.GetMemberId(), err)
		}

		return nil
	})

	switch {
	case errors.Is(err, errMemberNotFound):
		return nil, status.Error(codes.NotFound, err.Error())
	case err != nil:
		return nil, fmt.Errorf("failed to remove member: %w", err)
	}

	return &machineapi.EtcdRemoveMemberByIDResponse{Messages: []*machineapi.EtcdRemoveMemberByID{{}}}, nil
}
