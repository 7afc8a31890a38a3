package steps

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/secrettext"
	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/text"
)

// bootstrapNode is the setting that names a control plane.
const bootstrapNode = "BOOTSTRAP_NODE"

// CheckNames refuses settings that name nodes which the inventory does not have, or another cluster.
func CheckNames(given *settings.Settings, cluster *inventory.Cluster) error {
	named := []struct {
		setting string
		names   []string
	}{
		{"NODE", given.Node},
		{"-assumeEmpty", given.AssumeEmpty},
		{"-destroyed", given.Destroyed},
		{bootstrapNode, strings.Fields(given.BootstrapNode)},
		{"NODE_ADDRESSES", slices.Sorted(maps.Keys(given.NodeAddresses))},
	}

	for _, named := range named {
		for _, name := range named.names {
			if err := checkName(given.NameOf(named.setting), named.setting, name, cluster); err != nil {
				return err
			}
		}
	}

	if given.OfCluster == "" || given.OfCluster == cluster.Name {
		return nil
	}

	source, name := cluster.Files.Shown(cluster.Source), given.NameOf("-cluster")

	return diagnosis.NewProblem(diagnosis.UnknownCluster,
		fmt.Sprintf("%s names %q, and %s declares the cluster %s", name, secrettext.Shown(given.OfCluster), source,
			cluster.Name),
		name+"="+cluster.Name+", if that is the cluster you mean")
}

func checkName(given, setting, name string, cluster *inventory.Cluster) error {
	switch node := cluster.Node(name); {
	case node == nil:
		return diagnosis.NewProblem(diagnosis.UnknownNode,
			fmt.Sprintf("%s names %q, which is not a node of %s; %s", given, secrettext.Shown(name),
				cluster.Files.Shown(cluster.Source), nodesNear(name, cluster)), "correct "+given)
	case setting == bootstrapNode && node.Role != inventory.ControlPlane:
		worker := diagnosis.NewProblem(diagnosis.UnknownNode,
			given+" names a worker: etcd runs on control planes only", "name a control plane")
		worker.Node = node.Name

		return worker
	default:
		return nil
	}
}

// fewNodes are so many that all of them can be named.
const fewNodes = 8

// nodesNear names the nodes that somebody may have meant, by name or by address.
func nodesNear(typed string, cluster *inventory.Cluster) string {
	known := names(cluster.Nodes)
	if _, err := netip.ParseAddr(typed); err == nil {
		known = nil
		for _, node := range cluster.Nodes {
			known = append(known, node.Address)
		}
	}

	if len(cluster.Nodes) > fewNodes {
		return fmt.Sprintf("the nearest of its %d nodes are %s", len(cluster.Nodes),
			text.List(suggest.Nearest(typed, known, fewNodes)))
	}

	all := "its nodes are " + text.List(names(cluster.Nodes))
	if near := suggest.Word(typed, known); near != "" {
		return fmt.Sprintf("did you mean %s? %s", near, all)
	}

	return all
}
