package api

import (
	"context"
	"errors"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/sequence"
)

// Upgrade checks, answers, and then installs the image and reboots, or reboots and leaves the installation to the next
// boot.
func (s *sequenceAPI) Upgrade(ctx context.Context, request *machineapi.UpgradeRequest) (*machineapi.UpgradeResponse,
	error) {
	b := s.boot

	if b.Node.Options().Agent {
		return nil, errAgent
	}

	if !b.Node.Installed() {
		return nil, status.Error(codes.FailedPrecondition, "Talos is not installed")
	}

	b.Log("upgrade request received: staged %v, force %v, reboot mode %s", request.GetStage(), request.GetForce(),
		request.GetRebootMode())
	b.Log("validating %q", request.GetImage())

	if err := b.Installer.Pull(ctx, request.GetImage()); err != nil {
		return nil, fmt.Errorf("error validating installer image %q: %w", request.GetImage(), err)
	}

	if b.Config.Role().IsControlPlane() && !request.GetForce() && !request.GetPreserve() {
		if err := b.Installer.EtcdAllowsUpgrade(ctx); err != nil {
			return nil, err
		}
	}

	var actor string

	if request.GetStage() {
		b.Node.EditDrive(func(d *machine.Drive) { d.Staged = request.GetImage() })
		actor = b.Sequences.Act("reboot for staged upgrade", sequence.StageUpgrade, false,
			b.Phases.StageUpgrade(request.GetRebootMode()))
	} else {
		actor = b.Sequences.Act("upgrade", sequence.Upgrade, false, b.Phases.Upgrade(request))
	}

	return &machineapi.UpgradeResponse{Messages: []*machineapi.Upgrade{{Ack: "Upgrade request received", ActorId: actor}}},
		nil
}

// Rollback makes the system that the last upgrade replaced the one that the machine boots, and reboots.
func (s *sequenceAPI) Rollback(context.Context, *machineapi.RollbackRequest) (*machineapi.RollbackResponse, error) {
	b := s.boot

	b.Log("rollback via API received")

	disk := b.Node.ReadDrive()

	switch {
	case !disk.Installed:
		return nil, status.Error(codes.FailedPrecondition, "system disk not found")
	case disk.Previous == "" && b.Node.Options().UKI:
		return nil, errors.New("previous UKI not found")
	case disk.Previous == "":
		return nil, fmt.Errorf("cannot rollback to %q, label does not exist", "")
	}

	b.Node.RollBack()

	b.Sequences.Follow(b.Context, "rollback", sequence.Reboot, true, b.Phases.Reboot(machineapi.RebootRequest_DEFAULT))

	return &machineapi.RollbackResponse{Messages: []*machineapi.Rollback{{}}}, nil
}
