package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/etcd"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// Intervals of the etcd service, in node time.
const (
	etcdJoinInterval = 3 * time.Second  // between two attempts to join
	etcdNagInterval  = 30 * time.Second // between two lines that ask for a bootstrap
)

// EtcdClusters counts the distinct etcd clusters that were ever made in this lab.
func (l *Lab) EtcdClusters() int { return l.etcd.Len() }

// EtcdClusterID is the id of the etcd cluster that the machine's data belongs to; 0 if it has none.
func (n *Node) EtcdClusterID() uint64 {
	if member := n.ReadDrive().Etcd; member != nil {
		return member.Cluster.ID
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

// EtcdMembers are the ids of all members of the machine's etcd cluster; nil if it has no etcd data.
func (n *Node) EtcdMembers() []uint64 {
	member := n.ReadDrive().Etcd
	if member == nil {
		return nil
	}

	var ids []uint64
	for _, other := range member.Cluster.Members() {
		ids = append(ids, other.GetId())
	}

	return ids
}

// EtcdVoter reports whether the machine is a full member of an etcd cluster with quorum, and runs.
func (n *Node) EtcdVoter() bool {
	member := n.ReadDrive().Etcd

	return member != nil && member.Votes()
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

// Wanted reports whether the machine config has what etcd needs. Up to Talos 1.13 it always runs on control planes.
func (e *etcdService) Wanted() bool { return !e.boot.Release.OptionalParts || e.ca() != "" }

// start starts the service in a goroutine.
func (e *etcdService) start(start EtcdStart) {
	ctx, cancel := context.WithCancelCause(e.boot.Stopped)
	done := make(chan struct{})

	e.boot.mu.Lock()
	e.run = etcdRun{cancel: cancel, done: done, EtcdStart: start}
	e.boot.mu.Unlock()

	e.boot.Services.Reset(service.Etcd)
	e.boot.Services.Set(service.Etcd, service.Starting, "Starting service")

	e.boot.Tasks.Go(func() {
		defer close(done)
		defer cancel(nil)

		if err := e.live(ctx, start); err != nil && ctx.Err() == nil {
			e.boot.Services.Set(service.Etcd, service.Failed, err.Error())
		}

		e.down()
	})
}

// live is the service's life: its waits, joining or making a cluster, and its health from then on.
func (e *etcdService) live(ctx context.Context, start EtcdStart) error {
	if err := e.awaitConditions(ctx); err != nil {
		return err
	}

	e.boot.Services.Set(service.Etcd, service.Preparing, "Running pre state")

	if e.boot.Node.Faults().EtcdImage {
		e.boot.Log("retrying error: failed to pull image %q: failed to resolve reference: not found", "registry.k8s.io/etcd")
	}

	if err := e.boot.Node.changed.Until(ctx, func() bool { return !e.boot.Node.Faults().EtcdImage }); err != nil {
		return err
	}

	member, err := e.data(ctx, start)
	if err != nil {
		return err
	}

	e.boot.Services.Set(service.Etcd, service.Preparing, "Creating service runner")

	e.boot.mu.Lock()
	e.run.started = true
	e.boot.mu.Unlock()

	e.boot.Services.Set(service.Etcd, service.Running, e.boot.Services.StartedMessage(service.Etcd))

	if member != nil && member.Removed() {
		return e.exit(ctx)
	}

	if member == nil || member.Joins() {
		if err := e.boot.Sleep(ctx, e.boot.Node.options.Timing.EtcdData); err != nil {
			return err
		}
	}

	if member == nil {
		member = e.makeCluster()
	}

	e.up(member)
	e.boot.Tasks.Go(func() { e.promote(ctx, member) })

	if err := e.boot.Sleep(ctx, e.boot.Node.options.Timing.EtcdStart); err != nil {
		return err
	}

	return e.watch(ctx, member)
}

// exit is an etcd that finds itself removed from its cluster: it ends, and is started again for ever.
func (e *etcdService) exit(ctx context.Context) error {
	e.boot.Services.Set(service.Etcd, service.Waiting, `Error running Containerd(etcd), going to restart forever: task `+
		`"etcd" failed: exit code 1 (last log "the member has been permanently removed from the cluster")`)

	<-ctx.Done()

	return context.Cause(ctx)
}

// data is the member whose data etcd starts with: what is on the disk, a snapshot's, or that of a cluster that it
// joins. It is nil for a cluster that is made without any. A node of the type init, which Talos no longer generates,
// makes one by itself.
func (e *etcdService) data(ctx context.Context, start EtcdStart) (*etcd.Member, error) {
	if start.Recover {
		return e.recoverData(start.SkipHash)
	}

	member := e.boot.Node.ReadDrive().Etcd
	if member != nil || start.Bootstrap || e.boot.Config.Role() == machine.TypeInit {
		return member, nil
	}

	return e.join(ctx)
}

// awaitConditions shows the shrinking list of what the service waits for. It begins with all of it, whatever is
// there already.
func (e *etcdService) awaitConditions(ctx context.Context) error {
	shown := etcdConditions(true, true, true)
	e.boot.Services.Set(service.Etcd, service.Waiting, "Waiting for "+shown)

	return e.boot.changed.Until(ctx, func() bool {
		waiting := e.waitingFor()
		if waiting != "" && waiting != shown {
			shown = waiting

			e.boot.Services.Set(service.Etcd, service.Waiting, "Waiting for "+waiting)
		}

		return waiting == ""
	})
}

// waitingFor are the conditions that do not hold yet.
func (e *etcdService) waitingFor() string {
	return etcdConditions(!e.boot.Services.Up(service.CRI), !e.boot.Synced(), e.boot.Config.Hostname() == "")
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
func (e *etcdService) join(ctx context.Context) (*etcd.Member, error) {
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
func (e *etcdService) tryJoin() (*etcd.Member, error) {
	if e.boot.Node.Faults().EtcdNever {
		return nil, errors.New("error getting etcd member list: context deadline exceeded")
	}

	reach := e.reach()
	if len(reach.Addresses) == 0 {
		return nil, ErrNoEndpoints
	}

	return e.boot.Node.Lab.etcd.Join(e.ca(), e.boot.Config.Hostname(), e.boot.Node.Address(), reach)
}

// makeCluster is what a bootstrapped etcd does first.
func (e *etcdService) makeCluster() *etcd.Member {
	member := e.boot.Node.Lab.etcd.New(e.ca(), e.boot.Config.Hostname(), e.boot.Node.Address(),
		e.boot.controlPlane.options())

	e.boot.Node.EditDrive(func(d *Drive) { d.Etcd = member })

	return member
}

// up makes the member a running one.
func (e *etcdService) up(member *etcd.Member) {
	member.Start(e.boot, e.boot.Node.Address(), e.ca())
	e.boot.Node.Lab.changed.Raise()
	e.boot.Resources.showEtcdMember(member.ID)
}

// down takes the member out of its cluster's running ones.
func (e *etcdService) down() {
	if member := e.Local(); member != nil { // whatever is left on the disk
		member.Stop(e.boot)
		e.boot.Node.Lab.changed.Raise()
	}
}

// promote makes a learner a voter once it has caught up.
func (e *etcdService) promote(ctx context.Context, member *etcd.Member) {
	member.AwaitPromotion(ctx, e.boot, func() time.Duration {
		return e.boot.Node.options.Timing.EtcdJoin + e.boot.Node.Faults().EtcdJoin
	})

	e.boot.Node.Lab.changed.Raise()
}

// watch keeps the service's health what the cluster's quorum makes it.
func (e *etcdService) watch(ctx context.Context, member *etcd.Member) error {
	lab := e.boot.Node.Lab
	lab.changed.Raise()

	e.boot.Tasks.Go(func() { e.boot.controlPlane.run(ctx, member.Cluster) })

	for {
		changed := lab.changed.Wait()

		switch {
		case e.healthy(member):
			e.boot.Services.SetHealth(service.Etcd, true, "")
		case member.Learner():
			e.boot.Services.SetHealth(service.Etcd, false, "etcdserver: rpc not supported for learner")
		default:
			e.boot.Services.SetHealth(service.Etcd, false, "context deadline exceeded")
		}

		e.boot.controlPlane.claimVIPs(member)

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

func (e *etcdService) healthy(member *etcd.Member) bool {
	return !e.boot.Node.Faults().EtcdUnhealthy && member.VotesOn(e.boot)
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
