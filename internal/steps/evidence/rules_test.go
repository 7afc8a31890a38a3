package evidence

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

func TestEveryRuleIsOfTheCatalogueAndHasASource(t *testing.T) {
	t.Parallel()

	for i, rule := range rules {
		entry, known := diagnosis.Lookup(rule.ID)
		require.True(t, known, rule.ID)
		require.NotEmpty(t, entry.Remedy, rule.ID)
		require.NotEmpty(t, rule.Source, rule.ID)
		require.False(t, rule.Proves && len(rule.In) == 0, "%s: rule %d proves without looking anywhere", rule.ID, i)
		require.False(t, rule.Always && !rule.Proves, rule.ID)
	}
}
