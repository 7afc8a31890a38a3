package api

import (
	"bytes"
	"errors"
	"io"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// EtcdRecover takes a snapshot for a later Bootstrap. Nobody looks at it before that.
func (s *etcdAPI) EtcdRecover(stream machineapi.MachineService_EtcdRecoverServer) error {
	b := s.boot

	if !b.Services.Up(service.CRI) {
		return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
	}

	if err := onlyOnControlPlane(b, "etcd recover"); err != nil {
		return err
	}

	var snapshot bytes.Buffer

	for {
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}

		snapshot.Write(frame.GetBytes())
	}

	b.Node.EditDrive(func(d *machine.Drive) { d.Recovery = snapshot.Bytes() })

	return stream.SendAndClose(&machineapi.EtcdRecoverResponse{Messages: []*machineapi.EtcdRecover{{}}})
}
