package commandline_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// sources are the packages whose exported functions are the program's targets. What a function is called, what its
// comment says and what it takes is said there alone; Mage reads it as this test does.
var sources = []string{"targets", "internal/dev/rehearsal"}

const header = `// Code generated from the functions in %s: go test ./internal/cli/commandline -update. DO NOT EDIT.

package main

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/cli/commandline"
%s)

// allTargets are the functions with what people type to call them.
func allTargets() []commandline.Target {
	return []commandline.Target{
%s	}
}
`

func TestTheProgramHasAllTargets(t *testing.T) {
	t.Parallel()

	root := filepath.Join("..", "..", "..")
	entries := map[string]string{}
	imports := strings.Builder{}

	for _, folder := range sources {
		fmt.Fprintf(&imports, "\t%q\n", "github.com/talos-mage/talos-mage/"+folder)

		paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		require.NoError(t, err)

		for _, path := range paths {
			if !strings.HasSuffix(path, "_test.go") {
				readTargets(t, path, entries)
			}
		}
	}

	table := strings.Builder{}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		table.WriteString(entries[name])
	}

	text, err := format.Source(fmt.Appendf(nil, header, strings.Join(sources, " and "), imports.String(), table.String()))
	require.NoError(t, err)
	golden.Assert(t, filepath.Join(root, "cmd", "talos-mage", "targets.go"), string(text))
}

// readTargets makes an entry of each exported function of a file.
func readTargets(t *testing.T, path string, entries map[string]string) {
	t.Helper()

	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	require.NoError(t, err)

	// A comment that ends a parameter's line is about that parameter.
	remarks := map[int]string{}
	for _, group := range file.Comments {
		remarks[files.Position(group.Pos()).Line] = strings.TrimSpace(group.Text())
	}

	for _, declared := range file.Decls {
		function, is := declared.(*ast.FuncDecl)
		if !is || !function.Name.IsExported() {
			continue
		}

		name, callee := lowerFirst(function.Name.Name), file.Name.Name+"."+function.Name.Name

		if function.Recv != nil {
			namespace := function.Recv.List[0].Type.(*ast.Ident).Name //nolint:forcetypeassert // a namespace is one
			name, callee = lowerFirst(namespace)+":"+name, file.Name.Name+"."+namespace+"{}."+function.Name.Name
		}

		require.NotNil(t, function.Doc, name)
		entries[name] = entry(t, name, callee, function,
			func(at token.Pos) string { return remarks[files.Position(at).Line] })
	}
}

func entry(t *testing.T, name, callee string, function *ast.FuncDecl, remark func(token.Pos) string) string {
	t.Helper()

	text := function.Doc.Text()
	summary := doc.Synopsis(text) //nolint:staticcheck // as Mage does
	paragraphs := strings.Split(strings.TrimSpace(text), "\n\n")

	for i, paragraph := range paragraphs {
		paragraphs[i] = strings.Join(strings.Fields(paragraph), " ")
	}

	more := strings.TrimSpace(strings.TrimPrefix(strings.Join(paragraphs, "\n\n"), summary))

	var arguments, flags, given string

	for _, field := range function.Type.Params.List {
		for _, parameter := range field.Names {
			switch kind := typeOf(field.Type); kind {
			case "context.Context":
				given += "ctx, "
			case "string":
				arguments += strconv.Quote(parameter.Name) + ", "
				given += fmt.Sprintf("given.Argument(%q), ", parameter.Name)
			case "*string", "*bool":
				method := map[string]string{"*string": "Text", "*bool": "Switch"}[kind]
				meaning := ""

				if text := remark(parameter.Pos()); text != "" {
					meaning = fmt.Sprintf(", Meaning: %q", text)
				}

				flags += fmt.Sprintf("{Name: %q, Kind: commandline.%s%s},\n", parameter.Name, method, meaning)
				given += fmt.Sprintf("given.%s(%q), ", method, parameter.Name)
			default:
				require.Fail(t, "a parameter that the front end does not know", "%s: %s %s", name, parameter.Name, kind)
			}
		}
	}

	made := fmt.Sprintf("{\nName: %q,\nSummary: %q,\n", name, strings.TrimPrefix(summary, function.Name.Name+" "))
	if more != "" {
		made += fmt.Sprintf("More: %q,\n", more)
	}

	if arguments != "" {
		made += "Arguments: []string{" + strings.TrimSuffix(arguments, ", ") + "},\n"
	}

	if flags != "" {
		made += "Flags: []commandline.Flag{\n" + flags + "},\n"
	}

	ctx, values := "_", "_"
	if strings.Contains(given, "ctx") {
		ctx = "ctx"
	}

	if strings.Contains(given, "given.") {
		values = "given"
	}

	return made + fmt.Sprintf("Run: func(%s context.Context, %s commandline.Values) error {\nreturn %s(%s)\n},\n},\n",
		ctx, values, callee, strings.TrimSuffix(given, ", "))
}

// typeOf is a parameter's type as it is written.
func typeOf(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.Ident:
		return of.Name
	case *ast.StarExpr:
		return "*" + typeOf(of.X)
	case *ast.SelectorExpr:
		return typeOf(of.X) + "." + of.Sel.Name
	default:
		return fmt.Sprintf("%T", of)
	}
}

func lowerFirst(name string) string { return strings.ToLower(name[:1]) + name[1:] }
