package api

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// Events streams the ring: a hello, the asked-for history, and what follows. It ends cleanly when the node stops
// its services.
func (s *logAPI) Events(request *machineapi.EventsRequest,
	stream machineapi.MachineService_EventsServer) error {
	b := s.boot

	if err := stream.Send(b.Events.Hello(b.Now(), request.GetWithActorId())); err != nil {
		return err
	}

	position, err := b.Events.Start(request, b.Now())
	if err != nil {
		return err
	}

	for {
		changed := b.Events.Changed.Wait()

		stopped := b.Stopped.Err() != nil // looked at first, so that the last events are told
		entry, found, lost := b.Events.At(position)

		switch {
		case lost:
			return nil // a reader that fell behind is let go without an error
		case found:
			position++

			if request.GetWithActorId() != "" && entry.Actor != request.GetWithActorId() {
				continue
			}

			if err := stream.Send(entry.Message()); err != nil {
				return err
			}
		case stopped:
			return nil //nolint:nilerr // a machine that stops ends its events without an error
		default:
			if err := wait(stream.Context(), b.Stopped, changed); err != nil {
				return err
			}
		}
	}
}

// wait returns at a change or when services stop, and with an error when the caller has gone.
func wait(caller, stopped context.Context, changed <-chan struct{}) error {
	select {
	case <-caller.Done():
		return caller.Err()
	case <-stopped.Done():
		return nil
	case <-changed:
		return nil
	}
}
