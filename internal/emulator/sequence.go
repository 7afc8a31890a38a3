package emulator

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configtypes "github.com/siderolabs/talos/pkg/machinery/config/config"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// Sequences of a node.
const (
	seqInitialize = "initialize"
	seqInstall    = "install"
	seqBoot       = "boot"
	seqReboot     = "reboot"
	seqReset      = "reset"
	seqShutdown   = "shutdown"
	seqUpgrade    = "upgrade"
)

// takeovers lists, for a running sequence, those that may end it without force.
var takeovers = map[string][]string{
	seqInitialize: {seqReboot, seqUpgrade, seqReset},
	seqBoot:       {seqReboot, seqReset, seqUpgrade},
}

// rebootDelay is between a failed sequence and the reboot that follows it.
const rebootDelay = 10 * time.Second

// sequence is a running one.
type sequence struct {
	name   string
	cancel context.CancelCauseFunc
	done   chan struct{}
}

const (
	phaseStart = machineapi.PhaseEvent_START
	phaseStop  = machineapi.PhaseEvent_STOP
	taskStart  = machineapi.TaskEvent_START
	taskStop   = machineapi.TaskEvent_STOP
)

// runSequence runs a sequence if none runs, or if it may take over from the one that does. A sequence that can't start leaves an event.
func (b *boot) runSequence(ctx context.Context, name, actor string, force bool, body func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	mine := &sequence{name: name, cancel: cancel, done: make(chan struct{})}
	defer close(mine.done)

	if err := b.acquire(ctx, mine, force); err != nil {
		b.sequenceEvent(name, machineapi.SequenceEvent_NOOP, actor, &common.Error{Code: common.Code_LOCKED, Message: "sequence not started: " + err.Error()})

		return err
	}

	b.sequenceEvent(name, machineapi.SequenceEvent_START, actor, nil)
	b.stageFor(name)

	err := body(ctx)

	if errors.Is(context.Cause(ctx), errTakenOver) {
		err = errTakenOver
	}

	b.release(mine)
	b.sequenceEvent(name, machineapi.SequenceEvent_STOP, actor, nil)

	if name == seqBoot && err == nil {
		b.setStage(runtimeres.MachineStageRunning)
	}

	return err
}

// acquire makes a sequence the running one.
func (b *boot) acquire(ctx context.Context, mine *sequence, force bool) error {
	for {
		b.mu.Lock()
		running := b.sequence

		if running == nil {
			b.sequence = mine
			b.mu.Unlock()

			return nil
		}
		b.mu.Unlock()

		if !force && !slices.Contains(takeovers[running.name], mine.name) {
			return errors.New("locked")
		}

		running.cancel(errTakenOver)

		select {
		case <-running.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *boot) release(mine *sequence) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.sequence == mine {
		b.sequence = nil
	}
}

// stageFor is the stage that the start of a sequence means.
func (b *boot) stageFor(name string) {
	switch name {
	case seqInitialize, seqBoot:
		b.setStage(runtimeres.MachineStageBooting)
	case seqReboot:
		b.setStage(runtimeres.MachineStageRebooting)
	case seqReset:
		b.setStage(runtimeres.MachineStageResetting)
	case seqShutdown:
		b.setStage(runtimeres.MachineStageShuttingDown)
	case seqUpgrade:
		b.setStage(runtimeres.MachineStageUpgrading)
	}
}

// fail is what a node does when a sequence of its start fails: it says so in an event and on the console, and reboots.
func (b *boot) fail(name string, err error) {
	if errors.Is(err, errTakenOver) || b.ctx.Err() != nil {
		return
	}

	text := "sequence failed: " + err.Error()

	b.sequenceEvent(name, machineapi.SequenceEvent_NOOP, "", &common.Error{Code: common.Code_FATAL, Message: text})
	b.setStage(runtimeres.MachineStageRebooting)
	b.print("%s sequence: failed: %s", name, err)
	b.print("rebooting in 10 seconds")

	if b.sleep(b.ctx, rebootDelay) != nil {
		return
	}

	b.shutServices()
	b.finish(endReboot)
}

// reboot ends the boot and starts another. Pods end first, while everything else still runs.
func (b *boot) reboot(ctx context.Context) error {
	if b.serviceUp(serviceKubelet) {
		if err := b.sleep(ctx, b.node.options.Timing.Pods); err != nil {
			return err
		}
	}

	b.shutServices()

	if err := b.sleep(ctx, b.node.options.Timing.Stop); err != nil {
		return err
	}

	b.print("rebooting")
	b.finish(endReboot)

	return nil
}

// shutdown ends the boot and leaves the machine off.
func (b *boot) shutdown(ctx context.Context) error {
	b.shutServices()

	if err := b.sleep(ctx, b.node.options.Timing.Stop); err != nil {
		return err
	}

	b.finish(endPowerOff)

	return nil
}

// shutServices stops etcd, the services and last the API, which lets its open calls finish for a while.
func (b *boot) shutServices() {
	b.leaveCluster()
	b.stopServices()
	b.stop()

	b.mu.Lock()
	b.stopping = true
	api := b.api
	b.mu.Unlock()

	b.notify()

	if api != nil {
		select {
		case <-api.gone:
		case <-b.ctx.Done():
		}
	}
}

func (b *boot) sequenceEvent(name string, action machineapi.SequenceEvent_Action, actor string, failure *common.Error) {
	b.events.publish(b.now(), actor, &machineapi.SequenceEvent{Sequence: name, Action: action, Error: failure})

	switch {
	case failure != nil:
		b.print("%s sequence: %s", name, failure.GetMessage())
	default:
		b.print("%s sequence: %s", name, action)
	}
}

func (b *boot) phaseEvent(phase string, action machineapi.PhaseEvent_Action) {
	b.events.publish(b.now(), "", &machineapi.PhaseEvent{Phase: phase, Action: action})
	b.print("phase %s: %s", phase, action)
}

func (b *boot) taskEvent(task string, action machineapi.TaskEvent_Action) {
	b.events.publish(b.now(), "", &machineapi.TaskEvent{Task: task, Action: action})
}

// installPhases are those of the install sequence before its services stop.
var installPhases = []string{"env", "install", "meta", "saveMeta", "volumeFinalize"}

// install writes Talos to the disk that the machine config names, and reboots from it.
func (b *boot) install(ctx context.Context) error {
	for number, phase := range installPhases {
		b.phaseEvent(phase, phaseStart)

		if phase == "install" {
			b.setStage(runtimeres.MachineStageInstalling)

			if err := b.writeDisk(ctx); err != nil {
				if ctx.Err() != nil {
					return err
				}

				return fmt.Errorf("error running phase %d in install sequence: task 1/1: failed, %w", number+1, err)
			}
		}

		b.phaseEvent(phase, phaseStop)
	}

	b.phaseEvent("stopEverything", phaseStart)

	return b.reboot(ctx)
}

// writeDisk is the installer.
func (b *boot) writeDisk(ctx context.Context) error {
	config := b.activeConfig()
	if config == nil { // a try that is over already
		return errors.New("failed to install: there is no machine config")
	}

	faults := b.node.Faults()
	image := config.Machine().Install().Image()

	b.print("task install (1/1): starting")
	b.print("installing Talos to disk with %q", image)

	if err := b.holdWhile(ctx, LostLink); err != nil {
		return err
	}

	if err := b.stall(ctx, faults.InstallStall); err != nil {
		return err
	}

	if failure := b.takeInstallFault(config.Machine().Install()); failure != nil {
		if err := b.sleep(ctx, b.node.options.Timing.Install/2); err != nil {
			return err
		}

		return failure
	}

	disk, err := b.installDisk(ctx, config.Machine().Install())
	if err != nil {
		return err
	}

	if err := b.sleep(ctx, b.node.options.Timing.Install); err != nil {
		return err
	}

	b.mu.Lock()
	persistent := b.persistent
	b.mu.Unlock()

	var data []byte

	if persistent != nil {
		if data, err = persistent.Bytes(); err != nil {
			return fmt.Errorf("save the machine config: %w", err)
		}
	}

	b.node.editDrive(func(d *drive) {
		d.installed, d.systemDisk, d.config = true, disk, data
		d.identity = identityOf(b.node.options.UUID + b.id)
		d.schematic = schematicOf(image)
	})

	b.showSystemDisk()
	b.print("install successful")

	return nil
}

// stall waits, at the most until the fault that asks for it is taken back.
func (b *boot) stall(ctx context.Context, limit time.Duration) error {
	if limit <= 0 {
		return nil
	}

	limited, cancel := b.node.lab.clock.WithTimeout(ctx, limit)
	defer cancel()

	b.node.changed.until(limited, func() bool { return b.node.Faults().InstallStall == 0 }) //nolint:errcheck // either way it is over

	return context.Cause(ctx)
}

// factoryImage is an image factory's installer: the schematic is between its name and its tag.
var factoryImage = regexp.MustCompile(`/([0-9a-f]{64}):[^/]+$`)

// schematicOf is the schematic of an installer image; empty if it is no image factory's.
func schematicOf(image string) string {
	if found := factoryImage.FindStringSubmatch(image); found != nil {
		return found[1]
	}

	return ""
}

// takeInstallFault is the reason why this install fails; nil if it does not.
func (b *boot) takeInstallFault(install configtypes.Install) error {
	b.node.mu.Lock()
	fault := b.node.faults.Install

	if fault != InstallWorks && b.node.faults.InstallTimes > 0 {
		b.node.faults.InstallTimes--
		if b.node.faults.InstallTimes == 0 {
			b.node.faults.Install = InstallWorks
		}
	}
	b.node.mu.Unlock()

	switch fault {
	case InstallDiskMissing:
		return fmt.Errorf("lstat %s: no such file or directory", install.Disk())
	case InstallImagePull:
		image := install.Image()

		return fmt.Errorf("failed to pull image %q: failed to resolve reference %q: %s: not found", image, image, image)
	case InstallImageSlow:
		return fmt.Errorf("failed to pull image %q: context deadline exceeded", install.Image())
	case InstallDiskWrite:
		return errors.New("task \"install\" failed: exit code 1: failed to create partition: write /dev/" + b.node.options.Disks[0].Name + ": input/output error")
	default:
		return nil
	}
}
