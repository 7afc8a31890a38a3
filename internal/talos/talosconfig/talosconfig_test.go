package talosconfig_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/talos/talosconfig"
)

func TestParse(t *testing.T) {
	t.Parallel()

	config, err := talosconfig.Parse([]byte("context: home\ncontexts: {home: {endpoints: [192.0.2.11]}}\n"))
	require.NoError(t, err)
	require.Equal(t, []string{"192.0.2.11"}, config.Contexts["home"].Endpoints)

	for _, text := range []string{"context: home\ncontexts: {home: null}\n", "context: home\ncontexts: {home: }\n",
		"contexts: [s3cr3t]\n", "\t"} {
		_, err := talosconfig.Parse([]byte(text))
		require.EqualError(t, err, "it is not a talosconfig: the YAML could not be read", text)
	}
}
