// Package sequence runs what a node does in order: sequences of phases of tasks, one sequence at a time.
package sequence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/journal"
)

// Phase is one phase of a sequence: tasks that have to succeed before the next phase begins.
type Phase struct {
	Name  string
	Tasks []Task
}

// Task is one task of a phase. Those of which nothing can be seen but their names do nothing.
type Task struct {
	Name string
	Run  func(ctx context.Context) error
}

// Single is a phase with one task.
func Single(name, taskName string, run func(ctx context.Context) error) Phase {
	return Phase{name, []Task{{taskName, run}}}
}

// Idle is a phase whose tasks do nothing.
func Idle(name string, tasks ...string) Phase {
	quiet := Phase{Name: name}
	for _, taskName := range tasks {
		quiet.Tasks = append(quiet.Tasks, Task{Name: taskName})
	}

	return quiet
}

// actorKey is the key of a context that says who asked for a sequence.
type actorKey struct{}

// WithActor says who asked for a sequence.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorOf is who asked for it; empty if nobody did.
func ActorOf(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)

	return actor
}

// Runner runs sequences, one at a time.
type Runner struct {
	Options

	mu      sync.Mutex
	running *sequence
}

// Options are what a runner needs of a boot.
type Options struct {
	Events *journal.Events
	// Log writes to the console.
	Log func(format string, values ...any)
	Now func() time.Time
	// Stage is told of the machine's stage when a sequence changes it.
	Stage func(runtimeres.MachineStage)
}

// Run runs the phases of a sequence if none runs, or if it may take over from the one that does. One that can't
// start leaves an event, and so does one that ends early: as cancelled if another took over, else as fatal, which makes
// the machine reboot.
func (r *Runner) Run(ctx context.Context, name string, force bool, phases []Phase) error {
	ctx, mine, err := r.lock(ctx, name, force)
	if err != nil {
		if errors.Is(err, ErrLocked) {
			// As in Talos nobody is named as its actor, so that who waits for the actor's events never sees it.
			r.sequenceEvent(context.Background(), name, machineapi.SequenceEvent_NOOP,
				&common.Error{Code: common.Code_LOCKED, Message: "sequence not started: " + err.Error()})
		}

		return err
	}
	defer r.unlock(mine)

	r.sequenceEvent(ctx, name, machineapi.SequenceEvent_START, nil)
	r.stageFor(name)

	err = r.runPhases(ctx, name, phases)

	r.sequenceEvent(ctx, name, machineapi.SequenceEvent_STOP, nil)

	switch {
	case err == nil && name == Boot:
		r.Stage(runtimeres.MachineStageRunning)
	case err == nil:
	case errors.Is(err, context.Canceled):
		r.sequenceEvent(ctx, name, machineapi.SequenceEvent_NOOP,
			&common.Error{Code: common.Code_CANCELED, Message: "sequence failed: " + err.Error()})
	default:
		r.sequenceEvent(ctx, name, machineapi.SequenceEvent_NOOP,
			&common.Error{Code: common.Code_FATAL, Message: "sequence failed: " + err.Error()})

		if name != Shutdown {
			r.Stage(runtimeres.MachineStageRebooting)
		}
	}

	return err
}

// runPhases runs a sequence's phases one after the other.
func (r *Runner) runPhases(ctx context.Context, sequence string, phases []Phase) error {
	start := r.Now()

	r.Log("%s sequence: %d phase(s)", sequence, len(phases))

	for number, current := range phases {
		if err := r.runPhase(ctx, fmt.Sprintf("%d/%d", number+1, len(phases)), current); err != nil {
			r.Log("%s sequence: failed", sequence)

			return fmt.Errorf("error running phase %d in %s sequence: %w", number+1, sequence, err)
		}

		if err := ctx.Err(); err != nil {
			return err
		}
	}

	r.Log("%s sequence: done: %s", sequence, r.Now().Sub(start))

	return nil
}

func (r *Runner) runPhase(ctx context.Context, progress string, current Phase) error {
	start := r.Now()

	r.Log("phase %s (%s): %d tasks(s)", current.Name, progress, len(current.Tasks))
	r.phaseEvent(ctx, current.Name, machineapi.PhaseEvent_START)

	for number, one := range current.Tasks {
		which := fmt.Sprintf("%d/%d", number+1, len(current.Tasks))

		if err := r.runTask(ctx, which, one); err != nil {
			r.phaseEvent(ctx, current.Name, machineapi.PhaseEvent_STOP)
			r.Log("phase %s (%s): failed", current.Name, progress)

			return fmt.Errorf("task %s: failed, %w", which, err)
		}
	}

	r.phaseEvent(ctx, current.Name, machineapi.PhaseEvent_STOP)
	r.Log("phase %s (%s): done, %s", current.Name, progress, r.Now().Sub(start))

	return nil
}

func (r *Runner) runTask(ctx context.Context, progress string, current Task) error {
	start := r.Now()

	r.Log("task %s (%s): starting", current.Name, progress)
	r.TaskEvent(ctx, current.Name, machineapi.TaskEvent_START)

	var err error
	if current.Run != nil {
		err = current.Run(ctx)
	}

	r.TaskEvent(ctx, current.Name, machineapi.TaskEvent_STOP)

	if err != nil {
		r.Log("task %s (%s): failed: %s", current.Name, progress, err)

		return err
	}

	r.Log("task %s (%s): done, %s", current.Name, progress, r.Now().Sub(start))

	return nil
}

// Warned makes the failures of phases warnings on the console.
func (r *Runner) Warned(phases ...Phase) []Phase {
	for _, one := range phases {
		for i, careful := range one.Tasks {
			if careful.Run != nil {
				one.Tasks[i].Run = r.warning(careful.Run)
			}
		}
	}

	return phases
}

func (r *Runner) warning(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			r.Log("WARNING: task failed: %s", err)
		}

		return context.Cause(ctx)
	}
}

func (r *Runner) sequenceEvent(ctx context.Context, name string, action machineapi.SequenceEvent_Action,
	failure *common.Error) {
	r.Events.Publish(r.Now(), ActorOf(ctx),
		&machineapi.SequenceEvent{Sequence: name, Action: action, Error: failure})
}

func (r *Runner) phaseEvent(ctx context.Context, name string, action machineapi.PhaseEvent_Action) {
	r.Events.Publish(r.Now(), ActorOf(ctx), &machineapi.PhaseEvent{Phase: name, Action: action})
}

// TaskEvent tells that a task starts or stops.
func (r *Runner) TaskEvent(ctx context.Context, name string, action machineapi.TaskEvent_Action) {
	r.Events.Publish(r.Now(), ActorOf(ctx), &machineapi.TaskEvent{Task: name, Action: action})
}

// Sequences of a node.
const (
	Initialize = "initialize"
	Install    = "install"
	Boot       = "boot"
	Reboot     = "reboot"
	Reset      = "reset"
	Shutdown   = "shutdown"
	Upgrade    = "upgrade"
	// StageUpgrade reboots into an upgrade that is done by the next boot.
	StageUpgrade = "stageUpgrade"
)

// stageFor is the stage that the start of a sequence means.
func (r *Runner) stageFor(name string) {
	switch name {
	case Initialize, Boot:
		r.Stage(runtimeres.MachineStageBooting)
	case Reboot:
		r.Stage(runtimeres.MachineStageRebooting)
	case Reset:
		r.Stage(runtimeres.MachineStageResetting)
	case Shutdown:
		r.Stage(runtimeres.MachineStageShuttingDown)
	case Upgrade, StageUpgrade:
		r.Stage(runtimeres.MachineStageUpgrading)
	}
}

// takeovers lists, for a running sequence, those that may end it without force.
// Source: Talos internal/app/machined/pkg/runtime/sequencer.go.
var takeovers = map[string][]string{
	Initialize: {Reboot},
	Boot:       {Reboot, Reset, Upgrade},
	Reboot:     {Reboot},
	Reset:      {Reboot},
}

// ErrLocked is why a sequence does not start while another runs.
var ErrLocked = errors.New("locked")

// sequence is a running one.
type sequence struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
}

// lock makes a sequence the running one. It ends the one that runs if it may, or is forced to, and waits for
// its end. The context is done as soon as another one takes over.
func (r *Runner) lock(ctx context.Context, name string, force bool) (context.Context, *sequence, error) {
	ctx, cancel := context.WithCancel(ctx)
	mine := &sequence{name: name, cancel: cancel, done: make(chan struct{})}

	for {
		r.mu.Lock()
		running := r.running

		if running == nil {
			r.running = mine
			r.mu.Unlock()

			return ctx, mine, nil
		}
		r.mu.Unlock()

		if !force && !slices.Contains(takeovers[running.name], name) {
			cancel()

			return nil, nil, ErrLocked
		}

		running.cancel()

		select {
		case <-running.done:
		case <-ctx.Done():
			cancel()

			return nil, nil, context.Cause(ctx)
		}
	}
}

func (r *Runner) unlock(mine *sequence) {
	r.mu.Lock()
	if r.running == mine {
		r.running = nil
	}
	r.mu.Unlock()

	mine.cancel()
	close(mine.done)
}
