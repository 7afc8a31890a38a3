package scenario_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/scenario"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

const pageStart = `# Scenarios of the emulator

` + "`go tool mage emulator:up -scenario=lab.yaml`" + ` plays the lab that a file describes: a cluster, its nodes, their faults, and what happens when.
[scenario.yaml](../examples/scenario.yaml) is an example. A mistake in the file is reported with line, field and
reason. All times are the nodes' times, which pass ` + "`scale`" + ` times as fast as the wall clock's.

The cluster's files declare the nodes, and ` + "`mage talos`" + ` reads the same files. Control planes are called cp1, cp2 and so on, workers worker1 and
so on.
`

// sections are the structs of a scenario, in the page's order.
var sections = []struct {
	title, folder string
	of            reflect.Type
}{
	{"The file", ".", reflect.TypeFor[scenario.Scenario]()},
	{"`cluster`", ".", reflect.TypeFor[scenario.Cluster]()},
	{"`nodes.<name>`", ".", reflect.TypeFor[scenario.Node]()},
	{"`nodes.<name>.links[]`", "../machine", reflect.TypeFor[emulator.Link]()},
	{"`nodes.<name>.disks[]`", "../machine", reflect.TypeFor[emulator.Disk]()},
	{"`nodes.<name>.disks[].volumes[]`", "../machine", reflect.TypeFor[emulator.Volume]()},
	{"`nodes.<name>.extensions[]`", "../machine", reflect.TypeFor[emulator.Extension]()},
	{"`workloads[]`", "../kubernetes", reflect.TypeFor[kubernetes.Workload]()},
	{"`configMaps[]`", "../kubernetes", reflect.TypeFor[kubernetes.ConfigMap]()},
	{"`timing`", "../machine", reflect.TypeFor[emulator.Timing]()},
	{"`faults`", "../faults", reflect.TypeFor[emulator.Faults]()},
	{"`faults.says[]`", "../faults", reflect.TypeFor[emulator.Saying]()},
	{"`faults.diagnostics[]`", "../faults", reflect.TypeFor[emulator.Diagnostic]()},
	{"`faults.failedVolumes[]`", "../faults", reflect.TypeFor[emulator.FailedVolume]()},
	{"`faults.calls[]`", "../faults", reflect.TypeFor[emulator.CallFault]()},
	{"`events[]`", ".", reflect.TypeFor[scenario.Event]()},
}

func TestThePageListsEveryField(t *testing.T) {
	t.Parallel()

	var page strings.Builder

	page.WriteString(pageStart)

	for _, section := range sections {
		fmt.Fprintf(&page, "\n## %s\n\n| field | takes | meaning |\n|---|---|---|\n", section.title)

		comments := commentsOf(t, section.folder, section.of.Name())
		for i, name := range scenario.Fields(section.of) {
			field := section.of.Field(i)
			fmt.Fprintf(&page, "| `%s` | %s | %s |\n", name, taken(field.Type), meaning(field.Name, comments[field.Name]))
		}
	}

	golden.Assert(t, filepath.Join("..", "..", "..", "..", "docs", "emulator.md"), page.String())
}

// meaning is a field's comment as a table says it: without the field's name, with which comments of Go begin.
func meaning(field, comment string) string {
	text, named := strings.CutPrefix(comment, field+" ")
	if !named {
		return comment
	}

	for _, verb := range []string{"is ", "are ", "reports "} {
		text = strings.TrimPrefix(text, verb)
	}

	return strings.ToUpper(text[:1]) + text[1:]
}

// taken says what a field holds.
func taken(of reflect.Type) string {
	if words := scenario.Words(of); words != nil {
		return strings.Join(words, ", ")
	}

	switch of.String() {
	case "time.Duration":
		return "duration"
	case "netip.Addr":
		return "last part of an address"
	}

	switch of.Kind() { //nolint:exhaustive // the structs hold no others
	case reflect.Slice:
		return "list"
	case reflect.Map, reflect.Struct:
		return "fields"
	case reflect.Bool:
		return "true, false"
	case reflect.String:
		return "text"
	default:
		return "number"
	}
}

// commentsOf are the comments on a struct's fields in the sources of a folder, on one line each.
func commentsOf(t *testing.T, folder, name string) map[string]string {
	t.Helper()

	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)

	found := map[string]string{}

	for _, path := range files {
		source, err := os.ReadFile(path)
		require.NoError(t, err)

		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ParseComments)
		require.NoError(t, err)

		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}

			for _, field := range spec.Type.(*ast.StructType).Fields.List {
				text := strings.Join(strings.Fields(field.Doc.Text()+field.Comment.Text()), " ")
				for _, ident := range field.Names {
					found[ident.Name] = text
				}
			}

			return false
		})
	}

	require.NotEmpty(t, found, "no source of %s", name)

	return found
}

func TestEveryValueOfAChoiceHasAWord(t *testing.T) {
	t.Parallel()

	values := map[string]int{}

	for _, file := range []string{"faults/faults.go", "machine/options.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", filepath.FromSlash(file)), nil, 0)
		require.NoError(t, err)

		ast.Inspect(parsed, func(node ast.Node) bool {
			list, isList := node.(*ast.GenDecl)
			if !isList || list.Tok != token.CONST || !list.Lparen.IsValid() {
				return true
			}

			if first, ok := list.Specs[0].(*ast.ValueSpec); ok && first.Type != nil {
				values[first.Type.(*ast.Ident).Name] = len(list.Specs)
			}

			return true
		})
	}

	for _, choice := range []reflect.Type{
		reflect.TypeFor[emulator.Impostor](), reflect.TypeFor[emulator.InstallFault](), reflect.TypeFor[emulator.Loss](),
		reflect.TypeFor[emulator.BootstrapFault](), reflect.TypeFor[emulator.ResetFault](),
		reflect.TypeFor[emulator.When](), reflect.TypeFor[emulator.Mishap](), reflect.TypeFor[emulator.EtcdData](),
	} {
		require.Len(t, scenario.Words(choice), values[choice.Name()], choice.Name())
		delete(values, choice.Name())
	}

	require.Empty(t, values, "kinds of choices that scenarios do not know")
}
