package secrets

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/nearest"
)

const (
	// EncryptedName is the file that a new bundle goes to, encrypted.
	EncryptedName = "talsecret.sops.yaml"
	// PlainName is the file that a new bundle goes to where there are no rules to encrypt it by.
	PlainName = "talsecret.yaml"
)

// Names are the files that bundles are looked for in, in talhelper's order: the first that exists counts. Any of them may be encrypted.
// Source: talhelper v3.1.16, cmd/genconfig.go.
func Names() []string {
	return []string{PlainName, EncryptedName, "talsecret.yml", "talsecret.sops.yml"}
}

// otherNames are what other programs and templates call the file, which nothing reads here: talosctl's default, and that of a known template once.
var otherNames = []string{"secrets.yaml", "secrets.sops.yaml", "talhelper.sops.yaml", "talsecret", "talsecret.sops"}

// Find is the path of the bundle in a folder; empty if there is none.
func Find(folder string) string {
	for _, name := range Names() {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}

	return ""
}

// NearMisses are files in a folder without a bundle that hold one by their names, but for a slip: nothing reads them. They are sorted.
func NearMisses(folder string) []string {
	entries, err := os.ReadDir(folder)
	if err != nil || Find(folder) != "" {
		return nil
	}

	var near []string

	for _, entry := range entries {
		if name := entry.Name(); !entry.IsDir() && isNearMiss(name) {
			near = append(near, name)
		}
	}

	return near
}

func isNearMiss(name string) bool {
	lower := strings.ToLower(name)

	return slices.Contains(otherNames, lower) || strings.Contains(lower, "secret") && nearest.Word(lower, Names()) != ""
}
