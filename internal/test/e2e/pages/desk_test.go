package pages_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/e2e/program"
	"github.com/talos-mage/talos-mage/internal/test/emulatortest"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

func TestMain(m *testing.M) {
	os.Exit(emulatortest.Run(m, 1)) //nolint:forbidigo // what tests end with
}

// What the pages have people type does what they say, in the state that it is for.
func TestTheCommandsOfThePages(t *testing.T) {
	t.Parallel()

	desk := newDesk(t)

	for _, chapter := range story {
		if chapter.begin != nil {
			chapter.begin(t, desk)
		}

		for _, line := range chapter.lines {
			passed := t.Run(chapter.state+"/"+line.typed, func(t *testing.T) { desk.types(t, line, chapter.settings...) }) //nolint:paralleltest // in order
			require.True(t, passed, "what comes after depends on it")
		}
	}
}

// desk is where an operator sits: a repository with a cluster's files and our Taskfiles, and the cluster's machines.
type desk struct {
	*labcluster.Cluster
	root, home string
	environ    []string
	// fill is what stands for the pages' placeholders.
	fill map[string]string
}

func newDesk(t *testing.T) *desk {
	t.Helper()

	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS(filepath.Join(repository, "testdata", "userrepo"))))

	for _, folder := range []string{".taskfiles", "scripts"} {
		require.NoError(t, os.CopyFS(filepath.Join(root, folder), os.DirFS(filepath.Join(repository, folder))))
	}

	cluster, err := labcluster.New(filepath.Join(root, "talos"), labcluster.Options{
		Workers: 1, TalosVersion: "v1.14.1", CNI: "flannel", LabOptions: emulator.LabOptions{TimeScale: 100},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	d := &desk{Cluster: cluster, root: root, home: t.TempDir()}
	d.environ = program.Environment(append(cluster.Environ(), "ROOT_DIR="+root, "TMPDIR="+t.TempDir(), "HOME="+d.home,
		"KUBECONFIG="+filepath.Join(root, "kubeconfig"), "PATH="+d.programs(t)+":"+os.Getenv("PATH"))...)
	d.fill = map[string]string{
		"<its name>": "lab", "<node>": "worker1", "<address>": cluster.Node("worker1").Address().String(),
		"<target>": "talos", "<finding>": "TM065", "<nodes>": "cp2,cp3", "<file>": "etcd.db", "<snapshot>": "etcd.db",
		"<machine config of a control plane>":         "talos/clusterconfig/lab-cp1.yaml",
		"192.168.1.0/24,10.0.0.10-10.0.0.99,10.0.3.7": cluster.Lab.Prefix().String(),
		"192.168.1.0/24":       cluster.Lab.Prefix().String(),
		"-talosVersion=…":      "-talosVersion=v1.12.1",
		"2026-01-04T17-40-35Z": "$run",
	}
	d.writeFiles(t)

	return d
}

// getProgram is how the pages have people make the program.
const getProgram = "(cd ../talos-mage && go build -o /usr/local/bin/ ./cmd/talos-mage)"

// programs are those that commands call, in a folder for the PATH.
func (d *desk) programs(t *testing.T) string {
	t.Helper()

	folder := t.TempDir()
	typed := strings.NewReplacer("../talos-mage", repository, "/usr/local/bin", folder).Replace(getProgram)
	making := exec.CommandContext(t.Context(), "bash", "-c", typed) //nolint:gosec // the pages'
	making.Env = program.Environment()
	output, err := making.CombinedOutput()
	require.NoError(t, err, "%s\n%s", typed, output)

	// What Kubernetes and charts make of calls, recordings of the real programs tell elsewhere.
	for _, standIn := range []string{"xdg-open", "kubectl", "helmfile", "helm"} {
		require.NoError(t, tool.WriteProgram(filepath.Join(folder, standIn), []byte("#!/bin/sh\ncat >/dev/null\n")))
	}

	for _, name := range []string{"task", "talosctl"} {
		require.NoError(t, os.Symlink(tool.Find(t, name), filepath.Join(folder, name)))
	}

	return folder
}

// placeholder is what a page leaves to the reader.
var placeholder = regexp.MustCompile(`<[a-z ]+>`)

// types types a command, and gives what it shows.
func (d *desk) types(t *testing.T, line line, settings ...string) string {
	t.Helper()

	var filling []string

	// The longer of two that begin alike comes first.
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(d.fill))) {
		filling = append(filling, name, d.fill[name])
	}

	typed := strings.NewReplacer(filling...).Replace(line.typed)
	require.False(t, placeholder.MatchString(typed), typed)

	var output bytes.Buffer

	shell := exec.CommandContext(t.Context(), "bash", "-c", line.first+typed+" "+line.more) //nolint:gosec // the pages'
	shell.Dir, shell.Env = d.root, slices.Concat(d.environ, settings)
	shell.Stdout, shell.Stderr = &output, &output

	_ = shell.Run() // its code tells
	require.Equal(t, line.code, shell.ProcessState.ExitCode(), "%s\n%s", typed, &output)

	return output.String()
}
