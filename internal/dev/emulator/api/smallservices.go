package api

import (
	"context"
	"fmt"
	"slices"

	inspectapi "github.com/siderolabs/talos/pkg/machinery/api/inspect"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// timeServer is where nodes say that their time comes from.
const timeServer = "time.example"

type timeService struct {
	timeapi.UnimplementedTimeServiceServer

	boot *machine.Boot
}

// Time tells the machine's clock and that of its time server.
func (s *timeService) Time(ctx context.Context, _ *emptypb.Empty) (*timeapi.TimeResponse, error) {
	return s.TimeCheck(ctx, &timeapi.TimeRequest{Server: timeServer})
}

// TimeCheck compares the machine's clock with a time server.
func (s *timeService) TimeCheck(_ context.Context, request *timeapi.TimeRequest) (*timeapi.TimeResponse, error) {
	if s.boot.Node.Faults().TimeUnsynced {
		return nil, fmt.Errorf("error querying NTP server %q: read udp: i/o timeout", request.GetServer())
	}

	now := s.boot.Now()

	return &timeapi.TimeResponse{Messages: []*timeapi.Time{{
		Server: request.GetServer(), Localtime: timestamppb.New(now),
		Remotetime: timestamppb.New(now.Add(-s.boot.Node.Faults().ClockOffset)),
	}}}, nil
}

type storageService struct {
	storageapi.UnimplementedStorageServiceServer

	boot *machine.Boot
}

// Disks lists the disks in the old way.
func (s *storageService) Disks(context.Context, *emptypb.Empty) (*storageapi.DisksResponse, error) {
	system := s.boot.Node.ReadDrive().SystemDisk

	var disks []*storageapi.Disk

	for _, disk := range s.boot.Node.Options().Disks {
		kind := storageapi.Disk_SSD

		switch {
		case disk.CDROM:
			kind = storageapi.Disk_CD
		case disk.Rotational:
			kind = storageapi.Disk_HDD
		case disk.Transport == "nvme":
			kind = storageapi.Disk_NVME
		}

		disks = append(disks, &storageapi.Disk{
			DeviceName: "/dev/" + disk.Name, Size: disk.Size, Model: disk.Model, Serial: disk.Serial, Wwid: disk.WWID,
			Type:       kind,
			SystemDisk: disk.Name == system, Readonly: disk.Readonly,
		})
	}

	return &storageapi.DisksResponse{Messages: []*storageapi.Disks{{Disks: disks}}}, nil
}

// mayWipe lets administrators wipe disks, and everybody in maintenance mode.
func mayWipe(ctx context.Context, b *machine.Boot) error {
	if b.Config.Active() != nil && !rolesOf(ctx).Includes(role.Admin) {
		return errNotAuthorized
	}

	return nil
}

// BlockDeviceWipe wipes disks; in maintenance mode for everybody.
func (s *storageService) BlockDeviceWipe(ctx context.Context,
	request *storageapi.BlockDeviceWipeRequest) (*storageapi.BlockDeviceWipeResponse, error) {
	if err := mayWipe(ctx, s.boot); err != nil {
		return nil, err
	}

	for _, device := range request.GetDevices() {
		name := device.GetDevice()

		if !slices.ContainsFunc(s.boot.Node.Options().Disks, func(d machine.Disk) bool { return d.Name == name }) {
			return nil, status.Errorf(codes.NotFound, "blockdevice %q not found", name)
		}

		if name == s.boot.Node.ReadDrive().SystemDisk {
			return nil, status.Errorf(codes.FailedPrecondition, "blockdevice %q is in use by the system", name)
		}
	}

	for _, device := range request.GetDevices() {
		s.boot.Node.EditDrive(func(d *machine.Drive) { d.WipeDisk("/dev/" + device.GetDevice()) })
		s.boot.Resources.HideVolumes(device.GetDevice())
	}

	return &storageapi.BlockDeviceWipeResponse{Messages: []*storageapi.BlockDeviceWipe{{}}}, nil
}

type inspectService struct {
	inspectapi.UnimplementedInspectServiceServer
}

// ControllerRuntimeDependencies has no controllers to tell of.
func (*inspectService) ControllerRuntimeDependencies(context.Context,
	*emptypb.Empty) (*inspectapi.ControllerRuntimeDependenciesResponse, error) {
	return &inspectapi.ControllerRuntimeDependenciesResponse{Messages: []*inspectapi.ControllerRuntimeDependency{{}}}, nil
}
