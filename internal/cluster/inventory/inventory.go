// Package inventory says which machines a cluster consists of, as its files declare them.
package inventory

import (
	"net/netip"
	"net/url"
	"path/filepath"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/cluster/profile"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Cluster is what the files say about a cluster. It is read once and not changed afterwards.
type Cluster struct {
	Name string
	// Endpoint is the Kubernetes API's URL.
	Endpoint          *url.URL
	TalosVersion      string // "v1.13.9"; empty when not declared
	KubernetesVersion string // "v1.36.3"; empty when not declared
	// Contract is the form that machine configs are made in, which may be an older release's than TalosVersion; nil if
	// none can be made.
	Contract *config.VersionContract
	// CNI is the declared CNI's name: "flannel" (Talos' default when nothing is declared), "none" or "custom".
	CNI            string
	PodSubnets     []netip.Prefix // the declared ones, or Talos' defaults
	ServiceSubnets []netip.Prefix
	// Nodes are in the order of the file; machines that share an entry follow one another.
	Nodes []*Node
	// Source is the file that the inventory was read from.
	Source string
	// Talconfig is the talconfig.yaml that the cluster was read from; nil if the source is a profile.
	Talconfig *talconfig.Reading
	// Profile is what a cluster profile says beyond the fields here; nil if the source is a talconfig.yaml.
	Profile *profile.Profile
	// ConfigDir holds the generated machine configs (talhelper's clusterconfig/).
	ConfigDir string

	// Files are those that it was read from, and others that a run asks for.
	Files *reading.Files

	// nodesFile may name hardware addresses too.
	nodesFile string
	// environ are variables, as NAME=value.
	environ []string
}

// Node is one machine.
type Node struct {
	// Name is unique in the cluster: the hostname, or "cp[192.0.2.11]" for the machines of one ignoreHostname entry.
	Name     string
	Hostname string
	// IgnoreHostname is set when the machine gets its hostname elsewhere (DHCP).
	IgnoreHostname bool
	Role           Role
	// Address is the declared address: an IP or a DNS name, never with a port.
	Address string
	// Network is Address with the length of its network's prefix; invalid where no file tells it.
	Network netip.Prefix
	// ConfigFile is the path of the machine config that this node gets.
	ConfigFile string
	// InstallDisk is the declared device path; DiskSelector the declared selector, as text for people.
	InstallDisk  string
	DiskSelector string
	// MACs are hardware addresses (lower case, colons) that the files name for this machine's physical links.
	// Empty means that identity can't be checked by MAC.
	MACs []string
	// UUID is the declared SMBIOS UUID, lower case; empty when not declared.
	UUID string
	// VIPs are the virtual addresses this node takes part in.
	VIPs []netip.Addr
	// ImageURL is the declared installer image without its tag; empty when not declared.
	ImageURL   string
	SecureBoot bool
	// Position of the node's entry in Source.
	Line, Column int
}

// DeclaresMachine reports whether the files say which machine the node is.
func (n *Node) DeclaresMachine() bool { return len(n.MACs) > 0 || n.UUID != "" }

// Role is the machine type as the inventory declares it.
type Role = machine.Type

// Roles a node can have here.
const (
	ControlPlane = machine.TypeControlPlane
	Worker       = machine.TypeWorker
)

// ControlPlanes are the control plane nodes, in inventory order.
func (c *Cluster) ControlPlanes() []*Node { return c.withRole(ControlPlane) }

// Workers are the worker nodes, in inventory order.
func (c *Cluster) Workers() []*Node { return c.withRole(Worker) }

func (c *Cluster) withRole(role Role) []*Node {
	var nodes []*Node

	for _, node := range c.Nodes {
		if node.Role == role {
			nodes = append(nodes, node)
		}
	}

	return nodes
}

// Node finds a node by name or declared address; nil if there is none.
func (c *Cluster) Node(name string) *Node {
	for _, node := range c.Nodes {
		if node.Name == name || node.Address == name {
			return node
		}
	}

	return nil
}

// MachineConfig is the machine config of a node as it was when it was first asked for, which Load does: whatever a run
// checks, compares and sends, it is the same content. Errors are *machineconfig.LoadError.
func (c *Cluster) MachineConfig(node *Node) (*machineconfig.Config, error) {
	return c.Files.Open(node.ConfigFile).Config()
}

// Variables are the values that texts of the cluster's files may use, from the environment and the files of variables.
// A file that can't be read or decrypted is an error.
func (c *Cluster) Variables() (talconfig.Variables, error) {
	if c.Talconfig != nil {
		return c.Talconfig.Variables, c.Talconfig.Variables.Failed
	}

	mistakes := &yamlfile.Mistakes{}
	variables := talconfig.ReadVariables(c.Files, filepath.Dir(c.Source), c.environ, mistakes)

	return variables, diagnosis.Join(variables.Failed, mistakes.Err())
}

// HasVIP reports whether the cluster's endpoint is a virtual address of its control planes.
func (c *Cluster) HasVIP() bool {
	if c.Endpoint == nil {
		return false
	}

	endpoint, err := netip.ParseAddr(c.Endpoint.Hostname())
	if err != nil {
		return false
	}

	for _, node := range c.Nodes {
		for _, vip := range node.VIPs {
			if vip == endpoint {
				return true
			}
		}
	}

	return false
}
