package api

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/sequence"
)

// Reset checks what is to be wiped, answers, and then wipes it.
func (s *sequenceAPI) Reset(ctx context.Context, request *machineapi.ResetRequest) (*machineapi.ResetResponse,
	error) {
	b := s.boot

	if b.Node.Options().Agent {
		return nil, errAgent
	}

	if err := b.Phases.CheckReset(ctx, request); err != nil {
		return nil, err
	}

	actor := b.Sequences.Act("reset", sequence.Reset, false, b.Phases.Reset(request))

	return &machineapi.ResetResponse{Messages: []*machineapi.Reset{{ActorId: actor}}}, nil
}
