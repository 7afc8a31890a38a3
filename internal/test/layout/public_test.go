package layout_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What Go programs import speaks of its own types and those of the standard library: whoever relies on it relies on
// nothing that may change in any version.
func TestThePublicPackageNamesNoTypeOfAnother(t *testing.T) {
	t.Parallel()

	root, files := filepath.Join("..", "..", ".."), token.NewFileSet()

	for name := range importsOf(t, root) {
		if path.Dir(name) != "recipe" {
			continue
		}

		file, err := parser.ParseFile(files, filepath.Join(root, name), nil, 0)
		require.NoError(t, err)

		foreign := map[string]bool{}

		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)

			foreign[path.Base(imported)] = strings.Contains(imported, ".")
		}

		for _, exported := range exportedTypes(file) {
			ast.Inspect(exported, func(node ast.Node) bool {
				selected, ok := node.(*ast.SelectorExpr)
				if !ok {
					return true
				}

				name, _ := selected.X.(*ast.Ident)
				require.False(t, name != nil && foreign[name.Name], "%s: importers would see %s.%s",
					files.Position(node.Pos()), name, selected.Sel)

				return true
			})
		}
	}
}

// exportedTypes are the parts of a file's declarations that importers see.
func exportedTypes(file *ast.File) []ast.Node {
	var seen []ast.Node

	ast.FileExports(file)

	for _, declared := range file.Decls {
		switch declared := declared.(type) {
		case *ast.FuncDecl:
			if declared.Recv == nil || ast.IsExported(receiver(declared)) {
				seen = append(seen, declared.Type)
			}
		case *ast.GenDecl:
			if declared.Tok != token.IMPORT {
				seen = append(seen, declared)
			}
		}
	}

	return seen
}

// receiver is the name of the type that a method is of.
func receiver(method *ast.FuncDecl) string {
	of := method.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}

	name, _ := of.(*ast.Ident)

	return name.Name
}
