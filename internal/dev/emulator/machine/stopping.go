package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/etcd"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/sequence"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// What a node asks the kernel for at the end of a boot, as RestartEvents tell it. Source: linux/reboot.h.
const (
	commandRestart  = 0x1234567
	commandPowerOff = 0x4321fedc
	commandKexec    = 0x45584543
)

// restart is the error with which a sequence ends its boot.
type restart struct {
	how     end
	command int64
}

// Error implements error with Talos' own text.
func (r restart) Error() string { return fmt.Sprintf("unix.Reboot(%x)", r.command) }

// sequencer runs the sequences of a boot, and ends the boot when one asks for it.
type sequencer struct {
	*sequence.Runner

	boot *Boot
}

// Act runs a sequence in a new actor's name, after the answer to the call that asked for it; only an event tells if it
// could not start.
func (s *sequencer) Act(what, name string, force bool, phases []sequence.Phase) string {
	actor := uuid.NewString()

	switch name {
	case sequence.Reboot, sequence.Shutdown:
		s.boot.Log("%s via API received. actor id: %s", what, actor)
	case sequence.Reset:
		s.boot.Log("reset request received. actorID: %s", actor)
	}

	s.Follow(sequence.WithActor(s.boot.Context, actor), what, name, force, phases)

	return actor
}

// Follow runs a sequence in the background and does what its end asks for.
func (s *sequencer) Follow(ctx context.Context, what, name string, force bool, phases []sequence.Phase) {
	s.boot.Tasks.Go(func() {
		err := s.Run(ctx, name, force, phases)

		if !errors.As(err, &restart{}) && err != nil {
			s.boot.Log("%s failed: %s", what, err)
		}

		s.settle(name, err)
	})
}

// settle ends the boot if the end of a sequence asks for that, or if it was fatal. One that did not start, or was taken
// over from, changes nothing.
func (s *sequencer) settle(name string, err error) {
	var over restart

	switch {
	case err == nil, s.boot.Context.Err() != nil, errors.Is(err, sequence.ErrLocked), errors.Is(err, context.Canceled):
	case errors.As(err, &over):
		s.boot.Phases.shutServices() // those that a forced reboot left running
		s.boot.finish(over.how)
	default:
		s.fail(name, err)
	}
}

// fail is how a boot ends whose sequence failed: its services stop, and after some seconds in which only the console
// tells why it reboots.
func (s *sequencer) fail(name string, err error) {
	s.boot.Phases.shutServices()
	s.boot.Log("running emergency volume cleanup")
	s.boot.Log("%s", err)
	s.boot.Installer.revert()

	if name == sequence.Shutdown {
		s.boot.finish(endPowerOff)

		return
	}

	if slices.Contains(strings.Fields(s.boot.Node.options.Cmdline), "panic=0") {
		s.boot.Log("panic=0 kernel flag found, sleeping forever")

		return
	}

	for left := rebootCountdown; left >= 0; left-- {
		s.boot.Log("rebooting in %d seconds", left)

		if s.boot.Sleep(s.boot.Context, time.Second) != nil {
			return
		}
	}

	s.boot.finish(endReboot)
}

// rebootCountdown is how many seconds a node counts down to the reboot after a failure.
const rebootCountdown = 10

// Reboot are those of a reboot: without the cleanup if it is forced, without kexec after a power cycle.
func (p *phases) Reboot(mode machineapi.RebootRequest_Mode) []sequence.Phase {
	var phases []sequence.Phase

	if mode != machineapi.RebootRequest_FORCE {
		phases = append(phases, sequence.Single("cleanup", "stopAllPods", p.stopAllPods))
		phases = append(phases, p.stop(true)...)
	}

	command := int64(commandKexec)
	if mode != machineapi.RebootRequest_DEFAULT || !p.kexecs() {
		command = commandRestart
	}

	return append(phases, p.restart(command))
}

// Shutdown are those of a shutdown. Without force the node leaves Kubernetes in order first.
func (p *phases) Shutdown(force bool) []sequence.Phase {
	phases := []sequence.Phase{sequence.Idle("storeShutdown", "storeShutdownEmergency")}

	if !force && p.boot.Kubelet.registers() {
		phases = append(phases, sequence.Single("drain", "cordonAndDrainNode", p.boot.Kubelet.cordonAndDrain))
	}

	phases = append(phases, sequence.Single("cleanup", "stopAllPods", p.stopAllPods))
	phases = append(phases, p.stop(false)...)

	return append(phases, p.powerOff())
}

// stop end all services in order.
func (p *phases) stop(kexec bool) []sequence.Phase { return append(p.stopDBus(), p.stopAll(kexec)...) }

// stopDBus come before a sequence stops any service.
func (p *phases) stopDBus() []sequence.Phase {
	return append(p.since114(sequence.Idle("preShutdown", "preShutdownServices")), sequence.Idle("dbus", "stopDBus"))
}

// stopAll end all services. Only Talos 1.14 prepares the next kernel after that.
func (p *phases) stopAll(kexec bool) []sequence.Phase {
	phases := p.since114(denyNewServices, stopContainers)
	phases = append(phases, sequence.Single("stopServices", "stopServicesForUpgrade", p.stopWorkload))
	phases = append(phases, p.unmount("umount")...)
	ending := []sequence.Phase{p.stopEverything()}

	if kexec {
		prepare := sequence.Single("kexec", "kexecPrepare", p.kexecPrepare)
		ending = append([]sequence.Phase{prepare}, ending...)

		if p.boot.Release.laterPhases {
			slices.Reverse(ending)
		}
	}

	return append(phases, ending...)
}

// unmount end what is mounted; sequences have a name of their own for the first of these phases.
func (p *phases) unmount(pods string) []sequence.Phase {
	phases := []sequence.Phase{
		sequence.Idle(pods, "unmountPodMounts"),
		sequence.Idle("unmountBind", "unmountSystemDiskBindMounts"),
	}

	phases = append(phases, p.since114(sequence.Idle("unmountPromotable", "unmountPromotableSystemPartitions"))...)

	return append(phases,
		sequence.Idle("unmountSystem", "unmountEphemeralPartition"),
		sequence.Idle("volumeFinalize", "teardownLifecycle"),
	)
}

func (p *phases) stopEverything() sequence.Phase {
	return sequence.Single("stopEverything", "stopAllServices", func(context.Context) error {
		p.shutServices()

		return nil
	})
}

// restart is the last one of a boot that is followed by another. The kernel takes its time to end.
func (p *phases) restart(command int64) sequence.Phase {
	return sequence.Single("reboot", "reboot", func(ctx context.Context) error {
		p.boot.Events.Publish(p.boot.Now(), sequence.ActorOf(ctx), &machineapi.RestartEvent{Cmd: command})

		if err := p.boot.Sleep(ctx, p.boot.Node.options.Timing.Stop); err != nil {
			return err
		}

		return restart{endReboot, command}
	})
}

func (p *phases) powerOff() sequence.Phase {
	return sequence.Single("shutdown", "shutdown", func(ctx context.Context) error {
		p.boot.Events.Publish(p.boot.Now(), sequence.ActorOf(ctx), &machineapi.RestartEvent{Cmd: commandPowerOff})

		if err := p.boot.Sleep(ctx, p.boot.Node.options.Timing.Stop); err != nil {
			return err
		}

		return restart{endPowerOff, commandPowerOff}
	})
}

// kexecs reports whether the machine can start its next kernel without its firmware: from a disk, and not with secure
// boot.
func (p *phases) kexecs() bool { return p.boot.Node.Installed() && !p.boot.Node.options.SecureBoot }

func (p *phases) kexecPrepare(context.Context) error {
	switch {
	case p.boot.Node.options.SecureBoot:
		p.boot.Log("kexec skipped as secure boot is enabled")
	case !p.boot.Node.Installed():
		p.boot.Log("kexec skipped as system disk is not found")
	}

	return nil
}

// stopAllPods ends kubelet and with it the node's pods.
func (p *phases) stopAllPods(ctx context.Context) error {
	ran := p.boot.Services.Up(service.Kubelet)

	p.boot.Kubelet.end()
	p.boot.Services.Stop(service.Kubelet)

	if !ran {
		return nil
	}

	return p.boot.Sleep(ctx, p.boot.Node.options.Timing.Pods)
}

// stopWorkload ends what needs the system's data: Kubernetes, etcd, their container runtime, and trustd.
func (p *phases) stopWorkload(context.Context) error {
	p.boot.endWorkload()
	p.boot.Kubelet.end()
	p.boot.Etcd.loseData()
	p.boot.Services.Stop(service.Kubelet, service.Etcd, service.Trustd, service.CRI)

	return nil
}

// shutServices ends all services, and last the API, which lets its open calls finish for a while.
func (p *phases) shutServices() {
	p.boot.endWorkload()
	p.boot.Kubelet.end()
	p.boot.Etcd.loseData()
	p.boot.Services.Stop()
	p.boot.stop()

	p.boot.mu.Lock()
	p.stopping = true
	open := []*served{p.boot.api.current, p.boot.api.draining}
	p.boot.mu.Unlock()

	p.boot.status.notify()

	for _, api := range open {
		if api == nil {
			continue
		}

		select {
		case <-api.gone:
		case <-p.boot.Context.Done():
		}
	}
}

// registers reports whether the node's kubelet registers it with Kubernetes.
func (k *kubelet) registers() bool {
	config := k.boot.Config.Active()

	return config != nil && !config.K8sNodeConfig().SkipNodeRegistration()
}

// cordonLimit is how long a node waits until it sees itself cordoned, in node time.
const cordonLimit = time.Minute

// drainLimit is how long a node drains itself, evictionRetry how long it waits for a pod before it looks again.
// Source: siderolabs/talos, pkg/kubernetes/kubernetes.go at v1.14.1.
const (
	drainLimit    = 5 * time.Minute
	evictionRetry = 5 * time.Second
)

// cordonAndDrain takes the pods off the node. There is nothing to do for one whose kubelet never got into its cluster;
// else it needs Kubernetes' API, and fails without.
func (k *kubelet) cordonAndDrain(ctx context.Context) error {
	if !k.boot.Node.ReadDrive().registered {
		return nil
	}

	k.boot.Log("waiting for node to be cordoned")

	limited, cancel := k.boot.Node.Lab.clock.WithTimeout(ctx, cordonLimit)
	defer cancel()

	var cluster *etcd.Cluster

	err := k.boot.Node.Lab.changed.Until(limited, func() bool {
		cluster = k.reachable()

		return cluster != nil
	})
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		return context.DeadlineExceeded
	}

	k.drain(ctx, cluster)

	return context.Cause(ctx)
}

// drain evicts the node's pods. What does not go within the limit stays until the machine stops.
func (k *kubelet) drain(ctx context.Context, cluster *etcd.Cluster) {
	ctx, cancel := k.boot.Node.Lab.clock.WithTimeout(ctx, drainLimit)
	defer cancel()

	for !cluster.Kubernetes.Drain(k.boot.Config.Hostname()) {
		k.boot.Resources.showNodeStatus()

		if k.boot.Sleep(ctx, evictionRetry) != nil {
			k.boot.Log("WARNING: failed to evict pod: %s", context.DeadlineExceeded)

			return
		}
	}

	k.boot.Resources.showNodeStatus()
}

// reachable is the cluster whose API the node reaches; nil if there is none.
func (k *kubelet) reachable() *etcd.Cluster {
	for _, endpoint := range k.endpoints() {
		if cluster := k.boot.Node.Lab.kubernetesAt(endpoint); cluster != nil {
			return cluster
		}
	}

	return nil
}
