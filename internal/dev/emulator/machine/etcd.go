package machine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
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

// EtcdCluster is one etcd cluster that exists or once existed. All of it is guarded by Lab.mu.
type EtcdCluster struct {
	id      uint64
	ca      string // the etcd CA's certificate: members of one cluster share it
	Members []*etcdMember
	kube    *kubernetes.Cluster
	network bool // nodes have a CNI
	Leader  uint64
}

// etcdMember is one member. Guarded by Lab.mu.
type etcdMember struct {
	Cluster *EtcdCluster
	ID      uint64
	Name    string
	address netip.Addr
	Learner bool
	Boot    *Boot // the boot that runs it; nil while it is down
	// startedOnce is set when the member ran for the first time: until then the cluster knows no name for it.
	startedOnce bool
}

// Quorum reports whether enough voters run. Needs Lab.mu.
func (c *EtcdCluster) Quorum() bool {
	voters, up := 0, 0

	for _, member := range c.Members {
		if !member.Learner {
			voters++

			if member.Boot != nil {
				up++
			}
		}
	}

	return up > voters/2
}

// elect settles the leader and tells Kubernetes whether it can work. Needs Lab.mu.
func (c *EtcdCluster) elect() {
	if !c.Quorum() {
		c.Leader = 0
		c.kube.Available(false)

		return
	}

	c.kube.Available(true)

	for _, member := range c.Members {
		if member.ID == c.Leader && member.Boot != nil {
			return
		}
	}

	for _, member := range c.Members {
		if !member.Learner && member.Boot != nil {
			c.Leader = member.ID

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
	if member := n.ReadDrive().Etcd; member != nil {
		return member.Cluster.id
	}

	return 0
}

// EtcdMemberID is the machine's id in its etcd cluster; 0 if it has no etcd data.
func (n *Node) EtcdMemberID() uint64 {
	if member := n.ReadDrive().Etcd; member != nil {
		return member.ID
	}

	return 0
}

// EtcdVoter reports whether the machine is a full member of an etcd cluster with quorum, and runs.
func (n *Node) EtcdVoter() bool {
	member := n.ReadDrive().Etcd
	if member == nil {
		return false
	}

	n.Lab.mu.Lock()
	defer n.Lab.mu.Unlock()

	return member.Boot != nil && !member.Learner && member.Cluster.Quorum()
}

func newEtcdID() uint64 { return rand.Uint64() | 1 } //nolint:gosec // an id, no secret

// newEtcdCluster makes a cluster of one member. Needs Lab.mu.
func (l *Lab) newEtcdCluster(ca, name string, address netip.Addr, options kubernetes.Options) *etcdMember {
	cluster := &EtcdCluster{id: newEtcdID(), ca: ca, kube: kubernetes.NewCluster(options),
		network: options.CNI != constants.NoneCNI}
	member := &etcdMember{Cluster: cluster, ID: newEtcdID(), Name: name, address: address}

	cluster.Members = []*etcdMember{member}
	l.clusters = append(l.clusters, cluster)

	return member
}

// formerEtcd makes the cluster that a machine's old etcd data belongs to. The lab must be locked.
func (l *Lab) formerEtcd(node *Node, kind EtcdData) *etcdMember {
	member := l.newEtcdCluster("", node.options.Name, node.options.Address, kubernetes.Options{})
	member.startedOnce = true

	if kind == LostEtcdData {
		for _, gone := range []string{"former-1", "former-2"} {
			member.Cluster.Members = append(member.Cluster.Members,
				&etcdMember{Cluster: member.Cluster, ID: newEtcdID(), Name: gone, startedOnce: true})
		}
	}

	return member
}

// etcdRun is the etcd service of a boot. Guarded by boot.mu.
type etcdRun struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
	EtcdStart
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

// EtcdStart is what a service of etcd is to begin with.
type EtcdStart struct {
	// Bootstrap makes a cluster of its own.
	Bootstrap bool
	// Recover makes it from the snapshot that the node was sent, even, with skipHash, from one without a hash of its own.
	Recover, SkipHash bool
}

var errBootstrapRequested = errors.New("bootstrap requested")

// etcdService is etcd on a node.
type etcdService struct {
	boot *Boot

	// bootstrapping is held while etcd is replaced.
	bootstrapping sync.Mutex
	run           etcdRun // guarded by boot.mu
}

// start starts the service in a goroutine.
func (e *etcdService) start(start EtcdStart) {
	ctx, cancel := context.WithCancelCause(e.boot.Stopped)
	done := make(chan struct{})

	e.boot.mu.Lock()
	e.run = etcdRun{cancel: cancel, done: done, EtcdStart: start}
	e.boot.mu.Unlock()

	e.boot.Services.reset(serviceEtcd)
	e.boot.Services.set(serviceEtcd, stateStarting, "Starting service")

	e.boot.Tasks.Go(func() {
		defer close(done)
		defer cancel(nil)

		if err := e.live(ctx, start); err != nil && ctx.Err() == nil {
			e.boot.Services.set(serviceEtcd, stateFailed, err.Error())
		}

		e.down()
	})
}

// live is the service's life: its waits, joining or making a cluster, and its health from then on.
func (e *etcdService) live(ctx context.Context, start EtcdStart) error {
	if err := e.awaitConditions(ctx); err != nil {
		return err
	}

	e.boot.Services.set(serviceEtcd, statePreparing, "Running pre state")

	if err := e.boot.Node.changed.Until(ctx, func() bool { return !e.boot.Node.Faults().EtcdImage }); err != nil {
		return err
	}

	member, err := e.data(ctx, start)
	if err != nil {
		return err
	}

	e.boot.Services.set(serviceEtcd, statePreparing, "Creating service runner")

	e.boot.mu.Lock()
	e.run.started = true
	e.boot.mu.Unlock()

	e.boot.Services.set(serviceEtcd, StateRunning, e.boot.Services.startedMessage(serviceEtcd))

	if member == nil || e.joins(member) {
		if err := e.boot.Sleep(ctx, e.boot.Node.options.Timing.EtcdData); err != nil {
			return err
		}
	}

	if member == nil {
		member = e.makeCluster()
	}

	e.up(member)

	if err := e.boot.Sleep(ctx, e.boot.Node.options.Timing.EtcdStart); err != nil {
		return err
	}

	if err := e.promote(ctx, member); err != nil {
		return err
	}

	return e.watch(ctx, member)
}

// data is the member whose data etcd starts with: what is on the disk, a snapshot's, or that of a cluster that it
// joins. It is nil for a cluster that is made without any. A node of the type init, which Talos no longer generates,
// makes one by itself.
func (e *etcdService) data(ctx context.Context, start EtcdStart) (*etcdMember, error) {
	if start.Recover {
		return e.recoverData(start.SkipHash)
	}

	member := e.boot.Node.ReadDrive().Etcd
	if member != nil || start.Bootstrap || e.boot.Config.Role() == machine.TypeInit {
		return member, nil
	}

	return e.join(ctx)
}

// joins reports whether a member has a place in its cluster but never ran.
func (e *etcdService) joins(member *etcdMember) bool {
	e.boot.Node.Lab.mu.Lock()
	defer e.boot.Node.Lab.mu.Unlock()

	return member.Learner && !member.startedOnce
}

// awaitConditions shows the shrinking list of what the service waits for. It begins with all of it, whatever is
// there already.
func (e *etcdService) awaitConditions(ctx context.Context) error {
	shown := etcdConditions(true, true, true)
	e.boot.Services.set(serviceEtcd, stateWaiting, "Waiting for "+shown)

	return e.boot.changed.Until(ctx, func() bool {
		waiting := e.waitingFor()
		if waiting != "" && waiting != shown {
			shown = waiting

			e.boot.Services.set(serviceEtcd, stateWaiting, "Waiting for "+waiting)
		}

		return waiting == ""
	})
}

// waitingFor are the conditions that do not hold yet.
func (e *etcdService) waitingFor() string {
	return etcdConditions(!e.boot.Services.Up(ServiceCRI), !e.boot.Synced(), e.boot.Config.Hostname() == "")
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

// join tries to become a member of the cluster that the endpoints know, until it succeeds or gives up.
func (e *etcdService) join(ctx context.Context) (*etcdMember, error) {
	deadline := e.boot.Now().Add(e.boot.Node.options.Timing.EtcdJoinLimit)
	nag := e.boot.Now()

	for {
		member, err := e.tryJoin()
		if err == nil {
			e.boot.Node.EditDrive(func(d *Drive) { d.Etcd = member })

			return member, nil
		}

		if e.boot.Now().After(deadline) {
			return nil, fmt.Errorf("Failed to run pre stage: failed to build initial etcd cluster: %w", err) //nolint:staticcheck // Talos' own text
		}

		if !e.boot.Now().Before(nag) {
			nag = e.boot.Now().Add(etcdNagInterval)

			e.boot.Log("etcd is waiting to join the cluster, if this node is the first node in the cluster, please run " +
				"`talosctl bootstrap` against one of the following IPs:")
			e.boot.Log("%s", e.boot.Addresses())
		}

		if err := e.boot.Sleep(ctx, etcdJoinInterval); err != nil {
			return nil, err
		}
	}
}

// tryJoin asks the control planes that the node knows of to add it as a learner.
func (e *etcdService) tryJoin() (*etcdMember, error) {
	if e.boot.Node.Faults().EtcdNever {
		return nil, errors.New("error getting etcd member list: context deadline exceeded")
	}

	ca := e.ca()
	endpoints := e.boot.Members.controlPlaneEndpoints()
	lab := e.boot.Node.Lab

	if len(endpoints) == 0 {
		return nil, ErrNoEndpoints
	}

	name := e.boot.Config.Hostname()

	lab.mu.Lock()
	defer lab.mu.Unlock()

	for _, cluster := range lab.clusters {
		if cluster.ca != ca || !cluster.Quorum() || !cluster.reachable(lab, endpoints) {
			continue
		}

		if i := slices.IndexFunc(cluster.Members, func(m *etcdMember) bool { return m.Name == name }); i >= 0 {
			// A member without data: etcd would refuse it, so it is replaced, as Talos does for its own stale entry.
			cluster.Members = slices.Delete(cluster.Members, i, i+1)
		}

		if slices.ContainsFunc(cluster.Members, func(m *etcdMember) bool { return m.Learner }) {
			return nil, errors.New("error adding member: etcdserver: too many learner members in cluster")
		}

		member := &etcdMember{Cluster: cluster, ID: newEtcdID(), Name: name, address: e.boot.Node.Address(),
			Learner: true}
		cluster.Members = append(cluster.Members, member)

		return member, nil
	}

	return nil, errors.New("error getting etcd member list: context deadline exceeded")
}

// reachable reports whether one of the endpoints leads to a running member. Needs Lab.mu.
func (c *EtcdCluster) reachable(lab *Lab, endpoints []netip.Addr) bool {
	for _, member := range c.Members {
		if member.Boot == nil {
			continue
		}

		for _, endpoint := range endpoints {
			if member.address == endpoint || lab.holders[endpoint] == member.Boot {
				return true
			}
		}
	}

	return false
}

// makeCluster is what a bootstrapped etcd does first.
func (e *etcdService) makeCluster() *etcdMember {
	lab := e.boot.Node.Lab
	options := e.boot.controlPlane.options()

	lab.mu.Lock()
	member := lab.newEtcdCluster(e.ca(), e.boot.Config.Hostname(), e.boot.Node.Address(), options)
	lab.mu.Unlock()

	e.boot.Node.EditDrive(func(d *Drive) { d.Etcd = member })

	return member
}

// up makes the member a running one.
func (e *etcdService) up(member *etcdMember) {
	lab := e.boot.Node.Lab

	lab.mu.Lock()
	member.Boot, member.startedOnce = e.boot, true
	member.address = e.boot.Node.Address()

	if member.Cluster.ca == "" {
		member.Cluster.ca = e.ca()
	}

	member.Cluster.elect()
	lab.mu.Unlock()

	lab.changed.Raise()
	e.boot.Resources.showEtcdMember(member.ID)
}

// down takes the member out of its cluster's running ones.
func (e *etcdService) down() {
	member := e.boot.Node.ReadDrive().Etcd
	if member == nil {
		return
	}

	lab := e.boot.Node.Lab

	lab.mu.Lock()
	if member.Boot == e.boot {
		member.Boot = nil
		member.Cluster.elect()
	}
	lab.mu.Unlock()

	lab.changed.Raise()
}

// promote makes a learner a voter, after the time it takes to catch up.
func (e *etcdService) promote(ctx context.Context, member *etcdMember) error {
	lab := e.boot.Node.Lab

	lab.mu.Lock()
	learner := member.Learner
	lab.mu.Unlock()

	if !learner {
		return nil
	}

	if err := e.boot.Sleep(ctx, e.boot.Node.options.Timing.EtcdJoin+e.boot.Node.Faults().EtcdJoin); err != nil {
		return err
	}

	return lab.changed.Until(ctx, func() bool {
		lab.mu.Lock()
		defer lab.mu.Unlock()

		if !member.Cluster.Quorum() {
			return false
		}

		member.Learner = false
		member.Cluster.elect()

		return true
	})
}

// watch keeps the service's health what the cluster's quorum makes it.
func (e *etcdService) watch(ctx context.Context, member *etcdMember) error {
	lab := e.boot.Node.Lab
	lab.changed.Raise()

	e.boot.Tasks.Go(func() { e.boot.controlPlane.run(ctx, member.Cluster) })

	for {
		changed := lab.changed.Wait()

		if e.healthy(member) {
			e.boot.Services.setHealth(serviceEtcd, true, "")
		} else {
			e.boot.Services.setHealth(serviceEtcd, false, "context deadline exceeded")
		}

		e.boot.controlPlane.claimVIPs(member)

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

func (e *etcdService) healthy(member *etcdMember) bool {
	if e.boot.Node.Faults().EtcdUnhealthy {
		return false
	}

	e.boot.Node.Lab.mu.Lock()
	defer e.boot.Node.Lab.mu.Unlock()

	return member.Boot == e.boot && !member.Learner && member.Cluster.Quorum()
}

// stop stops the service and waits for it.
func (e *etcdService) stop(cause error) {
	e.boot.mu.Lock()
	run := e.run
	e.boot.mu.Unlock()

	if run.cancel == nil {
		return
	}

	run.cancel(cause)
	<-run.done
}

// loseData takes the node's etcd, Kubernetes API and virtual addresses off the network.
func (e *etcdService) loseData() {
	e.stop(errPowerCut)
	e.boot.controlPlane.releaseVIPs()
	e.boot.Kubelet.leave()
}

// ca is the certificate of the config's etcd CA; empty on workers.
func (e *etcdService) ca() string {
	config := e.boot.Config.Active()
	if config == nil || config.Cluster().Etcd().CA() == nil {
		return ""
	}

	return string(config.Cluster().Etcd().CA().Crt)
}
