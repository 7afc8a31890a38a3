package machineconfig

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/base/yamltree"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// LoadError says why a file is no machine config. Its text never holds a value of the file that could be a secret.
type LoadError struct {
	Path string
	// Line and Column of what is wrong, counted from 1; 0 when unknown.
	Line, Column int
	Message      string
	// Next is what to do about it; it may be empty.
	Next string
	// Err is fs.ErrNotExist and the like, for errors.Is. Nil for errors of the content, whose text may hold secrets.
	Err error
}

// Error is path:line:column: message. Next is not part of it.
func (e *LoadError) Error() string {
	return diagnosis.Place(e.Path, e.Line, e.Column) + ": " + e.Message
}

// Unwrap gives the error of the file system, if it was one.
func (e *LoadError) Unwrap() error { return e.Err }

// Retrace goes back from a text to the trees that it was written from, which had comments and blank lines as well: the
// place is there then, or nowhere.
func (e *LoadError) Retrace(text []byte, trees []*yaml.Node) {
	at := yamltree.Counterpart(trees, NewPlaces(text).Roots(), e.Line, e.Column)
	if at == nil {
		at = &yaml.Node{}
	}

	e.Line, e.Column = at.Line, at.Column
}

// The texts of machinery's loader, which are part of its behaviour: they are matched, and never shown as they are.
const (
	unknownKeysText    = "unknown keys found during decoding:"
	notRegisteredText  = "not registered"
	secondMainText     = "duplicate document /v1alpha1/ "
	unknownKeysAdvice  = "check the spelling, or the Talos version that the config is for"
	newerVersionAdvice = "it may be a kind of a newer Talos than this program knows; take it out, or update this program"
)

var (
	documentLine = pattern.New(`\(line (\d+)\)`)
	innerLine    = pattern.New(`(?: at)? line (\d+)(?:, column (\d+))?: `)
	// excludedDocument is said of two documents of which a config can have one.
	excludedDocument = pattern.New(`^conflicting documents: (\S+) and (\S+)$`)
	loaderPrefix     = pattern.New(`^error decoding document \S* ?\(line \d+\): `)
	decoderPrefix    = pattern.New(`error decoding +(?:\w+ )?to \*[\w.]+: |yaml: |construct errors:+ `)
	// decodedValue is how the decoder shows the value that it could not use.
	decodedValue = pattern.New("`[^`]*`")
)

// explainLoadError makes a message for people of the loader's error: where it is, which keys are unknown, and no
// values.
func explainLoadError(path string, data []byte, err error) *LoadError {
	explained := &LoadError{Path: path}

	if errors.Is(err, configloader.ErrNoConfig) || strings.TrimSpace(string(data)) == "" {
		explained.Message, explained.Next = "the machine config is empty", HowToGenerate

		return explained
	}

	text := err.Error()

	if match := documentLine.FindStringSubmatch(text); match != nil {
		explained.Line = number(match[1])
	}

	if _, keys, found := strings.Cut(text, unknownKeysText); found {
		explainUnknownKeys(explained, data, keys)

		return explained
	}

	if strings.Contains(text, notRegisteredText) {
		explained.Next = newerVersionAdvice
	}

	if strings.Contains(text, secondMainText) {
		explained.Message = "has a second document without `kind:`"

		return explained
	}

	if match := excludedDocument.FindStringSubmatch(text); match != nil {
		explained.Line, explained.Column = NewPlaces(data).Find(strings.TrimSuffix(match[2], "/"), "")
		explained.Message = "has the documents " + match[1] + " and " + match[2] + ", which exclude each other"

		return explained
	}

	if strings.HasPrefix(text, "decode error: ") {
		line, column, message := YAMLErrorIn(data, err)
		explained.Line, explained.Column = line, column
		explained.Message = "is not valid YAML: " + newScrubber(data).scrub(message)

		return explained
	}

	text = " " + strings.Join(strings.Fields(loaderPrefix.ReplaceAllString(text, "")), " ")

	if match := innerLine.FindStringSubmatch(text); match != nil {
		explained.Line, explained.Column = number(match[1]), number(match[2])
		text = innerLine.ReplaceAllString(text, ": ")
	}

	text = strings.Trim(decoderPrefix.ReplaceAllString(text, ""), " :")
	explained.Message = "can't be decoded: " + newScrubber(data).scrub(text)

	return explained
}

// explainUnknownKeys names the keys that machinery printed as unknown. It prints each with the keys above it, which it
// knows, and with everything below it, which may be secret.
func explainUnknownKeys(explained *LoadError, data []byte, printed string) {
	explained.Message, explained.Next = "has unknown keys", unknownKeysAdvice

	root := documentAt(data, explained.Line)
	unknown, err := parseNodes([]byte(printed))

	if err != nil || root == nil || len(unknown) == 0 {
		return
	}

	var names []string

	for i, keys := range unknownKeys(unknown[0], documentType(root), nil) {
		name := joinKeys(keys)
		right := ""

		if yamltree.FieldText(root, "kind") == "" {
			right = PatchPlace(keys[len(keys)-1])
		}

		if near := suggest.Word(keys[len(keys)-1], knownKeys(documentType(root), keys[:len(keys)-1])); near != "" {
			name += " (did you mean " + near + "?)"
		} else if right != "" {
			name += " (it belongs to " + right + ")"
		}

		names = append(names, name)

		if i == 0 {
			explained.Line, explained.Column = findKey(root, keys)
		}
	}

	slices.Sort(names)
	explained.Message = "unknown keys: " + strings.Join(slices.Compact(names), ", ")
}

// documentAt is the document that starts at a line.
func documentAt(data []byte, line int) *yaml.Node {
	roots, err := parseNodes(data)
	if err != nil {
		return nil
	}

	var found *yaml.Node

	for _, root := range roots {
		if found == nil || root.Line <= line {
			found = root
		}
	}

	return found
}

// documentType is the Go type that a document is decoded into; nil if its kind is unknown.
func documentType(root *yaml.Node) reflect.Type {
	kind, version := yamltree.FieldText(root, "kind"), yamltree.FieldText(root, "apiVersion")
	if kind == "" {
		return reflect.TypeFor[v1alpha1.Config]()
	}

	provider, err := configloader.NewFromBytes(fmt.Appendf(nil, "apiVersion: %q\nkind: %q\n", version, kind))
	if err != nil || len(provider.Documents()) == 0 {
		return nil
	}

	return reflect.TypeOf(provider.Documents()[0])
}

// unknownKeys lists the paths in a tree that end with the first key that the type has no field for; "[]" stands for any
// item of a list.
func unknownKeys(node *yaml.Node, in reflect.Type, path []string) [][]string {
	switch in = pointedTo(in); {
	case in == nil:
		return [][]string{path}
	case node.Kind == yaml.SequenceNode && in.Kind() == reflect.Slice:
		var paths [][]string
		for _, item := range node.Content {
			paths = append(paths, unknownKeys(item, in.Elem(), append(slices.Clone(path), "[]"))...)
		}

		return paths
	case node.Kind == yaml.MappingNode && (in.Kind() == reflect.Struct || in.Kind() == reflect.Map):
		var paths [][]string

		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i].Value

			var inner reflect.Type

			if in.Kind() == reflect.Map {
				inner = in.Elem()
			} else {
				inner = fieldType(in, key)
			}

			paths = append(paths, unknownKeys(node.Content[i+1], inner, append(slices.Clone(path), key))...)
		}

		return paths
	default:
		return [][]string{path}
	}
}

// knownKeys are the keys that the struct at a path of a type has; none if there is another kind of value.
func knownKeys(in reflect.Type, path []string) []string {
	for _, key := range path {
		in = typeBelow(in, key)
	}

	if in = pointedTo(in); in == nil {
		return nil
	}

	return keysOf(in)
}

// typeBelow is the type of a key's value in a type, or of an item's for "[]"; nil if it has none, or of any.
func typeBelow(in reflect.Type, key string) reflect.Type {
	var below reflect.Type

	switch in = pointedTo(in); {
	case key == "$patch": // in whichever mapping of a patch
		return reflect.TypeFor[string]()
	case in == nil:
	case key == "[]" && in.Kind() == reflect.Slice, key != "[]" && in.Kind() == reflect.Map:
		below = in.Elem()
	case in.Kind() == reflect.Struct && key != "":
		below = fieldType(in, key)
	}

	if below == nil || below.Kind() == reflect.Interface {
		return nil
	}

	return below
}

// pointedTo is a type without the pointers to it.
func pointedTo(in reflect.Type) reflect.Type {
	for in != nil && in.Kind() == reflect.Pointer {
		in = in.Elem()
	}

	return in
}

func keysOf(in reflect.Type) []string {
	if in.Kind() != reflect.Struct {
		return nil
	}

	var keys []string

	for field := range in.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")

		switch {
		case strings.Contains(options, "inline"):
			keys = append(keys, keysOf(field.Type)...)
		case name != "" && name != "-":
			keys = append(keys, name)
		}
	}

	return keys
}

// KnowsKey reports whether a kind of document has a field at a path of keys; "[]" stands for any item of a list. An
// unknown kind has none.
func KnowsKey(kind string, path []string) bool {
	if kind != "" && !slices.Contains(Kinds(), kind) {
		return false
	}

	in := documentType(&yaml.Node{Kind: yaml.MappingNode,
		Content: []*yaml.Node{word("kind"), word(kind), word("apiVersion"), word("v1alpha1")}})

	for _, key := range path {
		switch in = pointedTo(in); {
		case in == nil:
			return false
		case in.Kind() == reflect.Struct:
			in = fieldType(in, key)
		case in.Kind() == reflect.Slice || in.Kind() == reflect.Map:
			in = in.Elem()
		default:
			return true // a type that reads itself
		}
	}

	return in != nil
}

// fieldType is the type of the struct field that a YAML key is decoded into; nil if there is none.
func fieldType(in reflect.Type, key string) reflect.Type {
	if in.Kind() == reflect.Map {
		return in.Elem()
	}

	for field := range in.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")

		if strings.Contains(options, "inline") {
			if inner := fieldType(field.Type, key); inner != nil {
				return inner
			}
		}

		if name == key {
			return field.Type
		}
	}

	return nil
}

// findKey gives the position of the first place in a document that a path leads to, or of the last part of it that is
// there.
func findKey(root *yaml.Node, path []string) (line, column int) {
	line, column, _ = follow(root, path, root.Line, root.Column)

	return line, column
}

func follow(node *yaml.Node, path []string, line, column int) (int, int, bool) {
	if len(path) == 0 {
		return line, column, true
	}

	if path[0] == "[]" {
		for _, item := range node.Content {
			if line, column, found := follow(item, path[1:], line, column); found {
				return line, column, true
			}
		}

		return line, column, false
	}

	for i := 0; i+1 < len(node.Content) && node.Kind == yaml.MappingNode; i += 2 {
		if key := node.Content[i]; key.Value == path[0] {
			return follow(node.Content[i+1], path[1:], key.Line, key.Column)
		}
	}

	return line, column, false
}

// ExplainPatch says why a text is no patch of a machine config, given what machinery says about it; path is only for
// messages.
func ExplainPatch(path string, data []byte, err error) *LoadError {
	return explainLoadError(path, data, err)
}
