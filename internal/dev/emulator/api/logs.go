package api

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/journal"
)

// Dmesg streams the kernel log, one line a message.
func (s *logAPI) Dmesg(request *machineapi.DmesgRequest, stream machineapi.MachineService_DmesgServer) error {
	return s.sendLog(stream, s.boot.KernelLog, request.GetFollow(), request.GetTail(), -1)
}

// Logs streams the log of a service.
func (s *logAPI) Logs(request *machineapi.LogsRequest, stream machineapi.MachineService_LogsServer) error {
	if request.GetNamespace() == "" {
		return status.Error(codes.InvalidArgument, "namespace can't be empty")
	}

	id := request.GetId()

	if !s.boot.Services.Known(id) && id != "kernel" {
		if request.GetNamespace() == constants.SystemContainerdNamespace {
			return fmt.Errorf("log %q was not registered", id)
		}

		return fmt.Errorf("container %q not found", id)
	}

	log := s.boot.Services.LogOf(id)
	if id == "kernel" {
		log = s.boot.KernelLog
	}

	return s.sendLog(stream, log, request.GetFollow(), false, int(request.GetTailLines()))
}

func (s *logAPI) sendLog(stream grpc.ServerStreamingServer[common.Data], log *journal.Log, follow, onlyNew bool,
	tail int) error {
	lines := log.Lines()
	sent := 0

	if onlyNew {
		sent = len(lines)
	} else if tail >= 0 {
		sent = max(0, len(lines)-tail)
	}

	for {
		changed := log.Changed.Wait()
		lines = log.Lines()

		for ; sent < len(lines); sent++ {
			if err := stream.Send(&common.Data{Bytes: []byte(strings.TrimSuffix(lines[sent], "\n") + "\n")}); err != nil {
				return err
			}
		}

		if !follow || s.boot.Stopped.Err() != nil {
			return nil //nolint:nilerr // a machine that stops ends its logs without an error
		}

		if err := wait(stream.Context(), s.boot.Stopped, changed); err != nil {
			return err
		}
	}
}
