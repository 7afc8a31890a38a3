package profile

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Defaults of a profile.
const (
	defaultInterface   = "eth0"
	defaultConfigDir   = "clusterconfig"
	defaultPatchesDir  = "patches"
	defaultSecretsFile = "secrets.yaml"
	// defaultInstallDisk is talosctl's.
	defaultInstallDisk = "/dev/sda"

	ipv4Prefix, ipv6Prefix = 24, 64
)

// Read reads a profile. A contract that is not empty goes over the profile's own. An error lists every mistake in the
// file: see yamlfile.Errors.
func Read(file *reading.File, contract string) (*Profile, error) {
	reader := &reader{
		Source:  yamlfile.Source{Shown: file.Shown, Mistakes: &yamlfile.Mistakes{}},
		profile: &Profile{},
		setting: contract,
	}

	reader.read(file)

	if err := reader.Err(); err != nil {
		return nil, err
	}

	return reader.profile, nil
}

// reader turns one file into a profile.
type reader struct {
	yamlfile.Source

	profile *Profile
	root    *yaml.Node
	keys    keys
	// setting is the contract that TALOS_CONTRACT names.
	setting string
}

func (r *reader) read(file *reading.File) {
	if r.root = r.Needed(file, "profile", "set TALOS_DIR to the folder of your "+FileName,
		"declare name, network, talos and nodes in it"); r.root == nil {
		return
	}

	r.Check("the file", r.root, reflect.TypeFor[keys]())

	if len(r.List) == 0 {
		if err := r.root.Decode(&r.keys); err != nil {
			r.At(r.root, diagnosis.FileType, "can't be decoded")
		}
	}

	if !r.hasWrongTypes() {
		r.requireKeys("", r.root, reflect.TypeFor[keys]())
	}

	if len(r.List) == 0 {
		r.readCluster(filepath.Dir(file.Path))
		r.readMachines()
	}

	r.NameFields(r.root)
}

func (r *reader) hasWrongTypes() bool {
	return slices.ContainsFunc(r.List, func(mistake *yamlfile.Error) bool { return mistake.ID != diagnosis.FileKey })
}

// requireKeys finds what is needed and not there, in all mappings that are.
func (r *reader) requireKeys(path string, mapping *yaml.Node, in reflect.Type) {
	for field := range in.Fields() {
		key := field.Tag.Get("yaml")
		inner := strings.TrimPrefix(path+"."+key, ".")
		value := yamlfile.Field(mapping, key)
		isSet := value != nil && value.Tag != "!!null" && (value.Kind != yaml.ScalarNode || value.Value != "")

		switch {
		case !isSet && field.Tag.Get("required") == "true":
			r.missing(mapping, inner, key, field.Tag.Get("doc"))
		case !isSet || field.Type.PkgPath() != in.PkgPath() && field.Type.Kind() != reflect.Slice:
		case field.Type.Kind() == reflect.Struct:
			r.requireKeys(inner, value, field.Type)
		case field.Type.Kind() == reflect.Slice && field.Type.Elem().Kind() == reflect.Struct:
			for i, item := range value.Content {
				r.requireKeys(inner+"["+strconv.Itoa(i)+"]", item, field.Type.Elem())
			}
		}
	}
}

func (r *reader) missing(mapping *yaml.Node, path, key, doc string) {
	if slices.ContainsFunc(r.List, func(mistake *yamlfile.Error) bool { return mistake.Suggestion == key }) {
		return // it is there under another name, which was said already
	}

	mistake := r.Mistake(mapping, diagnosis.FileValue, "%q is needed", key)
	mistake.Field, mistake.Next = path, doc
	r.Add(mistake)
}

// place is the node of a path of keys, or the innermost mapping on the way to it.
func (r *reader) place(path ...string) *yaml.Node {
	node := r.root
	for _, key := range path {
		node = yamlfile.PlaceOf(node, key)
	}

	return node
}

// bad adds a mistake about the value at a path.
func (r *reader) bad(node *yaml.Node, format string, args ...any) {
	r.At(node, diagnosis.FileValue, format, args...)
}

func (r *reader) readCluster(dir string) {
	declared, profile := r.keys, r.profile

	profile.Name = declared.Name
	if !host.IsLabel(profile.Name) {
		r.bad(r.place("name"), "%q is no name of a cluster: letters, digits and dashes", profile.Name)
	}

	if declared.Type != "" && declared.Type != "talos" {
		r.oneOf(r.place("type"), declared.Type, "talos")
	}

	profile.RegenerateSecrets = declared.RegenerateSecrets
	profile.ConfigDir = join(dir, declared.Talos.ConfigDir, defaultConfigDir)
	profile.PatchesDir = join(profile.ConfigDir, declared.Talos.PatchesDir, defaultPatchesDir)
	profile.SecretsFile = join(profile.ConfigDir, declared.Talos.SecretsFile, defaultSecretsFile)
	profile.InstallDisk = declared.Talos.InstallDisk

	if profile.InstallDisk == "" {
		profile.InstallDisk = defaultInstallDisk
	}

	r.readNetwork()
	r.readTalos()
}

// oneOf says which values are allowed, and which was probably meant.
func (r *reader) oneOf(node *yaml.Node, value string, allowed ...string) {
	mistake := r.Mistake(node, diagnosis.FileValue, "%q is not allowed: it takes %s", value, strings.Join(allowed, ", "))
	mistake.Suggestion = suggest.Word(value, allowed)
	r.Add(mistake)
}

// join makes a path absolute or relative to where this process is, as the folder's is.
func join(dir, path, fallback string) string {
	switch {
	case path == "":
		return filepath.Join(dir, fallback)
	case filepath.IsAbs(path):
		return filepath.Clean(path)
	default:
		return filepath.Join(dir, path)
	}
}

func (r *reader) readNetwork() {
	declared := r.keys.Network

	r.profile.PodSubnet = r.subnet("pod_cidr", declared.PodCIDR)
	r.profile.ServiceSubnet = r.subnet("service_cidr", declared.ServiceCIDR)
	r.profile.DHCPElsewhere = declared.DHCPElsewhere

	if pods, services := r.profile.PodSubnet, r.profile.ServiceSubnet; pods.IsValid() && services.IsValid() &&
		pods.Overlaps(services) {
		r.bad(r.place("network", "service_cidr"), "%s overlaps with pod_cidr, %s", services, pods)
	}

	servers := declared.Nameservers
	if len(servers) == 0 {
		servers = []string{"1.1.1.1", "8.8.8.8"}
	}

	for i, text := range servers {
		server, err := netip.ParseAddr(text)
		if err != nil {
			r.bad(yamlfile.Item(r.place("network", "nameservers"), i), "%q is no IP address", text)
		}

		r.profile.Nameservers = append(r.profile.Nameservers, server)
	}

	r.readEndpoint(declared.APIEndpoint)
}

func (r *reader) subnet(key, text string) netip.Prefix {
	if text == "" {
		return netip.Prefix{}
	}

	subnet, err := netip.ParsePrefix(text)

	switch {
	case err != nil:
		r.bad(r.place("network", key), "%q is not a subnet, as 10.244.0.0/16", text)
	case subnet != subnet.Masked():
		mistake := r.Mistake(r.place("network", key), diagnosis.FileValue, "%s is an address in a subnet", text)
		mistake.Suggestion = subnet.Masked().String()
		r.Add(mistake)
	}

	return subnet
}

func (r *reader) readEndpoint(text string) {
	place := r.place("network", "api_endpoint")

	if address, err := netip.ParseAddr(text); err == nil {
		text = address.String()
	} else if host.Fault(text) != "" {
		r.bad(place, "%q is neither an IP address nor a DNS name: give the host alone, the port is 6443", text)
	}

	r.profile.Endpoint = &url.URL{Scheme: "https",
		Host: net.JoinHostPort(text, strconv.Itoa(constants.DefaultControlPlanePort))}

	declared := r.keys.Talos.VIP
	if declared == (vip{}) {
		return
	}

	address, err := netip.ParseAddr(declared.IP)

	switch {
	case err != nil:
		r.bad(r.place("talos", "vip", "ip"), "%q is no IP address", declared.IP)
	case host.IsIP(text) && text != address.String():
		r.bad(place, "%s is not the VIP, %s: the Kubernetes API would be asked for where no VIP is", text, address)
	}

	r.profile.VIP = address
}

func (r *reader) readTalos() {
	declared, profile := r.keys.Talos, r.profile

	profile.TalosVersion = r.release("version", declared.Version)
	profile.KubernetesVersion = r.release("kubernetes_version", declared.KubernetesVersion)

	if profile.TalosVersion != "" && r.readContract() && profile.KubernetesVersion != "" {
		err := release.Fit(profile.KubernetesVersion, profile.TalosVersion)
		if err != nil && !errors.Is(err, release.ErrNotTabled) {
			r.bad(r.place("talos", "kubernetes_version"), "%s", err)
		}
	}

	profile.Image = schematic.Image{
		RegistryURL: declared.Factory.Registry,
		ID:          r.schematicID(),
		Version:     profile.TalosVersion,
		Mode:        declared.Factory.Platform,
		Secureboot:  declared.Factory.SecureBoot,
	}

	if strings.Contains(declared.Factory.Registry, "://") {
		r.bad(r.place("talos", "factory", "registry"), "%q has a scheme: give the host alone", declared.Factory.Registry)
	}
}

// release is a version with its v; empty if it is none, as 1.13 isn't: no image has such a tag.
func (r *reader) release(key, text string) string {
	if !release.IsWhole(text) {
		r.bad(r.place("talos", key), "%q is no release: it takes all three numbers, as 1.13.9", text)

		return ""
	}

	return release.WithV(text)
}

// readContract is false if no config can be made for the Talos version.
func (r *reader) readContract() bool {
	var err error

	r.profile.Contract, err = release.Contract(r.profile.TalosVersion, cmp.Or(r.setting, r.keys.Talos.Contract))

	var unusable *release.ContractError

	switch {
	case err == nil:
		return true
	case !errors.As(err, &unusable):
		r.bad(r.place("talos", "version"), "%s", err)

		return false
	case r.setting != "":
		mistake := r.Mistake(r.place("talos", "version"), diagnosis.FileValue, "TALOS_CONTRACT=%s: %s", r.setting, err)
		mistake.Next = "set TALOS_CONTRACT=" + unusable.Nearest + ", or talos.version to " + r.setting + " or newer"
		r.Add(mistake)
	default:
		mistake := r.Mistake(r.place("talos", "contract"), diagnosis.FileValue, "%s", err)
		mistake.Suggestion = unusable.Nearest
		r.Add(mistake)
	}

	return true
}

// schematicID is the declared one, or that of the declared schematic.
func (r *reader) schematicID() string {
	declared := r.keys.Talos.Factory
	place := r.place("talos", "factory")
	isListed := yamlfile.Field(place, "extensions") != nil

	switch {
	case declared.SchematicID != "" && declared.Schematic != nil:
		r.bad(yamlfile.PlaceOf(place, "schematic"), "\"schematic\" and \"schematic_id\" are both set: one of them is enough")
	case declared.Schematic != nil && isListed:
		r.bad(yamlfile.PlaceOf(place, "extensions"), "\"schematic\" has its own list of extensions: name them there")
	case declared.SchematicID != "":
		if !schematic.IsID(declared.SchematicID) {
			r.bad(yamlfile.PlaceOf(place, "schematic_id"), "%q is no id of a schematic: 64 hexadecimal digits",
				declared.SchematicID)
		}

		return declared.SchematicID
	case declared.Schematic == nil && !isListed:
		mistake := r.Mistake(place, diagnosis.FileValue, "\"schematic_id\" is needed")
		mistake.Field, mistake.Next = "talos.factory.schematic_id", "or list `extensions`, or write the `schematic` itself"
		r.Add(mistake)

		return ""
	}

	built := declared.Schematic
	if built == nil {
		built = &schematic.Schematic{}
		built.Customization.SystemExtensions.OfficialExtensions = declared.Extensions
	}

	id, err := built.ID()
	if err != nil {
		r.bad(yamlfile.PlaceOf(place, "schematic"), "%s", err)
	}

	return id
}

func (r *reader) readMachines() {
	used := map[string]*yaml.Node{}

	r.readGroup(used, machine.TypeControlPlane, "controlplane", r.keys.Nodes.ControlPlane)
	r.readGroup(used, machine.TypeWorker, "workers", r.keys.Nodes.Workers)
}

func (r *reader) readGroup(used map[string]*yaml.Node, role machine.Type, key string, declared group) {
	place := r.place("nodes", key)

	if role == machine.TypeControlPlane && len(declared.Assignments) == 0 {
		mistake := r.Mistake(place, diagnosis.FileNoNodes, "no control planes are declared")
		mistake.Field, mistake.Next = "nodes.controlplane.assignments",
			"list them under `assignments:`, each with name and ip"
		r.Add(mistake)
	} else if declared.Count != nil && *declared.Count != len(declared.Assignments) {
		r.bad(yamlfile.PlaceOf(place, "count"), "\"count\" is %d, and there are %d assignments", *declared.Count,
			len(declared.Assignments))
	}

	for i, entry := range declared.Assignments {
		r.readMachine(used, role, yamlfile.Item(yamlfile.PlaceOf(place, "assignments"), i), entry)
	}
}

func (r *reader) readMachine(used map[string]*yaml.Node, role machine.Type, place *yaml.Node, declared assignment) {
	node := Machine{Name: declared.Name, Role: role, Interface: r.interfaceOf(role, declared), Line: place.Line,
		Column: place.Column}

	at := func(key string) *yaml.Node { return yamlfile.PlaceOf(place, key) }

	if !host.IsLabel(declared.Name) {
		r.bad(at("name"), "%q is no hostname: letters, digits and dashes, up to 63", declared.Name)
	}

	r.claim(used, at("name"), "name", strings.ToLower(declared.Name))
	r.readAddress(&node, used, place, declared)

	if declared.MAC != "" {
		if node.MAC = host.MAC(declared.MAC); node.MAC == "" {
			r.bad(at("mac"), "%q is no MAC address, as 02:00:5e:10:00:01 or 0200.5e10.0001", declared.MAC)
		}

		r.claim(used, at("mac"), "MAC address", node.MAC)
	}

	if declared.UUID != "" {
		node.UUID = strings.ToLower(declared.UUID)
		if !uuid.MatchString(node.UUID) {
			r.bad(at("uuid"), "%q is no UUID, as 4c4c4544-0042-4b10-8053-b3c04f4d3532", declared.UUID)
		}

		r.claim(used, at("uuid"), "UUID", node.UUID)
	}

	if declared.VMID != nil {
		node.VMID = *declared.VMID
		r.claim(used, at("vmid"), "vmid", strconv.Itoa(node.VMID))
	}

	r.profile.Machines = append(r.profile.Machines, node)
}

// claim finds what two machines have in common and must not.
func (r *reader) claim(used map[string]*yaml.Node, place *yaml.Node, what, value string) {
	key := what + " " + value

	if first := used[key]; first != nil {
		r.At(place, diagnosis.FileDuplicate, "%s %s is another node's already, in line %d", what, value, first.Line)

		return
	}

	used[key] = place
}

func (r *reader) interfaceOf(role machine.Type, declared assignment) string {
	choices := []string{declared.Interface, r.keys.Network.Interface, defaultInterface}
	if role == machine.TypeControlPlane {
		choices = []string{declared.Interface, r.keys.Talos.VIP.Interface, r.keys.Network.Interface, defaultInterface}
	}

	return choices[slices.IndexFunc(choices, func(name string) bool { return name != "" })]
}

func (r *reader) readAddress(node *Machine, used map[string]*yaml.Node, place *yaml.Node, declared assignment) {
	at := yamlfile.PlaceOf(place, "ip")

	address, err := netip.ParseAddr(declared.IP)
	if err != nil {
		if _, err := netip.ParsePrefix(declared.IP); err == nil {
			r.At(at, diagnosis.FileAddress,
				"address %q of %s has a prefix length: give the address alone, and the length as \"prefix\"", declared.IP,
				declared.Name)
		} else {
			r.At(at, diagnosis.FileAddress, "address %q of %s is no IP address", declared.IP, declared.Name)
		}

		return
	}

	if address == r.profile.VIP {
		r.At(at, diagnosis.FileDuplicate, "address %s is the VIP, which the control planes share", address)
	}

	r.claim(used, at, "address", address.String())

	bits, prefixPlace := declared.Prefix, yamlfile.PlaceOf(place, "prefix")
	if bits == 0 {
		bits, prefixPlace = r.keys.Network.Prefix, r.place("network", "prefix")
	}

	if bits == 0 {
		bits = ipv4Prefix
		if address.Is6() {
			bits = ipv6Prefix
		}
	}

	if bits < 1 || bits > address.BitLen() {
		r.bad(prefixPlace, "%d is no prefix length of %s: 1 to %d", bits, address, address.BitLen())

		return
	}

	node.Address = netip.PrefixFrom(address, bits)
	r.readGateway(node, place, declared)
}

func (r *reader) readGateway(node *Machine, place *yaml.Node, declared assignment) {
	text, at := declared.Gateway, yamlfile.PlaceOf(place, "gateway")
	if text == "" {
		text, at = r.keys.Network.Gateway, r.place("network", "gateway")
	}

	if text == "" {
		node.Gateway = node.Address.Masked().Addr().Next()

		if node.Gateway == node.Address.Addr() {
			mistake := r.Mistake(yamlfile.PlaceOf(place, "ip"), diagnosis.FileAddress,
				"address %s is the first of its network, which is taken for the gateway", node.Gateway)
			mistake.Next = "set network.gateway"
			r.Add(mistake)
		}

		return
	}

	gateway, err := netip.ParseAddr(text)

	switch {
	case err != nil:
		r.bad(at, "%q is no IP address", text)
	case !node.Address.Contains(gateway):
		r.bad(at, "gateway %s is not in the network of %s, %s", gateway, node.Name, node.Address.Masked())
	case gateway == node.Address.Addr():
		r.bad(at, "gateway %s is the address of %s itself", gateway, node.Name)
	}

	node.Gateway = gateway
}

var uuid = pattern.New(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
