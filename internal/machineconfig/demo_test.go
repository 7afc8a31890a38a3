package machineconfig_test

import (
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
)

// demoOptions is a cluster of two control planes, one with DHCP, and a worker.
func demoOptions() clusterfiles.Options {
	return clusterfiles.Options{
		ClusterName: "demo",
		Endpoint:    "https://192.0.2.10:6443",
		VIP:         netip.MustParseAddr("192.0.2.10"),
		CNI:         "none",
		Nodes: []clusterfiles.Node{
			{
				Name: "cp1", Role: machine.TypeControlPlane, Address: netip.MustParsePrefix("192.0.2.11/24"),
				MAC: "02:00:00:00:00:11", Gateway: netip.MustParseAddr("192.0.2.1"),
			},
			{Name: "cp2", Role: machine.TypeControlPlane, Declared: "192.0.2.12"},
			{Name: "w1", Role: machine.TypeWorker, Address: netip.MustParsePrefix("192.0.2.21/24"), Link: "ens3"},
		},
	}
}
