package rewrite

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/yamltree"
	"github.com/talos-mage/talos-mage/internal/machineconfig/successor"
)

// entry is a key of a block mapping with its value, as it stands in the text.
type entry struct {
	key, value *yaml.Node
	// head is the first line of the comments above it, start its own first line, end the line behind its last; all count
	// from 0.
	head, start, end int
}

// Indentation is the column of a line's first character; -1 for a blank line.
func Indentation(line string) int {
	if trimmed := strings.TrimLeft(line, " "); strings.TrimSpace(trimmed) != "" {
		return len(line) - len(trimmed)
	}

	return -1
}

func isComment(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "#") }

// entryOf finds where a key of a block mapping and its value stand in the lines.
func entryOf(lines []string, key, value *yaml.Node) entry {
	found := entry{key: key, value: value, start: key.Line - 1, head: key.Line - 1}
	column := key.Column - 1

	for found.head > 0 && isComment(lines[found.head-1]) && Indentation(lines[found.head-1]) == column {
		found.head--
	}

	if !startsLine(lines[found.start], column) {
		found.head = found.start // behind the dash of an item
	}

	found.end = found.start + 1

	for at := found.end; at < len(lines); at++ {
		switch indent := Indentation(lines[at]); {
		case indent < 0, isComment(lines[at]) && indent <= column:
			continue // it belongs to what follows, which may be this value
		case indent > column, indent == column && isItem(lines[at]) && isListOf(value, column):
			found.end = at + 1
		default:
			return found
		}
	}

	return found
}

func isListOf(value *yaml.Node, column int) bool {
	return value.Kind == yaml.SequenceNode && value.Column-1 == column
}

func isItem(line string) bool {
	trimmed := strings.TrimSpace(line)

	return trimmed == "-" || strings.HasPrefix(trimmed, "- ")
}

func startsLine(line string, column int) bool {
	return strings.TrimSpace(line[:min(column, len(line))]) == ""
}

// fragment is what stands behind a key: the rest of its line, and the lines below, which are indented relative to the
// key.
type fragment struct {
	comments []string
	rest     string
	below    []string
}

// fragmentOf takes an entry's value out of the lines as it is written there.
func fragmentOf(lines []string, at entry) fragment {
	column := at.key.Column - 1

	return fragment{
		comments: dedented(lines[at.head:at.start], column),
		rest:     strings.TrimRight(lines[at.start][column+keyWidth(lines[at.start][column:], at.key):], " \t"),
		below:    withoutEnd(dedented(lines[at.start+1:at.end], column)),
	}
}

// keyWidth is how many bytes of a line a key and its colon take.
func keyWidth(line string, key *yaml.Node) int {
	from := len(key.Value)

	if key.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		from = 1 + strings.Index(line[1:], line[:1])
	}

	return from + strings.Index(line[from:], ":") + 1
}

func dedented(lines []string, column int) []string {
	var out []string

	for _, line := range lines {
		if indent := Indentation(line); indent >= column {
			line = line[column:]
		} else {
			line = strings.TrimLeft(line, " ")
		}

		out = append(out, strings.TrimRight(line, " \t\r"))
	}

	return out
}

func withoutEnd(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}

	return lines
}

// written is a value that is made up, or that does not stand in lines of its own.
func written(value *yaml.Node) fragment {
	if value.Kind == yaml.ScalarNode && !strings.Contains(value.Value, "\n") {
		return fragment{rest: " " + strings.Join(encoded(value), " ")}
	}

	wrapped := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: "v"}, value}}
	lines := encoded(wrapped)

	return fragment{rest: strings.TrimPrefix(lines[0], "v:"), below: lines[1:]}
}

func plain(text string) fragment {
	return written(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text})
}

// literal is text as it is, for words that need no quotes.
func literal(word string) fragment { return fragment{rest: " " + word} }

// encoded are the lines of a tree, in blocks of two spaces.
func encoded(node *yaml.Node) []string {
	var text bytes.Buffer

	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)

	if encoder.Encode(node) != nil || encoder.Close() != nil {
		return []string{""}
	}

	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}

// expanded is a tree without aliases and merge keys, whose mappings on the way to keys are blocks.
func expanded(node *yaml.Node) *yaml.Node {
	node = yamltree.Referred(node)

	copied := *node
	copied.Anchor, copied.Content = "", nil

	if node.Kind != yaml.MappingNode {
		for _, child := range node.Content {
			copied.Content = append(copied.Content, expanded(child))
		}

		return &copied
	}

	copied.Style &^= yaml.FlowStyle

	var merged []*yaml.Node

	for i := 0; i+1 < len(node.Content); i += 2 {
		if key := node.Content[i]; key.Value == "<<" && key.Style == 0 {
			merged = append(merged, expanded(node.Content[i+1]))
		} else {
			copied.Content = append(copied.Content, key, expanded(node.Content[i+1]))
		}
	}

	for _, from := range merged {
		mergeInto(&copied, from)
	}

	return &copied
}

// mergeInto adds the keys of a mapping, or of a list of them, that are not there yet.
func mergeInto(mapping, from *yaml.Node) {
	if from.Kind == yaml.SequenceNode {
		for _, one := range from.Content {
			mergeInto(mapping, one)
		}

		return
	}

	for i := 0; i+1 < len(from.Content); i += 2 {
		if yamltree.Field(mapping, from.Content[i].Value) == nil {
			mapping.Content = append(mapping.Content, from.Content[i], from.Content[i+1])
		}
	}
}

// referencesCross reports whether an alias and what it refers to come to stand in different documents: they do not if
// one value that moves has both.
func referencesCross(root *yaml.Node) bool {
	inside := map[*yaml.Node]*yaml.Node{}

	var mark func(node, value *yaml.Node)

	mark = func(node, value *yaml.Node) {
		inside[node] = value

		for _, child := range node.Content {
			mark(child, value)
		}
	}

	for _, found := range successor.Find(root) {
		if rules[found.Path] == nil { // others may take the value apart
			mark(found.Value, found.Value)
		}
	}

	var crosses func(node *yaml.Node) bool

	crosses = func(node *yaml.Node) bool {
		if node.Kind == yaml.AliasNode && (inside[node] == nil || inside[node] != inside[node.Alias]) {
			return true
		}

		return slices.ContainsFunc(node.Content, crosses)
	}

	return crosses(root)
}
