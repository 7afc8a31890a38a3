package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const (
	// redialFirst and redialLast bound the wait between two dials of a closed port.
	redialFirst = 250 * time.Millisecond
	redialLast  = 500 * time.Millisecond
	// lookAgain is the wait between two looks at a node that answers and isn't watched.
	lookAgain = 800 * time.Millisecond
	// maxReboots is how often a node may go away and come back in one wait before that counts as rebooting for ever.
	maxReboots = 3
)

// judgement is what a step makes of one look at a node.
type verdict struct {
	// done ends the wait well; problem ends it badly; neither goes on.
	done    bool
	problem *diagnosis.Problem
	// doing is what the node does meanwhile, in a few words.
	doing string
}

// await looks at a node until the judge is satisfied or one of the three clocks has run out: still in maintenance,
// silent, or answering with an unchanged stage.
func (r *Run) await(ctx context.Context, node *inventory.Node, step string,
	judge func(context.Context, observe.Observation) verdict) (observe.Observation, *diagnosis.Problem) {
	var clocks clocks

	install := installWatch{run: r}
	defer install.stop()

	for redial := redialFirst; ; {
		seen := r.observer.Observe(ctx, node)
		verdict := judge(ctx, seen)

		if ctx.Err() != nil {
			return seen, r.interrupted(ctx, node, step)
		}

		switch {
		case verdict.problem != nil:
			return seen, verdict.problem
		case verdict.done:
			return seen, nil
		case seen.FailedForGood():
			return seen, r.hopelessProblem(step, seen)
		}

		install.watch(ctx, seen)

		clock := clocks.tick(r, seen)
		if verdict.doing != "" {
			clock.what = verdict.doing
		}

		left := clock.left(seen)
		if left <= 0 || r.Settings.NoWait {
			return seen, r.stuck(step, seen, clock)
		}

		r.Report.Progress(step, report.Progress{Node: node.Name, Text: clock.what, Since: clock.since, Left: left})

		pause := min(redial, left)

		if seen.Silent() {
			redial = min(2*redial, redialLast)
		} else {
			redial = redialFirst
			pause = min(r.pauseWhileAnswering(seen), left)
		}

		if r.rest(ctx, seen, pause) != nil {
			return seen, r.interrupted(ctx, node, step)
		}
	}
}

// pauseWhileAnswering is the gap between two looks at a node that answers. What a booting node still lacks shows in its
// status, which is watched; anything else has to be asked for.
func (r *Run) pauseWhileAnswering(seen observe.Observation) time.Duration {
	if watched(seen) && seen.Installed() {
		return r.Settings.CheckInterval
	}

	return min(r.Settings.CheckInterval, lookAgain)
}

// watched reports whether the node's status is watched between two looks. A watch on a node that is about to reboot
// would hold up its shutdown, so only a booting one is.
func watched(seen observe.Observation) bool {
	return seen.State == talos.Ours && seen.Stage() == "booting"
}

// rest waits until the next look: an answering node is watched, so that a change of its status ends the wait at once.
func (r *Run) rest(ctx context.Context, seen observe.Observation, pause time.Duration) error {
	if !watched(seen) {
		return r.Clock.Sleep(ctx, pause)
	}

	watching, stop := r.Clock.WithTimeout(ctx, pause)
	defer stop()

	conn, err := r.observer.Dialer().Secure(watching, seen.Address)
	if err != nil {
		return r.Clock.Sleep(ctx, min(pause, lookAgain))
	}
	defer conn.Close()

	for update := range conn.WatchStatus(watching) {
		switch {
		case update.Err != nil && watching.Err() == nil:
			return r.Clock.Sleep(ctx, min(pause, lookAgain))
		case update.Err == nil && !update.Status.Same(*seen.Status):
			return nil
		}
	}

	<-watching.Done()

	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	return nil
}

// clocks are the three limits of a wait for one node; each starts anew when what it measures ends.
type clocks struct {
	maintenanceSince time.Time
	stage            string
	stageSince       time.Time
	// reboots counts how often the node has booted since it first answered with its config; boot tells which boot it was
	// in when it last did.
	reboots int
	boot    time.Time
	// answered is whether it answered with its config at the last look.
	answered bool
}

// runningClock is the one that counts at the moment.
type runningClock struct {
	kind  clockKind
	what  string
	since time.Time
	limit time.Duration
}

// left is what was left of its time when the node was asked. A node that falls silent meanwhile makes a look long: it
// says nothing of the time since.
func (c runningClock) left(seen observe.Observation) time.Duration {
	return min(c.limit, c.limit-seen.Asked.Sub(c.since))
}

type clockKind int

const (
	maintenanceClock clockKind = iota
	refusedClock
	noAnswerClock
	stageClock
	rebootClock
)

// tick takes in a look and gives the clock that counts now.
func (c *clocks) tick(r *Run, seen observe.Observation) runningClock {
	c.countReboots(seen, r.observer.Facts(seen.Node).Boot)

	if seen.State != talos.Maintenance {
		c.maintenanceSince = time.Time{}
	}

	switch {
	case c.reboots >= maxReboots:
		return runningClock{kind: rebootClock, what: "reboots again and again", since: seen.At}
	case seen.Silent():
		c.stage = ""

		return silenceClock(r.observer.Facts(seen.Node), seen.Silence, r.Settings)
	case seen.State == talos.Maintenance:
		if c.maintenanceSince.IsZero() {
			c.maintenanceSince = seen.At
		}

		return runningClock{maintenanceClock, "in maintenance", c.maintenanceSince, r.maintenanceLimit(seen.Node)}
	default:
		if stage := seen.Stage(); stage != c.stage || c.stageSince.IsZero() {
			c.stage, c.stageSince = stage, seen.At
		}

		limit := r.Settings.StageTimeout
		if c.stage == "installing" {
			limit = r.Settings.InstallTimeout
		}

		return runningClock{stageClock, stageText(seen), c.stageSince, limit}
	}
}

// maintenanceLimit is how long a node may stay in maintenance.
func (r *Run) maintenanceLimit(node *inventory.Node) time.Duration {
	if facts := r.observer.Facts(node); facts.NotDelivered() {
		return r.reachable()
	}

	return r.Settings.VerificationTimeout
}

// reachable is the time in which a node that is there lets itself be reached, with some tries.
func (r *Run) reachable() time.Duration {
	return time.Duration(r.Settings.ReachabilityRetries) * r.Settings.ReachabilityDelay
}

// countReboots goes by what the node says of its boot: one that does not answer for a moment may be behind a bad cable.
// Only of a node that does not say it every silence counts.
func (c *clocks) countReboots(seen observe.Observation, boot time.Time) {
	ours := seen.State == talos.Ours

	switch {
	case boot.IsZero():
		if c.answered && seen.Silent() {
			c.reboots++
		}
	case ours && !c.boot.IsZero() && !boot.Equal(c.boot):
		c.reboots++
	}

	if c.answered = ours; ours {
		c.boot = boot
	}
}

// silenceClock counts from this run's first look at a silent node, or from its apply. A node that refused in the
// meantime has a limit for no answer from then on (it installed, and reboots now), but no more time in all than one
// that refuses.
func silenceClock(facts observe.Facts, silence talos.Silence, settings *settings.Settings) runningClock {
	since := later(facts.SilentSince, facts.SentAt)

	if silence == talos.Refused {
		return runningClock{refusedClock, "port refused: installing or booting", since, settings.InstallTimeout}
	}

	limit, end := settings.NodeWait, since.Add(settings.InstallTimeout)

	if facts.RefusedAt.After(since) {
		since = facts.RefusedAt
		limit = min(limit, end.Sub(since))
	}

	return runningClock{noAnswerClock, "no answer: self-test, reboot or off", since, limit}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}

	return a
}

func stageText(seen observe.Observation) string {
	text := orUnread(seen.Stage())

	if seen.Status != nil && len(seen.Status.Unmet) > 0 {
		text += ", waiting for " + seen.Status.Unmet[0].Reason
	}

	if seen.Status == nil && seen.ReadErr != nil {
		text += ": " + talos.Explain(seen.ReadErr)
	}

	return text
}

func orUnread(stage string) string {
	if stage == "" {
		return "answers, status not readable yet"
	}

	return stage
}

// stuck is the diagnosis for a clock that ran out: what was last seen, and what to do.
func (r *Run) stuck(step string, seen observe.Observation, clock runningClock) *diagnosis.Problem {
	waited := r.Clock.Now().Sub(clock.since).Round(time.Second)
	problem := r.problem(step, seen, diagnosis.StageStuck, "", "")

	switch clock.kind {
	case maintenanceClock:
		problem.ID = diagnosis.StillMaintenance
		problem.Cause = fmt.Sprintf("still in maintenance after %s: the config was not sent, or not accepted", waited)
		if facts := r.observer.Facts(seen.Node); facts.Sent != nil {
			problem.Cause = fmt.Sprintf("%s, and it is still in maintenance after %s", facts.Receipt(), waited)
		}

		problem.Next = command("applySequential", seen.Node)
	case refusedClock:
		problem.ID = diagnosis.NodeRefused
		problem.Cause = fmt.Sprintf("port 50000 refused for %s: the install or the boot does not end", waited)

		// Something accepts connections, and closes them.
		if !errors.Is(seen.Err, syscall.ECONNREFUSED) {
			problem.Cause += text.Because(talos.Explain(seen.Err))
		}

		problem.Next = "look at the machine's console; then " + command("status", nil)
	case noAnswerClock:
		problem.ID = diagnosis.NodeSilent
		problem.Cause = fmt.Sprintf("no answer at %s for %s: powered off, still in its self-test, or at another "+
			"address%s (%s)",
			text.List(r.observer.Addresses(seen.Node)), waited, r.lossesByConfig(seen.Node), talos.Explain(seen.Err))
		problem.Next = fmt.Sprintf("power it on, or say where it answers: NODE_ADDRESSES=%s=<address> %s", seen.Node.Name,
			command(step, seen.Node))

		if id, remedy, known := diagnosed(seen.Err); known {
			problem.ID, problem.Next = id, remedy
			problem.Cause = fmt.Sprintf("not reachable from here for %s: %s", waited, talos.Explain(seen.Err))
		}
	case rebootClock:
		problem.Cause = fmt.Sprintf("it rebooted %d times without getting any further",
			maxReboots) + text.Because(r.observer.Facts(seen.Node).InstallFailure)
		problem.Next = "look at the machine's console; then " + command("status", nil)
	case stageClock:
		problem.Cause = fmt.Sprintf("%s unchanged for %s", stageText(seen), waited)
		problem.Next = talosctl(seen.Node, "dmesg")

		if id, remedy, known := diagnosed(seen.ReadErr); known && seen.Status == nil {
			problem.ID, problem.Next = id, remedy
			problem.Cause = fmt.Sprintf("%s, for %s", talos.Explain(seen.ReadErr), waited)
		}
	}

	if r.Settings.NoWait && clock.kind != rebootClock {
		problem.Cause = stillness(seen, clock)
	}

	return problem
}

// diagnosed is the kind of trouble that an error tells by itself, such as a proxy that leads nowhere or a wrong clock,
// and what to do about it.
func diagnosed(err error) (id diagnosis.ID, remedy string, known bool) {
	if id, known = talos.Diagnose(err); !known {
		return "", "", false
	}

	entry, _ := diagnosis.Lookup(id)

	return id, entry.Remedy, true
}

// lossesByConfig are the ways in which its own machine config can keep a node from ever answering again.
func (r *Run) lossesByConfig(node *inventory.Node) string {
	config := r.Configs[node.Name]
	if config == nil {
		return ""
	}

	losses := ""

	if links := config.Links(); len(links) > 0 {
		losses += fmt.Sprintf(", or off the network, if it has no link %s", text.List(links))
	}

	if config.HasTPMKeys() {
		losses += ", or its disk can't be unlocked with the TPM's key"
	}

	return losses
}

// stillness is what is said without waiting (-noWait).
func stillness(seen observe.Observation, clock runningClock) string {
	if seen.Silent() && seen.Err != nil {
		return clock.what + " (" + talos.Explain(seen.Err) + ")"
	}

	return clock.what
}

func (r *Run) hopelessProblem(step string, seen observe.Observation) *diagnosis.Problem {
	id, remedy, _ := diagnosed(seen.ReadErr)

	return r.problem(step, seen, id, talos.Explain(seen.ReadErr), remedy)
}

// problem starts a problem about a node in a step; the step's exit code is the problem's unless the catalogue says
// otherwise.
func (r *Run) problem(step string, seen observe.Observation, id diagnosis.ID, cause, next string) *diagnosis.Problem {
	return &diagnosis.Problem{
		Step: step,
		Err:  cmp.Or(seen.Err, seen.ReadErr),
		Finding: diagnosis.Finding{
			ID:       id,
			Severity: diagnosis.Failure,
			Node:     seen.Node.Name,
			Address:  seen.Address,
			Cause:    cause,
			Next:     next,
			Exit:     exitOf(step),
		},
	}
}

// unexpected is the problem for what is a fault of this program.
func (r *Run) unexpected(step string, node *inventory.Node, err error) *diagnosis.Problem {
	problem := r.problem(step, observe.Unobserved(node, err), diagnosis.Unexpected, "unexpected error: "+err.Error(),
		"run the same command again with LOG_LEVEL=debug, and report it")
	problem.Exit = diagnosis.ExitUnexpected

	return problem
}

// exitOf is the code a step fails with.
func exitOf(step string) diagnosis.ExitCode {
	switch step {
	case preflightName:
		return diagnosis.ExitPreflight
	case applySequentialName, applyParallelName:
		return diagnosis.ExitApply
	case verifyName, verifyWorkersName:
		return diagnosis.ExitVerify
	case bootstrapName:
		return diagnosis.ExitBootstrap
	case kubeconfigName:
		return diagnosis.ExitKubernetes
	default:
		return diagnosis.ExitUnexpected
	}
}

// interrupted is the problem of a node whose step a signal ended.
func (r *Run) interrupted(ctx context.Context, node *inventory.Node, step string) *diagnosis.Problem {
	problem := r.interruptedStep(ctx, step)
	problem.Node = node.Name

	return problem
}

// interruptedStep is the problem of a step that a signal ended.
func (r *Run) interruptedStep(ctx context.Context, step string) *diagnosis.Problem {
	return &diagnosis.Problem{
		Step: step,
		Err:  context.Cause(ctx),
		Finding: diagnosis.Finding{
			ID:       diagnosis.Interrupted,
			Severity: diagnosis.Failure,
			Cause:    "stopped before it was done",
			Next:     "run the same command again: it looks at the nodes first and goes on where it stopped",
			Exit:     diagnosis.ExitInterrupt,
		},
	}
}

// command is what to type for a step, for one node or for all.
func command(step string, node *inventory.Node) string {
	target := step

	// To people the second half of verify is verify too.
	if step == verifyWorkersName {
		target = verifyName
	}

	if node == nil {
		return "mage " + target
	}

	return fmt.Sprintf("mage %s -node=%s", target, node.Name)
}

// talosctl is a talosctl command for one node, asked directly.
func talosctl(node *inventory.Node, command string) string {
	return fmt.Sprintf("talosctl -n %s -e %s %s", node.Address, node.Address, command)
}

// ago is how long ago something began, for people.
func (r *Run) ago(start time.Time) time.Duration {
	return r.Clock.Now().Sub(start).Round(time.Second)
}
