package steps

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/retry"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// upgradePlan is what becomes of the nodes, control planes first.
type upgradePlan struct {
	Nodes []nodeUpgrade
	// Members is how many members etcd has. NoQuorumToSpare is set where it stands still while a control plane of the
	// plan reboots.
	Members         int
	NoQuorumToSpare bool
}

// nodeUpgrade is what becomes of one node.
type nodeUpgrade struct {
	Seen observe.Observation
	// Image is the installer, Version and Schematic what the node runs after it. An image that is not a factory's has no
	// schematic.
	Image, Version, Schematic        string
	RunningVersion, RunningSchematic string
	// Done is set for a node that runs both already.
	Done bool
	// Legacy is set for a node without LifecycleService, which takes the older call alone.
	Legacy bool
}

// renderAnew has the files as they would be rendered now. What is wrong with them it has recorded.
func (w *work) renderAnew(ctx context.Context) (*workspace.Workspace, error) {
	anew, err := w.workspace.Anew(ctx)
	if err == nil {
		err = w.refuse(ctx, anew, func(diagnosis.Finding) bool { return true })
	}

	if err != nil {
		return nil, w.failed(ctx, err)
	}

	return anew, nil
}

// planUpgrade finds out what the nodes run and what they are to run by the files, and refuses, before anything is
// touched, what would fail or lose data. What it refuses it has recorded, node by node.
func (u *upgrader) planUpgrade(ctx context.Context, anew *workspace.Workspace) (upgradePlan, error) {
	planner := &upgradePlanner{upgrader: u, anew: anew,
		cordoned: sync.OnceValues(func() ([]*inventory.Node, error) { return u.ownCordons(ctx) })}
	ordered := append(ofRole(u.Nodes(), inventory.ControlPlane), ofRole(u.Nodes(), inventory.Worker)...)

	planned := fanout.Collect(ctx, observe.Limit, ordered, planner.plan,
		func(node *inventory.Node, err error) plannedUpgrade {
			return plannedUpgrade{nodeUpgrade: nodeUpgrade{Seen: observe.Unobserved(node, err)},
				problems: []*diagnosis.Problem{u.unexpected(node, err)}}
		})

	plan, err := planner.gather(planned)
	if err != nil || ctx.Err() != nil {
		return plan, u.ofStep(ctx, err)
	}

	err = planner.judgeEtcd(ctx, &plan)

	return plan, err
}

// upgradePlanner plans by the files as they would be rendered now.
type upgradePlanner struct {
	*upgrader

	anew *workspace.Workspace
	// cordoned are the nodes with a cordon of ours; asked for once, where a node is silent.
	cordoned func() ([]*inventory.Node, error)
}

// plannedUpgrade is the plan of one node, or why there is none.
type plannedUpgrade struct {
	nodeUpgrade

	problems []*diagnosis.Problem
}

// gather makes one plan, and records what is refused. A dry run tells of the other nodes all the same.
func (p *upgradePlanner) gather(planned []plannedUpgrade) (upgradePlan, error) {
	var (
		plan     upgradePlan
		problems []*diagnosis.Problem
		refused  []plannedUpgrade
	)

	for _, one := range planned {
		if len(one.problems) == 0 {
			plan.Nodes = append(plan.Nodes, one.nodeUpgrade)
			continue
		}

		refused = append(refused, one)
		problems = append(problems, one.problems...)
	}

	p.orLeaveOut(refused, plan)

	if len(refused) > 0 && p.Settings.DryRun {
		p.showNodes(plan)
	}

	for _, one := range refused {
		p.record(report.Result{Node: one.Seen.Node.Name, Address: one.Seen.Address, Status: report.Refused,
			Err: one.problems[0]})
	}

	return plan, joined(problems)
}

// orLeaveOut says how the rest of a plan can be had without the workers that are away.
func (p *upgradePlanner) orLeaveOut(refused []plannedUpgrade, rest upgradePlan) {
	var others []string
	for _, one := range rest.Nodes {
		others = append(others, one.Seen.Node.Name)
	}

	for _, one := range refused {
		away := one.problems[0]
		if away.ID == diagnosis.UpgradeNodeAway && one.Seen.Node.Role == inventory.Worker && len(others) > 0 {
			away.Next += "; or leave it out: " + p.command(nil) + " -node=" + strings.Join(others, ",")
		}
	}
}

// plan asks a node what it runs, and compares that with what is declared for it.
func (p *upgradePlanner) plan(ctx context.Context, node *inventory.Node) plannedUpgrade {
	seen, problem := p.awaitRunning(ctx, node)
	planned := plannedUpgrade{nodeUpgrade: nodeUpgrade{Seen: seen}}

	refused := func(problem *diagnosis.Problem) plannedUpgrade {
		planned.problems = append(planned.problems, problem)
		return planned
	}

	if problem != nil {
		return refused(problem)
	}

	config := p.anew.Configs[node.Name]
	if planned.Image = p.image(node, config); config == nil || planned.Image == "" {
		return refused(p.refusal(seen, diagnosis.ConfigMissing, "no machine config names an installer image for it",
			machineconfig.HowToGenerate))
	}

	image := schematic.ParseReference(planned.Image)
	planned.Version, planned.Schematic = p.anew.Cluster.TalosVersion, image.Schematic

	if release.IsTag(image.Tag) {
		planned.Version = image.Tag
	}

	system, err := p.readSystem(ctx, seen)
	if err != nil {
		return refused(p.unread(seen, err))
	}

	planned.RunningVersion, planned.RunningSchematic = system.facts.Version, system.facts.Schematic
	planned.Legacy = !release.HasLifecycle(planned.RunningVersion)
	planned.Done = planned.runs(planned.RunningVersion, planned.RunningSchematic)

	if !planned.Done {
		planned.problems = p.refusals(ctx, planned.nodeUpgrade, config, system)
	}

	return planned
}

// runs reports whether a node with this version and schematic runs what is planned for it.
func (u nodeUpgrade) runs(version, schematic string) bool {
	return release.IsBuildOf(u.Version, version) && (u.Schematic == "" || u.Schematic == schematic)
}

// image is the installer that the node's machine config names or, where that leaves it to Talos, what the inventory
// makes of it.
func (p *upgradePlanner) image(node *inventory.Node, config *machineconfig.Config) string {
	if config != nil && config.InstallImage() != "" {
		return config.InstallImage()
	}

	images, err := p.anew.Images()
	if err != nil {
		return ""
	}

	for _, named := range images {
		if named.Node == node.Hostname {
			return named.Installer
		}
	}

	return ""
}

// awaitRunning waits for a node that is on its way back, as after a run that was stopped while it rebooted. Any other
// node that does not run with its own config is named.
func (p *upgradePlanner) awaitRunning(ctx context.Context, node *inventory.Node) (observe.Observation,
	*diagnosis.Problem) {
	if p.Settings.DryRun {
		seen := p.observer.Observe(ctx, node)
		judged := p.judge(ctx, seen)

		if !judged.done && judged.problem == nil {
			judged.problem = p.away(seen)
		}

		return seen, judged.problem
	}

	since := p.Clock.Now()

	return p.await(ctx, node, func(ctx context.Context, seen observe.Observation) verdict {
		judged := p.judge(ctx, seen)
		if seen.Silent() && seen.Silence != talos.Refused && p.Clock.Now().Sub(since) > reachable(p.Settings) &&
			!p.mayComeBack(node) {
			judged.problem = p.away(seen)
		}

		return judged
	})
}

// mayComeBack reports whether a node that gives no answer may be rebooting into its new system, as after a run that was
// killed: then it has a cordon of ours. Where Kubernetes does not tell that, a control plane may be what it waits for.
func (p *upgradePlanner) mayComeBack(node *inventory.Node) bool {
	cordoned, err := p.cordoned()

	return slices.Contains(cordoned, node) || err != nil && node.Role == inventory.ControlPlane
}

func (p *upgradePlanner) judge(_ context.Context, seen observe.Observation) verdict {
	switch {
	case seen.NotOurs():
		return verdict{problem: p.notOurs(seen)}
	case seen.State == talos.Maintenance:
		return verdict{problem: p.away(seen)}
	case seen.Relation == observe.ConfigSwapped:
		return verdict{problem: p.swapped(seen)}
	case seen.Up() && seen.Config == nil && talos.Classify(talos.OpRead, seen.ReadErr) != talos.Retry:
		return verdict{problem: p.unread(seen, seen.ReadErr)}
	default:
		return verdict{done: seen.Up() && seen.Config != nil}
	}
}

// refusal is a problem from before anything was touched, with the catalogue's exit code.
func (p *upgradePlanner) refusal(seen observe.Observation, id diagnosis.ID, cause, next string) *diagnosis.Problem {
	return p.about(seen, diagnosis.NewProblem(id, cause, next))
}

// unread is for a node that does not tell what it runs.
func (p *upgradePlanner) unread(seen observe.Observation, err error) *diagnosis.Problem {
	return p.refusal(seen, diagnosis.UpgradeUnread, "what it runs was not read: "+talos.Explain(err),
		command("status", nil)).From(err)
}

// away is for a node that does not run with its own config.
func (p *upgradePlanner) away(seen observe.Observation) *diagnosis.Problem {
	cause, next := "it is "+orUnread(seen.Stage())+", and not up yet", "the same command, once it is up"

	switch {
	case seen.Silent() && seen.Node.Role == inventory.ControlPlane:
		cause = "it does not answer: etcd is not whole without it, so nothing is upgraded"
		next = "switch it on, then the same command; if it is gone for good, mage " + replaceName + " " + seen.Node.Name +
			" first"
	case seen.Silent():
		cause, next = "it does not answer, so nothing is begun", "switch it on, then the same command"
	case seen.State == talos.Maintenance:
		cause, next = "it is in maintenance: there is nothing to upgrade", command("applySequential", seen.Node)
	}

	return p.refusal(seen, diagnosis.UpgradeNodeAway, cause, next)
}

// bootedSystem is what a node says of the system that it booted.
type bootedSystem struct {
	facts    check.Facts
	platform string
}

// readSystem reads it from the node itself: nothing else is believed. What a connection that broke in the middle left
// out is read on the next.
func (w *work) readSystem(ctx context.Context, seen observe.Observation) (system bootedSystem, err error) {
	_, err = retry.Do(ctx, w.Clock, observe.Evenly(w.Settings, factTries), func(ctx context.Context, _ int) error {
		conn, err := w.observer.Dialer().Secure(ctx, seen.Address)
		if err != nil {
			return err //nolint:wrapcheck // its class is judged
		}
		defer conn.Close()

		return system.read(ctx, conn)
	}, func(err error) bool { return talos.Classify(talos.OpRead, err) == talos.Retry })

	system.facts.State = seen.State

	return system, err //nolint:wrapcheck // as above
}

func (s *bootedSystem) read(ctx context.Context, conn *talos.Conn) (err error) {
	if s.facts.Version, err = conn.Version(ctx); err != nil {
		return err //nolint:wrapcheck // its class is the caller's to judge
	}

	if s.facts.Schematic, err = conn.Schematic(ctx); err != nil {
		return err //nolint:wrapcheck // as above
	}

	security, err := conn.SecurityState(ctx)
	if err != nil {
		return err //nolint:wrapcheck // as above
	}

	s.facts.Security = &security
	s.platform, err = conn.Platform(ctx)

	return err //nolint:wrapcheck // as above
}

// refusals are why a node is not to be upgraded.
func (p *upgradePlanner) refusals(ctx context.Context, planned nodeUpgrade, config *machineconfig.Config,
	system bootedSystem) []*diagnosis.Problem {
	upgrade := nodes.Upgrade{
		Node: &check.Node{Node: planned.Seen.Node, Cluster: p.anew.Cluster, Config: config, Facts: system.facts,
			Settings: p.checkSettings()},
		Running: planned.Seen.Config, Platform: system.platform, Version: planned.Version,
		AllowDowngrade: p.Settings.AllowDowngrade,
	}

	var problems []*diagnosis.Problem

	for _, finding := range upgrade.Refusals(ctx) {
		finding.Exit = diagnosis.ExitPreflight
		problems = append(problems, finding.Problem(p.step.Name(), nil))
	}

	return problems
}

// judgeEtcd refuses where etcd is not whole, and tells where it has no member to spare.
func (p *upgradePlanner) judgeEtcd(ctx context.Context, plan *upgradePlan) error {
	if !slices.ContainsFunc(plan.Nodes, func(one nodeUpgrade) bool { return !one.Done }) {
		return nil
	}

	survey, problem := p.awaitEtcd(ctx)
	if problem != nil {
		return p.failed(ctx, problem)
	}

	const spare = 3

	plan.Members = survey.MemberCount()
	plan.NoQuorumToSpare = plan.Members < spare && plan.takesDown()

	return nil
}

// awaitEtcd surveys etcd until it is whole. It waits only for members whose nodes have just booted; of others it takes
// a second look, since a reply may have been lost.
func (p *upgradePlanner) awaitEtcd(ctx context.Context) (survey observe.EtcdSurvey, failed *diagnosis.Problem) {
	since, looks := p.Clock.Now(), 0

	failed = p.waiter().Until(ctx, func(ctx context.Context) wait.State {
		survey = p.observer.SurveyEtcd(ctx)
		looks++

		unhealthy := func(time.Duration) *diagnosis.Problem {
			return diagnosis.NewProblem(diagnosis.UpgradeEtcdUnhealthy,
				"not every member is a healthy one of one etcd: "+survey.Describe(), command("etcd:status", nil)).
				In(p.step.Name())
		}

		switch {
		case survey.Agree(p.Cluster.ControlPlanes()):
			return wait.State{Done: true}
		case looks > p.Settings.ReachabilityRetries && (p.Settings.DryRun || !survey.Settling()):
			return wait.State{Problem: unhealthy(0)}
		default:
			return wait.State{Limit: wait.Limit{For: "waiting for etcd to be whole", Since: since,
				Limit: p.Settings.EtcdTimeout}, Pause: etcdPause, TimeUp: unhealthy}
		}
	})

	return survey, failed
}

// showUpgrade is the plan as a dry run tells it, node by node.
func (w *work) showUpgrade(plan upgradePlan) error {
	if plan.NoQuorumToSpare {
		w.Report.Finding(w.step.Name(), diagnosis.Finding{ID: diagnosis.NoQuorumToSpare, Severity: diagnosis.Warning,
			Cause: plan.noQuorumText(), Next: "agree to it when asked, or with -yes"})
	}

	if plan.takesDown() {
		w.record(report.Result{Status: report.Planned, Detail: "etcd would be copied, and the copy verified, first"})
	}

	changing := nodesWith(report.Planned, w.showNodes(plan))
	if len(changing) == 0 {
		return nil
	}

	return w.wouldChange(text.List(changing)+" would be upgraded", "the same command without -dryRun")
}

// showNodes records what would become of each node.
func (w *work) showNodes(plan upgradePlan) []outcome {
	outcomes := make([]outcome, 0, len(plan.Nodes))
	for _, one := range plan.Nodes {
		result := outcome{node: one.Seen.Node, address: one.Seen.Address, status: report.Planned, detail: one.text()}
		if one.Done {
			result.status = report.Skipped
		}

		outcomes = append(outcomes, w.finish(result, w.started))
	}

	return outcomes
}

// takesDown reports whether a control plane is going to reboot.
func (p upgradePlan) takesDown() bool {
	return slices.ContainsFunc(p.Nodes, func(one nodeUpgrade) bool {
		return !one.Done && one.Seen.Node.Role == inventory.ControlPlane
	})
}

// noQuorumText says what an upgrade of a control plane means for an etcd of one or two members.
func (p upgradePlan) noQuorumText() string {
	return "etcd has " + text.Counted(p.Members, "member") + " and can spare none: while a control plane reboots there " +
		"is no etcd and no Kubernetes API"
}

// text says in one line what becomes of the node.
func (u nodeUpgrade) text() string {
	if u.Done {
		return "runs Talos " + u.RunningVersion + " and its schematic already"
	}

	what := "from Talos " + u.RunningVersion + " to " + u.Version
	if u.RunningVersion == u.Version {
		what = "Talos " + u.Version + " as it is, with another schematic"
	} else if u.Schematic != "" && u.Schematic != u.RunningSchematic {
		what += ", with another schematic"
	}

	return what + ", by " + u.Image
}
