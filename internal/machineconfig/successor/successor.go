// Package successor knows which documents of Talos 1.14 replace which fields of the older form of machine configs, the
// document without a kind.
package successor

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/yamltree"
)

// Outcome is what Talos makes of a field beside the document that replaces it.
type Outcome int

const (
	// Refused says that it takes no config with both.
	Refused Outcome = iota
	// DocumentWins says that it takes both, and where they differ the document counts.
	DocumentWins
	// Both count.
	Both
)

// Field is a field of the older form, and what replaces it.
type Field struct {
	// Path are its keys with dots between them; "*" is any key.
	Path string
	// Kind is that of the document that replaces it; empty if none does.
	Kind string
	// Key is where the value belongs in that document; empty if the document itself is the value, or there is one for
	// each item.
	Key string
	// ControlPlane is set for documents that workers must not have.
	ControlPlane bool
	// Outcome of having both.
	Outcome Outcome
	// Note is what else there is to know of it: what the value turns into, or what to do where nothing replaces it. It
	// may be empty.
	Note string
	// Source is where machinery v1.14.1 says so, below config/types.
	Source string
}

// Place is the document and the key that replace the field, as people write them; empty if nothing does.
func (f Field) Place() string {
	if f.Key == "" {
		return f.Kind
	}

	return f.Key + " of " + f.Kind
}

// Found is a replaced field that a document of the older form has.
type Found struct {
	Field

	// Keys lead to it: those of Path, with the document's own where that has "*".
	Keys []string
	// At is its key, and Value what is set.
	At, Value *yaml.Node
}

// Name is the field as people write it.
func (f Found) Name() string { return strings.Join(f.Keys, ".") }

// Deletes reports whether a patch takes the field out instead of setting it.
func (f Found) Deletes() bool { return Deletes(f.Value) }

// Deletes reports whether a mapping of a patch takes out what it stands for. As people write a patch, before variables
// are put in, a dollar sign may stand there twice.
func Deletes(mapping *yaml.Node) bool {
	return yamltree.FieldText(mapping, "$patch") == "delete" ||
		yamltree.FieldText(mapping, "$$patch") == "delete"
}

// Find lists the replaced fields of a machine config's document, or of a patch's, in their order there. Documents with
// a kind have none.
func Find(document *yaml.Node) []Found {
	if document == nil || document.Kind != yaml.MappingNode || yamltree.Field(document, "kind") != nil {
		return nil
	}

	return find(document, nil)
}

// Of is the row of a field of the older form, and what its path has below that; a section's is that of its first
// field. It is false for what no row is about.
func Of(path string) (row Field, below string, found bool) {
	for _, field := range fields {
		if rest, isBelow := strings.CutPrefix(path, field.Path); isBelow && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return field, rest, true
		}
	}

	for _, field := range fields {
		if strings.HasPrefix(field.Path, path+".") {
			return Field{Path: path, Kind: field.Kind, ControlPlane: field.ControlPlane, Outcome: field.Outcome}, "", true
		}
	}

	return Field{}, "", false
}

func find(mapping *yaml.Node, above []string) []Found {
	var found []Found

	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], yamltree.Referred(mapping.Content[i+1])
		keys := append(slices.Clone(above), key.Value)

		switch row := lookup(keys); {
		case row != nil:
			found = append(found, Found{Field: *row, Keys: keys, At: key, Value: value})
		case value.Kind == yaml.MappingNode:
			found = append(found, find(value, keys)...)
		}
	}

	return found
}

// lookup is the row for exactly these keys; nil if there is none.
func lookup(keys []string) *Field {
	for i := range fields {
		steps := strings.Split(fields[i].Path, ".")

		if slices.EqualFunc(steps, keys, func(step, key string) bool { return step == key || step == "*" }) {
			return &fields[i]
		}
	}

	return nil
}
