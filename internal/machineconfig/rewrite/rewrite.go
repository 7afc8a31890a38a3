// Package rewrite turns strategic merge patches of the older form of machine configs into the documents of Talos 1.14
// that say the same. It works on the text: what is not replaced stays as it is written, and so do the values that move.
package rewrite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/yamltree"
	"github.com/talos-mage/talos-mage/internal/machineconfig/successor"
)

// Patch is what became of a patch.
type Patch struct {
	// Text is the patch for all nodes; empty if nothing is left of it.
	Text string
	// ControlPlane is what only control planes may get of it; empty if there is nothing.
	ControlPlane string
	// Installs are documents that need each node's own disk, which goes behind them: see Installs.
	Installs []string
	// Moved are the fields that documents say now.
	Moved []Move
	// Decisions are what a person has to decide first.
	Decisions []Decision
	// Kept are fields that stay as they are, since no document says the same and Talos takes them.
	Kept []Decision
}

// Changed reports whether the patch is another now.
func (p Patch) Changed() bool { return len(p.Moved) > 0 }

// Move is a field that a document says now.
type Move struct {
	Field, To    string
	Line, Column int
}

// Decision is a field that nothing translates, with what to do about it.
type Decision struct {
	Field, Why   string
	Line, Column int
}

// Options say what is known of the nodes that get a patch.
type Options struct {
	// SplitRoles puts what only control planes may have into a text of its own.
	SplitRoles bool
	// Disk is the expression that selects the disk of every node that gets the patch; empty if they differ. Whatever a
	// patch says of an installation has to say it, since Talos takes an expression that a patch leaves out for none
	// (pkg/machinery/cel, Expression.Merge).
	Disk string
	// Schedules is set where workloads run on the control planes without the patch.
	Schedules bool
	// Discovers is set where nodes ask the discovery service without the patch.
	Discovers bool
	// NewDefaults is set where nodes are to do what Talos 1.14 does by default.
	NewDefaults bool
}

// Strategic rewrites a strategic merge patch. Text that is no YAML is an error of the parser.
func Strategic(patch string, options Options) (Patch, error) {
	var result Patch

	var forAll, forControlPlanes []string

	parts, err := split(patch)
	if err != nil {
		return Patch{}, err
	}

	for _, part := range parts {
		done := part.rewrite(options)

		result.Moved = append(result.Moved, done.moved...)
		result.Decisions = append(result.Decisions, done.decisions...)
		result.Kept = append(result.Kept, done.kept...)

		if len(done.moved) == 0 {
			forAll = append(forAll, part.text())

			continue
		}

		if left := strings.Join(done.left, "\n"); saysSomething(left) {
			forAll = append(forAll, strings.Trim(left, "\n")+"\n")
		}

		for _, made := range done.documents {
			text := strings.Join(made.lines(), "\n") + "\n"

			switch {
			case made.lacksDisk():
				result.Installs = append(result.Installs, text)
			case made.controlPlane && options.SplitRoles && !made.deletes:
				forControlPlanes = append(forControlPlanes, text)
			default:
				forAll = append(forAll, text)
			}
		}
	}

	if !result.Changed() {
		result.Text = patch

		return result, nil
	}

	result.Text, result.ControlPlane = strings.Join(forAll, "---\n"), strings.Join(forControlPlanes, "---\n")

	return result, nil
}

func saysSomething(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && line != "---" {
			return true
		}
	}

	return false
}

// part is one document of a patch with the lines that it stands in.
type part struct {
	root  *yaml.Node
	lines []string
	// first is the number of its first line in the patch, from 0.
	first int
}

func (p part) text() string { return strings.Trim(strings.Join(p.lines, "\n"), "\n") + "\n" }

// split takes a patch apart at its document marks.
func split(patch string) ([]part, error) {
	var parts []part

	lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(patch, "\r\n", "\n"), "\n"), "\n")
	first := 0

	for i := 0; i <= len(lines); i++ {
		if i < len(lines) && lines[i] != "---" && !strings.HasPrefix(lines[i], "--- ") {
			continue
		}

		one := part{lines: lines[first:i], first: first}
		if first = i + 1; !saysSomething(strings.Join(one.lines, "\n")) {
			if len(one.lines) > 0 && i < len(lines) { // comments above the first mark stay with what follows
				first = i + 1
			}

			continue
		}

		if err := one.parse(); err != nil {
			return nil, err
		}

		parts = append(parts, one)
	}

	return parts, nil
}

func (p *part) parse() (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = errors.New("unexpected structure")
		}
	}()

	var root yaml.Node

	// Lines in front keep the places of what is wrong.
	padded := strings.Repeat("\n", p.first) + strings.Join(p.lines, "\n") + "\n"

	switch err := yaml.NewDecoder(bytes.NewReader([]byte(padded))).Decode(&root); {
	case errors.Is(err, io.EOF), err == nil && len(root.Content) == 0:
		return nil
	case err != nil:
		return err
	}

	shift(&root, p.first)
	p.root = root.Content[0]

	return nil
}

// shift moves the places of a tree up by a number of lines.
func shift(node *yaml.Node, by int) {
	node.Line -= by

	for _, child := range node.Content {
		shift(child, by)
	}
}

// rewritten is what became of a part.
type rewritten struct {
	left      []string
	documents []*document
	moved     []Move
	decisions []Decision
	kept      []Decision
}

func (p part) rewrite(options Options) rewritten {
	if p.root == nil || yamltree.Field(p.root, "kind") != nil {
		return rewritten{left: p.lines}
	}

	removed := removedSections(expanded(p.root), nil)
	if undecided := p.undecided(removed); len(undecided) > 0 || len(removed)+len(successor.Find(expanded(p.root))) == 0 {
		return rewritten{left: p.lines, decisions: undecided}
	}

	places := placesOf(successor.Find(expanded(p.root)), removed)

	if referencesCross(p.root) || hasFlow(p.root) {
		p = p.inBlocks()
	}

	builder := &builder{part: p, options: options, places: places}

	return builder.build()
}

// inBlocks is the part with its references put in, and with its mappings in lines of their own.
func (p part) inBlocks() part {
	p.liftComments(p.root)

	spread := part{lines: encoded(expanded(p.root)), first: p.first}
	if err := spread.parse(); err != nil || spread.root == nil {
		return p
	}

	return spread
}

// hasFlow reports whether a mapping that holds replaced fields is written in braces.
func hasFlow(root *yaml.Node) bool {
	var inFlow func(node *yaml.Node, depth int) bool

	inFlow = func(node *yaml.Node, depth int) bool {
		if node.Kind != yaml.MappingNode {
			return false
		}

		if node.Style&yaml.FlowStyle != 0 && len(node.Content) > 0 {
			return true
		}

		for i := 1; i < len(node.Content) && depth > 0; i += 2 {
			if inFlow(node.Content[i], depth-1) {
				return true
			}
		}

		return false
	}

	const deepest = 4

	return inFlow(root, deepest)
}

// placesOf are the lines and columns of fields and sections, by their names.
func placesOf(found []successor.Found, sections []section) map[string][2]int {
	places := map[string][2]int{}
	for _, one := range sections {
		places[one.name] = [2]int{one.key.Line, one.key.Column}
	}

	for _, one := range found {
		places[one.Name()] = [2]int{one.At.Line, one.At.Column}
	}

	return places
}

// builder makes the documents of one part.
type builder struct {
	part

	options Options
	places  map[string][2]int
	result  rewritten
	// gone are the entries that move.
	gone []entry
	// first are the documents that fields went to, by the lines of the fields.
	first map[int]*document
}

func (b *builder) build() rewritten {
	b.first = map[int]*document{}

	for _, section := range removedSections(b.root, nil) {
		b.remove(section)
	}

	for _, found := range successor.Find(b.root) {
		b.translate(found)
	}

	for _, made := range b.result.documents {
		if made.lacksDisk() && b.options.Disk != "" {
			made.keys.set(diskKey, plain(b.options.Disk))
		}
	}

	b.result.left = b.without()

	return b.result
}

// translate moves one field, or says why not.
func (b *builder) translate(found successor.Found) {
	at := entryOf(b.lines, found.At, found.Value)
	before := len(b.result.documents)
	verdict := ruleOf(found.Field)(&moving{Found: found, builder: b, entry: at})

	place := b.places[found.Name()]
	line, column := place[0]+b.part.first, place[1]

	switch verdict.what {
	case decides:
		b.result.decisions = append(b.result.decisions, Decision{found.Name(), verdict.why, line, column})
	case keeps:
		b.result.kept = append(b.result.kept, Decision{found.Name(), verdict.why, line, column})
	case moves:
		b.gone = append(b.gone, at)
		b.result.moved = append(b.result.moved, Move{found.Name(), verdict.why, line, column})

		if len(b.result.documents) > before {
			b.first[at.start] = b.result.documents[before]

			if rest := strings.TrimSpace(fragmentOf(b.lines, at).rest); strings.HasPrefix(rest, "#") {
				b.result.documents[before].keep([]string{rest})
			}

			b.result.documents[before].keep(dedented(b.lines[at.head:at.start], found.At.Column-1))
		}
	}
}

// document finds or makes one.
func (b *builder) document(kind, name string, controlPlane bool) *document {
	for _, one := range b.result.documents {
		if one.kind == kind && one.name == name && one.controlPlane == controlPlane && !one.deletes {
			return one
		}
	}

	made := &document{kind: kind, name: name, controlPlane: controlPlane}
	b.result.documents = append(b.result.documents, made)

	return made
}

// without are the lines that are left: without what moved, and without the keys that nothing is left below. Comments
// above such keys go to the first document that was made of what stood there.
func (b *builder) without() []string {
	drop := make([]bool, len(b.lines))

	for _, one := range b.gone {
		for i := one.head; i < one.end; i++ {
			drop[i] = true
		}
	}

	if b.clear(b.root, drop) {
		var comments []string

		for i, line := range b.lines {
			if !drop[i] && isComment(line) {
				comments = append(comments, strings.TrimLeft(line, " "))
			}
		}

		if len(b.result.documents) > 0 {
			first := b.result.documents[0]
			first.comments = slices.Concat(comments, first.comments)
		}

		return nil
	}

	var left []string

	for i, line := range b.lines {
		if !drop[i] {
			left = append(left, line)
		}
	}

	return left
}

// clear drops the keys below a mapping that are empty now, and reports whether all of its keys are gone.
func (b *builder) clear(mapping *yaml.Node, drop []bool) bool {
	empty := true

	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]

		if drop[key.Line-1] {
			continue
		}

		isEmpty := value.Kind == yaml.MappingNode && len(value.Content) > 0 && b.clear(value, drop)
		if !isEmpty {
			empty = false

			continue
		}

		at := entryOf(b.lines, key, value)
		comments := dedented(b.lines[at.head:at.start], key.Column-1)

		for line := at.head; line < at.end; line++ {
			if line >= at.start && !drop[line] && isComment(b.lines[line]) {
				comments = append(comments, strings.TrimLeft(b.lines[line], " "))
			}

			drop[line] = true
		}

		if first := b.firstIn(at); first != nil {
			first.comments = slices.Concat(comments, first.comments)
		}
	}

	return empty
}

// firstIn is the first document that was made of what stood in an entry.
func (b *builder) firstIn(at entry) *document {
	for line := at.start; line < at.end; line++ {
		if made := b.first[line]; made != nil {
			return made
		}
	}

	return nil
}

// String is the move for people.
func (m Move) String() string { return fmt.Sprintf("%s → %s", m.Field, m.To) }
