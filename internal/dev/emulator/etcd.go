package emulator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
)

// Intervals of the etcd service, in node time.
const (
	etcdJoinInterval = 3 * time.Second  // between two attempts to join
	etcdNagInterval  = 30 * time.Second // between two lines that ask for a bootstrap
)

// etcdCluster is one etcd cluster that exists or once existed. All of it is guarded by Lab.mu.
type etcdCluster struct {
	id      uint64
	ca      string // the etcd CA's certificate: members of one cluster share it
	members []*etcdMember
	kube    *kubernetes.Cluster
	network bool // nodes have a CNI
	leader  uint64
}

// etcdMember is one member. Guarded by Lab.mu.
type etcdMember struct {
	cluster *etcdCluster
	id      uint64
	name    string
	address netip.Addr
	learner bool
	boot    *boot // the boot that runs it; nil while it is down
	// startedOnce is set when the member ran for the first time: until then the cluster knows no name for it.
	startedOnce bool
}

// quorum reports whether enough voters run. Needs Lab.mu.
func (c *etcdCluster) quorum() bool {
	voters, up := 0, 0

	for _, member := range c.members {
		if !member.learner {
			voters++

			if member.boot != nil {
				up++
			}
		}
	}

	return up > voters/2
}

// elect settles the leader and tells Kubernetes whether it can work. Needs Lab.mu.
func (c *etcdCluster) elect() {
	if !c.quorum() {
		c.leader = 0
		c.kube.Available(false)

		return
	}

	c.kube.Available(true)

	for _, member := range c.members {
		if member.id == c.leader && member.boot != nil {
			return
		}
	}

	for _, member := range c.members {
		if !member.learner && member.boot != nil {
			c.leader = member.id

			return
		}
	}
}

// EtcdClusters counts the distinct etcd clusters that were ever made in this lab.
func (l *Lab) EtcdClusters() int {
	l.mu.Lock()
	defer l.mu.Unlock()

	return len(l.clusters)
}

// EtcdClusterID is the id of the etcd cluster that the machine's data belongs to; 0 if it has none.
func (n *Node) EtcdClusterID() uint64 {
	if member := n.readDrive().etcd; member != nil {
		return member.cluster.id
	}

	return 0
}

// EtcdMemberID is the machine's id in its etcd cluster; 0 if it has no etcd data.
func (n *Node) EtcdMemberID() uint64 {
	if member := n.readDrive().etcd; member != nil {
		return member.id
	}

	return 0
}

// EtcdVoter reports whether the machine is a full member of an etcd cluster with quorum, and runs.
func (n *Node) EtcdVoter() bool {
	member := n.readDrive().etcd
	if member == nil {
		return false
	}

	n.lab.mu.Lock()
	defer n.lab.mu.Unlock()

	return member.boot != nil && !member.learner && member.cluster.quorum()
}

func newEtcdID() uint64 { return rand.Uint64() | 1 } //nolint:gosec // an id, no secret

// newEtcdCluster makes a cluster of one member. Needs Lab.mu.
func (l *Lab) newEtcdCluster(ca, name string, address netip.Addr, options kubernetes.Options) *etcdMember {
	cluster := &etcdCluster{id: newEtcdID(), ca: ca, kube: kubernetes.NewCluster(options),
		network: options.CNI != constants.NoneCNI}
	member := &etcdMember{cluster: cluster, id: newEtcdID(), name: name, address: address}

	cluster.members = []*etcdMember{member}
	l.clusters = append(l.clusters, cluster)

	return member
}

// formerEtcd makes the cluster that a machine's old etcd data belongs to. The lab must be locked.
func (l *Lab) formerEtcd(node *Node, kind EtcdData) *etcdMember {
	member := l.newEtcdCluster("", node.options.Name, node.options.Address, kubernetes.Options{})
	member.startedOnce = true

	if kind == LostEtcdData {
		for _, gone := range []string{"former-1", "former-2"} {
			member.cluster.members = append(member.cluster.members,
				&etcdMember{cluster: member.cluster, id: newEtcdID(), name: gone, startedOnce: true})
		}
	}

	return member
}

// etcdRun is the etcd service of a boot. Guarded by boot.mu.
type etcdRun struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
	etcdStart
	// started is set once the service has left its waits: stopping it then can leave data behind.
	started bool
}

// over reports whether the service has ended, or was never started.
func (r etcdRun) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return r.done == nil
	}
}

// etcdStart is what a service of etcd is to begin with.
type etcdStart struct {
	// bootstrap makes a cluster of its own.
	bootstrap bool
	// recover makes it from the snapshot that the node was sent, even, with skipHash, from one without a hash of its own.
	recover, skipHash bool
}

var errBootstrapRequested = errors.New("bootstrap requested")

// startEtcd starts the service in a goroutine.
func (b *boot) startEtcd(start etcdStart) {
	ctx, cancel := context.WithCancelCause(b.stopped)
	done := make(chan struct{})

	b.mu.Lock()
	b.etcd = etcdRun{cancel: cancel, done: done, etcdStart: start}
	b.mu.Unlock()

	b.resetService(serviceEtcd)
	b.setService(serviceEtcd, stateStarting, "Starting service")

	b.tasks.Go(func() {
		defer close(done)
		defer cancel(nil)

		if err := b.runEtcd(ctx, start); err != nil && ctx.Err() == nil {
			b.setService(serviceEtcd, stateFailed, err.Error())
		}

		b.etcdDown()
	})
}

// runEtcd is the service's life: its waits, joining or making a cluster, and its health from then on.
func (b *boot) runEtcd(ctx context.Context, start etcdStart) error {
	if err := b.awaitEtcdConditions(ctx); err != nil {
		return err
	}

	b.setService(serviceEtcd, statePreparing, "Running pre state")

	if err := b.node.changed.until(ctx, func() bool { return !b.node.Faults().EtcdImage }); err != nil {
		return err
	}

	member, err := b.etcdData(ctx, start)
	if err != nil {
		return err
	}

	b.setService(serviceEtcd, statePreparing, "Creating service runner")

	b.mu.Lock()
	b.etcd.started = true
	b.mu.Unlock()

	b.setService(serviceEtcd, stateRunning, b.startedMessage(serviceEtcd))

	if member == nil || b.etcdJoins(member) {
		if err := b.sleep(ctx, b.node.options.Timing.EtcdData); err != nil {
			return err
		}
	}

	if member == nil {
		member = b.makeEtcdCluster()
	}

	b.etcdUp(member)

	if err := b.sleep(ctx, b.node.options.Timing.EtcdStart); err != nil {
		return err
	}

	if err := b.promoteEtcd(ctx, member); err != nil {
		return err
	}

	return b.watchEtcd(ctx, member)
}

// etcdData is the member whose data etcd starts with: what is on the disk, a snapshot's, or that of a cluster that it
// joins. It is nil for a cluster that is made without any. A node of the type init, which Talos no longer generates,
// makes one by itself.
func (b *boot) etcdData(ctx context.Context, start etcdStart) (*etcdMember, error) {
	if start.recover {
		return b.recoverEtcd(start.skipHash)
	}

	if member := b.node.readDrive().etcd; member != nil || start.bootstrap || b.role() == machine.TypeInit {
		return member, nil
	}

	return b.joinEtcd(ctx)
}

// etcdJoins reports whether a member has a place in its cluster but never ran.
func (b *boot) etcdJoins(member *etcdMember) bool {
	b.node.lab.mu.Lock()
	defer b.node.lab.mu.Unlock()

	return member.learner && !member.startedOnce
}

// awaitEtcdConditions shows the shrinking list of what the service waits for. It begins with all of it, whatever is
// there already.
func (b *boot) awaitEtcdConditions(ctx context.Context) error {
	shown := etcdConditions(true, true, true)
	b.setService(serviceEtcd, stateWaiting, "Waiting for "+shown)

	return b.changed.until(ctx, func() bool {
		waiting := b.etcdProblems()
		if waiting != "" && waiting != shown {
			shown = waiting

			b.setService(serviceEtcd, stateWaiting, "Waiting for "+waiting)
		}

		return waiting == ""
	})
}

// etcdProblems are the conditions that do not hold yet.
func (b *boot) etcdProblems() string {
	return etcdConditions(!b.serviceUp(serviceCRI), !b.synced(), b.hostname() == "")
}

func etcdConditions(volumes, clock, network bool) string {
	var conditions []string

	if volumes {
		conditions = append(conditions, `volumes /var/lib, ETCD to be mounted, service "cri" to be "up"`)
	}

	if clock {
		conditions = append(conditions, "time sync")
	}

	if network {
		conditions = append(conditions, "network", "etcd spec")
	}

	return strings.Join(conditions, ", ")
}

// joinEtcd tries to become a member of the cluster that the endpoints know, until it succeeds or gives up.
func (b *boot) joinEtcd(ctx context.Context) (*etcdMember, error) {
	deadline := b.now().Add(b.node.options.Timing.EtcdJoinLimit)
	nag := b.now()

	for {
		member, err := b.tryJoinEtcd()
		if err == nil {
			b.node.editDrive(func(d *drive) { d.etcd = member })

			return member, nil
		}

		if b.now().After(deadline) {
			return nil, fmt.Errorf("Failed to run pre stage: failed to build initial etcd cluster: %w", err) //nolint:staticcheck // Talos' own text
		}

		if !b.now().Before(nag) {
			nag = b.now().Add(etcdNagInterval)

			b.print("etcd is waiting to join the cluster, if this node is the first node in the cluster, please run " +
				"`talosctl bootstrap` against one of the following IPs:")
			b.print("%s", b.addresses())
		}

		if err := b.sleep(ctx, etcdJoinInterval); err != nil {
			return nil, err
		}
	}
}

// tryJoinEtcd asks the control planes that the node knows of to add it as a learner.
func (b *boot) tryJoinEtcd() (*etcdMember, error) {
	if b.node.Faults().EtcdNever {
		return nil, errors.New("error getting etcd member list: context deadline exceeded")
	}

	ca := b.etcdCA()
	endpoints := b.controlPlaneEndpoints()
	lab := b.node.lab

	if len(endpoints) == 0 {
		return nil, errNoEndpoints
	}

	lab.mu.Lock()
	defer lab.mu.Unlock()

	for _, cluster := range lab.clusters {
		if cluster.ca != ca || !cluster.quorum() || !cluster.reachable(lab, endpoints) {
			continue
		}

		if i := slices.IndexFunc(cluster.members, func(m *etcdMember) bool { return m.name == b.hostname() }); i >= 0 {
			// A member without data: etcd would refuse it, so it is replaced, as Talos does for its own stale entry.
			cluster.members = slices.Delete(cluster.members, i, i+1)
		}

		if slices.ContainsFunc(cluster.members, func(m *etcdMember) bool { return m.learner }) {
			return nil, errors.New("error adding member: etcdserver: too many learner members in cluster")
		}

		member := &etcdMember{cluster: cluster, id: newEtcdID(), name: b.hostname(), address: b.node.Address(), learner: true}
		cluster.members = append(cluster.members, member)

		return member, nil
	}

	return nil, errors.New("error getting etcd member list: context deadline exceeded")
}

// reachable reports whether one of the endpoints leads to a running member. Needs Lab.mu.
func (c *etcdCluster) reachable(lab *Lab, endpoints []netip.Addr) bool {
	for _, member := range c.members {
		if member.boot == nil {
			continue
		}

		for _, endpoint := range endpoints {
			if member.address == endpoint || lab.holders[endpoint] == member.boot {
				return true
			}
		}
	}

	return false
}

// makeEtcdCluster is what a bootstrapped etcd does first.
func (b *boot) makeEtcdCluster() *etcdMember {
	lab := b.node.lab
	options := b.kubernetesOptions()

	lab.mu.Lock()
	member := lab.newEtcdCluster(b.etcdCA(), b.hostname(), b.node.Address(), options)
	lab.mu.Unlock()

	b.node.editDrive(func(d *drive) { d.etcd = member })

	return member
}

// etcdUp makes the member a running one.
func (b *boot) etcdUp(member *etcdMember) {
	lab := b.node.lab

	lab.mu.Lock()
	member.boot, member.startedOnce = b, true
	member.address = b.node.Address()

	if member.cluster.ca == "" {
		member.cluster.ca = b.etcdCA()
	}

	member.cluster.elect()
	lab.mu.Unlock()

	lab.changed.raise()
	b.showEtcdMember(member.id)
}

// etcdDown takes the member out of its cluster's running ones.
func (b *boot) etcdDown() {
	member := b.node.readDrive().etcd
	if member == nil {
		return
	}

	lab := b.node.lab

	lab.mu.Lock()
	if member.boot == b {
		member.boot = nil
		member.cluster.elect()
	}
	lab.mu.Unlock()

	lab.changed.raise()
}

// promoteEtcd makes a learner a voter, after the time it takes to catch up.
func (b *boot) promoteEtcd(ctx context.Context, member *etcdMember) error {
	lab := b.node.lab

	lab.mu.Lock()
	learner := member.learner
	lab.mu.Unlock()

	if !learner {
		return nil
	}

	if err := b.sleep(ctx, b.node.options.Timing.EtcdJoin+b.node.Faults().EtcdJoin); err != nil {
		return err
	}

	return lab.changed.until(ctx, func() bool {
		lab.mu.Lock()
		defer lab.mu.Unlock()

		if !member.cluster.quorum() {
			return false
		}

		member.learner = false
		member.cluster.elect()

		return true
	})
}

// watchEtcd keeps the service's health what the cluster's quorum makes it.
func (b *boot) watchEtcd(ctx context.Context, member *etcdMember) error {
	lab := b.node.lab
	lab.changed.raise()

	b.tasks.Go(func() { b.runControlPlane(ctx, member.cluster) })

	for {
		changed := lab.changed.wait()

		if b.etcdHealthy(member) {
			b.setHealth(serviceEtcd, true, "")
		} else {
			b.setHealth(serviceEtcd, false, "context deadline exceeded")
		}

		b.claimVIPs(member)

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

func (b *boot) etcdHealthy(member *etcdMember) bool {
	if b.node.Faults().EtcdUnhealthy {
		return false
	}

	b.node.lab.mu.Lock()
	defer b.node.lab.mu.Unlock()

	return member.boot == b && !member.learner && member.cluster.quorum()
}

// stopEtcd stops the service and waits for it.
func (b *boot) stopEtcd(cause error) {
	b.mu.Lock()
	run := b.etcd
	b.mu.Unlock()

	if run.cancel == nil {
		return
	}

	run.cancel(cause)
	<-run.done
}

// leaveCluster takes the node's etcd, Kubernetes API and virtual addresses off the network.
func (b *boot) leaveCluster() {
	b.stopEtcd(errPowerCut)
	b.releaseVIPs()
	b.leaveKubernetes()
}

// etcdCA is the certificate of the config's etcd CA; empty on workers.
func (b *boot) etcdCA() string {
	config := b.activeConfig()
	if config == nil || config.Cluster().Etcd().CA() == nil {
		return ""
	}

	return string(config.Cluster().Etcd().CA().Crt)
}
