package throwaway_test

import (
	"testing"

	"github.com/siderolabs/crypto/x509"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
)

func TestSecretsAreValidQuickAndMarked(t *testing.T) {
	t.Parallel()

	bundle, err := throwaway.Secrets()
	require.NoError(t, err)
	require.NoError(t, bundle.Validate(talosconfig.TalosVersion1_13))
	require.Len(t, "made up to be judged, never used", 32, "as long as a cluster's id")

	key, err := bundle.Certs.K8sServiceAccount.GetKey()
	require.NoError(t, err)
	require.IsType(t, &x509.ECDSAKey{}, key, "an RSA key takes seconds")

	again, err := throwaway.Secrets()
	require.NoError(t, err)
	require.NotEqual(t, bundle.Certs.OS.Key, again.Certs.OS.Key)

	text, err := yaml.Marshal(bundle)
	require.NoError(t, err)
	require.True(t, throwaway.Made(text))

	// What a patch replaces does not take the mark away.
	bundle.TrustdInfo.Token, bundle.Secrets.BootstrapToken = "abcdef.0123456789abcdef", "abcdef.0123456789abcdef"
	text, err = yaml.Marshal(bundle)
	require.NoError(t, err)
	require.True(t, throwaway.Made(text))
	require.False(t, throwaway.Made([]byte("token: abcdef.0123456789abcdef")))
}
