//go:build !darwin

package sops

import "path/filepath"

// configFolder is where programs keep their settings below a home.
func configFolder(home string) string { return filepath.Join(home, ".config") }
