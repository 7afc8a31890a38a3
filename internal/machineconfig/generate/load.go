package generate

import (
	"path/filepath"
	"slices"
	"text/template"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
)

// cluster is a talconfig.yaml that was read and checked.
type cluster struct {
	yamlfile.Source

	source Source
	// folder is what @file paths are relative to.
	folder    string
	root      *yaml.Node
	config    *talconfig.Config
	variables talconfig.Variables
	files     files
	patches   patchCache
	templates templates

	// contract is the form that configs are made in, and release what the machines run.
	contract, release *talosconfig.VersionContract
	// talosVersion and kubernetesVersion are as the files want them: v1.13.9, 1.36.3.
	talosVersion, kubernetesVersion string
	manifests                       manifests
	// input is machinery's: what all nodes have in common.
	input   *generate.Input
	entries []*entry
}

// entry is one item of `nodes` with the settings of its group.
type entry struct {
	*cluster
	talconfig.Node

	settings talconfig.NodeSettings
	// place and group are the entry and its group in the file; group may be nil.
	place, group *yaml.Node
	// file is the name of its machine config.
	file string

	machineFiles []*v1alpha1.MachineFile
	// olderForm is what older made.
	olderForm *v1alpha1.Config
	// kinds are what generatedKinds found.
	kinds map[string]bool
	// patchRounds are applied one after the other; the templates of one see what the one before made.
	patchRounds    [][]patch
	extraManifests []patch
}

// load checks what making machine configs needs, beyond what was checked when the file was read.
func load(source Source) (*cluster, error) {
	read := source.Cluster.Talconfig

	variables, err := source.Cluster.Variables()
	if err != nil {
		return nil, err
	}

	cluster := &cluster{
		// What was refused when the file was read keeps configs from being made.
		Source:    yamlfile.Source{Shown: read.Shown, Mistakes: &yamlfile.Mistakes{List: slices.Clone(read.Refused.List)}},
		source:    source,
		folder:    filepath.Dir(source.Cluster.Source),
		root:      read.Root,
		config:    read.Config,
		variables: variables,
		files:     files{},
		patches:   patchCache{},
		templates: templates{functions: templateFunctions(variables.Lookup), parsed: map[string]*template.Template{}},
	}

	if len(cluster.List) > 0 {
		return nil, cluster.err()
	}

	cluster.checkCluster()

	for i, node := range cluster.config.Nodes {
		cluster.entries = append(cluster.entries, cluster.newEntry(i, node))
	}

	for _, entry := range cluster.entries {
		entry.check()
	}

	if err := cluster.err(); err != nil {
		return nil, err
	}

	return cluster, cluster.prepare()
}

// err lists the mistakes so far, each with the path of its field.
func (c *cluster) err() error {
	c.NameFields(c.root)

	return c.Err()
}

func (c *cluster) newEntry(i int, node talconfig.Node) *entry {
	entry := &entry{cluster: c, Node: node, settings: c.config.Settings(node),
		place: yamlfile.Item(yamlfile.Field(c.root, "nodes"), i)}

	entry.group = yamlfile.Field(c.root, "worker")
	if node.ControlPlane {
		entry.group = yamlfile.Field(c.root, "controlPlane")
	}

	return entry
}

// placeOf is where a setting stands: at the entry, at its group, or the entry itself if it is nowhere.
func (e *entry) placeOf(keys ...string) *yaml.Node {
	for _, from := range []*yaml.Node{e.place, e.group} {
		found := from

		for _, key := range keys {
			found = yamlfile.Field(found, key)
		}

		if found != nil {
			return found
		}
	}

	return e.place
}

// item is where an item of a list stands.
func (e *entry) item(i int, keys ...string) *yaml.Node { return yamlfile.Item(e.placeOf(keys...), i) }

// added are the places of the items of a list that entry and group add up, in the order of talconfig.Config.Settings.
func (e *entry) added(key string, override, groupFirst bool) []*yaml.Node {
	var own, group []*yaml.Node

	if list := yamlfile.Field(e.place, key); list != nil {
		own = list.Content
	}

	if list := yamlfile.Field(e.group, key); list != nil && (!override || len(own) == 0) {
		group = list.Content
	}

	if groupFirst {
		return slices.Concat(group, own)
	}

	return slices.Concat(own, group)
}
