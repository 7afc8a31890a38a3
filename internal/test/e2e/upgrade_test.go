package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a bring-up may do to several nodes at once says nothing of an upgrade, which takes their pods away.
func TestAnUpgradeTakesOneWorkerAtOnceUnlessTheCommandLineSaysOtherwise(t *testing.T) {
	t.Parallel()

	for want, flags := range map[string][]string{
		`{"name":"-parallel","value":"1","given":true}`:   nil,
		`{"name":"-parallel","value":"50%","given":true}`: {"-parallel=50%"},
	} {
		d := newDesk(t, "MAX_PARALLEL=4")
		d.types(t, 0, "config:generate")
		d.types(t, 3, append([]string{"upgrade", "-cluster=" + d.Generated.Options.ClusterName, "-dryRun"}, flags...)...)

		runs, err := filepath.Glob(d.path(filepath.Join(".talos-mage", "runs", "*", "events.jsonl")))
		require.NoError(t, err)

		events, err := os.ReadFile(runs[len(runs)-1])
		require.NoError(t, err)
		require.Contains(t, string(events), want)
	}
}
