package generate_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// now is any moment: the secrets are valid from it, and it is the same in every run.
var now = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// bundle is made once: keys take time.
var bundle = sync.OnceValues(clusterfiles.NewSecrets)

// folderOf writes files to a folder, the talconfig.yaml among them.
func folderOf(t testing.TB, files map[string]string) string {
	t.Helper()

	dir := t.TempDir()

	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}

	return dir
}

// configsIn reads the cluster that a folder's files declare, and makes its machine configs.
func configsIn(dir string, secrets *secrets.Bundle, environ ...string) (*generate.Output, error) {
	cluster, err := inventory.Load(inventory.Options{TalosDir: dir, Environ: environ, Files: reading.New(dir, nil)})
	if err != nil {
		return nil, err
	}

	return generate.Configs(generate.Source{Cluster: cluster, Secrets: secrets, Now: now})
}

// sourceOf reads files that have no mistakes of the inventory's.
func sourceOf(t testing.TB, files map[string]string, environ ...string) generate.Source {
	t.Helper()

	made, err := bundle()
	require.NoError(t, err)

	dir := folderOf(t, files)
	cluster, err := inventory.Load(inventory.Options{TalosDir: dir, Environ: environ, Files: reading.New(dir, nil)})
	require.NoError(t, err)

	return generate.Source{Cluster: cluster, Secrets: made, Now: now}
}

// cases reads testdata/<folder>/*.yaml: a talconfig.yaml, and more files, each after a line `====== name`.
func cases(t testing.TB, folder string) map[string]map[string]string {
	t.Helper()

	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)

	all := map[string]map[string]string{}

	for _, path := range paths {
		content, err := os.ReadFile(path)
		require.NoError(t, err)

		files := map[string]string{}

		for i, part := range strings.Split(string(content), "====== ") {
			name, text := "talconfig.yaml", part
			if i > 0 {
				name, text, _ = strings.Cut(part, "\n")
			}

			files[name] = text
		}

		all[strings.TrimSuffix(filepath.Base(path), ".yaml")] = files
	}

	return all
}

var environ = []string{"CLUSTER=lab", "COUNT=3", "SANS=[a.example, b.example]", "host=set", "TOKEN=invented-token"}

// shown is a config without what differs from run to run or is secret.
func shown(t *testing.T, data []byte) string {
	t.Helper()

	provider, err := configloader.NewFromBytes(data)
	require.NoError(t, err)

	text, err := provider.RedactSecrets("hidden").EncodeString(encoder.WithComments(encoder.CommentsDisabled))
	require.NoError(t, err)

	var lines []string

	for line := range strings.Lines(text) {
		key, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		if key == "crt" || key == "id" || key == "clusterID" {
			line, _, _ = strings.Cut(line, ":")
			line += ": ...\n"
		}

		lines = append(lines, line)
	}

	return pemBlock.ReplaceAllString(strings.Join(lines, ""), "...")
}

var pemBlock = regexp.MustCompile(`(?s)-----BEGIN.*?-----END [A-Z ]+-----`)

// TestConfigs keeps what is made of every talconfig in testdata/configs: one golden file each, without secrets.
func TestConfigs(t *testing.T) {
	t.Parallel()

	for name, files := range cases(t, "configs") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			output, err := generate.Configs(sourceOf(t, files, environ...))
			require.NoError(t, err)

			var text strings.Builder

			for _, config := range output.Configs {
				text.WriteString("====== " + config.File + "\n" + shown(t, config.Bytes))
			}

			text.WriteString("====== .gitignore\n" + string(output.GitIgnore))
			golden.Assert(t, filepath.Join("testdata", "configs", name+".golden"), text.String())
		})
	}
}
