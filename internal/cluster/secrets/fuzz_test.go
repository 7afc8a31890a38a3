package secrets_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

// Whatever stands in a secrets file, it is a bundle that can be written and read again, or mistakes that can be shown.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(encoded(f)))

	for _, data := range fuzztest.Seeds(f, ".yaml", ".yml", ".json") {
		f.Add(data)
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		bundle, err := clustersecrets.Decode("talsecret.yaml", data, with(nil), now)
		if err != nil {
			mistakes := yamlfile.Errors(err)
			require.NotEmpty(t, mistakes)

			for _, mistake := range mistakes {
				require.NotEmpty(t, mistake.ID)
				require.NotEmpty(t, mistake.Message)
			}

			return
		}

		text, err := clustersecrets.Encode(bundle)
		require.NoError(t, err)

		_, err = clustersecrets.Decode("talsecret.yaml", text, with(nil), now)
		require.NoError(t, err)
	})
}
