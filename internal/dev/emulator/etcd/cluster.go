package etcd

import (
	"errors"
	"net/netip"
	"slices"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// Why etcd does not let a member go. Source: etcd api/v3rpc/rpctypes.
var (
	ErrMemberNotFound = errors.New("etcdserver: member not found")
	ErrUnhealthy      = errors.New("etcdserver: unhealthy cluster")
	errTooFewStarted  = errors.New("etcdserver: re-configuration failed due to not enough started members")
)

// Works reports whether enough voters run.
func (c *Cluster) Works() bool {
	c.clusters.mu.Lock()
	defer c.clusters.mu.Unlock()

	return c.quorum()
}

// HasCNI reports whether the cluster's nodes have a CNI.
func (c *Cluster) HasCNI() bool {
	c.clusters.mu.Lock()
	defer c.clusters.mu.Unlock()

	return c.network
}

// quorum reports whether enough voters run. Needs Clusters.mu.
func (c *Cluster) quorum() bool {
	voters, up := 0, 0

	for _, member := range c.members {
		if !member.learner {
			voters++

			if member.host != nil {
				up++
			}
		}
	}

	return up > voters/2
}

// elect settles the leader and tells Kubernetes whether it can work. Needs Clusters.mu.
func (c *Cluster) elect() {
	if !c.quorum() {
		c.leader = 0
		c.Kubernetes.Available(false)

		return
	}

	c.Kubernetes.Available(true)

	for _, member := range c.members {
		if member.ID == c.leader && member.host != nil {
			return
		}
	}

	for _, member := range c.members {
		if !member.learner && member.host != nil {
			c.leader = member.ID

			return
		}
	}
}

// Members are the members as the API shows them.
func (c *Cluster) Members() []*machineapi.EtcdMember {
	c.clusters.mu.Lock()
	defer c.clusters.mu.Unlock()

	members := make([]*machineapi.EtcdMember, 0, len(c.members))

	for _, member := range c.members {
		shown := &machineapi.EtcdMember{
			Id:        member.ID,
			PeerUrls:  []string{member.peerURL()},
			IsLearner: member.learner,
		}

		// A member that never started has no name and no client URL yet.
		if member.startedOnce {
			shown.Hostname = member.name
			shown.ClientUrls = []string{"https://" + netip.AddrPortFrom(member.address, 2379).String()}
		}

		members = append(members, shown)
	}

	return members
}

func (m *Member) peerURL() string { return "https://" + netip.AddrPortFrom(m.address, 2380).String() }

// Down are the members that do not run, of so many.
func (c *Cluster) Down() (down []Down, of int) {
	c.clusters.mu.Lock()
	defer c.clusters.mu.Unlock()

	for _, member := range c.members {
		if member.host == nil {
			down = append(down, Down{member.ID, member.startedOnce})
		}
	}

	return down, len(c.members)
}

// Down is a member that does not run.
type Down struct {
	ID uint64
	// Started members have run before.
	Started bool
}

// Remove takes a member out, unless too few others would be left to decide.
func (c *Cluster) Remove(id uint64) error {
	c.clusters.mu.Lock()
	defer c.clusters.mu.Unlock()

	i := slices.IndexFunc(c.members, func(m *Member) bool { return m.ID == id })
	if i < 0 {
		return ErrMemberNotFound
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

// spares reports whether the cluster can do without a voter. Needs Clusters.mu.
func (c *Cluster) spares(leaving *Member) error {
	others, started, running := 0, 0, 0

	for _, member := range c.members {
		if member == leaving || member.learner {
			continue
		}

		others++

		if member.startedOnce {
			started++
		}

		if member.host != nil {
			running++
		}
	}

	switch quorum := others/2 + 1; {
	case started < quorum:
		return errTooFewStarted
	case leaving.host != nil && running < quorum: // one that is down is no part of the quorum anyway
		return ErrUnhealthy
	default:
		return nil
	}
}

// Forfeit gives the leadership of a member to another, and names it; nobody if there is nothing to give.
func (c *Cluster) Forfeit(leader *Member) (string, error) {
	c.clusters.mu.Lock()
	defer c.clusters.mu.Unlock()

	switch {
	case len(c.members) == 1:
		return "", errors.New("failed to forfeit leadership: cannot forfeit leadership, only one member")
	case c.leader != leader.ID:
		return "", nil
	}

	for _, other := range c.members {
		if other != leader && !other.learner && other.host != nil {
			c.leader = other.ID

			return other.name, nil
		}
	}

	return "", errors.New("failed to forfeit leadership: etcdserver: bad leader transferee")
}
