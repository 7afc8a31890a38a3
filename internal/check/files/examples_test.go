package files_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
)

// examples are this repository's clusters of different shapes, and the profile that people are shown.
func examples(t *testing.T) []string {
	t.Helper()

	folders, err := filepath.Glob(filepath.Join("..", "..", "..", "testdata", "clusters", "*"))
	require.NoError(t, err)

	folders = append(folders, filepath.Join("..", "..", "..", "examples", "profile"))
	require.Len(t, folders, len(sizes))

	return folders
}

// generateIn makes the machine configs of a folder without them.
func generateIn(t *testing.T, folder string, read *reading.Files) *generate.Output {
	t.Helper()

	bundle, err := ourSecrets()
	require.NoError(t, err)

	cluster, err := inventory.Load(inventory.Options{TalosDir: folder, Files: read})
	require.NoError(t, err)

	made, err := generate.Configs(generate.Source{Cluster: cluster, Secrets: bundle, Now: time.Now()})
	require.NoError(t, err)

	return made
}

// madeInMemory are the options for a folder without machine configs, which are generated.
func madeInMemory(t *testing.T, folder string) check.Options {
	t.Helper()

	read := reading.New(folder, nil)
	made := generateIn(t, folder, read)

	configs := filepath.Join(folder, "clusterconfig")
	read.Pretend(filepath.Join(configs, "talosconfig"), made.Talosconfig)

	for _, config := range made.Configs {
		read.Pretend(filepath.Join(configs, config.File), config.Bytes)
	}

	return check.Options{TalosDir: folder, Root: folder, ConfigDir: configs, Files: read}
}

// madeInFiles are the options for a copy of a folder that has its machine configs, which are used as they are.
func madeInFiles(t *testing.T, folder string) check.Options {
	t.Helper()

	target := t.TempDir()
	require.NoError(t, os.CopyFS(target, os.DirFS(folder)))

	made := generateIn(t, folder, reading.New(folder, nil))
	configs := filepath.Join(target, "clusterconfig")
	require.NoError(t, os.Mkdir(configs, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(configs, "talosconfig"), made.Talosconfig, 0o600))

	for _, config := range made.Configs {
		require.NoError(t, os.WriteFile(filepath.Join(configs, config.File), config.Bytes, 0o600))
	}

	return check.Options{TalosDir: target, Root: target, AsTheyAre: true}
}

// expected is a finding about an example that is right, with why it is there.
type expected struct {
	ID     diagnosis.ID `yaml:"id"`
	At     string       `yaml:"at"`
	Reason string       `yaml:"reason"`
}

// What is expected of an example stands in testdata/clusters/<example>.yaml; there is no such file where nothing is.
func TestExampleClustersAreClean(t *testing.T) {
	t.Parallel()

	for _, folder := range examples(t) {
		for way, made := range map[string]func(*testing.T, string) check.Options{
			"in memory": madeInMemory, "in files": madeInFiles,
		} {
			name := filepath.Base(folder)

			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				requireClean(t, name, check.Read(made(t, folder)))
			})
		}
	}
}

// requireClean judges an example, and compares what is found with what is expected.
func requireClean(t *testing.T, name string, in *check.Input) {
	t.Helper()

	result := table.Run(context.Background(), in)

	require.Len(t, in.Cluster.Nodes, sizes[name])
	require.NotEmpty(t, in.Configs)

	want := expectations(t, name)

	var found []expected

	for i, finding := range result.Trouble() {
		seen := expected{ID: finding.ID, At: finding.At.Path}
		if i < len(want) {
			seen.Reason = want[i].Reason
		}

		found = append(found, seen)
		t.Logf("%s at %s: %s", finding.ID, finding.At, finding.Cause)
	}

	require.Equal(t, want, found)

	for _, finding := range want {
		require.NotEmpty(t, finding.Reason, "%s: why is it right all the same?", finding.ID)
	}

	require.Equal(t, diagnosis.ExitOK, result.ExitCode())
}

// sizes are the numbers of machines.
var sizes = map[string]int{
	"single-node": 1, "ha": 6, "ipv6-only": 4, "dual-stack": 3, "bonds-and-vlans": 5, "volumes": 3, "secureboot": 4,
	"small-boards":  16,
	"remote-worker": 5, "full-names": 4, "patches-that-delete": 5, "anchors": 5, "bonds-by-selector": 5, "one-alone": 1,
	"sixteen-boards": 16, "all-by-patch": 4, "ipv6-routed": 4, "variables": 4,
	"profile": 4,
}

func expectations(t *testing.T, name string) []expected {
	t.Helper()

	data, err := os.ReadFile(filepath.Join("testdata", "clusters", name+".yaml"))
	if os.IsNotExist(err) {
		return nil
	}

	require.NoError(t, err)

	var want []expected

	require.NoError(t, yaml.NewDecoder(bytes.NewReader(data)).Decode(&want))

	return want
}

// Nothing is written anywhere while a cluster is judged.
func TestAnAuditWritesNothing(t *testing.T) {
	t.Parallel()

	for _, folder := range examples(t) {
		require.NotEmpty(t, check.Read(madeInMemory(t, folder)).Configs)
		require.NoDirExists(t, filepath.Join(folder, "clusterconfig"))

		require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			require.NotEqual(t, "talosconfig", entry.Name(), path)

			return err
		}))
	}
}
