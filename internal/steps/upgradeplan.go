package steps

import (
	"context"
	"slices"
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

// planUpgrade finds out what the nodes run and what they are to run, and refuses, before anything is touched, what
// would fail or lose data. What it refuses it has recorded, node by node.
func (w *work) planUpgrade(ctx context.Context, nodes []*inventory.Node) (upgradePlan, error) {
	anew, err := w.workspace.Anew(ctx)
	if err == nil {
		err = w.refuse(ctx, anew, func(diagnosis.Finding) bool { return true })
	}

	if err != nil {
		return upgradePlan{}, w.failed(ctx, err)
	}

	planner := &upgradePlanner{work: w, anew: anew}
	ordered := append(ofRole(nodes, inventory.ControlPlane), ofRole(nodes, inventory.Worker)...)

	planned := fanout.Collect(ctx, observe.Limit, ordered, planner.plan,
		func(node *inventory.Node, err error) plannedUpgrade {
			return plannedUpgrade{problems: []*diagnosis.Problem{w.unexpected(node, err)}}
		})

	plan, err := planner.gather(planned)
	if err != nil || ctx.Err() != nil {
		return plan, w.ofStep(ctx, err)
	}

	err = planner.judgeEtcd(ctx, &plan)

	return plan, err
}

// upgradePlanner plans by the files as they would be rendered now.
type upgradePlanner struct {
	*work

	anew *workspace.Workspace
}

// plannedUpgrade is the plan of one node, or why there is none.
type plannedUpgrade struct {
	nodeUpgrade

	problems []*diagnosis.Problem
}

// gather makes one plan, and records what is refused.
func (p *upgradePlanner) gather(planned []plannedUpgrade) (upgradePlan, error) {
	var (
		plan     upgradePlan
		problems []*diagnosis.Problem
	)

	for _, one := range planned {
		plan.Nodes = append(plan.Nodes, one.nodeUpgrade)
		problems = append(problems, one.problems...)

		if len(one.problems) > 0 {
			p.record(report.Result{Node: one.problems[0].Node, Address: one.Seen.Address, Status: report.Failed,
				Err: one.problems[0]})
		}
	}

	return plan, joined(problems)
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

	return p.await(ctx, node, p.judge)
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
	case seen.Silent():
		cause, next = "no answer", command("status", nil)
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

	outcomes := make([]outcome, 0, len(plan.Nodes))
	for _, one := range plan.Nodes {
		result := outcome{node: one.Seen.Node, address: one.Seen.Address, status: report.Planned, detail: one.text()}
		if one.Done {
			result.status = report.Skipped
		}

		outcomes = append(outcomes, w.finish(result, w.started))
	}

	changing := nodesWith(report.Planned, outcomes)
	if len(changing) == 0 {
		return nil
	}

	return w.wouldChange(text.List(changing)+" would be upgraded", "the same command without -dryRun")
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
