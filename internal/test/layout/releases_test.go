package layout_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/release"
)

// The release that machinery is of is the newest that is known here: in the tables, and on the page that people read
// first.
func TestTheNewestReleaseIsKnownEverywhere(t *testing.T) {
	t.Parallel()

	newest, err := config.ParseContractFromVersion(strings.TrimSpace(gendata.VersionTag))
	require.NoError(t, err)
	require.False(t, release.IsNewer(gendata.VersionTag))
	require.True(t, release.IsNewer(fmt.Sprintf("v1.%d.0", newest.Minor+1)))
	require.True(t, release.IsTabled(gendata.VersionTag))

	page, err := os.ReadFile(filepath.Join("..", "..", "..", "README.md"))
	require.NoError(t, err)

	for minor := 12; minor <= newest.Minor; minor++ {
		oldest, youngest := kubernetesOn(fmt.Sprintf("v1.%d.0", minor))
		require.Contains(t, string(page), fmt.Sprintf("| 1.%d | 1.%d to 1.%d |", minor, oldest, youngest))
	}
}

// kubernetesOn are the oldest and the newest minor version of Kubernetes that a Talos runs.
func kubernetesOn(talos string) (oldest, newest int) {
	for minor := range 100 {
		if release.Fit(fmt.Sprintf("v1.%d.0", minor), talos) != nil {
			continue
		}

		if oldest == 0 {
			oldest = minor
		}

		newest = minor
	}

	return oldest, newest
}

// The page about new releases names places and tests that are there.
func TestThePageAboutNewReleasesNamesWhatIsThere(t *testing.T) {
	t.Parallel()

	root := filepath.Join("..", "..", "..")

	page, err := os.ReadFile(filepath.Join(root, "docs", "adding-a-release.md"))
	require.NoError(t, err)

	for _, named := range regexp.MustCompile("`((?:internal|testdata)/[^`]+|go\\.mod)`").FindAllStringSubmatch(string(page), -1) {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(named[1])))
		require.NoError(t, err, named[1])
	}

	tests := map[string]bool{}

	code := filepath.Join(root, "internal")
	require.NoError(t, filepath.WalkDir(code, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}

		text, err := os.ReadFile(path)
		for _, test := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			tests[test[1]] = true
		}

		return err
	}))

	for _, named := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(string(page), -1) {
		require.True(t, tests[named[1]], "%s is no test", named[1])
	}
}
