package layout_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// opening is a call that opens a file.
var opening = regexp.MustCompile(`\b(os\.(Open|OpenFile|ReadFile)|plainfile\.Read|machineconfig\.Load|talos\.LoadCredentials)\(`)

// mayOpen are the files of code that open files past cluster/reading, which opens those of a cluster once a run, and
// why they do.
var mayOpen = map[string]string{
	"internal/base/atomicfile/atomicfile.go": "writes, and syncs folders",
	"internal/base/lockfile/lockfile.go":     "makes locks, which are empty",
	"internal/base/plainfile/plainfile.go":   "it is the one that opens them",
	"internal/check/proxmox/tofu/module.go":  "OpenTofu files are no part of the cluster's",
	"internal/cli/invocation/launcher.go":    "asks the system which program called",
	"internal/cluster/snapshot/identify.go":  "a snapshot of etcd, which is of any size",
	"internal/cluster/reading/reading.go":    "it is the one that reads",
	"internal/kube/lock.go":                  "the lock that kubectl takes",
	"internal/kube/merge.go":                 "the user's kubeconfig, which others change meanwhile",
	"internal/machineconfig/config.go":       "a machine config that belongs to no run's cluster",
	"internal/report/append.go":              "the report, which it writes",
	"internal/report/record/read.go":         "the record of a run, which is made here",
	"internal/report/record/writer.go":       "the record of a run, which it writes",
	"internal/steps/configs.go":              "the .gitignore that it adds to",
	"internal/steps/workspace/render.go":     "what talhelper has just rendered, in a folder of its own",
	"internal/steps/lock.go":                 "the cluster's lock",
	"internal/steps/machines.go":             "a talosconfig without a cluster's other files",
	"internal/steps/rotate.go":               "the talosconfig that it changes, as it is by then",
	"internal/steps/secrets.go":              "a machine config that the user names, of elsewhere",
	"internal/steps/talosconfig.go":          "the talosconfig that it changes, as it is by then",
	"internal/talos/credentials.go":          "a talosconfig without a cluster's other files",
}

func TestOnlyTheReadingOpensFilesOfACluster(t *testing.T) {
	t.Parallel()

	root := filepath.Join("..", "..", "..")

	var found []string

	for file := range importsOf(t, root) {
		if isBelow(file, "internal/dev") || isBelow(file, "internal/test") {
			continue
		}

		text, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)

		if opening.Match(text) {
			found = append(found, file)
		}
	}

	slices.Sort(found)
	require.Equal(t, slices.Sorted(maps.Keys(mayOpen)), found,
		"whoever opens files has a reason here, and no reason is idle")
}
