package check

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Patch is a patch that the talconfig names.
type Patch struct {
	File *File
	// Inline is set for text that stands in the talconfig itself.
	Inline bool
	// Missing is set when the file that is named does not exist; File is then without data.
	Missing bool
	// Named is where the talconfig names it.
	Named Place
	// Group is "nodes", "controlPlane", "worker", or empty for all nodes; Node is the entry's index in the first case.
	Group string
	Node  int

	// again are the further places that name the same file.
	again []PatchUse
	// templated is set for a text with {{ }}: only what comes out of it can be judged.
	templated bool
	// Unset is set when a variable in it has no value.
	Unset bool
	// Text is what Talos is to read: the variables are replaced.
	Text []byte
}

// PatchUse is an item of one of the talconfig's lists of patches.
type PatchUse struct {
	Named Place
	group string
	node  int
}

// Uses are all places that name the patch, in the order in which they are read.
func (p *Patch) Uses() []PatchUse {
	return append([]PatchUse{{p.Named, p.Group, p.Node}}, p.again...)
}

// patchLists are where a talconfig lists patches for all nodes or a role.
var patchLists = []string{"", "controlPlane", "worker"}

func (in *Input) readPatches() {
	if in.Cluster != nil && in.Cluster.Profile != nil {
		in.Patches = in.readFolder()

		return
	}

	in.Patches, in.Manifests = in.readLists("patches"), in.readLists("extraManifests")
}

// readLists reads what the lists of a name have, for all nodes, for the roles and for the nodes.
func (in *Input) readLists(key string) []*Patch {
	if in.Talconfig == nil || len(in.Talconfig.Places.Roots()) == 0 {
		return nil
	}

	var patches []*Patch

	root := in.Talconfig.Places.Roots()[0]
	seen := map[string]*Patch{}

	for _, group := range patchLists {
		holder, path := root, key
		if group != "" {
			holder, path = machineconfig.Field(root, group), group+"."+key
		}

		patches = append(patches, in.readList(seen, machineconfig.Field(holder, key), in.Talconfig.At(path), group, 0)...)
	}

	nodes := machineconfig.Field(root, "nodes")
	if nodes == nil {
		return patches
	}

	for i, node := range nodes.Content {
		patches = append(patches,
			in.readList(seen, machineconfig.Field(node, key), in.Talconfig.At("nodes").Item(i).Field(key), "nodes", i)...)
	}

	return patches
}

// readList reads what one list has; what was seen before gets one more use.
func (in *Input) readList(seen map[string]*Patch, list *yaml.Node, named Place, group string, node int) []*Patch {
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}

	var patches []*Patch

	for i, item := range list.Content {
		if item.Kind != yaml.ScalarNode {
			continue
		}

		patch := &Patch{Named: named.Item(i), Group: group, Node: node, Unset: in.lacksVariable(item)}

		if name, isFile := FileReference(item.Value); isFile {
			path := name
			if !filepath.IsAbs(path) {
				path = filepath.Join(in.Options.TalosDir, path)
			}

			if known := seen[path]; known != nil {
				known.again = append(known.again, PatchUse{patch.Named, group, node})

				continue
			}

			seen[path] = patch
			in.openPatch(patch, path)
		} else {
			patch.Inline = true
			patch.File = newFile(in.Talconfig.Path, in.Talconfig.Shown, []byte(item.Value))
			patch.File.From, patch.File.FromNode, patch.File.harmless = in.Talconfig, item, true
			patch.adopt(patch.File.Data)
		}

		patches = append(patches, patch)
	}

	return patches
}

// FileReference reports whether an item of a list of patches is the name of a file: @name, or a single word, which no
// patch is. Source: machinery config/configpatcher/load.go.
func FileReference(item string) (string, bool) {
	if name, isFile := strings.CutPrefix(strings.TrimSpace(item), "@"); isFile {
		return name, true
	}

	return item, item != "" && !strings.ContainsAny(item, "\n ") && !strings.HasPrefix(item, "[") &&
		!strings.HasPrefix(item, "{")
}

// lacksVariable reports whether an item of a list of patches has a variable without a value.
func (in *Input) lacksVariable(item *yaml.Node) bool {
	return in.Cluster != nil && in.Cluster.Talconfig != nil &&
		slices.ContainsFunc(in.Cluster.Talconfig.Refused.List, func(mistake *inventory.FileError) bool {
			return mistake.ID == diagnosis.FileVariable && mistake.Line == item.Line && mistake.Column == item.Column
		})
}

// openPatch reads a patch's file.
func (in *Input) openPatch(patch *Patch, path string) {
	patch.Missing = !patch.Unset && in.Options.Files.Open(path).Missing()

	if patch.File = in.Open(path); patch.File == nil {
		patch.File = newFile(path, in.Shown(path), nil)

		return
	}

	patch.File.harmless = true
	patch.adopt(patch.File.Data)

	if patch.templated {
		return // it need not be YAML before it is filled in, which generation does
	}

	in.readSyntax(patch.File)

	if in.Cluster != nil && in.Cluster.Talconfig != nil && bytes.Contains(patch.File.Data, []byte("$")) {
		patch.substitute(in.Cluster.Talconfig.Variables)
	}
}

// substitute replaces the variables in a patch's file, as it is done before Talos reads it.
func (p *Patch) substitute(variables talconfig.Variables) {
	mistakes := &yamlfile.Mistakes{}
	source := yamlfile.Source{Mistakes: mistakes}

	text, err := variables.SubstituteText(source, string(p.File.Data))
	if err != nil {
		return // it is not YAML, which was told
	}

	roots := machineconfig.NewPlaces(p.File.Data).Roots()
	for _, root := range roots {
		variables.SubstituteForeign(source, root)
	}

	p.Text, p.Unset = []byte(text), len(mistakes.List) > 0
	p.File.Places = machineconfig.PlacesOf(p.File.Data, roots...)
}

// readFolder reads the patches of a profile, which are for those that their files are called after.
func (in *Input) readFolder() []*Patch {
	folder := in.Cluster.Profile.PatchesDir

	var patches []*Patch

	for _, name := range NamesIn(folder) {
		ending := filepath.Ext(name)
		if ending != ".yaml" && ending != ".yml" {
			continue
		}

		patch := &Patch{}

		switch whose := strings.TrimSuffix(name, ending); whose {
		case "all":
		case "controlplane":
			patch.Group = "controlPlane"
		case "worker":
			patch.Group = "worker"
		default:
			patch.Group = "nodes"
			patch.Node = slices.IndexFunc(in.Cluster.Nodes, func(node *inventory.Node) bool { return node.Name == whose })
		}

		// a file that is for nobody is told of when configs are made
		if in.openPatch(patch, filepath.Join(folder, name)); patch.Node >= 0 {
			patch.Named = patch.File.Itself()
			patches = append(patches, patch)
		}
	}

	return patches
}

// NamesIn are the names of the files in a folder.
func NamesIn(folder string) []string {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}

	var names []string

	for _, entry := range entries {
		if !entry.IsDir() {
			names = append(names, entry.Name())
		}
	}

	return names
}

// adopt takes a text for the patch's, and notes whether it can be judged.
func (p *Patch) adopt(text []byte) { p.Text, p.templated = text, bytes.Contains(text, []byte("{{")) }

// Form is what kind of patch a text is.
type Form int

// The kinds of patches.
const (
	StrategicPatch Form = iota // documents to merge
	OperationsPatch
	EmptyPatch
	UnusablePatch
	UnknownPatch // templates, ciphertext, or no text at all
)

// Form tells what the patch is, by its text alone.
func (p *Patch) Form() Form {
	roots := p.File.Places.Roots()

	switch {
	case p.Missing, p.templated, p.File.Data == nil:
		return UnknownPatch
	case talconfig.SaysNothing(string(p.Text)):
		return EmptyPatch
	case len(roots) == 0:
		return UnusablePatch
	case roots[0].Kind == yaml.SequenceNode && len(roots) == 1 && areOperations(roots[0]):
		return OperationsPatch
	}

	for _, root := range roots {
		switch {
		case machineconfig.Field(root, "sops") != nil:
			return UnknownPatch
		case root.Kind != yaml.MappingNode && root.Tag != "!!null":
			return UnusablePatch
		}
	}

	return StrategicPatch
}

func areOperations(list *yaml.Node) bool {
	return len(list.Content) > 0 && !slices.ContainsFunc(list.Content, func(item *yaml.Node) bool {
		return machineconfig.Field(item, "op") == nil || machineconfig.Field(item, "path") == nil
	})
}

// Name is how people are told of a patch.
func (p *Patch) Name() string {
	if p.Inline {
		return "the patch"
	}

	return "the patch " + p.File.Shown
}

// Declares reports whether a machine config has a value because the files that it is made from say so: it is as they
// make it, or a patch of its nodes has the value. Making it again would change nothing.
func (in *Input) Declares(config *Rendered, value string) bool {
	return config.File.Unwritten || slices.ContainsFunc(in.Patches, func(patch *Patch) bool {
		reaches := func(use PatchUse) bool {
			return slices.ContainsFunc(in.NodesOf(use),
				func(node *inventory.Node) bool { return slices.Contains(config.Nodes, node) })
		}

		return patch.has(value) && slices.ContainsFunc(patch.Uses(), reaches)
	})
}

// has reports whether the patch has a value, at whichever place.
func (p *Patch) has(value string) bool {
	found := false

	for _, root := range p.File.Places.Roots() {
		scalars(root, "", nil, func(scalar scalar) { found = found || scalar.value == value })
	}

	return found
}

// Used reports whether any node gets the patch; an inventory without nodes of a role has patches for nobody.
func (in *Input) Used(patch *Patch) bool {
	return slices.ContainsFunc(patch.Uses(), func(use PatchUse) bool { return len(in.NodesOf(use)) > 0 })
}

// recipients are the nodes that the talconfig's lists of patches are for.
type recipients struct {
	all     []*inventory.Node
	byRole  map[string][]*inventory.Node
	byEntry map[int][]*inventory.Node
}

func findRecipients(in *Input) recipients {
	found := recipients{all: in.Cluster.Nodes, byRole: map[string][]*inventory.Node{},
		byEntry: map[int][]*inventory.Node{}}

	for i, node := range in.Cluster.Nodes {
		index := in.entryIndex(node)
		if in.Cluster.Profile != nil {
			index = i
		}

		found.byEntry[index] = append(found.byEntry[index], node)

		role := "worker"
		if node.Role == inventory.ControlPlane {
			role = "controlPlane"
		}

		if declared := in.entry(node); declared == nil || !declared.OverridePatches {
			found.byRole[role] = append(found.byRole[role], node)
		}
	}

	return found
}

// NodesOf are the nodes that get what an item of a list of patches names. What is for a role is not for nodes that
// override it.
func (in *Input) NodesOf(use PatchUse) []*inventory.Node {
	switch use.group {
	case "":
		return Once(in, findRecipients).all
	case "nodes":
		return Once(in, findRecipients).byEntry[use.node]
	default:
		return Once(in, findRecipients).byRole[use.group]
	}
}

// entry is a node's entry in the talconfig; nil if it is not known.
func (in *Input) entry(node *inventory.Node) *talconfig.Node {
	declared, index := in.Cluster.Talconfig, in.entryIndex(node)
	if declared == nil || index < 0 || index >= len(declared.Nodes) {
		return nil
	}

	return &declared.Nodes[index]
}

// SettingsOf are the settings of a node's entry, with those of its role; of a profile what there is of them.
func (in *Input) SettingsOf(node *inventory.Node) (talconfig.NodeSettings, bool) {
	if in.Cluster.Profile != nil {
		return talconfig.NodeSettings{TalosImageURL: node.ImageURL,
			MachineSpec: talconfig.MachineSpec{SecureBoot: node.SecureBoot}}, true
	}

	entry := in.entry(node)
	if entry == nil {
		return talconfig.NodeSettings{}, false
	}

	return in.Cluster.Talconfig.Settings(*entry), true
}

// Contract is the form that machine configs are made in; nil if none can be made.
func (in *Input) Contract() *config.VersionContract { return in.Cluster.Contract }

// Release is the Talos release that the machines are to run; nil if it is newer than what is known here, or none.
func (in *Input) Release() *config.VersionContract {
	version := cmp.Or(in.Cluster.TalosVersion, machineconfig.DefaultTalosVersion)

	minor, err := release.Minor(version)
	if err != nil || release.IsNewer(version) {
		return nil
	}

	return minor
}

// DocumentID tells documents apart as Talos does: by kind and name.
func DocumentID(root *yaml.Node) string {
	text := func(key string) string {
		if value := machineconfig.Field(root, key); value != nil && value.Kind == yaml.ScalarNode {
			return value.Value
		}

		return ""
	}

	return text("kind") + "/" + text("name")
}

// Deletion is one `$patch: delete` of a patch.
type Deletion struct {
	Kind, Name string
	// path are the keys above it, with "[]" for the item of a list; empty for the whole document.
	Path []string
	At   *yaml.Node
}

// DeletesWhole reports whether a document of a patch only says which document to take out.
func DeletesWhole(root *yaml.Node) bool { return isDelete(machineconfig.Field(root, "$patch")) }

func isDelete(value *yaml.Node) bool { return value != nil && value.Value == "delete" }

// Deletions lists those of a document.
func Deletions(root *yaml.Node) []Deletion {
	kind, name, _ := strings.Cut(DocumentID(root), "/")

	var found []Deletion

	var visit func(*yaml.Node, []string)

	visit = func(node *yaml.Node, path []string) {
		for i := 0; i+1 < len(node.Content) && node.Kind == yaml.MappingNode; i += 2 {
			if key, value := node.Content[i], node.Content[i+1]; key.Value == "$patch" && isDelete(value) {
				found = append(found, Deletion{kind, name, slices.Clone(path), key})
			} else {
				visit(value, append(path[:len(path):len(path)], key.Value))
			}
		}

		for _, item := range node.Content {
			if node.Kind == yaml.SequenceNode {
				visit(item, append(path[:len(path):len(path)], "[]"))
			}
		}
	}

	visit(root, nil)

	return found
}
