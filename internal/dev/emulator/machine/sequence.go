package machine

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	configtypes "github.com/siderolabs/talos/pkg/machinery/config/config"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// Sequences of a node.
const (
	seqInitialize = "initialize"
	seqInstall    = "install"
	seqBoot       = "boot"
	SeqReboot     = "reboot"
	SeqReset      = "reset"
	SeqShutdown   = "shutdown"
	SeqUpgrade    = "upgrade"
	// SeqStageUpgrade reboots into an upgrade that is done by the next boot.
	SeqStageUpgrade = "stageUpgrade"
)

// stageFor is the stage that the start of a sequence means.
func (s *sequencer) stageFor(name string) {
	switch name {
	case seqInitialize, seqBoot:
		s.boot.status.setStage(runtimeres.MachineStageBooting)
	case SeqReboot:
		s.boot.status.setStage(runtimeres.MachineStageRebooting)
	case SeqReset:
		s.boot.status.setStage(runtimeres.MachineStageResetting)
	case SeqShutdown:
		s.boot.status.setStage(runtimeres.MachineStageShuttingDown)
	case SeqUpgrade, SeqStageUpgrade:
		s.boot.status.setStage(runtimeres.MachineStageUpgrading)
	}
}

// phases are what the sequences of a boot consist of.
type phases struct {
	boot *Boot

	stopping bool // guarded by boot.mu
}

// initialize bring the early services up and load the machine config, in maintenance mode if need be.
func (p *phases) initialize() []phase {
	apid := task{name: "startApid"}
	if p.boot.Release.apidFirst {
		apid.run = p.boot.api.start
	}

	return []phase{
		single("systemRequirements", "enforceKSPPRequirements", p.powerOn),
		{"earlyServices", []task{
			p.starts("startUdevd", serviceUdevd), p.starts("startMachined", serviceMachined), apid,
			p.starts("startAuditd", serviceAuditd),
			p.starts("startSyslogd", serviceSyslogd), p.starts("startContainerd", serviceContainerd),
		}},
		idle("usb", "waitForUSB"),
		idle("meta", "reloadMeta"),
		{"dashboard", []task{p.starts("startDashboard", serviceDashboard)}},
		single("config", "loadConfig", p.boot.Config.acquire),
	}
}

// install write Talos to the disk that the machine config names, or do an upgrade that was left to this boot, and
// reboot from it.
func (p *phases) install() []phase {
	return []phase{
		idle("env", "setUserEnvVars"),
		single("install", "install", func(ctx context.Context) error {
			p.boot.status.setStage(runtimeres.MachineStageInstalling)

			if image := p.boot.Node.ReadDrive().Staged; image != "" {
				return p.boot.Installer.upgradeTo(ctx, image)
			}

			return p.boot.Installer.writeDisk(ctx)
		}),
		idle("meta", "reloadMeta"),
		idle("saveMeta", "flushMeta"),
		idle("volumeFinalize", "teardownLifecycle"),
		p.stopEverything(),
		idle("kexec", "kexecPrepare"),
		p.restart(commandKexec),
	}
}

// bootUp start what the machine config asks for.
func (p *phases) bootUp() []phase {
	return []phase{
		idle("memorySizeCheck", "memorySizeCheck"),
		idle("diskSizeCheck", "diskSizeCheck"),
		idle("env", "setUserEnvVars", "waitForCARoots"),
		idle("dbus", "startDBus"),
		single("ephemeral", "mountEphemeralPartition", p.mountEphemeral),
		idle("udevSetup", "writeUdevRules"),
		idle("userDisks", "mountUserDisks"),
		idle("userSetup", "writeUserFiles"),
		single("startEverything", "startAllServices", p.startEverything),
	}
}

// installer writes Talos to disks.
type installer struct {
	boot *Boot

	// Installing is held by the running call of the LifecycleService.
	Installing sync.Mutex
}

// writeDisk is the installer.
func (i *installer) writeDisk(ctx context.Context) error {
	config := i.boot.Config.Active()
	if config == nil { // a try that is over already
		return errors.New("failed to install: there is no machine config")
	}

	faults := i.boot.Node.Faults()
	image := config.Machine().Install().Image()

	i.boot.Log("installing Talos to disk with %q", image)

	if err := i.boot.holdWhile(ctx, LostLink); err != nil {
		return err
	}

	if err := i.stall(ctx, faults.InstallStall); err != nil {
		return err
	}

	if failure := i.failure(config.Machine().Install()); failure != nil {
		if err := i.boot.Sleep(ctx, i.boot.Node.options.Timing.Install/2); err != nil {
			return err
		}

		return failure
	}

	disk, err := i.boot.Config.installDisk(ctx, config.Machine().Install())
	if err != nil {
		return err
	}

	if err := i.boot.Sleep(ctx, i.boot.Node.options.Timing.Install); err != nil {
		return err
	}

	if err := i.WriteSystem(disk, image); err != nil {
		return err
	}

	i.boot.Log("install successful")

	return nil
}

// WriteSystem makes a disk the one that Talos is on, and saves the machine config there.
func (i *installer) WriteSystem(disk, image string) error {
	i.boot.mu.Lock()
	persistent := i.boot.Config.persistent
	i.boot.mu.Unlock()

	var data []byte

	if persistent != nil {
		var err error

		if data, err = persistent.Bytes(); err != nil {
			return fmt.Errorf("save the machine config: %w", err)
		}
	}

	i.boot.Node.EditDrive(func(d *Drive) {
		d.Installed, d.SystemDisk, d.config = true, disk, data
		d.identity = identityOf(i.boot.Node.options.UUID + i.boot.ID)
		d.Schematic = schematicOf(image)
	})

	i.boot.Resources.showSystemDisk()

	return nil
}

// stall waits, at the most until the fault that asks for it is taken back.
func (i *installer) stall(ctx context.Context, limit time.Duration) error {
	if limit <= 0 {
		return nil
	}

	limited, cancel := i.boot.Node.Lab.clock.WithTimeout(ctx, limit)
	defer cancel()

	i.boot.Node.changed.Until(limited, func() bool { return i.boot.Node.Faults().InstallStall == 0 }) //nolint:errcheck // either way it is over

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

// failure is the reason why this install fails; nil if it does not.
func (i *installer) failure(install configtypes.Install) error {
	fault := i.boot.Node.takeInstallFault(InstallDiskMissing, InstallImagePull, InstallImageSlow, InstallDiskWrite)

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
			i.boot.Node.options.Disks[0].Name + ": input/output error")
	default:
		return nil
	}
}
