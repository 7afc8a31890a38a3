package settings_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
)

// Mage's own parser runs one target after the other: a later one that may lose data is judged before the first.
func TestAMageLineIsRefusedForAnyTargetThatMayLoseData(t *testing.T) {
	t.Parallel()

	targets := []string{"talos", "status", "reset", "upgrade", "upgradeNode", "explain", "etcd:recover"}

	for line, want := range map[string]struct{ without, with string }{
		"talos status":                             {},
		"reset":                                    {"TM190", "TM190"},
		"talos RESET -yes":                         {"TM190", "TM190"},
		"reset -yes -node=cp1 -cluster=lab":        {"TM190", "TM190"},
		"reset -yes -node=":                        {"TM190", "TM190"},
		"reset -yes -node= -cluster=lab":           {},
		"status -node=cp1 reset -yes":              {"TM190", "TM190"},
		"reset -node=cp1 status":                   {"TM191", ""},
		"talos -node=cp1 reset --cluster=lab":      {"TM191", ""},
		"reset -node=cp1 -yes=false":               {"TM191", ""},
		"reset -node=cp1 -YES":                     {},
		"reset -node=cp1 -yes talos":               {},
		"reset -cluster=lab -dryRun":               {},
		"etcd:recover a.db":                        {"TM191", ""},
		"etcd:recover a.db -destroyed=cp2 -yes":    {},
		"upgrade":                                  {"TM190", "TM190"},
		"upgrade -cluster=lab":                     {"TM191", ""},
		"upgradeNode cp1":                          {"TM191", ""},
		"upgradeNode cp1 -yes":                     {},
		"explain reset":                            {},
		"mine reset":                               {"TM190", "TM190"},
		"reset -cluster=lab -yes reset -node=cp1 ": {"TM191", ""},
	} {
		for terminal, id := range map[bool]string{false: want.without, true: want.with} {
			var err error

			for _, call := range settings.CallsIn(strings.Fields(line), "", targets) {
				loaded, failed := settings.Load([]string{"NODE=cp1", "YES=true"}, call.Given, t.TempDir())
				require.NoError(t, failed, line)

				if err == nil {
					err = loaded.RefuseUnasked(call.Target, terminal)
				}
			}

			if id == "" {
				require.NoError(t, err, line)
			} else {
				require.ErrorContains(t, err, id, line)
			}
		}
	}
}

// An importer's magefile may have other targets of the same name, which are its own.
func TestTheAliasOfAnImportIsKnownByTheTargetThatRuns(t *testing.T) {
	t.Parallel()

	for line, want := range map[string]string{
		"health":                         "",
		"HEALTH reset":                   "",
		"up:health":                      "up:",
		"reset Up:Health -node=x:health": "Up:",
		"up:health reset":                "up:",
		"db:reset health":                "",
		"-f=a:health":                    "",
		"":                               "",
	} {
		require.Equal(t, want, settings.AliasIn(strings.Fields(line), "health"), line)
	}

	require.Equal(t, "up:", settings.AliasIn([]string{"up:etcd:status"}, "etcd:status"))
}
