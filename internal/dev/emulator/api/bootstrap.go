package api

import (
	"context"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// How long a Bootstrap waits for what it needs, in node time.
const (
	bootstrapCRIWait  = time.Second
	bootstrapTimeWait = 5 * time.Second
)

// bootstrapAllowed reports whether the node has what a Bootstrap needs, and is not about to reboot into what an
// unattended install has written.
func (s *etcdAPI) bootstrapAllowed(ctx context.Context) bool {
	b := s.boot
	up := func() bool { return b.Services.Up(service.CRI) }

	return b.Etcd.Within(ctx, bootstrapCRIWait, up) && !b.Unattended.Unfinished()
}

// Bootstrap makes this node's etcd the first of a new cluster. It looks at this node alone: nothing stops a second
// control plane from making a second cluster.
func (s *etcdAPI) Bootstrap(ctx context.Context,
	request *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	b := s.boot

	b.Log("bootstrap request received")

	if !s.bootstrapAllowed(ctx) {
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	}

	if b.Node.Faults().Bootstrap == faults.BootstrapTypeUnset {
		return nil, status.Error(codes.Unimplemented, "machine type is not set, cannot use bootstrap API")
	}

	if err := onlyOnControlPlane(b, "bootstrap"); err != nil {
		return nil, err
	}

	if !b.Etcd.Wanted() {
		return nil, status.Error(codes.InvalidArgument, "etcd is not configured, bootstrap is not possible")
	}

	if !b.Etcd.Within(ctx, bootstrapTimeWait, b.Synced) {
		return nil, status.Error(codes.FailedPrecondition, "time is not in sync yet")
	}

	if b.Node.ReadDrive().Etcd != nil {
		return nil, status.Error(codes.AlreadyExists, machine.ErrEtcdData)
	}

	start := machine.EtcdStart{
		Bootstrap: true, Recover: request.GetRecoverEtcd(), SkipHash: request.GetRecoverSkipHashCheck(),
	}

	if err := b.Etcd.Bootstrap(start); err != nil {
		return nil, err
	}

	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}
