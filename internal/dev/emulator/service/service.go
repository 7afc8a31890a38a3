// Package service is the services of a boot, as ServiceList tells of them: their states, health, history and logs.
package service

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/journal"
)

// State is a state of a Talos service as ServiceList spells it.
type State string

// States of a service.
const (
	Starting  State = "Starting"
	Waiting   State = "Waiting"
	Preparing State = "Preparing"
	Running   State = "Running"
	Stopping  State = "Stopping"
	Finished  State = "Finished"
	Failed    State = "Failed"
	Skipped   State = "Skipped"
)

// eventActions are the states' counterparts in ServiceStateEvents.
var eventActions = map[State]machineapi.ServiceStateEvent_Action{
	Starting:  machineapi.ServiceStateEvent_STARTING,
	Waiting:   machineapi.ServiceStateEvent_WAITING,
	Preparing: machineapi.ServiceStateEvent_PREPARING,
	Running:   machineapi.ServiceStateEvent_RUNNING,
	Stopping:  machineapi.ServiceStateEvent_STOPPING,
	Finished:  machineapi.ServiceStateEvent_FINISHED,
	Failed:    machineapi.ServiceStateEvent_FAILED,
	Skipped:   machineapi.ServiceStateEvent_SKIPPED,
}

// Process ids of services.
const (
	firstPID = 1000
	pidStep  = 7
)

// maxEvents is how much history a service keeps.
const maxEvents = 64

// Services that a node has.
const (
	APId       = "apid"
	Auditd     = "auditd"
	Containerd = "containerd"
	CRI        = "cri"
	Dashboard  = "dashboard"
	Etcd       = "etcd"
	Kubelet    = "kubelet"
	Machined   = "machined"
	Sandboxd   = "sandboxd"
	Syslogd    = "syslogd"
	Trustd     = "trustd"
	Udevd      = "udevd"
)

// service is one entry of ServiceList. Its fields are guarded by services.mu.
type service struct {
	id     string
	state  State
	events []*machineapi.ServiceEvent

	checked    bool // a health check has had a result
	healthy    bool
	message    string
	lastChange time.Time
}

// up is what other services and the boot sequence wait for.
func (s *service) up() bool {
	switch s.state {
	case Skipped, Finished:
		return true
	case Running:
		return s.id == Dashboard || (s.checked && s.healthy)
	default:
		return false
	}
}

func (s *service) health() *machineapi.ServiceHealth {
	health := &machineapi.ServiceHealth{
		Unknown:     !s.checked,
		Healthy:     s.healthy,
		LastMessage: s.message,
		LastChange:  timestamppb.New(s.lastChange),
	}

	return health
}

func (s *service) info() *machineapi.ServiceInfo {
	return &machineapi.ServiceInfo{
		Id:     s.id,
		State:  string(s.state),
		Events: &machineapi.ServiceEvents{Events: slices.Clone(s.events)},
		Health: s.health(),
	}
}

// NewTable are those of a boot; there are none yet.
func NewTable(options Options) *Table {
	return &Table{
		Options: options,
		byID:    map[string]*service{}, wereUp: map[string]bool{}, logs: map[string]*journal.Log{},
	}
}

// Options are what services need of a boot.
type Options struct {
	// Events and Console are told of every change.
	Events  *journal.Events
	Console func(facility, text string)
	// Shown is told when what clients see of a service has changed.
	Shown func(service *v1alpha1.Service, running bool)
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
}

// Table are those of a boot.
type Table struct {
	Options

	pids atomic.Int64

	mu     sync.Mutex
	byID   map[string]*service
	wereUp map[string]bool // services that were up once, which is all that the boot sequence waits for
	logs   map[string]*journal.Log
}

// Reset puts a service at the beginning of its history.
func (s *Table) Reset(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.byID[id] = &service{id: id, state: "Initialized"}
}

// Set moves a service to a state.
func (s *Table) Set(id string, state State, message string) {
	s.mu.Lock()

	svc := s.byID[id]
	if svc == nil {
		svc = &service{id: id}
		s.byID[id] = svc
	}

	svc.state = state

	if state == Starting { // its health is that of another run
		svc.checked, svc.healthy, svc.message = false, false, ""
	}

	s.addEvent(svc, message)
	s.mu.Unlock()

	s.show(id)
}

// SetHealth records the result of a health check; the message says why it failed.
func (s *Table) SetHealth(id string, healthy bool, message string) {
	s.mu.Lock()

	svc := s.byID[id]
	if svc == nil || svc.state != Running {
		s.mu.Unlock()

		return
	}

	if svc.checked && svc.healthy == healthy {
		svc.message = message
		s.mu.Unlock()

		return
	}

	svc.checked, svc.healthy, svc.message, svc.lastChange = true, healthy, message, s.Now()
	text := "Health check successful"

	if !healthy {
		text = "Health check failed: " + message
	}

	s.addEvent(svc, text)
	s.mu.Unlock()

	s.show(id)
}

// Remark adds a line to the history of a service, and reports whether there is such a service.
func (s *Table) Remark(id, message string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	svc := s.byID[id]
	if svc != nil {
		s.addEvent(svc, message)
	}

	return svc != nil
}

// addEvent needs mu.
func (s *Table) addEvent(svc *service, message string) {
	now := s.Now()

	if svc.up() {
		s.wereUp[svc.id] = true
	}

	svc.events = append(svc.events,
		&machineapi.ServiceEvent{Msg: message, State: string(svc.state), Ts: timestamppb.New(now)})
	if len(svc.events) > maxEvents {
		svc.events = svc.events[1:]
	}

	s.Events.Publish(now, "", &machineapi.ServiceStateEvent{
		Service: svc.id,
		Action:  eventActions[svc.state],
		Message: message,
		Health:  svc.health(),
	})
	s.Console("user: warning", "[talos] service["+svc.id+"]("+string(svc.state)+"): "+message)
}

// show makes the service's resource follow it: only running services have one.
func (s *Table) show(id string) {
	s.mu.Lock()
	svc := *s.byID[id]
	s.mu.Unlock()

	resource := v1alpha1.NewService(id)
	resource.TypedSpec().Running = true
	resource.TypedSpec().Healthy = svc.healthy
	resource.TypedSpec().Unknown = !svc.checked
	s.Shown(resource, svc.state == Running)
}

// Run starts a service that only takes its time.
func (s *Table) Run(ctx context.Context, id string, takes time.Duration) error {
	s.Set(id, Starting, "Starting service")
	s.Set(id, Preparing, "Running pre state")
	s.Set(id, Preparing, "Creating service runner")

	if err := s.Sleep(ctx, takes); err != nil {
		return err
	}

	s.Set(id, Running, s.StartedMessage(id))

	if id != Dashboard {
		s.SetHealth(id, true, "")
	}

	return nil
}

func (s *Table) nextPID() string { return strconv.FormatInt(firstPID+s.pids.Add(1)*pidStep, 10) }

// StartedMessage is how the service's history says that it runs.
func (s *Table) StartedMessage(id string) string {
	switch id {
	case Etcd, Kubelet, Trustd:
		return "Started task " + id + " (PID " + s.nextPID() + ") for container " + id
	case APId, Machined, Auditd, Syslogd:
		return "Service started as goroutine"
	default:
		return "Process Process([\"/sbin/" + id + "\"]) started with PID " + s.nextPID()
	}
}

// Known reports whether there is such a service.
func (s *Table) Known(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.byID[id] != nil
}

// Up reports whether the service is what others wait for: it runs, and is healthy if that is checked.
func (s *Table) Up(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	svc := s.byID[id]

	return svc != nil && svc.up()
}

// HasRun reports whether the service has come to run, and has not ended in order.
func (s *Table) HasRun(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	svc := s.byID[id]

	return svc != nil && (svc.state == Running || svc.state == Stopping || svc.state == Failed)
}

// Passes reports whether the service runs and has passed its last health check.
func (s *Table) Passes(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	svc := s.byID[id]

	return svc != nil && svc.state == Running && svc.checked && svc.healthy
}

// WasUp reports whether the service was up at any time in this boot.
func (s *Table) WasUp(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.wereUp[id]
}

// Stop ends services that have not ended yet: the named ones, or all but machined.
func (s *Table) Stop(ids ...string) {
	s.mu.Lock()

	var ending []string

	for id, svc := range s.byID {
		ended := svc.state == Finished || svc.state == Failed || svc.state == Skipped
		named := slices.Contains(ids, id) || (len(ids) == 0 && id != Machined)

		if named && !ended {
			ending = append(ending, id)
		}
	}

	s.mu.Unlock()
	sort.Strings(ending)

	for _, id := range ending {
		s.Set(id, Stopping, "Sending SIGTERM to "+id)
		s.Set(id, Finished, "Service finished successfully")
	}
}

// Problems is the reason of the unmet condition "services"; empty when there is none.
func (s *Table) Problems(required []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()

	ids := make([]string, 0, len(s.byID))
	for id := range s.byID {
		ids = append(ids, id)
	}

	sort.Strings(ids)

	var problems []string

	for _, id := range ids {
		if svc := s.byID[id]; svc.state == Running && svc.checked && !svc.healthy {
			problems = append(problems, id+" not healthy")
		}
	}

	for _, id := range required {
		if svc := s.byID[id]; svc == nil || svc.state != Running {
			problems = append(problems, id+" not running")
		}
	}

	return strings.Join(problems, ", ")
}

// List is the answer of ServiceList.
func (s *Table) List() []*machineapi.ServiceInfo {
	s.mu.Lock()
	defer s.mu.Unlock()

	list := make([]*machineapi.ServiceInfo, 0, len(s.byID))
	for _, svc := range s.byID {
		list = append(list, svc.info())
	}

	slices.SortFunc(list, func(a, c *machineapi.ServiceInfo) int { return strings.Compare(a.GetId(), c.GetId()) })

	return list
}

// Refusal is why a service can't be started, stopped or restarted by hand; nil if it can, or if that would
// change nothing.
func (s *Table) Refusal(id, operation string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	svc := s.byID[id]
	if svc == nil {
		return fmt.Errorf("service %q not defined", id)
	}

	ended := svc.state == Finished || svc.state == Failed

	switch {
	case operation == "start" && !ended, operation == "stop" && ended:
		return nil
	case operation != "stop" && id == Kubelet:
		return nil
	case operation == "restart" && ended: // what does not run is to be started
		operation = "start"
	}

	return fmt.Errorf("service %q doesn't support %s operation via API", id, operation)
}

// LogOf is the log of a service, made when it is first needed.
func (s *Table) LogOf(id string) *journal.Log {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.logs[id] == nil {
		s.logs[id] = &journal.Log{}
	}

	return s.logs[id]
}
