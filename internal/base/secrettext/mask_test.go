package secrettext_test

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/secrettext"
)

func TestAKeyInBase64IsMaskedWhereverItBegins(t *testing.T) {
	t.Parallel()

	const key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04f\n-----END EC PRIVATE KEY-----\n"

	for name, text := range map[string]string{
		"at the start":         key,
		"behind a line break":  "\n" + key,
		"behind spaces":        "   " + key,
		"behind a certificate": "-----BEGIN CERTIFICATE-----\nMIIBjTCCATKgAwIBAgIQ\n-----END CERTIFICATE-----\n" + key,
	} {
		require.Equal(t, "key "+secrettext.Masked,
			secrettext.Mask("key "+base64.StdEncoding.EncodeToString([]byte(text))), name)
	}
}
