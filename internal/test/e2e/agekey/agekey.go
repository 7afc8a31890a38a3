// Package agekey finds the real sops and makes keys for it, for tests that encrypt and decrypt as users do.
package agekey

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// Key is a new key of age's.
type Key struct {
	// Programs is the folder that sops is in, for a PATH.
	Programs string
	// Text is what belongs into a key file. It is a secret of the test alone.
	Text []byte
	// Recipient is whom to encrypt for.
	Recipient string
}

// New makes a key. The test is skipped where there is no sops or no age-keygen.
func New(tb testing.TB) Key {
	tb.Helper()

	sops, keygen := tool.Find(tb, "sops"), tool.Find(tb, "age-keygen")

	text, err := exec.CommandContext(tb.Context(), keygen).Output()
	require.NoError(tb, err)

	return Key{
		Programs: filepath.Dir(sops), Text: text, Recipient: regexp.MustCompile(`age1\w+`).FindString(string(text)),
	}
}

// WriteTo puts the key into a file of a folder and returns its path.
func (k Key) WriteTo(tb testing.TB, folder string) string {
	tb.Helper()

	path := filepath.Join(folder, "age.key")
	require.NoError(tb, os.WriteFile(path, k.Text, 0o600))

	return path
}
