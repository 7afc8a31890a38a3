package invocation_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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

		require.ErrorContains(t, made.Foresee(t.Context(), given), want)

		failure := made.Execute(t.Context(), "reset", given,
			func(*settings.Settings) []steps.Step { return []steps.Step{steps.Reset{}} })
		require.Equal(t, diagnosis.ExitBadInput, failure.Code)
		require.Contains(t, failure.Message, want)
	}

	require.NoError(t, made.Foresee(t.Context(), settings.Overrides{"node": "cp1"}))
	require.NoError(t, made.Foresee(t.Context(), settings.Overrides{"cluster": "lab"}))
}

// Mage runs its targets one by one: the first that is run here judges them all.
func TestALaterTargetOfMagesIsJudgedBeforeTheFirst(t *testing.T) {
	t.Parallel()

	made, out, _ := call(t)
	made.Words = []string{"preflight", "reset", "-node=cp1"}

	failure := made.Execute(t.Context(), "preflight", nil, preflight)
	require.Equal(t, diagnosis.ExitBadInput, failure.Code)
	require.Contains(t, failure.Message, "reset may lose data, and nobody can be asked: there is no terminal [TM191]")
	require.Empty(t, out.String())
}
