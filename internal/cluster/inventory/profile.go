package inventory

import (
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/cluster/profile"
)

// loadProfile reads a cluster profile.
func loadProfile(options Options) (*Cluster, error) {
	path := filepath.Join(options.TalosDir, profile.FileName)

	declared, err := profile.Read(options.Files.Open(path), options.Contract)
	if err != nil {
		return nil, err
	}

	configDir := options.ConfigDir

	// A folder that was not chosen is the profile's.
	if configDir == "" || filepath.Clean(configDir) == defaultConfigDir(options.TalosDir) {
		configDir = declared.ConfigDir
	}

	cluster := clusterOfProfile(declared, path, configDir)
	cluster.Files, cluster.nodesFile, cluster.environ = options.Files, options.NodesFile, options.Environ
	cluster.learnFromConfigs()

	return cluster, cluster.learnFromNodesFile()
}

// clusterOfProfile is the cluster that a profile declares.
func clusterOfProfile(declared *profile.Profile, path, configDir string) *Cluster {
	cluster := &Cluster{
		Name:              declared.Name,
		Endpoint:          declared.Endpoint,
		TalosVersion:      declared.TalosVersion,
		KubernetesVersion: declared.KubernetesVersion,
		Contract:          declared.Contract,
		CNI:               constants.FlannelCNI,
		PodSubnets:        subnetsOr(declared.PodSubnet, constants.DefaultIPv4PodCIDR),
		ServiceSubnets:    subnetsOr(declared.ServiceSubnet, constants.DefaultIPv4ServiceCIDR),
		Source:            path,
		Profile:           declared,
		ConfigDir:         configDir,
	}

	for _, machine := range declared.Machines {
		cluster.Nodes = append(cluster.Nodes, profileNode(declared, machine, cluster.ConfigDir))
	}

	return cluster
}

func subnetsOr(declared netip.Prefix, fallback string) []netip.Prefix {
	if !declared.IsValid() {
		declared = netip.MustParsePrefix(fallback)
	}

	return []netip.Prefix{declared}
}

func profileNode(declared *profile.Profile, machine profile.Machine, dir string) *Node {
	node := &Node{
		Name:        machine.Name,
		Hostname:    machine.Name,
		Role:        machine.Role,
		Address:     machine.Address.Addr().String(),
		Network:     machine.Address,
		ConfigFile:  filepath.Join(dir, declared.ConfigFile(machine)),
		InstallDisk: declared.InstallDisk,
		UUID:        machine.UUID,
		ImageURL:    strings.TrimSuffix(declared.Installer(), ":"+declared.TalosVersion),
		SecureBoot:  declared.Image.Secureboot,
		Line:        machine.Line,
		Column:      machine.Column,
	}

	if machine.MAC != "" {
		node.MACs = []string{machine.MAC}
	}

	if machine.Role == ControlPlane && declared.VIP.IsValid() {
		node.VIPs = []netip.Addr{declared.VIP}
	}

	return node
}
