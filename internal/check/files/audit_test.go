package files_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/output"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

func TestThePageOfChecksIsTrue(t *testing.T) {
	t.Parallel()

	golden.Assert(t, filepath.Join("..", "..", "..", "docs", "checks.md"), pageOfChecks())
}

func TestEveryCheckIsComplete(t *testing.T) {
	t.Parallel()

	kinds := map[check.Kind]int{}

	for _, row := range table.Checks() {
		entry := row.Entry()
		require.Equal(t, row.ID, entry.ID, "no entry in the catalogue")
		require.Contains(t, check.Kinds(), row.Kind, "%s has no kind", row.ID)
		require.NotEmpty(t, entry.Source, row.ID)

		kinds[row.Kind]++
	}

	require.GreaterOrEqual(t, len(table.Checks()), 60)
}

// write is a result in one of the formats.
func write(t *testing.T, result check.Result, format string) string {
	t.Helper()

	var text strings.Builder

	require.NoError(t, output.Write(result, &text, format, false))

	return text.String()
}

// broken has a finding that comes from the talconfig, a machine config that does not parse, and no talosconfig.
func broken() files {
	made := lab(
		config{machine: "network:\n\tinterfaces:\n\t\t- interface: eth0\n\t\t\taddresses: " +
			"[192.0.2.11/26]\n\t\t\troutes:\n\t\t\t\t- network: 0.0.0.0/0\n\t\t\t\t\tgateway: 192.0.2.254"},
		config{role: "worker"},
	)
	made["talconfig.yaml"] = strings.Replace(made["talconfig.yaml"], "    installDisk: /dev/vda\n",
		"    installDisk: /dev/vda\n    networkInterfaces:\n      - interface: eth0\n        routes:\n          - "+
			"network: 0.0.0.0/0\n            gateway: 192.0.2.254\n", 1)
	made["clusterconfig/lab-n2.yaml"] = "version: v1alpha1\nmachine:\n  type: worker\n\tbad: [\n"

	return made
}

func TestFormats(t *testing.T) {
	t.Parallel()

	result := table.Run(context.Background(), broken().read(t))

	golden.Assert(t, filepath.Join("testdata", "output", "table.golden"), write(t, result, "table"))
	golden.Assert(t, filepath.Join("testdata", "output", "json.golden"), write(t, result, "json"))

	var log struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
				}
			}
		}
	}

	require.NoError(t, json.Unmarshal([]byte(write(t, result, "sarif")), &log))
	require.Equal(t, "2.1.0", log.Version)
	require.Len(t, log.Runs, 1)
	require.Len(t, log.Runs[0].Results, len(result.Trouble()))

	for i, found := range log.Runs[0].Results {
		require.Equal(t, string(result.Trouble()[i].ID), found.RuleID)
		require.Equal(t, found.RuleID, log.Runs[0].Tool.Driver.Rules[found.RuleIndex].ID)
		require.Contains(t, []string{"error", "warning"}, found.Level)

		for _, place := range found.Locations {
			require.NotEmpty(t, place.PhysicalLocation.ArtifactLocation.URI)
		}
	}
}

func TestAFileThatDoesNotParseIsOneFindingAndTheOthersAreChecked(t *testing.T) {
	t.Parallel()

	t.Run("machine config", func(t *testing.T) {
		t.Parallel()

		result := table.Run(context.Background(), broken().read(t))
		found := findingsOf(result, diagnosis.ConfigUnreadable)
		require.Len(t, found, 1)
		require.Equal(t, "clusterconfig/lab-n2.yaml", found[0].At.Path)
		require.Equal(t, 4, found[0].At.Line)

		require.NotEmpty(t, findingsOf(result, diagnosis.GatewayOutside), "the other config is checked")
	})

	t.Run("talconfig", func(t *testing.T) {
		t.Parallel()

		made := broken()
		made["talconfig.yaml"] = "clusterName: lab\nnodes: [\n"
		result := table.Run(context.Background(), made.read(t))

		found := findingsOf(result, diagnosis.FileSyntax)
		require.Len(t, found, 1)
		require.Equal(t, "talconfig.yaml", found[0].At.Path)
		require.NotZero(t, found[0].At.Line)
		require.NotEmpty(t, findingsOf(result, diagnosis.GatewayOutside), "the machine configs are checked")
		require.Len(t, findingsOf(result, diagnosis.ConfigUnreadable), 1)
		require.Equal(t, diagnosis.ExitBadInput, result.ExitCode())
	})

	t.Run("a value of the talconfig", func(t *testing.T) {
		t.Parallel()

		made := broken()
		made["talconfig.yaml"] = strings.Replace(made["talconfig.yaml"], "talosVersion", "talosVersoin", 1)
		result := table.Run(context.Background(), made.read(t))

		found := findingsOf(result, diagnosis.FileKey)
		require.Len(t, found, 1)
		require.Equal(t, "talosVersoin: v1.13.9", found[0].At.Text)
		require.Contains(t, found[0].Cause, "did you mean")
		require.NotEmpty(t, findingsOf(result, diagnosis.GatewayOutside))
	})

	t.Run("patch", func(t *testing.T) {
		t.Parallel()

		made := broken()
		made["talconfig.yaml"] += "patches:\n  - \"@./patches/a.yaml\"\n"
		made["patches/a.yaml"] = "machine:\n  sysctls: {a\n"
		found := findingsOf(table.Run(context.Background(), made.read(t)), diagnosis.FileSyntax)
		require.Len(t, found, 1)
		require.Equal(t, "patches/a.yaml", found[0].At.Path)
		require.NotZero(t, found[0].At.Line)
	})
}

// A check whose input is missing is never among the passed ones.
func TestWhatIsMissingIsNotPassed(t *testing.T) {
	t.Parallel()

	result := table.Run(context.Background(), files{"talconfig.yaml": lab(config{})["talconfig.yaml"]}.read(t))

	reasons := map[diagnosis.ID]string{}
	for _, check := range result.NotRun {
		if check.Node == "" {
			reasons[check.ID] = check.Why
		}
	}

	require.NotContains(t, result.Passed, diagnosis.GatewayOutside)
	require.Contains(t, reasons[diagnosis.GatewayOutside], "machine config")
	require.NotContains(t, result.Passed, diagnosis.ClientCertificate)
	require.Contains(t, reasons[diagnosis.ClientCertificate], "talosconfig")
	require.Contains(t, reasons[diagnosis.SecretsFileOpen], "secrets file")
	require.Contains(t, reasons[diagnosis.InstallDiskAmbiguous], "mage preflight")
	require.Contains(t, reasons[diagnosis.NameUnresolved], "network")

	require.Contains(t, reasons[diagnosis.ConfigUnreadable], "machine config")
	require.Contains(t, reasons[diagnosis.TalosconfigBroken], "talosconfig")

	for _, id := range result.Passed {
		require.Empty(t, reasons[id], id)
	}

	nothing := table.Run(context.Background(), files{}.read(t))
	require.Len(t, findingsOf(nothing, diagnosis.FileMissing), 1)
	require.Equal(t, []diagnosis.ID{diagnosis.FileUnreadable}, nothing.Passed)
}

func TestSkippedChecksAreWarningsThatSaySo(t *testing.T) {
	t.Parallel()

	folder := broken().write(t)
	result := table.Run(context.Background(), check.Read(check.Options{
		TalosDir: folder, Root: folder,
		Checks: check.Settings{Now: time.Now(), SkipChecks: []diagnosis.ID{diagnosis.GatewayOutside}},
	}))

	found := findingsOf(result, diagnosis.GatewayOutside)
	require.Len(t, found, 1)
	require.Equal(t, diagnosis.Warning, found[0].Severity)
	require.Contains(t, write(t, result, "table"), "warning (skipped)  TM200")
	require.Contains(t, write(t, result, "sarif"), `"justification": "SKIP_CHECKS"`)
}

func TestExplain(t *testing.T) {
	t.Parallel()

	entry, _ := diagnosis.Lookup(diagnosis.GatewayOutside)
	text := output.Explain(entry)

	for _, part := range []string{"TM200", entry.Title, entry.Cause, entry.Remedy, entry.Source, "a machine config",
		"SKIP_CHECKS=TM200"} {
		require.Contains(t, text, part)
	}
}
