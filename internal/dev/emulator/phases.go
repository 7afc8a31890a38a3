package emulator

import (
	"context"
	"errors"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// phase is one phase of a sequence: tasks that have to succeed before the next phase begins.
type phase struct {
	name  string
	tasks []task
}

// task is one task of a phase. Those of which nothing can be seen but their names do nothing.
type task struct {
	name string
	run  func(ctx context.Context) error
}

// single is a phase with one task.
func single(name, taskName string, run func(ctx context.Context) error) phase {
	return phase{name, []task{{taskName, run}}}
}

// idle is a phase whose tasks do nothing.
func idle(name string, tasks ...string) phase {
	quiet := phase{name: name}
	for _, taskName := range tasks {
		quiet.tasks = append(quiet.tasks, task{name: taskName})
	}

	return quiet
}

// actorKey is the key of a context that says who asked for a sequence.
type actorKey struct{}

func withActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

func actorOf(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)

	return actor
}

// runSequence runs the phases of a sequence if none runs, or if it may take over from the one that does. One that can't
// start leaves an event, and so does one that ends early: as cancelled if another took over, else as fatal, which makes
// the machine reboot.
func (b *boot) runSequence(ctx context.Context, name string, force bool, phases []phase) error {
	ctx, mine, err := b.lockSequence(ctx, name, force)
	if err != nil {
		if errors.Is(err, errLocked) {
			// As in Talos nobody is named as its actor, so that who waits for the actor's events never sees it.
			b.sequenceEvent(context.Background(), name, machineapi.SequenceEvent_NOOP,
				&common.Error{Code: common.Code_LOCKED, Message: "sequence not started: " + err.Error()})
		}

		return err
	}
	defer b.unlockSequence(mine)

	b.sequenceEvent(ctx, name, machineapi.SequenceEvent_START, nil)
	b.stageFor(name)

	err = b.runPhases(ctx, name, phases)

	b.sequenceEvent(ctx, name, machineapi.SequenceEvent_STOP, nil)

	switch {
	case err == nil && name == seqBoot:
		b.setStage(runtimeres.MachineStageRunning)
	case err == nil:
	case errors.Is(err, context.Canceled):
		b.sequenceEvent(ctx, name, machineapi.SequenceEvent_NOOP,
			&common.Error{Code: common.Code_CANCELED, Message: "sequence failed: " + err.Error()})
	default:
		b.sequenceEvent(ctx, name, machineapi.SequenceEvent_NOOP,
			&common.Error{Code: common.Code_FATAL, Message: "sequence failed: " + err.Error()})

		if name != seqShutdown {
			b.setStage(runtimeres.MachineStageRebooting)
		}
	}

	return err
}

// runPhases runs a sequence's phases one after the other.
func (b *boot) runPhases(ctx context.Context, sequence string, phases []phase) error {
	start := b.now()

	b.print("%s sequence: %d phase(s)", sequence, len(phases))

	for number, current := range phases {
		if err := b.runPhase(ctx, fmt.Sprintf("%d/%d", number+1, len(phases)), current); err != nil {
			b.print("%s sequence: failed", sequence)

			return fmt.Errorf("error running phase %d in %s sequence: %w", number+1, sequence, err)
		}

		if err := ctx.Err(); err != nil {
			return err
		}
	}

	b.print("%s sequence: done: %s", sequence, b.now().Sub(start))

	return nil
}

func (b *boot) runPhase(ctx context.Context, progress string, current phase) error {
	start := b.now()

	b.print("phase %s (%s): %d tasks(s)", current.name, progress, len(current.tasks))
	b.phaseEvent(ctx, current.name, machineapi.PhaseEvent_START)

	for number, one := range current.tasks {
		which := fmt.Sprintf("%d/%d", number+1, len(current.tasks))

		if err := b.runTask(ctx, which, one); err != nil {
			b.phaseEvent(ctx, current.name, machineapi.PhaseEvent_STOP)
			b.print("phase %s (%s): failed", current.name, progress)

			return fmt.Errorf("task %s: failed, %w", which, err)
		}
	}

	b.phaseEvent(ctx, current.name, machineapi.PhaseEvent_STOP)
	b.print("phase %s (%s): done, %s", current.name, progress, b.now().Sub(start))

	return nil
}

func (b *boot) runTask(ctx context.Context, progress string, current task) error {
	start := b.now()

	b.print("task %s (%s): starting", current.name, progress)
	b.taskEvent(ctx, current.name, machineapi.TaskEvent_START)

	var err error
	if current.run != nil {
		err = current.run(ctx)
	}

	b.taskEvent(ctx, current.name, machineapi.TaskEvent_STOP)

	if err != nil {
		b.print("task %s (%s): failed: %s", current.name, progress, err)

		return err
	}

	b.print("task %s (%s): done, %s", current.name, progress, b.now().Sub(start))

	return nil
}

// warned makes the failures of phases warnings on the console.
func (b *boot) warned(phases ...phase) []phase {
	for _, one := range phases {
		for i, careful := range one.tasks {
			if careful.run != nil {
				one.tasks[i].run = b.warning(careful.run)
			}
		}
	}

	return phases
}

func (b *boot) warning(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			b.print("WARNING: task failed: %s", err)
		}

		return context.Cause(ctx)
	}
}

func (b *boot) sequenceEvent(ctx context.Context, name string, action machineapi.SequenceEvent_Action,
	failure *common.Error) {
	b.events.publish(b.now(), actorOf(ctx), &machineapi.SequenceEvent{Sequence: name, Action: action, Error: failure})
}

func (b *boot) phaseEvent(ctx context.Context, name string, action machineapi.PhaseEvent_Action) {
	b.events.publish(b.now(), actorOf(ctx), &machineapi.PhaseEvent{Phase: name, Action: action})
}

func (b *boot) taskEvent(ctx context.Context, name string, action machineapi.TaskEvent_Action) {
	b.events.publish(b.now(), actorOf(ctx), &machineapi.TaskEvent{Task: name, Action: action})
}
