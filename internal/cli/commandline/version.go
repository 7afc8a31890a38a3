package commandline

import (
	"cmp"
	"runtime/debug"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cluster/release"
)

// version is one line: the program's version and commit, as far as Go wrote them into it, and the Talos releases it
// knows.
func version(name string, info *debug.BuildInfo) string {
	built := map[string]string{}
	for _, setting := range info.Settings {
		built[setting.Key] = setting.Value
	}

	line := name + " " + cmp.Or(info.Main.Version, "(devel)")
	if commit := built["vcs.revision"]; commit != "" {
		line += ", commit " + commit
	}

	// A version that Go made of a commit with changes says so itself.
	if built["vcs.modified"] == "true" && !strings.HasSuffix(info.Main.Version, "+dirty") {
		line += " with changes"
	}

	return line + ", Talos " + release.Tabled()
}

// buildInfo is what Go wrote into this program; nothing where it wrote nothing.
func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}

	return &debug.BuildInfo{}
}
