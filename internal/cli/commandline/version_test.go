package commandline

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/release"
)

func TestTheVersionSaysWhatIsKnown(t *testing.T) {
	t.Parallel()

	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123abc"}
	changed := debug.BuildSetting{Key: "vcs.modified", Value: "true"}

	for name, test := range map[string]struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		"nothing":                          {"", nil, "talos-mage (devel)"},
		"a release":                        {"v1.2.3", nil, "talos-mage v1.2.3"},
		"a checkout":                       {"v1.2.4-0.20260101-0123abc", []debug.BuildSetting{commit}, "talos-mage v1.2.4-0.20260101-0123abc, commit 0123abc"},
		"a checkout with changes":          {"(devel)", []debug.BuildSetting{commit, changed}, "talos-mage (devel), commit 0123abc with changes"},
		"a version that says so by itself": {"v1.2.4+dirty", []debug.BuildSetting{commit, changed}, "talos-mage v1.2.4+dirty, commit 0123abc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			info := &debug.BuildInfo{Main: debug.Module{Version: test.version}, Settings: test.settings}
			require.Equal(t, test.want+", Talos "+release.Tabled(), version("talos-mage", info))
		})
	}
}
