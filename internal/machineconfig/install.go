package machineconfig

import "github.com/siderolabs/talos/pkg/machinery/nethelpers"

// InstallsUnattended reports whether Talos is installed by an UnattendedInstallConfig: beside the boot, and again and
// again for as long as it fails.
func (c *Config) InstallsUnattended() bool { return c.Provider.UnattendedInstallConfig() != nil }

// HidesInstall reports whether the API stays closed during such an install, and for ever if it never succeeds: a host
// name of `auto: stable` is made from what is kept on the disk, and the API's certificate waits for it. Source: Talos'
// controllers cluster/node_identity.go and secrets/api.go.
func (c *Config) HidesInstall() bool {
	hostname := c.Provider.NetworkHostnameConfig()
	return c.InstallsUnattended() && hostname != nil && hostname.AutoHostname() == nethelpers.AutoHostnameKindStable
}
