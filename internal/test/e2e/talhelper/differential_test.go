package talhelper_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// Each talconfig of the corpus is one that talhelper accepts, and both programs make the same of it, but for the known
// differences. Each of those is still one: it goes from the list and the page when it stops being true.
func TestMachineConfigsMeanTheSameAsTalhelpers(t *testing.T) {
	t.Parallel()

	program := tool.Find(t, "talhelper")

	var (
		turn sync.Mutex
		met  = map[string]bool{}
		done int
	)

	examples := corpus(t)

	t.Run("corpus", func(t *testing.T) {
		for _, example := range examples {
			t.Run(example.name, func(t *testing.T) {
				t.Parallel()

				dir := write(t, example.files)
				require.NoError(t, genconfig(program, dir))

				ours, err := native(t, dir)
				require.NoError(t, err)

				for _, found := range differences(t, example, dir, ours) {
					known := explain(example, found)
					if known == nil {
						assert.Fail(t, "another meaning", found.String())

						continue
					}

					turn.Lock()
					met[known.title] = true
					turn.Unlock()
				}

				turn.Lock()
				done++
				turn.Unlock()
			})
		}
	})

	if done < len(examples) {
		return // some were left out by -run, or failed
	}

	for _, known := range knownDifferences {
		assert.True(t, met[known.title], "no talconfig shows the difference %q any more", known.title)
	}
}

func TestMistakesThatTalhelperAcceptsAreRefused(t *testing.T) {
	t.Parallel()

	program := tool.Find(t, "talhelper")
	examples := folders(t, filepath.Join("testdata", "refused"))
	require.Len(t, refusals, len(examples))

	for _, refusal := range refusals {
		t.Run(refusal.folder, func(t *testing.T) {
			t.Parallel()

			example := example{files: folder(t, filepath.Join("testdata", "refused", refusal.folder))}
			dir := write(t, example.files)
			require.NoError(t, genconfig(program, dir))

			_, err := native(t, dir)
			require.ErrorContains(t, err, refusal.says)
		})
	}
}

// native is the folder that this repository makes of the talconfig in dir.
func native(tb testing.TB, dir string) (map[string][]byte, error) {
	tb.Helper()

	secrets, err := bundle()
	require.NoError(tb, err)

	cluster, err := inventory.Load(inventory.Options{TalosDir: dir, Files: reading.New(dir, nil)})
	if err != nil {
		return nil, err //nolint:wrapcheck // the tests look at it as it is
	}

	output, err := generate.Configs(generate.Source{Cluster: cluster, Secrets: secrets, Now: time.Now()})
	if err != nil {
		return nil, err //nolint:wrapcheck // the tests look at it as it is
	}

	return filesOf(output), nil
}

// differences are those of talhelper's folder and ours; none where talhelper makes its own draft of a newer form.
func differences(tb testing.TB, example example, dir string, ours map[string][]byte) []difference {
	tb.Helper()

	if example.newest {
		return nil
	}

	return compare(made(tb, filepath.Join(dir, "clusterconfig")), ours)
}

// made is what talhelper left in its folder.
func made(tb testing.TB, dir string) map[string][]byte {
	tb.Helper()

	entries, err := os.ReadDir(dir)
	require.NoError(tb, err)

	files := map[string][]byte{}

	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		require.NoError(tb, err)

		files[entry.Name()] = text
	}

	return files
}

func TestComparisonFindsWhatDiffers(t *testing.T) {
	t.Parallel()

	example := folders(t, filepath.Join("testdata", "examples"))
	dir := write(t, example[0].files)

	base, err := native(t, dir)
	require.NoError(t, err)
	require.Empty(t, compare(base, base))

	for file, text := range base {
		without := copyOf(base)
		delete(without, file)
		require.NotEmpty(t, compare(base, without), "without %s", file)

		changed := copyOf(base)
		changed[file] = []byte(strings.Replace(string(text), "192.0.2.1", "192.0.2.2", 1))

		if string(changed[file]) != string(text) {
			require.NotEmpty(t, compare(base, changed), "with another address in %s", file)
		}
	}
}

func copyOf(files map[string][]byte) map[string][]byte {
	result := make(map[string][]byte, len(files))
	for name, text := range files {
		result[name] = text
	}

	return result
}
