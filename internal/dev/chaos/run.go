package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// Options are how plans are run.
type Options struct {
	// Scale is how many times faster than the wall clock the machines live. Default 150.
	Scale float64
	// Folder gets a folder for each run; the system's for temporary files by default.
	Folder string
}

const defaultScale = 150

// Outcome is what came of a plan.
type Outcome struct {
	Plan       *Plan
	History    *History
	Violations []Violation
	// Err is why the run could not be made or judged at all.
	Err error
	// Took is the wall clock's.
	Took time.Duration
}

// Failed reports whether something did not hold.
func (o Outcome) Failed() bool { return o.Err != nil || len(o.Violations) > 0 }

// limit is the wall clock's for a whole plan: what takes longer hangs, however busy the machine.
const limit = 10 * time.Minute

// Play runs a plan: the recipe while things go wrong, then everything healed, and the recipe again; and checks what
// must hold.
func Play(ctx context.Context, plan *Plan, options Options) Outcome {
	began := time.Now()
	outcome := Outcome{Plan: plan}

	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it went on for %s", limit))
	defer cancel()

	outcome.History, outcome.Err = play(limited, plan, options)
	if limited.Err() != nil {
		outcome.Err = context.Cause(limited)
	}

	outcome.Took = time.Since(began)

	if outcome.Err == nil {
		outcome.Violations = outcome.History.Check()
	}

	return outcome
}

func play(ctx context.Context, plan *Plan, options Options) (*History, error) {
	if options.Scale == 0 {
		options.Scale = defaultScale
	}

	folder, err := os.MkdirTemp(options.Folder, "talos-mage-chaos-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(folder)

	w, err := newWorld(plan, filepath.Join(folder, "first"), options.Scale)
	if err != nil {
		return nil, fmt.Errorf("start machines: %w", err)
	}
	defer w.close()

	history := w.newHistory()

	if plan.Settled {
		w.settle(ctx)
	}

	if history.First, err = w.firstRuns(ctx); err != nil {
		return nil, err
	}

	w.observe(ctx, history)

	if err := w.heal(); err != nil {
		return nil, fmt.Errorf("heal: %w", err)
	}

	if plan.SettledAgain {
		w.settle(ctx)
	}

	again, err := w.operator("first").runRecipe(ctx, w.search()...)
	if err != nil {
		return nil, err
	}

	again.Healed = true
	history.Again = again
	w.conclude(history)

	return history, w.operate(ctx, history)
}

// firstRuns are those of the one or two operators, with the plan's incidents.
func (w *world) firstRuns(ctx context.Context) ([]Run, error) {
	stop := w.strikeAll(ctx, w.plan.Incidents...)
	defer stop()

	operators := []operator{w.operator("first")}

	if w.plan.Second != NoSecond {
		second, err := w.secondOperator()
		if err != nil {
			return nil, err
		}

		operators = append(operators, second)
	}

	runs := make([]*Run, len(operators))
	errs := make([]error, len(operators))

	var working sync.WaitGroup

	for i, operator := range operators {
		working.Go(func() {
			if i > 0 && w.lab.Clock().Sleep(ctx, w.plan.SecondAfter) != nil {
				return
			}

			runs[i], errs[i] = w.work(ctx, operator, i == 0)
		})
	}

	working.Wait()

	var made []Run

	for i, run := range runs {
		if errs[i] != nil {
			return nil, errs[i]
		}

		if run != nil {
			made = append(made, *run)
		}
	}

	return made, ctx.Err()
}

// work is one operator's run; the first operator may press Ctrl-C.
func (w *world) work(ctx context.Context, operator operator, first bool) (*Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	if first && w.plan.Interrupted > 0 {
		go func() {
			if w.lab.Clock().Sleep(ctx, w.plan.Interrupted) == nil {
				cancel()
			}
		}()
	}

	mode := "APPLY_MODE=sequential"
	if w.plan.Parallel {
		mode = "APPLY_MODE=parallel"
	}

	return operator.runRecipe(ctx, append(w.search(), mode)...)
}

func (w *world) operator(name string) operator {
	return operator{name: name, root: w.folder, machine: filepath.Join(w.folder, "computer"), scale: w.scale}
}

// secondOperator works with the same files on the same computer, or with a copy on another.
func (w *world) secondOperator() (operator, error) {
	second := w.operator("second")

	if w.plan.Second == Elsewhere {
		second.root = filepath.Join(filepath.Dir(w.folder), "second")
		second.machine = filepath.Join(second.root, "computer")

		if err := os.CopyFS(filepath.Join(second.root, "talos"), os.DirFS(w.talosDir())); err != nil {
			return second, fmt.Errorf("copy the inventory: %w", err)
		}
	}

	return second, nil
}

// newHistory has what is known before anything happens.
func (w *world) newHistory() *History {
	history := &History{DeclaredMACs: w.plan.DeclaredMACs, Crowded: w.plan.Second != NoSecond,
		MeetInKubernetes: w.plan.Endpoint == Balancer && !w.plan.Discovery, Leases: w.plan.Leases,
		Former: w.lab.EtcdClusters()}

	if w.plan.Endpoint == NodeAddress {
		history.Endpoint = w.plan.Machines[0].Name
	}

	for _, planned := range w.plan.Machines {
		history.Nodes = append(history.Nodes, Declared{
			Name: planned.Name, ControlPlane: planned.ControlPlane, MAC: w.links(planned.Name)[0].MAC,
			Config: sum(w.config(planned.Name)),
		})
	}

	return history
}

// observe notes how the nodes are before the healing.
func (w *world) observe(ctx context.Context, history *History) {
	history.Strikes = w.struck()
	history.Unhealthy = w.unhealthyNodes()
	history.MadeFirst = w.lab.EtcdClusters() - history.Former

	for _, planned := range w.plan.Machines {
		if w.runsAnothers(ctx, planned.Name) {
			history.Confused = append(history.Confused, planned.Name)
		}
	}
}

// runsAnothers reports whether the machine at a node's address runs another node's config, and would say so.
func (w *world) runsAnothers(ctx context.Context, name string) bool {
	for _, node := range w.lab.Nodes() {
		if node.Address() != w.address(name) || !answers(ctx, node) {
			continue
		}

		if config := node.Config(); slices.ContainsFunc(w.plan.Machines, func(other Machine) bool {
			return other.Name != name && string(config) == string(w.config(other.Name))
		}) {
			return true
		}
	}

	return false
}

// answers reports whether a machine's API port is open.
func answers(ctx context.Context, node *emulator.Node) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", node.Endpoint())
	if err != nil {
		return false
	}

	conn.Close() //nolint:errcheck // it was only a look

	return true
}

// conclude notes how everything ended.
func (w *world) conclude(history *History) {
	history.UnhealthyAgain = w.unhealthyNodes()
	history.Made = w.lab.EtcdClusters() - history.Former

	for _, machine := range w.everyMachine() {
		history.Machines = append(history.Machines, recordOf(machine))
	}
}

func recordOf(machine *emulator.Node) Recorded {
	options := machine.Options()

	return Recorded{Name: options.Name, MAC: options.Links[0].MAC, FormerEtcd: options.EtcdData != emulator.NoEtcdData,
		Calls: machine.Calls()}
}
