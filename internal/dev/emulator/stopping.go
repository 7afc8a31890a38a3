package emulator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
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

// act runs a sequence in a new actor's name, after the answer to the call that asked for it; only an event tells if it
// could not start.
func (s *sequencer) act(what, sequence string, force bool, phases []phase) string {
	actor := uuid.NewString()

	switch sequence {
	case seqReboot, seqShutdown:
		s.boot.log("%s via API received. actor id: %s", what, actor)
	case seqReset:
		s.boot.log("reset request received. actorID: %s", actor)
	}

	s.follow(withActor(s.boot.ctx, actor), what, sequence, force, phases)

	return actor
}

// follow runs a sequence in the background and does what its end asks for.
func (s *sequencer) follow(ctx context.Context, what, sequence string, force bool, phases []phase) {
	s.boot.tasks.Go(func() {
		err := s.run(ctx, sequence, force, phases)

		if !errors.As(err, &restart{}) && err != nil {
			s.boot.log("%s failed: %s", what, err)
		}

		s.settle(sequence, err)
	})
}

// settle ends the boot if the end of a sequence asks for that, or if it was fatal. One that did not start, or was taken
// over from, changes nothing.
func (s *sequencer) settle(sequence string, err error) {
	var over restart

	switch {
	case err == nil, s.boot.ctx.Err() != nil, errors.Is(err, errLocked), errors.Is(err, context.Canceled):
	case errors.As(err, &over):
		s.boot.phases.shutServices() // those that a forced reboot left running
		s.boot.finish(over.how)
	default:
		s.fail(sequence, err)
	}
}

// fail is how a boot ends whose sequence failed: its services stop, and after some seconds in which only the console
// tells why it reboots.
func (s *sequencer) fail(sequence string, err error) {
	s.boot.phases.shutServices()
	s.boot.log("running emergency volume cleanup")
	s.boot.log("%s", err)

	if sequence == seqShutdown {
		s.boot.finish(endPowerOff)

		return
	}

	if slices.Contains(strings.Fields(s.boot.node.options.Cmdline), "panic=0") {
		s.boot.log("panic=0 kernel flag found, sleeping forever")

		return
	}

	for left := rebootCountdown; left >= 0; left-- {
		s.boot.log("rebooting in %d seconds", left)

		if s.boot.sleep(s.boot.ctx, time.Second) != nil {
			return
		}
	}

	s.boot.finish(endReboot)
}

// rebootCountdown is how many seconds a node counts down to the reboot after a failure.
const rebootCountdown = 10

// reboot are those of a reboot: without the cleanup if it is forced, without kexec after a power cycle.
func (p *phases) reboot(mode machineapi.RebootRequest_Mode) []phase {
	var phases []phase

	if mode != machineapi.RebootRequest_FORCE {
		phases = append(phases, single("cleanup", "stopAllPods", p.stopAllPods), idle("dbus", "stopDBus"))
		phases = append(phases, p.stop(true)...)
	}

	command := int64(commandKexec)
	if mode != machineapi.RebootRequest_DEFAULT || !p.kexecs() {
		command = commandRestart
	}

	return append(phases, p.restart(command))
}

// shutdown are those of a shutdown. Without force the node leaves Kubernetes in order first.
func (p *phases) shutdown(force bool) []phase {
	phases := []phase{idle("storeShutdown", "storeShutdownEmergency")}

	if !force && p.boot.kubelet.registers() {
		phases = append(phases, single("drain", "cordonAndDrainNode", p.boot.kubelet.cordonAndDrain))
	}

	phases = append(phases, single("cleanup", "stopAllPods", p.stopAllPods), idle("dbus", "stopDBus"))
	phases = append(phases, p.stop(false)...)

	return append(phases, p.powerOff())
}

// stop end all services in order.
func (p *phases) stop(kexec bool) []phase {
	phases := append([]phase{single("stopServices", "stopServicesForUpgrade", p.stopWorkload)}, unmountPhases()...)

	if kexec {
		phases = append(phases, single("kexec", "kexecPrepare", p.kexecPrepare))
	}

	return append(phases, p.stopEverything())
}

func unmountPhases() []phase {
	return []phase{
		idle("umount", "unmountPodMounts"),
		idle("unmountBind", "unmountSystemDiskBindMounts"),
		idle("unmountSystem", "unmountEphemeralPartition"),
		idle("volumeFinalize", "teardownLifecycle"),
	}
}

func (p *phases) stopEverything() phase {
	return single("stopEverything", "stopAllServices", func(context.Context) error {
		p.shutServices()

		return nil
	})
}

// restart is the last one of a boot that is followed by another. The kernel takes its time to end.
func (p *phases) restart(command int64) phase {
	return single("reboot", "reboot", func(ctx context.Context) error {
		p.boot.events.publish(p.boot.now(), actorOf(ctx), &machineapi.RestartEvent{Cmd: command})

		if err := p.boot.sleep(ctx, p.boot.node.options.Timing.Stop); err != nil {
			return err
		}

		return restart{endReboot, command}
	})
}

func (p *phases) powerOff() phase {
	return single("shutdown", "shutdown", func(ctx context.Context) error {
		p.boot.events.publish(p.boot.now(), actorOf(ctx), &machineapi.RestartEvent{Cmd: commandPowerOff})

		if err := p.boot.sleep(ctx, p.boot.node.options.Timing.Stop); err != nil {
			return err
		}

		return restart{endPowerOff, commandPowerOff}
	})
}

// kexecs reports whether the machine can start its next kernel without its firmware: from a disk, and not with secure
// boot.
func (p *phases) kexecs() bool { return p.boot.node.Installed() && !p.boot.node.options.SecureBoot }

func (p *phases) kexecPrepare(context.Context) error {
	switch {
	case p.boot.node.options.SecureBoot:
		p.boot.log("kexec skipped as secure boot is enabled")
	case !p.boot.node.Installed():
		p.boot.log("kexec skipped as system disk is not found")
	}

	return nil
}

// stopAllPods ends kubelet and with it the node's pods.
func (p *phases) stopAllPods(ctx context.Context) error {
	ran := p.boot.services.up(serviceKubelet)

	p.boot.kubelet.end()
	p.boot.services.stop(serviceKubelet)

	if !ran {
		return nil
	}

	return p.boot.sleep(ctx, p.boot.node.options.Timing.Pods)
}

// stopWorkload ends what needs the system's data: Kubernetes, etcd, their container runtime, and trustd.
func (p *phases) stopWorkload(context.Context) error {
	p.boot.endWorkload()
	p.boot.kubelet.end()
	p.boot.etcd.loseData()
	p.boot.services.stop(serviceKubelet, serviceEtcd, serviceTrustd, serviceCRI)

	return nil
}

// shutServices ends all services, and last the API, which lets its open calls finish for a while.
func (p *phases) shutServices() {
	p.boot.endWorkload()
	p.boot.kubelet.end()
	p.boot.etcd.loseData()
	p.boot.services.stop()
	p.boot.stop()

	p.boot.mu.Lock()
	p.stopping = true
	open := []*apiServer{p.boot.api.current, p.boot.api.draining}
	p.boot.mu.Unlock()

	p.boot.status.notify()

	for _, api := range open {
		if api == nil {
			continue
		}

		select {
		case <-api.gone:
		case <-p.boot.ctx.Done():
		}
	}
}

// registers reports whether the node's kubelet registers it with Kubernetes.
func (k *kubelet) registers() bool {
	config := k.boot.config.active()

	return config != nil && !config.Machine().Kubelet().SkipNodeRegistration()
}

// cordonLimit is how long a node waits until it sees itself cordoned, in node time.
const cordonLimit = time.Minute

// cordonAndDrain takes the pods off the node. There is nothing to do for one whose kubelet never got into its cluster;
// else it needs Kubernetes' API, and fails without.
func (k *kubelet) cordonAndDrain(ctx context.Context) error {
	if !k.boot.node.readDrive().registered {
		return nil
	}

	k.boot.log("waiting for node to be cordoned")

	limited, cancel := k.boot.node.lab.clock.WithTimeout(ctx, cordonLimit)
	defer cancel()

	err := k.boot.node.lab.changed.Until(limited, func() bool {
		cluster := k.reachable()
		if cluster == nil {
			return false
		}

		cluster.kube.Drain(k.boot.config.hostname())

		return true
	})
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		return context.DeadlineExceeded
	}

	k.boot.resources.showNodeStatus()

	return nil
}

// reachable is the cluster whose API the node reaches; nil if there is none.
func (k *kubelet) reachable() *etcdCluster {
	for _, endpoint := range k.endpoints() {
		if cluster := k.boot.node.lab.kubernetesAt(endpoint); cluster != nil {
			return cluster
		}
	}

	return nil
}
