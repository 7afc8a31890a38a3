package emulator

import (
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lifecycleService runs installers for a client that watches them. Neither of its calls pulls an image or reboots.
type lifecycleService struct {
	machineapi.UnimplementedLifecycleServiceServer

	boot *boot
}

// Install writes Talos to a disk of a machine that has none. It does not end when its caller goes.
func (s *lifecycleService) Install(request *machineapi.LifecycleServiceInstallRequest,
	stream machineapi.LifecycleService_InstallServer) error {
	b := s.boot

	if err := b.installer.begin(); err != nil {
		return err
	}
	defer b.installer.installing.Unlock()

	if b.node.Installed() {
		return status.Error(codes.AlreadyExists, "machine is already installed")
	}

	image := request.GetSource().GetImageName()
	path := request.GetDestination().GetDisk()

	switch {
	case image == "":
		return errNoInstaller
	case path == "":
		return status.Error(codes.InvalidArgument, "destination disk is required")
	}

	disk, err := b.config.diskByPath(stream.Context(), path)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "invalid disk path: %s", err)
	}

	send := func(progress *machineapi.LifecycleServiceInstallProgress) error {
		return stream.Send(&machineapi.LifecycleServiceInstallResponse{Progress: progress})
	}

	err = b.installer.run(request.GetContainerd(), image, send,
		func() error { return b.installer.writeSystem(disk, image) })
	if err != nil {
		return status.Errorf(codes.Internal, "installation failed: %s", err)
	}

	return nil
}

// Upgrade writes another system beside the one that the machine runs. It does not end when its caller goes.
func (s *lifecycleService) Upgrade(request *machineapi.LifecycleServiceUpgradeRequest,
	stream machineapi.LifecycleService_UpgradeServer) error {
	b := s.boot

	if err := b.installer.begin(); err != nil {
		return err
	}
	defer b.installer.installing.Unlock()

	image := request.GetSource().GetImageName()

	switch {
	case !b.node.Installed():
		return status.Error(codes.FailedPrecondition, "machine is not installed")
	case image == "":
		return errNoInstaller
	}

	err := b.installer.run(request.GetContainerd(), image,
		func(progress *machineapi.LifecycleServiceInstallProgress) error {
			return stream.Send(&machineapi.LifecycleServiceUpgradeResponse{Progress: progress})
		}, func() error {
			b.installer.writeUpgrade(image)

			return nil
		})
	if err != nil {
		return status.Errorf(codes.Internal, "upgrade failed: %s", err)
	}

	return nil
}

var (
	errInstalling  = status.Error(codes.FailedPrecondition, "another installation/upgrade is already in progress")
	errNoInstaller = status.Error(codes.InvalidArgument, "installer image name is required")
)

// begin keeps other installers out, until the lock is given back.
func (i *installer) begin() error {
	switch {
	case i.boot.node.options.Agent:
		return errAgent
	case !i.installing.TryLock():
		return errInstalling
	default:
		return nil
	}
}

// run runs an installer that was pulled before, and tells what it prints and with which code it exits. One
// that fails is no error.
func (i *installer) run(where *common.ContainerdInstance, image string,
	tell func(*machineapi.LifecycleServiceInstallProgress) error, write func() error) error {
	store, err := i.boot.images.store(where)
	if err != nil {
		return err
	}

	if _, known := i.boot.images.of(store)[image]; !known {
		return fmt.Errorf("installer image %q not found in containerd store: image %q: not found", image, image)
	}

	lines := []string{"running Talos installer " + versionOf(image, i.boot.version), "creating new disk layout",
		"copying boot assets", "installing the boot loader"}

	for _, line := range lines {
		// Who watches may go, and the installer runs on.
		tell(installerMessage(line)) //nolint:errcheck // as above

		if err := i.boot.sleep(i.boot.ctx, i.boot.node.options.Timing.Install/time.Duration(len(lines))); err != nil {
			return err
		}
	}

	code := i.exitCode()
	if code == 0 {
		if err := write(); err != nil {
			return err
		}

		tell(installerMessage("installation of " + versionOf(image, i.boot.version) + " complete")) //nolint:errcheck // as above
	} else {
		tell(installerMessage("error: failed to write partition: input/output error")) //nolint:errcheck // as above
	}

	i.boot.log("installer container exited with code %d", code)

	if err := tell(&machineapi.LifecycleServiceInstallProgress{
		Response: &machineapi.LifecycleServiceInstallProgress_ExitCode{ExitCode: code}}); err != nil {
		return fmt.Errorf("failed to send exit code: %w", err)
	}

	return nil
}

func installerMessage(line string) *machineapi.LifecycleServiceInstallProgress {
	return &machineapi.LifecycleServiceInstallProgress{
		Response: &machineapi.LifecycleServiceInstallProgress_Message{Message: line + "\n"}}
}

// exitCode is how an installer ends that reached the disk: with an error if the disk is to fail.
func (i *installer) exitCode() int32 {
	if i.boot.node.takeInstallFault(InstallDiskWrite) == InstallDiskWrite {
		return 1
	}

	return 0
}
