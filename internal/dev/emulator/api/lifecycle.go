package api

import (
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// lifecycleService runs installers for a client that watches them. Neither of its calls pulls an image or reboots.
type lifecycleService struct {
	machineapi.UnimplementedLifecycleServiceServer

	boot *machine.Boot
}

// Install writes Talos to a disk of a machine that has none. It does not end when its caller goes.
func (s *lifecycleService) Install(request *machineapi.LifecycleServiceInstallRequest,
	stream machineapi.LifecycleService_InstallServer) error {
	b := s.boot

	if err := s.begin(); err != nil {
		return err
	}
	defer b.Installer.Installing.Unlock()

	if b.Node.Installed() {
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

	disk, err := b.Config.DiskByPath(stream.Context(), path)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "invalid disk path: %s", err)
	}

	send := func(progress *machineapi.LifecycleServiceInstallProgress) error {
		return stream.Send(&machineapi.LifecycleServiceInstallResponse{Progress: progress})
	}

	err = s.run(request.GetContainerd(), image, send,
		func() error { return b.Installer.WriteSystem(disk, image) })
	if err != nil {
		return status.Errorf(codes.Internal, "installation failed: %s", err)
	}

	return nil
}

// Upgrade writes another system beside the one that the machine runs. It does not end when its caller goes.
func (s *lifecycleService) Upgrade(request *machineapi.LifecycleServiceUpgradeRequest,
	stream machineapi.LifecycleService_UpgradeServer) error {
	b := s.boot

	if err := s.begin(); err != nil {
		return err
	}
	defer b.Installer.Installing.Unlock()

	image := request.GetSource().GetImageName()

	switch {
	case !b.Node.Installed():
		return status.Error(codes.FailedPrecondition, "machine is not installed")
	case image == "":
		return errNoInstaller
	}

	err := s.run(request.GetContainerd(), image,
		func(progress *machineapi.LifecycleServiceInstallProgress) error {
			return stream.Send(&machineapi.LifecycleServiceUpgradeResponse{Progress: progress})
		}, func() error {
			b.Installer.WriteUpgrade(image)

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
func (s *lifecycleService) begin() error {
	switch {
	case s.boot.Node.Options().Agent:
		return errAgent
	case !s.boot.Installer.Installing.TryLock():
		return errInstalling
	default:
		return nil
	}
}

// run runs an installer that was pulled before, and tells what it prints and with which code it exits. One
// that fails is no error.
func (s *lifecycleService) run(where *common.ContainerdInstance, image string,
	tell func(*machineapi.LifecycleServiceInstallProgress) error, write func() error) error {
	store, err := s.boot.Images.Store(where)
	if err != nil {
		return err
	}

	if _, known := s.boot.Images.Of(store)[image]; !known {
		return fmt.Errorf("installer image %q not found in containerd store: image %q: not found", image, image)
	}

	if err := s.boot.Installer.Stall(s.boot.Context); err != nil {
		return err
	}

	lines := []string{"running Talos installer " + machine.VersionOf(image, s.boot.Version), "creating new disk layout",
		"copying boot assets", "installing the boot loader"}

	for _, line := range lines {
		// Who watches may go, and the installer runs on.
		tell(installerMessage(line)) //nolint:errcheck // as above

		if err := s.boot.Sleep(s.boot.Context, s.boot.Node.Options().Timing.Install/time.Duration(len(lines))); err != nil {
			return err
		}
	}

	code := s.boot.Installer.ExitCode()
	if code == 0 {
		if err := write(); err != nil {
			return err
		}

		tell(installerMessage("installation of " + machine.VersionOf(image, s.boot.Version) + " complete")) //nolint:errcheck // as above
	} else {
		tell(installerMessage("error: failed to write partition: input/output error")) //nolint:errcheck // as above
	}

	s.boot.Log("installer container exited with code %d", code)

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
