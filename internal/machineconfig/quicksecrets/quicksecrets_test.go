package quicksecrets_test

import (
	"testing"

	"github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/machineconfig/quicksecrets"
)

func TestNoKeyIsRSA(t *testing.T) {
	t.Parallel()

	bundle, err := quicksecrets.New()
	require.NoError(t, err)
	require.NoError(t, bundle.Validate())

	key, err := bundle.Certs.K8sServiceAccount.GetKey()
	require.NoError(t, err)
	require.IsType(t, &x509.ECDSAKey{}, key)
}
