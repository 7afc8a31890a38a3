package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// echo stands for talos-mage: it tells how it was called, on stdout, and exits with $CODE.
const echo = `
echo "$(basename -- "$0")" "$@"
for name in ROOT_DIR TALOS_DIR CLUSTERCONFIG_DIR TALOSCONFIG; do
  if [[ -n ${!name:-} ]]; then echo "$name=${!name}"; fi
done
exit "${CODE:-0}"
`

// onlyBash is a PATH with Bash, Task's and the scripts' few basic programs, and nothing else.
func onlyBash(t *testing.T) string {
	t.Helper()

	dir := t.TempDir()

	for _, name := range []string{"bash", "env", "basename", "dirname", "grep"} {
		path, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(dir, name)))
	}

	return dir
}

func TestTasksHandOverToTheirTargets(t *testing.T) {
	t.Parallel()

	task, root := tool.Find(t, "task"), userRepository(t)
	fake := script(t, filepath.Join(t.TempDir(), "talos-mage"), echo)
	write(t, filepath.Join(root, "talos", "talconfig.yaml"), "clusterName: \"lab\" # ours\n")
	write(t, filepath.Join(root, "kubeconfig"), "")

	for call, want := range map[string]string{
		"bootstrap:talos":                          "talos",
		"bootstrap:preflight":                      "preflight",
		"bootstrap:apply-sequential":               "applySequential",
		"bootstrap:apply-parallel":                 "applyParallel",
		"bootstrap:verify":                         "verify",
		"bootstrap:preflight -- -node=cp1 -dryRun": "preflight -node=cp1 -dryRun",
		"bootstrap:apps -- -dryRun":                "apps -dryRun",
		"talos:generate-config":                    "config:generate",
		"talos:apply-node IP=192.0.2.11":           "applyNode 192.0.2.11 -mode=auto",
		"talos:apply-node IP=2001:db8::1 MODE=try": "applyNode 2001:db8::1 -mode=try",
		"talos:upgrade-node IP=192.0.2.11":         "upgradeNode 192.0.2.11",
		"talos:upgrade-node IP=192.0.2.11 --yes":   "upgradeNode 192.0.2.11 -yes",
		"talos:upgrade-node IP=cp1 -- -dryRun":     "upgradeNode cp1 -dryRun",
		"talos:upgrade-k8s":                        "upgradeK8s",
		"infra:verify-nodes":                       "verifyNodes",
		"talos:reset":                              "reset -cluster=lab",
		"talos:reset --yes --force":                "reset -cluster=lab -systemDisk -yes",
		"talos:reset NODE=cp1 -- -disk=/dev/sdb":   "reset -node=cp1 -disk=/dev/sdb",
		"talos:reset -- -node=cp1 -yes":            "reset -node=cp1 -yes",
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()

			got := run(t, command{
				dir:  root,
				env:  []string{"TALOS_MAGE=" + fake, "PATH=" + onlyBash(t)},
				args: append([]string{task, "-x"}, strings.Fields(call)...),
			})

			require.Equal(t, outcome{0, "talos-mage " + want + "\n" +
				"ROOT_DIR=" + root + "\n" +
				"TALOS_DIR=" + root + "/talos\n" +
				"TALOSCONFIG=" + root + "/talos/clusterconfig/talosconfig\n", ""}, got)
		})
	}
}

func TestATaskKeepsTheExitCode(t *testing.T) {
	t.Parallel()

	task, root := tool.Find(t, "task"), userRepository(t)
	fake := script(t, filepath.Join(t.TempDir(), "talos-mage"), echo)

	got := run(t, command{dir: root, env: []string{"TALOS_MAGE=" + fake, "CODE=5"},
		args: []string{task, "-x", "bootstrap:verify"}})
	require.Equal(t, 5, got.code)
}

func TestTheCallersTalosDirReachesTheProgram(t *testing.T) {
	t.Parallel()

	task, elsewhere := tool.Find(t, "task"), t.TempDir()
	fake := script(t, filepath.Join(t.TempDir(), "talos-mage"), echo)

	for name, root := range map[string]string{"from this repository": repository(t),
		"from another one": userRepository(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := run(t, command{
				dir:  root,
				env:  []string{"TALOS_MAGE=" + fake, "TALOS_DIR=" + elsewhere},
				args: []string{task, "bootstrap:preflight"},
			})
			require.Contains(t, got.stdout, "\nTALOS_DIR="+elsewhere+"\n")
		})
	}
}

func TestApplyNodeAsksForAnAddress(t *testing.T) {
	t.Parallel()

	task, root := tool.Find(t, "task"), userRepository(t)
	fake := script(t, filepath.Join(t.TempDir(), "talos-mage"), echo)

	for name, tt := range map[string]struct {
		args    []string
		message string
	}{
		"none":      {nil, "missing required variables: IP"},
		"empty one": {[]string{"IP="}, "IP is empty: task talos:apply-node IP=192.0.2.11"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := run(t, command{
				dir:  root,
				env:  []string{"TALOS_MAGE=" + fake},
				args: append([]string{task, "talos:apply-node"}, tt.args...),
			})
			require.NotZero(t, got.code)
			require.Empty(t, got.stdout)
			require.Contains(t, got.stderr, tt.message)
		})
	}
}

func TestScriptsHandOverWithTheirOldArguments(t *testing.T) {
	t.Parallel()

	root := userRepository(t)
	configs := filepath.Join(root, "talos", "clusterconfig")
	require.NoError(t, os.MkdirAll(configs, 0o700))

	fake := script(t, filepath.Join(t.TempDir(), "talos-mage"), echo)

	for call, want := range map[string]string{
		"bootstrap-talos-preflight.sh":                            "preflight\n",
		"bootstrap-talos-preflight.sh -node=cp1":                  "preflight -node=cp1\n",
		"bootstrap-talos-verify.sh":                               "verify\n",
		"bootstrap-talos-apply.sh":                                "applySequential\nCLUSTERCONFIG_DIR=" + root + "\n",
		"bootstrap-talos-apply.sh talos/clusterconfig":            "applySequential\nCLUSTERCONFIG_DIR=" + configs + "\n",
		"bootstrap-talos-apply.sh talos/clusterconfig sequential": "applySequential\nCLUSTERCONFIG_DIR=" + configs + "\n",
		"bootstrap-talos-apply.sh talos/clusterconfig parallel":   "applyParallel\nCLUSTERCONFIG_DIR=" + configs + "\n",
		"bootstrap-talos-apply.sh " + configs + " parallel -node=a": "applyParallel -node=a\nCLUSTERCONFIG_DIR=" + configs +
			"\n",
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()

			args := strings.Fields(call)
			args[0] = filepath.Join("scripts", args[0])

			got := run(t, command{
				dir:  root,
				env:  []string{"TALOS_MAGE=" + fake, "PATH=" + onlyBash(t), "CODE=4"},
				args: append([]string{"bash"}, args...),
			})
			require.Equal(t, outcome{4, "talos-mage " + want, ""}, got)
		})
	}
}

// Somebody puts a talos-mage on the PATH that calls the script which looks for talos-mage.
func TestAWrapperOfTheScriptDoesNotFindItself(t *testing.T) {
	t.Parallel()

	root := userRepository(t)

	for name, form := range map[string]string{"becomes the script": "exec ", "calls the script": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			wrapper := script(t, filepath.Join(t.TempDir(), "talos-mage"),
				form+root+`/scripts/lib/talos-mage.sh "$@"`+"\n")

			got := run(t, command{
				dir:  root,
				env:  []string{"PATH=" + filepath.Dir(wrapper) + ":" + onlyBash(t)},
				args: []string{wrapper, "preflight"},
			})
			require.Equal(t, 2, got.code)
			require.Contains(t, got.stderr, "talos-mage: not found: git clone ")
		})
	}
}

func TestTheApplyScriptRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()

	root := userRepository(t)
	fake := script(t, filepath.Join(t.TempDir(), "talos-mage"), echo)

	for name, tt := range map[string]struct {
		args    []string
		message string
	}{
		"a mode that is none": {[]string{".", "both"}, `the mode is sequential or parallel, not "both"`},
		"a missing directory": {[]string{"nowhere"}, "nowhere is not a directory: config:generate makes it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := run(t, command{
				dir:  root,
				env:  []string{"TALOS_MAGE=" + fake},
				args: append([]string{"bash", "scripts/bootstrap-talos-apply.sh"}, tt.args...),
			})
			require.Equal(t, outcome{2, "", "bootstrap-talos-apply.sh: " + tt.message + "\n"}, got)
		})
	}
}

// entries are the ways in: a task and a script, which find the program alike.
func entries(t *testing.T) map[string][]string {
	t.Helper()

	return map[string][]string{
		"task":   {tool.Find(t, "task"), "-x", "bootstrap:preflight"},
		"script": {"bash", "scripts/bootstrap-talos-preflight.sh"},
	}
}

func TestTheProgramIsFoundInOrder(t *testing.T) {
	t.Parallel()

	root, home := userRepository(t), t.TempDir()
	named := script(t, filepath.Join(home, "named", "mine"), echo)
	onPath := filepath.Dir(script(t, filepath.Join(home, "path", "talos-mage"), echo)) + ":" + onlyBash(t)

	for entry, args := range entries(t) {
		for name, tt := range map[string]struct {
			env        []string
			code       int
			out, error string
		}{
			"TALOS_MAGE first": {[]string{"TALOS_MAGE=" + named, "PATH=" + onPath}, 0, "mine preflight", ""},
			"then the PATH":    {[]string{"PATH=" + onPath}, 0, "talos-mage preflight", ""},
			"none":             {[]string{"PATH=" + onlyBash(t)}, 2, "", "not found: git clone https://"},
			"TALOS_MAGE is no such": {[]string{"TALOS_MAGE=/nowhere", "PATH=" + onPath}, 2, "",
				"TALOS_MAGE=/nowhere is not a program"},
		} {
			t.Run(entry+": "+name, func(t *testing.T) {
				t.Parallel()

				got := run(t, command{dir: root, env: tt.env, args: args})
				require.Equal(t, tt.code, got.code)
				require.Contains(t, got.stdout, tt.out)
				require.Contains(t, got.stderr, tt.error)
			})
		}
	}
}

func TestAFileCopiedAloneSaysHowToGetTheProgram(t *testing.T) {
	t.Parallel()

	for entry, args := range entries(t) {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()

			root := userRepository(t)
			require.NoError(t, os.RemoveAll(filepath.Join(root, "scripts", "lib")))

			got := run(t, command{dir: root, env: []string{"PATH=" + onlyBash(t)}, args: args})
			require.Equal(t, 2, got.code)
			require.Contains(t, got.stderr, "talos-mage was not found: put it on the PATH, or set TALOS_MAGE to where it is")
		})
	}
}

// smallModule is a module that passes for ours, with a program that only answers, so that compiling it takes a second.
func smallModule(t *testing.T) string {
	t.Helper()

	root := userRepository(t)

	write(t, filepath.Join(root, "go.mod"), "module github.com/talos-mage/talos-mage\n\n"+goVersion(t)+"\n")
	write(t, filepath.Join(root, "go.sum"), "")
	write(t, filepath.Join(root, "targets", "targets.go"), "package targets\n")
	write(t, filepath.Join(root, "internal", "answer", "answer.go"), "package answer\n\nconst Text = \"first\"\n")
	write(t, filepath.Join(root, "cmd", "talos-mage", "main.go"), `package main

import (
	"fmt"

	"github.com/talos-mage/talos-mage/internal/answer"
)

func main() { fmt.Println(answer.Text) }
`)

	return root
}

// goVersion is the line of this repository's go.mod that says which Go it needs.
func goVersion(t *testing.T) string {
	t.Helper()

	mod, err := os.ReadFile(filepath.Join(repository(t), "go.mod"))
	require.NoError(t, err)

	return regexp.MustCompile(`(?m)^go .*$`).FindString(string(mod))
}

func TestInItsOwnModuleTheProgramIsCompiledWhenItsSourcesChange(t *testing.T) {
	t.Parallel()

	root := smallModule(t)
	answer := filepath.Join(root, "internal", "answer", "answer.go")
	entry := command{dir: root, args: []string{"bash", "scripts/bootstrap-talos-preflight.sh"}}

	got := run(t, entry)
	require.Equal(t, "first\n", got.stdout)
	require.Contains(t, got.stderr, "compiling it from "+root)

	require.Equal(t, outcome{0, "first\n", ""}, run(t, entry), "nothing changed, so nothing is compiled")

	write(t, answer, "package answer\n\nconst Text = \"second\"\n")

	got = run(t, entry)
	require.Equal(t, "second\n", got.stdout)
	require.Contains(t, got.stderr, "compiling it from "+root)

	write(t, answer, "package answer\n\nconst Text =\n")

	got = run(t, entry)
	require.Equal(t, 2, got.code)
	require.Contains(t, got.stderr, "compiling it failed: see above")

	left, err := filepath.Glob(filepath.Join(root, "bin", "_compile*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestInItsOwnModuleTheProgramCompilesInSeveralRunsAtOnce(t *testing.T) {
	t.Parallel()

	root := smallModule(t)

	outcomes := make([]outcome, 3)

	var group sync.WaitGroup

	for i := range outcomes {
		group.Go(func() {
			outcomes[i] = run(t, command{dir: root, args: []string{"bash", "scripts/bootstrap-talos-preflight.sh"}})
		})
	}

	group.Wait()

	for _, got := range outcomes {
		require.Equal(t, 0, got.code, got.stderr)
		require.Equal(t, "first\n", got.stdout)
	}
}

func TestAnIncludedTaskfileCompilesTheModuleItLiesIn(t *testing.T) {
	t.Parallel()

	task, module, user := tool.Find(t, "task"), smallModule(t), t.TempDir()
	write(t, filepath.Join(user, "Taskfile.yaml"),
		"version: \"3\"\nincludes:\n  bootstrap: "+module+"/.taskfiles/bootstrap\n")

	got := run(t, command{dir: user, args: []string{task, "bootstrap:preflight"}})
	require.Equal(t, 0, got.code, got.stderr)
	require.Equal(t, "first\n", got.stdout)
}
