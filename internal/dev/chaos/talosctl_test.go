//go:build !race

// Below the race detector the campaign's own plans play the double.

package chaos_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/chaos"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// A double that did something else than talosctl would prove nothing.
func TestTheDoubleOfTalosctlAsksWhatTheRealOneAsks(t *testing.T) {
	t.Parallel()

	original, err := chaos.UpgradeKubernetes(t.Context(), t.TempDir(), tool.Find(t, "talosctl"))
	require.NoError(t, err)
	require.NotEmpty(t, original)

	double, err := chaos.UpgradeKubernetes(t.Context(), t.TempDir(), "")
	require.NoError(t, err)
	require.Equal(t, original, double)
}
