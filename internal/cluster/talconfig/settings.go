package talconfig

import (
	"reflect"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
)

// Group are the settings of all nodes that have an entry's role.
func (c *Config) Group(node Node) NodeSettings {
	if node.ControlPlane {
		return c.ControlPlane
	}

	return c.Worker
}

// Settings are the settings of an entry: its own where it has some, else its group's. Patches, extra manifests and
// certificate SANs are added up, unless the entry says that its own are all. The order is talhelper's: the group's
// patches come first, its other items last.
func (c *Config) Settings(node Node) NodeSettings {
	own, group := node.NodeSettings, c.Group(node)

	if !node.OverridePatches {
		own.Patches = slices.Concat(group.Patches, own.Patches)
	}

	if !node.OverrideExtraManifests {
		own.ExtraManifests = slices.Concat(own.ExtraManifests, group.ExtraManifests)
	}

	if !node.OverrideMachineCertSANs {
		own.CertSANs = slices.Concat(own.CertSANs, group.CertSANs)
	}

	merged := reflect.ValueOf(&own).Elem()

	for i := range merged.NumField() {
		if field := merged.Field(i); field.IsZero() {
			field.Set(reflect.ValueOf(group).Field(i))
		}
	}

	return own
}

// straighten changes the tree of a talconfig.yaml so that it can be decoded: talhelper's schema shows `meta` of a
// schematic once as a mapping and once as a list of them.
func straighten(root *yaml.Node) {
	settings := []*yaml.Node{yamlfile.Field(root, "controlPlane"), yamlfile.Field(root, "worker")}

	if nodes := yamlfile.Field(root, "nodes"); nodes != nil {
		settings = append(settings, nodes.Content...)
	}

	for _, place := range settings {
		for _, name := range []string{"schematic", "imageSchematic"} {
			meta := yamlfile.Field(yamlfile.Field(yamlfile.Field(place, name), "customization"), "meta")
			if meta != nil && meta.Kind == yaml.MappingNode {
				single := *meta
				*meta = yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*yaml.Node{&single}, Line: meta.Line,
					Column: meta.Column}
			}
		}
	}
}
