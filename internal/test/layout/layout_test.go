package layout_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/talos-mage/talos-mage/"
	mage   = "github.com/magefile/mage/"
)

// leaves know nothing of this repository but each other, so every package may import them.
var leaves = []string{
	"internal/base",
	"internal/cluster/schematic",
	"internal/cluster/throwaway",
	"internal/diagnosis",
	"internal/fanout",
	"internal/talos/talosconfig",
}

// mayImport says which of this repository's folders the code of a folder may import besides leaves and itself. The
// longest name that a package's path begins with is its folder. Tests may import what they like.
var mayImport = map[string][]string{
	"cmd":       {"internal/cli", "internal/dev/rehearsal", "targets"},
	"magefiles": {"internal/dev/devtargets", "internal/dev/rehearsal", "targets"},
	"recipe":    {"internal/cli", "internal/cli/settings", "internal/cluster", "internal/report", "internal/steps"},
	"targets":   {"internal/cli", "internal/cli/settings", "internal/steps"},
	"internal/cli": {
		"internal/check",
		"internal/check/output",
		"internal/check/proxmox",
		"internal/check/table",
		"internal/cli/settings",
		"internal/cluster",
		"internal/discover/leases",
		"internal/report",
		"internal/steps",
	},
	"internal/steps": {
		"internal/check", "internal/check/nodes", "internal/check/proxmox", "internal/check/table",
		"internal/cli/settings", "internal/cluster", "internal/cluster/sops", "internal/discover",
		"internal/discover/leases", "internal/discover/match", "internal/kube", "internal/machineconfig",
		"internal/machineconfig/generate", "internal/machineconfig/migrate", "internal/report", "internal/talos",
	},
	"internal/check": {"internal/check/proxmox", "internal/cluster", "internal/machineconfig", "internal/talos"},
	"internal/check/files": {
		"internal/check", "internal/check/proxmox", "internal/cluster", "internal/machineconfig", "internal/talos",
	},
	"internal/check/nodes": {
		"internal/check", "internal/check/files", "internal/cluster", "internal/machineconfig", "internal/talos",
	},
	"internal/check/output":    {"internal/check", "internal/check/table"},
	"internal/check/proxmox":   {},
	"internal/check/table":     {"internal/check", "internal/check/files", "internal/check/nodes"},
	"internal/cli/settings":    {},
	"internal/cluster":         {"internal/machineconfig"},
	"internal/cluster/sops":    {"internal/report"},
	"internal/discover":        {"internal/talos"},
	"internal/discover/leases": {"internal/cluster"},
	"internal/discover/match": {
		"internal/check/nodes", "internal/check/proxmox", "internal/cluster", "internal/discover",
		"internal/machineconfig", "internal/talos",
	},
	"internal/kube":                   {},
	"internal/machineconfig":          {},
	"internal/machineconfig/generate": {"internal/cluster", "internal/machineconfig"},
	"internal/machineconfig/migrate": {
		"internal/cluster", "internal/machineconfig", "internal/machineconfig/generate",
	},
	"internal/report": {},
	"internal/talos":  {},

	// Apart from what ships.
	"internal/dev/bench": {"internal/cluster", "internal/dev/emulator", "internal/report", "internal/talos"},
	"internal/dev/chaos": {
		"internal/cli", "internal/cli/settings", "internal/cluster", "internal/dev/clusterfiles", "internal/dev/emulator",
		"internal/dev/thrift", "internal/kube", "internal/steps",
	},
	"internal/dev/clusterfiles": {"internal/cluster", "internal/machineconfig", "internal/machineconfig/generate"},
	"internal/dev/devtargets": {
		"internal/dev/bench", "internal/dev/chaos", "internal/dev/dist", "internal/dev/emulator",
	},
	"internal/dev/dist":      {},
	"internal/dev/rehearsal": {"internal/cli", "internal/cli/settings", "internal/dev/emulator", "internal/steps"},
	"internal/dev/thrift":    {},
	// Its machines know nothing of the API that is served for them, and nobody else sees either.
	"internal/dev/emulator": {
		"internal/cluster", "internal/dev/clusterfiles", "internal/dev/emulator/api", "internal/dev/emulator/machine",
		"internal/machineconfig", "internal/machineconfig/generate",
	},
	"internal/dev/emulator/api":     {"internal/dev/emulator", "internal/dev/emulator/machine"},
	"internal/dev/emulator/machine": {"internal/dev/emulator"},
	"internal/test":                 {"internal/cli/settings", "internal/dev/thrift"},
	"internal/test/documents":       {"internal/dev/clusterfiles"},
}

// knowMage are the packages that may import Mage.
var knowMage = []string{"targets", "internal/dev/devtargets", "internal/dev/rehearsal"}

func TestImportsGoOneWay(t *testing.T) {
	t.Parallel()

	used := map[string][]string{}

	for file, imports := range importsOf(t, filepath.Join("..", "..", "..")) {
		owner := ownerOf(path.Dir(file))
		require.True(t, owner != "" || isLeaf(path.Dir(file)), "%s: no rule says what it may import", file)

		for _, imported := range imports {
			if strings.HasPrefix(imported, mage) {
				require.Contains(t, knowMage, path.Dir(file), "%s imports %s", file, imported)
			}

			ours, ok := strings.CutPrefix(imported, module)
			if !ok || isLeaf(ours) {
				continue
			}

			target := ownerOf(ours)
			if target == owner {
				continue
			}

			require.Contains(
				t,
				mayImport[owner],
				target,
				"%s imports %s: %s may not",
				file,
				ours,
				cmp.Or(owner, path.Dir(file)),
			)

			used[owner] = append(used[owner], target)
		}
	}

	for owner, permitted := range mayImport {
		for _, target := range permitted {
			require.Contains(t, used[owner], target, "%s imports nothing of %s: the permission can go", owner, target)
		}
	}
}

func isLeaf(pkg string) bool {
	return slices.ContainsFunc(leaves, func(leaf string) bool { return isBelow(pkg, leaf) })
}

func isBelow(pkg, folder string) bool { return pkg == folder || strings.HasPrefix(pkg, folder+"/") }

// ownerOf is the folder whose rule holds for a package; empty for a leaf.
func ownerOf(pkg string) string {
	owner := ""

	if isLeaf(pkg) {
		return owner
	}

	for folder := range mayImport {
		if isBelow(pkg, folder) && len(folder) > len(owner) {
			owner = folder
		}
	}

	return owner
}

// The page that tells newcomers where to look names only what is there.
func TestTheArchitecturePageNamesWhatIsThere(t *testing.T) {
	t.Parallel()

	root := filepath.Join("..", "..", "..")

	page, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	require.NoError(t, err)

	_, places, found := strings.Cut(string(page), "## Where do I change")
	require.True(t, found)

	places, _, _ = strings.Cut(places, "\n## ")
	named := regexp.MustCompile("`([a-z/]+(?:/|\\.go))`").FindAllStringSubmatch(places, -1)
	require.NotEmpty(t, named)

	for _, path := range named {
		below := filepath.Join(root, "internal", path[1])
		if path[1] == "targets/" || path[1] == "recipe/" {
			below = filepath.Join(root, path[1])
		}

		_, err := os.Stat(below)
		require.NoError(t, err, path[1])
	}
}

// At most fourteen folders, each with one idea, so that a newcomer finds the right one.
func TestInternalHasFewFolders(t *testing.T) {
	t.Parallel()

	folders, err := os.ReadDir(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.LessOrEqual(t, len(folders), 14)
}

// A problem is made by the catalogue's own constructors, so that none lacks what people are told of it.
func TestProblemsHaveOneConstructor(t *testing.T) {
	t.Parallel()

	root := filepath.Join("..", "..", "..")
	for file := range importsOf(t, root) {
		if path.Dir(file) == "internal/diagnosis" {
			continue
		}

		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
		require.NoError(t, err)

		ast.Inspect(parsed, func(node ast.Node) bool {
			literal, isLiteral := node.(*ast.CompositeLit)
			if !isLiteral {
				return true
			}

			of, _ := literal.Type.(*ast.SelectorExpr)
			require.False(t, of != nil && of.Sel.Name == "Problem",
				"%s makes a Problem by hand: diagnosis.NewProblem, or the Finding's Problem, is the way", file)

			return true
		})
	}
}

// importsOf gives the imports of every Go file of this module that is no test, by the file's path from root.
func importsOf(t *testing.T, root string) map[string][]string {
	t.Helper()

	found := make(map[string][]string)

	for _, dir := range []string{"cmd", "internal", "magefiles", "recipe", "targets"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}

			if entry.IsDir() && entry.Name() == "testdata" {
				return filepath.SkipDir
			}

			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
				entry.Name() == "mage_output_file.go" {
				return nil
			}

			parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}

			relative, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}

			imports := []string{}

			for _, spec := range parsed.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return err
				}

				imports = append(imports, imported)
			}

			found[filepath.ToSlash(relative)] = imports

			return nil
		})
		require.NoError(t, err)
	}

	require.NotEmpty(t, found)

	return found
}
