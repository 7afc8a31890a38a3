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
func (b *boot) act(what, sequence string, force bool, phases []phase) string {
	actor := uuid.NewString()

	switch sequence {
	case seqReboot, seqShutdown:
		b.print("%s via API received. actor id: %s", what, actor)
	case seqReset:
		b.print("reset request received. actorID: %s", actor)
	}

	b.follow(withActor(b.ctx, actor), what, sequence, force, phases)

	return actor
}

// follow runs a sequence in the background and does what its end asks for.
func (b *boot) follow(ctx context.Context, what, sequence string, force bool, phases []phase) {
	b.tasks.Go(func() {
		err := b.runSequence(ctx, sequence, force, phases)

		if !errors.As(err, &restart{}) && err != nil {
			b.print("%s failed: %s", what, err)
		}

		b.settle(sequence, err)
	})
}

// settle ends the boot if the end of a sequence asks for that, or if it was fatal. One that did not start, or was taken
// over from, changes nothing.
func (b *boot) settle(sequence string, err error) {
	var over restart

	switch {
	case err == nil, b.ctx.Err() != nil, errors.Is(err, errLocked), errors.Is(err, context.Canceled):
	case errors.As(err, &over):
		b.shutServices() // those that a forced reboot left running
		b.finish(over.how)
	default:
		b.fail(sequence, err)
	}
}

// fail is how a boot ends whose sequence failed: its services stop, and after some seconds in which only the console
// tells why it reboots.
func (b *boot) fail(sequence string, err error) {
	b.shutServices()
	b.print("running emergency volume cleanup")
	b.print("%s", err)

	if sequence == seqShutdown {
		b.finish(endPowerOff)

		return
	}

	if slices.Contains(strings.Fields(b.node.options.Cmdline), "panic=0") {
		b.print("panic=0 kernel flag found, sleeping forever")

		return
	}

	for left := rebootCountdown; left >= 0; left-- {
		b.print("rebooting in %d seconds", left)

		if b.sleep(b.ctx, time.Second) != nil {
			return
		}
	}

	b.finish(endReboot)
}

// rebootCountdown is how many seconds a node counts down to the reboot after a failure.
const rebootCountdown = 10

// rebootPhases are those of a reboot: without the cleanup if it is forced, without kexec after a power cycle.
func (b *boot) rebootPhases(mode machineapi.RebootRequest_Mode) []phase {
	var phases []phase

	if mode != machineapi.RebootRequest_FORCE {
		phases = append(phases, single("cleanup", "stopAllPods", b.stopAllPods), idle("dbus", "stopDBus"))
		phases = append(phases, b.stopPhases(true)...)
	}

	command := int64(commandKexec)
	if mode != machineapi.RebootRequest_DEFAULT || !b.kexecs() {
		command = commandRestart
	}

	return append(phases, b.rebootPhase(command))
}

// shutdownPhases are those of a shutdown. Without force the node leaves Kubernetes in order first.
func (b *boot) shutdownPhases(force bool) []phase {
	phases := []phase{idle("storeShutdown", "storeShutdownEmergency")}

	if !force && b.registers() {
		phases = append(phases, single("drain", "cordonAndDrainNode", b.cordonAndDrain))
	}

	phases = append(phases, single("cleanup", "stopAllPods", b.stopAllPods), idle("dbus", "stopDBus"))
	phases = append(phases, b.stopPhases(false)...)

	return append(phases, b.powerOffPhase())
}

// stopPhases end all services in order.
func (b *boot) stopPhases(kexec bool) []phase {
	phases := append([]phase{single("stopServices", "stopServicesForUpgrade", b.stopWorkload)}, unmountPhases()...)

	if kexec {
		phases = append(phases, single("kexec", "kexecPrepare", b.kexecPrepare))
	}

	return append(phases, b.stopEverythingPhase())
}

func unmountPhases() []phase {
	return []phase{
		idle("umount", "unmountPodMounts"),
		idle("unmountBind", "unmountSystemDiskBindMounts"),
		idle("unmountSystem", "unmountEphemeralPartition"),
		idle("volumeFinalize", "teardownLifecycle"),
	}
}

func (b *boot) stopEverythingPhase() phase {
	return single("stopEverything", "stopAllServices", func(context.Context) error {
		b.shutServices()

		return nil
	})
}

// rebootPhase is the last one of a boot that is followed by another. The kernel takes its time to end.
func (b *boot) rebootPhase(command int64) phase {
	return single("reboot", "reboot", func(ctx context.Context) error {
		b.events.publish(b.now(), actorOf(ctx), &machineapi.RestartEvent{Cmd: command})

		if err := b.sleep(ctx, b.node.options.Timing.Stop); err != nil {
			return err
		}

		return restart{endReboot, command}
	})
}

func (b *boot) powerOffPhase() phase {
	return single("shutdown", "shutdown", func(ctx context.Context) error {
		b.events.publish(b.now(), actorOf(ctx), &machineapi.RestartEvent{Cmd: commandPowerOff})

		if err := b.sleep(ctx, b.node.options.Timing.Stop); err != nil {
			return err
		}

		return restart{endPowerOff, commandPowerOff}
	})
}

// kexecs reports whether the machine can start its next kernel without its firmware: from a disk, and not with secure
// boot.
func (b *boot) kexecs() bool { return b.node.Installed() && !b.node.options.SecureBoot }

func (b *boot) kexecPrepare(context.Context) error {
	switch {
	case b.node.options.SecureBoot:
		b.print("kexec skipped as secure boot is enabled")
	case !b.node.Installed():
		b.print("kexec skipped as system disk is not found")
	}

	return nil
}

// stopAllPods ends kubelet and with it the node's pods.
func (b *boot) stopAllPods(ctx context.Context) error {
	ran := b.serviceUp(serviceKubelet)

	b.endKubelet()
	b.stopServices(serviceKubelet)

	if !ran {
		return nil
	}

	return b.sleep(ctx, b.node.options.Timing.Pods)
}

// stopWorkload ends what needs the system's data: Kubernetes, etcd, their container runtime, and trustd.
func (b *boot) stopWorkload(context.Context) error {
	b.endWorkload()
	b.endKubelet()
	b.leaveCluster()
	b.stopServices(serviceKubelet, serviceEtcd, serviceTrustd, serviceCRI)

	return nil
}

// shutServices ends all services, and last the API, which lets its open calls finish for a while.
func (b *boot) shutServices() {
	b.endWorkload()
	b.endKubelet()
	b.leaveCluster()
	b.stopServices()
	b.stop()

	b.mu.Lock()
	b.stopping = true
	open := []*apiServer{b.api, b.draining}
	b.mu.Unlock()

	b.notify()

	for _, api := range open {
		if api == nil {
			continue
		}

		select {
		case <-api.gone:
		case <-b.ctx.Done():
		}
	}
}

// registers reports whether the node's kubelet registers it with Kubernetes.
func (b *boot) registers() bool {
	config := b.activeConfig()

	return config != nil && !config.Machine().Kubelet().SkipNodeRegistration()
}

// cordonLimit is how long a node waits until it sees itself cordoned, in node time.
const cordonLimit = time.Minute

// cordonAndDrain takes the pods off the node. There is nothing to do for one whose kubelet never got into its cluster;
// else it needs Kubernetes' API, and fails without.
func (b *boot) cordonAndDrain(ctx context.Context) error {
	if !b.node.readDrive().registered {
		return nil
	}

	b.print("waiting for node to be cordoned")

	limited, cancel := b.node.lab.clock.WithTimeout(ctx, cordonLimit)
	defer cancel()

	err := b.node.lab.changed.until(limited, func() bool {
		cluster := b.reachableKubernetes()
		if cluster == nil {
			return false
		}

		cluster.kube.Drain(b.hostname())

		return true
	})
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		return context.DeadlineExceeded
	}

	b.showNodeStatus()

	return nil
}

// reachableKubernetes is the cluster whose API the node reaches; nil if there is none.
func (b *boot) reachableKubernetes() *etcdCluster {
	for _, endpoint := range b.kubernetesEndpoints() {
		if cluster := b.node.lab.kubernetesAt(endpoint); cluster != nil {
			return cluster
		}
	}

	return nil
}
