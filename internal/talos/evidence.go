package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// Diagnostic is a mistake that a node has found by itself.
type Diagnostic struct {
	// ID names the kind, as in "address-overlap".
	ID      string
	Message string
	Details []string
}

// Diagnostics reads what the node has found to be wrong with itself.
func (c *Conn) Diagnostics(ctx context.Context) ([]Diagnostic, error) {
	found, err := list[*runtime.Diagnostic](ctx, c, runtime.NewDiagnostic(runtime.NamespaceName, "").Metadata())
	if err != nil {
		return nil, err
	}

	diagnostics := make([]Diagnostic, 0, len(found))
	for _, diagnostic := range found {
		spec := diagnostic.TypedSpec()
		read := Diagnostic{ID: diagnostic.Metadata().ID(), Message: oneLine(scrub(spec.Message))}

		for _, detail := range spec.Details {
			read.Details = append(read.Details, oneLine(scrub(detail)))
		}

		diagnostics = append(diagnostics, read)
	}

	return diagnostics, nil
}

// VolumeState is how far the node is with a volume.
type VolumeState struct {
	ID string
	// Phase is "ready" once it can be used, "missing" of one that is not on the disks yet, and "failed" with Failure.
	Phase, Failure string
	// Location is its device; empty as long as it has none.
	Location string
	Size     uint64
}

// VolumeStates reads how far the node is with its volumes.
func (c *Conn) VolumeStates(ctx context.Context) ([]VolumeState, error) {
	found, err := list[*block.VolumeStatus](ctx, c, block.NewVolumeStatus(block.NamespaceName, "").Metadata())
	if err != nil {
		return nil, err
	}

	states := make([]VolumeState, 0, len(found))
	for _, volume := range found {
		spec := volume.TypedSpec()
		states = append(states, VolumeState{ID: volume.Metadata().ID(), Phase: spec.Phase.String(),
			Failure: oneLine(scrub(spec.ErrorMessage)), Location: spec.Location, Size: spec.Size})
	}

	return states, nil
}

// TimeCheck is a node's clock beside that of its time server.
type TimeCheck struct {
	Server      string
	Node, Right time.Time
	// Asked is when this computer, by its own clock, had the answer.
	Asked time.Time
}

// CheckTime has the node ask its first time server. The error is that server's silence, too.
func (c *Conn) CheckTime(ctx context.Context) (TimeCheck, error) {
	var check TimeCheck

	err := c.read(ctx, OpRead, func(ctx context.Context) error {
		reply, err := c.api.Time(ctx)
		if err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			check = TimeCheck{message.GetServer(), message.GetLocaltime().AsTime(), message.GetRemotetime().AsTime(),
				time.Now()}
		}

		return nil
	})

	return check, err
}

// KernelLog reads the last lines of what the kernel and Talos say on the console, oldest first.
func (c *Conn) KernelLog(ctx context.Context, last int) ([]string, error) {
	return c.logLines(ctx, last, func(ctx context.Context) (dataStream, error) { return c.api.Dmesg(ctx, false, false) })
}

// ServiceLog reads the last lines of a system service's log, oldest first.
func (c *Conn) ServiceLog(ctx context.Context, service string, last int) ([]string, error) {
	return c.logLines(ctx, last, func(ctx context.Context) (dataStream, error) {
		return c.api.Logs(ctx, constants.SystemContainerdNamespace, common.ContainerDriver_CONTAINERD, service, false,
			int32(last)) //nolint:gosec // a few
	})
}

// dataStream is a log as a node sends it, in parts that need not end where lines do.
type dataStream interface {
	Recv() (*common.Data, error)
}

func (c *Conn) logLines(ctx context.Context, last int,
	open func(context.Context) (dataStream, error)) (lines []string, err error) {
	err = c.read(ctx, OpRead, func(ctx context.Context) error {
		stream, err := open(ctx)
		if err != nil {
			return err
		}

		text := tail{most: last}

		err = receive(stream.Recv, func(data *common.Data) { text.add(string(data.GetBytes())) })

		// What came before the node broke off is better than nothing.
		if err != nil && len(text.lines) == 0 {
			return fmt.Errorf("read log: %w", err)
		}

		lines = text.whole()

		return nil
	})

	return lines, err
}

// tail keeps the last lines of a text that comes in parts.
type tail struct {
	most  int
	lines []string
	rest  string
}

func (t *tail) add(part string) {
	text := t.rest + part
	end := strings.LastIndexByte(text, '\n') + 1
	t.rest = text[end:]

	for line := range strings.Lines(text[:end]) {
		t.lines = append(t.lines, strings.TrimRight(line, "\n"))
	}

	if over := len(t.lines) - t.most; over > 0 {
		t.lines = slices.Clone(t.lines[over:])
	}
}

// whole are the lines, fit for people.
func (t *tail) whole() []string {
	lines := t.lines
	if t.rest != "" {
		lines = append(lines, t.rest)
	}

	for i, line := range lines {
		lines[i] = oneLine(scrub(line))
	}

	return lines
}

// eventsQuiet is how long no event may come after one before all those of the past are taken as read.
const eventsQuiet = time.Second

// PastEvents reads the last events that the node remembers, oldest first. A node has some from its boot on, so
// one that tells none in time is an error.
func (c *Conn) PastEvents(ctx context.Context, last int) ([]Event, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errNoAnswer)
	defer cancel()

	var (
		events []Event
		quiet  <-chan time.Time
	)

	updates := c.Events(ctx, 0)
	for {
		select {
		case update, open := <-updates:
			switch {
			case open && update.Err == nil:
				if events = append(events, update.Event); len(events) > last {
					events = events[1:]
				}

				quiet = time.After(eventsQuiet)
			case len(events) > 0 || errors.Is(update.Err, io.EOF):
				return events, nil
			case open:
				return nil, update.Err
			default:
				return nil, c.failure(OpWatch, nil, context.Cause(ctx))
			}
		case <-quiet:
			return events, nil
		}
	}
}

// Text says in a few words what happened.
func (e Event) Text() string {
	words := []string{e.Kind}
	for _, word := range []string{e.Sequence, e.Phase, e.Task, e.Service, e.Stage, e.Action} {
		if word != "" {
			words = append(words, word)
		}
	}

	text := strings.Join(words, " ")
	if e.Failure != "" {
		text += ": " + e.Failure
	}

	return text
}
