package machineconfig

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

// Defaults of GenerateOptions.
const (
	// DefaultTalosVersion is the Talos release that generated configs are for: the one machinery's API types come from.
	DefaultTalosVersion = "v1.13.9"
	// DefaultInstallDisk is the first virtio disk.
	DefaultInstallDisk = "/dev/vda"
	// DefaultImage is the image factory's installer for the schematic without any customization.
	DefaultImage = "factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
	// defaultLink is configured when a node spec names neither a link nor a MAC.
	defaultLink = "eth0"
	// aliasLink is the alias of the link that a node spec selects by its MAC.
	aliasLink = "net0"
)

// NodeSpec is one machine of a cluster to generate.
type NodeSpec struct {
	Name string
	Role machine.Type
	// Address is the static address with its prefix length; the zero value leaves the node to DHCP.
	Address netip.Prefix
	// Declared is where the inventory says that the node answers, for nodes that use DHCP. Default: Address.
	Declared string
	// MAC selects the physical link to configure by its permanent address.
	MAC string
	// Link is the physical link's name, when no MAC is given. Default "eth0".
	Link string
	// Gateway of the default route; none by default.
	Gateway netip.Addr
	// InstallDisk overrides the cluster's.
	InstallDisk string
}

// GenerateOptions describe a cluster to generate.
type GenerateOptions struct {
	ClusterName string
	// Endpoint is the Kubernetes API's URL, as in "https://192.0.2.10:6443".
	Endpoint string
	// VIP is shared by the control planes; the zero value for none.
	VIP netip.Addr
	// CNI is "flannel" (the default), "none" or "custom".
	CNI string
	// TalosVersion fixes the version contract and the installer's tag. Default DefaultTalosVersion.
	TalosVersion string
	// KubernetesVersion without "v"; default: the newest minor version that TalosVersion takes.
	KubernetesVersion string
	// Image is the installer image without its tag. Default DefaultImage.
	Image string
	// InstallDisk defaults to DefaultInstallDisk.
	InstallDisk string
	// Secrets is a ready bundle; nil makes a new one, which takes seconds.
	Secrets *secrets.Bundle
	Nodes   []NodeSpec
}

// GeneratedConfig is the machine config of one node.
type GeneratedConfig struct {
	Node NodeSpec
	// FileName is what talhelper calls the file: <cluster>-<hostname>.yaml.
	FileName string
	Bytes    []byte
}

// Generated is a cluster's set of files.
type Generated struct {
	// Options with all defaults filled in.
	Options GenerateOptions
	Configs []GeneratedConfig
	// Talosconfig has the control planes as endpoints and all machines as nodes.
	Talosconfig []byte
}

// NewSecrets makes a bundle of cluster secrets for a Talos version, valid from now on.
func NewSecrets(talosVersion string) (*secrets.Bundle, error) {
	contract, err := talosconfig.ParseContractFromVersion(talosVersion)
	if err != nil {
		return nil, fmt.Errorf("read Talos version: %w", err)
	}

	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), contract)
	if err != nil {
		return nil, fmt.Errorf("make secrets: %w", err)
	}

	return bundle, nil
}

// GenerateCluster makes the machine config of every node and the talosconfig, the way talhelper would, from machinery
// alone.
func GenerateCluster(options GenerateOptions) (*Generated, error) {
	options, err := withDefaults(options)
	if err != nil {
		return nil, err
	}

	contract, err := talosconfig.ParseContractFromVersion(options.TalosVersion)
	if err != nil {
		return nil, fmt.Errorf("read Talos version: %w", err)
	}

	if options.Secrets == nil {
		if options.Secrets, err = NewSecrets(options.TalosVersion); err != nil {
			return nil, err
		}
	}

	input, err := newInput(options, contract)
	if err != nil {
		return nil, err
	}

	generated := &Generated{Options: options}

	for _, node := range options.Nodes {
		data, err := generateNode(input, options, contract, node)
		if err != nil {
			return nil, fmt.Errorf("generate config of %s: %w", node.Name, err)
		}

		generated.Configs = append(generated.Configs, GeneratedConfig{
			Node:     node,
			FileName: options.ClusterName + "-" + node.Name + ".yaml",
			Bytes:    data,
		})
	}

	generated.Talosconfig, err = generateTalosconfig(input, options)

	return generated, err
}

func withDefaults(options GenerateOptions) (GenerateOptions, error) {
	if options.ClusterName == "" || len(options.Nodes) == 0 {
		return options, errors.New("generate cluster: a cluster name and at least one node are needed")
	}

	if endpoint, err := url.Parse(options.Endpoint); err != nil || endpoint.Host == "" {
		return options, fmt.Errorf("generate cluster: endpoint %q is not a URL", options.Endpoint)
	}

	setDefault(&options.CNI, constants.FlannelCNI)
	setDefault(&options.TalosVersion, DefaultTalosVersion)
	setDefault(&options.KubernetesVersion, newestKubernetes(options.TalosVersion))
	setDefault(&options.Image, DefaultImage)
	setDefault(&options.InstallDisk, DefaultInstallDisk)

	options.KubernetesVersion = strings.TrimPrefix(options.KubernetesVersion, "v")
	options.Nodes = slices.Clone(options.Nodes)

	for i := range options.Nodes {
		node := &options.Nodes[i]

		setDefault(&node.InstallDisk, options.InstallDisk)

		if node.MAC == "" {
			setDefault(&node.Link, defaultLink)
		}

		if node.Declared == "" && node.Address.IsValid() {
			node.Declared = node.Address.Addr().String()
		}

		if node.Name == "" || node.Declared == "" {
			return options, fmt.Errorf("generate cluster: node %d needs a name and an address", i+1)
		}
	}

	return options, nil
}

// newestKubernetes is machinery's default where a Talos version takes it, and otherwise the first release of the newest
// minor version that it takes.
func newestKubernetes(talosVersion string) string {
	var minor int

	talos, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: talosVersion})
	if err == nil {
		_, err = fmt.Sscanf(constants.DefaultKubernetesVersion, "1.%d.", &minor)
	}

	candidate := constants.DefaultKubernetesVersion

	for ; err == nil && minor > 0; candidate = fmt.Sprintf("1.%d.0", minor) {
		if version, err := compatibility.ParseKubernetesVersion(candidate); err == nil &&
			version.SupportedWith(talos) == nil {
			return candidate
		}

		minor--
	}

	return constants.DefaultKubernetesVersion
}

func setDefault(value *string, fallback string) {
	if *value == "" {
		*value = fallback
	}
}

func newInput(options GenerateOptions, contract *talosconfig.VersionContract) (*generate.Input, error) {
	var endpoints []string

	for _, node := range options.Nodes {
		if node.Role == machine.TypeControlPlane {
			endpoints = append(endpoints, node.Declared)
		}
	}

	generateOptions := []generate.Option{
		generate.WithSecretsBundle(options.Secrets),
		generate.WithVersionContract(contract),
		generate.WithInstallImage(options.Image + ":" + options.TalosVersion),
		generate.WithEndpointList(endpoints),
		// Without a worker the pods have no other place.
		generate.WithAllowSchedulingOnControlPlanes(len(endpoints) == len(options.Nodes)),
	}

	if options.CNI != constants.FlannelCNI {
		generateOptions = append(generateOptions, generate.WithClusterCNIConfig(&v1alpha1.CNIConfig{CNIName: options.CNI}))
	}

	input, err := generate.NewInput(options.ClusterName, options.Endpoint, options.KubernetesVersion, generateOptions...)
	if err != nil {
		return nil, fmt.Errorf("prepare generation: %w", err)
	}

	return input, nil
}

// generateNode makes one machine config, with a static hostname and the node's own network settings.
func generateNode(input *generate.Input, options GenerateOptions, contract *talosconfig.VersionContract,
	node NodeSpec) ([]byte, error) {
	provider, err := input.Config(node.Role)
	if err != nil {
		return nil, err
	}

	raw := provider.RawV1Alpha1()
	raw.MachineConfig.MachineInstall.InstallDisk = node.InstallDisk

	var documents []config.Document

	if contract.MultidocNetworkConfigSupported() {
		documents, err = networkDocuments(options, node)
		if err != nil {
			return nil, err
		}
	} else {
		setOldNetwork(raw, options, node)
	}

	generated := slices.DeleteFunc(slices.Clone(provider.Documents()), func(document config.Document) bool {
		return document.Kind() == network.HostnameKind
	})

	combined, err := container.New(append(generated, documents...)...)
	if err != nil {
		return nil, err
	}

	return combined.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
}

// networkDocuments are the network settings as documents of their own, as Talos 1.12 and newer have them.
func networkDocuments(options GenerateOptions, node NodeSpec) ([]config.Document, error) {
	hostname := network.NewHostnameConfigV1Alpha1()
	hostname.ConfigHostname = node.Name
	hostname.ConfigAuto = new(nethelpers.AutoHostnameKindOff)

	documents := []config.Document{hostname}
	linkName := node.Link

	if node.MAC != "" {
		linkName = aliasLink

		match, err := cel.ParseBooleanExpression(fmt.Sprintf("mac(link.permanent_addr) == %q", node.MAC),
			celenv.LinkLocator())
		if err != nil {
			return nil, fmt.Errorf("select link by MAC: %w", err)
		}

		alias := network.NewLinkAliasConfigV1Alpha1(linkName)
		alias.Selector.Match = match
		documents = append(documents, alias)
	}

	if node.Address.IsValid() {
		link := network.NewLinkConfigV1Alpha1(linkName)
		link.LinkAddresses = []network.AddressConfig{{AddressAddress: node.Address}}

		if node.Gateway.IsValid() {
			link.LinkRoutes = []network.RouteConfig{{RouteGateway: network.Addr{Addr: node.Gateway}}}
		}

		documents = append(documents, link)
	}

	if options.VIP.IsValid() && node.Role == machine.TypeControlPlane {
		vip := network.NewLayer2VIPConfigV1Alpha1(options.VIP.String())
		vip.LinkName = linkName
		documents = append(documents, vip)
	}

	return documents, nil
}

// setOldNetwork writes the same settings into machine.network, all that Talos before 1.12 understands.
func setOldNetwork(raw *v1alpha1.Config, options GenerateOptions, node NodeSpec) {
	device := &v1alpha1.Device{DeviceInterface: node.Link}

	if node.MAC != "" {
		device = &v1alpha1.Device{DeviceSelector: &v1alpha1.NetworkDeviceSelector{NetworkDeviceHardwareAddress: node.MAC}}
	}

	if node.Address.IsValid() {
		device.DeviceAddresses = []string{node.Address.String()}

		if node.Gateway.IsValid() {
			device.DeviceRoutes = []*v1alpha1.Route{{RouteGateway: node.Gateway.String()}}
		}
	} else {
		device.DeviceDHCP = new(true)
	}

	if options.VIP.IsValid() && node.Role == machine.TypeControlPlane {
		device.DeviceVIPConfig = &v1alpha1.DeviceVIPConfig{SharedIP: options.VIP.String()}
	}

	//nolint:staticcheck // the old field is the only one that these Talos versions know
	raw.MachineConfig.MachineNetwork = &v1alpha1.NetworkConfig{
		NetworkHostname:   node.Name,
		NetworkInterfaces: []*v1alpha1.Device{device},
	}
}

func generateTalosconfig(input *generate.Input, options GenerateOptions) ([]byte, error) {
	client, err := input.Talosconfig()
	if err != nil {
		return nil, fmt.Errorf("generate talosconfig: %w", err)
	}

	for _, node := range options.Nodes {
		context := client.Contexts[client.Context]
		context.Nodes = append(context.Nodes, node.Declared)
	}

	data, err := client.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encode talosconfig: %w", err)
	}

	return data, nil
}
