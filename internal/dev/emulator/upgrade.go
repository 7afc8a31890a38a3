package emulator

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Upgrade checks, answers, and then installs the image and reboots, or reboots and leaves the installation to the next
// boot.
func (s *sequenceAPI) Upgrade(ctx context.Context, request *machineapi.UpgradeRequest) (*machineapi.UpgradeResponse,
	error) {
	b := s.boot

	if b.node.options.Agent {
		return nil, errAgent
	}

	if !b.node.Installed() {
		return nil, status.Error(codes.FailedPrecondition, "Talos is not installed")
	}

	b.log("upgrade request received: staged %v, force %v, reboot mode %s", request.GetStage(), request.GetForce(),
		request.GetRebootMode())
	b.log("validating %q", request.GetImage())

	if err := b.installer.pull(ctx, request.GetImage()); err != nil {
		return nil, fmt.Errorf("error validating installer image %q: %w", request.GetImage(), err)
	}

	if b.config.role().IsControlPlane() && !request.GetForce() && !request.GetPreserve() {
		if err := b.installer.etcdAllowsUpgrade(ctx); err != nil {
			return nil, err
		}
	}

	var actor string

	if request.GetStage() {
		b.node.editDrive(func(d *drive) { d.staged = request.GetImage() })
		actor = b.sequences.act("reboot for staged upgrade", seqStageUpgrade, false,
			b.phases.stageUpgrade(request.GetRebootMode()))
	} else {
		actor = b.sequences.act("upgrade", seqUpgrade, false, b.phases.upgrade(request))
	}

	return &machineapi.UpgradeResponse{Messages: []*machineapi.Upgrade{{Ack: "Upgrade request received", ActorId: actor}}},
		nil
}

// quorumCheck is how long a node waits for each etcd member to prove that it works, in node time.
const quorumCheck = 15 * time.Second

// etcdAllowsUpgrade refuses where the reboot of one more member would cost the cluster its quorum.
func (i *installer) etcdAllowsUpgrade(ctx context.Context) error {
	if err := i.boot.etcd.clientReady(); err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}

	var members []etcdMember

	err := i.boot.etcd.awaitWorking(ctx, func(cluster *etcdCluster) {
		for _, member := range cluster.members {
			members = append(members, *member)
		}
	})
	if err != nil {
		return fmt.Errorf("failed to acquire upgrade mutex: %w", err)
	}

	const minority = 2

	if len(members) == minority {
		return fmt.Errorf("error validating etcd for upgrade: etcd member count(%d) is insufficient to maintain quorum if "+
			"upgrade commences", minority)
	}

	for _, member := range members {
		if !member.startedOnce {
			return fmt.Errorf("error validating etcd for upgrade: etcd member %016x is not started, all members must be "+
				"running to perform an upgrade", member.id)
		}

		if member.boot != nil {
			continue
		}

		if err := i.boot.sleep(ctx, quorumCheck); err != nil {
			return err
		}

		return fmt.Errorf("error validating etcd for upgrade: etcd member %016x is not healthy; all members must be "+
			"healthy to perform an upgrade: %w",
			member.id, context.DeadlineExceeded)
	}

	return nil
}

// upgrade stop what runs on the system disk, write the new system beside the old one, and reboot into it.
func (p *phases) upgrade(request *machineapi.UpgradeRequest) []phase {
	var phases []phase

	if p.boot.kubelet.registers() {
		phases = append(phases, single("drain", "cordonAndDrainNode", p.boot.kubelet.cordonAndDrain))
	}

	phases = append(phases,
		single("cleanup", "stopAllPods", p.stopAllPods),
		idle("dbus", "stopDBus"),
		single("stopServices", "stopServicesForUpgrade", p.stopWorkload),
		idle("unmount", "unmountPodMounts"),
		idle("unmountBind", "unmountSystemDiskBindMounts"),
		idle("unmountSystem", "unmountEphemeralPartition"),
		idle("volumeFinalize", "teardownLifecycle"),
		single("upgrade", "upgrade", func(ctx context.Context) error {
			return p.boot.installer.upgradeTo(ctx, request.GetImage())
		}),
		idle("meta", "reloadMeta"),
	)

	if request.GetRebootMode() == machineapi.UpgradeRequest_DEFAULT {
		phases = append(phases, single("kexec", "kexecPrepare", p.kexecPrepare))
	}

	return append(phases, p.stopEverything(), p.restart(p.boot.installer.commandAfterUpgrade(request.GetRebootMode())))
}

func (p *phases) stageUpgrade(mode machineapi.UpgradeRequest_RebootMode) []phase {
	phases := []phase{single("cleanup", "stopAllPods", p.stopAllPods), idle("dbus", "stopDBus")}
	phases = append(phases, p.stop(mode == machineapi.UpgradeRequest_DEFAULT)...)

	return append(phases, p.restart(p.boot.installer.commandAfterUpgrade(mode)))
}

func (i *installer) commandAfterUpgrade(mode machineapi.UpgradeRequest_RebootMode) int64 {
	if mode == machineapi.UpgradeRequest_DEFAULT && i.boot.phases.kexecs() {
		return commandKexec
	}

	return commandRestart
}

// upgradeTo runs the installer of an upgrade.
func (i *installer) upgradeTo(ctx context.Context, image string) error {
	i.boot.log("performing upgrade via %q", image)

	if err := i.boot.sleep(ctx, i.boot.node.options.Timing.Install); err != nil {
		return err
	}

	if code := i.exitCode(); code != 0 {
		return fmt.Errorf("task %q failed: exit code %d", "upgrade", code)
	}

	i.writeUpgrade(image)
	i.boot.log("upgrade successful")

	return nil
}

// writeUpgrade makes the next boots of the machine run the system of an installer image.
func (i *installer) writeUpgrade(image string) {
	i.boot.node.editDrive(func(d *drive) {
		d.previous, d.version = i.boot.version, versionOf(image, i.boot.version)
		d.previousSchematic, d.schematic = d.schematic, schematicOf(image)
		d.staged = ""
	})
}

var versionTag = regexp.MustCompile(`:(v\d+\.\d+\.\d+[^@/:]*)(@sha256:[0-9a-f]+)?$`)

// versionOf is the Talos version that an installer's tag names, or fallback.
func versionOf(image, fallback string) string {
	found := versionTag.FindStringSubmatch(image)
	if found == nil {
		return fallback
	}

	return found[1]
}

// Rollback makes the system that the last upgrade replaced the one that the machine boots, and reboots.
func (s *sequenceAPI) Rollback(context.Context, *machineapi.RollbackRequest) (*machineapi.RollbackResponse, error) {
	b := s.boot

	b.log("rollback via API received")

	disk := b.node.readDrive()

	switch {
	case !disk.installed:
		return nil, status.Error(codes.FailedPrecondition, "system disk not found")
	case disk.previous == "" && b.node.options.UKI:
		return nil, errors.New("previous UKI not found")
	case disk.previous == "":
		return nil, fmt.Errorf("cannot rollback to %q, label does not exist", "")
	}

	b.node.editDrive(func(d *drive) {
		d.previous, d.version = d.version, d.previous
		d.previousSchematic, d.schematic = d.schematic, d.previousSchematic
	})

	b.sequences.follow(b.ctx, "rollback", seqReboot, true, b.phases.reboot(machineapi.RebootRequest_DEFAULT))

	return &machineapi.RollbackResponse{Messages: []*machineapi.Rollback{{}}}, nil
}
