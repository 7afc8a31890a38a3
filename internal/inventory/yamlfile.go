package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// source is one YAML file that is being read.
type source struct {
	// shown is the path for messages.
	shown string
	*mistakes
}

// at adds a mistake at a node's place.
func (s source) at(node *yaml.Node, id diagnosis.ID, format string, args ...any) {
	s.add(s.mistake(node, id, format, args...))
}

// mistake describes one at a node's place, or of the file as a whole if node is nil.
func (s source) mistake(node *yaml.Node, id diagnosis.ID, format string, args ...any) *FileError {
	mistake := &FileError{ID: id, Path: s.shown, Message: fmt.Sprintf(format, args...)}

	if node != nil {
		mistake.Line, mistake.Column = node.Line, node.Column
	}

	return mistake
}

// read returns the content of a file; missing files are the caller's to judge.
func (s source) read(path string) ([]byte, error) {
	data, err := os.ReadFile(path)

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		var pathError *fs.PathError

		cause := err
		if errors.As(err, &pathError) {
			cause = pathError.Err
		}

		mistake := s.mistake(nil, diagnosis.FileUnreadable, "can't be read: %s", cause)
		mistake.Err = err
		s.add(mistake)
	}

	return data, err
}

// parse reads the first document of a YAML text into a tree without comments, aliases and merge keys; the places of the nodes are
// those in the file. Nil if there is no document, or it is broken, which is added to the mistakes.
func (s source) parse(data []byte) *yaml.Node {
	var document yaml.Node

	// A byte order mark is no part of the first key.
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))

	err := decode(data, &document)

	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		s.syntaxError(err)

		return nil
	case document.Kind != yaml.DocumentNode || len(document.Content) != 1:
		return nil
	}

	flattener := flattener{source: s, budget: maxNodes}

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

func (s source) syntaxError(err error) {
	line, column, message := machineconfig.YAMLError(err)

	s.at(&yaml.Node{Line: line, Column: column}, diagnosis.FileSyntax, "is not valid YAML: %s", message)
}

// Limits of a file after its aliases were resolved: more is an attack, not an inventory.
const (
	maxNodes = 200_000
	maxDepth = 100
)

// flattener copies a tree without comments, aliases and merge keys.
type flattener struct {
	source

	budget int
}

func (f *flattener) flatten(node *yaml.Node, depth int) *yaml.Node {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}

	if f.budget--; f.budget < 0 || depth > maxDepth {
		// Said once: everything above returns nil as well.
		if f.budget >= -1 || depth == maxDepth+1 {
			f.at(node, diagnosis.FileSyntax, "is too deep or has too many aliases")
		}

		f.budget = -2

		return nil
	}

	copied := &yaml.Node{Kind: node.Kind, Tag: node.Tag, Value: node.Value, Style: node.Style, Line: node.Line, Column: node.Column}

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
				f.at(key, diagnosis.FileSyntax, "%q is set twice, first in line %d", key.Value, first.Line)

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
	return key.Kind == yaml.ScalarNode && key.Value == "<<" && (key.Tag == "!!merge" || key.Tag == "" || key.Tag == "!!str" && key.Style == 0)
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
			f.at(from, diagnosis.FileType, "`<<` merges mappings only")

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

// field is the value of a mapping's key; nil if it has none.
func field(mapping *yaml.Node, name string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}

	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}

	return nil
}

// placeOf is the value of a key, or the mapping itself if it lacks the key: where to point at.
func placeOf(mapping *yaml.Node, name string) *yaml.Node {
	if value := field(mapping, name); value != nil {
		return value
	}

	return mapping
}
