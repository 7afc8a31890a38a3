package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/etcd"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// ClientReady fails before the node has the certificate that its own etcd client needs: that takes a synced clock.
func (e *etcdService) ClientReady() error {
	if e.boot.Synced() {
		return nil
	}

	return errors.New("error building etcd client TLS config: open /system/secrets/etcd/admin.crt: no such file or " +
		"directory")
}

// Await waits until a question to etcd is answered.
func (e *etcdService) Await(ctx context.Context, answered func() bool) error {
	return e.boot.Node.Lab.changed.Until(ctx, answered)
}

// Local is the member that runs on this node; nil if none does.
func (e *etcdService) Local() *etcd.Member { return e.boot.Node.Lab.etcd.On(e.boot) }

// Cluster is that of the member on this node, or of one that the node reaches; nil if there is none.
func (e *etcdService) Cluster() *etcd.Cluster {
	if member := e.Local(); member != nil {
		return member.Cluster
	}

	return e.boot.Node.Lab.etcd.Find(e.ca(), e.reach())
}

// reach is whom the node can ask: the control planes that it knows of.
func (e *etcdService) reach() etcd.Reach {
	reach := etcd.Reach{Addresses: e.boot.Members.controlPlaneEndpoints()}
	lab := e.boot.Node.Lab

	lab.mu.Lock()
	defer lab.mu.Unlock()

	for _, address := range reach.Addresses {
		if holder := lab.holders[address]; holder != nil {
			reach.Hosts = append(reach.Hosts, holder)
		}
	}

	return reach
}

// With uses an etcd that answers, and tells everybody that it may have changed.
func (e *etcdService) With(ctx context.Context, use func(*etcd.Cluster) error) error {
	if err := e.ClientReady(); err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}

	cluster, err := e.awaitWorking(ctx)
	if err != nil {
		return err
	}

	defer e.boot.Node.Lab.changed.Raise()

	return use(cluster)
}

// awaitWorking waits for an etcd that answers.
func (e *etcdService) awaitWorking(ctx context.Context) (cluster *etcd.Cluster, err error) {
	err = e.Await(ctx, func() bool {
		cluster = e.Cluster()

		return cluster != nil && cluster.Works()
	})

	return cluster, err
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

	if !e.boot.Services.HasRun(service.Etcd) {
		return nil
	}

	if err := e.LeaveCluster(ctx, member); err != nil {
		return fmt.Errorf("failed to leave cluster: %w", err)
	}

	return nil
}

// LeaveCluster goes on asking the cluster to let its member go.
func (e *etcdService) LeaveCluster(ctx context.Context, member *etcd.Member) error {
	deadline := e.boot.Now().Add(leaveLimit)

	for {
		err := e.With(ctx, func(cluster *etcd.Cluster) error { return cluster.Remove(member.ID) })
		if err == nil || errors.Is(err, etcd.ErrMemberNotFound) {
			break
		}

		if !errors.Is(err, etcd.ErrUnhealthy) || e.boot.Now().After(deadline) {
			return fmt.Errorf("1 error(s) occurred:\n\tfailed to remove member %d: %w", member.ID, err)
		}

		if err := e.boot.Sleep(ctx, leaveInterval); err != nil {
			return err
		}
	}

	e.stop(errLeaving)
	e.boot.Services.Stop(service.Etcd)
	e.boot.Node.EditDrive(func(d *Drive) { d.Etcd = nil })
	e.boot.Node.Lab.changed.Raise()

	return nil
}

var errLeaving = errors.New("leaving the etcd cluster")

// memberLimit is how long a node waits until it knows its own member, in node time.
const memberLimit = 3 * time.Minute

// OwnMember is the member whose data the node has. It is waited for.
func (e *etcdService) OwnMember(ctx context.Context) (*etcd.Member, error) {
	if err := e.ClientReady(); err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}

	limited, cancel := e.boot.Node.Lab.clock.WithTimeout(ctx, memberLimit)
	defer cancel()

	var member *etcd.Member

	if err := e.boot.Node.Lab.changed.Until(limited, func() bool {
		member = e.boot.Node.ReadDrive().Etcd

		return member != nil
	}); err != nil {
		return nil, fmt.Errorf("failed to get local etcd member ID: %w", context.DeadlineExceeded)
	}

	return member, nil
}
