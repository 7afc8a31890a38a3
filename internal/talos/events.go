package talos

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// Event is one entry of a node's event log, which is kept in memory and lost at a reboot.
type Event struct {
	ID string
	// Kind is the event's type without its package: "SequenceEvent", "MachineStatusEvent", also one unknown here.
	Kind string
	// Sequence, Phase, Task or Service names what the event is about.
	Sequence, Phase, Task, Service string
	// Action is "start", "stop" or "noop".
	Action string
	// Stage is the machine's stage, in a MachineStatusEvent.
	Stage string
	// Failure is the error of a sequence that failed for good, or of a config that couldn't be loaded; scrubbed.
	Failure string
}

// EventUpdate is one event, or the error that ended the stream.
type EventUpdate struct {
	Event Event
	Err   error
}

// Events follows the node's events: those of the log that are not older than since (all, when zero) and then the new
// ones. The node's own clock decides what is older. The channel is closed after the update that carries the error,
// io.EOF when the node closed its log; it must be read until then, or the context cancelled. An open stream delays the
// node's reboot.
func (c *Conn) Events(ctx context.Context, since time.Duration) <-chan EventUpdate {
	updates := make(chan EventUpdate)

	go func() {
		defer close(updates)

		if err := c.follow(ctx, since, updates); err != nil && ctx.Err() == nil {
			send(ctx, updates, EventUpdate{Err: c.failure(OpWatch, nil, err)})
		}
	}()

	return updates
}

func (c *Conn) follow(ctx context.Context, since time.Duration, updates chan<- EventUpdate) error {
	which := client.WithTailEvents(-1)
	if since > 0 {
		which = client.WithTailDuration(time.Duration(math.Ceil(since.Seconds())) * time.Second)
	}

	stream, err := c.api.Events(ctx, which)
	if err != nil {
		return fmt.Errorf("open events: %w", err)
	}

	for {
		received, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}

		// The first message is an empty greeting.
		if received.GetData().GetTypeUrl() == "" {
			continue
		}

		if !send(ctx, updates, EventUpdate{Event: readEvent(received)}) {
			return context.Cause(ctx)
		}
	}
}

// readEvent keeps events of an unknown type, with nothing but their id and kind.
func readEvent(received *machine.Event) Event {
	event := Event{ID: received.GetId()}

	_, event.Kind, _ = strings.Cut(received.GetData().GetTypeUrl(), "machine.")

	known, err := client.UnmarshalEvent(received)
	if err != nil {
		return event
	}

	switch payload := known.Payload.(type) {
	case *machine.SequenceEvent:
		event.Sequence, event.Action = payload.GetSequence(), strings.ToLower(payload.GetAction().String())

		if failure := payload.GetError(); failure != nil && failure.GetCode() == common.Code_FATAL {
			event.Failure = reason(failure.GetMessage())
		}
	case *machine.PhaseEvent:
		event.Phase, event.Action = payload.GetPhase(), strings.ToLower(payload.GetAction().String())
	case *machine.TaskEvent:
		event.Task, event.Action = payload.GetTask(), strings.ToLower(payload.GetAction().String())
	case *machine.ServiceStateEvent:
		event.Service, event.Action = payload.GetService(), strings.ToLower(payload.GetAction().String())
	case *machine.MachineStatusEvent:
		event.Stage = strings.ToLower(strings.ReplaceAll(payload.GetStage().String(), "_", " "))
	case *machine.ConfigLoadErrorEvent:
		event.Failure = oneLine(scrub(payload.GetError()))
	case *machine.ConfigValidationErrorEvent:
		event.Failure = oneLine(scrub(payload.GetError()))
	}

	return event
}

// taskFailure is the part of a sequence's error that says where it failed; what follows says why.
var taskFailure = pattern.New(`task \d+/\d+: failed, `)

// reason is the cause in the error of a failed sequence:
// "sequence failed: error running phase 2 in install sequence: task 1/1: failed, <cause>".
func reason(text string) string {
	if places := taskFailure.FindAllStringIndex(text, -1); len(places) > 0 {
		text = text[places[len(places)-1][1]:]
	}

	return oneLine(scrub(strings.TrimPrefix(text, "sequence failed: ")))
}

// InstallFailure follows a running install, and is the reason why it failed; empty if it did not. It lets go of the
// node before the node's API closes: an open stream would delay the reboot. The error is that of a node that can't be
// followed.
func (c *Conn) InstallFailure(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	installing := false
	for update := range c.Events(ctx, 0) {
		switch event := update.Event; {
		case update.Err != nil:
			return "", update.Err
		case event.Failure != "":
			return event.Failure, nil
		case event.Phase == "install":
			installing = true
		case installing && event.Phase != "" && event.Action == "start":
			return "", nil
		}
	}

	return "", context.Cause(ctx)
}
