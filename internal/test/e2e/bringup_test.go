package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// place is a repository that commands are typed in.
type place struct {
	root string
	// talosDir is where its cluster's files are.
	talosDir string
}

// places are this repository, with the cluster's files elsewhere, the example that has ours as a submodule, and one of
// the users', with its own files and with others.
func places(t *testing.T) map[string]place {
	t.Helper()

	user := userRepository(t)

	return map[string]place{
		"from this repository": {repository(t), filepath.Join(t.TempDir(), "talos")},
		"from the example with Taskfiles": {filepath.Join(repository(t), "examples", "taskfile"),
			filepath.Join(t.TempDir(), "talos")},
		"from a user's": {user, filepath.Join(user, "talos")},
		"from a user's, with the files elsewhere": {userRepository(t), filepath.Join(t.TempDir(), "talos")},
	}
}

func TestTheRecipeBringsAClusterUpAndThenHasNothingToDo(t *testing.T) {
	t.Parallel()

	for from, at := range places(t) {
		t.Run(from, func(t *testing.T) {
			t.Parallel()

			c := newCluster(t, at.talosDir, 3, 1)
			typed := command{
				dir: at.root, env: c.environment("TALOS_MAGE=" + launcher(t)),
				args: []string{tool.Find(t, "task"), "-x", "bootstrap:talos"},
			}

			got := run(t, typed)
			require.Equal(t, 0, got.code, got.stdout+got.stderr)
			require.Equal(t, c.eachOnce(), c.changes())
			require.Contains(t, got.stdout, "cp1")
			requireLogLines(t, got.stderr)

			info, err := os.Stat(c.kubeconfig)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

			before := c.fingerprints(t)

			got = run(t, typed)
			require.Equal(t, 0, got.code, got.stdout+got.stderr)
			require.Contains(t, got.stdout, "nothing to do")
			require.Equal(t, c.eachOnce(), c.changes())
			require.Equal(t, before, c.fingerprints(t))
		})
	}
}

// step is one command of a bring-up by hand.
type step struct {
	args []string
	code int
	says string // on stdout
}

func TestTheStepsByHand(t *testing.T) {
	t.Parallel()

	at := places(t)

	for _, from := range []string{"from this repository", "from a user's"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()

			at, task := at[from], tool.Find(t, "task")
			c := newCluster(t, at.talosDir, 3, 1)
			program := launcher(t)

			for _, do := range []step{
				{[]string{task, "-x", "infra:verify-nodes"}, 0, "worker1"},
				{[]string{program, "status"}, 0, "next: " + program + " talos"},
				{[]string{task, "-x", "bootstrap:preflight"}, 0, "cp1"},
				{[]string{"bash", "scripts/bootstrap-talos-preflight.sh"}, 0, "cp1"},
				{[]string{task, "-x", "talos:apply-node", "IP=" + c.Node("cp1").Address().String()}, 0, "cp1"},
				{[]string{"bash", "scripts/bootstrap-talos-apply.sh", c.ConfigDir(), "parallel"}, 0, "worker1"},
				{[]string{task, "-x", "bootstrap:verify"}, 0, "cp1"},
				{[]string{"bash", "scripts/bootstrap-talos-verify.sh"}, 0, "cp1"},
				{[]string{program, "bootstrap"}, 0, "cp1"},
				{[]string{program, "bootstrap"}, 0, "cp1"},
				{[]string{program, "kubeconfig"}, 0, ""},
				{[]string{program, "verify"}, 0, "worker1"},
				{[]string{task, "-x", "bootstrap:apply-sequential"}, 0, "nothing to do"},
				{[]string{task, "-x", "bootstrap:apply-parallel"}, 0, "nothing to do"},
				{[]string{"bash", "scripts/bootstrap-talos-apply.sh", c.ConfigDir()}, 0, "nothing to do"},
				{[]string{task, "-x", "talos:apply-node", "IP=" + c.Node("worker1").Address().String()}, 0, "nothing to do"},
				{[]string{task, "-x", "bootstrap:talos"}, 0, "nothing to do"},
				{[]string{task, "-x", "infra:verify-nodes"}, 0, "worker1"},
				{[]string{program, "status"}, 0, "next: nothing"},
			} {
				got := run(t, command{dir: at.root, env: c.environment("TALOS_MAGE=" + program), args: do.args})
				require.Equal(t, do.code, got.code, "%v\n%s%s", do.args, got.stdout, got.stderr)
				require.Contains(t, got.stdout, do.says, "%v", do.args)
			}

			require.Equal(t, c.eachOnce(), c.changes(), "no step did twice what was done")
		})
	}
}

func TestANodesFileNamesTheMachinesToLookAt(t *testing.T) {
	t.Parallel()

	task, root := tool.Find(t, "task"), userRepository(t)
	c := newCluster(t, filepath.Join(root, "talos"), 1, 1)

	write(t, filepath.Join(root, "nodes.yaml"), "nodes:\n  - name: first\n    address: "+c.Nodes[0].Address().String()+
		"\n  - name: missing\n    address: "+c.Lab.Address(99).String()+"\n")

	got := run(t, command{
		dir:  root,
		env:  c.environment("TALOS_MAGE="+launcher(t), "NODE_REACHABILITY_RETRIES=1"),
		args: []string{task, "-x", "infra:verify-nodes"},
	})
	require.Equal(t, 3, got.code, got.stdout+got.stderr)
	require.Contains(t, got.stdout, "first")
	require.Contains(t, got.stderr, "missing")
	require.NotContains(t, got.stdout, "worker1")
}

func TestBadFilesEndEveryWayInWithCode2(t *testing.T) {
	t.Parallel()

	task := tool.Find(t, "task")

	for name, spoil := range map[string]func(t *testing.T, talosDir string){
		"no talconfig": func(t *testing.T,
			dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "talconfig.yaml")))
		},
		"empty talconfig": func(t *testing.T, dir string) { write(t, filepath.Join(dir, "talconfig.yaml"), "") },
		"no YAML":         func(t *testing.T, dir string) { write(t, filepath.Join(dir, "talconfig.yaml"), "nodes: [\n") },
		"no nodes": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "talconfig.yaml"), "clusterName: a\nendpoint: https://192.0.2.10:6443\nnodes: []\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			root := userRepository(t)
			c := newCluster(t, filepath.Join(root, "talos"), 1, 0)
			spoil(t, c.Dir)

			before := c.fingerprints(t)

			for _, args := range [][]string{
				{task, "-x", "bootstrap:talos"},
				{task, "-x", "bootstrap:preflight"},
				{task, "-x", "bootstrap:apply-parallel"},
				{"bash", "scripts/bootstrap-talos-preflight.sh"},
				{"bash", "scripts/bootstrap-talos-apply.sh", "talos/clusterconfig"},
				{"bash", "scripts/bootstrap-talos-verify.sh"},
				{launcher(t), "status"},
			} {
				got := run(t, command{dir: root, env: c.environment("TALOS_MAGE=" + launcher(t)), args: args})
				require.Equal(t, 2, got.code, "%v\n%s%s", args, got.stdout, got.stderr)
				require.Contains(t, got.stderr, "talconfig.yaml")
				require.NotContains(t, got.stderr, "goroutine")
			}

			require.Empty(t, c.changes())
			require.Equal(t, before, c.fingerprints(t))
		})
	}
}
