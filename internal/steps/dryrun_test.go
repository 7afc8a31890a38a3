package steps_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// dryRuns are the recipe and every target, with the settings that let each of them change the most.
func dryRuns(l *lab) map[string]func(s *session) []steps.Step {
	return map[string]func(s *session) []steps.Step{
		"talos":           (*session).recipe,
		"preflight":       func(*session) []steps.Step { return []steps.Step{steps.Preflight{}} },
		"applySequential": func(*session) []steps.Step { return []steps.Step{steps.Apply{}} },
		"applyParallel":   func(*session) []steps.Step { return []steps.Step{steps.Apply{Parallel: true}} },
		"verify":          func(*session) []steps.Step { return []steps.Step{steps.Verify{}, steps.VerifyWorkers{}} },
		"bootstrap":       func(*session) []steps.Step { return []steps.Step{steps.Bootstrap{}} },
		"kubeconfig":      func(*session) []steps.Step { return []steps.Step{steps.Kubeconfig{}} },
		"config:secrets":  func(*session) []steps.Step { return []steps.Step{steps.Secrets{Asked: true}} },
		"config:secrets, recovered": func(*session) []steps.Step {
			return []steps.Step{steps.Secrets{Asked: true, From: l.ConfigFile("cp1")}}
		},
		"config:generate": func(*session) []steps.Step {
			return []steps.Step{steps.Secrets{}, steps.Configs{Replace: true}}
		},
	}
}

// files are the contents of everything below the lab's folder, folders included.
func (l *lab) files(t *testing.T) map[string]string {
	t.Helper()

	found := map[string]string{}

	require.NoError(t, filepath.WalkDir(l.folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			found[path] = "a folder"

			return err
		}

		data, err := os.ReadFile(path)
		found[path] = string(data)

		return err
	}))

	return found
}

// changes are the calls that changed a machine.
func (l *lab) changes() []string {
	var made []string

	for _, node := range l.Lab.Nodes() {
		for _, change := range changesOf(node) {
			made = append(made, node.Name()+" "+change)
		}
	}

	return made
}

// subjects are the machines whose state is the case's: cp1 has its config and no etcd.
func subjects(change func(*emulator.NodeOptions)) func(*labcluster.Options) {
	return func(options *labcluster.Options) {
		options.Edit = func(node *emulator.NodeOptions) {
			if node.Name != "cp1" {
				change(node)
			}
		}
	}
}

func TestADryRunReachesNothing(t *testing.T) {
	t.Parallel()

	type state struct {
		edit  func(*emulator.NodeOptions)
		spoil func(*lab, *testing.T)
	}

	each := func(change func(*emulator.Node)) func(*lab, *testing.T) {
		return func(l *lab, _ *testing.T) {
			change(l.Node("cp2"))
			change(l.Node("worker1"))
		}
	}

	without := func(path func(*lab) string) func(*lab, *testing.T) {
		return func(l *lab, t *testing.T) { require.NoError(t, os.RemoveAll(path(l))) }
	}

	all := func(spoils ...func(*lab, *testing.T)) func(*lab, *testing.T) {
		return func(l *lab, t *testing.T) {
			for _, spoil := range spoils {
				spoil(l, t)
			}
		}
	}

	differ := func(l *lab, t *testing.T) {
		l.tuned(t, "cp2")
		l.needsReboot(t, "worker1")
	}

	talosconfig := func(l *lab) string { return l.Talosconfig() }
	kubeconfig := func(l *lab) string { return filepath.Join(l.folder, "kubeconfig") }
	configs := func(l *lab) string { return l.ConfigDir() }

	for name, tt := range map[string]state{
		"in maintenance": {},
		"port refused":   {spoil: each(func(node *emulator.Node) { node.Refuse(true) })},
		"no answer":      {spoil: each(func(node *emulator.Node) { node.Silence(true) })},
		"off":            {spoil: each(func(node *emulator.Node) { node.PowerOff() })},
		"not Talos": {edit: func(node *emulator.NodeOptions) {
			node.Faults.Impostor = emulator.HTTPSImpostor
		}},
		"another machine": {edit: func(node *emulator.NodeOptions) {
			node.Links[0].MAC = "52:54:01" + strings.TrimPrefix(node.Links[0].MAC, "52:54:00")
		}},
		"with their configs":       {spoil: (*lab).installed},
		"with other configs":       {spoil: all((*lab).installed, differ)},
		"without a talosconfig":    {spoil: all((*lab).installed, without(talosconfig))},
		"with files still to make": {spoil: without(configs)},
		"up":                       {spoil: (*lab).up},
		"up, with other configs":   {spoil: all((*lab).up, differ)},
		"up, without a kubeconfig": {spoil: all((*lab).up, without(kubeconfig))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 2, 1, throughFirst, subjects(func(node *emulator.NodeOptions) {
				if tt.edit != nil {
					tt.edit(node)
				}
			}))
			l.untilMaintenance(t, "cp2", "worker1")

			if tt.spoil != nil {
				tt.spoil(l, t)
			}

			changes, files := l.changes(), l.files(t)

			for target, list := range dryRuns(l) {
				for i, generator := range []string{"native", "none"} {
					// The race detector sees each target with one generator in a state, and with the other in another.
					if detectsRaces && (len(name)+len(target)+i)%2 == 0 {
						continue
					}

					s := l.session(t, "DRY_RUN=true", "-update=true", "-reboot=true", "-force=true", "-newSecrets=true",
						"-assumeEmpty=cp2", "CONFIG_GENERATOR="+generator)
					s.do(t, list(s)...)

					require.Equal(t, changes, l.changes(), "%s\n%s", target, s.out)
					require.Equal(t, files, l.files(t), "%s\n%s", target, s.out)
				}
			}
		})
	}
}

// Files are made from secrets that exist, which a dry run reads and leaves alone.
func TestADryRunWritesNoFileThatItCouldMake(t *testing.T) {
	t.Parallel()

	for _, generator := range []string{"native", "talhelper"} {
		t.Run(generator, func(t *testing.T) {
			t.Parallel()

			w := desk(t)
			w.seal(t)
			before := w.files(t)

			for target, list := range dryRuns(w.lab) {
				s := w.session(t, "DRY_RUN=true", "CONFIG_GENERATOR="+generator)
				s.do(t, list(s)...)

				after := w.files(t)
				delete(after, w.log)
				delete(before, w.log)
				removeLocks(after)
				require.Equal(t, before, after, "%s\n%s", target, s.out)
			}
		})
	}
}

// removeLocks leaves out the cluster's lock, which a program that writes its output needs in a dry run too.
func removeLocks(files map[string]string) {
	for path := range files {
		if strings.HasSuffix(path, ".lock") {
			delete(files, path)
		}
	}
}

// changing are the calls that change a node or a file, by the package or the variable that they are called on.
var changing = map[string][]string{
	"atomicfile": {"WriteFile"},
	"os": {"WriteFile", "Create", "CreateTemp", "OpenFile", "Mkdir", "MkdirAll", "MkdirTemp", "Remove", "RemoveAll",
		"Rename", "Link", "Symlink", "Chmod", "Truncate"},
	"kube": {"Merge"},
	"conn": {"Apply", "Bootstrap"},
}

// ungated are the functions that write something else than the user's files: the lock, and the temporary folder of a
// program that gives its output in files.
var ungated = []string{"take", "cleanUp", "renderByTalhelper", "RemoveRendered"}

func TestEveryChangeGoesThroughTheGate(t *testing.T) {
	t.Parallel()

	for _, folder := range []string{".", "observe", "wait", "workspace"} {
		paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, paths)

		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}

			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			require.NoError(t, err)

			for _, declaration := range file.Decls {
				function, ok := declaration.(*ast.FuncDecl)
				if !ok {
					continue
				}

				ast.Inspect(function, func(node ast.Node) bool {
					selector, ok := node.(*ast.SelectorExpr)
					if !ok {
						return true
					}

					on, ok := selector.X.(*ast.Ident)
					if ok && !slices.Contains(ungated, function.Name.Name) {
						require.NotContains(t, changing[on.Name], selector.Sel.Name, "%s: %s calls %s.%s, past the gate", path,
							function.Name.Name, on.Name, selector.Sel.Name)
					}

					return true
				})
			}
		}
	}
}
