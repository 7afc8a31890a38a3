package machine

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/etcd"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/journal"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/sequence"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
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

// Boot is one life of a machine, from power-on to reboot. What it consists of are the parts below, each of which
// knows the boot and finds the others through it.
type Boot struct {
	Node *Node
	ID   string // /proc/sys/kernel/random/boot_id
	// Version is the Talos release that the boot runs: that of the machine, or what an upgrade put on its disk.
	Version string
	Release *release
	// Started is when the boot began, in node time.
	Started time.Time

	Context context.Context //nolint:containedctx // the boot's life, which no single call has
	cancel  context.CancelCauseFunc
	// Stopped is done when the services of the boot begin to stop.
	Stopped context.Context //nolint:containedctx // as above
	stop    context.CancelFunc
	// workload is done before that, when those stop that need the system's data.
	workload    context.Context //nolint:containedctx // as above
	endWorkload context.CancelFunc
	ended       chan end
	Tasks       sync.WaitGroup

	Events    *journal.Events
	KernelLog *journal.Log
	// lost is set while the boot is held because its machine is lost.
	lost atomic.Bool

	Sequences    sequencer
	Phases       phases
	Installer    installer
	Unattended   unattendedInstall
	status       machineStatus
	Resources    resources
	Config       machineConfig
	Certificates certificates
	api          apiPort
	Services     *service.Table
	cri          containerRuntime
	Etcd         etcdService
	Kubelet      kubelet
	controlPlane controlPlane
	Members      membership
	Images       images

	// changed is raised at every change of what mu guards, here and in the parts.
	changed signal.Signal

	mu         sync.Mutex
	timeSynced bool
	addressed  bool // the network is up
}

func newBoot(node *Node) *Boot {
	version, release := node.bootedRelease()

	b := &Boot{
		Node:      node,
		ID:        uuid.NewString(),
		Version:   version,
		Release:   release,
		ended:     make(chan end, 1),
		Events:    &journal.Events{},
		KernelLog: &journal.Log{},
	}

	b.Context, b.cancel = context.WithCancelCause(node.ctx)
	b.Stopped, b.stop = context.WithCancel(b.Context)
	b.workload, b.endWorkload = context.WithCancel(b.Stopped)
	b.Started = b.Now()

	b.Sequences = sequencer{boot: b, Runner: &sequence.Runner{Options: sequence.Options{
		Events: b.Events, Log: b.Log, Now: b.Now, Stage: b.status.setStage,
	}}}
	b.Phases.boot, b.Installer.boot, b.Unattended.boot, b.cri.boot = b, b, b, b
	b.status.boot, b.Resources.boot, b.Config.boot = b, b, b
	b.Certificates.boot, b.api.boot, b.Etcd.boot = b, b, b
	b.controlPlane.boot, b.Members.boot, b.Images.boot = b, b, b
	b.Services = service.NewTable(service.Options{
		Events: b.Events, Console: b.printLine, Shown: b.showService, Now: b.Now, Sleep: b.Sleep,
	})
	b.Kubelet = kubelet{boot: b}
	b.Kubelet.life, b.Kubelet.stop = context.WithCancel(b.workload)

	return b
}

// showService shows the resource of a service, which only running ones have.
func (b *Boot) showService(service *v1alpha1.Service, running bool) {
	if running {
		b.Resources.put(service)
	} else {
		b.Resources.remove(service)
	}

	b.status.refresh()
}

// run lives the boot's life.
func (b *Boot) run() end {
	var how end

	if err := b.Resources.prepare(); err != nil {
		b.Log("failed to start: %s", err)

		return endPowerOff
	}

	b.Tasks.Go(b.api.serve)
	b.Tasks.Go(b.syncTime)
	b.Tasks.Go(b.sayWhatItIsToSay)
	b.Tasks.Go(b.main)

	if b.Release.UnattendedInstall {
		b.Tasks.Go(b.Unattended.follow)
	}

	select {
	case how = <-b.ended:
	case <-b.Context.Done():
		how = endPowerCut
	}

	b.stop()
	b.cancel(errPowerCut)
	b.Etcd.loseData()
	b.Tasks.Wait()
	b.Kubelet.leave() // if kubelet got there just then

	return how
}

// cut ends the boot without any of its farewells.
func (b *Boot) cut(cause error) { b.cancel(cause) }

// finish ends the boot; the first call counts.
func (b *Boot) finish(how end) {
	select {
	case b.ended <- how:
	default:
	}
}

// main goes through the sequences of a normal start.
func (b *Boot) main() {
	if err := b.Sequences.Run(b.Context, sequence.Initialize, false, b.Phases.initialize()); err != nil {
		b.Sequences.settle(sequence.Initialize, err)

		return
	}

	if b.installsFirst() {
		b.Sequences.settle(sequence.Install, b.Sequences.Run(b.Context, sequence.Install, false, b.Phases.install()))

		return
	}

	if !b.Release.apidFirst {
		if err := b.api.start(b.Context); err != nil {
			return // the boot is over
		}
	}

	b.Sequences.settle(sequence.Boot, b.Sequences.Run(b.Context, sequence.Boot, false, b.Phases.bootUp()))
}

// installsFirst reports whether the boot only installs or upgrades. With a document that asks for an unattended install
// no boot does; an upgrade that was left to it is then not done either.
func (b *Boot) installsFirst() bool {
	if b.Unattended.document() != nil {
		return false
	}

	return !b.Node.Installed() || b.Node.ReadDrive().Staged != ""
}

// powerOn is the time from power-on to the first service.
func (p *phases) powerOn(ctx context.Context) error {
	return p.boot.Sleep(ctx, p.boot.Node.options.Timing.Boot)
}

// starts is a task that starts a service.
func (p *phases) starts(name, service string) sequence.Task {
	return sequence.Task{Name: name, Run: func(ctx context.Context) error { return p.boot.Services.Run(ctx, service, 0) }}
}

// awaitDisk waits until Talos is on a disk. A machine that is about to reboot from that goes no further.
func (p *phases) awaitDisk(ctx context.Context) error {
	return p.boot.changed.Until(ctx, func() bool { return p.boot.Node.Installed() && !p.boot.Unattended.Unfinished() })
}

// mountEphemeral mounts the partition that Kubernetes and etcd keep their data on.
func (p *phases) mountEphemeral(ctx context.Context) error {
	if err := p.boot.holdWhile(ctx, faults.LostLink); err != nil {
		return err
	}

	if !p.failsToMount() {
		p.boot.Installer.provision()

		p.boot.mu.Lock()
		p.boot.cri.mounted = true
		p.boot.mu.Unlock()

		p.boot.status.notify()

		return nil
	}

	if err := p.boot.Sleep(ctx, p.boot.Node.options.Timing.Containers); err != nil {
		return err
	}

	return errors.New("failed to wait for EPHEMERAL to be mounted: structure needs cleaning")
}

// failsToMount reports whether this is a boot that is to fail.
func (p *phases) failsToMount() bool {
	wrong := p.boot.Node.Faults()

	return wrong.BootLoop || wrong.NewSystemFails && p.boot.Node.ReadDrive().fallback
}

// startEverything starts Kubernetes' services and waits until every service is up.
func (p *phases) startEverything(ctx context.Context) error {
	timing := p.boot.Node.options.Timing
	required, err := p.startServices(ctx)
	if err != nil {
		return err
	}

	p.boot.Tasks.Go(func() { p.boot.Members.follow(p.boot.Stopped) })

	limited, cancel := ctx, context.CancelFunc(func() {})
	if timing.BootLimit > 0 {
		limited, cancel = p.boot.Node.Lab.clock.WithTimeout(ctx, timing.BootLimit)
	}
	defer cancel()

	err = p.boot.changed.Until(limited, func() bool {
		for _, id := range required {
			if !p.boot.Services.WasUp(id) {
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

// startServices starts what the machine config asks for, and says which services the boot waits for.
func (p *phases) startServices(ctx context.Context) (required []string, err error) {
	runsKubelet := p.boot.runsKubelet()

	if runsKubelet {
		p.boot.Services.Set(service.Kubelet, service.Starting, "Starting service")
		p.boot.Services.Set(service.Kubelet, service.Waiting, `Waiting for service "cri" to be "up", time sync, network`)

		if !p.boot.Node.Lab.options.Unsettled.KubeletAfterBoot {
			required = append(required, service.Kubelet)
		}
	}

	if p.boot.Config.Role().IsControlPlane() {
		p.boot.Tasks.Go(func() { p.boot.controlPlane.runTrustd(p.boot.workload) })

		required = append(required, service.Trustd)

		if p.boot.Etcd.Wanted() {
			p.boot.Etcd.start(EtcdStart{})

			required = append(required, service.Etcd)
		}
	}

	if err := p.startContainers(ctx); err != nil {
		return nil, err
	}

	if runsKubelet {
		p.boot.Kubelet.start()
	}

	return required, nil
}

// startContainers starts the containers' runtime, or what it waits for where it was loaded before.
func (p *phases) startContainers(ctx context.Context) error {
	if !p.boot.Release.EarlyCRI {
		return p.boot.Services.Run(ctx, service.CRI, p.boot.Node.options.Timing.Containers)
	}

	if p.boot.Config.isolates() {
		if err := p.boot.Services.Run(ctx, service.Sandboxd, 0); err != nil {
			return err
		}
	}

	return p.boot.changed.Until(ctx, func() bool { return p.boot.Services.Up(service.CRI) })
}

// holdWhile holds the boot, off the network, while its machine is lost for this reason.
func (b *Boot) holdWhile(ctx context.Context, loss faults.Loss) error {
	lost := func() bool { return b.Node.Faults().Lost == loss }
	if !lost() {
		return nil
	}

	// Who sent the config has to hear that it was taken.
	if err := b.changed.Until(ctx, func() bool { return !b.api.inMaintenance() }); err != nil {
		return err
	}

	b.Log("no network: %s", loss)
	b.lost.Store(true)
	b.Node.applyNetworkFaults()

	err := b.Node.changed.Until(ctx, func() bool { return !lost() })

	b.lost.Store(false)
	b.Node.applyNetworkFaults()

	return err
}

// kubelet is the one of a boot.
type kubelet struct {
	boot *Boot

	// life is done before the system's data goes.
	life context.Context //nolint:containedctx // as those of the boot
	stop context.CancelFunc

	posting sync.Mutex // so that what it posts last is the latest

	// What follows is guarded by boot.mu.
	restart    context.CancelFunc // nil before kubelet is started
	image      string             // what the run was started with
	gone       chan struct{}      // closed at kubelet's end; nil before it is started
	registered *etcd.Cluster      // where the node is registered
}

// start starts kubelet, which runs until endKubelet.
func (k *kubelet) start() {
	gone := make(chan struct{})

	k.boot.mu.Lock()
	k.gone = gone
	k.boot.mu.Unlock()

	k.boot.Tasks.Go(func() {
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

		k.boot.Services.Set(service.Kubelet, service.Stopping, "Sending SIGTERM to "+service.Kubelet)
		k.boot.Services.Set(service.Kubelet, service.Finished, "Service finished successfully")
		k.boot.Services.Set(service.Kubelet, service.Starting, "Starting service")
	}
}

// EndRun ends the run of a kubelet that was started; another follows.
func (k *kubelet) EndRun() {
	k.boot.mu.Lock()
	restart := k.restart
	k.boot.mu.Unlock()

	if restart != nil {
		restart()
	}
}

// restartForImage has a kubelet that runs another image than the machine config's run that.
func (k *kubelet) restartForImage() {
	k.boot.mu.Lock()
	running := k.image
	k.boot.mu.Unlock()

	if running != "" && running != kubeletImage(k.boot.Config.Settings()) {
		k.EndRun()
	}
}

// run starts kubelet once what it waits for is there, and registers the node.
func (k *kubelet) run(ctx context.Context) {
	k.boot.mu.Lock()
	k.image = ""
	k.boot.mu.Unlock()

	if k.boot.changed.Until(ctx, func() bool { return k.boot.Synced() && k.boot.Config.Hostname() != "" }) != nil {
		return
	}

	k.boot.Services.Set(service.Kubelet, service.Preparing, "Running pre state")
	k.boot.Services.Set(service.Kubelet, service.Preparing, "Creating service runner")

	image := kubeletImage(k.boot.Config.Settings())

	k.boot.mu.Lock()
	k.image = image
	k.boot.mu.Unlock()

	if k.boot.Sleep(ctx, k.boot.Node.options.Timing.Kubelet) != nil {
		return
	}

	k.boot.Services.Set(service.Kubelet, service.Running, k.boot.Services.StartedMessage(service.Kubelet))
	k.report()

	down := func() bool { return k.boot.Node.Faults().KubeletDown }
	if down() {
		k.boot.Services.SetHealth(service.Kubelet, false,
			`Get "http://127.0.0.1:10248/healthz": dial tcp 127.0.0.1:10248: connect: connection refused`)
	}

	if k.boot.Node.changed.Until(ctx, func() bool { return !down() }) != nil {
		return
	}

	k.boot.Services.SetHealth(service.Kubelet, true, "")

	if k.registers() {
		k.join(ctx)
	}
}

// syncTime is the node's time client.
func (b *Boot) syncTime() {
	if b.Sleep(b.Context, b.Node.options.Timing.TimeSync) != nil {
		return
	}

	synced := false

	if b.Node.Faults().TimeUnsynced {
		b.Log(`time query error {"component": "controller-runtime", "controller": "time.SyncController", ` +
			`"server": "time.example", "error": "read udp: i/o timeout"}`)
	}

	for {
		changed := b.Node.changed.Wait()

		if now := !b.Node.Faults().TimeUnsynced; now != synced {
			synced = now

			b.mu.Lock()
			b.timeSynced = now
			b.mu.Unlock()

			b.Certificates.renewMaintenance()
			b.Resources.showTime()
			b.status.refresh()
		}

		select {
		case <-b.Context.Done():
			return
		case <-changed:
		}
	}
}

// Synced reports whether the machine's time is synced.
func (b *Boot) Synced() bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.timeSynced
}

// Sleep waits in node time.
func (b *Boot) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}

	return b.Node.Lab.clock.Sleep(ctx, d)
}

// Now is the time by the machine's clock.
func (b *Boot) Now() time.Time { return b.Node.Lab.clock.Now().Add(b.Node.Faults().ClockOffset) }

// WallNow dates certificates: a scaled clock would run ahead of the clients that check them.
func (b *Boot) WallNow() time.Time { return time.Now().Add(b.Node.Faults().ClockOffset) }

// Active is the complete machine config that the node runs with; nil in maintenance mode.
func (m *machineConfig) Active() talosconfig.Provider {
	m.boot.mu.Lock()
	defer m.boot.mu.Unlock()

	if m.current == nil || !m.current.CompleteForBoot() {
		return nil
	}

	return m.current
}

// Settings are the machine config that the services of the boot were started with: the active one, or one that was
// withdrawn under them.
func (m *machineConfig) Settings() talosconfig.Provider {
	if active := m.Active(); active != nil {
		return active
	}

	m.boot.mu.Lock()
	defer m.boot.mu.Unlock()

	return m.withdrawn
}

// Role is the machine type; unknown in maintenance mode.
func (m *machineConfig) Role() machine.Type {
	if config := m.Active(); config != nil {
		return config.Machine().Type()
	}

	return machine.TypeUnknown
}

func (b *Boot) networkUp() {
	b.mu.Lock()
	b.addressed = true
	b.mu.Unlock()

	b.Resources.showNetwork()
	b.status.refresh()
}

// Addresses are the node's own, virtual ones aside.
func (b *Boot) Addresses() []netip.Addr { return b.Node.NIC.OwnAddresses() }
