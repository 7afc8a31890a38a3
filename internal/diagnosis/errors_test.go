package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPlaceTellsWhatIsKnown(t *testing.T) {
	t.Parallel()

	require.Equal(t, "talconfig.yaml:3:7", Place("talconfig.yaml", 3, 7))
	require.Equal(t, "talconfig.yaml:3", Place("talconfig.yaml", 3, 0))
	require.Equal(t, "talconfig.yaml", Place("talconfig.yaml", 0, 0))
}
