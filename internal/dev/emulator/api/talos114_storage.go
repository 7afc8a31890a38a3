package api

import (
	"context"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// serveEverything114 registers all services of a node since Talos 1.14.
func (s *server) serveEverything114(server *grpc.Server) {
	machineapi.RegisterLVMServiceServer(server, &lvmService{boot: s.boot})
	machineapi.RegisterMDServiceServer(server, &mdService{boot: s.boot})
	s.serveEverything(server)
}

// lvmService removes what LVM has made. Emulated machines have none of it.
type lvmService struct {
	machineapi.UnimplementedLVMServiceServer

	boot *machine.Boot
}

// LogicalVolumeRemove finds no volume.
func (s *lvmService) LogicalVolumeRemove(ctx context.Context,
	request *machineapi.LVMServiceLogicalVolumeRemoveRequest) (*emptypb.Empty, error) {
	named := request.GetVolumeGroup() != "" && request.GetLogicalVolume() != ""

	return nil, s.remove(ctx, named, "volume_group and logical_volume")
}

// VolumeGroupRemove finds no group.
func (s *lvmService) VolumeGroupRemove(ctx context.Context,
	request *machineapi.LVMServiceVolumeGroupRemoveRequest) (*emptypb.Empty, error) {
	return nil, s.remove(ctx, request.GetVolumeGroup() != "", "volume_group")
}

// PhysicalVolumeRemove finds no device.
func (s *lvmService) PhysicalVolumeRemove(ctx context.Context,
	request *machineapi.LVMServicePhysicalVolumeRemoveRequest) (*emptypb.Empty, error) {
	return nil, s.remove(ctx, request.GetDevice() != "", "device")
}

// remove says why nothing is removed: the caller may not, has not said what, or names what is not there.
func (s *lvmService) remove(ctx context.Context, named bool, fields string) error {
	if err := mayWipe(ctx, s.boot); err != nil {
		return err
	}

	if !named {
		return status.Error(codes.InvalidArgument, fields+" must be set")
	}

	return status.Error(codes.NotFound, "lvm: resource not found")
}

// mdService destroys arrays of disks. Emulated machines have none.
type mdService struct {
	machineapi.UnimplementedMDServiceServer

	boot *machine.Boot
}

// Destroy finds no array.
func (s *mdService) Destroy(ctx context.Context, request *machineapi.MDDestroyRequest) (*emptypb.Empty, error) {
	if err := mayWipe(ctx, s.boot); err != nil {
		return nil, err
	}

	switch device := request.GetDevice(); {
	case device == "":
		return nil, status.Error(codes.InvalidArgument, "device must be set")
	case !strings.HasPrefix(device, "/dev/"):
		return nil, status.Error(codes.InvalidArgument, "device must be a full /dev path")
	default:
		return nil, status.Error(codes.NotFound, "md: array not found")
	}
}
