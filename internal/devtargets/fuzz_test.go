package devtargets

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryFuzzTargetIsFound(t *testing.T) {
	t.Parallel()

	targets, err := findFuzzTargets(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.Contains(t, targets, fuzzTarget{folder: filepath.Join("internal", "emulator", "scenario"), name: "FuzzParse"})
	require.Greater(t, len(targets), 5)

	_, err = findFuzzTargets(t.TempDir())
	require.Error(t, err)
}
