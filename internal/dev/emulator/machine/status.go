package machine

import (
	"fmt"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// statusText is a machine status in comparable form.
type statusText struct {
	stage runtimeres.MachineStage
	ready bool
	unmet string
	shown bool
}

// machineStatus is the stage that a boot is in, and what it shows of it. Guarded by boot.mu.
type machineStatus struct {
	boot *Boot

	stage     runtimeres.MachineStage
	published statusText // the status that was last shown
}

// setStage moves the machine's status to a stage.
func (m *machineStatus) setStage(stage runtimeres.MachineStage) {
	m.boot.mu.Lock()
	m.stage = stage
	m.boot.mu.Unlock()

	m.refresh()
}

// refresh computes the machine's status and shows it, as a resource and an event, if it has changed. It wakes whoever
// waits for the boot.
func (m *machineStatus) refresh() {
	unmet := m.unmet()

	m.boot.mu.Lock()
	now := statusText{stage: m.stage, ready: len(unmet) == 0, unmet: fmt.Sprint(unmet), shown: true}

	if m.published == now {
		m.boot.mu.Unlock()
		m.notify()

		return
	}

	m.published = now

	status := runtimeres.NewMachineStatus()
	status.TypedSpec().Stage = now.stage
	status.TypedSpec().Status.Ready = now.ready
	status.TypedSpec().Status.UnmetConditions = unmet
	m.boot.Resources.put(status)

	notice := &machineapi.MachineStatusEvent{
		Stage:  machineapi.MachineStatusEvent_MachineStage(now.stage), //nolint:gosec // the same numbers
		Status: &machineapi.MachineStatusEvent_MachineStatus{Ready: now.ready},
	}

	for _, condition := range unmet {
		notice.Status.UnmetConditions = append(notice.Status.UnmetConditions,
			&machineapi.MachineStatusEvent_MachineStatus_UnmetCondition{Name: condition.Name, Reason: condition.Reason})
	}

	m.boot.Events.Publish(m.boot.Now(), "", notice)
	m.boot.mu.Unlock()

	if now.stage == runtimeres.MachineStageRunning && now.ready {
		m.boot.Node.EditDrive(func(d *Drive) { d.fallback = false })
	}

	m.notify()
}

// notify wakes whoever waits for a change of the boot or of its node.
func (m *machineStatus) notify() {
	m.boot.changed.Raise()
	m.boot.Node.changed.Raise()
}

// unmet are what keeps the machine from being ready. Only the stages booting and running ask for anything.
func (m *machineStatus) unmet() []runtimeres.UnmetCondition {
	m.boot.mu.Lock()
	stage, synced, addressed := m.stage, m.boot.timeSynced, m.boot.addressed
	m.boot.mu.Unlock()

	if stage != runtimeres.MachineStageBooting && stage != runtimeres.MachineStageRunning {
		return nil
	}

	var unmet []runtimeres.UnmetCondition

	add := func(name, reason string) {
		if reason != "" {
			unmet = append(unmet, runtimeres.UnmetCondition{Name: name, Reason: reason})
		}
	}

	if !synced {
		add("time", "time is not synced")
	}

	if waiting := m.networkProblems(addressed); len(waiting) > 0 {
		add("network", "waiting on: "+strings.Join(waiting, ", "))
	}

	add("services", m.boot.Services.Problems(m.required()))
	add("staticPods", m.boot.controlPlane.staticPodProblems())

	if m.boot.hasKubernetes() {
		add("nodeReady", m.boot.Kubelet.nodeProblem())
	}

	return unmet
}

// required are the services that a ready machine runs.
func (m *machineStatus) required() []string {
	required := []string{service.APId, service.Machined}
	kubernetes, controlPlane := m.boot.hasKubernetes(), m.boot.Config.Role().IsControlPlane()

	if kubernetes {
		required = append(required, service.Kubelet)
	}

	if kubernetes && controlPlane {
		required = append(required, service.Etcd)
	}

	if controlPlane {
		required = append(required, service.Trustd)
	}

	return required
}

func (m *machineStatus) networkProblems(addressed bool) []string {
	var waiting []string

	if !addressed {
		waiting = append(waiting, "address", "connectivity", "etc-files")
	}

	if m.boot.Config.Hostname() == "" {
		waiting = append(waiting, "hostname")
	}

	return waiting
}

func (m *machineStatus) stageName() string {
	m.boot.mu.Lock()
	defer m.boot.mu.Unlock()

	return m.stage.String()
}

func (m *machineStatus) isReady() bool {
	m.boot.mu.Lock()
	defer m.boot.mu.Unlock()

	return m.published.stage == runtimeres.MachineStageRunning && m.published.ready
}
