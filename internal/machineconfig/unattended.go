package machineconfig

import "github.com/siderolabs/talos/pkg/machinery/nethelpers"

// HidesInstall reports whether the API stays closed while an UnattendedInstallConfig installs Talos, and for ever if
// that never succeeds: a host name of `auto: stable` is made from what is kept on the disk, and the API's certificate
// waits for it. Source: Talos' controllers cluster/node_identity.go and secrets/api.go.
func (c *Config) HidesInstall() bool {
	hostname := c.Provider.NetworkHostnameConfig()
	return c.IsUnattended() && hostname != nil && hostname.AutoHostname() == nethelpers.AutoHostnameKindStable
}
