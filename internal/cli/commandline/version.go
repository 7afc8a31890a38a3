package commandline

import (
	"fmt"
	"runtime/debug"

	"github.com/talos-mage/talos-mage/internal/cluster/release"
)

// version is one line: the program's version and commit, as Go wrote them into it, and the Talos releases it knows.
func version(name string) string {
	number, commit := "(devel)", "unknown"

	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			number = info.Main.Version
		}

		settings := map[string]string{}
		for _, setting := range info.Settings {
			settings[setting.Key] = setting.Value
		}

		if revision := settings["vcs.revision"]; revision != "" {
			commit = revision
		}

		if settings["vcs.modified"] == "true" {
			commit += " and changes"
		}
	}

	return fmt.Sprintf("%s %s, commit %s, Talos %s", name, number, commit, release.Tabled())
}
