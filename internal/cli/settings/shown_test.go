package settings_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
)

func TestSettingsAreShownWithoutSecrets(t *testing.T) {
	t.Parallel()

	loaded, err := settings.Load([]string{
		"PROXMOX_VE_ENDPOINT=https://root:planted@192.0.2.1:8006/",
		"PROXMOX_VE_API_TOKEN=a@pve!b=01234567-89ab-cdef-0123-456789abcdef", "NODE_WAIT=60",
	}, settings.Overrides{"node": "cp1,cp2"}, t.TempDir())
	require.NoError(t, err)

	shown := map[string]settings.Value{}
	for _, value := range loaded.Shown() {
		shown[value.Name] = value
	}

	for _, want := range []settings.Value{
		{Name: "PROXMOX_VE_ENDPOINT", Value: "https://(masked)@192.0.2.1:8006/", Given: true},
		{Name: "PROXMOX_VE_API_TOKEN", Value: "(masked)", Given: true},
		{Name: "NODE_WAIT", Value: "1m0s", Given: true},
		{Name: "-node", Value: "cp1,cp2", Given: true},
		{Name: "MAX_PARALLEL", Value: "2"},
	} {
		require.Equal(t, want, shown[want.Name])
	}
}
