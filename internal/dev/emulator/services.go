package emulator

import (
	"context"
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
	stateRunning   serviceState = "Running"
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
	stateRunning:   machineapi.ServiceStateEvent_RUNNING,
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
	serviceCRI        = "cri"
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
	case stateRunning:
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

// resetService puts a service at the beginning of its history.
func (b *boot) resetService(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.services[id] = &service{id: id, state: "Initialized", message: "Unknown"}
}

// setService moves a service to a state.
func (b *boot) setService(id string, state serviceState, message string) {
	b.mu.Lock()

	svc := b.services[id]
	if svc == nil {
		svc = &service{id: id, message: "Unknown"}
		b.services[id] = svc
	}

	svc.state = state

	if state == stateStarting { // its health is that of another run
		svc.checked, svc.healthy, svc.message = false, false, "Unknown"
	}

	b.addServiceEvent(svc, message)
	b.mu.Unlock()

	b.showService(id)
}

// setHealth records the result of a health check.
func (b *boot) setHealth(id string, healthy bool, message string) {
	b.mu.Lock()

	svc := b.services[id]
	if svc == nil || svc.state != stateRunning || (svc.checked && svc.healthy == healthy) {
		b.mu.Unlock()

		return
	}

	svc.checked, svc.healthy, svc.message, svc.lastChange = true, healthy, message, b.now()
	text := "Health check successful"

	if healthy {
		svc.message = ""
	} else {
		text = "Health check failed: " + message
	}

	b.addServiceEvent(svc, text)
	b.mu.Unlock()

	b.showService(id)
}

// addServiceEvent needs b.mu.
func (b *boot) addServiceEvent(svc *service, message string) {
	now := b.now()

	if svc.up() {
		b.wereUp[svc.id] = true
	}

	svc.events = append(svc.events,
		&machineapi.ServiceEvent{Msg: message, State: string(svc.state), Ts: timestamppb.New(now)})
	if len(svc.events) > maxServiceEvents {
		svc.events = svc.events[1:]
	}

	b.events.publish(now, "", &machineapi.ServiceStateEvent{
		Service: svc.id,
		Action:  eventActions[svc.state],
		Message: message,
		Health:  svc.health(),
	})
	b.printLine("user: warning", "[talos] service["+svc.id+"]("+string(svc.state)+"): "+message)
}

// showService makes the service's resource follow it: only running services have one.
func (b *boot) showService(id string) {
	b.mu.Lock()
	svc := *b.services[id]
	b.mu.Unlock()

	resource := v1alpha1.NewService(id)

	if svc.state != stateRunning {
		b.remove(resource)
	} else {
		resource.TypedSpec().Running = true
		resource.TypedSpec().Healthy = svc.healthy
		resource.TypedSpec().Unknown = !svc.checked
		b.put(resource)
	}

	b.refresh()
}

// runService starts a service that only takes its time.
func (b *boot) runService(ctx context.Context, id string, takes time.Duration) error {
	b.setService(id, stateStarting, "Starting service")
	b.setService(id, statePreparing, "Running pre state")
	b.setService(id, statePreparing, "Creating service runner")

	if err := b.sleep(ctx, takes); err != nil {
		return err
	}

	b.setService(id, stateRunning, b.startedMessage(id))

	if !slices.Contains(uncheckedServices, id) {
		b.setHealth(id, true, "")
	}

	return nil
}

func (b *boot) startedMessage(id string) string {
	switch id {
	case serviceEtcd, serviceKubelet, serviceTrustd:
		return "Started task " + id + " (PID " + b.nextPID() + ") for container " + id
	case serviceAPId, serviceMachined, serviceAuditd, serviceSyslogd:
		return "Service started as goroutine"
	default:
		return "Process Process([\"/sbin/" + id + "\"]) started with PID " + b.nextPID()
	}
}

func (b *boot) serviceUp(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	svc := b.services[id]

	return svc != nil && svc.up()
}

// serviceWasUp reports whether the service was up at any time in this boot.
func (b *boot) serviceWasUp(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.wereUp[id]
}

// stopServices ends services that have not ended yet: the named ones, or all but machined.
func (b *boot) stopServices(ids ...string) {
	b.mu.Lock()

	var ending []string

	for id, svc := range b.services {
		ended := svc.state == stateFinished || svc.state == stateFailed || svc.state == stateSkipped
		named := slices.Contains(ids, id) || (len(ids) == 0 && id != serviceMachined)

		if named && !ended {
			ending = append(ending, id)
		}
	}

	b.mu.Unlock()
	sort.Strings(ending)

	for _, id := range ending {
		b.setService(id, stateStopping, "Sending SIGTERM to "+id)
		b.setService(id, stateFinished, "Service finished successfully")
	}
}

// serviceProblems is the reason of the unmet condition "services"; empty when there is none.
func (b *boot) serviceProblems(required []string) string {
	b.mu.Lock()
	defer b.mu.Unlock()

	ids := make([]string, 0, len(b.services))
	for id := range b.services {
		ids = append(ids, id)
	}

	sort.Strings(ids)

	var problems []string

	for _, id := range ids {
		if svc := b.services[id]; svc.state == stateRunning && svc.checked && !svc.healthy {
			problems = append(problems, id+" not healthy")
		}
	}

	for _, id := range required {
		if svc := b.services[id]; svc == nil || svc.state != stateRunning {
			problems = append(problems, id+" not running")
		}
	}

	return strings.Join(problems, ", ")
}

// serviceList is the answer of ServiceList.
func (b *boot) serviceList() []*machineapi.ServiceInfo {
	b.mu.Lock()
	defer b.mu.Unlock()

	list := make([]*machineapi.ServiceInfo, 0, len(b.services))
	for _, svc := range b.services {
		list = append(list, svc.info())
	}

	slices.SortFunc(list, func(a, c *machineapi.ServiceInfo) int { return strings.Compare(a.GetId(), c.GetId()) })

	return list
}
