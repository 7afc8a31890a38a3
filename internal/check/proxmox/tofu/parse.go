package tofu

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// block is a block as it is written: its type and labels, and what is in it.
type block struct {
	labels     []string
	at         Position
	attributes map[string]expression
	blocks     []block
}

// in gives the block's expressions their scope.
func (b block) in(scope scope) Block {
	return Block{At: b.at, attributes: b.attributes, blocks: b.blocks, scope: scope}
}

// maxDepth is how deep brackets and blocks may be nested.
const maxDepth = 100

// parser reads the tokens of a file.
type parser struct {
	tokens []token
	next   int
	depth  int
}

func parseFile(path string, shown func(string) string) (block, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return block{}, fmt.Errorf("read OpenTofu file: %w", err)
	}

	return parse(shown(path), string(data))
}

// parse reads a file's blocks and attributes.
func parse(path, data string) (block, error) {
	p := &parser{tokens: scan(path, data)}

	body, err := p.body(end, "")
	if err != nil {
		return block{}, err
	}

	return body, nil
}

func (p *parser) peek() token { return p.tokens[p.next] }

func (p *parser) take() token {
	taken := p.tokens[p.next]
	if taken.kind != end {
		p.next++
	}

	return taken
}

func (t token) is(kind tokenKind, text string) bool {
	return t.kind == kind && (text == "" || t.text == text)
}

func (p *parser) fail(at token, message string) error {
	if at.kind == end {
		message = "ends too early: " + message
	}

	return &Error{Position: at.at, Message: message}
}

// body reads attributes and blocks up to a closing token.
func (p *parser) body(closing tokenKind, closingText string) (block, error) {
	body := block{attributes: map[string]expression{}, at: p.peek().at}

	if p.depth++; p.depth > maxDepth {
		return body, p.fail(p.peek(), "is nested too deep")
	}

	defer func() { p.depth-- }()

	for {
		switch head := p.take(); {
		case head.is(closing, closingText):
			return body, nil
		case head.kind == newline:
		case head.kind != word && head.kind != text:
			return body, p.fail(head, "an attribute or a block was expected")
		case p.peek().is(sign, "="):
			p.take()

			body.attributes[head.text] = p.expression()
		default:
			inner, err := p.block(head)
			if err != nil {
				return body, err
			}

			body.blocks = append(body.blocks, inner)
		}
	}
}

// block reads labels and what is between the braces.
func (p *parser) block(head token) (block, error) {
	labels := []string{head.text}

	for p.peek().kind == word || p.peek().kind == text {
		labels = append(labels, p.take().text)
	}

	if brace := p.take(); !brace.is(sign, "{") {
		return block{}, p.fail(brace, "= or { was expected after "+head.text)
	}

	inner, err := p.body(sign, "}")
	inner.labels, inner.at = labels, head.at

	return inner, err
}

// expression takes the tokens of one expression: up to the end of the line, a comma or a closing bracket outside of
// brackets of its own.
func (p *parser) expression() expression {
	first, depth := p.next, 0

	for {
		switch head := p.peek(); {
		case head.kind == end:
			return expression{p.tokens[first:p.next], head.at}
		case depth == 0 && (head.kind == newline || head.is(sign, ",") || closes(head)):
			return expression{p.tokens[first:p.next], p.tokens[first].at}
		case opens(head):
			depth++
		case closes(head):
			depth--
		}

		p.take()
	}
}

func opens(t token) bool { return t.kind == sign && strings.Contains("{[(", t.text) }

func closes(t token) bool { return t.kind == sign && strings.Contains("}])", t.text) }

// expression is an expression that was not evaluated yet.
type expression struct {
	tokens []token
	at     Position
}

// scope is what names stand for.
type scope struct {
	variables map[string]Value
	locals    map[string]expression
	// loops are the variables of for and for_each.
	loops []Field
	// busy are the locals that are being evaluated: one that needs itself is unknown.
	busy map[string]bool
	// depth counts expressions within expressions, and left how many may still be evaluated: files can be written that
	// never end.
	depth int
	left  *int
}

// maxExpressions is how many expressions are evaluated in a folder; a thousand machines take a few ten thousand.
const maxExpressions = 1_000_000

func newScope() scope {
	left := maxExpressions

	return scope{variables: map[string]Value{}, locals: map[string]expression{}, busy: map[string]bool{}, left: &left}
}

// with adds a loop's variable.
func (s scope) with(name string, value Value) scope {
	s.loops = append(slices.Clone(s.loops), Field{name, value})

	return s
}

// lookup is what a name stands for at the beginning of a reference, and how many more names it took.
func (s scope) lookup(names []string) (Value, int) {
	for _, loop := range slices.Backward(s.loops) {
		if loop.Name == names[0] {
			return loop.Value, 1
		}
	}

	if len(names) < 2 {
		return Value{}, len(names)
	}

	switch names[0] {
	case "var":
		return s.variables[names[1]], 2
	case "local":
		expression, known := s.locals[names[1]]
		if !known || s.busy[names[1]] {
			return Value{}, 2
		}

		s.busy[names[1]] = true
		defer delete(s.busy, names[1])

		s.loops = nil

		return expression.evaluate(s), 2
	default:
		return Value{}, len(names)
	}
}

// evaluate is what the expression comes to, as far as it can be told.
func (e expression) evaluate(scope scope) Value {
	scope.depth++
	*scope.left--

	if scope.depth > maxDepth || *scope.left < 0 {
		return Value{At: e.at}
	}

	p := &parser{tokens: append(slices.Clone(e.tokens), token{kind: end})}
	value := p.value(scope)

	p.newlines()

	if p.peek().kind != end {
		value = Value{} // an operator follows
	}

	if value.At == (Position{}) || value.Kind == Unknown {
		value.At = e.at
	}

	return value
}

func (p *parser) newlines() {
	for p.peek().kind == newline {
		p.take()
	}
}

// value reads one operand.
func (p *parser) value(scope scope) Value {
	p.newlines()

	switch head := p.take(); {
	case head.kind == number:
		return Value{Kind: Scalar, Text: head.text, At: head.at}
	case head.is(sign, "-") && p.peek().kind == number:
		return Value{Kind: Scalar, Text: "-" + p.take().text, At: head.at}
	case head.kind == text:
		return template(head, scope)
	case head.is(word, "true"), head.is(word, "false"):
		return Value{Kind: Scalar, Text: head.text, At: head.at}
	case head.is(word, "null"):
		return Value{Kind: Null, At: head.at}
	case head.kind == word && p.peek().is(sign, "("):
		p.take()

		return p.call(head, scope)
	case head.kind == word:
		return p.reference(head, scope)
	case head.is(sign, "["):
		return p.list(head, scope)
	case head.is(sign, "{"):
		return p.object(head, scope)
	case head.is(sign, "("):
		inner := p.expression()
		p.take()

		return inner.evaluate(scope)
	default:
		return Value{At: head.at}
	}
}

// template is a string: the text itself, or one that references are put into.
func template(head token, scope scope) Value {
	made, rest := "", head.text

	for {
		before, after, found := strings.Cut(rest, "${")
		if strings.Contains(before, "%{") {
			return Value{At: head.at}
		}

		made += unescape(before)

		if !found {
			return Value{Kind: Scalar, Text: made, At: head.at}
		}

		inner, following, closed := strings.Cut(after, "}")
		if !closed || strings.Contains(inner, "{") {
			return Value{At: head.at}
		}

		tokens := scan(head.at.Path, inner)
		value := expression{tokens[:len(tokens)-1], head.at}.evaluate(scope)

		if value.Kind != Scalar {
			return Value{At: head.at}
		}

		if before == "" && following == "" && made == "" {
			return value // "${x}" is x
		}

		made, rest = made+value.Text, following
	}
}

var escapes = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\n`, "\n", `\t`, "\t", `\r`, "\r")

func unescape(text string) string { return escapes.Replace(text) }

// reference is var.a.b, local.a, each.value.b or a loop's variable, with indices.
func (p *parser) reference(head token, scope scope) Value {
	names := []string{head.text}

	for {
		switch {
		case p.peek().is(sign, "."):
			p.take()

			names = append(names, p.take().text)
		case p.peek().is(sign, "["):
			p.take()
			index := p.expression().evaluate(scope)
			p.take()

			names = append(names, index.Text)

			if index.Kind != Scalar {
				return Value{At: head.at}
			}
		default:
			value, used := scope.lookup(names)
			for _, name := range names[used:] {
				value = value.Get(name)
			}

			if value.Kind == Unknown {
				value.At = head.at
			}

			return value
		}
	}
}

// arguments are the expressions up to the closing bracket.
func (p *parser) arguments() []expression {
	var list []expression

	for {
		p.newlines()

		if p.peek().kind == end || closes(p.peek()) {
			p.take()

			return list
		}

		if argument := p.expression(); len(argument.tokens) > 0 {
			list = append(list, argument)
		}

		p.newlines()

		if p.peek().is(sign, ",") {
			p.take()
		}
	}
}

// call is a function's result.
func (p *parser) call(head token, scope scope) Value {
	unknown := Value{At: head.at}

	var values []Value
	for _, argument := range p.arguments() {
		values = append(values, argument.evaluate(scope))
	}

	switch {
	case len(values) == 0:
		return unknown
	case head.text == "try":
		return values[0] // an unknown one may be an error or not
	case head.text == "coalesce":
		for _, value := range values {
			if value.Kind != Null {
				return value
			}
		}
	case head.text == "lookup" && len(values) > 1 && values[0].Kind == Object:
		for _, field := range values[0].Fields {
			if field.Name == values[1].Text {
				return field.Value
			}
		}

		if len(values) == 3 {
			return values[2]
		}
	case head.text == "merge":
		return merged(values, head.at)
	case (head.text == "toset" || head.text == "tomap" || head.text == "tolist") && len(values) == 1:
		return values[0]
	}

	return unknown
}

// merged is one object of several.
func merged(values []Value, at Position) Value {
	made := Value{Kind: Object, At: at}

	for _, value := range values {
		if value.Kind != Object {
			return Value{At: at}
		}

		for _, field := range value.Fields {
			made.set(field.Name, field.Value)
		}
	}

	return made
}

// set adds a field, or replaces it.
func (v *Value) set(name string, value Value) {
	for i := range v.Fields {
		if v.Fields[i].Name == name {
			v.Fields[i].Value = value

			return
		}
	}

	v.Fields = append(v.Fields, Field{name, value})
}

func (p *parser) list(head token, scope scope) Value {
	if p.peekWord("for") {
		return p.loop(head, scope)
	}

	made := Value{Kind: List, At: head.at}
	for _, item := range p.arguments() {
		made.Items = append(made.Items, item.evaluate(scope))
	}

	return made
}

func (p *parser) peekWord(text string) bool {
	p.newlines()

	return p.peek().is(word, text)
}

func (p *parser) object(head token, scope scope) Value {
	if p.peekWord("for") {
		return p.loop(head, scope)
	}

	made := Value{Kind: Object, At: head.at}

	for {
		p.newlines()

		key := p.take()
		name := key.text

		switch {
		case key.kind == end, closes(key):
			return made
		case key.is(sign, ","):
			continue
		case key.is(sign, "("):
			computed := p.expression().evaluate(scope)
			p.take()

			if name = computed.Text; computed.Kind != Scalar {
				return p.giveUp(head)
			}
		case key.kind == text:
			computed := template(key, scope)
			if name = computed.Text; computed.Kind != Scalar {
				return p.giveUp(head)
			}
		case key.kind != word && key.kind != number:
			return p.giveUp(head)
		}

		if between := p.take(); !between.is(sign, "=") && !between.is(sign, ":") {
			return p.giveUp(head)
		}

		made.set(name, p.expression().evaluate(scope))
	}
}

// giveUp moves behind the bracket that is open, and knows nothing of what is in it.
func (p *parser) giveUp(head token) Value {
	for {
		p.expression()

		switch following := p.take(); {
		case following.kind == end, closes(following):
			return Value{At: head.at}
		}
	}
}

// loop is a list or an object that for makes. One with a condition is unknown, unless there is nothing to loop over.
func (p *parser) loop(head token, outer scope) Value {
	p.take() // for

	names := []string{p.take().text}

	if p.peek().is(sign, ",") {
		p.take()

		names = append(names, p.take().text)
	}

	if !p.take().is(word, "in") {
		return p.giveUp(head)
	}

	over, results := p.loopParts()
	p.take() // the closing bracket

	from := over.evaluate(outer)
	if from.Kind != List && from.Kind != Object || len(results) == 0 {
		return Value{At: head.at}
	}

	made := Value{Kind: List, At: head.at}
	if len(results) == 2 {
		made.Kind = Object
	}

	for i, item := range pairs(from) {
		if from.Kind == List {
			item.key = Value{Kind: Scalar, Text: strconv.Itoa(i), At: item.value.At}
		}

		inner := outer.with(names[len(names)-1], item.value)
		if len(names) == 2 {
			inner = inner.with(names[0], item.key)
		}

		if made.Kind == List {
			made.Items = append(made.Items, results[0].evaluate(inner))

			continue
		}

		key := results[0].evaluate(inner)
		if key.Kind != Scalar {
			return Value{At: head.at}
		}

		made.set(key.Text, results[1].evaluate(inner))
	}

	return made
}

// loopParts are what a loop goes over, and the expressions of its results: one, or key and value; none when there is a
// condition.
func (p *parser) loopParts() (over expression, results []expression) {
	parts := []expression{{at: p.peek().at}}
	depth, conditional := 0, false

	for {
		head := p.peek()

		switch {
		case head.kind == end, depth == 0 && closes(head):
			if conditional || slices.ContainsFunc(parts, func(part expression) bool { return len(part.tokens) == 0 }) ||
				len(parts) > 3 {
				return parts[0], nil
			}

			return parts[0], parts[1:]
		case depth == 0 && (head.is(sign, ":") || head.is(sign, "=>")):
			p.take()
			parts = append(parts, expression{at: p.peek().at})

			continue
		case depth == 0 && head.is(word, "if"):
			conditional = true
		case opens(head):
			depth++
		case closes(head):
			depth--
		}

		last := &parts[len(parts)-1]
		if p.take(); head.kind != newline || depth > 0 || len(last.tokens) > 0 {
			last.tokens = append(last.tokens, head)
		}
	}
}
