package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// maintenanceService112 is the machine API of Talos 1.12 in maintenance mode: a service of its own, made to take a
// machine config and hardly anything else. What it does not have is Unimplemented, by its base.
type maintenanceService112 struct {
	machineapi.UnimplementedMachineServiceServer

	api  *server
	boot *machine.Boot
}

// serveMaintenance112 registers what Talos 1.12 has in maintenance mode.
func (s *server) serveMaintenance112(server *grpc.Server) {
	server.RegisterService(machineService112(), &maintenanceService112{api: s, boot: s.boot})
	s.serveMachine(server)
}

// serveConfigured112 registers what a configured node has with Talos 1.12.
func (s *server) serveConfigured112(server *grpc.Server) {
	server.RegisterService(machineService112(), newMachineService(s.boot))
	s.serveCluster(server)
	s.serveMachine(server)
}

// errOnlySideroLink is the answer to calls that only peers in a SideroLink network may make in maintenance mode. The
// emulator has none.
var errOnlySideroLink = status.Error(codes.Unimplemented, "API is not implemented in maintenance mode")

// Version is for SideroLink alone.
func (*maintenanceService112) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	return nil, errOnlySideroLink
}

// Upgrade is for SideroLink alone.
func (*maintenanceService112) Upgrade(context.Context, *machineapi.UpgradeRequest) (*machineapi.UpgradeResponse,
	error) {
	return nil, errOnlySideroLink
}

// Reset is for SideroLink alone.
func (*maintenanceService112) Reset(context.Context, *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	return nil, errOnlySideroLink
}

// MetaWrite is for SideroLink alone.
func (*maintenanceService112) MetaWrite(context.Context, *machineapi.MetaWriteRequest) (*machineapi.MetaWriteResponse,
	error) {
	return nil, errOnlySideroLink
}

// MetaDelete is for SideroLink alone.
func (*maintenanceService112) MetaDelete(context.Context,
	*machineapi.MetaDeleteRequest) (*machineapi.MetaDeleteResponse, error) {
	return nil, errOnlySideroLink
}

// GenerateClientConfiguration has nothing to sign with.
func (*maintenanceService112) GenerateClientConfiguration(context.Context,
	*machineapi.GenerateClientConfigurationRequest) (
	*machineapi.GenerateClientConfigurationResponse, error,
) {
	return nil, status.Error(codes.Unimplemented,
		"client configuration (talosconfig) can't be generated in the maintenance mode")
}

// ApplyConfiguration takes the machine's first config. It looks at the mode before it looks at the config, always
// expects an install, and answers without a mode or details of its own.
func (s *maintenanceService112) ApplyConfiguration(ctx context.Context, request *machineapi.ApplyConfigurationRequest) (
	*machineapi.ApplyConfigurationResponse, error,
) {
	if mode := request.GetMode(); !slices.Contains(
		[]machineapi.ApplyConfigurationRequest_Mode{machine.ModeAuto, machine.ModeReboot, machine.ModeTry}, mode) {
		return nil, status.Errorf(codes.Unimplemented, "apply configuration --mode='%s' is not supported in maintenance mode",
			strings.ReplaceAll(strings.ToLower(mode.String()), "_", "-"))
	}

	provider, err := s.boot.Release.Rules.Load(request.GetData())
	if err != nil {
		return nil, fmt.Errorf("failed to parse config: %w", err)
	}

	warnings, err := s.boot.Release.Rules.Validate(provider, machine.ValidationMode{})
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "configuration validation failed: %s", err)
	}

	more, err := s.boot.Release.Rules.RuntimeValidate(s.boot.Context, s.boot.Config.Judged(machine.ValidationMode{}),
		provider)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "runtime configuration validation failed: %s", err)
	}

	applied := &machineapi.ApplyConfiguration{Warnings: append(warnings, more...)}
	reply := &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{applied}}

	if request.GetDryRun() {
		applied.ModeDetails = "Dry run summary:\nNode is running in maintenance mode and does not have a config yet."

		return reply, nil
	}

	// What the caller gave up on happens all the same.
	if err := s.boot.Sleep(s.boot.Context, s.boot.Node.Options().Timing.Apply); err != nil {
		return nil, err
	}

	if !s.boot.Config.Receive(provider) {
		return nil, s.hang(ctx)
	}

	return reply, nil
}

// hang waits until the API has closed for good. It is no answer that a closing API would wait for.
func (s *maintenanceService112) hang(ctx context.Context) error {
	s.api.replies.Add(-1)
	defer s.api.replies.Add(1)

	return hang(ctx)
}
