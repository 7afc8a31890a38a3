package migrate

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/yamltree"
	"github.com/talos-mage/talos-mage/internal/machineconfig/rewrite"
)

// editor changes a YAML text in place: all lines that are not changed stay as they are.
type editor struct {
	lines []string
	root  *yaml.Node
	edits []edit
}

// edit puts lines in the place of others: those from from up to to, from 0.
type edit struct {
	from, to int
	lines    []string
}

// newEditor reads the first document of a text. The root is nil if there is none.
func newEditor(data []byte) (*editor, error) {
	made := &editor{lines: strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")}

	var document yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&document); err != nil {
		return nil, err
	}

	if len(document.Content) == 1 {
		made.root = document.Content[0]
	}

	return made, nil
}

func (e *editor) replace(from, to int, lines ...string) {
	e.edits = append(e.edits, edit{from, to, lines})
}

// text is what the edits make. Of several at one place what is deeper comes first: it belongs to what ends there.
func (e *editor) text() []byte {
	depth := func(one edit) int {
		if one.to > one.from || len(one.lines) == 0 {
			return -1 // it stands there itself
		}

		return rewrite.Indentation(one.lines[0])
	}

	slices.SortStableFunc(e.edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(depth(b), depth(a)))
	})

	var out []string

	at := 0

	for _, one := range e.edits {
		out = append(out, e.lines[at:max(at, one.from)]...)
		out = append(out, one.lines...)
		at = max(at, one.to)
	}

	return []byte(strings.Join(append(out, e.lines[at:]...), "\n") + "\n")
}

// blockEnd is the line behind a block that begins in a line and is indented more than a column. Blank lines and
// comments at its end belong to what follows.
func (e *editor) blockEnd(start, column int) int {
	end := start + 1

	for at := end; at < len(e.lines); at++ {
		switch indent := rewrite.Indentation(e.lines[at]); {
		case indent < 0, indent <= column && strings.HasPrefix(strings.TrimSpace(e.lines[at]), "#"):
		case indent > column:
			end = at + 1
		default:
			return end
		}
	}

	return end
}

// item is the span of an item of a block list, and the column of its dash; false if it stands in brackets.
func (e *editor) item(node *yaml.Node) (from, to, dash int, ok bool) {
	line := node.Line - 1
	dash = rewrite.Indentation(e.lines[line])

	if dash < 0 || !strings.HasPrefix(e.lines[line][dash:], "-") {
		return 0, 0, 0, false
	}

	return line, e.blockEnd(line, dash), dash, true
}

// setItem replaces the text of an item. The head of a literal one stays as it is.
func (e *editor) setItem(node *yaml.Node, text string) bool {
	from, to, dash, ok := e.item(node)
	if !ok {
		return false
	}

	head, indent := strings.Repeat(" ", dash)+"- |-", dash+2

	if node.Style&yaml.LiteralStyle != 0 {
		head = e.lines[from]

		for _, line := range e.lines[from+1 : to] {
			if found := rewrite.Indentation(line); found >= 0 {
				indent = found

				break
			}
		}
	}

	head = strings.Replace(head, "|-", literalHead(text), 1)

	e.replace(from, to, append([]string{head}, indented(text, indent)...)...)

	return true
}

// dropItem takes an item out.
func (e *editor) dropItem(node *yaml.Node) bool {
	from, to, _, ok := e.item(node)
	if ok {
		e.replace(from, to)
	}

	return ok
}

func indented(text string, by int) []string {
	var lines []string

	if text == "" {
		return nil
	}

	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		if line != "" {
			line = strings.Repeat(" ", by) + line
		}

		lines = append(lines, line)
	}

	return lines
}

// step is the indentation of the file's mappings below its root.
func (e *editor) step() int {
	const usual = 2

	for i := 1; e.root != nil && i < len(e.root.Content); i += 2 {
		if below := e.root.Content[i]; below.Kind == yaml.MappingNode && below.Style&yaml.FlowStyle == 0 &&
			below.Column > 1 {
			return below.Column - 1
		}
	}

	return usual
}

// patchItem are the lines of a new item: a text, or a reference to a file.
func patchItem(text string, dash int) []string {
	if strings.HasPrefix(text, "@") {
		return []string{strings.Repeat(" ", dash) + `- "` + text + `"`}
	}

	return append([]string{strings.Repeat(" ", dash) + "- " + literalHead(text)}, indented(text, dash+2)...)
}

// blockScalar is the head of a text in lines of their own.
var blockScalar = pattern.New(`(?m)[:-] [|>][0-9+]*([ \t]+#.*)?$`)

// literalHead is that of a text that stands in another. Its last newline may be that of a value that ends there.
func literalHead(text string) string {
	if blockScalar.MatchString(text) {
		return "|"
	}

	return "|-"
}

// isShared reports whether a mapping's list of patches is another's too, by an alias: what is added to it reaches both.
func (e *editor) isShared(owner *yaml.Node) bool {
	for i := 0; owner != nil && i+1 < len(owner.Content); i += 2 {
		if list := owner.Content[i+1]; owner.Content[i].Value == "patches" {
			return list.Kind == yaml.AliasNode || list.Anchor != "" && refersTo(e.root, list)
		}
	}

	return false
}

func refersTo(node, anchored *yaml.Node) bool {
	return node.Alias == anchored ||
		slices.ContainsFunc(node.Content, func(child *yaml.Node) bool { return refersTo(child, anchored) })
}

// addPatches adds patches to the list of a mapping: all nodes' that is the root, a group's, or a node's. False if the
// list stands in brackets.
func (e *editor) addPatches(owner *yaml.Node, ownerKey string, texts []string) bool {
	var added []string

	if owner == nil && ownerKey != "" { // the group is not there yet
		added = append(added, ownerKey+":", strings.Repeat(" ", e.step())+"patches:")
		for _, text := range texts {
			added = append(added, patchItem(text, 2*e.step())...)
		}

		e.replace(len(e.lines), len(e.lines), added...)

		return true
	}

	key, list := keyNode(owner, "patches"), value(owner, "patches")

	switch {
	case e.isShared(owner):
		return false
	case key == nil:
		return e.addList(owner, texts)
	case len(items(list)) > 0:
		last := list.Content[len(list.Content)-1]

		_, to, dash, ok := e.item(last)
		if !ok {
			return false
		}

		for _, text := range texts {
			added = append(added, patchItem(text, dash)...)
		}

		e.replace(to, to, added...)

		return true
	default: // it is empty
		column := key.Column - 1
		added = append(added, strings.Repeat(" ", column)+"patches:")

		for _, text := range texts {
			added = append(added, patchItem(text, column+e.step())...)
		}

		if strings.TrimSpace(e.lines[key.Line-1][:column]) != "" {
			return false
		}

		e.replace(key.Line-1, key.Line, added...)

		return true
	}
}

// addList adds a list of patches to a mapping that has none, behind its last key.
func (e *editor) addList(owner *yaml.Node, texts []string) bool {
	if owner == nil || len(owner.Content) == 0 || owner.Style&yaml.FlowStyle != 0 {
		return false
	}

	column := owner.Content[0].Column - 1
	last := owner.Content[len(owner.Content)-2]
	at := e.entryEnd(last, owner.Content[len(owner.Content)-1])
	added := []string{strings.Repeat(" ", column) + "patches:"}

	for _, text := range texts {
		added = append(added, patchItem(text, column+e.step())...)
	}

	e.replace(at, at, added...)

	return true
}

// entryEnd is the line behind a key's value.
func (e *editor) entryEnd(key, of *yaml.Node) int {
	column := key.Column - 1
	if of.Kind == yaml.SequenceNode && of.Style&yaml.FlowStyle == 0 && of.Column-1 == column && len(of.Content) > 0 {
		return e.blockEnd(of.Content[len(of.Content)-1].Line-1, column) // its dashes stand below the key
	}

	return e.blockEnd(key.Line-1, column)
}

// setLine gives a key of a mapping at the root a value, or adds it at the end.
func (e *editor) setLine(key, value string) {
	line := key + ": " + value

	for i := 0; e.root != nil && i+1 < len(e.root.Content); i += 2 {
		if found := e.root.Content[i]; found.Value == key {
			e.replace(found.Line-1, found.Line, line)

			return
		}
	}

	e.replace(len(e.lines), len(e.lines), line)
}

// setKey gives a key of a mapping a value, or adds it: behind another key, or as the last. Comments may stand in the
// lines above it.
func (e *editor) setKey(mapping *yaml.Node, behind string, lines ...string) {
	last := len(lines) - 1
	name, text, _ := strings.Cut(lines[last], ": ")

	switch set := value(mapping, name); {
	case set != nil:
		e.setScalar(set, text)
	case mapping.Style&yaml.FlowStyle != 0:
		line := e.lines[mapping.Line-1]
		inside := line[:mapping.Column] + lines[last] + ", " + line[mapping.Column:]
		comments := indented(strings.Join(lines[:last], "\n"), rewrite.Indentation(line))

		e.replace(mapping.Line-1, mapping.Line, append(comments, inside)...)
	default:
		key := keyNode(mapping, behind)
		if key == nil {
			key = mapping.Content[len(mapping.Content)-2]
		}

		at := e.entryEnd(key, yamltree.Field(mapping, key.Value))
		e.replace(at, at, indented(strings.Join(lines, "\n"), key.Column-1)...)
	}
}

// setScalar replaces a value that stands in one line.
func (e *editor) setScalar(node *yaml.Node, text string) {
	line, from := e.lines[node.Line-1], node.Column-1
	width := len(node.Value)

	if node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		width += 2
	}

	e.replace(node.Line-1, node.Line, line[:from]+text+line[from+width:])
}
