package inventory

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// TalconfigName is the inventory's file in TALOS_DIR.
const TalconfigName = talconfig.FileName

// Options say where a cluster's files are.
type Options struct {
	// TalosDir holds talconfig.yaml and talenv.yaml, or cluster.yaml.
	TalosDir string
	// Source is the form that the cluster is declared in. Default: Auto.
	Source Kind
	// ConfigDir holds the machine configs and the talosconfig. Default: TalosDir/clusterconfig; with a profile its
	// config_dir, which also goes before that folder when it is named here.
	ConfigDir string
	// Contract names the form of machine configs, over what the files say; empty leaves it to them.
	Contract string
	// NodesFile is the path of a nodes.yaml, which may name the machines' hardware addresses; empty for none.
	NodesFile string
	// Environ are NAME=value pairs for variables, as os.Environ gives them.
	Environ []string
	// Files are what the run has read so far; nil for nothing yet.
	Files *reading.Files
}

// Load reads talconfig.yaml with the variables of talenv.yaml and the environment, or a cluster profile. An error lists
// every mistake in the files: it is a multierror of *yamlfile.Error, see FileErrors. Facts that patches can change, as
// the CNI, come from the machine configs where they exist; whether those fit is for the checks to say.
func Load(options Options) (*Cluster, error) {
	cluster, err := Inspect(options)
	if err != nil {
		return nil, err
	}

	return cluster, nil
}

// Inspect is Load for those who only look: with the error comes as much of the cluster as the files tell all the same,
// for what can be said about it. It may lack anything, and is nil where nothing can be made out.
func Inspect(options Options) (*Cluster, error) {
	if options.Files == nil {
		options.Files = reading.New("", nil)
	}

	kind, err := options.kind()

	switch {
	case err != nil:
		return nil, err
	case kind == Profile:
		return loadProfile(options)
	default:
		return inspectTalconfig(options)
	}
}

func defaultConfigDir(talosDir string) string { return filepath.Join(talosDir, "clusterconfig") }

func inspectTalconfig(options Options) (*Cluster, error) {
	if options.ConfigDir == "" {
		options.ConfigDir = defaultConfigDir(options.TalosDir)
	}

	cluster := clusterOf(talconfig.Read(options.Files, options.TalosDir, options.Environ), options)
	cluster.readContract(options.Contract)
	cluster.Talconfig.NameFields(cluster.Talconfig.Root)

	if len(cluster.Nodes) == 0 {
		return nil, cluster.Talconfig.Err()
	}

	cluster.learnFromConfigs()

	return cluster, diagnosis.Join(cluster.Talconfig.Err(), cluster.learnFromNodesFile())
}

// clusterOf is the cluster that a talconfig.yaml declares.
func clusterOf(read *talconfig.Reading, options Options) *Cluster {
	reader := &reader{Reading: read, cluster: &Cluster{
		Source: filepath.Join(options.TalosDir, TalconfigName), ConfigDir: options.ConfigDir, Files: options.Files,
		Talconfig: read, nodesFile: options.NodesFile,
	}}

	if read.Config != nil {
		reader.readCluster(read.Root, read.Config)
		reader.readNodes(read.Root, read.Config)
	}

	return reader.cluster
}

// Renewed is the cluster with what machine configs tell that were made since it was loaded. What declares it is not
// read again.
func (c *Cluster) Renewed() *Cluster {
	var renewed *Cluster

	if c.Profile != nil {
		renewed = clusterOfProfile(c.Profile, c.Source, c.ConfigDir)
		renewed.Files, renewed.nodesFile, renewed.environ = c.Files, c.nodesFile, c.environ
	} else {
		renewed = clusterOf(c.Talconfig, Options{TalosDir: filepath.Dir(c.Source), ConfigDir: c.ConfigDir,
			NodesFile: c.nodesFile, Files: c.Files})
	}

	renewed.Contract = c.Contract
	renewed.learnFromConfigs()
	_ = renewed.learnFromNodesFile() // the same file was read without a mistake

	return renewed
}

// reader turns one talconfig.yaml into a cluster.
type reader struct {
	*talconfig.Reading

	cluster *Cluster
	// addresses, names and files find what is used twice; the values are where it was used first.
	addresses, names, files map[string]*yaml.Node
}

func (r *reader) readCluster(root *yaml.Node, config *talconfig.Config) {
	cluster := r.cluster
	cluster.Name = config.ClusterName
	cluster.TalosVersion = release.WithV(config.TalosVersion)
	cluster.KubernetesVersion = release.WithV(config.KubernetesVersion)
	cluster.CNI = constants.FlannelCNI

	if cluster.Name == "" {
		r.missing(root, "clusterName", "it is the first part of the machine configs' names")
	}

	if config.CNI != nil && config.CNI.CNIName != "" {
		cluster.CNI = config.CNI.CNIName
	}

	cluster.PodSubnets = r.subnets(root, "clusterPodNets", config.PodNets, constants.DefaultIPv4PodCIDR)
	cluster.ServiceSubnets = r.subnets(root, "clusterSvcNets", config.ServiceNets, constants.DefaultIPv4ServiceCIDR)

	r.readEndpoint(root, config.Endpoint)
}

func (r *reader) missing(mapping *yaml.Node, key, why string) {
	misspelt := func(mistake *yamlfile.Error) bool { return mistake.Suggestion == key }

	if slices.ContainsFunc(r.List, misspelt) {
		return // it is there under another name, which was said already
	}

	r.At(yamlfile.PlaceOf(mapping, key), diagnosis.FileValue, "%q is needed: %s", key, why)
}

func (r *reader) readEndpoint(root *yaml.Node, text string) {
	if text == "" {
		r.missing(root, "endpoint", "the URL of the Kubernetes API, as https://192.0.2.10:6443")

		return
	}

	endpoint, err := url.Parse(text)
	if bare := bareIPv6(text); err != nil && bare != "" {
		r.At(yamlfile.PlaceOf(root, "endpoint"), diagnosis.FileValue,
			"\"endpoint\" has an IPv6 address without brackets, write https://[%s]:6443", bare)

		return
	}

	if err != nil || endpoint.Scheme == "" || endpoint.Hostname() == "" {
		r.At(yamlfile.PlaceOf(root, "endpoint"), diagnosis.FileValue,
			"\"endpoint\" must be a URL with a host, as https://192.0.2.10:6443")

		return
	}

	r.cluster.Endpoint = endpoint
}

// bareIPv6 is the IPv6 address of a URL that lacks its brackets, with a port behind it or without; empty if there is
// none.
func bareIPv6(text string) string {
	_, named, _ := strings.Cut(text, "://")
	named, _, _ = strings.Cut(named, "/")

	for _, candidate := range []string{strings.TrimSuffix(strings.TrimSuffix(named, ":6443"), ":443"), named} {
		if address, err := netip.ParseAddr(candidate); err == nil && address.Is6() {
			return candidate
		}
	}

	return ""
}

func (r *reader) subnets(root *yaml.Node, key string, declared []string, fallback string) []netip.Prefix {
	if len(declared) == 0 {
		declared = []string{fallback}
	}

	var subnets []netip.Prefix

	for i, text := range declared {
		subnet, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			r.At(yamlfile.Item(yamlfile.PlaceOf(root, key), i), diagnosis.FileValue, "%q: %q is not a subnet, as 10.244.0.0/16",
				key, text)

			continue
		}

		subnets = append(subnets, subnet)
	}

	return subnets
}

func (r *reader) readNodes(root *yaml.Node, config *talconfig.Config) {
	list := yamlfile.Field(root, "nodes")

	if list == nil || list.Kind == yaml.ScalarNode || len(list.Content) == 0 {
		mistake := r.Mistake(yamlfile.PlaceOf(root, "nodes"), diagnosis.FileNoNodes, "no nodes are declared")
		mistake.Next = "list the machines under `nodes:`"
		r.Add(mistake)

		return
	}

	r.addresses, r.names, r.files = map[string]*yaml.Node{}, map[string]*yaml.Node{}, map[string]*yaml.Node{}

	for i, place := range list.Content {
		if i < len(config.Nodes) && place.Kind == yaml.MappingNode {
			r.readNode(place, config, config.Nodes[i])
		}
	}
}

// readNode adds the machines of one entry: one, or several that share a machine config.
func (r *reader) readNode(place *yaml.Node, config *talconfig.Config, declared talconfig.Node) {
	role, group := Worker, config.Worker
	if declared.ControlPlane {
		role, group = ControlPlane, config.ControlPlane
	}

	if declared.Hostname == "" {
		r.missing(place, "hostname", "it names the node and its machine config")
	}

	addresses := r.readAddresses(place, declared)
	settings := declared.NodeSettings

	shared := Node{
		Hostname:       declared.Hostname,
		IgnoreHostname: declared.IgnoreHostname,
		Role:           role,
		InstallDisk:    declared.InstallDisk,
		DiskSelector:   selectorText(declared.InstallDiskSelector),
		ImageURL:       firstSet(settings.TalosImageURL, group.TalosImageURL),
		SecureBoot:     firstSet(settings.MachineSpec, group.MachineSpec).SecureBoot,
		Line:           place.Line,
		Column:         place.Column,
	}

	interfaces := settings.NetworkInterfaces
	if len(interfaces) == 0 {
		interfaces = group.NetworkInterfaces
	}

	shared.MACs, shared.VIPs = machineconfig.DeviceMACs(interfaces), machineconfig.DeviceVIPs(interfaces)
	shared.ConfigFile = r.configFile(place, config, declared)

	r.checkHostname(place, declared, len(addresses) > 1)

	for _, address := range addresses {
		node := shared
		node.Address = address
		node.Name = declared.Hostname
		node.Network = networkAmong(machineconfig.DeviceAddresses(interfaces), address)

		if len(addresses) > 1 {
			node.Name += "[" + address + "]"
		}

		r.cluster.Nodes = append(r.cluster.Nodes, &node)
	}
}

// readAddresses splits ipAddress: a comma separates machines that share the entry, not addresses of one machine.
func (r *reader) readAddresses(place *yaml.Node, declared talconfig.Node) []string {
	value := yamlfile.PlaceOf(place, "ipAddress")

	if strings.TrimSpace(declared.IPAddress) == "" {
		r.missing(place, "ipAddress", "it is where the machine answers")

		return nil
	}

	var addresses []string

	for text := range strings.SplitSeq(declared.IPAddress, ",") {
		address := strings.TrimSpace(text)

		if problem := host.Fault(address); problem != "" {
			r.At(value, diagnosis.FileAddress, "address %q of %s %s", address, nodeLabel(declared), problem)

			continue
		}

		key := host.Key(address)

		if first := r.addresses[key]; first != nil {
			r.At(value, diagnosis.FileDuplicate, "address %s is another node's already, in line %d", address, first.Line)

			continue
		}

		r.addresses[key] = value
		addresses = append(addresses, address)
	}

	return addresses
}

// networkAmong is the one of a machine's addresses that it is known by, with its prefix length; invalid if that is not
// told.
func networkAmong(static []netip.Prefix, address string) netip.Prefix {
	at := slices.IndexFunc(static, func(prefix netip.Prefix) bool {
		return prefix.Addr().String() == host.Key(address) && !prefix.IsSingleIP()
	})
	if at < 0 {
		return netip.Prefix{}
	}

	return static[at]
}

func nodeLabel(declared talconfig.Node) string {
	if declared.Hostname == "" {
		return "the node"
	}

	return declared.Hostname
}

// checkHostname refuses names that two machines would share.
func (r *reader) checkHostname(place *yaml.Node, declared talconfig.Node, shared bool) {
	if declared.Hostname == "" {
		return
	}

	value := yamlfile.PlaceOf(place, "hostname")
	folded := strings.ToLower(declared.Hostname)

	if first := r.names[folded]; first != nil {
		r.At(value, diagnosis.FileDuplicate, "hostname %q is another node's already, in line %d", declared.Hostname,
			first.Line)
	} else {
		r.names[folded] = value
	}

	if shared && !declared.IgnoreHostname {
		mistake := r.Mistake(yamlfile.PlaceOf(place, "ipAddress"), diagnosis.SharedConfig,
			"each address of %s is a machine of its own, and all of them would get the hostname %q", declared.Hostname,
			declared.Hostname)
		mistake.Next = "give each machine an entry of its own, or set `ignoreHostname: true` and let DHCP name them"
		r.Add(mistake)
	}
}

// configFile is the path of the machine config that an entry gets.
func (r *reader) configFile(place *yaml.Node, config *talconfig.Config, declared talconfig.Node) string {
	name, err := config.FileName(declared)
	if err != nil {
		r.At(yamlfile.PlaceOf(place, "filenameTmpl"), diagnosis.FileValue, "\"filenameTmpl\" %s", err)

		return ""
	}

	path := filepath.Join(r.cluster.ConfigDir, name)

	// Two entries with one hostname have one file too, and are told of the hostname.
	if first := r.files[path]; first != nil && declared.Hostname != "" &&
		r.names[strings.ToLower(declared.Hostname)] == nil {
		r.At(place, diagnosis.FileDuplicate, "the machine config %s is another node's already, in line %d", name, first.Line)
	}

	r.files[path] = place

	return path
}

// firstSet is the first value that is not zero.
func firstSet[T comparable](values ...T) T {
	var zero T

	for _, value := range values {
		if value != zero {
			return value
		}
	}

	return zero
}

// selectorText shows a disk selector on one line.
func selectorText(selector *v1alpha1.InstallDiskSelector) string {
	if selector == nil {
		return ""
	}

	var text bytes.Buffer

	encoder := yaml.NewEncoder(&text)
	if err := errors.Join(encoder.Encode(selector), encoder.Close()); err != nil {
		return ""
	}

	return strings.Join(strings.FieldsFunc(text.String(), func(r rune) bool { return r == '\n' }), ", ")
}

// loadConfigs loads all machine configs: many take a while, and every processor can do its share.
func (c *Cluster) loadConfigs() {
	load := func(_ context.Context, node *Node) error {
		_, err := c.MachineConfig(node) // told by whoever asks for it

		return err
	}

	fanout.Collect(context.Background(), runtime.GOMAXPROCS(0), c.Nodes, load,
		func(_ *Node, err error) error { return err })
}

// learnFromConfigs takes facts that patches can change from the machine configs, where they exist and can be read.
func (c *Cluster) learnFromConfigs() {
	learned := false

	c.loadConfigs()

	for _, node := range c.Nodes {
		config, err := c.MachineConfig(node)
		if err != nil {
			continue
		}

		if len(node.MACs) == 0 {
			node.MACs = config.MACs()
		}

		if !node.Network.IsValid() {
			node.Network = networkAmong(config.Addresses(), node.Address)
		}

		if len(node.VIPs) == 0 {
			node.VIPs = config.VIPs()
		}

		if !learned && (node.Role == ControlPlane || node == c.Nodes[len(c.Nodes)-1]) {
			c.CNI, c.PodSubnets, c.ServiceSubnets = config.CNI(), config.PodSubnets(), config.ServiceSubnets()
			learned = true
		}
	}
}
