package emulator

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Sizes of a node's event ring: what it holds, and the gap between readers and the writer.
const (
	eventCapacity = 1000
	eventGap      = 10
)

// eventTypePrefix is what event type URLs begin with.
const eventTypePrefix = "talos/runtime/"

// event is one entry of a node's event ring.
type event struct {
	id    string
	actor string
	at    time.Time // node time
	data  *anypb.Any
}

func (e event) message() *machineapi.Event {
	return &machineapi.Event{Metadata: &common.Metadata{}, Data: e.data, Id: e.id, ActorId: e.actor}
}

// eventRing is the history of a boot's events. It is lost at reboot.
type eventRing struct {
	changed signal

	mu     sync.Mutex
	events []event
	first  int // position of events[0] since the boot began
}

func (r *eventRing) publish(at time.Time, actor string, payload proto.Message) {
	body, err := proto.Marshal(payload)
	if err != nil {
		return // generated messages always marshal
	}

	entry := event{
		id:    newEventID(at),
		actor: actor,
		at:    at,
		data:  &anypb.Any{TypeUrl: eventTypePrefix + string(payload.ProtoReflect().Descriptor().FullName()), Value: body},
	}

	r.mu.Lock()
	r.events = append(r.events, entry)

	if over := len(r.events) - (eventCapacity - eventGap); over > 0 {
		r.events = r.events[over:]
		r.first += over
	}
	r.mu.Unlock()

	r.changed.raise()
}

// after returns the events from a position on, and the next position. ok is false when the reader was too slow and lost some.
func (r *eventRing) after(position int) (events []event, next int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	end := r.first + len(r.events)

	if position < r.first {
		return nil, end, false
	}

	return append([]event(nil), r.events[position-r.first:]...), end, true
}

// start finds the position at which a reader begins.
func (r *eventRing) start(request *machineapi.EventsRequest, now time.Time) (int, error) {
	options := 0

	for _, given := range []bool{request.GetTailEvents() != 0, request.GetTailId() != "", request.GetTailSeconds() != 0} {
		if given {
			options++
		}
	}

	if options > 1 {
		return 0, fmt.Errorf("only one of tail_events, tail_id or tail_seconds can be set")
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	end := r.first + len(r.events)

	switch {
	case request.GetTailEvents() < 0:
		return r.first, nil
	case request.GetTailEvents() > 0:
		return max(r.first, end-int(request.GetTailEvents())), nil
	case request.GetTailId() != "":
		if len(request.GetTailId()) != eventIDLength {
			return 0, fmt.Errorf("error parsing tail_id: xid: invalid ID")
		}

		for i, entry := range r.events {
			if entry.id > request.GetTailId() {
				return r.first + i, nil
			}
		}
	case request.GetTailSeconds() != 0:
		since := now.Add(-time.Duration(request.GetTailSeconds()) * time.Second)

		for i, entry := range r.events {
			if !entry.at.Before(since) {
				return r.first + i, nil
			}
		}
	}

	return end, nil
}

const eventIDLength = 20

// newEventID makes an id in the form that Talos uses: sortable, 20 characters of lower-case base 32.
func newEventID(at time.Time) string {
	var raw [12]byte

	seconds := uint64(at.UnixMicro()) //nolint:gosec // the clock is past 1970
	for i := range 8 {
		raw[i] = byte(seconds >> (56 - 8*i))
	}

	rand.Read(raw[8:]) //nolint:errcheck // never fails

	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(raw[:]))
}

// Events streams the ring: an empty hello, the asked-for history, and what follows. It ends cleanly when the node stops its services.
func (s *machineService) Events(request *machineapi.EventsRequest, stream machineapi.MachineService_EventsServer) error {
	b := s.boot

	if err := stream.Send(&machineapi.Event{Metadata: &common.Metadata{}, Data: &anypb.Any{}, ActorId: request.GetWithActorId()}); err != nil {
		return err
	}

	position, err := b.events.start(request, b.now())
	if err != nil {
		return err
	}

	for {
		changed := b.events.changed.wait()
		stopped := b.stopped.Err() != nil // what was published before that is told yet

		events, next, ok := b.events.after(position)
		if !ok {
			return nil // a reader that fell behind is let go without an error
		}

		position = next

		for _, entry := range events {
			if request.GetWithActorId() != "" && entry.actor != request.GetWithActorId() {
				continue
			}

			if err := stream.Send(entry.message()); err != nil {
				return err
			}
		}

		if stopped {
			return nil //nolint:nilerr // a machine that stops ends its events without an error
		}

		if err := wait(stream.Context(), b.stopped, changed); err != nil {
			return err
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
