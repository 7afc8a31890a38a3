package kills_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
)

// leftovers is what a process that was killed may leave for the next one to clean up.
type leftovers int

const (
	// noLeftovers is what a run leaves that comes to its end.
	noLeftovers leftovers = iota
	// olderLeftovers is what one leaves that is stopped: it may not have come to cleaning up.
	olderLeftovers
	// newLeftovers is what a killed one leaves.
	newLeftovers
)

// requireFiles looks at every file of the operator: whole, for his eyes alone, and nothing that he would have to clean
// up.
func (w *world) requireFiles(t *testing.T, may leftovers) {
	t.Helper()

	left := map[string]bool{}

	for _, root := range []string{w.root, w.temporary} {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			require.NoError(t, err)

			if w.isLeftover(path) {
				require.True(t, may == newLeftovers || may == olderLeftovers && w.left[path], "left behind: %s", path)

				left[path] = true
			}

			if entry.IsDir() {
				w.requireFolder(t, path)
			} else {
				w.requireFile(t, path, may)
			}

			return nil
		}))
	}

	w.left = left
}

// isLeftover tells what the program makes for the time of its work alone. A run's record goes with all that is in it.
func (w *world) isLeftover(path string) bool {
	return !strings.HasPrefix(path, w.records()) && strings.Contains(filepath.Base(path), ".talos-mage-") ||
		strings.HasPrefix(path, filepath.Join(w.temporary, "talos-mage-configs-")) ||
		path == w.kubeconfig()+".lock"
}

func (w *world) requireFolder(t *testing.T, path string) {
	t.Helper()

	if filepath.Dir(path) == w.temporary {
		requireMode(t, path, 0o700)
	}
}

func (w *world) requireFile(t *testing.T, path string, may leftovers) {
	t.Helper()

	name := filepath.Base(path)
	inRendered := strings.HasPrefix(path, filepath.Join(w.temporary, "talos-mage-configs-"))

	// Nothing in these is secret, or their folder keeps others out.
	if name == "talconfig.yaml" || name == "talenv.yaml" || name == ".sops.yaml" ||
		strings.HasPrefix(name, "..gitignore.") || inRendered {
		return
	}

	data, err := os.ReadFile(path)
	require.NoError(t, err)

	switch {
	case strings.HasPrefix(path, w.records()):
		requireRecord(t, name, data)
	case path == filepath.Join(filepath.Dir(w.records()), ".gitignore"):
		require.Contains(t, []string{"", "*\n"}, string(data))
	case name == ".gitignore":
		w.requireIgnored(t, string(data))

		return
	case path == w.kubeconfig()+".lock":
		require.Regexp(t, `^\d*\n?$`, string(data), "what kubectl's lock leads to")

		return
	case w.isLeftover(path):
	case path == w.secrets():
		require.Regexp(t, `^sealed: [\w+/=]{1000,}\n`+regexp.QuoteMeta(sealedWith)+`\n$`, string(data))
	case path == w.Talosconfig():
		w.requireTalosconfig(t, data)
	case path == w.kubeconfig():
		w.requireKubeconfig(t, data)
	case strings.HasPrefix(path, w.kubeconfig()+".bak-"):
		require.Equal(t, otherContext, string(data))
	case path == w.report():
		requireJSONLines(t, data, may)
	case filepath.Dir(path) == w.ConfigDir():
		template, err := os.ReadFile(filepath.Join(w.templates, name))
		require.NoError(t, err)
		require.Equal(t, string(template), string(data), path)
	default:
		// A lock is everybody's: it holds the id of a process.
		require.Regexp(t, `^talos-mage-[0-9a-f]{16}\.lock$`, name, "nobody made %s", path)
		require.Regexp(t, `^\d*\n?$`, string(data), path)

		return
	}

	requireMode(t, path, 0o600)
}

func requireMode(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()

	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, mode, info.Mode().Perm(), path)
}

// requireIgnored requires that no file with secrets in it can get into a commit.
func (w *world) requireIgnored(t *testing.T, ignored string) {
	t.Helper()

	present, err := filepath.Glob(filepath.Join(w.ConfigDir(), "[^.]*"))
	require.NoError(t, err)

	for _, path := range present {
		require.Contains(t, strings.Split(ignored, "\n"), filepath.Base(path))
	}
}

// requireTalosconfig requires the file as it was rendered, or with the cluster's endpoints and nodes filled in.
func (w *world) requireTalosconfig(t *testing.T, data []byte) {
	t.Helper()

	template, err := os.ReadFile(filepath.Join(w.templates, "talosconfig"))
	require.NoError(t, err)

	want, err := config.FromBytes(template)
	require.NoError(t, err)

	got, err := config.FromBytes(data)
	require.NoError(t, err)

	for name, context := range got.Contexts {
		require.Contains(t, want.Contexts, name)

		if len(context.Endpoints) > 0 {
			want.Contexts[name].Endpoints, want.Contexts[name].Nodes = context.Endpoints, context.Nodes
		}
	}

	require.Equal(t, want.Contexts, got.Contexts)
}

// requireKubeconfig requires the file as it was, or with the cluster in it.
func (w *world) requireKubeconfig(t *testing.T, data []byte) {
	t.Helper()

	if w.shape.otherCluster && string(data) == otherContext {
		return
	}

	merged, err := clientcmd.Load(data)
	require.NoError(t, err)
	require.Contains(t, merged.Contexts, merged.CurrentContext)
	require.NotEqual(t, "other", merged.CurrentContext)
	require.NotEmpty(t, merged.AuthInfos[merged.Contexts[merged.CurrentContext].AuthInfo].ClientKeyData)

	if w.shape.otherCluster {
		require.Contains(t, merged.Contexts, "other")
	}
}

// requireRecord requires a run's documents to be whole. Of its events the last one may be a part, and so may what was
// to become a document.
func requireRecord(t *testing.T, name string, data []byte) {
	t.Helper()

	switch name {
	case "events.jsonl":
		requireJSONLines(t, data, newLeftovers)
	case "report.html":
		require.True(t, bytes.HasSuffix(bytes.TrimSpace(data), []byte("</html>")), "%s", data[max(0, len(data)-100):])
	case "junit.xml":
		require.True(t, bytes.HasSuffix(bytes.TrimSpace(data), []byte("</testsuites>")), "%s", data)
	case "summary.json":
		require.True(t, json.Valid(data), "%s", data)
	default:
		require.Regexp(t, `^\.(report\.html|junit\.xml|summary\.json)\.talos-mage-tmp$`, name)
	}
}

// requireJSONLines requires whole lines; the last one may be a part if the run did not come to its end.
func requireJSONLines(t *testing.T, data []byte, may leftovers) {
	t.Helper()

	for line := range bytes.Lines(data) {
		whole := bytes.HasSuffix(line, []byte("\n"))
		require.True(t, whole && json.Valid(line) || !whole && may != noLeftovers, "no whole line: %q", line)
	}
}

// contents are those of all files that the next run may not touch when there is nothing to do.
func (w *world) contents(t *testing.T) map[string]string {
	t.Helper()

	found := map[string]string{}

	require.NoError(t, filepath.WalkDir(w.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == w.report() || strings.HasPrefix(path, w.records()) {
			return err
		}

		data, err := os.ReadFile(path)
		found[path] = string(data)

		return err
	}))

	return found
}
