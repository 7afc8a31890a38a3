// Package profile reads a cluster profile, cluster.yaml: one file that says which machines a cluster has, their
// addresses, and which Talos and Kubernetes they run. It is the form of those who otherwise call `talosctl gen config`
// and patch its result for each node.
package profile

import (
	"net/netip"
	"net/url"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
)

// FileName is the profile's name in TALOS_DIR.
const FileName = "cluster.yaml"

// Profile is what a cluster.yaml says, with the defaults filled in.
type Profile struct {
	Name string
	// Endpoint is the Kubernetes API's URL.
	Endpoint *url.URL
	// PodSubnet and ServiceSubnet are the zero value where Talos' own apply.
	PodSubnet, ServiceSubnet netip.Prefix
	Nameservers              []netip.Addr
	// DHCPElsewhere has links that nothing configures ask for DHCP. Up to contract 1.13 they always do.
	DHCPElsewhere bool

	TalosVersion      string // "v1.13.9"
	KubernetesVersion string // "v1.36.3"
	// Contract is the form that machine configs are made in.
	Contract *config.VersionContract
	// Image is the factory's image. Its Mode is empty unless the profile names a platform.
	Image       schematic.Image
	InstallDisk string
	// VIP is the zero value if there is none.
	VIP netip.Addr

	// ConfigDir, PatchesDir and SecretsFile are paths; relative ones of the profile were joined to its folder.
	ConfigDir, PatchesDir, SecretsFile string
	// RegenerateSecrets allows to make secrets where there are none.
	RegenerateSecrets bool

	// Machines are the control planes and then the workers, each in the file's order.
	Machines []Machine
}

// Machine is one node of a profile.
type Machine struct {
	Name string
	Role machine.Type // control plane or worker
	// Address is the node's, with the length of its network's prefix.
	Address   netip.Prefix
	Gateway   netip.Addr
	Interface string
	MAC       string // lower case, colons; empty when not declared
	UUID      string // lower case; empty when not declared
	VMID      int    // 0 when not declared
	// Place of the entry in the file.
	Line, Column int
}

// Installer is the installer image. Without a platform it has the name that talosctl's users know,
// <registry>/installer/<id>:<version>, which the factory takes for every version.
func (p *Profile) Installer() string {
	if p.Image.Mode == "" {
		return p.Image.LegacyInstaller()
	}

	return p.Image.Installer()
}

// Release is the one that TalosVersion belongs to.
func (p *Profile) Release() *config.VersionContract {
	minor, err := config.ParseContractFromVersion(p.TalosVersion)
	if err != nil {
		return nil // it was refused when it was read
	}

	return minor
}

// ControlPlanes are the addresses of the control planes.
func (p *Profile) ControlPlanes() []string {
	var addresses []string

	for _, node := range p.Machines {
		if node.Role == machine.TypeControlPlane {
			addresses = append(addresses, node.Address.Addr().String())
		}
	}

	return addresses
}

// Addresses are those of all nodes.
func (p *Profile) Addresses() []string {
	addresses := make([]string, 0, len(p.Machines))
	for _, node := range p.Machines {
		addresses = append(addresses, node.Address.Addr().String())
	}

	return addresses
}

// ConfigFile is the name of a node's machine config in ConfigDir.
func (p *Profile) ConfigFile(node Machine) string { return p.Name + "-" + node.Name + ".yaml" }
