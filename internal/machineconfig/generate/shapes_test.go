package generate_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
	"github.com/talos-mage/talos-mage/internal/machineconfig/migrate"
)

// asTheyAre are the example clusters that can be rendered in documents as they are: no patch of theirs sets a field
// that a document replaced.
var asTheyAre = []string{"secureboot", "single-node", "volumes"}

// change is one of a file of a cluster: a pattern, and what is to be there instead.
type change struct{ file, pattern, replacement string }

// decisions are what a person has to decide before the patches of an example cluster can be migrated: why, and a
// decision.
var decisions = map[string]struct {
	why     string
	changes []change
}{
	"bonds-by-selector": {"put the data into a UserVolumeConfig",
		[]change{{"patches/kubelet.yaml", `(?m)^    extraMounts:\n(      .*\n)+`, ""}}},
	// an audit policy that is taken out of the older form is Talos' own, which documents have without that
	"patches-that-delete": {"cluster.discovery.registries.kubernetes: it takes out",
		[]change{{"patches/global/discovery.yaml", `(?m)^      kubernetes:\n        \$\$patch: delete\n`, ""},
			{"patches/controller/cluster.yaml", `(?m)^    auditPolicy:\n      \$\$patch: delete\n`, ""}}},
	"sixteen-boards": {"put the data into a UserVolumeConfig",
		[]change{{"patches/nvme.yaml", `(?m)^  kubelet:\n(    .*\n)+`, ""}}},
	// what it says of both roles by one alias has no place for what is for control planes alone
	"small-boards": {"the patch is a template", []change{{"patches/small.yaml", `\{\{.*\}\}`, "60"},
		{"talconfig.yaml", `(?ms)^controlPlane: &board\n(.*)^worker: \*board\n`, "controlPlane:\n${1}worker:\n${1}"}}},
}

// Every example cluster can be had in the documents of Talos 1.14, and Talos' own validator takes what comes out: some
// as they are, most after their patches are migrated, and some after a decision.
func TestExampleClustersInDocuments(t *testing.T) {
	t.Parallel()

	folders, err := filepath.Glob(filepath.Join("..", "..", "..", "testdata", "clusters", "*"))
	require.NoError(t, err)
	require.Greater(t, len(folders), len(asTheyAre)+len(decisions))

	for _, from := range folders {
		name := filepath.Base(from)

		t.Run(name, func(t *testing.T) {
			t.Parallel()

			made, err := bundle()
			require.NoError(t, err)

			folder := of114(t, from)

			output, err := inDocuments(folder, made)
			if slices.Contains(asTheyAre, name) {
				require.NoError(t, err)
				requireTaken(t, output)

				return
			}

			requireReplaced(t, err)

			plan := planFor(t, folder, made)

			if len(plan.Decisions) > 0 {
				require.Contains(t, decisions, name)
				require.Contains(t, plan.Decisions[0].Text, decisions[name].why)
				require.Empty(t, plan.Files)

				for _, change := range decisions[name].changes {
					edit(t, filepath.Join(folder, change.file), change.pattern, change.replacement)
				}

				plan = planFor(t, folder, made)
			}

			require.Empty(t, plan.Decisions)

			for path, data := range plan.Files {
				require.NoError(t, os.WriteFile(path, data, 0o600))
			}

			output, err = inDocuments(folder, made)
			require.NoError(t, err)
			requireTaken(t, output)
		})
	}
}

// of114 is a copy of a cluster that declares the newest releases.
func of114(t *testing.T, from string) string {
	t.Helper()

	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS(from)))

	for _, name := range []string{"talconfig.yaml", "talenv.yaml"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			edit(t, filepath.Join(folder, name), `v1\.1[0-4]\.\d+`, "v1.14.1")
			edit(t, filepath.Join(folder, name), `v1\.3[0-7]\.\d+`, "v1.37.0")
		}
	}

	return folder
}

func edit(t *testing.T, path, pattern, replacement string) {
	t.Helper()

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, regexp.MustCompile(pattern).ReplaceAll(text, []byte(replacement)), 0o600))
}

func inDocuments(folder string, made *secrets.Bundle) (*generate.Output, error) {
	cluster, err := inventory.Load(inventory.Options{TalosDir: folder, Contract: "v1.14", Files: reading.New(folder, nil)})
	if err != nil {
		return nil, err
	}

	return generate.Configs(generate.Source{Cluster: cluster, Secrets: made, Now: time.Now()})
}

// requireReplaced expects nothing to stand in the way but fields that documents replaced, and JSON patches.
func requireReplaced(t *testing.T, err error) {
	t.Helper()

	require.Error(t, err)

	for _, mistake := range yamlfile.Errors(err) {
		require.True(t, mistake.ID == diagnosis.FieldReplaced ||
			strings.Contains(mistake.Message, "is a JSON patch"), mistake)
		require.Positive(t, mistake.Line, mistake)
		require.Positive(t, mistake.Column, mistake)
	}
}

func planFor(t *testing.T, folder string, made *secrets.Bundle) *migrate.Plan {
	t.Helper()

	plan, err := migrate.Make(migrate.Options{Secrets: made, Now: time.Now(),
		Load: func(files map[string][]byte, contract string) (*inventory.Cluster, error) {
			opened := reading.New(folder, nil)
			for path, data := range files {
				opened.Pretend(path, data)
			}

			return inventory.Load(inventory.Options{TalosDir: folder, Files: opened, Contract: contract})
		}})
	require.NoError(t, err)
	require.Empty(t, plan.Differences)

	return plan
}

// requireTaken has Talos' own validator judge machine configs, which are all in documents.
func requireTaken(t *testing.T, output *generate.Output) {
	t.Helper()

	require.NotEmpty(t, output.Configs)

	for _, config := range output.Configs {
		require.Contains(t, string(config.Bytes), "kind: KubeletConfig", config.File)
		require.Contains(t, string(config.Bytes), "kind: UnattendedInstallConfig", config.File)

		read, err := machineconfig.FromBytes(config.File, config.Bytes)
		require.NoError(t, err)

		_, err = read.Provider.ValidateAsClient(machineconfig.Mode{Metal: true, Release: talosconfig.TalosVersion1_14})
		require.NoError(t, err, config.File)
	}
}
