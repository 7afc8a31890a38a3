package secrettext_test

import (
	"crypto/sha256"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/secrettext"
)

func TestKeysAreKnown(t *testing.T) {
	t.Parallel()

	sum := sha256.Sum256([]byte("random"))

	for name, text := range map[string]string{
		"an age key":        "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQ",
		"in lower case":     "age-secret-key-1qqqqqqqqqqqqqqqqqqqq",
		"a PEM text":        "-----BEGIN OPENSSH PRIVATE KEY-----",
		"a PEM certificate": "-----BEGIN CERTIFICATE-----",
		"a bootstrap token": "abcdef.0123456789abcdef",
		"32 random bytes":   base64.StdEncoding.EncodeToString(sum[:]),
		"16 random bytes":   base64.RawStdEncoding.EncodeToString(sum[:16]),
		"a PEM in base64":   base64.StdEncoding.EncodeToString([]byte("-----BEGIN EC PRIVATE KEY-----")),
		"a Proxmox token":   "root@pam!lab=00000000-0000-0000-0000-000000000000",
		"among others":      "cp1, AGE-SECRET-KEY-1QQQ",
	} {
		require.True(t, secrettext.LooksLikeKey(text), name)
		require.True(t, secrettext.LooksLikeKeyInPath(text), name)
		require.Equal(t, secrettext.Instead, secrettext.Shown(text), name)
	}
}

func TestOtherTextIsShown(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"", "cp1", "soon", "cp1=192.0.2.73,cp2=[2001:db8::5]:50000", "worker-with-a-long-name.example-domain-xyz.example.com",
		"https://pve.example.net:8006/api2/json", "TM034", "talos/clusterconfig", "0123456789abcdef0123456789abcdef",
		"thisIsALongNameOfANodeInCamelCase", "/home/user/lab/talos/clusterconfig/lab-control-plane-1.yaml",
	} {
		require.False(t, secrettext.LooksLikeKey(text), text)
		require.False(t, secrettext.LooksLikeKeyInPath(text), text)
		require.Equal(t, text, secrettext.Shown(text))
	}

	require.False(t, secrettext.LooksLikeKeyInPath("/tmp/TestOtherTextIsShown1234567890/001"), "a folder's name")
	require.True(t, secrettext.LooksLikeKeyInPath("apiVersion: v1\nclusters: []\n"), "a file's content")
}
