package emulator

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/signal"
)

// logBuffer is a growing log that readers can follow.
type logBuffer struct {
	changed signal.Signal

	mu    sync.Mutex
	texts []string
}

func (l *logBuffer) add(line string) {
	l.mu.Lock()
	l.texts = append(l.texts, line)
	l.mu.Unlock()

	l.changed.Raise()
}

func (l *logBuffer) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return slices.Clone(l.texts)
}

// log writes a line to the kernel log, as everything that machined says.
func (b *boot) log(format string, values ...any) {
	b.printLine("user: warning", "[talos] "+fmt.Sprintf(format, values...))
}

func (b *boot) printLine(facility, text string) {
	now := b.now()
	line := fmt.Sprintf("%s: [%s]: %s", facility, now.UTC().Format("2006-01-02T15:04:05.000000000Z"), text)

	b.kernelLog.add(line)
	b.node.lab.options.Logger.Debug().Str("node", b.node.options.Name).Msg(text)
}

// logOf is the log of a service, made when it is first needed.
func (s *services) logOf(id string) *logBuffer {
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()

	if s.logs[id] == nil {
		s.logs[id] = &logBuffer{}
	}

	return s.logs[id]
}

// Dmesg streams the kernel log, one line a message.
func (s *logAPI) Dmesg(request *machineapi.DmesgRequest, stream machineapi.MachineService_DmesgServer) error {
	return s.sendLog(stream, s.boot.kernelLog, request.GetFollow(), request.GetTail(), -1)
}

// Logs streams the log of a service.
func (s *logAPI) Logs(request *machineapi.LogsRequest, stream machineapi.MachineService_LogsServer) error {
	if request.GetNamespace() == "" {
		return status.Error(codes.InvalidArgument, "namespace can't be empty")
	}

	id := request.GetId()

	s.boot.mu.Lock()
	_, known := s.boot.services.byID[id]
	s.boot.mu.Unlock()

	if !known && id != "kernel" {
		return fmt.Errorf("container %q not found", id)
	}

	log := s.boot.services.logOf(id)
	if id == "kernel" {
		log = s.boot.kernelLog
	}

	return s.sendLog(stream, log, request.GetFollow(), false, int(request.GetTailLines()))
}

func (s *logAPI) sendLog(stream grpc.ServerStreamingServer[common.Data], log *logBuffer, follow, onlyNew bool,
	tail int) error {
	lines := log.lines()
	sent := 0

	if onlyNew {
		sent = len(lines)
	} else if tail >= 0 {
		sent = max(0, len(lines)-tail)
	}

	for {
		changed := log.changed.Wait()
		lines = log.lines()

		for ; sent < len(lines); sent++ {
			if err := stream.Send(&common.Data{Bytes: []byte(strings.TrimSuffix(lines[sent], "\n") + "\n")}); err != nil {
				return err
			}
		}

		if !follow || s.boot.stopped.Err() != nil {
			return nil //nolint:nilerr // a machine that stops ends its logs without an error
		}

		if err := wait(stream.Context(), s.boot.stopped, changed); err != nil {
			return err
		}
	}
}
