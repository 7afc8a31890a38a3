// Package tofu reads what OpenTofu files say about resources, as far as it can be told without running OpenTofu.
//
// It knows the part of the language that lists of machines are written in: blocks and attributes; strings, numbers,
// booleans, lists, objects and heredocs; references to variables, locals and for_each; strings that are built of those;
// objects and lists made by for; and the functions try, coalesce, lookup, merge, toset and tomap. Everything else has
// an unknown value, which is never guessed. Modules, *.tf.json and TF_VAR_ variables are not read. The syntax is that
// of github.com/hashicorp/hcl/v2, hclsyntax/spec.md; which file of values goes over which is OpenTofu's documentation,
// Input variables.
package tofu

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Kind is what a value is.
type Kind int

// Kinds of values.
const (
	// Unknown is a value that only OpenTofu can tell.
	Unknown Kind = iota
	// Null is no value: the provider's default counts.
	Null
	// Scalar is a string, a number or a boolean.
	Scalar
	// List is a list or a set.
	List
	// Object is an object or a map.
	Object
)

// Value is what an expression comes to.
type Value struct {
	Kind Kind
	// Text is a scalar as it is written; true and false for booleans.
	Text string
	// Items are those of a list.
	Items []Value
	// Fields are those of an object, in the order of the file.
	Fields []Field
	// At is where the value is written, which is in a file of values for a variable.
	At Position
}

// Field is a key of an object with its value.
type Field struct {
	Name  string
	Value Value
}

// Position is where something stands in a file; lines and columns count from 1.
type Position struct {
	Path         string
	Line, Column int
	// Text is the line.
	Text string
}

// Get is a field of an object. What an object does not set is unknown: its type may give it a default.
func (v Value) Get(name string) Value {
	for _, field := range v.Fields {
		if field.Name == name {
			return field.Value
		}
	}

	return Value{At: v.At}
}

// Block is the content of a block.
type Block struct {
	At         Position
	attributes map[string]expression
	blocks     []block
	scope      scope
}

// Attribute is the value of an attribute; false if the block does not set it.
func (b Block) Attribute(name string) (Value, bool) {
	expression, set := b.attributes[name]
	if !set {
		return Value{At: b.At}, false
	}

	return expression.evaluate(b.scope), true
}

// Blocks are the blocks of a type in this one.
func (b Block) Blocks(kind string) []Block {
	var found []Block

	for _, inner := range b.blocks {
		if inner.labels[0] == kind {
			found = append(found, inner.in(b.scope))
		}
	}

	return found
}

// Has reports whether the block has one of a type, or one that is made when it is applied.
func (b Block) Has(kind string) bool {
	return slices.ContainsFunc(b.blocks, func(inner block) bool {
		return inner.labels[0] == kind || inner.labels[0] == "dynamic" && len(inner.labels) > 1 && inner.labels[1] == kind
	})
}

// Resource is one instance of a resource.
type Resource struct {
	Block
	Type, Name string
	// Key is the instance's key in for_each; empty without, and when it can't be told.
	Key string
	// Several is set when the instance stands for an unknown number of them.
	Several bool
}

// Module is a folder of OpenTofu files.
type Module struct {
	blocks []block
	scope  scope
}

// Read reads the files of a folder. A file that can't be parsed is an *Error.
func Read(folder string, shown func(path string) string) (*Module, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read OpenTofu files: %w", err)
	}

	module := &Module{scope: newScope()}

	var values []string

	for _, entry := range entries {
		name := entry.Name()

		switch {
		case entry.IsDir():
		case strings.HasSuffix(name, ".tf"), strings.HasSuffix(name, ".tofu"):
			body, err := parseFile(filepath.Join(folder, name), shown)
			if err != nil {
				return nil, err
			}

			module.blocks = append(module.blocks, body.blocks...)
		case name == "terraform.tfvars", name == "terraform.tfvars.json", strings.HasSuffix(name, ".auto.tfvars"),
			strings.HasSuffix(name, ".auto.tfvars.json"):
			values = append(values, name)
		}
	}

	module.declare()

	slices.SortStableFunc(values, func(a, b string) int { return precedence(a) - precedence(b) })

	for _, name := range values {
		if err := module.readValues(filepath.Join(folder, name), shown); err != nil {
			return nil, err
		}
	}

	return module, nil
}

// precedence orders files of values: the later goes over the earlier. os.ReadDir has them by name, and so they stay
// within a class.
func precedence(name string) int {
	switch name {
	case "terraform.tfvars":
		return 0
	case "terraform.tfvars.json":
		return 1
	default:
		return 2
	}
}

// declare takes the defaults of variables, and the locals.
func (m *Module) declare() {
	for _, declared := range m.blocks {
		switch {
		case declared.labels[0] == "variable" && len(declared.labels) == 2:
			if expression, set := declared.attributes["default"]; set {
				m.scope.variables[declared.labels[1]] = expression.evaluate(m.scope)
			}
		case declared.labels[0] == "locals":
			for name, expression := range declared.attributes {
				m.scope.locals[name] = expression
			}
		}
	}
}

func (m *Module) readValues(path string, shown func(string) string) error {
	if strings.HasSuffix(path, ".json") {
		return m.readJSON(path, shown)
	}

	body, err := parseFile(path, shown)
	if err != nil {
		return err
	}

	for name, expression := range body.attributes {
		m.scope.variables[name] = expression.evaluate(newScope())
	}

	return nil
}

func (m *Module) readJSON(path string, shown func(string) string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read OpenTofu values: %w", err)
	}

	var values map[string]any

	if err := json.Unmarshal(data, &values); err != nil {
		return &Error{Position: Position{Path: shown(path)}, Message: "is not valid JSON"}
	}

	for name, value := range values {
		m.scope.variables[name] = fromJSON(value, Position{Path: shown(path)})
	}

	return nil
}

func fromJSON(value any, at Position) Value {
	switch value := value.(type) {
	case nil:
		return Value{Kind: Null, At: at}
	case []any:
		list := Value{Kind: List, At: at}
		for _, item := range value {
			list.Items = append(list.Items, fromJSON(item, at))
		}

		return list
	case map[string]any:
		object := Value{Kind: Object, At: at}
		for name, field := range value {
			object.Fields = append(object.Fields, Field{name, fromJSON(field, at)})
		}

		slices.SortFunc(object.Fields, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })

		return object
	default:
		return Value{Kind: Scalar, Text: fmt.Sprint(value), At: at}
	}
}

// Resources are the instances of the resources of a type, in the order of the files.
func (m *Module) Resources(kind string) []Resource {
	var found []Resource

	for _, declared := range m.blocks {
		if declared.labels[0] != "resource" || len(declared.labels) != 3 || declared.labels[1] != kind {
			continue
		}

		for _, made := range m.instances(declared) {
			made.Type, made.Name = kind, declared.labels[2]
			found = append(found, made)
		}
	}

	return found
}

// instances are those that for_each or count makes.
func (m *Module) instances(declared block) []Resource {
	each, several := declared.attributes["for_each"]
	if !several {
		_, counted := declared.attributes["count"]

		return []Resource{{Block: declared.in(m.scope), Several: counted}}
	}

	over := each.evaluate(m.scope)

	var instances []Resource

	for _, item := range pairs(over) {
		inner := m.scope.with("each",
			Value{Kind: Object, At: item.value.At, Fields: []Field{{"key", item.key}, {"value", item.value}}})
		instances = append(instances, Resource{Block: declared.in(inner), Key: item.key.Text})
	}

	if over.Kind == Unknown {
		return []Resource{{Block: declared.in(m.scope), Several: true}}
	}

	return instances
}

// pair is what a loop goes over.
type pair struct{ key, value Value }

// pairs are the keys and values of an object, or of a list: of a set the items stand for both.
func pairs(over Value) []pair {
	var list []pair

	for _, field := range over.Fields {
		list = append(list, pair{Value{Kind: Scalar, Text: field.Name, At: field.Value.At}, field.Value})
	}

	for _, item := range over.Items {
		list = append(list, pair{item, item})
	}

	return list
}

// Error is a place where a file is not what the package can read.
type Error struct {
	Position

	Message string
}

// Error is path:line:column: message.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Path + ": " + e.Message
	}

	return fmt.Sprintf("%s:%d:%d: %s", e.Path, e.Line, e.Column, e.Message)
}
