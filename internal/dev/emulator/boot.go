package emulator

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/signal"
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

// boot is one life of a machine, from power-on to reboot. What it consists of are the parts below, each of which
// knows the boot and finds the others through it.
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
	// workload is done before that, when those stop that need the system's data.
	workload    context.Context //nolint:containedctx // as above
	endWorkload context.CancelFunc
	ended       chan end
	tasks       sync.WaitGroup

	events    *eventRing
	kernelLog *logBuffer
	pids      atomic.Int64
	// lost is set while the boot is held because its machine is lost.
	lost atomic.Bool

	sequences    sequencer
	phases       phases
	installer    installer
	status       machineStatus
	resources    resources
	config       machineConfig
	certificates certificates
	api          apiPort
	services     services
	etcd         etcdService
	kubelet      kubelet
	controlPlane controlPlane
	members      membership
	images       images
	files        fileTree

	// changed is raised at every change of what mu guards, here and in the parts.
	changed signal.Signal

	mu         sync.Mutex
	timeSynced bool
	addressed  bool // the network is up
}

func newBoot(node *Node) *boot {
	version, release := node.bootedRelease()

	b := &boot{
		node:      node,
		id:        uuid.NewString(),
		version:   version,
		release:   release,
		ended:     make(chan end, 1),
		events:    &eventRing{},
		kernelLog: &logBuffer{},
	}

	b.ctx, b.cancel = context.WithCancelCause(node.ctx)
	b.stopped, b.stop = context.WithCancel(b.ctx)
	b.workload, b.endWorkload = context.WithCancel(b.stopped)
	b.started = b.now()
	b.pids.Store(1000)

	b.sequences.boot, b.phases.boot, b.installer.boot = b, b, b
	b.status.boot, b.resources.boot, b.config.boot = b, b, b
	b.certificates.boot, b.api.boot, b.etcd.boot = b, b, b
	b.controlPlane.boot, b.members.boot, b.images.boot, b.files.boot = b, b, b, b
	b.services = services{boot: b, byID: map[string]*service{}, wereUp: map[string]bool{}, logs: map[string]*logBuffer{}}
	b.kubelet = kubelet{boot: b}
	b.kubelet.life, b.kubelet.stop = context.WithCancel(b.workload)

	return b
}

// run lives the boot's life.
func (b *boot) run() end {
	var how end

	if err := b.resources.prepare(); err != nil {
		b.log("failed to start: %s", err)

		return endPowerOff
	}

	b.tasks.Go(b.api.serve)
	b.tasks.Go(b.syncTime)
	b.tasks.Go(b.main)

	select {
	case how = <-b.ended:
	case <-b.ctx.Done():
		how = endPowerCut
	}

	b.stop()
	b.cancel(errPowerCut)
	b.etcd.loseData()
	b.tasks.Wait()
	b.kubelet.leave() // if kubelet got there just then

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
	if err := b.sequences.run(b.ctx, seqInitialize, false, b.phases.initialize()); err != nil {
		b.sequences.settle(seqInitialize, err)

		return
	}

	if !b.node.Installed() || b.node.readDrive().staged != "" {
		b.sequences.settle(seqInstall, b.sequences.run(b.ctx, seqInstall, false, b.phases.install()))

		return
	}

	if !b.release.apidFirst {
		if err := b.api.start(b.ctx); err != nil {
			return // the boot is over
		}
	}

	b.sequences.settle(seqBoot, b.sequences.run(b.ctx, seqBoot, false, b.phases.bootUp()))
}

// start starts what serves the API of configured nodes.
func (a *apiPort) start(ctx context.Context) error {
	if err := a.boot.services.run(ctx, serviceAPId, 0); err != nil {
		return err
	}

	a.boot.mu.Lock()
	a.ready = true
	a.boot.mu.Unlock()

	a.boot.status.notify()

	return nil
}

// powerOn is the time from power-on to the first service.
func (p *phases) powerOn(ctx context.Context) error {
	return p.boot.sleep(ctx, p.boot.node.options.Timing.Boot)
}

// starts is a task that starts a service.
func (p *phases) starts(name, service string) task {
	return task{name, func(ctx context.Context) error { return p.boot.services.run(ctx, service, 0) }}
}

// mountEphemeral mounts the partition that Kubernetes and etcd keep their data on.
func (p *phases) mountEphemeral(ctx context.Context) error {
	if err := p.boot.holdWhile(ctx, LostLink); err != nil {
		return err
	}

	if !p.boot.node.Faults().BootLoop {
		return nil
	}

	if err := p.boot.sleep(ctx, p.boot.node.options.Timing.Containers); err != nil {
		return err
	}

	return errors.New("failed to wait for EPHEMERAL to be mounted: structure needs cleaning")
}

// startEverything starts Kubernetes' services and waits until every service is up.
func (p *phases) startEverything(ctx context.Context) error {
	timing := p.boot.node.options.Timing
	role := p.boot.config.role()

	p.boot.services.set(serviceKubelet, stateStarting, "Starting service")
	p.boot.services.set(serviceKubelet, stateWaiting, `Waiting for service "cri" to be "up", time sync, network`)

	if role.IsControlPlane() {
		p.boot.tasks.Go(func() { p.boot.controlPlane.runTrustd(p.boot.workload) })
		p.boot.etcd.start(etcdStart{})
	}

	if err := p.boot.services.run(ctx, serviceCRI, timing.Containers); err != nil {
		return err
	}

	p.boot.kubelet.start()
	p.boot.tasks.Go(func() { p.boot.members.follow(p.boot.stopped) })

	required := []string{serviceKubelet}
	if role.IsControlPlane() {
		required = append(required, serviceEtcd, serviceTrustd)
	}

	limited, cancel := ctx, context.CancelFunc(func() {})
	if timing.BootLimit > 0 {
		limited, cancel = p.boot.node.lab.clock.WithTimeout(ctx, timing.BootLimit)
	}
	defer cancel()

	err := p.boot.changed.Until(limited, func() bool {
		for _, id := range required {
			if !p.boot.services.wasUp(id) {
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
	if err := b.changed.Until(ctx, func() bool { return !b.api.inMaintenance() }); err != nil {
		return err
	}

	b.log("no network: %s", loss)
	b.lost.Store(true)
	b.node.applyNetworkFaults()

	err := b.node.changed.Until(ctx, func() bool { return !lost() })

	b.lost.Store(false)
	b.node.applyNetworkFaults()

	return err
}

// kubelet is the one of a boot.
type kubelet struct {
	boot *boot

	// life is done before the system's data goes.
	life context.Context //nolint:containedctx // as those of the boot
	stop context.CancelFunc

	// What follows is guarded by boot.mu.
	restart    context.CancelFunc // nil before kubelet is started
	gone       chan struct{}      // closed at kubelet's end; nil before it is started
	registered *etcdCluster       // where the node is registered
}

// start starts kubelet, which runs until endKubelet.
func (k *kubelet) start() {
	gone := make(chan struct{})

	k.boot.mu.Lock()
	k.gone = gone
	k.boot.mu.Unlock()

	k.boot.tasks.Go(func() {
		defer close(gone)

		k.keepRunning(k.life)
	})
}

// end ends kubelet and takes the node out of Kubernetes.
func (k *kubelet) end() {
	k.stop()

	k.boot.mu.Lock()
	gone := k.gone
	k.boot.mu.Unlock()

	if gone != nil {
		<-gone
	}

	k.leave()
}

// keepRunning keeps kubelet running; a restart ends one run and begins the next.
func (k *kubelet) keepRunning(ctx context.Context) {
	for {
		run, restart := context.WithCancel(ctx)

		k.boot.mu.Lock()
		k.restart = restart
		k.boot.mu.Unlock()

		k.run(run)
		<-run.Done()
		restart()

		if ctx.Err() != nil {
			return
		}

		k.boot.services.set(serviceKubelet, stateStopping, "Sending SIGTERM to "+serviceKubelet)
		k.boot.services.set(serviceKubelet, stateFinished, "Service finished successfully")
		k.boot.services.set(serviceKubelet, stateStarting, "Starting service")
	}
}

// run starts kubelet once what it waits for is there, and registers the node.
func (k *kubelet) run(ctx context.Context) {
	if k.boot.changed.Until(ctx, func() bool { return k.boot.synced() && k.boot.config.hostname() != "" }) != nil {
		return
	}

	k.boot.services.set(serviceKubelet, statePreparing, "Running pre state")
	k.boot.services.set(serviceKubelet, statePreparing, "Creating service runner")

	if k.boot.sleep(ctx, k.boot.node.options.Timing.Kubelet) != nil {
		return
	}

	k.boot.services.set(serviceKubelet, stateRunning, k.boot.services.startedMessage(serviceKubelet))

	down := func() bool { return k.boot.node.Faults().KubeletDown }
	if down() {
		k.boot.services.setHealth(serviceKubelet, false,
			`Get "http://127.0.0.1:10248/healthz": dial tcp 127.0.0.1:10248: connect: connection refused`)
	}

	if k.boot.node.changed.Until(ctx, func() bool { return !down() }) != nil {
		return
	}

	k.boot.services.setHealth(serviceKubelet, true, "")

	if k.registers() {
		k.join(ctx)
	}
}

// syncTime is the node's time client.
func (b *boot) syncTime() {
	if b.sleep(b.ctx, b.node.options.Timing.TimeSync) != nil {
		return
	}

	synced := false

	for {
		changed := b.node.changed.Wait()

		if now := !b.node.Faults().TimeUnsynced; now != synced {
			synced = now

			b.mu.Lock()
			b.timeSynced = now
			b.mu.Unlock()

			b.certificates.renewMaintenance()
			b.resources.showTime()
			b.status.refresh()
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

// active is the complete machine config that the node runs with; nil in maintenance mode.
func (m *machineConfig) active() talosconfig.Provider {
	m.boot.mu.Lock()
	defer m.boot.mu.Unlock()

	if m.current == nil || !m.current.CompleteForBoot() {
		return nil
	}

	return m.current
}

// settings are the machine config that the services of the boot were started with: the active one, or one that was
// withdrawn under them.
func (m *machineConfig) settings() talosconfig.Provider {
	if active := m.active(); active != nil {
		return active
	}

	m.boot.mu.Lock()
	defer m.boot.mu.Unlock()

	return m.withdrawn
}

// inMaintenance reports whether the maintenance API listens, or still has open calls.
func (a *apiPort) inMaintenance() bool {
	a.boot.mu.Lock()
	defer a.boot.mu.Unlock()

	return (a.current != nil && a.current.wish.kind == apiMaintenance) ||
		(a.draining != nil && a.draining.wish.kind == apiMaintenance)
}

func (a *apiPort) isOpen() bool {
	a.boot.mu.Lock()
	defer a.boot.mu.Unlock()

	return a.current != nil
}

// role is the machine type; unknown in maintenance mode.
func (m *machineConfig) role() machine.Type {
	if config := m.active(); config != nil {
		return config.Machine().Type()
	}

	return machine.TypeUnknown
}

func (b *boot) networkUp() {
	b.mu.Lock()
	b.addressed = true
	b.mu.Unlock()

	b.resources.showNetwork()
	b.status.refresh()
}

// addresses are the node's own, virtual ones aside.
func (b *boot) addresses() []netip.Addr { return b.node.nic.OwnAddresses() }
