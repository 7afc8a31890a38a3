package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"

	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/sequence"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// phases are what the sequences of a boot consist of.
type phases struct {
	boot *Boot

	stopping bool // guarded by boot.mu
}

// initialize bring the early services up and load the machine config, in maintenance mode if need be.
func (p *phases) initialize() []sequence.Phase {
	if p.boot.Release.laterPhases {
		return p.initialize114()
	}

	apid := sequence.Task{Name: "startApid"}
	if p.boot.Release.apidFirst {
		apid.Run = p.boot.api.start
	}

	return []sequence.Phase{
		sequence.Single("systemRequirements", "enforceKSPPRequirements", p.powerOn),
		{Name: "earlyServices", Tasks: []sequence.Task{
			p.starts("startUdevd", service.Udevd), p.starts("startMachined", service.Machined), apid,
			p.starts("startAuditd", service.Auditd),
			p.starts("startSyslogd", service.Syslogd), p.starts("startContainerd", service.Containerd),
		}},
		sequence.Idle("usb", "waitForUSB"),
		sequence.Idle("meta", "reloadMeta"),
		{Name: "dashboard", Tasks: []sequence.Task{p.starts("startDashboard", service.Dashboard)}},
		sequence.Single("config", "loadConfig", p.boot.Config.acquire),
	}
}

// install write Talos to the disk that the machine config names, or do an upgrade that was left to this boot, and
// reboot from it.
func (p *phases) install() []sequence.Phase {
	phases := []sequence.Phase{
		sequence.Idle("env", "setUserEnvVars"),
		sequence.Single("install", "install", func(ctx context.Context) error {
			p.boot.status.setStage(runtimeres.MachineStageInstalling)

			if image := p.boot.Node.ReadDrive().Staged; image != "" {
				return p.boot.Installer.upgradeTo(ctx, image)
			}

			return p.boot.Installer.writeDisk(ctx)
		}),
		sequence.Idle("meta", "reloadMeta"),
		sequence.Idle("saveMeta", "flushMeta"),
	}

	phases = append(phases, p.since114(denyNewServices, stopContainers)...)

	return append(phases,
		sequence.Idle("volumeFinalize", "teardownLifecycle"),
		p.stopEverything(),
		sequence.Idle("kexec", "kexecPrepare"),
		p.restart(commandKexec),
	)
}

// bootUp start what the machine config asks for.
func (p *phases) bootUp() []sequence.Phase {
	if p.boot.Release.laterPhases {
		return p.bootUp114()
	}

	return []sequence.Phase{
		sequence.Idle("memorySizeCheck", "memorySizeCheck"),
		sequence.Idle("diskSizeCheck", "diskSizeCheck"),
		sequence.Idle("env", "setUserEnvVars", "waitForCARoots"),
		sequence.Idle("dbus", "startDBus"),
		sequence.Single("ephemeral", "mountEphemeralPartition", p.mountEphemeral),
		sequence.Idle("udevSetup", "writeUdevRules"),
		sequence.Idle("userDisks", "mountUserDisks"),
		sequence.Idle("userSetup", "writeUserFiles"),
		sequence.Single("startEverything", "startAllServices", p.startEverything),
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

	install := config.Machine().Install()

	disk, err := i.boot.Config.installDisk(ctx, install)
	if err != nil {
		return err
	}

	if err := i.run(ctx, cmp.Or(install.Disk(), disk), install.Image()); err != nil {
		return err
	}

	if err := i.WriteSystem(disk, install.Image()); err != nil {
		return err
	}

	i.boot.Log("install successful")

	return nil
}

// run runs the installer of an image, up to the moment at which it has written to a disk.
func (i *installer) run(ctx context.Context, disk, image string) error {
	i.boot.Log("installing Talos to disk with %q", image)

	if err := i.boot.holdWhile(ctx, faults.LostLink); err != nil {
		return err
	}

	if err := i.Stall(ctx); err != nil {
		return err
	}

	if failure := i.failure(disk, image); failure != nil {
		if err := i.boot.Sleep(ctx, i.boot.Node.options.Timing.Install/2); err != nil {
			return err
		}

		return failure
	}

	return i.boot.Sleep(ctx, i.boot.Node.options.Timing.Install)
}

// WriteSystem makes a disk the one that Talos is on, and saves the machine config and a new node id there.
func (i *installer) WriteSystem(disk, image string) error {
	return i.write(disk, image, i.newIdentity())
}

// newIdentity is a node id as the STATE partition gets it.
func (i *installer) newIdentity() string { return identityOf(i.boot.Node.options.UUID + i.boot.ID) }

// write makes a disk the one that Talos is on, and saves the machine config and a node id there.
func (i *installer) write(disk, image, identity string) error {
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

	own := i.ownPartitions()

	i.boot.Node.EditDrive(func(d *Drive) {
		d.Installed, d.SystemDisk, d.config = true, disk, data
		d.identity, d.own = identity, own
		d.Schematic = schematicOf(image)
	})

	i.boot.Resources.showSystemDisk()

	return nil
}

// Stall waits as long as a fault asks for it, at the most until that is taken back.
func (i *installer) Stall(ctx context.Context) error {
	limit := i.boot.Node.Faults().InstallStall
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
func (n *Node) takeInstallFault(kinds ...faults.InstallFault) faults.InstallFault {
	n.mu.Lock()
	defer n.mu.Unlock()

	fault := n.faults.Install
	if !slices.Contains(kinds, fault) {
		return faults.InstallWorks
	}

	if n.faults.InstallTimes > 0 {
		n.faults.InstallTimes--
		if n.faults.InstallTimes == 0 {
			n.faults.Install = faults.InstallWorks
		}
	}

	return fault
}

// errInstaller is all that Talos 1.14 knows of an installer that fails; the console shows what it printed.
var errInstaller = errors.New(`task "upgrade" failed: exit code 1`)

// failure is the reason why this install fails; nil if it does not.
func (i *installer) failure(disk, image string) error {
	fault := i.boot.Node.takeInstallFault(faults.InstallDiskMissing, faults.InstallImagePull,
		faults.InstallImageSlow, faults.InstallDiskWrite)

	switch fault {
	case faults.InstallDiskMissing:
		return fmt.Errorf("lstat %s: no such file or directory", disk)
	case faults.InstallImagePull:
		return fmt.Errorf("failed to pull image %q: failed to resolve reference %q: %s: not found", image, image, image)
	case faults.InstallImageSlow:
		return fmt.Errorf("failed to pull image %q: context deadline exceeded", image)
	case faults.InstallDiskWrite:
		problem := "failed to create partition: write /dev/" + i.boot.Node.options.Disks[0].Name + ": input/output error"

		if i.boot.Release.UnattendedInstall {
			i.boot.Log("%s", problem)

			return errInstaller
		}

		return errors.New("task \"install\" failed: exit code 1: " + problem)
	default:
		if disk == "" {
			return errInstaller
		}

		return nil
	}
}
