package emulator

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

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
	// seqStageUpgrade reboots into an upgrade that is done by the next boot.
	seqStageUpgrade = "stageUpgrade"
)

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
	case seqUpgrade, seqStageUpgrade:
		b.setStage(runtimeres.MachineStageUpgrading)
	}
}

// initializePhases bring the early services up and load the machine config, in maintenance mode if need be.
func (b *boot) initializePhases() []phase {
	apid := task{name: "startApid"}
	if b.release.apidFirst {
		apid.run = b.startAPId
	}

	return []phase{
		single("systemRequirements", "enforceKSPPRequirements", b.powerOn),
		{"earlyServices", []task{
			b.starts("startUdevd", serviceUdevd), b.starts("startMachined", serviceMachined), apid,
			b.starts("startAuditd", serviceAuditd),
			b.starts("startSyslogd", serviceSyslogd), b.starts("startContainerd", serviceContainerd),
		}},
		idle("usb", "waitForUSB"),
		idle("meta", "reloadMeta"),
		{"dashboard", []task{b.starts("startDashboard", serviceDashboard)}},
		single("config", "loadConfig", b.acquireConfig),
	}
}

// installPhases write Talos to the disk that the machine config names, or do an upgrade that was left to this boot, and
// reboot from it.
func (b *boot) installPhases() []phase {
	return []phase{
		idle("env", "setUserEnvVars"),
		single("install", "install", func(ctx context.Context) error {
			b.setStage(runtimeres.MachineStageInstalling)

			if image := b.node.readDrive().staged; image != "" {
				return b.upgradeTo(ctx, image)
			}

			return b.writeDisk(ctx)
		}),
		idle("meta", "reloadMeta"),
		idle("saveMeta", "flushMeta"),
		idle("volumeFinalize", "teardownLifecycle"),
		b.stopEverythingPhase(),
		idle("kexec", "kexecPrepare"),
		b.rebootPhase(commandKexec),
	}
}

// bootPhases start what the machine config asks for.
func (b *boot) bootPhases() []phase {
	return []phase{
		idle("memorySizeCheck", "memorySizeCheck"),
		idle("diskSizeCheck", "diskSizeCheck"),
		idle("env", "setUserEnvVars", "waitForCARoots"),
		idle("dbus", "startDBus"),
		single("ephemeral", "mountEphemeralPartition", b.mountEphemeral),
		idle("udevSetup", "writeUdevRules"),
		idle("userDisks", "mountUserDisks"),
		idle("userSetup", "writeUserFiles"),
		single("startEverything", "startAllServices", b.bootUp),
	}
}

// writeDisk is the installer.
func (b *boot) writeDisk(ctx context.Context) error {
	config := b.activeConfig()
	if config == nil { // a try that is over already
		return errors.New("failed to install: there is no machine config")
	}

	faults := b.node.Faults()
	image := config.Machine().Install().Image()

	b.print("installing Talos to disk with %q", image)

	if err := b.holdWhile(ctx, LostLink); err != nil {
		return err
	}

	if err := b.stall(ctx, faults.InstallStall); err != nil {
		return err
	}

	if failure := b.installFailure(config.Machine().Install()); failure != nil {
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

	if err := b.writeSystem(disk, image); err != nil {
		return err
	}

	b.print("install successful")

	return nil
}

// writeSystem makes a disk the one that Talos is on, and saves the machine config there.
func (b *boot) writeSystem(disk, image string) error {
	b.mu.Lock()
	persistent := b.persistent
	b.mu.Unlock()

	var data []byte

	if persistent != nil {
		var err error

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

// takeInstallFault is the machine's fault for this install if it is of one of these kinds, counted down.
func (n *Node) takeInstallFault(kinds ...InstallFault) InstallFault {
	n.mu.Lock()
	defer n.mu.Unlock()

	fault := n.faults.Install
	if !slices.Contains(kinds, fault) {
		return InstallWorks
	}

	if n.faults.InstallTimes > 0 {
		n.faults.InstallTimes--
		if n.faults.InstallTimes == 0 {
			n.faults.Install = InstallWorks
		}
	}

	return fault
}

// installFailure is the reason why this install fails; nil if it does not.
func (b *boot) installFailure(install configtypes.Install) error {
	fault := b.node.takeInstallFault(InstallDiskMissing, InstallImagePull, InstallImageSlow, InstallDiskWrite)

	switch fault {
	case InstallDiskMissing:
		return fmt.Errorf("lstat %s: no such file or directory", install.Disk())
	case InstallImagePull:
		image := install.Image()

		return fmt.Errorf("failed to pull image %q: failed to resolve reference %q: %s: not found", image, image, image)
	case InstallImageSlow:
		return fmt.Errorf("failed to pull image %q: context deadline exceeded", install.Image())
	case InstallDiskWrite:
		return errors.New("task \"install\" failed: exit code 1: failed to create partition: write /dev/" +
			b.node.options.Disks[0].Name + ": input/output error")
	default:
		return nil
	}
}
