package chaos_test

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/chaos"
	"github.com/talos-mage/talos-mage/internal/test/emulatortest"
)

func TestMain(m *testing.M) { os.Exit(emulatortest.Run(m, 1)) }

// keptFile holds the seeds that once failed, a line each: the seed, and what it found.
var keptFile = filepath.Join("testdata", "seeds.txt")

// kept are the seeds of keptFile.
func kept(t *testing.T) []uint64 {
	t.Helper()

	file, err := os.Open(keptFile)
	require.NoError(t, err)

	defer file.Close()

	var seeds []uint64

	for lines := bufio.NewScanner(file); lines.Scan(); {
		text, reason, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}

		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "%s: %q is no seed", keptFile, text)
		require.NotEmpty(t, strings.TrimSpace(reason), "%s: why is seed %d kept?", keptFile, seed)

		seeds = append(seeds, seed)
	}

	return seeds
}

func TestWhateverGoesWrongNothingIsLostAndWhatIsToldIsTrue(t *testing.T) {
	t.Parallel()

	seeds := append(kept(t), chaos.Seeds(1, fewSeeds)...)
	slices.Sort(seeds)
	seeds = slices.Compact(seeds)

	summary := chaos.Campaign{Seeds: seeds, Options: chaos.Options{Folder: t.TempDir()}}.Run(t.Context())
	require.Equal(t, len(seeds), summary.Plans)

	for _, outcome := range summary.Failed {
		var text bytes.Buffer

		outcome.Write(&text)
		t.Error(text.String())
	}
}
