package equal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/machineconfig/equal"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// unread are the interfaces of machinery's that say nothing of a config: what documents are made of, and the parts that
// others are put together from.
var unread = []string{
	"Document", "ConflictingDocument", "Encoder", "RuntimeValidator", "Validator",
	"NamedDocument", "NetworkAdditionalLinkConfigs", "NetworkHardwareAddressConfig", "NetworkRuleConfigDefaultAction",
	"NetworkRuleConfigRules", "SysctlConfig", "SysfsConfig", "VolumeScrubConfigProvider", "VolumeTrimConfigProvider",
}

func TestEveryAccessorIsCompared(t *testing.T) {
	compared, err := equal.Accessors()
	require.NoError(t, err, "an accessor takes or gives what the comparison does not know")

	all := declared(t)
	for _, name := range unread {
		require.Nil(t, compared[name], "%s is compared: take it out of unread", name)
		require.NotNil(t, all[name], "machinery has no %s any more", name)
	}

	for name, methods := range all {
		asked := compared[name]
		if asked == nil && slices.Contains(unread, name) {
			continue
		}

		for _, method := range methods {
			require.Contains(t, asked, method, "%s.%s is not compared: if nothing leads to it, list it in narrower or unread",
				name, method)
		}
	}

	for method := range reflect.TypeFor[config.Config]().Methods() {
		require.Contains(t, compared["Config"], method.Name)
	}
}

// declared are the methods that give something of every interface in machinery's package of accessors, by its source.
func declared(t *testing.T) map[string][]string {
	t.Helper()

	folder, err := exec.Command(tool.Find(t, "go"), "list", "-f", "{{.Dir}}",
		"github.com/siderolabs/talos/pkg/machinery/config/config").Output()
	require.NoError(t, err)

	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(folder)), "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)

	found := map[string][]string{}

	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}

		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)

		ast.Inspect(file, func(node ast.Node) bool {
			spec, isType := node.(*ast.TypeSpec)
			if !isType || !spec.Name.IsExported() {
				return true
			}

			if of, isInterface := spec.Type.(*ast.InterfaceType); isInterface {
				for _, method := range of.Methods.List {
					if function, ok := method.Type.(*ast.FuncType); ok && function.Results != nil {
						found[spec.Name.Name] = append(found[spec.Name.Name], method.Names[0].Name)
					}
				}
			}

			return true
		})
	}

	return found
}
