// Package agekey finds the real sops and makes keys for it, for tests that encrypt and decrypt as users do.
package agekey

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
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

// New makes a key. The test is skipped where there is no sops with an age-keygen beside it, neither in the repository's
// bin/ nor on the PATH.
func New(tb testing.TB) Key {
	tb.Helper()

	programs := find(tb)
	if programs == "" {
		tb.Skip("SKIP: no sops with an age-keygen beside it: `.ci/run tools` builds both")
	}

	text, err := exec.CommandContext(tb.Context(), filepath.Join(programs, "age-keygen")).Output() //nolint:gosec // the program as it was found
	require.NoError(tb, err)

	return Key{Programs: programs, Text: text, Recipient: regexp.MustCompile(`age1\w+`).FindString(string(text))}
}

// WriteTo puts the key into a file of a folder and returns its path.
func (k Key) WriteTo(tb testing.TB, folder string) string {
	tb.Helper()

	path := filepath.Join(folder, "age.key")
	require.NoError(tb, os.WriteFile(path, k.Text, 0o600))

	return path
}

func find(tb testing.TB) string {
	tb.Helper()

	for _, folder := range append([]string{filepath.Join(repository(tb), "bin")},
		filepath.SplitList(os.Getenv("PATH"))...) {
		_, noSops := os.Stat(filepath.Join(folder, "sops"))
		_, noKeygen := os.Stat(filepath.Join(folder, "age-keygen"))

		if noSops == nil && noKeygen == nil {
			return folder
		}
	}

	return ""
}

// repository is the folder with go.mod above the test's own.
func repository(tb testing.TB) string {
	tb.Helper()

	folder, err := os.Getwd()
	require.NoError(tb, err)

	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}

		require.NotEqual(tb, folder, filepath.Dir(folder), "there is no go.mod above the test")
		folder = filepath.Dir(folder)
	}
}
