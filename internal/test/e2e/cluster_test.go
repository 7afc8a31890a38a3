package e2e_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// timeScale is how many times faster than the wall clock nodes live, and the program waits.
const timeScale = 40

// cluster is a set of emulated machines in maintenance mode and the files that an operator has for them.
type cluster struct {
	*labcluster.Cluster
	// kubeconfig is where it is to be written.
	kubeconfig string
	// temporary is the operator's TMPDIR. The lock lies there, and all clusters of a test process have one CA, which names
	// it.
	temporary string
}

// newCluster writes the files of a cluster into talosDir and switches its machines on. No workers means none.
func newCluster(t *testing.T, talosDir string, controlPlanes, workers int) *cluster {
	t.Helper()

	if workers == 0 {
		workers = -1
	}

	made, err := labcluster.New(talosDir, labcluster.Options{
		ControlPlanes: controlPlanes, Workers: workers, LabOptions: emulator.LabOptions{TimeScale: timeScale},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, node := range made.Nodes {
				t.Logf("%s, %s:\n%s", node.Name(), node.Stage(), strings.Join(node.Console(), "\n"))
			}
		}

		require.NoError(t, made.Close())
	})

	return &cluster{made, filepath.Join(t.TempDir(), "kubeconfig"), t.TempDir()}
}

// environment is what an operator of the cluster sets.
func (c *cluster) environment(more ...string) []string {
	return append(append(c.Environ(), "KUBECONFIG="+c.kubeconfig, "TMPDIR="+c.temporary), more...)
}

// changes are the calls that changed a machine, as "cp1 ApplyConfiguration", machine by machine and in the order they
// came.
func (c *cluster) changes() []string {
	made := []string{}

	for _, node := range c.Nodes {
		for _, call := range node.MutatingCalls() {
			made = append(made, node.Name()+" "+call.Name())
		}
	}

	return made
}

// eachOnce is what changes a cluster that is brought up: a config for each machine, and one Bootstrap, on the first
// control plane.
func (c *cluster) eachOnce() []string {
	var made []string

	for i, node := range c.Nodes {
		made = append(made, node.Name()+" ApplyConfiguration")

		if i == 0 {
			made = append(made, node.Name()+" Bootstrap")
		}
	}

	return made
}

// fingerprints are the digests of every file below the cluster's folder, without the records of runs, and of the
// kubeconfig.
func (c *cluster) fingerprints(t *testing.T) map[string]string {
	t.Helper()

	found := make(map[string]string)

	add := func(path string) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)

		found[path] = fmt.Sprintf("%x", sha256.Sum256(data))
	}

	require.NoError(t, filepath.WalkDir(c.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && !strings.Contains(path, ".talos-mage") {
			add(path)
		}

		return err
	}))

	if _, err := os.Stat(c.kubeconfig); err == nil {
		add(c.kubeconfig)
	}

	return found
}

// launcher is the script that compiles and becomes the program. Compiling takes long once, so the first to ask waits
// for it.
func launcher(t *testing.T) string {
	t.Helper()

	path := filepath.Join(repository(t), "scripts", "lib", "talos-mage.sh")

	compile.Do(func() {
		got := run(t, command{dir: repository(t), args: []string{path, "-l"}})
		require.Equal(t, 0, got.code, got.stderr)
	})

	return path
}

var compile sync.Once

// requireLogLines asserts that a text is made of log lines in the old scripts' look alone.
func requireLogLines(t *testing.T, text string) {
	t.Helper()

	for line := range strings.Lines(text) {
		require.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (DEBUG|INFO|WARN|ERROR) .*\n$`, line)
	}
}
