package observe

import (
	"context"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/kube"
)

// Components asks at the endpoint what runs of Kubernetes, and in which version.
func (k *Kubernetes) Components(ctx context.Context) ([]kube.Component, error) {
	client, err := k.open(ctx, "")
	if err != nil {
		return nil, err
	}

	return client.Components(ctx) //nolint:wrapcheck // it says what was asked
}

// DeprecatedAPIs asks the API servers for the deprecated APIs that are in use: each knows only what it was asked
// itself. The one at the endpoint has to answer; of the addresses of the others some may not be in use.
func (k *Kubernetes) DeprecatedAPIs(ctx context.Context) ([]kube.DeprecatedAPI, error) {
	found, err := k.deprecatedAt(ctx, "")
	if err != nil {
		return nil, err
	}

	for _, address := range k.apiAddresses() {
		used, err := k.deprecatedAt(ctx, address)
		if err != nil {
			continue
		}

		for _, api := range used {
			if !slices.Contains(found, api) {
				found = append(found, api)
			}
		}
	}

	return found, nil
}

func (k *Kubernetes) deprecatedAt(ctx context.Context, address string) ([]kube.DeprecatedAPI, error) {
	client, err := k.open(ctx, address)
	if err != nil {
		return nil, err
	}

	return client.DeprecatedAPIs(ctx) //nolint:wrapcheck // it says what was asked
}

// Kubelets are the nodes that Kubernetes lists, of which talosctl upgrades each.
func (k *Kubernetes) Kubelets(ctx context.Context) ([]kube.Node, error) {
	client, err := k.open(ctx, "")
	if err != nil {
		return nil, err
	}

	return client.Nodes(ctx) //nolint:wrapcheck // it says what was asked
}

// NodeOf is the inventory's node that Kubernetes lists by this name or at one of these addresses; nil if there is none.
func (o *Observer) NodeOf(registered kube.Node) *inventory.Node {
	for _, node := range o.Cluster.Nodes {
		if !node.IgnoreHostname && strings.EqualFold(node.Hostname, registered.Name) || o.hasAddress(node, registered) {
			return node
		}
	}

	return nil
}
