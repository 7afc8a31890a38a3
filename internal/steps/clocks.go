package steps

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// maxReboots is how often a node may go away and come back in one wait before that counts as rebooting for ever.
const maxReboots = 3

// clocks are the three limits of a wait for one node; each starts anew when what it measures ends.
type clocks struct {
	began            time.Time
	maintenanceSince time.Time
	stage            string
	stageSince       time.Time
	// reboots counts how often the node has booted since it first answered with its config; boot tells which boot it was
	// in when it last did.
	reboots int
	boot    string
	// answered is whether it answered with its config the last time.
	answered bool
}

// runningClock is the one that counts at the moment.
type runningClock struct {
	wait.Limit
	kind clockKind
}

type clockKind int

const (
	maintenanceClock clockKind = iota
	refusedClock
	noAnswerClock
	stageClock
	failingClock
	rebootClock
)

// tick takes in an observation and gives the clock that counts now.
func (c *clocks) tick(observer *observe.Observer, seen observe.Observation) runningClock {
	facts, limits := observer.Facts(seen.Node), observer.Settings

	c.countReboots(seen, facts.Boot)

	if c.began.IsZero() {
		c.began = seen.At
	}

	if seen.State != talos.Maintenance {
		c.maintenanceSince = time.Time{}
	}

	switch {
	case c.reboots >= maxReboots:
		return runningClock{wait.Limit{For: "keeps rebooting", Since: seen.At}, rebootClock}
	case seen.Silent():
		c.stage = ""
		clock := silenceClock(facts, seen, observer.Configs[seen.Node.Name], limits)
		clock.Limit.Limit = max(clock.Limit.Limit, c.watched(clock.Limit.Limit, limits).Sub(clock.Since))

		return clock
	case seen.State == talos.Maintenance:
		if c.maintenanceSince.IsZero() {
			c.maintenanceSince = seen.At
		}

		limit := limits.VerificationTimeout
		if facts.NotDelivered() {
			limit = reachable(limits)
		}

		return runningClock{wait.Limit{For: "in maintenance", Since: c.maintenanceSince, Limit: limit}, maintenanceClock}
	default:
		return c.stageClock(facts, seen, limits)
	}
}

// stageClock counts from when the node was first seen in its stage. All of an unattended install is one, though the
// node tells of a failure and the next try in turn: it has the time for a failed install from the first failure to the
// last.
func (c *clocks) stageClock(facts observe.Facts, seen observe.Observation, limits *settings.Settings) runningClock {
	stage, limit := seen.Stage(), limits.StageTimeout
	if seen.Installing() {
		stage, limit = talos.StageInstalling, limits.InstallTimeout
	}

	if stage != c.stage || c.stageSince.IsZero() {
		c.stage, c.stageSince = stage, seen.At
	}

	failing := facts.FailedAt.Sub(facts.FailingSince) >= limits.VerificationTimeout ||
		seen.Install != nil && seen.Install.Failure != ""
	if seen.InstallFailure != "" && failing {
		return runningClock{wait.Limit{For: stageText(seen), Since: facts.FailingSince, Limit: limits.VerificationTimeout},
			failingClock}
	}

	return runningClock{wait.Limit{For: stageText(seen), Since: c.stageSince, Limit: limit}, stageClock}
}

// watched is until when a silent node is watched at least, whatever was seen of it before this wait: while others had
// their turn it may have been switched on, or been given its config by somebody else.
func (c *clocks) watched(limit time.Duration, limits *settings.Settings) time.Time {
	return c.began.Add(min(limit, limits.VerificationTimeout))
}

// reachable is the time in which a node that is there lets itself be reached, with some tries.
func reachable(limits *settings.Settings) time.Duration {
	return time.Duration(limits.ReachabilityRetries) * limits.ReachabilityDelay
}

// countReboots goes by what the node says of its boot: one that does not answer for a moment may be behind a bad cable.
// Only of a node that does not say it every silence counts.
func (c *clocks) countReboots(seen observe.Observation, boot string) {
	ours := seen.State == talos.Ours
	switch {
	case boot == "":
		if c.answered && seen.Silent() {
			c.reboots++
		}
	case ours && c.boot != "" && boot != c.boot:
		c.reboots++
	}

	if c.answered = ours; ours {
		c.boot = boot
	}
}

// silenceClock counts from this run's first observation of a silent node, or from its apply. A node that refused in the
// meantime has a limit for no answer from then on (it installed, and reboots now), but no more time in all than one
// that refuses.
func silenceClock(facts observe.Facts, seen observe.Observation, config *machineconfig.Config,
	limits *settings.Settings) runningClock {
	since := facts.SilentSince
	if facts.SentAt.After(since) {
		since = facts.SentAt
	}

	if seen.Silence == talos.Refused {
		doing := "port refused: installing or booting"
		if facts.Sent != nil && config != nil && config.HidesInstall() {
			doing = "port refused until it is installed, however often that fails"
		}

		return runningClock{wait.Limit{For: doing, Since: since, Limit: limits.InstallTimeout}, refusedClock}
	}

	limit, end := limits.NodeWait, since.Add(limits.InstallTimeout)

	if facts.RefusedAt.After(since) {
		since = facts.RefusedAt
		limit = min(limit, end.Sub(since))
	}

	return runningClock{wait.Limit{For: "no answer: self-test, reboot or off", Since: since, Limit: limit}, noAnswerClock}
}

func stageText(seen observe.Observation) string {
	if seen.Install != nil && seen.Installing() {
		return installText(seen)
	}

	stage := orUnread(seen.Stage())

	if seen.Status != nil && len(seen.Status.Unmet) > 0 {
		stage += ": " + seen.Status.Unmet[0].Reason
	}

	if seen.Status == nil && seen.ReadErr != nil {
		stage += ": " + talos.Explain(seen.ReadErr)
	}

	return stage
}

// installText says how far an unattended install is.
func installText(seen observe.Observation) string {
	switch {
	case seen.Install.Written():
		return "installed, about to reboot"
	case seen.Install.Failure != "":
		return "the install fails, and the node goes on trying: " + seen.InstallFailure
	case seen.InstallFailure != "":
		return "installing again, after it failed: " + seen.InstallFailure
	default:
		return talos.StageInstalling
	}
}

func orUnread(stage string) string {
	if stage == "" {
		return "answers, its status can't be read yet"
	}

	return stage
}

// stuck is the diagnosis for a clock that ran out: what was last seen, and what to do.
func (w *work) stuck(seen observe.Observation, clock runningClock, waited time.Duration) *diagnosis.Problem {
	facts := w.observer.Facts(seen.Node)
	stuck := w.problem(seen, diagnosis.StageStuck, "", "")

	switch clock.kind {
	case maintenanceClock:
		stuck.ID, stuck.Next = diagnosis.StillMaintenance, command("applySequential", seen.Node)
		stuck.Cause = fmt.Sprintf("still in maintenance after %s: the config was not sent, or not accepted", waited)

		if facts.Sent != nil {
			stuck.Cause = fmt.Sprintf("%s, and it is still in maintenance after %s", facts.Receipt(), waited)
		}
	case refusedClock:
		stuck.ID, stuck.Next = diagnosis.NodeRefused, "look at the machine's console; then "+command("status", nil)
		stuck.Cause = fmt.Sprintf("port 50000 refused for %s: the install or the boot is stuck", waited)

		if config := w.Configs[seen.Node.Name]; facts.Sent != nil && config != nil && config.HidesInstall() {
			stuck.Cause += "; its host name is `auto: stable`, so its API opens only once Talos is on the disk, and it never " +
				"comes back to maintenance: nothing but its console tells whether its install fails"
			stuck.Next = "look at the machine's console; to give it another config, turn it off and on, then " +
				command("applySequential", seen.Node)
		}

		// Something accepts connections, and closes them.
		if !errors.Is(seen.Err, syscall.ECONNREFUSED) {
			stuck.Cause += text.Because(talos.Explain(seen.Err))
		}
	case noAnswerClock:
		stuck.ID = diagnosis.NodeSilent
		stuck.Cause = fmt.Sprintf("no answer at %s for %s: powered off, still in its self-test, or at another "+
			"address%s (%s)", text.List(w.observer.Addresses(seen.Node)), waited, w.lossesByConfig(seen.Node),
			talos.Explain(seen.Err))
		stuck.Next = "power it on, or " + w.elsewhere(seen.Node)

		if id, remedy, known := diagnosed(seen.Err); known {
			stuck.ID, stuck.Next = id, remedy
			stuck.Cause = fmt.Sprintf("not reachable from here for %s: %s", waited, talos.Explain(seen.Err))
		}
	case rebootClock:
		stuck.Cause = fmt.Sprintf("it rebooted %d times without getting any further", maxReboots) +
			text.Because(facts.InstallFailure)
		stuck.Next = "look at the machine's console; then " + command("status", nil)
	case failingClock:
		stuck.ID, stuck.Next = diagnosis.InstallFailed, correctInstall(seen.Node)
		stuck.Cause = fmt.Sprintf("its install fails again and again, for %s: %s", waited, seen.InstallFailure)
	case stageClock:
		stuck.Cause, stuck.Next = fmt.Sprintf("%s unchanged for %s", stageText(seen), waited), talosctl(seen.Node, "dmesg")

		if id, remedy, known := diagnosed(seen.ReadErr); known && seen.Status == nil {
			stuck.ID, stuck.Next = id, remedy
			stuck.Cause = fmt.Sprintf("%s, for %s", talos.Explain(seen.ReadErr), waited)
		}
	}

	if facts.StaleLease != "" && seen.Silent() {
		stuck.Cause += "; " + facts.StaleLease
		stuck.Next = w.elsewhere(seen.Node)
	}

	// Nobody waited for it: so long it has not been silent.
	if w.Settings.NoWait && w.observer.SilentByItself(seen) && clock.kind != rebootClock {
		stuck.Cause = clock.For

		if seen.Err != nil {
			stuck.Cause += text.Because(talos.Explain(seen.Err))
		}
	}

	return stuck
}

// elsewhere is what to do about a node whose machine may answer at another address.
func (w *work) elsewhere(node *inventory.Node) string {
	switch {
	case w.observer.Facts(node).StaleLease != "":
		return "mage discover -save, then " + w.command(node)
	case w.Settings.Discover:
		return fmt.Sprintf("say where it answers: NODE_ADDRESSES=%s=<address> %s", node.Name, w.command(node))
	default:
		return fmt.Sprintf("have it looked for: %s -discover, or say where it answers: NODE_ADDRESSES=%s=<address>",
			w.command(node), node.Name)
	}
}

// correctInstall is what to do about an install that fails.
func correctInstall(node *inventory.Node) string {
	return "correct the install disk or image, if it was that (mage config:generate), then " +
		command("applySequential", node)
}

// lossesByConfig are the ways in which its own machine config can keep a node from ever answering again.
func (w *work) lossesByConfig(node *inventory.Node) string {
	config := w.Configs[node.Name]
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
