package tofu

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// scope is what names stand for: what the module declares, and each, count and the iterators of dynamic blocks.
type scope struct {
	module *Module
	names  map[string]cty.Value
}

func (m *Module) scope() scope { return scope{module: m} }

func (s scope) with(name string, value cty.Value) scope {
	names := maps.Clone(s.names)
	if names == nil {
		names = map[string]cty.Value{}
	}

	names[name] = value

	return scope{s.module, names}
}

// Values carry their places and the reasons why they are unknown with them, as marks: Position and reason.
type reason string

// unknown is a value that only OpenTofu can tell.
func unknown(why string) cty.Value { return cty.DynamicVal.Mark(reason(why)) }

// evaluate is what an expression comes to. Places and reasons are at the innermost values alone.
func (s scope) evaluate(expression hcl.Expression) cty.Value {
	if pairs, mistakes := hcl.ExprMap(expression); !mistakes.HasErrors() {
		if object, told := s.object(pairs); told {
			return object
		}
	} else if items, mistakes := hcl.ExprList(expression); !mistakes.HasErrors() {
		values := make([]cty.Value, 0, len(items))
		for _, item := range items {
			values = append(values, s.evaluate(item))
		}

		return cty.TupleVal(values)
	}

	value, mistakes := expression.Value(s.context(expression))
	if err := s.module.mistake(mistakes); err != nil {
		value = unknown(err.Error())
	}

	return s.placed(value, expression)
}

// object is the one with these fields; false if the name of one can't be told.
func (s scope) object(pairs []hcl.KeyValuePair) (cty.Value, bool) {
	fields := map[string]cty.Value{}

	for _, pair := range pairs {
		key, mistakes := pair.Key.Value(s.context(pair.Key))
		key, _ = key.Unmark()
		key, err := convert.Convert(key, cty.String)

		if mistakes.HasErrors() || err != nil || !key.IsKnown() || key.IsNull() {
			return cty.NilVal, false
		}

		fields[key.AsString()] = s.evaluate(pair.Value)
	}

	return cty.ObjectVal(fields), true
}

// placed gives what is in a value the place of the expression, unless that only passes on what is written elsewhere.
func (s scope) placed(value cty.Value, expression hcl.Expression) cty.Value {
	value, marks := value.Unmark()

	if value.CanIterateElements() && value.LengthInt() > 0 && !value.Type().IsSetType() {
		fields, items := map[string]cty.Value{}, []cty.Value{}

		for key, inner := range elements(value) {
			inner = s.placed(inner, expression)

			if items = append(items, inner); key.Type() == cty.String {
				fields[key.AsString()] = inner
			}
		}

		switch kind := value.Type(); {
		case kind.IsObjectType():
			return cty.ObjectVal(fields)
		case kind.IsMapType():
			return cty.MapVal(fields)
		case kind.IsListType():
			return cty.ListVal(items)
		default:
			return cty.TupleVal(items)
		}
	}

	places := 0

	for mark := range marks {
		if _, isPlace := mark.(Position); isPlace {
			places++
		}
	}

	if places == 1 && passesOn(expression) {
		return value.WithMarks(marks)
	}

	for mark := range marks {
		if _, isPlace := mark.(Position); isPlace {
			delete(marks, mark)
		}
	}

	return value.WithMarks(marks).Mark(s.module.at(expression.Range()))
}

// elements are the keys and values of a list, a map or an object; of a set both are the value.
func elements(of cty.Value) iter.Seq2[cty.Value, cty.Value] {
	return func(yield func(cty.Value, cty.Value) bool) {
		for i := of.ElementIterator(); i.Next(); {
			if !yield(i.Element()) {
				return
			}
		}
	}
}

func passesOn(expression hcl.Expression) bool {
	switch expression.(type) {
	case *hclsyntax.LiteralValueExpr, *hclsyntax.TemplateExpr, *hclsyntax.ConditionalExpr, *hclsyntax.BinaryOpExpr,
		*hclsyntax.UnaryOpExpr:
		return false
	default:
		return true
	}
}

// told is what a block's attribute comes to.
func (s scope) told(expression hcl.Expression) Value {
	found := s.evaluate(expression)
	plain, marks := found.Unmark()
	value := Value{At: s.module.at(expression.Range())}

	for mark := range marks {
		if place, isPlace := mark.(Position); isPlace {
			value.At = place
		}
	}

	text, err := convert.Convert(plain, cty.String)

	switch {
	case !plain.IsKnown():
		value.Why = s.why(found, expression)
	case plain.IsNull():
		value.Null = true
	case err != nil || text.IsMarked():
		value.Why = fmt.Sprintf("it is no text or number (%s)", value.At)
	default:
		value.Text, value.Known = text.AsString(), true
	}

	return value
}

// why is the reason why a value can't be told.
func (s scope) why(value cty.Value, expression hcl.Expression) string {
	reasons := reasonsOf(value)

	if len(reasons) == 0 { // try loses them
		for _, stands := range s.context(expression).Variables {
			reasons = append(reasons, reasonsOf(stands)...)
		}

		reasons = append(reasons, slices.Collect(maps.Values(s.untold(expression)))...)
	}

	if len(reasons) == 0 {
		return fmt.Sprintf("only OpenTofu can tell it (%s)", s.module.at(expression.Range()))
	}

	return slices.Min(reasons)
}

func reasonsOf(value cty.Value) []string {
	var reasons []string

	_, marks := value.UnmarkDeep()
	for mark := range marks {
		if why, isReason := mark.(reason); isReason {
			reasons = append(reasons, string(why))
		}
	}

	return reasons
}

// context is what the names in an expression stand for.
func (s scope) context(expression hcl.Expression) *hcl.EvalContext {
	names := map[string]map[string]cty.Value{}
	context := &hcl.EvalContext{Variables: map[string]cty.Value{}, Functions: s.functions(expression)}

	for _, reference := range expression.Variables() {
		root := reference.RootName()
		if value, known := s.names[root]; known {
			context.Variables[root] = value

			continue
		}

		name, value := s.lookup(reference)
		if name == "" {
			context.Variables[root] = value

			continue
		}

		if names[root] == nil {
			names[root] = map[string]cty.Value{}
		}

		names[root][name] = value
	}

	for root, values := range names {
		if context.Variables[root] == cty.NilVal {
			context.Variables[root] = cty.ObjectVal(values)
		}
	}

	return context
}

// lookup is what a reference begins with: a name below var, local or module, or without a name the root itself.
func (s scope) lookup(reference hcl.Traversal) (name string, value cty.Value) {
	if len(reference) > 1 {
		switch step := reference[1].(type) {
		case hcl.TraverseAttr:
			name = step.Name
		case hcl.TraverseIndex:
			if step.Key.Type() == cty.String {
				name = step.Key.AsString()
			}
		}
	}

	switch root := reference.RootName(); {
	case root == "var" && name != "":
		if value, known := s.module.variables[name]; known {
			return name, value
		}

		return name, unknown(fmt.Sprintf("var.%s is not declared (%s)", name, s.module.at(reference.SourceRange())))
	case root == "local" && name != "":
		return name, s.module.local(name)
	case root == "module" && name != "":
		return name, s.module.output(name)
	default:
		return "", unknown(fmt.Sprintf("%s.%s is told when OpenTofu runs (%s)", root, cmp.Or(name, "…"),
			s.module.at(reference.SourceRange())))
	}
}

// functions are those that are known, and for others in the expression ones that tell nothing: they must not be taken
// for a mistake, which try would pass over.
func (s scope) functions(expression hcl.Expression) map[string]function.Function {
	others := s.untold(expression)
	if len(others) == 0 {
		return known
	}

	functions := maps.Clone(known)
	for name, why := range others {
		functions[name] = untold(why)
	}

	return functions
}

var functionCall = pattern.New(`([a-z][\w:-]*)\s*\(`)

// untold are the functions in an expression that are not evaluated here, with the reason. What only looks like one does
// no harm.
func (s scope) untold(expression hcl.Expression) map[string]string {
	at := expression.Range()

	text := s.module.texts[at.Filename]
	if !at.CanSliceBytes(text) {
		return nil
	}

	var found map[string]string

	for _, match := range functionCall.FindAllSubmatch(at.SliceBytes(text), -1) {
		name := string(match[1])
		if _, evaluated := known[name]; evaluated {
			continue
		}

		if found == nil {
			found = map[string]string{}
		}

		found[name] = fmt.Sprintf("the function %s is not evaluated here (%s)", name, s.module.at(at))
	}

	return found
}
