// Package tofu reads what OpenTofu files say about resources, as far as it can be told without running OpenTofu.
//
// Files are parsed and evaluated by github.com/hashicorp/hcl, so operators, conditions, for expressions, for_each,
// count and dynamic blocks are what they are to OpenTofu; variables have their defaults and files of values, and
// modules from a local folder are read too. What only OpenTofu can tell (data sources, other resources, a variable that
// is given when it is applied, functions that read files) is unknown, with the reason; nothing is guessed. Which file
// of values goes over which is OpenTofu's documentation, Input variables. TF_VAR_ variables are not read.
package tofu

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// Value is what an attribute comes to.
type Value struct {
	// Text is a string, a number or a boolean as text.
	Text string
	// Known is false when only OpenTofu can tell the value, or when it is a list or an object; Why says why.
	Known bool
	Why   string
	// Null is no value: the provider's default counts.
	Null bool
	// At is where the value is written: in a file of values, or at a default, for a variable.
	At Position
}

// Position is where something stands in a file; lines and columns count from 1.
type Position struct {
	Path         string
	Line, Column int
	// Text is the line.
	Text string
}

func (p Position) String() string { return fmt.Sprintf("%s:%d", p.Path, p.Line) }

// Block is the content of a block.
type Block struct {
	At    Position
	body  hcl.Body
	scope scope
}

// Attribute is the value of an attribute; false if the block does not set it.
func (b Block) Attribute(name string) (Value, bool) {
	attribute := b.attribute(name)
	if attribute == nil {
		return Value{At: b.At}, false
	}

	return b.scope.told(attribute.Expr), true
}

func (b Block) attribute(name string) *hcl.Attribute {
	if b.body == nil {
		return nil
	}

	// What is wrong with other attributes is OpenTofu's to say.
	content, _, _ := b.body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: name}}})

	return content.Attributes[name]
}

// Blocks are the blocks of a type in this one, those of dynamic blocks among them; untold says why there may be others.
func (b Block) Blocks(kind string) (found []Block, untold string) {
	if b.body == nil {
		return nil, ""
	}

	content, _, _ := b.body.PartialContent(&hcl.BodySchema{
		Blocks: []hcl.BlockHeaderSchema{{Type: kind}, {Type: "dynamic", LabelNames: []string{"type"}}}})

	for _, inner := range content.Blocks {
		switch {
		case inner.Type == kind:
			found = append(found, Block{b.scope.module.at(inner.DefRange), inner.Body, b.scope})
		case inner.Labels[0] == kind:
			made, why := b.dynamic(inner)
			if found = append(found, made...); why != "" {
				untold = why
			}
		}
	}

	return found, untold
}

// dynamic are the blocks that a dynamic block makes.
func (b Block) dynamic(block *hcl.Block) (found []Block, untold string) {
	outer := Block{b.scope.module.at(block.DefRange), block.Body, b.scope}
	each, iterator := outer.attribute("for_each"), block.Labels[0]

	if named := outer.attribute("iterator"); named != nil {
		iterator = hcl.ExprAsKeyword(named.Expr)
	}

	contents, _ := outer.Blocks("content")
	if each == nil || len(contents) != 1 {
		return nil, fmt.Sprintf("the dynamic block has no for_each or no content (%s)", outer.At)
	}

	told := b.scope.evaluate(each.Expr)

	over, _ := told.Unmark()
	if !over.CanIterateElements() {
		return nil, b.scope.why(told, each.Expr)
	}

	for key, value := range elements(over) {
		found = append(found, Block{contents[0].At, contents[0].body, b.scope.with(iterator, keyAndValue(key, value))})
	}

	return found, ""
}

func keyAndValue(key, value cty.Value) cty.Value {
	return cty.ObjectVal(map[string]cty.Value{"key": key, "value": value})
}

// Resource is one instance of a resource.
type Resource struct {
	Block
	Type, Name string
	// Key is the instance's key in for_each; empty without, and when it can't be told.
	Key string
	// Several is set when the instance is one of several without a key, or stands for an unknown number of them.
	Several bool
}

// instance is one of those that for_each or count makes of a block.
type instance struct {
	scope   scope
	key     string
	several bool
}

// instances are those of a resource or a module. Where their number can't be told one stands for all.
func (s scope) instances(body hcl.Body) []instance {
	block := Block{body: body, scope: s}

	if each := block.attribute("for_each"); each != nil {
		return s.each(each.Expr)
	}

	count := block.attribute("count")
	if count == nil {
		return []instance{{scope: s}}
	}

	told := s.evaluate(count.Expr)
	plain, _ := told.Unmark()

	number, err := convert.Convert(plain, cty.Number)
	if err != nil || !number.IsKnown() || number.IsNull() {
		return []instance{{scope: s.with("count", unknown(s.why(told, count.Expr))), several: true}}
	}

	var made []instance

	// More are a mistake.
	for i := 0; i < maxCount && cty.NumberIntVal(int64(i)).LessThan(number).True(); i++ {
		index := cty.ObjectVal(map[string]cty.Value{"index": cty.NumberIntVal(int64(i))})
		made = append(made, instance{scope: s.with("count", index), several: true})
	}

	return made
}

// maxCount is more than a Proxmox has machines.
const maxCount = 10_000

func (s scope) each(expression hcl.Expression) []instance {
	told := s.evaluate(expression)

	over, _ := told.Unmark()
	if !over.CanIterateElements() {
		return []instance{{scope: s.with("each", unknown(s.why(told, expression))), several: true}}
	}

	var made []instance

	for key, value := range elements(over) {
		name, _ := key.Unmark()
		if name, err := convert.Convert(name, cty.String); err == nil && name.IsKnown() && !name.IsNull() {
			made = append(made, instance{scope: s.with("each", keyAndValue(key, value)), key: name.AsString()})
		} else {
			made = append(made, instance{scope: s.with("each", keyAndValue(key, value)), several: true})
		}
	}

	return made
}

// Resources are the instances of the resources of a type: those of the module in the order of its files, then those of
// the modules that it calls.
func (m *Module) Resources(kind string) ([]Resource, error) {
	var found []Resource

	for _, declared := range m.resources {
		if declared.Labels[0] != kind {
			continue
		}

		for _, one := range m.scope().instances(declared.Body) {
			found = append(found, Resource{Block: Block{m.at(declared.DefRange), declared.Body, one.scope}, Type: kind,
				Name: declared.Labels[1], Key: one.key, Several: one.several})
		}
	}

	for _, call := range m.calls {
		modules, err := m.called(call)
		if err != nil {
			return nil, err
		}

		for _, module := range modules {
			inner, err := module.Resources(kind)
			if err != nil {
				return nil, err
			}

			found = append(found, inner...)
		}
	}

	return found, nil
}

// Unread are the modules that come from elsewhere, as people are told: what they make is not known.
func (m *Module) Unread() []string {
	var names []string

	for _, call := range m.calls {
		if !call.local {
			names = append(names, fmt.Sprintf("module %s (%s)", call.Labels[0], m.at(call.DefRange)))
		}

		for _, module := range call.modules {
			names = append(names, module.Unread()...)
		}
	}

	slices.Sort(names)

	return slices.Compact(names)
}

// Error is a place where a file is not what the package can read.
type Error struct {
	Position

	Message string
}

// Error is path:line:column: message.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.Path, e.Line, e.Column, e.Message)
}
