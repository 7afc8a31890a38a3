package machine

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// serviceState is a state of a Talos service as ServiceList spells it.
type serviceState string

// States of a service.
const (
	stateStarting  serviceState = "Starting"
	stateWaiting   serviceState = "Waiting"
	statePreparing serviceState = "Preparing"
	StateRunning   serviceState = "Running"
	stateStopping  serviceState = "Stopping"
	stateFinished  serviceState = "Finished"
	stateFailed    serviceState = "Failed"
	stateSkipped   serviceState = "Skipped"
)

// eventActions are the states' counterparts in ServiceStateEvents.
var eventActions = map[serviceState]machineapi.ServiceStateEvent_Action{
	stateStarting:  machineapi.ServiceStateEvent_STARTING,
	stateWaiting:   machineapi.ServiceStateEvent_WAITING,
	statePreparing: machineapi.ServiceStateEvent_PREPARING,
	StateRunning:   machineapi.ServiceStateEvent_RUNNING,
	stateStopping:  machineapi.ServiceStateEvent_STOPPING,
	stateFinished:  machineapi.ServiceStateEvent_FINISHED,
	stateFailed:    machineapi.ServiceStateEvent_FAILED,
	stateSkipped:   machineapi.ServiceStateEvent_SKIPPED,
}

// maxServiceEvents is how much history a service keeps.
const maxServiceEvents = 64

// Services that a node has.
const (
	serviceAPId       = "apid"
	serviceAuditd     = "auditd"
	serviceContainerd = "containerd"
	ServiceCRI        = "cri"
	serviceDashboard  = "dashboard"
	serviceEtcd       = "etcd"
	serviceKubelet    = "kubelet"
	serviceMachined   = "machined"
	serviceSyslogd    = "syslogd"
	serviceTrustd     = "trustd"
	serviceUdevd      = "udevd"
)

// uncheckedServices have no health check; their health stays unknown.
var uncheckedServices = []string{serviceAuditd, serviceDashboard}

// service is one entry of ServiceList. Its fields are guarded by boot.mu.
type service struct {
	id     string
	state  serviceState
	events []*machineapi.ServiceEvent

	checked    bool // a health check has had a result
	healthy    bool
	message    string
	lastChange time.Time
}

// up is what other services and the boot sequence wait for.
func (s *service) up() bool {
	switch s.state {
	case stateSkipped, stateFinished:
		return true
	case StateRunning:
		return slices.Contains(uncheckedServices, s.id) || (s.checked && s.healthy)
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

// services are those of a boot. Guarded by boot.mu.
type services struct {
	boot *Boot

	byID   map[string]*service
	wereUp map[string]bool // services that were up once, which is all that the boot sequence waits for
	logs   map[string]*LogBuffer
}

// reset puts a service at the beginning of its history.
func (s *services) reset(id string) {
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()

	s.byID[id] = &service{id: id, state: "Initialized", message: "Unknown"}
}

// set moves a service to a state.
func (s *services) set(id string, state serviceState, message string) {
	s.boot.mu.Lock()

	svc := s.byID[id]
	if svc == nil {
		svc = &service{id: id, message: "Unknown"}
		s.byID[id] = svc
	}

	svc.state = state

	if state == stateStarting { // its health is that of another run
		svc.checked, svc.healthy, svc.message = false, false, "Unknown"
	}

	s.addEvent(svc, message)
	s.boot.mu.Unlock()

	s.show(id)
}

// setHealth records the result of a health check.
func (s *services) setHealth(id string, healthy bool, message string) {
	s.boot.mu.Lock()

	svc := s.byID[id]
	if svc == nil || svc.state != StateRunning || (svc.checked && svc.healthy == healthy) {
		s.boot.mu.Unlock()

		return
	}

	svc.checked, svc.healthy, svc.message, svc.lastChange = true, healthy, message, s.boot.Now()
	text := "Health check successful"

	if healthy {
		svc.message = ""
	} else {
		text = "Health check failed: " + message
	}

	s.addEvent(svc, text)
	s.boot.mu.Unlock()

	s.show(id)
}

// addEvent needs b.mu.
func (s *services) addEvent(svc *service, message string) {
	now := s.boot.Now()

	if svc.up() {
		s.wereUp[svc.id] = true
	}

	svc.events = append(svc.events,
		&machineapi.ServiceEvent{Msg: message, State: string(svc.state), Ts: timestamppb.New(now)})
	if len(svc.events) > maxServiceEvents {
		svc.events = svc.events[1:]
	}

	s.boot.Events.publish(now, "", &machineapi.ServiceStateEvent{
		Service: svc.id,
		Action:  eventActions[svc.state],
		Message: message,
		Health:  svc.health(),
	})
	s.boot.printLine("user: warning", "[talos] service["+svc.id+"]("+string(svc.state)+"): "+message)
}

// show makes the service's resource follow it: only running services have one.
func (s *services) show(id string) {
	s.boot.mu.Lock()
	svc := *s.byID[id]
	s.boot.mu.Unlock()

	resource := v1alpha1.NewService(id)

	if svc.state != StateRunning {
		s.boot.Resources.remove(resource)
	} else {
		resource.TypedSpec().Running = true
		resource.TypedSpec().Healthy = svc.healthy
		resource.TypedSpec().Unknown = !svc.checked
		s.boot.Resources.put(resource)
	}

	s.boot.status.refresh()
}

// run starts a service that only takes its time.
func (s *services) run(ctx context.Context, id string, takes time.Duration) error {
	s.set(id, stateStarting, "Starting service")
	s.set(id, statePreparing, "Running pre state")
	s.set(id, statePreparing, "Creating service runner")

	if err := s.boot.Sleep(ctx, takes); err != nil {
		return err
	}

	s.set(id, StateRunning, s.startedMessage(id))

	if !slices.Contains(uncheckedServices, id) {
		s.setHealth(id, true, "")
	}

	return nil
}

func (s *services) startedMessage(id string) string {
	switch id {
	case serviceEtcd, serviceKubelet, serviceTrustd:
		return "Started task " + id + " (PID " + s.boot.nextPID() + ") for container " + id
	case serviceAPId, serviceMachined, serviceAuditd, serviceSyslogd:
		return "Service started as goroutine"
	default:
		return "Process Process([\"/sbin/" + id + "\"]) started with PID " + s.boot.nextPID()
	}
}

func (s *services) Known(id string) bool {
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()

	return s.byID[id] != nil
}

func (s *services) Up(id string) bool {
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()

	svc := s.byID[id]

	return svc != nil && svc.up()
}

// wasUp reports whether the service was up at any time in this boot.
func (s *services) wasUp(id string) bool {
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()

	return s.wereUp[id]
}

// stop ends services that have not ended yet: the named ones, or all but machined.
func (s *services) stop(ids ...string) {
	s.boot.mu.Lock()

	var ending []string

	for id, svc := range s.byID {
		ended := svc.state == stateFinished || svc.state == stateFailed || svc.state == stateSkipped
		named := slices.Contains(ids, id) || (len(ids) == 0 && id != serviceMachined)

		if named && !ended {
			ending = append(ending, id)
		}
	}

	s.boot.mu.Unlock()
	sort.Strings(ending)

	for _, id := range ending {
		s.set(id, stateStopping, "Sending SIGTERM to "+id)
		s.set(id, stateFinished, "Service finished successfully")
	}
}

// problems is the reason of the unmet condition "services"; empty when there is none.
func (s *services) problems(required []string) string {
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()

	ids := make([]string, 0, len(s.byID))
	for id := range s.byID {
		ids = append(ids, id)
	}

	sort.Strings(ids)

	var problems []string

	for _, id := range ids {
		if svc := s.byID[id]; svc.state == StateRunning && svc.checked && !svc.healthy {
			problems = append(problems, id+" not healthy")
		}
	}

	for _, id := range required {
		if svc := s.byID[id]; svc == nil || svc.state != StateRunning {
			problems = append(problems, id+" not running")
		}
	}

	return strings.Join(problems, ", ")
}

// List is the answer of ServiceList.
func (s *services) List() []*machineapi.ServiceInfo {
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()

	list := make([]*machineapi.ServiceInfo, 0, len(s.byID))
	for _, svc := range s.byID {
		list = append(list, svc.info())
	}

	slices.SortFunc(list, func(a, c *machineapi.ServiceInfo) int { return strings.Compare(a.GetId(), c.GetId()) })

	return list
}

// Refusal is why a service can't be started, stopped or restarted by hand; nil if it can, or if that would
// change nothing.
func (s *services) Refusal(id, operation string) error {
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()

	svc := s.byID[id]
	if svc == nil {
		return fmt.Errorf("service %q not defined", id)
	}

	ended := svc.state == stateFinished || svc.state == stateFailed

	switch {
	case operation == "start" && !ended, operation == "stop" && ended:
		return nil
	case operation != "stop" && id == serviceKubelet:
		return nil
	case operation == "restart" && ended: // what does not run is to be started
		operation = "start"
	}

	return fmt.Errorf("service %q doesn't support %s operation via API", id, operation)
}
