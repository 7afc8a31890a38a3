package machine

import (
	"context"
	"errors"
	"net/netip"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// ClientReady fails before the node has the certificate that its own etcd client needs: that takes a synced clock.
func (e *etcdService) ClientReady() error {
	if e.boot.Synced() {
		return nil
	}

	return errors.New("error building etcd client TLS config: open /system/secrets/etcd/admin.crt: no such file or " +
		"directory")
}

// Await waits until the question can be answered. It is asked with the lab locked, and given the control planes
// that the node knows of.
func (e *etcdService) Await(ctx context.Context, answered func(endpoints []netip.Addr) bool) error {
	lab := e.boot.Node.Lab

	return lab.changed.Until(ctx, func() bool {
		endpoints := e.boot.Members.controlPlaneEndpoints()

		lab.mu.Lock()
		defer lab.mu.Unlock()

		return answered(endpoints)
	})
}

// Reachable is the cluster that one of the endpoints leads to. Needs Lab.mu.
func (e *etcdService) Reachable(endpoints []netip.Addr) *EtcdCluster {
	for _, cluster := range e.boot.Node.Lab.clusters {
		if cluster.ca == e.ca() && cluster.reachable(e.boot.Node.Lab, endpoints) {
			return cluster
		}
	}

	return nil
}

// LocalMember is the running member on this node. Needs Lab.mu.
func (e *etcdService) LocalMember() *etcdMember {
	for _, cluster := range e.boot.Node.Lab.clusters {
		for _, member := range cluster.Members {
			if member.Boot == e.boot {
				return member
			}
		}
	}

	return nil
}

// LocalCluster is the cluster of the running member on this node. Needs Lab.mu.
func (e *etcdService) LocalCluster() *EtcdCluster {
	if member := e.LocalMember(); member != nil {
		return member.Cluster
	}

	return nil
}

// List is the members as the API shows them. Needs Lab.mu.
func (c *EtcdCluster) List() []*machineapi.EtcdMember {
	members := make([]*machineapi.EtcdMember, 0, len(c.Members))

	for _, member := range c.Members {
		shown := &machineapi.EtcdMember{
			Id:        member.ID,
			PeerUrls:  []string{"https://" + netip.AddrPortFrom(member.address, 2380).String()},
			IsLearner: member.Learner,
		}

		// A member that never started has no name and no client URL yet.
		if member.startedOnce {
			shown.Hostname = member.Name
			shown.ClientUrls = []string{"https://" + netip.AddrPortFrom(member.address, 2379).String()}
		}

		members = append(members, shown)
	}

	return members
}
