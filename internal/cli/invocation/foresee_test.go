package invocation_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Whoever mistypes what is to lose its data is told what there is, before anything is asked or done.
func TestWhatIsNotDeclaredIsRefusedByName(t *testing.T) {
	t.Parallel()

	made, _, _ := call(t)
	made.Called = "talos-mage"

	for flag, want := range map[string]string{
		"node=wroker1":   `-node names "wroker1", which is not a node of `,
		"node=worker11":  "did you mean worker1? its nodes are cp1, cp2, cp3, worker1, worker2 and worker3",
		"node=192.0.2.1": "its nodes are cp1, cp2, cp3, worker1, worker2 and worker3 [TM017]. Next: correct -node",
		"cluster=lba":    `declares the cluster lab [TM192]. Next: -cluster=lab, if that is the cluster you mean`,
	} {
		name, value, _ := strings.Cut(flag, "=")
		given := settings.Overrides{"yes": "true", name: value}

		require.ErrorContains(t, made.Foresee(t.Context(), settings.Call{Target: "reset", Given: given}), want)

		failure := made.Execute(t.Context(), "reset", given,
			func(*settings.Settings) []steps.Step { return []steps.Step{steps.Reset{}} })
		require.Equal(t, diagnosis.ExitBadInput, failure.Code)
		require.Contains(t, failure.Message, want)
	}

	for _, given := range []settings.Overrides{{"node": "cp1"}, {"cluster": "lab"}} {
		given["yes"] = "true"
		require.NoError(t, made.Foresee(t.Context(), settings.Call{Target: "reset", Given: given}))
	}
}

// What needs no cluster is not held up where none is declared.
func TestACallIsForeseenWithoutACluster(t *testing.T) {
	t.Parallel()

	made := invocation.Invocation{Workdir: t.TempDir(), Environ: []string{"LOG_LEVEL=loud"}}
	require.NoError(t, made.Foresee(t.Context(), settings.Call{Target: "explain"}))

	made.Environ = nil
	require.NoError(t, made.Foresee(t.Context(), settings.Call{Target: "discover",
		Given: settings.Overrides{"node": "cp1"}}))
	require.ErrorContains(t, made.Foresee(t.Context(), settings.Call{Target: "upgradeNode",
		Given: settings.Overrides{"<address>": "cp1", "yes": "true"}}), "talconfig.yaml")
}

// Mage runs its targets one by one: the first that is run here judges them all.
func TestALaterTargetOfMagesIsJudgedBeforeTheFirst(t *testing.T) {
	t.Parallel()

	made, out, _ := call(t)

	for line, want := range map[string]string{
		"preflight reset -node=cp1":                       "nobody can be asked: there is no terminal [TM191]",
		"preflight reset -node=cp9 -yes":                  `-node names "cp9", which is not a node of `,
		"preflight reset -cluster=lba -yes":               "[TM192]. Next: -cluster=lab, if that is the cluster you mean",
		"preflight upgradeNode wroker1 -yes":              `<address> names "wroker1", which is not a node of `,
		"preflight replaceNode cp9":                       `<node> names "cp9", which is not a node of `,
		"preflight APPLYNODE cp9 -mode=auto":              `<address> names "cp9", which is not a node of `,
		"preflight talos -NODE=cp9":                       `-node names "cp9", which is not a node of `,
		"preflight talos -bootstrapNode=cp9":              `-bootstrapNode names "cp9", which is not a node of `,
		"preflight talos -assumeEmpty=cp9":                `-assumeEmpty names "cp9", which is not a node of `,
		"preflight etcd:recover a.db -yes -destroyed=cp9": `-destroyed names "cp9", which is not a node of `,
		"preflight talos -applyMode=all":                  `-applyMode="all": `,
	} {
		made.Words = strings.Fields(line)

		for _, failure := range []*invocation.Failure{
			made.Execute(t.Context(), "preflight", nil, preflight),
			made.Status(t.Context(), nil),
			made.Audit(t.Context(), nil),
			made.Discover(t.Context(), nil),
			made.Diagnose(t.Context(), nil),
			made.Health(t.Context(), nil),
			made.VerifyNodes(t.Context(), nil),
			made.EtcdMembers(t.Context(), nil),
			made.Images(t.Context(), nil),
		} {
			require.NotNil(t, failure, line)
			require.Equal(t, diagnosis.ExitBadInput, failure.Code, line)
			require.Contains(t, failure.Message, want, line)
		}
	}

	require.Empty(t, out.String())
}

// Beside targets that are imported under an alias, a repository has targets of its own that may have the same names.
func TestOnlyTargetsUnderTheImportsAliasAreJudged(t *testing.T) {
	t.Parallel()

	made, _, _ := call(t)

	made.Alias = "up:"

	for _, line := range []string{"up:verifyNodes reset", "reset up:verifynodes", "up:verifyNodes upgrade -node=ours"} {
		made.Words = strings.Fields(line)
		require.NotContains(t, message(made.VerifyNodes(t.Context(), nil)), "TM19", line)
	}

	made.Words = strings.Fields("reset up:verifyNodes up:reset -node=cp9 -yes")
	require.Contains(t, message(made.VerifyNodes(t.Context(), nil)), `-node names "cp9", which is not a node of `)

	made.Words = strings.Fields("up:verifyNodes up:reset")
	require.Contains(t, message(made.VerifyNodes(t.Context(), nil)), "Next: mage up:reset -node=<node>")
}

// message is what a call failed with; empty if it did not.
func message(failure *invocation.Failure) string {
	if failure == nil {
		return ""
	}

	return failure.Message
}
