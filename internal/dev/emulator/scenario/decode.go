package scenario

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/go-multierror"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Mistake is something in a scenario that can't be played.
type Mistake struct {
	Path string
	// Line and Column count from 1; 0 when unknown.
	Line, Column int
	// Field is where it stands, as in "nodes.cp2.faults.install"; empty for the text as a whole.
	Field  string
	Reason string
	// Suggestion is what was probably meant; it may be empty.
	Suggestion string
}

// Error is path:line:column: field: reason, did you mean "suggestion"?
func (m *Mistake) Error() string {
	text := diagnosis.Place(m.Path, m.Line, m.Column)

	if m.Field != "" {
		text += ": " + m.Field
	}

	text += ": " + m.Reason

	if m.Suggestion != "" {
		text += fmt.Sprintf(", did you mean %q?", m.Suggestion)
	}

	return text
}

// places are where a scenario's fields stand in its file, and the mistakes that were found there.
type places struct {
	path     string
	at       map[string]*yaml.Node
	mistakes []*Mistake
	// left is how many more values are read.
	left int
}

// mostValues is how many values a scenario has at most, those that aliases repeat included: more is no description of a
// lab.
const mostValues = 100_000

// decode fills a scenario strictly: every field has to exist and to hold what it takes.
func decode(path string, data []byte, into *Scenario) (*places, error) {
	p := &places{path: path, at: map[string]*yaml.Node{}, left: mostValues}

	root, err := parse(data)

	switch {
	case errors.Is(err, errSecond):
		p.mistakes = append(p.mistakes, &Mistake{Path: path, Reason: "has a second document; a scenario is one"})
	case err != nil:
		line, column, message := machineconfig.YAMLError(err)
		p.mistakes = append(p.mistakes,
			&Mistake{Path: path, Line: line, Column: column, Reason: "is not valid YAML: " + message})
	case root == nil:
		p.mistakes = append(p.mistakes, &Mistake{Path: path, Reason: "the scenario is empty"})
	default:
		p.fill("", root, reflect.ValueOf(into).Elem())
	}

	return p, p.err()
}

var errSecond = errors.New("a second document")

// parse gives the tree of the one document of a text; nil if there is none.
func parse(data []byte) (root *yaml.Node, err error) {
	// The decoder panics at some hostile input.
	defer func() {
		if recovered := recover(); recovered != nil {
			root, err = nil, errors.New("unexpected structure")
		}
	}()

	var document, second yaml.Node

	decoder := yaml.NewDecoder(bytes.NewReader(data))

	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil //nolint:nilnil // the caller says what that means
	} else if err != nil {
		return nil, err
	}

	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errSecond
	}

	if len(document.Content) != 1 || document.Content[0].ShortTag() == "!!null" {
		return nil, nil //nolint:nilnil // as above
	}

	return document.Content[0], nil
}

func (p *places) err() error {
	if len(p.mistakes) == 0 {
		return nil
	}

	slices.SortStableFunc(p.mistakes,
		func(a, b *Mistake) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })

	list := &multierror.Error{ErrorFormat: diagnosis.Lines}
	for _, mistake := range p.mistakes {
		list.Errors = append(list.Errors, mistake)
	}

	return list
}

// wrong notes a mistake about a field. One that is not in the file is laid to the nearest field around it that is.
func (p *places) wrong(field, suggestion, reason string, args ...any) {
	around := field

	for p.at[around] == nil && around != "" {
		around = around[:max(strings.LastIndex(around, "."), 0)]
	}

	p.wrongAt(p.at[around], field, suggestion, reason, args...)
}

// wrongAt notes a mistake at a place of its own.
func (p *places) wrongAt(place *yaml.Node, field, suggestion, reason string, args ...any) {
	p.mistakes = append(p.mistakes, &Mistake{
		Path: p.path, Line: place.Line, Column: place.Column, Field: cmp.Or(field, "the file"),
		Reason: fmt.Sprintf(reason, args...), Suggestion: suggestion,
	})
}

// given reports whether a field is in the file.
func (p *places) given(field string) bool { return p.at[field] != nil }

func inside(field, name string) string { return strings.TrimPrefix(field+"."+name, ".") }

// fill puts what a node holds into a value.
func (p *places) fill(field string, node *yaml.Node, value reflect.Value) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}

	if p.left--; p.left < 0 {
		if p.left == -1 {
			p.wrongAt(node, field, "", "is more than a scenario holds: %d values", mostValues)
		}

		return
	}

	p.at[field] = node

	special := scalars[value.Type()]
	kind := value.Kind()

	switch names := Words(value.Type()); {
	case names != nil:
		p.fillScalar(field, node, value, wordReader(names))
	case special != nil:
		p.fillScalar(field, node, value, special)
	case kind == reflect.Struct:
		p.fillStruct(field, node, value)
	case kind == reflect.Map:
		p.fillMap(field, node, value)
	case kind == reflect.Slice:
		p.fillSlice(field, node, value)
	default:
		p.fillScalar(field, node, value, plain)
	}
}

func (p *places) fillStruct(field string, node *yaml.Node, value reflect.Value) {
	if node.Kind != yaml.MappingNode {
		p.wrong(field, "", "takes fields, not %s", kindOf(node))

		return
	}

	names := Fields(value.Type())

	for i := 0; i+1 < len(node.Content); i += 2 {
		key, name := node.Content[i], node.Content[i].Value
		index := slices.Index(names, name)
		at := inside(field, name)

		switch {
		case p.given(at):
			p.wrongAt(key, at, "", "is given twice")
		case index < 0:
			p.at[at] = key
			p.wrong(at, suggest.Word(name, names), "there is no such field")
		default:
			p.fill(at, node.Content[i+1], value.Field(index))
		}
	}
}

func (p *places) fillMap(field string, node *yaml.Node, value reflect.Value) {
	if node.Kind != yaml.MappingNode {
		p.wrong(field, "", "takes names with what is said of each, not %s", kindOf(node))

		return
	}

	value.Set(reflect.MakeMap(value.Type()))

	for i := 0; i+1 < len(node.Content); i += 2 {
		name := node.Content[i].Value
		at := inside(field, name)

		if p.given(at) {
			p.wrongAt(node.Content[i], at, "", "is given twice")

			continue
		}

		item := reflect.New(value.Type().Elem()).Elem()
		p.fill(at, node.Content[i+1], item)
		p.at[at] = node.Content[i]
		value.SetMapIndex(reflect.ValueOf(name), item)
	}
}

func (p *places) fillSlice(field string, node *yaml.Node, value reflect.Value) {
	if node.Kind != yaml.SequenceNode {
		p.wrong(field, "", "takes a list, not %s", kindOf(node))

		return
	}

	value.Set(reflect.MakeSlice(value.Type(), len(node.Content), len(node.Content)))

	for i, item := range node.Content {
		p.fill(inside(field, strconv.Itoa(i+1)), item, value.Index(i))
	}
}

func (p *places) fillScalar(field string, node *yaml.Node, value reflect.Value, read reader) {
	if node.Kind != yaml.ScalarNode {
		p.wrong(field, "", "takes a single value, not %s", kindOf(node))

		return
	}

	suggestion, err := read(node.Value, value)
	if err != nil {
		p.wrong(field, suggestion, "%q: %s", node.Value, err)
	}
}

func kindOf(node *yaml.Node) string {
	switch node.Kind { //nolint:exhaustive // a document or an alias is never asked about
	case yaml.MappingNode:
		return "fields"
	case yaml.SequenceNode:
		return "a list"
	default:
		return fmt.Sprintf("%q", node.Value)
	}
}

// Fields are the names that a struct's fields have in a scenario, in their order: "InstallTimes" is installTimes,
// "DHCP" is dhcp.
func Fields(in reflect.Type) []string {
	names := make([]string, 0, in.NumField())
	for i := range in.NumField() {
		names = append(names, fieldName(in.Field(i).Name))
	}

	return names
}

func fieldName(name string) string {
	letters := []rune(name)

	for i := range letters {
		// The last capital of several begins the next word.
		if !unicode.IsUpper(letters[i]) || i > 0 && i+1 < len(letters) && !unicode.IsUpper(letters[i+1]) {
			break
		}

		letters[i] = unicode.ToLower(letters[i])
	}

	return string(letters)
}

// reader puts a text into a value, or says what the value takes and what was probably meant.
type reader func(text string, value reflect.Value) (suggestion string, err error)

// scalars are the types that are neither enumerations nor read as their kind would be.
var scalars = map[reflect.Type]reader{
	reflect.TypeFor[time.Duration](): func(text string, value reflect.Value) (string, error) {
		duration, err := time.ParseDuration(text)
		if err != nil {
			return "", errors.New("takes a duration, such as 90s or 12m")
		}

		value.SetInt(int64(duration))

		return "", nil
	},
	reflect.TypeFor[netip.Addr](): func(text string, value reflect.Value) (string, error) {
		host, err := strconv.ParseUint(text, 10, 8)
		if err != nil || host == 0 || host == 255 {
			return "", errors.New("takes the last part of an address in the lab's block, 1 to 254")
		}

		value.Set(reflect.ValueOf(netip.AddrFrom4([4]byte{127, 0, 0, byte(host)})))

		return "", nil
	},
}

// plain reads a value as its kind says.
func plain(text string, value reflect.Value) (string, error) {
	switch value.Kind() { //nolint:exhaustive // the structs hold no others
	case reflect.String:
		value.SetString(text)

		return "", nil
	case reflect.Bool:
		read, err := strconv.ParseBool(text)
		if err != nil {
			return suggest.Word(text, []string{"true", "false"}), errors.New("takes true or false")
		}

		value.SetBool(read)

		return "", nil
	case reflect.Float64:
		read, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "", errors.New("takes a number")
		}

		value.SetFloat(read)

		return "", nil
	case reflect.Uint64:
		read, err := strconv.ParseUint(strings.ReplaceAll(text, "_", ""), 10, 64)
		if err != nil {
			return "", errors.New("takes a whole number from 0 on")
		}

		value.SetUint(read)

		return "", nil
	default:
		read, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return "", errors.New("takes a whole number")
		}

		value.SetInt(read)

		return "", nil
	}
}
