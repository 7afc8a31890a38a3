package check

import (
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config/config"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Hostnames are the static names that a config gives, with their places: the old field's and the document's.
func (c *Rendered) Hostnames() map[string]Place {
	names := map[string]Place{}

	if name := c.OlderHostname(); name != "" {
		names[name] = c.File.At("machine.network.hostname")
	}

	if c.HasDocument("HostnameConfig") && c.Hostname() != "" {
		names[c.Hostname()] = c.File.In("HostnameConfig", "hostname")
	}

	return names
}

// HasBothHostnames reports whether a config has the old field and the document.
func (c *Rendered) HasBothHostnames() bool {
	return c.OlderHostname() != "" && c.HasDocument("HostnameConfig")
}

// HostnamePlace is where a config sets a static hostname; the document for it where it sets none.
func (c *Rendered) HostnamePlace(name string) Place {
	if place, known := c.Hostnames()[name]; known {
		return place
	}

	return c.File.In("HostnameConfig", "hostname")
}

// HasDocument reports whether a document of a kind is there.
func (c *Rendered) HasDocument(kind string) bool {
	return slices.ContainsFunc(c.Provider.Documents(),
		func(document config.Document) bool { return document.Kind() == kind })
}

// ResolverTexts are the name servers, of machine.network or of the ResolverConfig document.
func (c *Rendered) ResolverTexts() []string {
	if resolver := c.Provider.NetworkResolverConfig(); resolver != nil && len(resolver.Resolvers()) > 0 {
		var texts []string
		for _, addr := range resolver.Resolvers() {
			texts = append(texts, addr.Addr.String())
		}

		return texts
	}

	return c.OlderNameServers()
}

// ResolverPlace is where a machine config names its i-th name server.
func (c *Rendered) ResolverPlace(i int) Place {
	if c.HasDocument("ResolverConfig") {
		return c.File.In("ResolverConfig", "nameservers").Item(i).Field("address")
	}

	return c.File.At("machine.network.nameservers").Item(i)
}

// TimeServerTexts are the time servers, of machine.time or of the TimeSyncConfig document; none where Talos' default
// counts.
func (c *Rendered) TimeServerTexts() []string {
	if sync := c.Provider.NetworkTimeSyncConfig(); sync != nil && c.HasDocument("TimeSyncConfig") {
		return sync.Servers()
	}

	return c.OlderTimeServers()
}

// TimeServerPlace is where a machine config names its i-th time server.
func (c *Rendered) TimeServerPlace(i int) Place {
	if c.HasDocument("TimeSyncConfig") {
		return c.File.In("TimeSyncConfig", "ntp.servers").Item(i)
	}

	return c.File.At("machine.time.servers").Item(i)
}

// Special names the kind of an address that is not one machine's; empty for ordinary ones.
func Special(addr netip.Addr) string {
	switch {
	case !addr.IsValid():
		return ""
	case addr.IsUnspecified():
		return "unspecified"
	case addr.IsLoopback():
		return "loopback"
	case addr.IsMulticast():
		return "multicast"
	case addr.IsLinkLocalUnicast():
		return "link-local"
	case addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "broadcast"
	default:
		return ""
	}
}

// OwnAddresses are the static addresses of links that others reach, and the declared ones.
func (c *Rendered) OwnAddresses() []netip.Addr {
	var addresses []netip.Addr

	for _, link := range c.Links() {
		for _, address := range link.Addresses {
			if addr := address.Prefix.Addr(); addr.IsValid() && Special(addr) == "" {
				addresses = append(addresses, addr)
			}
		}
	}

	for _, node := range c.Nodes {
		addresses = append(addresses, AddressesOf(node, nil)...)
	}

	slices.SortFunc(addresses, netip.Addr.Compare)

	return slices.Compact(addresses)
}

// KubernetesMinor is the minor version of the API server's image, or the kubelet's; false if no file names one.
func (c *Rendered) KubernetesMinor() (int, bool) {
	for _, part := range []struct{ field, image string }{
		{"cluster.apiServer.image", c.APIServer().Image()}, {"machine.kubelet.image", c.Kubelet().Image()},
	} {
		// What no file names is the default of the release that machinery is of.
		if minor, known := MinorOf(part.image); known && c.At(part.field).Exists() {
			return minor, true
		}
	}

	return 0, false
}

// MinorOf reads the tag of an image of Kubernetes; false if it is none.
func MinorOf(image string) (int, bool) {
	match := kubernetesTag.FindStringSubmatch(image)
	if match == nil {
		return 0, false
	}

	minor, err := strconv.Atoi(match[1])

	return minor, err == nil
}

var kubernetesTag = pattern.New(`:v1\.(\d+)\.`)

// IsControlPlane reports whether a config makes a control plane.
func IsControlPlane(config *Rendered) bool {
	return config.Role().String() != "worker" && config.Role().String() != "unknown"
}

// IsWorker reports whether a config makes no control plane.
func IsWorker(config *Rendered) bool { return !IsControlPlane(config) }

// InstallPlace is where a machine config names its installer.
func (c *Rendered) InstallPlace(field string) Place { return c.At("machine.install." + field) }

// AddressPlace is where a machine config sets a static address.
func (c *Rendered) AddressPlace(addr netip.Addr) (Place, bool) {
	for _, link := range c.Links() {
		for _, address := range link.Addresses {
			if address.Prefix.IsValid() && address.Prefix.Addr() == addr {
				return address.At, true
			}
		}
	}

	return Place{}, false
}

// Rendered is a machine config as a node gets it.
type Rendered struct {
	// Name is the node's, or the file's where no node of the inventory has it. Machines that share a file share its
	// Rendered.
	Name string
	// Nodes are those that get it; none without an inventory.
	Nodes []*inventory.Node
	File  *File
	*machineconfig.Config

	Links func() []*Link
}

// NewRendered is a machine config by itself; Links are found when they are first asked for.
func NewRendered(config *machineconfig.Config) *Rendered {
	rendered := &Rendered{Config: config}
	rendered.Links = sync.OnceValue(func() []*Link { return linksOf(rendered) })

	return rendered
}

// AddressesOf are the addresses that the files give a node, without their prefix lengths.
func AddressesOf(node *inventory.Node, config *Rendered) []netip.Addr {
	var addresses []netip.Addr

	if declared, err := netip.ParseAddr(node.Address); err == nil {
		addresses = append(addresses, declared.Unmap())
	}

	if config != nil {
		for _, prefix := range config.Addresses() {
			addresses = append(addresses, prefix.Addr().Unmap())
		}
	}

	slices.SortFunc(addresses, netip.Addr.Compare)

	return slices.Compact(addresses)
}

// SharedSpace are the addresses that providers and private networks between machines use.
var SharedSpace = netip.MustParsePrefix("100.64.0.0/10")
