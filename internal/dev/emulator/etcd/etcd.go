// Package etcd is the etcd clusters of a lab: who is a member, who runs, and who decides. It knows no machines: a
// member runs on some host.
package etcd

import (
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
)

// Clusters are all etcd clusters that were ever made in a lab. The methods of its clusters and members are safe for
// concurrent use.
type Clusters struct {
	mu  sync.Mutex
	all []*Cluster
	// snapshots are the clusters that snapshots were taken of, by what is in them.
	snapshots map[[sha256.Size]byte]*Cluster
}

// Cluster is one etcd cluster that exists or once existed.
type Cluster struct {
	ID uint64
	// Kubernetes is what kube-apiservers keep in it.
	Kubernetes *kubernetes.Cluster

	clusters *Clusters

	// What follows is guarded by Clusters.mu.
	ca      string // the etcd CA's certificate: members of one cluster share it
	members []*Member
	network bool // nodes have a CNI
	leader  uint64
}

// Member is one member of a cluster.
type Member struct {
	Cluster *Cluster
	ID      uint64

	// What follows is guarded by Clusters.mu.
	name    string
	address netip.Addr
	learner bool
	host    Host // who runs it; nil while it is down
	// startedOnce is set when the member ran for the first time: until then the cluster knows no name for it.
	startedOnce bool
	// restored is set of the member that a snapshot was restored on.
	restored bool
}

// Host stands for a machine that runs a member, from one boot to the next. It can be compared.
type Host any

// Reach is whom a node can ask about a cluster: members at these addresses, or on these hosts.
type Reach struct {
	Addresses []netip.Addr
	Hosts     []Host
}

// NewClusters has no cluster yet.
func NewClusters() *Clusters { return &Clusters{snapshots: map[[sha256.Size]byte]*Cluster{}} }

func newID() uint64 { return rand.Uint64() | 1 } //nolint:gosec // an id, no secret

// New makes a cluster of one member.
func (c *Clusters) New(ca, name string, address netip.Addr, options kubernetes.Options) *Member {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.add(ca, name, address, kubernetes.NewCluster(options), options.CNI != constants.NoneCNI)
}

// add needs mu.
func (c *Clusters) add(ca, name string, address netip.Addr, kube *kubernetes.Cluster, network bool) *Member {
	cluster := &Cluster{ID: newID(), Kubernetes: kube, clusters: c, ca: ca, network: network}
	member := &Member{Cluster: cluster, ID: newID(), name: name, address: address}

	cluster.members = []*Member{member}
	c.all = append(c.all, cluster)

	return member
}

// Former makes the cluster that old data belongs to, of this Kubernetes: of this one member, or, if it is lost, with
// others that are gone for good.
func (c *Clusters) Former(name string, address netip.Addr, lost bool, version string) *Member {
	c.mu.Lock()
	defer c.mu.Unlock()

	member := c.add("", name, address, kubernetes.NewCluster(kubernetes.Options{Version: version}), true)
	member.startedOnce = true

	if lost {
		for _, gone := range []string{"former-1", "former-2"} {
			member.Cluster.members = append(member.Cluster.members,
				&Member{Cluster: member.Cluster, ID: newID(), name: gone, startedOnce: true})
		}
	}

	return member
}

// Len counts the clusters.
func (c *Clusters) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return len(c.all)
}

// InstallCNI gives the nodes of every cluster a CNI.
func (c *Clusters) InstallCNI() {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, cluster := range c.all {
		cluster.network = true
		cluster.Kubernetes.InstallCNI()
	}
}

// RequestDeprecated notes in every cluster that somebody has used a deprecated API of Kubernetes.
func (c *Clusters) RequestDeprecated(api kubernetes.DeprecatedAPI) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, cluster := range c.all {
		cluster.Kubernetes.RequestDeprecated(api)
	}
}

// errUnreachable is why a node can't join: nobody answers who has a quorum.
var errUnreachable = errors.New("error getting etcd member list: context deadline exceeded")

// Join makes a node a learner of the cluster with this CA that it can reach.
func (c *Clusters) Join(ca, name string, address netip.Addr, reach Reach) (*Member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	cluster := c.find(ca, reach, (*Cluster).quorum)
	if cluster == nil {
		return nil, errUnreachable
	}

	// A member without data: etcd would refuse it, so it is replaced, as Talos does for its own stale entry.
	if i := slices.IndexFunc(cluster.members, func(m *Member) bool { return m.name == name }); i >= 0 {
		cluster.members = slices.Delete(cluster.members, i, i+1)
	}

	if slices.ContainsFunc(cluster.members, func(m *Member) bool { return m.learner }) {
		return nil, errors.New("error adding member: etcdserver: too many learner members in cluster")
	}

	member := &Member{Cluster: cluster, ID: newID(), name: name, address: address, learner: true}
	cluster.members = append(cluster.members, member)

	return member, nil
}

// Find is the cluster with this CA that can be reached; nil if there is none.
func (c *Clusters) Find(ca string, reach Reach) *Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.find(ca, reach, func(*Cluster) bool { return true })
}

// find needs mu.
func (c *Clusters) find(ca string, reach Reach, fits func(*Cluster) bool) *Cluster {
	for _, cluster := range c.all {
		if cluster.ca == ca && fits(cluster) && slices.ContainsFunc(cluster.members, reach.has) {
			return cluster
		}
	}

	return nil
}

// has reports whether a running member can be asked. Needs Clusters.mu.
func (r Reach) has(member *Member) bool {
	return member.host != nil &&
		(slices.Contains(r.Addresses, member.address) || slices.Contains(r.Hosts, member.host))
}

// On is the member that a host runs; nil if there is none.
func (c *Clusters) On(host Host) *Member {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, cluster := range c.all {
		for _, member := range cluster.members {
			if member.host == host {
				return member
			}
		}
	}

	return nil
}
