package recipe_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/recipe"
)

// machines are a lab's, which run or are all off.
func machines(t *testing.T, off bool) *lab {
	t.Helper()

	made, err := newLab(labcluster.Options{Off: off, LabOptions: emulator.LabOptions{TimeScale: labcluster.DemoScale}})
	require.NoError(t, err)
	t.Cleanup(made.Close)

	return made
}

// untouched requires that nothing was asked of a machine that changes it.
func untouched(t *testing.T, l *lab) {
	t.Helper()

	for _, node := range l.Nodes {
		require.Equal(t, "maintenance", node.Stage(), node.Name())
	}
}

// never is code that must not be called.
func never(t *testing.T) func(context.Context, recipe.Point) error {
	t.Helper()

	return func(context.Context, recipe.Point) error {
		t.Error("a hook was called")

		return nil
	}
}

func neverStep(t *testing.T) recipe.Step {
	t.Helper()

	return recipe.Func("own", func(context.Context, recipe.Cluster) error {
		t.Error("the step was called")

		return nil
	})
}

func TestADryRunCallsNoneOfTheProgramsCodeAndChangesNothing(t *testing.T) {
	t.Parallel()

	l := machines(t, false)
	bringUp := recipe.Talos()
	bringUp.Steps = append(bringUp.Steps, neverStep(t))
	bringUp.Hooks = []recipe.Hook{{Before: never(t), After: never(t)}}

	options := l.options()
	options.DryRun = true

	result, err := bringUp.Run(t.Context(), options)
	require.Error(t, err)
	require.Equal(t, recipe.ExitDryRun, result.ExitCode, err)
	untouched(t, l)

	last := result.Outcomes[len(result.Outcomes)-1]
	require.Equal(t, "own", last.Step)
	require.Equal(t, recipe.StatusPlanned, last.Status)
}

func TestDataIsLostOnlyWhereItsOwnerIsNamed(t *testing.T) {
	t.Parallel()

	l := machines(t, false)
	wipe := recipe.Recipe{Name: "of our own", Steps: []recipe.Step{neverStep(t), recipe.WipeNodes()}}

	upgrade := recipe.Recipe{Name: "of our own", Steps: []recipe.Step{neverStep(t), recipe.Upgrade()}}

	for name, options := range map[string]recipe.Options{
		"neither nodes nor whose data":   {},
		"nodes alone":                    {Nodes: []string{"worker1"}},
		"the cluster alone":              {Cluster: "lab"},
		"whose data alone":               {LoseDataOf: []string{"worker1"}},
		"nodes as a setting":             {LoseDataOf: []string{"worker1"}, Settings: map[string]string{"NODE": "worker1"}},
		"consent as a setting":           {Nodes: []string{"worker1"}, Settings: map[string]string{"-yes": "true"}},
		"a node that there is not":       {Nodes: []string{"worker9"}, LoseDataOf: []string{"worker9"}},
		"another cluster":                {Cluster: "prod", LoseDataOf: []string{"prod"}},
		"consent in the environment":     {Nodes: []string{"worker1"}, Environ: []string{"-yes=true", "YES=true"}},
		"an empty name for what is lost": {Nodes: []string{"worker1"}, LoseDataOf: []string{""}},
	} {
		given := l.options()
		given.Nodes, given.Cluster, given.LoseDataOf = options.Nodes, options.Cluster, options.LoseDataOf
		given.Environ = append(given.Environ, options.Environ...)

		if options.Settings != nil {
			given.Settings = options.Settings
		}

		for _, made := range []recipe.Recipe{wipe, upgrade} {
			result, err := made.Run(t.Context(), given)
			require.Error(t, err, name)
			require.Equal(t, recipe.ExitBadInput, result.ExitCode, "%s: %v", name, err)
			require.Empty(t, result.Outcomes, name)
		}
	}

	untouched(t, l)
}

func TestConsentIsForWhatItNames(t *testing.T) {
	t.Parallel()

	l := machines(t, false)
	result, err := recipe.Talos().Run(t.Context(), l.options())
	require.NoError(t, err)
	require.Equal(t, recipe.ExitOK, result.ExitCode)

	options := l.options()
	options.Nodes = []string{"worker1"}

	for _, name := range []string{"cp1", "lab"} {
		options.LoseDataOf = []string{name}

		result, err = recipe.WipeNodes().Run(t.Context(), options)
		require.ErrorContains(t, err, "worker1, which may lose its data; nothing was changed")
		require.Equal(t, recipe.ExitBadInput, result.ExitCode)
		require.Equal(t, string(diagnosis.NotAgreed), result.Outcomes[0].Problem.ID)
		require.Equal(t, "running", l.Node("worker1").Stage())
	}

	options.LoseDataOf = []string{"worker1"}

	_, err = recipe.WipeNodes().Run(t.Context(), options)
	require.NoError(t, err)
	require.Equal(t, "maintenance", l.Node("worker1").Stage())
	require.Equal(t, "running", l.Node("cp1").Stage())
}

func TestAHookHearsHowItsStepEndedAndCanEndTheRecipe(t *testing.T) {
	t.Parallel()

	l := machines(t, true)
	mine := errors.New("of the hook")

	var at recipe.Point

	made := recipe.Recipe{Name: "check", Steps: []recipe.Step{recipe.Preflight(), neverStep(t)},
		Hooks: []recipe.Hook{{Step: "preflight", After: func(_ context.Context, point recipe.Point) error {
			at = point

			return mine
		}}, {Step: "preflight", After: never(t)}}}

	result, err := made.Run(t.Context(), l.options())
	require.ErrorContains(t, err, "after preflight: of the hook [TM431]")
	require.ErrorIs(t, err, mine)
	require.Equal(t, recipe.ExitPreflight, result.ExitCode)

	require.ErrorContains(t, at.Err, "none of 2 nodes answers [TM093]. Next: boot the machines, then talos-mage preflight")
	require.Equal(t, "lab", at.Cluster.Name)
	require.True(t, at.Cluster.Nodes[0].ControlPlane)
	require.Len(t, at.Outcomes, 2)
	require.Equal(t, "cp1", at.Outcomes[0].Node)
	require.Equal(t, at.Outcomes, result.Outcomes[:2])
	require.Equal(t, recipe.Outcome{Step: "after preflight", Status: recipe.StatusFailed,
		Duration: result.Outcomes[2].Duration, Problem: &recipe.Problem{ID: "TM431", Cause: "of the hook",
			Next: "do what it says, then the same run again"}}, result.Outcomes[2])
}

func TestTheSameRunAgainDoesNothingAndHooksAreForWhatIsDone(t *testing.T) {
	t.Parallel()

	l := machines(t, false)
	called := map[string]int{}
	count := func(_ context.Context, at recipe.Point) error {
		called[at.Step]++

		return nil
	}

	bringUp := recipe.Talos()
	_, err := bringUp.Run(t.Context(), l.options())
	require.NoError(t, err)

	bringUp.Hooks = []recipe.Hook{{Before: count}, {Step: "applySequential", After: count}}
	result, err := bringUp.Run(t.Context(), l.options())
	require.NoError(t, err)

	for _, outcome := range result.Outcomes {
		require.Contains(t, []recipe.Status{recipe.StatusOK, recipe.StatusSkipped}, outcome.Status, outcome)
		require.Nil(t, outcome.Problem)
	}

	require.Equal(t, 2, called["applySequential"], "its second turn is left out, since nobody is to be served in it")
	require.Equal(t, 1, called["verifyWorkers"])

	// Each step is one that can be run alone, too.
	for _, step := range []recipe.Step{recipe.Preflight(), recipe.Apply(), recipe.Verify(), recipe.Bootstrap(),
		recipe.Kubeconfig(), recipe.Health(), recipe.SnapshotEtcd(), recipe.DefragEtcd()} {
		result, err := step.Run(t.Context(), l.options())
		require.NoError(t, err, step.Name())
		require.Equal(t, recipe.ExitOK, result.ExitCode)
		require.Equal(t, step.Name(), result.Outcomes[0].Step)
	}
}

func TestStepsHaveTheNamesThatTheirDocumentationSays(t *testing.T) {
	t.Parallel()

	for name, step := range map[string]recipe.Step{
		"secrets": recipe.GenerateSecrets(), "configs": recipe.GenerateConfigs(), "preflight": recipe.Preflight(),
		"applySequential": recipe.Apply(), "verify": recipe.Verify(), "bootstrap": recipe.Bootstrap(),
		"kubeconfig": recipe.Kubeconfig(), "health": recipe.Health(), "apps": recipe.InstallApps(),
		"config:rotate": recipe.RotateTalosconfig(), "etcd:defrag": recipe.DefragEtcd(),
		"upgradeK8s": recipe.UpgradeKubernetes(), "etcd:snapshot": recipe.SnapshotEtcd(), "upgrade": recipe.Upgrade(),
		"reset": recipe.WipeNodes(), "": {},
	} {
		require.Equal(t, name, step.Name())
	}

	var names []string
	for _, step := range recipe.Talos().Steps {
		names = append(names, step.Name())
	}

	require.Equal(t, []string{"secrets", "configs", "preflight", "applySequential", "verify", "bootstrap", "kubeconfig",
		"applySequential", "verifyWorkers"}, names)
}

// Whoever silenced an alarm before a step can have it back.
func TestAHookIsCalledAfterAStepThatWasStopped(t *testing.T) {
	t.Parallel()

	l := machines(t, true)
	ctx, cancel := context.WithCancel(t.Context())

	var after error

	made := recipe.Recipe{Name: "stopped", Steps: []recipe.Step{recipe.Preflight()},
		Hooks: []recipe.Hook{{Before: func(context.Context, recipe.Point) error {
			cancel()

			return nil
		}, After: func(ctx context.Context, at recipe.Point) error {
			after = at.Err
			require.Error(t, ctx.Err())

			return nil
		}}}}

	result, err := made.Run(ctx, l.options())
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, after, context.Canceled)
	require.Equal(t, recipe.ExitInterrupt, result.ExitCode)
}

// A run within a run finds the lock taken, as one of another process does.
func TestAStepOfTheProgramsHoldsTheLock(t *testing.T) {
	t.Parallel()

	l := machines(t, true)

	var within recipe.Result

	made := recipe.Recipe{Name: "outer", Steps: []recipe.Step{recipe.Func("own",
		func(ctx context.Context, _ recipe.Cluster) error {
			var err error
			within, err = recipe.Recipe{Name: "inner", Steps: []recipe.Step{neverStep(t)}}.Run(ctx, l.options())

			return err
		})}}

	result, err := made.Run(t.Context(), l.options())
	require.ErrorContains(t, err, "is changing this cluster from this machine")
	require.Equal(t, recipe.ExitPreflight, within.ExitCode)
	require.Equal(t, recipe.ExitUnexpected, result.ExitCode)
}

func TestARunEndsWithItsContext(t *testing.T) {
	t.Parallel()

	l := machines(t, true)
	ctx, cancel := context.WithCancelCause(t.Context())
	withdrawn := errors.New("the deploy was withdrawn")

	made := recipe.Recipe{Name: "long", Steps: []recipe.Step{
		recipe.Func("own", func(context.Context, recipe.Cluster) error {
			cancel(withdrawn)

			return ctx.Err()
		}), neverStep(t)}}

	result, err := made.Run(ctx, l.options())
	require.EqualError(t, err, "stopped: the deploy was withdrawn. Next: the same run again continues from here")
	require.ErrorIs(t, err, withdrawn)
	require.Equal(t, recipe.ExitInterrupt, result.ExitCode)
}

// What people find of a run afterwards is the same, whoever started it.
func TestARunIsRecordedWithTheProgramsCode(t *testing.T) {
	t.Parallel()

	l := machines(t, true)
	made := recipe.Recipe{Name: "of our own", Steps: []recipe.Step{
		recipe.Func("own", func(context.Context, recipe.Cluster) error { return nil })},
		Hooks: []recipe.Hook{{Before: func(context.Context, recipe.Point) error { return nil }}}}

	options := l.options()
	options.Update, options.Reboot, options.Nodes, options.Cluster = true, true, []string{"cp1", "worker1"}, "lab"

	_, err := made.Run(t.Context(), options)
	require.NoError(t, err)

	records, err := filepath.Glob(filepath.Join(l.Dir, ".talos-mage", "runs", "*", "events.jsonl"))
	require.NoError(t, err)
	require.Len(t, records, 1)

	events, err := os.ReadFile(records[0])
	require.NoError(t, err)

	for _, want := range []string{`"of our own"`, `"before own"`, `"own"`, `"applied"`,
		`{"name":"-update","value":"true","given":true}`, `{"name":"-reboot","value":"true","given":true}`,
		`{"name":"-node","value":"cp1,worker1","given":true}`, `{"name":"-cluster","value":"lab","given":true}`,
	} {
		require.Contains(t, string(events), want)
	}
}

func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()

	l := machines(t, true)
	step := []recipe.Step{neverStep(t)}
	hook := func(context.Context, recipe.Point) error { return nil }

	for want, test := range map[string]struct {
		recipe  recipe.Recipe
		options recipe.Options
	}{
		"Recipe.Name is empty":  {recipe: recipe.Recipe{Steps: step}},
		"has no steps":          {recipe: recipe.Recipe{Name: "r"}},
		"that nothing made":     {recipe: recipe.Recipe{Name: "r", Steps: make([]recipe.Step, 1)}},
		"r has a Step that":     {recipe: recipe.Recipe{Name: "r", Steps: []recipe.Step{recipe.Func("", nil)}}},
		"neither Before nor":    {recipe: recipe.Recipe{Name: "r", Steps: step, Hooks: make([]recipe.Hook, 1)}},
		"did you mean own?":     {recipe: recipe.Recipe{Name: "r", Steps: step, Hooks: []recipe.Hook{{"owm", hook, nil}}}},
		"did you mean DRY_RUN?": {recipe.Recipe{Name: "r", Steps: step}, recipe.Options{Settings: setting("DRYRUN")}},
		`is [], which names no`: {recipe.Recipe{Name: "r", Steps: step}, recipe.Options{Nodes: []string{}}},
		`["cp1" " "], which`:    {recipe.Recipe{Name: "r", Steps: step}, recipe.Options{Nodes: []string{"cp1", " "}}},
		"line alone can give":   {recipe.Recipe{Name: "r", Steps: step}, recipe.Options{Settings: setting("-newSecrets")}},
		"takes true or false":   {recipe.Recipe{Name: "r", Steps: step}, recipe.Options{Settings: setting("NO_WAIT")}},
		`Options.Nodes names "cp7", which is not a node of talos/talconfig.yaml; did you mean cp1? its nodes are cp1 and ` +
			"worker1 [TM017]. Next: correct Options.Nodes": {recipe.Recipe{Name: "r", Steps: step},
			recipe.Options{Nodes: []string{"cp7"}}},
		`Options.Cluster names "lib", and`: {recipe.Recipe{Name: "r", Steps: step}, recipe.Options{Cluster: "lib"}},
		"reset has Options.Nodes and Options.Cluster, which": {
			recipe.Recipe{Name: "r", Steps: []recipe.Step{recipe.WipeNodes()}},
			recipe.Options{Cluster: "lab", Nodes: []string{"cp1"}, LoseDataOf: []string{"lab"}}},
		"neither the cluster lab nor the name of a node of it": {recipe.Recipe{Name: "r", Steps: step},
			recipe.Options{LoseDataOf: []string{"Worker1"}}},
	} {
		given := l.options()
		maps.Copy(given.Settings, test.options.Settings)
		given.LoseDataOf, given.Nodes, given.Cluster = test.options.LoseDataOf, test.options.Nodes, test.options.Cluster

		result, err := test.recipe.Run(t.Context(), given)
		require.ErrorContains(t, err, want)
		require.Equal(t, recipe.ExitBadInput, result.ExitCode, want)
	}
}

func setting(name string) map[string]string { return map[string]string{name: "perhaps"} }

// Not parallel: it is about the process's environment.
func TestTheProgramsOwnEnvironmentHasNoSettings(t *testing.T) {
	l := machines(t, true)
	t.Setenv("NODE", "nobody")

	options := l.options()
	for _, entry := range options.Environ {
		t.Setenv("TMPDIR", l.folder)

		if name, value, _ := strings.Cut(entry, "="); name != "TMPDIR" {
			options.Settings[name] = value
		}
	}

	options.Environ = nil

	result, err := recipe.Preflight().Run(t.Context(), options)
	require.ErrorContains(t, err, "none of 2 nodes answers")
	require.Equal(t, recipe.ExitPreflight, result.ExitCode)
}

// What this package promises is what runs come to.
func TestCodesAndStatusesAreThoseOfRuns(t *testing.T) {
	t.Parallel()

	require.Equal(t, []recipe.ExitCode{recipe.ExitOK, recipe.ExitUnexpected, recipe.ExitBadInput, recipe.ExitPreflight,
		recipe.ExitApply, recipe.ExitVerify, recipe.ExitBootstrap, recipe.ExitKubernetes, recipe.ExitDryRun,
		recipe.ExitInterrupt}, []recipe.ExitCode{recipe.ExitCode(diagnosis.ExitOK),
		recipe.ExitCode(diagnosis.ExitUnexpected), recipe.ExitCode(diagnosis.ExitBadInput),
		recipe.ExitCode(diagnosis.ExitPreflight), recipe.ExitCode(diagnosis.ExitApply),
		recipe.ExitCode(diagnosis.ExitVerify), recipe.ExitCode(diagnosis.ExitBootstrap),
		recipe.ExitCode(diagnosis.ExitKubernetes), recipe.ExitCode(diagnosis.ExitDryRun),
		recipe.ExitCode(diagnosis.ExitInterrupt)})

	require.Equal(t, []recipe.Status{recipe.StatusOK, recipe.StatusApplied, recipe.StatusSkipped, recipe.StatusDrifted,
		recipe.StatusJoining, recipe.StatusWarned, recipe.StatusFailed, recipe.StatusRefused, recipe.StatusPlanned},
		[]recipe.Status{recipe.Status(report.OK), recipe.Status(report.Applied), recipe.Status(report.Skipped),
			recipe.Status(report.Drifted), recipe.Status(report.Joining), recipe.Status(report.Warned),
			recipe.Status(report.Failed), recipe.Status(report.Refused), recipe.Status(report.Planned)})
}
