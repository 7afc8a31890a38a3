package secrets

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
)

const (
	// EncryptedName is the file that a new bundle goes to, encrypted.
	EncryptedName = "talsecret.sops.yaml"
	// PlainName is the file that a new bundle goes to where there are no rules to encrypt it by.
	PlainName = "talsecret.yaml"
)

// Names are the files that bundles are looked for in, in talhelper's order: the first that exists counts. Any of them
// may be encrypted. Source: talhelper v3.1.16, cmd/genconfig.go.
func Names() []string {
	return []string{PlainName, EncryptedName, "talsecret.yml", "talsecret.sops.yml"}
}

// otherNames are what other programs and templates call the file, which nothing reads here: talosctl's default, and
// that of a known template once.
var otherNames = []string{"secrets.yaml", "secrets.sops.yaml", "talhelper.sops.yaml", "talsecret", "talsecret.sops"}

// IsName reports whether a file of this name holds a bundle, as one program or another calls it.
func IsName(name string) bool {
	return slices.Contains(Names(), name) || slices.Contains(otherNames, name)
}

// Find are the paths of all files in a folder that may be the bundle by their names; the first is the one that counts.
func Find(folder string) []string {
	var found []string

	for _, name := range Names() {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err == nil {
			found = append(found, path)
		}
	}

	return found
}

// NearMisses are files in a folder that hold a bundle by their names, but for a slip of those that are looked for. They
// are sorted.
func NearMisses(folder string, lookedFor ...string) []string {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}

	var near []string

	for _, entry := range entries {
		if name := entry.Name(); !entry.IsDir() && isNearMiss(name, lookedFor) {
			near = append(near, name)
		}
	}

	return near
}

func isNearMiss(name string, lookedFor []string) bool {
	lower := strings.ToLower(name)

	if slices.Contains(lookedFor, name) {
		return false
	}

	return slices.Contains(otherNames, lower) || slices.Contains(Names(), lower) ||
		strings.Contains(lower, "secret") && suggest.Word(lower, lookedFor) != ""
}
