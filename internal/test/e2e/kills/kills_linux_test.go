package kills_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// killsEach is how many kills hit one and the same bring-up, one after the other.
	killsEach = 4
	// attempts is how often a kill is tried whose process ended before its moment came.
	attempts = 5
	// sparse is from how many kills on a kill comes with every change of a file.
	sparse = 60
)

// Whenever the program or its mage is killed: no file is half-written, nobody goes on changing nodes, and the next run
// brings the cluster up.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()

	from := *seed
	if from == 0 {
		from = rand.Uint64() //nolint:gosec // no secret
	}

	again := func(name string) string {
		return fmt.Sprintf("go test ./internal/test/e2e/kills -run '%s' -kills=%d -seed=%d", name, *wanted, from)
	}

	t.Log(again("TestKilledAnywhere"))

	count := &tally{of: map[string]int{}}
	t.Cleanup(func() { count.tell(t) })

	for number := range (*wanted + killsEach - 1) / killsEach {
		t.Run(fmt.Sprintf("bring-up-%d", number+1), func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("again: %s", again(t.Name()))
				}
			})

			random := rand.New(rand.NewPCG(from, uint64(number))) //nolint:gosec // no secrets; a number counts up
			w := newWorld(t, drawShape(random))

			for _, kill := range drawKills(random, w.shape.parallel, min(killsEach, *wanted-number*killsEach)) {
				w.killUntilHit(t, random, kill, count)
			}

			w.converges(t, random.IntN(2) == 0)

			if random.IntN(3) == 0 {
				w.hasNothingToDo(t)
			}
		})
	}
}

// The kills that are drawn may miss the milliseconds in which files are written. Here one comes with each change of the
// operator's folders.
func TestKilledAtEveryChangeOfAFile(t *testing.T) {
	t.Parallel()

	w := newWorld(t, shape{controlPlanes: 1, otherCluster: true})
	count := &tally{of: map[string]int{}}
	t.Cleanup(func() { count.tell(t) })

	// A short test leaves some out.
	step := max(1, sparse / *wanted)

	for number := 1; ; number += step {
		if !w.kill(t, kill{way{aloneTool, syscall.SIGKILL}, moment{event: file, count: number}}, count) {
			break
		}
	}

	w.converges(t, false)
}

func drawShape(random *rand.Rand) shape {
	drawn := shape{
		controlPlanes: 1 + 2*random.IntN(2), workers: random.IntN(3) / 2,
		parallel: random.IntN(2) == 0, rendered: random.IntN(4) == 0, otherCluster: random.IntN(2) == 0,
	}

	switch random.IntN(4) {
	case 0:
		drawn.talos = "v1.12.1"
	case 1:
		drawn.talos, drawn.rendered = "v1.14.1", true // talhelper is refused for it
	case 2:
		drawn.talos, drawn.contract, drawn.rendered = "v1.14.1", "v1.14", true
	}

	return drawn
}

// killUntilHit kills one run of the recipe. A process that has ended before its moment was none of them: the cluster is
// up, and the moment comes earlier the next time.
func (w *world) killUntilHit(t *testing.T, random *rand.Rand, k kill, count *tally) {
	t.Helper()

	for range attempts {
		if w.kill(t, k, count) {
			return
		}

		k.moment = drawMoment(random, beginning)
	}

	require.Fail(t, "no kill came in time", "%s", k)
}

// kill kills one run of the recipe, and requires what must hold afterwards. It tells whether the kill came before the
// run's own end.
func (w *world) kill(t *testing.T, k kill, count *tally) bool {
	t.Helper()

	var (
		p     *process
		ready = make(chan struct{})
		sent  time.Time
	)

	alarm := newAlarm(k.moment, func() {
		<-ready

		sent = time.Now()
		p.send(k.way)
	})

	w.alarm.Store(alarm)
	p = w.start(t, k.launched(), alarm.line)
	close(ready)
	alarm.started()
	p.wait(t)
	w.alarm.Store(nil)
	alarm.off()

	gone := time.Now()

	t.Logf("%s: code %d, signal %d", k, p.code(), p.endedBy())

	changes := w.settled(t)
	w.requireFiles(t, w.judge(t, k, p))
	require.Equal(t, changes, w.changes(), "%s: a node was changed by nobody", k)

	if p.code() != 0 {
		count.add(k, p.lastStep(), gone.Sub(sent))
	}

	return p.code() != 0
}

// judge requires that a program which could answer the signal said how to go on. It tells what the run may have left.
func (w *world) judge(t *testing.T, k kill, p *process) leftovers {
	t.Helper()

	require.NotContains(t, p.output(), "goroutine ", "no stack trace is for people")

	switch code := p.code(); {
	case code == 0:
		return noLeftovers
	case k.reachesTool() && code == k.code():
		require.Contains(t, p.stderr.String(), "mage talos continues from here")

		return olderLeftovers
	case strings.Contains(p.stderr.String(), "\nError: exit forced\n"):
		// Mage's words for a second SIGINT, which one to a whole group may come as: that is a kill.
		return newLeftovers
	case k.victim == itsLauncher && p.endedBy() == k.signal:
		// The program stopped by itself, so it had a say.
		return olderLeftovers
	case k.signal == syscall.SIGKILL && (k.victim == launchedTool || p.endedBy() == k.signal):
		return newLeftovers
	default:
		// The signal ended a program that had not begun, or was done: it had nothing to tell, or had told it.
		if !p.done() {
			require.NotContains(t, p.stderr.String(), " started", "code %d, signal %d\n%s", code, p.endedBy(), p.output())
		}

		return olderLeftovers
	}
}

// done reports whether all that a run that ends well says was said.
func (p *process) done() bool { return strings.Contains(p.stdout.String(), "\nkubeconfig: ") }

// stepStart is what a step says first.
var stepStart = regexp.MustCompile(`(?m) (\w+) started( nodes="\d+")?$`)

// lastStep is the step that the run had come to.
func (p *process) lastStep() string {
	started := stepStart.FindAllStringSubmatch(p.stderr.String(), -1)
	if len(started) == 0 {
		return "before the first step"
	}

	return started[len(started)-1][1]
}

// converges requires that the recipe does the rest, whatever was killed before.
func (w *world) converges(t *testing.T, launched bool) {
	t.Helper()

	p := w.run(t, launched)
	require.Zero(t, p.code(), p.output())
	w.requireFiles(t, noLeftovers)
	w.requireHealthy(t)
}

// requireHealthy asks the machines themselves.
func (w *world) requireHealthy(t *testing.T) {
	t.Helper()

	require.Equal(t, 1, w.Lab.EtcdClusters())
	require.Len(t, slices.DeleteFunc(w.changes(),
		func(change string) bool { return !strings.Contains(change, "Bootstrap") }), 1, "%v", w.changes())

	for number, node := range w.Nodes {
		require.Equal(t, "running", node.Stage(), node.Name())
		require.Contains(t, string(node.Config()), "hostname: "+node.Name()+"\n")

		if number < w.shape.controlPlanes {
			require.True(t, node.EtcdVoter(), node.Name())
		}
	}
}

func (w *world) hasNothingToDo(t *testing.T) {
	t.Helper()

	files, changes := w.contents(t), w.changes()
	p := w.run(t, false)
	require.Zero(t, p.code(), p.output())
	require.Contains(t, p.stdout.String(), "nothing to do")
	require.Equal(t, changes, w.changes())
	require.Equal(t, files, w.contents(t))
}

// tally counts the kills, to be told.
type tally struct {
	mu      sync.Mutex
	of      map[string]int
	longest time.Duration
}

func (c *tally) add(k kill, step string, lasted time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.of["kills"]++
	c.of["in: "+step]++
	c.of[fmt.Sprintf("%s to %s", k.signal, k.victim)]++
	c.longest = max(c.longest, lasted)
}

func (c *tally) tell(t *testing.T) {
	t.Helper()

	for _, what := range slices.Sorted(maps.Keys(c.of)) {
		t.Logf("%4d %s", c.of[what], what)
	}

	t.Logf("the longest time from a kill to the end of all it had started: %s", c.longest)
}
