package emulator

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/google/uuid"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// errPowerCut is why everything in a boot ends that nobody ended in order.
var errPowerCut = errors.New("power cut")

// end is how a boot ends.
type end int

const (
	endReboot end = iota
	endPowerOff
	endPowerCut
)

// boot is one life of a machine, from power-on to reboot: its resources, services, events and API.
type boot struct {
	node *Node
	id   string // /proc/sys/kernel/random/boot_id
	// version is the Talos release that the boot runs: that of the machine, or what an upgrade put on its disk.
	version string
	release *release
	// started is when the boot began, in node time.
	started time.Time

	ctx    context.Context //nolint:containedctx // the boot's life, which no single call has
	cancel context.CancelCauseFunc
	// stopped is done when the services of the boot begin to stop.
	stopped context.Context //nolint:containedctx // as above
	stop    context.CancelFunc
	// workload is done before that, when those stop that need the system's data, and kubeletLife before all others.
	workload, kubeletLife    context.Context //nolint:containedctx // as above
	endWorkload, stopKubelet context.CancelFunc
	ended                    chan end
	tasks                    sync.WaitGroup

	state     state.CoreState // resources as they are
	resources state.State     // the same, for the node's own use
	events    *eventRing
	kernelLog *logBuffer

	// changed is raised at every change of what follows.
	changed signal
	apply   sync.Mutex // held by the running ApplyConfiguration
	// installing is held by the running call of the LifecycleService.
	installing sync.Mutex
	// bootstrapping is held while etcd is replaced.
	bootstrapping sync.Mutex
	pids          atomic.Int64
	trust         maintenanceTrust
	// lost is set while the boot is held because its machine is lost.
	lost atomic.Bool

	mu        sync.Mutex
	stage     runtimeres.MachineStage
	published statusText // the status that was last shown
	// toldFingerprint is the maintenance certificate's that the console told last.
	toldFingerprint string
	config          talosconfig.Provider
	persistent      talosconfig.Provider
	rollback        context.CancelFunc // of a running try
	rebooting       bool               // a reboot-mode apply was accepted
	received        bool               // a machine config was accepted in maintenance mode
	services        map[string]*service
	wereUp          map[string]bool // services that were up once, which is all that the boot sequence waits for
	serviceLogs     map[string]*logBuffer
	certificate     *apiCertificate // nil until the secure API has one
	timeSynced      bool
	addressed       bool // the network is up
	stopping        bool
	apid            bool               // the API of configured nodes can be served
	api             *apiServer         // the one that listens
	draining        *apiServer         // the one that waits for its open calls to end
	sequence        *sequence          // the one that runs
	restartKubelet  context.CancelFunc // nil before kubelet is started
	kubeletGone     chan struct{}      // closed at kubelet's end; nil before it is started
	etcd            etcdRun
	registered      *etcdCluster // where the node is registered
	pods            podPhase     // of the control plane
	images          map[string]storedImage
	withdrawn       talosconfig.Provider // a tried config that was taken back, when there was none before it
}

func newBoot(node *Node) *boot {
	version, release := node.bootedRelease()

	b := &boot{
		node:        node,
		id:          uuid.NewString(),
		version:     version,
		release:     release,
		ended:       make(chan end, 1),
		events:      &eventRing{},
		kernelLog:   &logBuffer{},
		services:    map[string]*service{},
		wereUp:      map[string]bool{},
		serviceLogs: map[string]*logBuffer{},
	}

	b.ctx, b.cancel = context.WithCancelCause(node.ctx)
	b.stopped, b.stop = context.WithCancel(b.ctx)
	b.workload, b.endWorkload = context.WithCancel(b.stopped)
	b.kubeletLife, b.stopKubelet = context.WithCancel(b.workload)
	b.started = b.now()
	b.pids.Store(1000)

	return b
}

// run lives the boot's life.
func (b *boot) run() end {
	var how end

	if err := b.prepare(); err != nil {
		b.print("failed to start: %s", err)

		return endPowerOff
	}

	b.tasks.Go(b.serveAPI)
	b.tasks.Go(b.syncTime)
	b.tasks.Go(b.main)

	select {
	case how = <-b.ended:
	case <-b.ctx.Done():
		how = endPowerCut
	}

	b.stop()
	b.cancel(errPowerCut)
	b.leaveCluster()
	b.tasks.Wait()
	b.leaveKubernetes() // if kubelet got there just then

	return how
}

// cut ends the boot without any of its farewells.
func (b *boot) cut(cause error) { b.cancel(cause) }

// finish ends the boot; the first call counts.
func (b *boot) finish(how end) {
	select {
	case b.ended <- how:
	default:
	}
}

// main goes through the sequences of a normal start.
func (b *boot) main() {
	if err := b.runSequence(b.ctx, seqInitialize, false, b.initializePhases()); err != nil {
		b.settle(seqInitialize, err)

		return
	}

	if !b.node.Installed() || b.node.readDrive().staged != "" {
		b.settle(seqInstall, b.runSequence(b.ctx, seqInstall, false, b.installPhases()))

		return
	}

	if !b.release.apidFirst {
		if err := b.startAPId(b.ctx); err != nil {
			return // the boot is over
		}
	}

	b.settle(seqBoot, b.runSequence(b.ctx, seqBoot, false, b.bootPhases()))
}

// startAPId starts what serves the API of configured nodes.
func (b *boot) startAPId(ctx context.Context) error {
	if err := b.runService(ctx, serviceAPId, 0); err != nil {
		return err
	}

	b.mu.Lock()
	b.apid = true
	b.mu.Unlock()

	b.notify()

	return nil
}

// powerOn is the time from power-on to the first service.
func (b *boot) powerOn(ctx context.Context) error { return b.sleep(ctx, b.node.options.Timing.Boot) }

// starts is a task that starts a service.
func (b *boot) starts(name, service string) task {
	return task{name, func(ctx context.Context) error { return b.runService(ctx, service, 0) }}
}

// mountEphemeral mounts the partition that Kubernetes and etcd keep their data on.
func (b *boot) mountEphemeral(ctx context.Context) error {
	if err := b.holdWhile(ctx, LostLink); err != nil {
		return err
	}

	if !b.node.Faults().BootLoop {
		return nil
	}

	if err := b.sleep(ctx, b.node.options.Timing.Containers); err != nil {
		return err
	}

	return errors.New("failed to wait for EPHEMERAL to be mounted: structure needs cleaning")
}

// bootUp starts Kubernetes' services and waits until every service is up.
func (b *boot) bootUp(ctx context.Context) error {
	timing := b.node.options.Timing
	role := b.role()

	b.setService(serviceKubelet, stateStarting, "Starting service")
	b.setService(serviceKubelet, stateWaiting, `Waiting for service "cri" to be "up", time sync, network`)

	if role.IsControlPlane() {
		b.tasks.Go(func() { b.runTrustd(b.workload) })
		b.startEtcd(etcdStart{})
	}

	if err := b.runService(ctx, serviceCRI, timing.Containers); err != nil {
		return err
	}

	b.startKubelet()
	b.tasks.Go(func() { b.followMembers(b.stopped) })

	required := []string{serviceKubelet}
	if role.IsControlPlane() {
		required = append(required, serviceEtcd, serviceTrustd)
	}

	limited, cancel := ctx, context.CancelFunc(func() {})
	if timing.BootLimit > 0 {
		limited, cancel = b.node.lab.clock.WithTimeout(ctx, timing.BootLimit)
	}
	defer cancel()

	err := b.changed.until(limited, func() bool {
		for _, id := range required {
			if !b.serviceWasUp(id) {
				return false
			}
		}

		return true
	})

	if err != nil && ctx.Err() == nil {
		return context.DeadlineExceeded
	}

	return err
}

// holdWhile holds the boot, off the network, while its machine is lost for this reason.
func (b *boot) holdWhile(ctx context.Context, loss Loss) error {
	lost := func() bool { return b.node.Faults().Lost == loss }
	if !lost() {
		return nil
	}

	// Who sent the config has to hear that it was taken.
	if err := b.changed.until(ctx, func() bool { return !b.inMaintenance() }); err != nil {
		return err
	}

	b.print("no network: %s", loss)
	b.lost.Store(true)
	b.node.applyNetworkFaults()

	err := b.node.changed.until(ctx, func() bool { return !lost() })

	b.lost.Store(false)
	b.node.applyNetworkFaults()

	return err
}

// startKubelet starts kubelet, which runs until endKubelet.
func (b *boot) startKubelet() {
	gone := make(chan struct{})

	b.mu.Lock()
	b.kubeletGone = gone
	b.mu.Unlock()

	b.tasks.Go(func() {
		defer close(gone)

		b.runKubelet(b.kubeletLife)
	})
}

// endKubelet ends kubelet and takes the node out of Kubernetes.
func (b *boot) endKubelet() {
	b.stopKubelet()

	b.mu.Lock()
	gone := b.kubeletGone
	b.mu.Unlock()

	if gone != nil {
		<-gone
	}

	b.leaveKubernetes()
}

// runKubelet keeps kubelet running; a restart ends one run and begins the next.
func (b *boot) runKubelet(ctx context.Context) {
	for {
		run, restart := context.WithCancel(ctx)

		b.mu.Lock()
		b.restartKubelet = restart
		b.mu.Unlock()

		b.kubelet(run)
		<-run.Done()
		restart()

		if ctx.Err() != nil {
			return
		}

		b.setService(serviceKubelet, stateStopping, "Sending SIGTERM to "+serviceKubelet)
		b.setService(serviceKubelet, stateFinished, "Service finished successfully")
		b.setService(serviceKubelet, stateStarting, "Starting service")
	}
}

// kubelet starts kubelet once what it waits for is there, and registers the node.
func (b *boot) kubelet(ctx context.Context) {
	if b.changed.until(ctx, func() bool { return b.synced() && b.hostname() != "" }) != nil {
		return
	}

	b.setService(serviceKubelet, statePreparing, "Running pre state")
	b.setService(serviceKubelet, statePreparing, "Creating service runner")

	if b.sleep(ctx, b.node.options.Timing.Kubelet) != nil {
		return
	}

	b.setService(serviceKubelet, stateRunning, b.startedMessage(serviceKubelet))

	down := func() bool { return b.node.Faults().KubeletDown }
	if down() {
		b.setHealth(serviceKubelet, false,
			`Get "http://127.0.0.1:10248/healthz": dial tcp 127.0.0.1:10248: connect: connection refused`)
	}

	if b.node.changed.until(ctx, func() bool { return !down() }) != nil {
		return
	}

	b.setHealth(serviceKubelet, true, "")

	if b.registers() {
		b.joinKubernetes(ctx)
	}
}

// syncTime is the node's time client.
func (b *boot) syncTime() {
	if b.sleep(b.ctx, b.node.options.Timing.TimeSync) != nil {
		return
	}

	synced := false

	for {
		changed := b.node.changed.wait()

		if now := !b.node.Faults().TimeUnsynced; now != synced {
			synced = now

			b.mu.Lock()
			b.timeSynced = now
			b.mu.Unlock()

			b.renewMaintenanceCertificate()
			b.showTime()
			b.refresh()
		}

		select {
		case <-b.ctx.Done():
			return
		case <-changed:
		}
	}
}

func (b *boot) synced() bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.timeSynced
}

// sleep waits in node time.
func (b *boot) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}

	return b.node.lab.clock.Sleep(ctx, d)
}

// now is the time by the machine's clock.
func (b *boot) now() time.Time { return b.node.lab.clock.Now().Add(b.node.Faults().ClockOffset) }

// wallNow dates certificates: a scaled clock would run ahead of the clients that check them.
func (b *boot) wallNow() time.Time { return time.Now().Add(b.node.Faults().ClockOffset) }

func (b *boot) nextPID() string { return strconv.FormatInt(b.pids.Add(7), 10) }

// activeConfig is the complete machine config that the node runs with; nil in maintenance mode.
func (b *boot) activeConfig() talosconfig.Provider {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.config == nil || !b.config.CompleteForBoot() {
		return nil
	}

	return b.config
}

// settings are the machine config that the services of the boot were started with: the active one, or one that was
// withdrawn under them.
func (b *boot) settings() talosconfig.Provider {
	if active := b.activeConfig(); active != nil {
		return active
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	return b.withdrawn
}

// inMaintenance reports whether the maintenance API listens, or still has open calls.
func (b *boot) inMaintenance() bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	return (b.api != nil && b.api.wish.kind == apiMaintenance) ||
		(b.draining != nil && b.draining.wish.kind == apiMaintenance)
}

func (b *boot) apiOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.api != nil
}

// role is the machine type; unknown in maintenance mode.
func (b *boot) role() machine.Type {
	if config := b.activeConfig(); config != nil {
		return config.Machine().Type()
	}

	return machine.TypeUnknown
}

func (b *boot) networkUp() {
	b.mu.Lock()
	b.addressed = true
	b.mu.Unlock()

	b.showNetwork()
	b.refresh()
}

// addresses are the node's own, virtual ones aside.
func (b *boot) addresses() []netip.Addr { return b.node.nic.ownAddresses() }
