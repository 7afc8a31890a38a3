package layout_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
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
	"internal/atomicfile", "internal/clock", "internal/diagnosis", "internal/fanout", "internal/held", "internal/nearest", "internal/program",
	"internal/schematic", "internal/syncbuffer", "internal/talosconfig",
}

// mayImport says which of this repository's packages a package's code may import besides leaves; folders below one count as it.
// Tests may import what they like. A new package gets its line here and in docs/architecture.md.
var mayImport = map[string][]string{
	"magefiles":           {"internal/devtargets", "targets"},
	"targets":             {"internal/invocation", "internal/settings", "internal/steps", "internal/report"},
	"internal/devtargets": {"internal/invocation", "internal/settings", "internal/steps", "internal/report", "internal/emulator", "internal/machineconfig", "internal/inventory", "internal/chaos"},
	"internal/invocation": {
		"internal/audit", "internal/inventory", "internal/preflight", "internal/profile", "internal/proxmox", "internal/report", "internal/settings",
		"internal/steps",
		"internal/talconfig",
	},
	"internal/steps": {
		"internal/audit", "internal/generate", "internal/inventory", "internal/kubeapi", "internal/machineconfig", "internal/preflight",
		"internal/report", "internal/retry", "internal/secrets", "internal/settings", "internal/sops", "internal/talconfig", "internal/talosapi",
		"internal/yamlfile",
	},
	"internal/audit": {
		"internal/inventory", "internal/machineconfig", "internal/preflight", "internal/proxmox", "internal/secrets", "internal/talconfig", "internal/talosapi",
	},
	"internal/proxmox":       {"internal/tofu"},
	"internal/tofu":          {},
	"internal/generate":      {"internal/machineconfig", "internal/profile", "internal/talconfig", "internal/yamlfile"},
	"internal/profile":       {"internal/machineconfig", "internal/yamlfile"},
	"internal/preflight":     {"internal/inventory", "internal/machineconfig", "internal/talosapi"},
	"internal/talosapi":      {"internal/retry"},
	"internal/inventory":     {"internal/machineconfig", "internal/profile", "internal/secrets", "internal/talconfig", "internal/yamlfile"},
	"internal/secrets":       {"internal/machineconfig", "internal/talconfig", "internal/yamlfile"},
	"internal/sops":          {"internal/report"},
	"internal/talconfig":     {"internal/yamlfile"},
	"internal/yamlfile":      {"internal/machineconfig"},
	"internal/machineconfig": {},
	"internal/kubeapi":       {},
	"internal/report":        {},
	"internal/retry":         {},
	"internal/settings":      {},
	"internal/emulator":      {"internal/machineconfig", "internal/inventory"},
	"internal/chaos":         {"internal/emulator", "internal/invocation", "internal/machineconfig", "internal/steps"},

	// Of tests alone.
	"internal/e2e":      {"internal/settings"},
	"internal/fuzztest": {},
	"internal/golden":   {},
	"internal/labtest":  {},
	"internal/leaks":    {},
	"internal/layout":   {},
}

// knowMage are the packages that may import Mage.
var knowMage = []string{"targets", "internal/devtargets"}

func TestImportsGoOneWay(t *testing.T) {
	t.Parallel()

	root := filepath.Join("..", "..")

	for file, imports := range importsOf(t, root) {
		pkg := path.Dir(file)
		owner := ownerOf(pkg)

		if !slices.Contains(leaves, owner) {
			require.Contains(t, mayImport, owner, "%s: no rule says what %s may import", file, pkg)
		}

		for _, imported := range imports {
			if ours, ok := strings.CutPrefix(imported, module); ok {
				target := ownerOf(ours)
				allowed := target == owner || slices.Contains(leaves, target) || slices.Contains(mayImport[owner], target)
				require.True(t, allowed, "%s imports %s: %s may not", file, ours, owner)
			}

			if strings.HasPrefix(imported, mage) {
				require.Contains(t, knowMage, owner, "%s imports %s: only %s know Mage", file, imported, strings.Join(knowMage, " and "))
			}
		}
	}
}

// importsOf gives the imports of every Go file of this module that is no test, by the file's path from root.
func importsOf(t *testing.T, root string) map[string][]string {
	t.Helper()

	found := make(map[string][]string)

	for _, dir := range []string{"internal", "magefiles", "targets"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}

			if entry.IsDir() && entry.Name() == "testdata" {
				return filepath.SkipDir
			}

			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || entry.Name() == "mage_output_file.go" {
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

// ownerOf is the package that a rule is written for: internal/emulator for internal/emulator/kubernetes.
func ownerOf(pkg string) string {
	parts := strings.Split(pkg, "/")
	if parts[0] == "internal" && len(parts) > 2 {
		parts = parts[:2]
	}

	return strings.Join(parts, "/")
}
