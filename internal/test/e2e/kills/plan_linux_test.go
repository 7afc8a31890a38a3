package kills_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

// victim is who gets the signal.
type victim string

const (
	// aloneTool was started without mage.
	aloneTool victim = "the program alone"
	// launchedTool was started by mage, which lives on.
	launchedTool victim = "the program below mage"
	// itsLauncher is mage, and nobody but mage.
	itsLauncher victim = "mage"
	// wholeGroup is what Ctrl-C in a terminal reaches.
	wholeGroup victim = "mage and the program"
)

// way is a kill without its moment.
type way struct {
	victim victim
	signal syscall.Signal
}

// ways are drawn from with equal chances; mage is hit in half of them.
var ways = []way{
	{aloneTool, syscall.SIGKILL}, {aloneTool, syscall.SIGKILL}, {aloneTool, syscall.SIGKILL},
	{aloneTool, syscall.SIGTERM}, {aloneTool, syscall.SIGTERM},
	{aloneTool, syscall.SIGINT}, {aloneTool, syscall.SIGINT},
	{launchedTool, syscall.SIGKILL}, {launchedTool, syscall.SIGTERM}, {launchedTool, syscall.SIGINT},
	{itsLauncher, syscall.SIGKILL}, {itsLauncher, syscall.SIGKILL}, {itsLauncher, syscall.SIGKILL},
	{itsLauncher, syscall.SIGKILL},
	{itsLauncher, syscall.SIGTERM}, {itsLauncher, syscall.SIGTERM}, {itsLauncher, syscall.SIGTERM},
	{wholeGroup, syscall.SIGINT}, {wholeGroup, syscall.SIGINT}, {wholeGroup, syscall.SIGINT},
}

// launched reports whether mage starts the program.
func (w way) launched() bool { return w.victim != aloneTool }

// reachesTool reports whether the program itself gets a signal that it can answer, and so has to say how to go on.
func (w way) reachesTool() bool { return w.signal != syscall.SIGKILL && w.victim != itsLauncher }

// code is what the program ends with when it answers the signal.
func (w way) code() int { return 128 + int(w.signal) }

// event is what moments are counted by.
type event string

const (
	call event = "calls"            // to a node, as they arrive
	line event = "lines"            // on the program's stderr
	file event = "changes of files" // in the operator's folders
	tick event = "ms"
)

// moment is when the signal is sent: so many events after a step has begun, and a pause.
type moment struct {
	step  string // the start of the process, if empty
	event event
	count int
	pause time.Duration
}

func (m moment) String() string {
	since := m.step
	if since == "" {
		since = "start"
	}

	return fmt.Sprintf("%d %s and %s after %s", m.count, m.event, m.pause, since)
}

// kill is one of them.
type kill struct {
	way
	moment
}

func (k kill) String() string { return fmt.Sprintf("%s to %s, %s", k.signal, k.victim, k.moment) }

// beginning stands for the time before the first step.
const beginning = ""

// stepsOf are the steps of the recipe, in order.
func stepsOf(parallel bool) []string {
	apply := "applySequential"
	if parallel {
		apply = "applyParallel"
	}

	return []string{beginning, "secrets", "configs", "preflight", apply, "verify", "bootstrap", "kubeconfig",
		"verifyWorkers"}
}

// drawKills draws the kills of one bring-up, in the order of the steps that they hit: a run gets as far as the last one
// did, and further.
func drawKills(random *rand.Rand, parallel bool, count int) []kill {
	steps := stepsOf(parallel)
	chosen := make([]int, count)

	for i := range chosen {
		chosen[i] = random.IntN(len(steps))
	}

	slices.Sort(chosen)

	kills := make([]kill, 0, count)
	for _, step := range chosen {
		kills = append(kills, kill{ways[random.IntN(len(ways))], drawMoment(random, steps[step])})
	}

	return kills
}

// drawMoment counts by what there is in the step. Half of the signals come with the event, half some time after it.
func drawMoment(random *rand.Rand, step string) moment {
	drawn := moment{step: step}

	if random.IntN(2) == 0 {
		drawn.pause = time.Duration(random.IntN(5000)) * time.Microsecond
	}

	switch step {
	case beginning:
		drawn.event, drawn.count = tick, random.IntN(120)
	case "secrets", "configs", "kubeconfig":
		// Brief ones: a few files are written, by programs or after a call.
		drawn.event, drawn.count = []event{file, file, line, call, tick}[random.IntN(5)], random.IntN(6)
	default:
		drawn.event, drawn.count = []event{call, call, call, call, line, tick}[random.IntN(6)], random.IntN(13)
	}

	if drawn.event == tick && step != beginning {
		drawn.count *= 4
	}

	return drawn
}
