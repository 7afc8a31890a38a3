package emulator

import (
	"fmt"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// statusText is a machine status in comparable form.
type statusText struct {
	stage runtimeres.MachineStage
	ready bool
	unmet string
	shown bool
}

// setStage moves the machine's status to a stage.
func (b *boot) setStage(stage runtimeres.MachineStage) {
	b.mu.Lock()
	b.stage = stage
	b.mu.Unlock()

	b.refresh()
}

// refresh computes the machine's status and shows it, as a resource and an event, if it has changed. It wakes whoever
// waits for the boot.
func (b *boot) refresh() {
	unmet := b.unmetConditions()

	b.mu.Lock()
	now := statusText{stage: b.stage, ready: len(unmet) == 0, unmet: fmt.Sprint(unmet), shown: true}

	if b.published == now {
		b.mu.Unlock()
		b.notify()

		return
	}

	b.published = now

	status := runtimeres.NewMachineStatus()
	status.TypedSpec().Stage = now.stage
	status.TypedSpec().Status.Ready = now.ready
	status.TypedSpec().Status.UnmetConditions = unmet
	b.put(status)

	notice := &machineapi.MachineStatusEvent{
		Stage:  machineapi.MachineStatusEvent_MachineStage(now.stage), //nolint:gosec // the same numbers
		Status: &machineapi.MachineStatusEvent_MachineStatus{Ready: now.ready},
	}

	for _, condition := range unmet {
		notice.Status.UnmetConditions = append(notice.Status.UnmetConditions,
			&machineapi.MachineStatusEvent_MachineStatus_UnmetCondition{Name: condition.Name, Reason: condition.Reason})
	}

	b.events.publish(b.now(), "", notice)
	b.mu.Unlock()

	b.notify()
}

// notify wakes whoever waits for a change of the boot or of its node.
func (b *boot) notify() {
	b.changed.raise()
	b.node.changed.raise()
}

// unmetConditions are what keeps the machine from being ready. Only the stages booting and running ask for anything.
func (b *boot) unmetConditions() []runtimeres.UnmetCondition {
	b.mu.Lock()
	stage, synced, addressed := b.stage, b.timeSynced, b.addressed
	b.mu.Unlock()

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

	if waiting := b.networkProblems(addressed); len(waiting) > 0 {
		add("network", "waiting on: "+strings.Join(waiting, ", "))
	}

	required := []string{serviceAPId, serviceMachined, serviceKubelet}
	if b.role().IsControlPlane() {
		required = append(required, serviceEtcd, serviceTrustd)
	}

	add("services", b.serviceProblems(required))
	add("staticPods", b.staticPodProblems())
	add("nodeReady", b.nodeProblem())

	return unmet
}

func (b *boot) networkProblems(addressed bool) []string {
	var waiting []string

	if !addressed {
		waiting = append(waiting, "address", "connectivity", "etc-files")
	}

	if b.hostname() == "" {
		waiting = append(waiting, "hostname")
	}

	return waiting
}

func (b *boot) stageName() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.stage.String()
}

func (b *boot) isReady() bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.published.stage == runtimeres.MachineStageRunning && b.published.ready
}
