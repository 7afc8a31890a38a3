// Package journal is what a boot tells of itself while it lasts: its events and its logs.
package journal

import (
	"encoding/base32"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/signal"
)

// Sizes of a node's event ring: what it holds, and how much of that is left out for readers that begin, as a gap before
// the writer.
const (
	eventCapacity = 1000
	eventGap      = 10
)

// eventTypePrefix is what event type URLs begin with.
const eventTypePrefix = "talos/runtime/"

// Event is one entry of a node's event ring.
type Event struct {
	id    string
	Actor string
	at    time.Time // node time
	data  *anypb.Any
}

// Message is the event as the API sends it.
func (e Event) Message() *machineapi.Event {
	return &machineapi.Event{Metadata: &common.Metadata{}, Data: e.data, Id: e.id, ActorId: e.Actor}
}

// Events is the history of a boot's events. It is lost at reboot.
type Events struct {
	Changed signal.Signal

	mu     sync.Mutex
	events []Event
	first  int // position of events[0] since the boot began
}

// Hello is what every stream begins with: no event, but an id.
func (r *Events) Hello(at time.Time, actor string) *machineapi.Event {
	r.mu.Lock()
	defer r.mu.Unlock()

	return &machineapi.Event{Data: &anypb.Any{}, Id: eventID(at, r.first+len(r.events)), ActorId: actor}
}

// Publish adds an event, which an actor may have caused.
func (r *Events) Publish(at time.Time, actor string, payload proto.Message) {
	body, err := proto.Marshal(payload)
	if err != nil {
		return // generated messages always marshal
	}

	data := &anypb.Any{TypeUrl: eventTypePrefix + string(payload.ProtoReflect().Descriptor().FullName()), Value: body}

	r.mu.Lock()
	r.events = append(r.events, Event{id: eventID(at, r.first+len(r.events)), Actor: actor, at: at, data: data})

	if over := len(r.events) - eventCapacity; over > 0 {
		r.events = r.events[over:]
		r.first += over
	}
	r.mu.Unlock()

	r.Changed.Raise()
}

// At returns the event at a position; found is false when there is none yet, and lost is true when the reader was too
// slow for the ring.
func (r *Events) At(position int) (found Event, ok, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	end := r.first + len(r.events)

	switch {
	case position == end:
		return Event{}, false, false
	case end-position >= eventCapacity:
		return Event{}, false, true
	default:
		return r.events[position-r.first], true, false
	}
}

// Start finds the position at which a reader begins.
func (r *Events) Start(request *machineapi.EventsRequest, now time.Time) (int, error) {
	if err := checkTails(request); err != nil {
		return 0, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	end := r.first + len(r.events)
	oldest := max(r.first, end-(eventCapacity-eventGap))

	// from is the first position, of those that readers can begin at, whose event fits.
	from := func(fits func(Event) bool) int {
		for position := oldest; position < end; position++ {
			if fits(r.events[position-r.first]) {
				return position
			}
		}

		return end
	}

	switch {
	case request.GetTailEvents() < 0:
		return oldest, nil
	case request.GetTailEvents() > 0:
		return max(oldest, end-int(request.GetTailEvents())), nil
	case request.GetTailId() != "":
		return from(func(e Event) bool { return e.id > request.GetTailId() }), nil
	case request.GetTailSeconds() != 0:
		since := now.Add(-time.Duration(request.GetTailSeconds()) * time.Second)

		return from(func(e Event) bool { return e.at.After(since) }), nil
	default:
		return end, nil
	}
}

// checkTails tells which of the ways to ask for history do not go together. Source: Talos
// internal/app/machined/pkg/runtime/events.go.
func checkTails(request *machineapi.EventsRequest) error {
	number, id, seconds := request.GetTailEvents() != 0, request.GetTailId() != "", request.GetTailSeconds() != 0

	switch {
	case id && len(request.GetTailId()) != eventIDLength:
		return errors.New("error parsing tail_id: xid: invalid ID")
	case number && id:
		return errors.New("WithTailID can't be specified at the same time with WithTailEvents or WithTailDuration")
	case seconds && (number || id):
		return errors.New("WithTailDuration can't be specified at the same time with WithTailEvents or WithTailID")
	default:
		return nil
	}
}

const eventIDLength = 20

// eventID makes an id in the form that Talos uses: sortable, 20 characters of lower-case base 32, of which the last
// tell the position.
func eventID(at time.Time, position int) string {
	var raw [12]byte

	binary.BigEndian.PutUint64(raw[:], uint64(at.UnixMicro())) //nolint:gosec // the clock is past 1970
	binary.BigEndian.PutUint32(raw[8:], uint32(position))      //nolint:gosec // a few thousand

	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(raw[:]))
}
