package yamlfile

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// ForeignKeys is a type whose mapping may hold keys that belong to others.
type ForeignKeys interface{ IsForeign(key string) bool }

// Check compares a tree with the Go type that it is to be decoded into: unknown keys and values of the wrong type are
// mistakes, each at its place; see Source.Refused for what types say that decode themselves.
func (s Source) Check(name string, node *yaml.Node, in reflect.Type) {
	for in.Kind() == reflect.Pointer {
		in = in.Elem()
	}

	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" || in.Kind() == reflect.Interface {
		return
	}

	if in == reflect.TypeFor[time.Duration]() {
		s.requireKind(name, node, yaml.ScalarNode) // "25s", and a number of nanoseconds

		return
	}

	if decodesItself(in) {
		s.checkOwn(name, node, in)

		return
	}

	switch in.Kind() {
	case reflect.Struct:
		if s.requireKind(name, node, yaml.MappingNode) {
			s.checkFields(node, in)
		}
	case reflect.Map:
		if s.requireKind(name, node, yaml.MappingNode) {
			for i := 0; i+1 < len(node.Content); i += 2 {
				s.Check(strconv.Quote(node.Content[i].Value), node.Content[i+1], in.Elem())
			}
		}
	case reflect.Slice, reflect.Array:
		if s.requireKind(name, node, yaml.SequenceNode) {
			for _, item := range node.Content {
				if item.Tag == "!!null" && in.Elem().Kind() == reflect.Pointer {
					s.Refusal().At(item, diagnosis.FileType, "an item of %s is empty", name)
				}

				s.Check("an item of "+name, item, in.Elem())
			}
		}
	default:
		if s.requireKind(name, node, yaml.ScalarNode) {
			s.checkScalar(name, node, in.Kind())
		}
	}
}

// checkOwn lets a type that decodes itself judge a value. Such types take scalars or lists as they like.
func (s Source) checkOwn(name string, node *yaml.Node, in reflect.Type) {
	err := decodeInto(node, reflect.New(in).Interface())
	refusal := s.Refusal()

	switch allowed := choices(in); {
	case err == nil:
		return
	case node.Kind != yaml.ScalarNode:
		refusal.At(node, diagnosis.FileType, "%s can't be a %s", name, KindName(node))
	case len(allowed) > 0:
		mistake := s.Mistake(node, diagnosis.FileValue, "%s: %q is none of %s", name, node.Value, strings.Join(allowed, ", "))
		mistake.Suggestion = suggest.Word(node.Value, allowed)
		refusal.Add(mistake)
	default:
		refusal.At(node, diagnosis.FileValue, "%s: %s", name, ownError(node, err))
	}

	*node = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null", Line: node.Line, Column: node.Column}
}

// Refusal is the source of mistakes that only who uses a value minds.
func (s Source) Refusal() Source {
	if s.Refused != nil {
		s.Mistakes = s.Refused
	}

	return s
}

// choices are the words that a type takes which stands for one of a few numbers; nil for other types.
func choices(in reflect.Type) []string {
	const most = 64

	value, other := reflect.New(in), reflect.New(in)

	parser, parses := other.Interface().(encoding.TextUnmarshaler)
	if _, says := value.Interface().(fmt.Stringer); !says || !parses {
		return nil
	}

	var words []string

	for i := range most {
		switch {
		case value.Elem().CanInt():
			value.Elem().SetInt(int64(i))
		case value.Elem().CanUint():
			value.Elem().SetUint(uint64(i))
		default:
			return nil
		}

		word := value.Interface().(fmt.Stringer).String() //nolint:forcetypeassert // asked above
		if parser.UnmarshalText([]byte(word)) == nil && other.Elem().Equal(value.Elem()) {
			words = append(words, word)
		}
	}

	return words
}

// decodeInto turns a panic of a decoder into an error.
func decodeInto(node *yaml.Node, into any) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = errors.New("unexpected structure")
		}
	}()

	return node.Decode(into)
}

// ownError is what a type says without the decoder's own words, and without those of a parser of numbers, which mean
// nothing to people.
func ownError(node *yaml.Node, err error) string {
	_, _, message := machineconfig.YAMLError(err)
	message = strings.TrimPrefix(message, "construct errors: ")

	if strings.Contains(message, "strconv.") {
		return strconv.Quote(node.Value) + " can't be read"
	}

	return message
}

func decodesItself(in reflect.Type) bool {
	for _, unmarshaler := range []reflect.Type{
		reflect.TypeFor[yaml.Unmarshaler](),
		reflect.TypeFor[interface{ UnmarshalYAML(func(any) error) error }](),
		reflect.TypeFor[encoding.TextUnmarshaler](),
	} {
		if reflect.PointerTo(in).Implements(unmarshaler) {
			return true
		}
	}

	return false
}

func (s Source) requireKind(name string, node *yaml.Node, kind yaml.Kind) bool {
	if node.Kind == kind {
		return true
	}

	s.At(node, diagnosis.FileType, "%s must be a %s, not a %s", name, KindName(&yaml.Node{Kind: kind}), KindName(node))

	return false
}

// KindName names what a node is in plain words.
func KindName(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "mapping"
	case yaml.SequenceNode:
		return "list"
	default:
		return "single value"
	}
}

func (s Source) checkFields(node *yaml.Node, in reflect.Type) {
	fields := yamlFields(in)

	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]

		if key.Kind != yaml.ScalarNode {
			s.At(key, diagnosis.FileType, "a key must be a word")

			continue
		}

		if field, known := fields[key.Value]; known {
			s.Check(strconv.Quote(key.Value), value, field.Type)

			continue
		}

		mapping, mayHoldOthers := reflect.Zero(in).Interface().(ForeignKeys)
		if mayHoldOthers && mapping.IsForeign(key.Value) {
			continue
		}

		mistake := s.Mistake(key, diagnosis.FileKey, "unknown key %q", key.Value)
		mistake.Key, mistake.Suggestion = key.Value, suggest.Word(key.Value, Keys(in))

		if mayHoldOthers && isReferredTo(value) {
			s.Warn(mistake)
		} else {
			s.Add(mistake)
		}
	}
}

// isReferredTo reports whether aliases elsewhere refer to a part of a tree that Parse made.
func isReferredTo(node *yaml.Node) bool {
	return node.Anchor != "" || slices.ContainsFunc(node.Content, isReferredTo)
}

// yamlFields are the YAML keys of a struct, those of inlined structs included.
func yamlFields(in reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}

	for field := range in.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")

		switch {
		case slices.Contains(strings.Split(options, ","), "inline"):
			maps.Copy(fields, yamlFields(field.Type))
		case name != "" && name != "-":
			fields[name] = field
		}
	}

	return fields
}

// Keys are the YAML keys of a struct, in alphabetical order.
func Keys(in reflect.Type) []string { return slices.Sorted(maps.Keys(yamlFields(in))) }

func (s Source) checkScalar(name string, node *yaml.Node, kind reflect.Kind) {
	switch kind {
	case reflect.Bool:
		// The last three are what YAML 1.1 took for true and false, and its decoder still does.
		if node.ShortTag() != "!!bool" && !slices.Contains([]string{"y", "yes", "on", "n", "no", "off"},
			strings.ToLower(node.Value)) {
			s.At(node, diagnosis.FileType, "%s must be true or false", name)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if _, err := strconv.ParseInt(strings.ReplaceAll(node.Value, "_", ""), 0, 64); err != nil {
			s.At(node, diagnosis.FileType, "%s must be a number", name)
		}
	default:
		// Any scalar can be read as text.
	}
}

// Decode fills a value from a tree that Check found no fault with; what is left, as a quoted text for a number, is a
// mistake.
func (s Source) Decode(node *yaml.Node, into any) bool {
	err := decodeInto(node, into)
	if err == nil {
		return true
	}

	line, column, message := machineconfig.YAMLError(err)
	s.At(&yaml.Node{Line: line, Column: column}, diagnosis.FileType, "can't be decoded: %s", message)

	return false
}
