package check

import (
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// File is one file of the cluster, or a text that was made from one.
type File struct {
	// Path is where it lies; Shown is how people are told it.
	Path, Shown string
	Data        []byte
	// From and FromNode say where a text stands that is part of another file, as an inline patch is.
	From     *File
	FromNode *yaml.Node
	// Mode are the permission bits.
	Mode uint32
	// Unwritten is set for what is only in memory yet.
	Unwritten bool
	// harmless is set for a patch, in which a key may be misspelt that a secret stands behind.
	harmless bool

	// Places finds fields in it.
	Places *machineconfig.Places
}

func newFile(path, shown string, data []byte) *File {
	return &File{Path: path, Shown: shown, Data: data, Places: machineconfig.NewPlaces(data)}
}

// Location resolves a line and a column, into the file that the text is part of, if it is.
func (f *File) Location(line, column int) diagnosis.Location {
	text := f.Places.Line(line)
	if f.harmless {
		text = f.Places.Harmless(line)
	}

	if f.From != nil {
		inLine, inColumn := yamlfile.Inside(f.From.Data, f.FromNode, string(f.Data), line, column)

		return diagnosis.Location{Path: f.From.Shown, Line: inLine, Column: inColumn, Text: text}
	}

	return diagnosis.Location{Path: f.Shown, Line: line, Column: column, Text: text, Unwritten: f.Unwritten}
}

// entryPlace is where the entry of a config's node stands, or what the cluster is read from.
func (in *Input) entryPlace(config *Rendered) *diagnosis.Location {
	place := &diagnosis.Location{Path: in.Shown(in.Cluster.Source)}
	if len(config.Nodes) > 0 {
		place.Line, place.Column = config.Nodes[0].Line, config.Nodes[0].Column
	}

	return place
}

// configAt is the machine config that a file is; other, if the file is none.
func (in *Input) configAt(file *File, other *Rendered) *Rendered {
	if config := in.byFile[file]; config != nil {
		return config
	}

	return other
}

// scalar is a single value of a YAML text, with the key that it is set by: for an item of a list the list's.
type scalar struct {
	key, value   string
	line, column int
	// within are the keys and indices above it, as "nodes", "3".
	within []string
}

// scalars lists the single values below a node.
func scalars(node *yaml.Node, key string, within []string, visit func(scalar)) {
	switch node.Kind {
	case yaml.ScalarNode:
		visit(scalar{key: key, value: node.Value, line: node.Line, column: node.Column, within: within})
	case yaml.SequenceNode:
		for i, item := range node.Content {
			scalars(item, key, append(within[:len(within):len(within)], strconv.Itoa(i)), visit)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			name := node.Content[i].Value
			scalars(node.Content[i+1], name, append(within[:len(within):len(within)], name), visit)
		}
	default:
		// parseNodes leaves no other kinds.
	}
}
