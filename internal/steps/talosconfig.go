package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/client/config"

	"github.com/talos-mage/talos-mage/internal/base/plainfile"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
	"github.com/talos-mage/talos-mage/internal/talos/talosconfig"
)

// completeTalosconfig gives the cluster's context of the talosconfig the control planes as endpoints and all nodes as
// nodes, if it lacks them or has addresses of machines that were replaced. Everything else in the file stays.
func (w *work) completeTalosconfig(ctx context.Context) error {
	path := w.Settings.Talosconfig

	// Not config.Open: it would make an empty file where there is none.
	data, _, err := plainfile.Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return workspace.BadInput(fmt.Errorf("read talosconfig: %w", err))
	}

	parsed, err := talosconfig.Parse(data)
	if err != nil {
		return workspace.BadInput(fmt.Errorf("read talosconfig %s: %w", path, err))
	}

	if !w.fillContext(parsed.Contexts[parsed.Context]) {
		return nil
	}

	if w.Settings.DryRun {
		return w.wouldWrite(path, path+" would get its endpoints and nodes")
	}

	if data, err = parsed.Bytes(); err != nil {
		return fmt.Errorf("encode talosconfig: %w", err)
	}

	if err := unwritable(path, w.gate.WriteFile(path, data, 0o600)); err != nil {
		return w.ofStep(ctx, err)
	}

	w.Log.Info().Str("file", path).Msg("talosconfig got its endpoints and nodes")
	return nil
}

// fillContext reports whether the context lacked anything.
func (w *work) fillContext(current *config.Context) bool {
	if current == nil {
		return false
	}

	controlPlanes := addressesOf(w.Cluster.ControlPlanes())
	endpoints := w.renewed(current.Endpoints, controlPlanes)
	nodes := w.renewed(current.Nodes, slices.Concat(controlPlanes, addressesOf(w.Cluster.Workers())))
	changed := !slices.Equal(endpoints, current.Endpoints) || !slices.Equal(nodes, current.Nodes)
	current.Endpoints, current.Nodes = endpoints, nodes

	return changed
}

// renewed are the addresses that are there, if they are still somebody's; else those that are, and all wanted ones.
func (w *work) renewed(present, wanted []string) []string {
	kept := filtered(present, func(address string) bool { return !w.isGone(address) })
	if len(kept) > 0 && len(kept) == len(present) {
		return present
	}

	for _, address := range wanted {
		kept = text.AppendNew(kept, address)
	}

	return kept
}

// isGone reports whether no node has an address, and no certificate is for it: it is that of a machine that was
// replaced. A name, and an address where nodes learn theirs, may be anybody's.
func (w *work) isGone(endpoint string) bool {
	host := check.EndpointHost(endpoint)

	address, err := netip.ParseAddr(host)
	if err != nil || host == w.Cluster.Endpoint.Hostname() {
		return false
	}

	return !slices.ContainsFunc(w.Cluster.Nodes, func(node *inventory.Node) bool {
		config := w.Configs[node.Name]
		return config == nil || config.UsesDHCP() || len(config.Addresses()) == 0 ||
			slices.Contains(w.observer.Addresses(node), host) || slices.Contains(config.CertSANs(), host) ||
			slices.Contains(config.VIPs(), address)
	})
}

func addressesOf(nodes []*inventory.Node) []string {
	addresses := make([]string, 0, len(nodes))
	for _, node := range nodes {
		addresses = append(addresses, node.Address)
	}

	return addresses
}
