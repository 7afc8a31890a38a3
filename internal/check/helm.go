package check

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// HelmValues are the values that a chart is installed with.
type HelmValues struct {
	file *File
	Root *yaml.Node
	// partly is set when a ConfigMap or Secret adds values that can't be seen: what is not set here may be set there.
	partly bool
}

// HelmValue is one value: set, absent, or unknown, when a template makes it.
type HelmValue struct {
	Text    string
	Set     bool
	Unknown bool
	Node    *yaml.Node
}

// cilium are Cilium's Helm values, or why there are none.
type cilium struct {
	values *HelmValues
	why    string
}

// Cilium are Cilium's Helm values, or why there are none to look at.
func (in *Input) Cilium() (*HelmValues, string) {
	found := Once(in, readCilium)

	return found.values, found.why
}

// readCilium finds Cilium's Helm values, or says why there are none to look at.
func readCilium(in *Input) cilium {
	values, why := in.findCilium()

	return cilium{values, why}
}

func (in *Input) findCilium() (*HelmValues, string) {
	path := in.Options.CiliumValues
	if path != "" {
		file := in.Open(path)
		if file == nil {
			return nil, "CILIUM_VALUES names " + in.Shown(path) + ", which can't be read"
		}

		if line, _, message := file.Places.SyntaxError(); message != "" {
			found := file.Location(line, 0)

			return nil, found.String() + " is not valid YAML"
		}

		return in.ciliumOf(file, true)
	}

	why := "no Helm values of Cilium were found: set CILIUM_VALUES"

	for _, path := range in.ciliumFiles() {
		file := in.Open(path)
		if file == nil {
			continue
		}

		values, reason := in.ciliumOf(file, false)
		if values != nil {
			return values, ""
		}

		if reason != "" {
			why = reason
		}
	}

	return nil, why
}

// searchDepth is how many folders deep a HelmRelease is looked for below the repository's root.
const searchDepth = 8

// ciliumFiles are the YAML files of the repository whose path names Cilium, in order.
func (in *Input) ciliumFiles() []string {
	root := in.Options.Root
	if root == "" {
		return nil
	}

	var paths []string

	// A folder that can't be read holds nothing for us.
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		relative, _ := filepath.Rel(root, path) // path lies below root

		switch {
		case err != nil && entry != nil && entry.IsDir():
			return fs.SkipDir
		case err != nil:
			return nil //nolint:nilerr // the walk goes on
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules" ||
			strings.Count(relative, string(filepath.Separator)) >= searchDepth):
			return fs.SkipDir
		case !entry.IsDir() && strings.Contains(strings.ToLower(relative), "cilium") &&
			slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(path)):
			paths = append(paths, path)
		}

		return nil
	})

	return paths
}

// ciliumOf takes the values out of a file: those of Cilium's HelmRelease, or, if the file was named, the file itself.
func (in *Input) ciliumOf(file *File, named bool) (*HelmValues, string) {
	for _, root := range file.Places.Roots() {
		if !isCiliumRelease(root) {
			continue
		}

		values := &HelmValues{file: file, Root: Follow(root, "spec", "values"),
			partly: machineconfig.Field(machineconfig.Field(root, "spec"), "valuesFrom") != nil}
		if values.Root != nil {
			return values, ""
		}

		if values.partly {
			return in.valuesBeside(file)
		}

		return nil, "the HelmRelease in " + file.Shown + " sets no values"
	}

	roots := file.Places.Roots()
	if !named {
		return nil, ""
	}

	if len(roots) == 0 || roots[0].Kind != yaml.MappingNode {
		return nil, file.Shown + " holds no Helm values"
	}

	return &HelmValues{file: file, Root: roots[0]}, ""
}

// valuesBeside reads the file that a ConfigMap with a HelmRelease's values is usually made of.
func (in *Input) valuesBeside(release *File) (*HelmValues, string) {
	for _, name := range []string{"values.yaml", "helm/values.yaml", "helm-values.yaml"} {
		if file := in.Open(filepath.Join(filepath.Dir(release.Path), filepath.FromSlash(name))); file != nil {
			if roots := file.Places.Roots(); len(roots) > 0 && roots[0].Kind == yaml.MappingNode {
				return &HelmValues{file: file, Root: roots[0]}, ""
			}
		}
	}

	return nil, "the HelmRelease in " + release.Shown +
		" takes its values from elsewhere (valuesFrom): set CILIUM_VALUES to the file with them"
}

// isCiliumRelease reports whether a document is Flux' HelmRelease of Cilium.
func isCiliumRelease(root *yaml.Node) bool {
	if textAt(root, "kind") != "HelmRelease" {
		return false
	}

	for _, path := range [][]string{{"spec", "chart", "spec", "chart"}, {"spec", "chartRef", "name"},
		{"metadata", "name"}} {
		if text := textAt(root, path...); text != "" {
			return text == "cilium" || strings.HasSuffix(text, "/cilium")
		}
	}

	return false
}

// Follow follows keys; nil if one is missing.
func Follow(node *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		if node = machineconfig.Field(node, key); node == nil {
			return nil
		}
	}

	return node
}

func textAt(node *yaml.Node, keys ...string) string {
	if found := Follow(node, keys...); found != nil && found.Kind == yaml.ScalarNode {
		return found.Value
	}

	return ""
}

// Get is the value at a dotted path.
func (v *HelmValues) Get(path string) HelmValue {
	node := Follow(v.Root, strings.Split(path, ".")...)

	switch {
	case node == nil:
		return HelmValue{Unknown: v.partly}
	case node.Kind == yaml.ScalarNode && (strings.Contains(node.Value, "${") || strings.Contains(node.Value, "{{") ||
		strings.Contains(node.Value, "#{")):
		return HelmValue{Unknown: true, Node: node}
	case node.Kind == yaml.ScalarNode:
		return HelmValue{Text: node.Value, Set: true, Node: node}
	default:
		return HelmValue{Set: true, Node: node}
	}
}

// Is reports whether a value is known to be one of these; "" stands for the chart's default.
func (v *HelmValues) Is(path string, texts ...string) bool {
	value := v.Get(path)

	return !value.Unknown && slices.Contains(texts, strings.ToLower(value.Text))
}

// At is where a value stands, or the first one above it that is there.
func (v *HelmValues) At(path string) Place {
	deepest, node := v.Root, v.Root

	for key := range strings.SplitSeq(path, ".") {
		if node = machineconfig.Field(node, key); node == nil {
			break
		}

		deepest = node
	}

	return v.Place(deepest)
}

// Place is where a node stands. Its line is shown as it is, unless it holds more than this value: what values mean that
// are not read here, secrets among them, is not known.
func (v *HelmValues) Place(node *yaml.Node) Place {
	found := v.file.Location(node.Line, node.Column)

	if lines := strings.Split(string(v.file.Data), "\n"); node.Kind == yaml.ScalarNode && node.Line <= len(lines) &&
		!strings.ContainsAny(lines[node.Line-1], "{}[]") {
		found.Text = lines[node.Line-1]
	}

	return Elsewhere(found)
}
