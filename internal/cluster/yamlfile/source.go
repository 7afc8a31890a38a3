// Package yamlfile reads YAML files that people write, and says where in them something is wrong.
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/secrettext"
	"github.com/talos-mage/talos-mage/internal/base/yamltree"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Source is one YAML file that is being read.
type Source struct {
	// Shown is the path for messages.
	Shown string
	*Mistakes
	// Refused gets the values that a type of Talos refuses, which Check then takes for absent; nil makes them mistakes
	// like all others.
	Refused *Mistakes
}

// At adds a mistake at a node's place.
func (s Source) At(node *yaml.Node, id diagnosis.ID, format string, args ...any) {
	s.Add(s.Mistake(node, id, format, args...))
}

// Mistake describes one at a node's place, or of the file as a whole if node is nil.
func (s Source) Mistake(node *yaml.Node, id diagnosis.ID, format string, args ...any) *Error {
	mistake := &Error{ID: id, Path: s.Shown, Message: fmt.Sprintf(format, args...)}

	if node != nil {
		mistake.Line, mistake.Column = node.Line, node.Column
	}

	return mistake
}

// Read returns the content of a file; missing files are the caller's to judge.
func (s Source) Read(file *reading.File) ([]byte, error) {
	if file.Err != nil && !file.Missing() {
		var pathError *fs.PathError

		cause := file.Err
		if errors.As(file.Err, &pathError) {
			cause = pathError.Err
		}

		mistake := s.Mistake(nil, diagnosis.FileUnreadable, "can't be read: %s", cause)
		mistake.Err = file.Err
		s.Add(mistake)
	}

	return file.Data, file.Err
}

// Needed is the tree of a file that has to be there and to hold something; otherwise nil, and a mistake that says so of
// what the file is.
func (s Source) Needed(file *reading.File, what, nextIfMissing, nextIfEmpty string) *yaml.Node {
	before := len(s.List)
	missing := func(how, next string, err error) {
		mistake := s.Mistake(nil, diagnosis.FileMissing, "the %s %s", what, how)
		mistake.Next, mistake.Err = next, err
		s.Add(mistake)
	}

	if file.Missing() {
		missing("does not exist", nextIfMissing, file.Err)

		return nil
	}

	data, err := s.Read(file)
	if err != nil {
		return nil
	}

	if root := s.Parse(data); root != nil && root.Tag != "!!null" {
		return root
	}

	if len(s.List) == before {
		missing("is empty", nextIfEmpty, nil)
	}

	return nil
}

// Parse reads the first document of a YAML text into a tree without comments, aliases and merge keys; the places of the
// nodes are those in the file, and what something refers to has its anchor. Nil if there is no document, or it is
// broken, which is added to the mistakes.
func (s Source) Parse(data []byte) *yaml.Node {
	var document yaml.Node

	// A byte order mark is no part of the first key.
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))

	err := decode(data, &document)

	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		s.syntaxError(data, err)

		return nil
	case document.Kind != yaml.DocumentNode || len(document.Content) != 1:
		return nil
	}

	flattener := flattener{Source: s, budget: maxNodes, anchored: map[*yaml.Node]*yaml.Node{}}

	return flattener.flatten(document.Content[0], 0)
}

// decode turns a panic of the decoder, which hostile input can cause, into an error.
func decode(data []byte, into *yaml.Node) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = errors.New("unexpected structure")
		}
	}()

	return yaml.NewDecoder(bytes.NewReader(data)).Decode(into)
}

func (s Source) syntaxError(data []byte, err error) {
	line, column, message := machineconfig.YAMLErrorIn(data, err)

	s.At(&yaml.Node{Line: line, Column: column}, diagnosis.FileSyntax, "is not valid YAML: %s", message)
}

// Limits of a file after its aliases were resolved: more is an attack, not an inventory.
const (
	maxNodes = 200_000
	maxDepth = 100
)

// flattener copies a tree without comments, aliases and merge keys.
type flattener struct {
	Source

	budget int
	// anchored are the first copies of nodes with anchors.
	anchored map[*yaml.Node]*yaml.Node
}

func (f *flattener) flatten(node *yaml.Node, depth int) *yaml.Node {
	for node.Kind == yaml.AliasNode {
		node = node.Alias

		if copied := f.anchored[node]; copied != nil {
			copied.Anchor = node.Anchor
		}
	}

	if f.budget--; f.budget < 0 || depth > maxDepth {
		// Said once: everything above returns nil as well.
		if f.budget >= -1 || depth == maxDepth+1 {
			f.At(node, diagnosis.FileSyntax, "is too deep or has too many aliases")
		}

		f.budget = -2

		return nil
	}

	copied := &yaml.Node{Kind: node.Kind, Tag: node.Tag, Value: node.Value, Style: node.Style, Line: node.Line,
		Column: node.Column}

	if node.Anchor != "" && f.anchored[node] == nil {
		f.anchored[node] = copied
	}

	if node.Kind == yaml.MappingNode {
		f.flattenMapping(node, copied, depth)
	} else {
		for _, child := range node.Content {
			if child := f.flatten(child, depth+1); child != nil {
				copied.Content = append(copied.Content, child)
			}
		}
	}

	if f.budget < 0 {
		return nil
	}

	return copied
}

// flattenMapping copies a mapping's own keys first: they win over merged ones.
func (f *flattener) flattenMapping(node, copied *yaml.Node, depth int) {
	seen := map[string]*yaml.Node{}

	var merged []*yaml.Node

	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]

		if isMerge(key) {
			merged = append(merged, value)

			continue
		}

		if key.Kind == yaml.ScalarNode {
			if first := seen[key.Value]; first != nil {
				f.At(key, diagnosis.FileSyntax, "%q is set twice, first in line %d", key.Value, first.Line)

				continue
			}

			seen[key.Value] = key
		}

		f.pair(copied, key, value, depth)
	}

	for _, value := range merged {
		f.merge(copied, seen, value, depth)
	}
}

func isMerge(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Value == "<<" &&
		(key.Tag == "!!merge" || key.Tag == "" || key.Tag == "!!str" && key.Style == 0)
}

func (f *flattener) pair(copied, key, value *yaml.Node, depth int) {
	newKey, newValue := f.flatten(key, depth+1), f.flatten(value, depth+1)

	if newKey != nil && newValue != nil {
		copied.Content = append(copied.Content, newKey, newValue)
	}
}

// merge adds the keys of a mapping, or of a list of them, that are not there yet.
func (f *flattener) merge(copied *yaml.Node, seen map[string]*yaml.Node, value *yaml.Node, depth int) {
	flat := f.flatten(value, depth+1)
	if flat == nil {
		return
	}

	sources := []*yaml.Node{flat}
	if flat.Kind == yaml.SequenceNode {
		sources = flat.Content
	}

	for _, from := range sources {
		if from.Kind != yaml.MappingNode {
			f.At(from, diagnosis.FileType, "`<<` merges mappings only")

			continue
		}

		for i := 0; i+1 < len(from.Content); i += 2 {
			if key := from.Content[i]; seen[key.Value] == nil {
				seen[key.Value] = key
				copied.Content = append(copied.Content, key, from.Content[i+1])
			}
		}
	}
}

// Field is the value of a mapping's key; nil if it has none.
func Field(mapping *yaml.Node, name string) *yaml.Node { return yamltree.Field(mapping, name) }

// PlaceOf is the value of a key, or the mapping itself if it lacks the key: where to point at.
func PlaceOf(mapping *yaml.Node, name string) *yaml.Node {
	if value := Field(mapping, name); value != nil {
		return value
	}

	return mapping
}

// Item is the i-th item of a list, or the node itself if it has none.
func Item(node *yaml.Node, i int) *yaml.Node {
	if node.Kind == yaml.SequenceNode && i < len(node.Content) {
		return node.Content[i]
	}

	return node
}

// Plain is the tree that unquoted text stands for in a YAML file; nil if it is no YAML.
func Plain(text string) *yaml.Node {
	var document yaml.Node

	if err := decode([]byte(text), &document); err != nil || len(document.Content) != 1 {
		return nil
	}

	return document.Content[0]
}

// NameFields gives each mistake in the file that has none yet the path of the field that stands at its place in the
// file's tree.
func (s Source) NameFields(root *yaml.Node) {
	if root == nil {
		return
	}

	for _, mistake := range s.List {
		if mistake.Path == s.Shown && mistake.Field == "" && mistake.Line > 0 {
			mistake.Field = FieldAt(root, mistake.Line, mistake.Column)
		}
	}
}

// FieldAt is the dotted path of the outermost key or item that begins at a place in a tree, as in nodes[0].hostname;
// empty if there is none. A key that looks like a secret is left out: between dots nothing would tell what it is.
func FieldAt(root *yaml.Node, line, column int) string {
	if root.Line == line && root.Column == column {
		return "" // the place of the whole is also that of its first key
	}

	path, _ := fieldAt(root, "", line, column)

	return strings.TrimPrefix(path, ".")
}

func fieldAt(node *yaml.Node, path string, line, column int) (string, bool) {
	isHere := func(node *yaml.Node) bool { return node.Line == line && node.Column == column }

	for i, child := range node.Content {
		inner := path

		switch {
		case node.Kind == yaml.SequenceNode:
			inner += "[" + strconv.Itoa(i) + "]"
		case i%2 == 0:
			if isHere(child) {
				return path + "." + secrettext.Shown(child.Value), true
			}

			continue
		default:
			inner += "." + secrettext.Shown(node.Content[i-1].Value)
		}

		if isHere(child) {
			return inner, true
		}

		if found, ok := fieldAt(child, inner, line, column); ok {
			return found, true
		}
	}

	return path, false
}
