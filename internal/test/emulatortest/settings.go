package emulatortest

import (
	"strings"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
)

// Settings parts what a test gives a run, "NODE=cp1" and "-update=true" alike, into environment and flags.
func Settings(entries []string) (environ []string, flags settings.Overrides) {
	flags = settings.Overrides{}

	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")

		if flag, ok := strings.CutPrefix(name, "-"); ok {
			flags[flag] = value
		} else if strings.HasPrefix(name, "<") {
			flags[name] = value
		} else {
			environ = append(environ, entry)
		}
	}

	return environ, flags
}
