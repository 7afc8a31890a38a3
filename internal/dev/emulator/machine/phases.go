package machine

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

// sequencer runs the sequences of a boot, one at a time.
type sequencer struct {
	boot *Boot

	running *sequence // guarded by boot.mu
}

// run runs the phases of a sequence if none runs, or if it may take over from the one that does. One that can't
// start leaves an event, and so does one that ends early: as cancelled if another took over, else as fatal, which makes
// the machine reboot.
func (s *sequencer) run(ctx context.Context, name string, force bool, phases []phase) error {
	ctx, mine, err := s.lock(ctx, name, force)
	if err != nil {
		if errors.Is(err, errLocked) {
			// As in Talos nobody is named as its actor, so that who waits for the actor's events never sees it.
			s.sequenceEvent(context.Background(), name, machineapi.SequenceEvent_NOOP,
				&common.Error{Code: common.Code_LOCKED, Message: "sequence not started: " + err.Error()})
		}

		return err
	}
	defer s.unlock(mine)

	s.sequenceEvent(ctx, name, machineapi.SequenceEvent_START, nil)
	s.stageFor(name)

	err = s.runPhases(ctx, name, phases)

	s.sequenceEvent(ctx, name, machineapi.SequenceEvent_STOP, nil)

	switch {
	case err == nil && name == seqBoot:
		s.boot.status.setStage(runtimeres.MachineStageRunning)
	case err == nil:
	case errors.Is(err, context.Canceled):
		s.sequenceEvent(ctx, name, machineapi.SequenceEvent_NOOP,
			&common.Error{Code: common.Code_CANCELED, Message: "sequence failed: " + err.Error()})
	default:
		s.sequenceEvent(ctx, name, machineapi.SequenceEvent_NOOP,
			&common.Error{Code: common.Code_FATAL, Message: "sequence failed: " + err.Error()})

		if name != SeqShutdown {
			s.boot.status.setStage(runtimeres.MachineStageRebooting)
		}
	}

	return err
}

// runPhases runs a sequence's phases one after the other.
func (s *sequencer) runPhases(ctx context.Context, sequence string, phases []phase) error {
	start := s.boot.Now()

	s.boot.Log("%s sequence: %d phase(s)", sequence, len(phases))

	for number, current := range phases {
		if err := s.runPhase(ctx, fmt.Sprintf("%d/%d", number+1, len(phases)), current); err != nil {
			s.boot.Log("%s sequence: failed", sequence)

			return fmt.Errorf("error running phase %d in %s sequence: %w", number+1, sequence, err)
		}

		if err := ctx.Err(); err != nil {
			return err
		}
	}

	s.boot.Log("%s sequence: done: %s", sequence, s.boot.Now().Sub(start))

	return nil
}

func (s *sequencer) runPhase(ctx context.Context, progress string, current phase) error {
	start := s.boot.Now()

	s.boot.Log("phase %s (%s): %d tasks(s)", current.name, progress, len(current.tasks))
	s.phaseEvent(ctx, current.name, machineapi.PhaseEvent_START)

	for number, one := range current.tasks {
		which := fmt.Sprintf("%d/%d", number+1, len(current.tasks))

		if err := s.runTask(ctx, which, one); err != nil {
			s.phaseEvent(ctx, current.name, machineapi.PhaseEvent_STOP)
			s.boot.Log("phase %s (%s): failed", current.name, progress)

			return fmt.Errorf("task %s: failed, %w", which, err)
		}
	}

	s.phaseEvent(ctx, current.name, machineapi.PhaseEvent_STOP)
	s.boot.Log("phase %s (%s): done, %s", current.name, progress, s.boot.Now().Sub(start))

	return nil
}

func (s *sequencer) runTask(ctx context.Context, progress string, current task) error {
	start := s.boot.Now()

	s.boot.Log("task %s (%s): starting", current.name, progress)
	s.taskEvent(ctx, current.name, machineapi.TaskEvent_START)

	var err error
	if current.run != nil {
		err = current.run(ctx)
	}

	s.taskEvent(ctx, current.name, machineapi.TaskEvent_STOP)

	if err != nil {
		s.boot.Log("task %s (%s): failed: %s", current.name, progress, err)

		return err
	}

	s.boot.Log("task %s (%s): done, %s", current.name, progress, s.boot.Now().Sub(start))

	return nil
}

// warned makes the failures of phases warnings on the console.
func (s *sequencer) warned(phases ...phase) []phase {
	for _, one := range phases {
		for i, careful := range one.tasks {
			if careful.run != nil {
				one.tasks[i].run = s.warning(careful.run)
			}
		}
	}

	return phases
}

func (s *sequencer) warning(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			s.boot.Log("WARNING: task failed: %s", err)
		}

		return context.Cause(ctx)
	}
}

func (s *sequencer) sequenceEvent(ctx context.Context, name string, action machineapi.SequenceEvent_Action,
	failure *common.Error) {
	s.boot.Events.publish(s.boot.Now(), actorOf(ctx),
		&machineapi.SequenceEvent{Sequence: name, Action: action, Error: failure})
}

func (s *sequencer) phaseEvent(ctx context.Context, name string, action machineapi.PhaseEvent_Action) {
	s.boot.Events.publish(s.boot.Now(), actorOf(ctx), &machineapi.PhaseEvent{Phase: name, Action: action})
}

func (s *sequencer) taskEvent(ctx context.Context, name string, action machineapi.TaskEvent_Action) {
	s.boot.Events.publish(s.boot.Now(), actorOf(ctx), &machineapi.TaskEvent{Task: name, Action: action})
}
