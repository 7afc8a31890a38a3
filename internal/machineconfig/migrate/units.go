package migrate

import (
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/yamltree"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
)

// unit is one patch: a text in the talconfig.yaml, or a file.
type unit struct {
	// path is the file that it stands in; item the text's place there, nil if it is all of the file.
	path string
	item *yaml.Node
	text string
	// sealed is set if sops encrypted the file; text is its plaintext then.
	sealed bool
	// strategic is what a JSON patch says as a strategic one; empty for others.
	strategic string
	// lists are those that name it, and named the items that do, if it is a file.
	lists []*list
	named []*yaml.Node
}

// list is a list of patches of a talconfig.yaml, or a file of a profile's patches, and who gets them.
type list struct {
	// owner leads to the mapping that has the list: nothing for all nodes, "controlPlane", "worker", or "nodes" with the
	// index of a node.
	owner string
	node  int
	// controlPlanes and workers are set if such nodes get its patches.
	controlPlanes, workers bool
}

func (u *unit) reaches(of func(*list) bool) bool { return slices.ContainsFunc(u.lists, of) }

func (u *unit) controlPlanes() bool {
	return u.reaches(func(one *list) bool { return one.controlPlanes })
}
func (u *unit) workers() bool { return u.reaches(func(one *list) bool { return one.workers }) }

// talconfigUnits are the patches of a talconfig.yaml, each once.
func talconfigUnits(cluster *inventory.Cluster, root *yaml.Node) []*unit {
	config := cluster.Talconfig.Config

	var units []*unit

	collect := func(of *list, holder *yaml.Node) {
		for _, item := range items(value(holder, "patches")) {
			units = addUnit(units, unitOf(cluster, item), of)
		}
	}

	collect(&list{controlPlanes: true, workers: true}, root)
	collect(&list{owner: "controlPlane", controlPlanes: true}, value(root, "controlPlane"))
	collect(&list{owner: "worker", workers: true}, value(root, "worker"))

	for i, node := range items(value(root, "nodes")) {
		if i < len(config.Nodes) {
			isControlPlane := config.Nodes[i].ControlPlane
			collect(&list{owner: "nodes", node: i, controlPlanes: isControlPlane, workers: !isControlPlane}, node)
		}
	}

	return units
}

// addUnit adds a patch, or another list that names it.
func addUnit(units []*unit, one *unit, of *list) []*unit {
	if one == nil {
		return units
	}

	for _, known := range units {
		if known.path == one.path && known.item == one.item {
			known.lists, known.named = append(known.lists, of), append(known.named, one.named...)

			return units
		}
	}

	one.lists = []*list{of}

	return append(units, one)
}

// unitOf is the patch that an item of a list is, or names; nil if it can't be read, which rendering tells.
func unitOf(cluster *inventory.Cluster, item *yaml.Node) *unit {
	if item.Kind != yaml.ScalarNode {
		return nil
	}

	reference, isFile := strings.CutPrefix(item.Value, "@")
	if !isFile && (item.Value == "" || strings.ContainsAny(item.Value, "\n ") || strings.HasPrefix(item.Value, "[") ||
		strings.HasPrefix(item.Value, "{")) {
		return &unit{path: cluster.Source, item: item, text: item.Value}
	}

	path := strings.TrimSpace(reference)
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(cluster.Source), path)
	}

	file := cluster.Files.Open(path)
	if file.Err != nil {
		return nil
	}

	return &unit{path: path, named: []*yaml.Node{item}, text: strings.TrimPrefix(string(file.Data), "\xef\xbb\xbf")}
}

// value is that of a mapping's key, what it refers to if it is an alias; nil if there is none.
func value(mapping *yaml.Node, key string) *yaml.Node {
	return yamltree.Referred(yamltree.Field(yamltree.Referred(mapping), key))
}

func keyNode(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; mapping != nil && i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i]
		}
	}

	return nil
}

func items(sequence *yaml.Node) []*yaml.Node {
	if sequence == nil || sequence.Kind != yaml.SequenceNode {
		return nil
	}

	all := make([]*yaml.Node, len(sequence.Content))
	for i, item := range sequence.Content {
		all[i] = yamltree.Referred(item)
	}

	return all
}
