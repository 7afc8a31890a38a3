package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Why etcd does not let a member go. Source: etcd api/v3rpc/rpctypes.
var (
	ErrMemberNotFound = errors.New("etcdserver: member not found")
	errTooFewStarted  = errors.New("etcdserver: re-configuration failed due to not enough started members")
	errUnhealthy      = errors.New("etcdserver: unhealthy cluster")
)

// Remove takes a member out, unless too few others would be left to decide. Needs Lab.mu.
func (c *EtcdCluster) Remove(id uint64) error {
	i := slices.IndexFunc(c.Members, func(m *etcdMember) bool { return m.ID == id })
	if i < 0 {
		return ErrMemberNotFound
	}

	if member := c.Members[i]; !member.Learner {
		if err := c.spares(member); err != nil {
			return err
		}
	}

	c.Members = slices.Delete(c.Members, i, i+1)
	c.elect()

	return nil
}

// spares reports whether the cluster can do without a voter. Needs Lab.mu.
func (c *EtcdCluster) spares(leaving *etcdMember) error {
	others, started, running := 0, 0, 0

	for _, member := range c.Members {
		if member == leaving || member.Learner {
			continue
		}

		others++

		if member.startedOnce {
			started++
		}

		if member.Boot != nil {
			running++
		}
	}

	switch quorum := others/2 + 1; {
	case started < quorum:
		return errTooFewStarted
	case leaving.Boot != nil && running < quorum: // one that is down is no part of the quorum anyway
		return errUnhealthy
	default:
		return nil
	}
}

// With uses an etcd that answers, and tells everybody that it may have changed.
func (e *etcdService) With(ctx context.Context, use func(*EtcdCluster) error) error {
	if err := e.ClientReady(); err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}

	var failure error

	if err := e.awaitWorking(ctx, func(cluster *EtcdCluster) { failure = use(cluster) }); err != nil {
		return err
	}

	e.boot.Node.Lab.changed.Raise()

	return failure
}

// awaitWorking waits for an etcd that answers: the node's own, or that of the control planes that it knows of. The
// lab is locked meanwhile.
func (e *etcdService) awaitWorking(ctx context.Context, use func(*EtcdCluster)) error {
	return e.Await(ctx, func(endpoints []netip.Addr) bool {
		cluster := e.LocalCluster()
		if cluster == nil {
			cluster = e.Reachable(endpoints)
		}

		if cluster == nil || !cluster.Quorum() {
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
	member := e.boot.Node.ReadDrive().Etcd
	if member == nil {
		return nil
	}

	e.boot.mu.Lock()
	svc := e.boot.Services.byID[serviceEtcd]
	runs := svc != nil && (svc.state == StateRunning || svc.state == stateStopping || svc.state == stateFailed)
	e.boot.mu.Unlock()

	if !runs {
		return nil
	}

	if err := e.LeaveCluster(ctx, member); err != nil {
		return fmt.Errorf("failed to leave cluster: %w", err)
	}

	return nil
}

func (e *etcdService) LeaveCluster(ctx context.Context, member *etcdMember) error {
	deadline := e.boot.Now().Add(leaveLimit)

	for {
		err := e.With(ctx, func(cluster *EtcdCluster) error { return cluster.Remove(member.ID) })
		if err == nil || errors.Is(err, ErrMemberNotFound) {
			break
		}

		if !errors.Is(err, errUnhealthy) || e.boot.Now().After(deadline) {
			return fmt.Errorf("1 error(s) occurred:\n\tfailed to remove member %d: %w", member.ID, err)
		}

		if err := e.boot.Sleep(ctx, leaveInterval); err != nil {
			return err
		}
	}

	e.stop(errLeaving)
	e.boot.Services.stop(serviceEtcd)
	e.boot.Node.EditDrive(func(d *Drive) { d.Etcd = nil })
	e.boot.Node.Lab.changed.Raise()

	return nil
}

var errLeaving = errors.New("leaving the etcd cluster")

// memberLimit is how long a node waits until it knows its own member, in node time.
const memberLimit = 3 * time.Minute

// OwnMember is the member whose data the node has. It is waited for.
func (e *etcdService) OwnMember(ctx context.Context) (*etcdMember, error) {
	if err := e.ClientReady(); err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}

	limited, cancel := e.boot.Node.Lab.clock.WithTimeout(ctx, memberLimit)
	defer cancel()

	var member *etcdMember

	if err := e.boot.Node.Lab.changed.Until(limited, func() bool {
		member = e.boot.Node.ReadDrive().Etcd

		return member != nil
	}); err != nil {
		return nil, fmt.Errorf("failed to get local etcd member ID: %w", context.DeadlineExceeded)
	}

	return member, nil
}
