package invocation_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Commands to copy are those of the program that people called.
func TestHintsNameTheProgramAsItWasCalled(t *testing.T) {
	t.Parallel()

	for called, want := range map[string]struct{ ran, failed string }{
		"":           {"next: nothing if it is booting", "then mage preflight"},
		"talos-mage": {"next: nothing if it is booting", "then talos-mage preflight"},
		"task":       {"next: nothing if it is booting", "then task bootstrap:preflight"},
	} {
		t.Run(called, func(t *testing.T) {
			t.Parallel()

			made, out, errs := call(t, "TALOS_MAGE_CALLED_AS="+called)
			failure := made.Execute(t.Context(), "preflight", nil, preflight)
			require.Equal(t, diagnosis.ExitPreflight, failure.Code)
			require.Contains(t, out.String(), want.ran)
			require.Contains(t, failure.Message, want.failed)

			if called != "" {
				require.NotRegexp(t, `(^|[^-])\bmage `, out.String()+errs.String()+failure.Message)
			}
		})
	}
}

func TestHintsKeepTheirFlags(t *testing.T) {
	t.Parallel()

	for called, want := range map[string]string{
		"":           "then mage applySequential -node=<node> -update.",
		"talos-mage": "then talos-mage applySequential -node=<node> -update.",
		"task":       "then task bootstrap:apply-sequential -- -node=<node> -update.",
	} {
		t.Run(called, func(t *testing.T) {
			t.Parallel()

			var out bytes.Buffer
			require.Nil(t, invocation.Invocation{Environ: []string{invocation.CalledAs + "=" + called}, Out: &out}.
				Explain("TM100"))
			require.Contains(t, out.String(), want)
		})
	}
}
