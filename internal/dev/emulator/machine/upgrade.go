package machine

import (
	"context"
	"fmt"
	"regexp"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/sequence"
)

// quorumCheck is how long a node waits for each etcd member to prove that it works, in node time.
const quorumCheck = 15 * time.Second

// EtcdAllowsUpgrade refuses where the reboot of one more member would cost the cluster its quorum.
func (i *installer) EtcdAllowsUpgrade(ctx context.Context) error {
	if err := i.boot.Etcd.ClientReady(); err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}

	cluster, err := i.boot.Etcd.awaitWorking(ctx)
	if err != nil {
		return fmt.Errorf("failed to acquire upgrade mutex: %w", err)
	}

	const minority = 2

	down, of := cluster.Down()
	if of == minority {
		return fmt.Errorf("error validating etcd for upgrade: etcd member count(%d) is insufficient to maintain quorum if "+
			"upgrade commences", minority)
	}

	if len(down) == 0 {
		return nil
	}

	member := down[0]
	if !member.Started {
		return fmt.Errorf("error validating etcd for upgrade: etcd member %016x is not started, all members must be "+
			"running to perform an upgrade", member.ID)
	}

	if err := i.boot.Sleep(ctx, quorumCheck); err != nil {
		return err
	}

	return fmt.Errorf("error validating etcd for upgrade: etcd member %016x is not healthy; all members must be "+
		"healthy to perform an upgrade: %w", member.ID, context.DeadlineExceeded)
}

// Upgrade stop what runs on the system disk, write the new system beside the old one, and reboot into it.
func (p *phases) Upgrade(request *machineapi.UpgradeRequest) []sequence.Phase {
	phases := p.since114(denyNewServices)

	if p.boot.Kubelet.registers() {
		phases = append(phases, sequence.Single("drain", "cordonAndDrainNode", p.boot.Kubelet.cordonAndDrain))
	}

	phases = append(phases, sequence.Single("cleanup", "stopAllPods", p.stopAllPods))
	phases = append(phases, p.stopDBus()...)
	phases = append(phases, p.since114(stopContainers)...)
	phases = append(phases, sequence.Single("stopServices", "stopServicesForUpgrade", p.stopWorkload))
	phases = append(phases, p.unmount("unmount")...)
	phases = append(phases,
		sequence.Single("upgrade", "upgrade", func(ctx context.Context) error {
			return p.boot.Installer.upgradeTo(ctx, request.GetImage())
		}),
		sequence.Idle("meta", "reloadMeta"),
	)

	if request.GetRebootMode() == machineapi.UpgradeRequest_DEFAULT {
		phases = append(phases, sequence.Single("kexec", "kexecPrepare", p.kexecPrepare))
	}

	return append(phases, p.stopEverything(), p.restart(p.boot.Installer.commandAfterUpgrade(request.GetRebootMode())))
}

// StageUpgrade are those of a reboot into an upgrade that the next boot does.
func (p *phases) StageUpgrade(mode machineapi.UpgradeRequest_RebootMode) []sequence.Phase {
	phases := []sequence.Phase{sequence.Single("cleanup", "stopAllPods", p.stopAllPods)}
	phases = append(phases, p.stop(mode == machineapi.UpgradeRequest_DEFAULT)...)

	return append(phases, p.restart(p.boot.Installer.commandAfterUpgrade(mode)))
}

func (i *installer) commandAfterUpgrade(mode machineapi.UpgradeRequest_RebootMode) int64 {
	if mode == machineapi.UpgradeRequest_DEFAULT && i.boot.Phases.kexecs() {
		return commandKexec
	}

	return commandRestart
}

// upgradeTo runs the installer of an upgrade.
func (i *installer) upgradeTo(ctx context.Context, image string) error {
	i.boot.Log("performing upgrade via %q", image)

	if err := i.Stall(ctx); err != nil {
		return err
	}

	if err := i.boot.Sleep(ctx, i.boot.Node.options.Timing.Install); err != nil {
		return err
	}

	if code := i.ExitCode(); code != 0 {
		return fmt.Errorf("task %q failed: exit code %d", "upgrade", code)
	}

	i.WriteUpgrade(image)
	i.boot.Log("upgrade successful")

	return nil
}

// WriteUpgrade makes the next boots of the machine run the system of an installer image.
func (i *installer) WriteUpgrade(image string) {
	i.boot.Node.EditDrive(func(d *Drive) {
		d.Previous, d.Version = i.boot.Version, VersionOf(image, i.boot.Version)
		d.PreviousSchematic, d.Schematic = d.Schematic, schematicOf(image)
		d.Staged, d.fallback = "", true
	})
}

// RollBack makes the system that the last upgrade replaced the one that the machine boots.
func (n *Node) RollBack() {
	n.EditDrive(func(d *Drive) {
		d.Previous, d.Version = d.Version, d.Previous
		d.PreviousSchematic, d.Schematic = d.Schematic, d.PreviousSchematic
		d.fallback = false
	})
}

// revert goes back to the system before an upgrade, if the new one has never been up.
func (i *installer) revert() {
	if drive := i.boot.Node.ReadDrive(); drive.fallback {
		i.boot.Log("reverting failed upgrade, switching to %q", drive.Previous)
		i.boot.Node.RollBack()
	}
}

var versionTag = regexp.MustCompile(`:(v\d+\.\d+\.\d+[^@/:]*)(@sha256:[0-9a-f]+)?$`)

// VersionOf is the Talos version that an installer's tag names, or fallback.
func VersionOf(image, fallback string) string {
	found := versionTag.FindStringSubmatch(image)
	if found == nil {
		return fallback
	}

	return found[1]
}

// ExitCode is how an installer ends that reached the disk: with an error if the disk is to fail.
func (i *installer) ExitCode() int32 {
	if i.boot.Node.takeInstallFault(faults.InstallDiskWrite) == faults.InstallDiskWrite {
		return 1
	}

	return 0
}

// Pull fetches an installer into memory for an upgrade.
func (i *installer) Pull(ctx context.Context, reference string) error {
	_, _, err := i.boot.Images.Pull(ctx, systemImages, reference,
		func(machineapi.ImageServicePullLayerProgress_Status, float64) {})

	return err
}
