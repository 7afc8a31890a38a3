package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/machineconfig/successor"
)

// Place is where a field stands, as a check names it: in which file, in which of its documents, at which path. The zero
// value is nowhere.
type Place struct {
	file     *File
	document string
	path     string
	// exact is set where line and column stand for a path.
	exact        bool
	line, column int
	// elsewhere is a place in a file that is no YAML.
	elsewhere *diagnosis.Location
	// whole is set for a finding about the file itself.
	whole bool
	// masked shows no more of the line than the key that it sets.
	masked bool
}

// At is a place in the file's document without a kind.
func (f *File) At(path string) Place { return Place{file: f, path: path} }

// In is a place in a document of a kind and, if it has one, a name: "LinkConfig/eth0".
func (f *File) In(document, path string) Place { return Place{file: f, document: document, path: path} }

// At is where a config says what a field of the older form says: there, or in the document that replaces the field.
func (c *Rendered) At(field string) Place {
	if document, path := c.successor(field); document != "" && c.HasDocument(document) {
		return c.File.In(document, path)
	}

	return c.File.At(field)
}

// Called is what people call a field of the older form, in the form that the config has.
func (c *Rendered) Called(field string) string {
	switch document, path := c.successor(field); {
	case document == "":
		return field
	case path == "":
		return document
	default:
		return path + " of " + document
	}
}

// successor is the document that has the place of a field of the older form in the config, with the path there; none
// where the field stands as it did. Some documents are older than what they replace now.
func (c *Rendered) successor(field string) (document, path string) {
	row, below, known := successor.Of(field)
	if !known || row.Kind == "" || c.File.At(field).Exists() {
		return "", ""
	}

	path = strings.TrimPrefix(row.Key+below, ".")
	if !c.InDocuments() && !c.File.In(row.Kind, path).Exists() {
		return "", ""
	}

	return row.Kind, path
}

// Itself is the place of what is said about the file as a whole.
func (f *File) Itself() Place { return Place{file: f, whole: true} }

// Line is a place that is known by its line; the column may be 0. Without a line it is the file's beginning.
func (f *File) Line(line, column int) Place {
	return Place{file: f, exact: true, line: line, column: column}
}

// Node is where a node of the file's text stands.
func (f *File) Node(node *yaml.Node) Place { return f.Line(node.Line, node.Column) }

// Elsewhere is a place that is known already.
func Elsewhere(location diagnosis.Location) Place { return Place{elsewhere: &location} }

// Path is a file of which no more is known.
func (in *Input) Path(path string) Place { return Elsewhere(diagnosis.Location{Path: in.Shown(path)}) }

// Item is the place of an item of the list that a place is.
func (p Place) Item(i int) Place {
	p.path = fmt.Sprintf("%s[%d]", p.path, i)

	return p
}

// Field is the place of a field of the mapping that a place is.
func (p Place) Field(name string) Place {
	if p.path != "" {
		name = p.path + "." + name
	}

	p.path = name

	return p
}

// Beside is the place of another field of the same document.
func (p Place) Beside(name string) Place {
	p.path = name

	return p
}

// Masked shows no more of the line than its key: of what is secret, too long to be read, or any kind of text.
func (p Place) Masked() Place {
	p.masked = true

	return p
}

// Exists reports whether the field is there; the place of one that is not is the first above it that is.
func (p Place) Exists() bool { return p.file.Places.Has(p.document, p.path) }

// Position is the line and the column of a place.
func (p Place) Position() (line, column int) {
	if p.exact || p.whole || p.file == nil {
		return p.line, p.column
	}

	return p.file.Places.Find(p.document, p.path)
}

// Locate is where a field stands, with the line itself, and with where its value comes from when that is known.
func (in *Input) Locate(place Place) diagnosis.Location {
	switch {
	case place.elsewhere != nil:
		return *place.elsewhere
	case place.file == nil:
		return diagnosis.Location{}
	case place.whole:
		return diagnosis.Location{Path: place.file.Shown, Unwritten: place.file.Unwritten}
	}

	line, column := place.Position()
	found := place.file.Location(line, column)

	switch {
	case place.masked:
		found.Text = place.file.Places.Key(line)
	case in.doubtful[spot{place.file.Shown, line}]:
		found.Text = place.file.Places.Harmless(line)
	}

	if config := in.configAt(place.file, nil); config != nil {
		found.From = in.originOf(config, line)

		// A file that is not written yet has nothing else that could be looked at.
		if found.From == nil && place.file.Unwritten {
			found.From = in.entryPlace(config)
		}
	}

	return found
}

// completeColumns adds the column to places of which only the line is known: where the line's text begins.
func completeColumns(findings []diagnosis.Finding) {
	for i := range findings {
		at := &findings[i].At
		if at.Line == 0 || at.Column > 0 {
			continue
		}

		at.Column = len(at.Text) - len(strings.TrimLeft(at.Text, " \t")) + 1
	}
}

// Entry is the place of a field of a node's entry in the talconfig.
func (in *Input) Entry(node *inventory.Node, field string) Place { return in.Node(node).Field(field) }

// Declared is where the inventory declares something for the whole cluster; of a profile the file alone is known.
func (in *Input) Declared(key string) Place {
	if in.Talconfig != nil && in.Cluster.Profile == nil {
		return in.Talconfig.At(key)
	}

	if file := in.Open(in.Cluster.Source); file != nil {
		return file.Itself()
	}

	return Place{}
}

// OfContext is where a field of the talosconfig's current context stands.
func (in *Input) OfContext(field string) Place {
	for _, root := range in.TalosconfigFile.Places.Roots() {
		if current := machineconfig.Field(root, "context"); current != nil {
			return in.TalosconfigFile.At("contexts").Field(current.Value).Field(field)
		}
	}

	return in.TalosconfigFile.Itself()
}

// TalosconfigEndpoint is where the talosconfig names an endpoint.
func (in *Input) TalosconfigEndpoint(endpoint string) Place {
	for _, root := range in.TalosconfigFile.Places.Roots() {
		current := machineconfig.Field(root, "context")
		if current == nil {
			continue
		}

		list := machineconfig.Field(machineconfig.Field(machineconfig.Field(root, "contexts"), current.Value), "endpoints")
		if list == nil {
			continue
		}

		for i, item := range list.Content {
			if item.Value == endpoint {
				return in.OfContext("endpoints").Item(i)
			}
		}
	}

	return in.TalosconfigFile.At("")
}

// VIPPlace is where a machine config declares a VIP: that of one node, or of the first that does without one.
func (in *Input) VIPPlace(config *Rendered, addr netip.Addr) (Place, bool) {
	configs := in.Configs
	if config != nil {
		configs = []*Rendered{config}
	}

	for _, config := range configs {
		for _, link := range config.Links() {
			if i := slices.IndexFunc(link.VIPs, func(vip VIP) bool { return vip.Addr == addr }); i >= 0 {
				return link.VIPs[i].At, true
			}
		}
	}

	return Place{}, false
}
