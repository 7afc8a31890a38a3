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

// with uses an etcd that answers, and tells everybody that it may have changed.
func (e *etcdService) with(ctx context.Context, use func(*etcdCluster) error) error {
	if err := e.clientReady(); err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}

	var failure error

	if err := e.awaitWorking(ctx, func(cluster *etcdCluster) { failure = use(cluster) }); err != nil {
		return err
	}

	e.boot.node.lab.changed.Raise()

	return failure
}

// awaitWorking waits for an etcd that answers: the node's own, or that of the control planes that it knows of. The
// lab is locked meanwhile.
func (e *etcdService) awaitWorking(ctx context.Context, use func(*etcdCluster)) error {
	return e.await(ctx, func(endpoints []netip.Addr) bool {
		cluster := e.localCluster()
		if cluster == nil {
			cluster = e.reachable(endpoints)
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

// leave takes the node out of its etcd cluster for good, and clears its data. Nothing is done where etcd has none
// or does not run.
func (e *etcdService) leave(ctx context.Context) error {
	member := e.boot.node.readDrive().etcd
	if member == nil {
		return nil
	}

	e.boot.mu.Lock()
	svc := e.boot.services.byID[serviceEtcd]
	runs := svc != nil && (svc.state == stateRunning || svc.state == stateStopping || svc.state == stateFailed)
	e.boot.mu.Unlock()

	if !runs {
		return nil
	}

	if err := e.leaveCluster(ctx, member); err != nil {
		return fmt.Errorf("failed to leave cluster: %w", err)
	}

	return nil
}

func (e *etcdService) leaveCluster(ctx context.Context, member *etcdMember) error {
	deadline := e.boot.now().Add(leaveLimit)

	for {
		err := e.with(ctx, func(cluster *etcdCluster) error { return cluster.remove(member.id) })
		if err == nil || errors.Is(err, errMemberNotFound) {
			break
		}

		if !errors.Is(err, errUnhealthy) || e.boot.now().After(deadline) {
			return fmt.Errorf("1 error(s) occurred:\n\tfailed to remove member %d: %w", member.id, err)
		}

		if err := e.boot.sleep(ctx, leaveInterval); err != nil {
			return err
		}
	}

	e.stop(errLeaving)
	e.boot.services.stop(serviceEtcd)
	e.boot.node.editDrive(func(d *drive) { d.etcd = nil })
	e.boot.node.lab.changed.Raise()

	return nil
}

var errLeaving = errors.New("leaving the etcd cluster")

// EtcdLeaveCluster takes this node out of etcd.
func (s *etcdAPI) EtcdLeaveCluster(ctx context.Context,
	_ *machineapi.EtcdLeaveClusterRequest) (*machineapi.EtcdLeaveClusterResponse, error) {
	b := s.boot

	if err := b.onlyOnControlPlane("etcd leave"); err != nil {
		return nil, err
	}

	member, err := b.etcd.ownMember(ctx)
	if err == nil {
		err = b.etcd.leaveCluster(ctx, member)
	}

	if err != nil {
		return nil, fmt.Errorf("failed to leave cluster: %w", err)
	}

	return &machineapi.EtcdLeaveClusterResponse{Messages: []*machineapi.EtcdLeaveCluster{{}}}, nil
}

// memberLimit is how long a node waits until it knows its own member, in node time.
const memberLimit = 3 * time.Minute

// ownMember is the member whose data the node has. It is waited for.
func (e *etcdService) ownMember(ctx context.Context) (*etcdMember, error) {
	if err := e.clientReady(); err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}

	limited, cancel := e.boot.node.lab.clock.WithTimeout(ctx, memberLimit)
	defer cancel()

	var member *etcdMember

	if err := e.boot.node.lab.changed.Until(limited, func() bool {
		member = e.boot.node.readDrive().etcd

		return member != nil
	}); err != nil {
		return nil, fmt.Errorf("failed to get local etcd member ID: %w", context.DeadlineExceeded)
	}

	return member, nil
}

// EtcdForfeitLeadership gives the leadership to another member. The reply names it only if there was something to give.
func (s *etcdAPI) EtcdForfeitLeadership(ctx context.Context,
	_ *machineapi.EtcdForfeitLeadershipRequest) (*machineapi.EtcdForfeitLeadershipResponse, error) {
	b := s.boot

	if err := b.onlyOnControlPlane("etcd forfeit leadership"); err != nil {
		return nil, err
	}

	reply := &machineapi.EtcdForfeitLeadership{}

	member, err := b.etcd.ownMember(ctx)
	if err != nil {
		return nil, err
	}

	err = b.etcd.with(ctx, func(cluster *etcdCluster) error {
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
func (s *etcdAPI) EtcdRemoveMemberByID(ctx context.Context,
	request *machineapi.EtcdRemoveMemberByIDRequest) (*machineapi.EtcdRemoveMemberByIDResponse, error) {
	b := s.boot

	if err := b.onlyOnControlPlane("etcd remove member"); err != nil {
		return nil, err
	}

	err := b.etcd.with(ctx, func(cluster *etcdCluster) error {
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
