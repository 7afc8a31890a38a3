package talhelper_test

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unacceptable are the fields that talhelper accepts in no talconfig, and why.
var unacceptable = map[string]string{
	"nodes.installDiskSelector.name": "selector on name is not supported",
}

func TestDrawnTalconfigsTouchEveryFieldOfTheSchema(t *testing.T) {
	t.Parallel()

	// Only what newer releases know is not in each way of writing machine configs.
	newer := []string{".allowDiscards", ".kubeNetworkPoliciesEnabled"}

	text, err := os.ReadFile(fieldsFile)
	require.NoError(t, err)

	fields := strings.Fields(string(text))
	require.Greater(t, len(fields), 500)

	all := map[string]bool{}
	byGeneration := map[string]map[string]bool{}

	for _, drawn := range drawTalconfigs(drawnSeed, drawnCount) {
		if byGeneration[drawn.generation.name] == nil {
			byGeneration[drawn.generation.name] = map[string]bool{}
		}

		touched(drawn.talconfig, "", all)
		touched(drawn.talconfig, "", byGeneration[drawn.generation.name])
	}

	var missing []string

	for _, field := range fields {
		if _, found := unacceptable[field]; found {
			require.False(t, all[field], "%s is said to be accepted in no talconfig", field)

			continue
		}

		for _, generation := range generations[:2] {
			if !byGeneration[generation.name][field] && !slices.Contains(newer, path.Ext(field)) {
				missing = append(missing, field+" for "+generation.name)
			}
		}

		if !all[field] {
			missing = append(missing, field)
		}
	}

	require.Empty(t, missing, "fields that no talconfig has")
}

func TestTalconfigsAreDrawnAgainTheSameFromTheSameSeed(t *testing.T) {
	t.Parallel()

	require.Equal(t, drawTalconfigs(drawnSeed, 20), drawTalconfigs(drawnSeed, 20))
	require.NotEqual(t, drawTalconfigs(drawnSeed, 20), drawTalconfigs(drawnSeed+1, 20))
}
