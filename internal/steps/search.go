package steps

import (
	"context"
	"net/netip"

	"github.com/talos-mage/talos-mage/internal/discover"
)

// search finds the machines that answer in the networks of the inventory's addresses.
func (r *Run) search(ctx context.Context, progress func(discover.Progress)) ([]discover.Machine, error) {
	var texts []string
	for _, node := range r.Cluster.Nodes {
		if address, err := netip.ParseAddr(node.Address); err == nil {
			texts = append(texts, netip.PrefixFrom(address, 24).Masked().String())
		}
	}

	networks, err := discover.ParseNetworks(texts, false)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the network
	}

	//nolint:wrapcheck // it says what was asked
	return discover.Search{Networks: networks, Dialer: r.observer.Dialer(), Progress: progress}.Machines(ctx)
}
