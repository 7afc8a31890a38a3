package successor_test

import (
	"cmp"
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
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/machineconfig/successor"
)

// Fields that machinery calls deprecated, though no document replaces them: they are about older releases alone.
var outdated = []string{"persist", "cluster.etcd.subnet"}

func TestEveryDeprecatedFieldHasARow(t *testing.T) {
	t.Parallel()

	for _, path := range deprecated(t) {
		if slices.Contains(outdated, path) {
			continue
		}

		require.True(t, slices.ContainsFunc(successor.All(), func(field successor.Field) bool {
			return field.Path == path || strings.HasPrefix(field.Path, path+".") || strings.HasPrefix(path, field.Path+".")
		}), path)
	}
}

func TestRowsNameFieldsThatExist(t *testing.T) {
	t.Parallel()

	seen := map[string]bool{}

	for _, field := range successor.All() {
		require.False(t, seen[field.Path], field.Path)
		seen[field.Path] = true

		require.NotEmpty(t, field.Source, field.Path)
		require.True(t, set(reflect.ValueOf(&v1alpha1.Config{}).Elem(), strings.Split(field.Path, ".")), field.Path)

		if field.Kind == "" {
			require.NotEmpty(t, field.Note, "%s: what to do without a successor", field.Path)

			continue
		}

		document := newDocument(t, field.Kind)
		_, isControlPlane := document.(container.ControlplaneOnlyConfig)
		require.Equal(t, isControlPlane, field.ControlPlane, field.Path)

		if field.Key != "" {
			require.True(t, set(reflect.ValueOf(document).Elem(), strings.Split(field.Key, ".")), "%s: %s", field.Path,
				field.Place())
		}
	}
}

func TestOutcomesAreWhatTalosSays(t *testing.T) {
	t.Parallel()

	for _, field := range successor.All() {
		kind := field.Kind

		switch {
		case kind == "":
			continue
		// What excludes these is another document, which every config with that kind has too.
		case field.Path == "cluster.network.cni.urls":
			kind = "KubeNetworkConfig"
		case strings.HasPrefix(field.Path, "cluster.apiServer."):
			kind = "KubeAPIServerConfig"
		}

		document := newDocument(t, kind)
		raw := &v1alpha1.Config{MachineConfig: &v1alpha1.MachineConfig{}, ClusterConfig: &v1alpha1.ClusterConfig{}}
		require.True(t, set(reflect.ValueOf(raw).Elem(), strings.Split(field.Path, ".")), field.Path)

		switch document := document.(type) {
		case *block.VolumeConfigV1Alpha1:
			_, volume, _ := strings.Cut(field.Path, "Encryption.")
			document.MetaName = strings.ToUpper(volume)
			document.EncryptionSpec.EncryptionProvider++
		case *network.ResolverConfigV1Alpha1:
			document.ResolverHostDNS.HostDNSEnabled = new(true)
		}

		validator, judges := document.(container.V1Alpha1ConflictValidator)
		isRefused := judges && validator.V1Alpha1ConflictValidate(raw) != nil

		require.Equal(t, isRefused, field.Outcome == successor.Refused, "%s and %s", field.Path, kind)
	}
}

func TestFindNamesFieldsWithTheirPlaces(t *testing.T) {
	t.Parallel()

	var document yaml.Node

	require.NoError(t, yaml.Unmarshal([]byte(`machine:
  certSANs: [cp1.example.net]
  registries:
    config:
      registry.example.net: {auth: {username: who}}
  kubelet:
    extraArgs: {max-pods: "200"}
cluster:
  apiServer:
    admissionControl:
      $patch: delete
  etcd: {image: none}
`), &document))

	var found []string

	for _, one := range successor.Find(document.Content[0]) {
		found = append(found, one.Name()+": "+one.Place())

		require.Equal(t, one.At.Value, one.Keys[len(one.Keys)-1])
		require.Equal(t, one.At.Value == "admissionControl", one.Deletes())
	}

	require.Equal(t, []string{
		"machine.registries.config.registry.example.net.auth: RegistryAuthConfig",
		"machine.kubelet.extraArgs: extraArgs of KubeletConfig",
		"cluster.apiServer.admissionControl: configuration of KubeAdmissionControlConfig",
	}, found)
}

func TestDocumentsWithAKindHaveNoReplacedFields(t *testing.T) {
	t.Parallel()

	var document yaml.Node

	require.NoError(t, yaml.Unmarshal([]byte("kind: Odd\nmachine: {nodeLabels: {a: b}}\n"), &document))
	require.Empty(t, successor.Find(document.Content[0]))
	require.Empty(t, successor.Find(nil))
}

func newDocument(t *testing.T, kind string) config.Document {
	t.Helper()

	provider, err := configloader.NewFromBytes([]byte("apiVersion: v1alpha1\nkind: " + kind + "\n"))
	require.NoError(t, err)

	return provider.Documents()[0].Clone()
}

// set puts something into the field at a path of keys; false if there is no such field.
func set(value reflect.Value, keys []string) bool {
	if value.Kind() == reflect.Pointer {
		if value.IsNil() {
			value.Set(reflect.New(value.Type().Elem()))
		}

		return set(value.Elem(), keys)
	}

	if len(keys) == 0 {
		something(value)

		return true
	}

	switch value.Kind() {
	case reflect.Struct:
		for i := range value.NumField() {
			field := value.Type().Field(i)
			if name, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); cmp.Or(name, strings.ToLower(field.Name)) == keys[0] {
				return set(value.Field(i), keys[1:])
			}
		}

		return false
	case reflect.Map:
		inner := reflect.New(value.Type().Elem()).Elem()
		known := set(inner, keys[1:])

		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(reflect.ValueOf(keys[0]), inner)

		return known
	default:
		return false
	}
}

// something is any value but none.
func something(value reflect.Value) {
	if unstructured, ok := value.Addr().Interface().(*meta.Unstructured); ok {
		unstructured.Object = map[string]any{"a": "b"}

		return
	}

	switch value.Kind() {
	case reflect.Bool:
		value.SetBool(true)
	case reflect.String:
		value.SetString("192.0.2.1")
	case reflect.Int, reflect.Int64:
		value.SetInt(1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		value.SetUint(1)
	case reflect.Slice:
		item := reflect.New(value.Type().Elem()).Elem()
		if item.Kind() == reflect.Pointer {
			item.Set(reflect.New(item.Type().Elem()))
		} else {
			something(item)
		}

		value.Set(reflect.Append(value, item))
	case reflect.Map:
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(reflect.ValueOf("a"), reflect.Zero(value.Type().Elem()))
	}
}

// deprecated are the paths of the fields that machinery's comments call deprecated.
func deprecated(t *testing.T) []string {
	t.Helper()

	folder, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}",
		reflect.TypeFor[v1alpha1.Config]().PkgPath()).Output()
	require.NoError(t, err)

	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(folder)),
		"v1alpha1_types.go"), nil, parser.ParseComments)
	require.NoError(t, err)

	structs := map[string]*ast.StructType{}

	ast.Inspect(parsed, func(node ast.Node) bool {
		if declared, ok := node.(*ast.TypeSpec); ok {
			if of, ok := declared.Type.(*ast.StructType); ok {
				structs[declared.Name.Name] = of
			}
		}

		return true
	})

	var paths []string

	var visit func(name, path string)

	visit = func(name, path string) {
		for _, field := range structs[name].Fields.List {
			if field.Tag == nil {
				continue
			}

			key, _, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("yaml"), ",")
			inner := strings.TrimPrefix(path+"."+key, ".")

			if field.Doc != nil && strings.Contains(field.Doc.Text(), "Deprecated:") {
				paths = append(paths, inner)
			}

			of := field.Type
			if pointer, ok := of.(*ast.StarExpr); ok {
				of = pointer.X
			}

			if named, ok := of.(*ast.Ident); ok && structs[named.Name] != nil {
				visit(named.Name, inner)
			}
		}
	}

	visit("Config", "")
	require.Greater(t, len(paths), 60)

	return paths
}
