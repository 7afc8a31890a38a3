package profile

import (
	"reflect"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
)

// keys are those of a profile. What only the programs need that make the machines is read as it is and never used.
type keys struct {
	Name              string  `yaml:"name" doc:"The cluster's name: of the machine configs' files, of the context in talosconfig and kubeconfig." required:"true"`
	Type              string  `yaml:"type" doc:"What the cluster runs." enum:"talos"`
	Network           network `yaml:"network" doc:"Addresses." required:"true"`
	Talos             talos   `yaml:"talos" doc:"Talos, Kubernetes, and where their files are." required:"true"`
	Nodes             nodes   `yaml:"nodes" doc:"The machines." required:"true"`
	RegenerateSecrets bool    `yaml:"regenerate_secrets" doc:"Makes new secrets if there are none yet. Existing ones are never replaced."`
	Template          any     `yaml:"template" doc:"For the program that makes the machines."`
	Tags              any     `yaml:"tags" doc:"For the program that makes the machines."`
	Flux              any     `yaml:"flux" doc:"For Flux."`
}

type network struct {
	APIEndpoint   string   `yaml:"api_endpoint" doc:"Address or DNS name of the Kubernetes API; its port is 6443. The VIP's, if there is one." required:"true"`
	PodCIDR       string   `yaml:"pod_cidr" doc:"The pods' subnet. Default: Talos' own, 10.244.0.0/16."`
	ServiceCIDR   string   `yaml:"service_cidr" doc:"The services' subnet. Default: Talos' own, 10.96.0.0/12."`
	Prefix        int      `yaml:"prefix" doc:"Length of the nodes' network prefix. Default: 24, for IPv6 64." minimum:"1" maximum:"128"`
	Gateway       string   `yaml:"gateway" doc:"Gateway of the default route. Default: the first address of the node's network."`
	Interface     string   `yaml:"interface" doc:"The nodes' network interface. Default: that of the VIP for control planes, eth0 for workers."`
	Nameservers   []string `yaml:"nameservers" doc:"DNS servers. Default: 1.1.1.1 and 8.8.8.8."`
	DHCPElsewhere bool     `yaml:"dhcp_elsewhere" doc:"Links that nothing configures ask for DHCP. Always so up to contract v1.13. Default: false."`
}

type talos struct {
	Version           string  `yaml:"version" doc:"The Talos release, with or without a v." required:"true" pattern:"^v?[0-9]+\\.[0-9]+\\.[0-9]+(-.+)?$"`
	KubernetesVersion string  `yaml:"kubernetes_version" doc:"The Kubernetes release, with or without a v." required:"true" pattern:"^v?[0-9]+\\.[0-9]+\\.[0-9]+(-.+)?$"`
	Contract          string  `yaml:"contract" doc:"Talos release whose form machine configs are made in, as v1.14. Default: that of version, and v1.13 for later ones, which take that form too." pattern:"^v?1\\.[0-9]+$"`
	Factory           factory `yaml:"factory" doc:"What the installer image is made of." required:"true"`
	VIP               vip     `yaml:"vip" doc:"The virtual address that the control planes share. Without it there is none."`
	PatchesDir        string  `yaml:"patches_dir" doc:"Folder of your own patches, relative to config_dir. Default: patches."`
	ConfigDir         string  `yaml:"config_dir" doc:"Folder of the machine configs, relative to this file. Default: clusterconfig."`
	SecretsFile       string  `yaml:"secrets_file" doc:"The secrets bundle, relative to config_dir. Default: secrets.yaml."`
	InstallDisk       string  `yaml:"install_disk" doc:"Disk that Talos is installed to. Default: /dev/sda."`
}

type factory struct {
	SchematicID string               `yaml:"schematic_id" doc:"Id of the Image Factory's schematic, 64 hexadecimal digits." pattern:"^[0-9a-f]{64}$"`
	Schematic   *schematic.Schematic `yaml:"schematic" doc:"The schematic itself, instead of its id."`
	Extensions  []string             `yaml:"extensions" doc:"Official system extensions. Without an id they are the schematic; beside an id they are only a note."`
	Registry    string               `yaml:"registry" doc:"The Image Factory's host. Default: factory.talos.dev."`
	Platform    string               `yaml:"platform" doc:"Platform of the installer image, such as nocloud. Default: the factory's, which is metal."`
	SecureBoot  bool                 `yaml:"secureboot" doc:"Takes the installer that is signed for SecureBoot."`
}

type vip struct {
	Interface string `yaml:"interface" doc:"The control planes' network interface. Default: eth0."`
	IP        string `yaml:"ip" doc:"The virtual address." required:"true"`
}

type nodes struct {
	ControlPlane group `yaml:"controlplane" doc:"The control planes." required:"true"`
	Workers      group `yaml:"workers" doc:"The workers."`
}

type group struct {
	Count       *int         `yaml:"count" doc:"How many there are; must equal the number of assignments." minimum:"0"`
	Assignments []assignment `yaml:"assignments" doc:"One entry a machine."`
	NamePrefix  any          `yaml:"name_prefix" doc:"For the program that makes the machines."`
	Cores       any          `yaml:"cores" doc:"For the program that makes the machines."`
	Memory      any          `yaml:"memory" doc:"For the program that makes the machines."`
	Disk        any          `yaml:"disk" doc:"For the program that makes the machines."`
	StartVMID   any          `yaml:"start_vmid" doc:"For the program that makes the machines."`
	Placement   any          `yaml:"placement" doc:"For the program that makes the machines."`
}

type assignment struct {
	Name      string `yaml:"name" doc:"The node's hostname." required:"true"`
	IP        string `yaml:"ip" doc:"The node's address, without a prefix length." required:"true"`
	MAC       string `yaml:"mac" doc:"Hardware address of its network card: no other machine gets its config."`
	UUID      string `yaml:"uuid" doc:"Its SMBIOS UUID: no other machine gets its config."`
	VMID      *int   `yaml:"vmid" doc:"Its number at the hypervisor." minimum:"1"`
	Node      any    `yaml:"node" doc:"The hypervisor that it runs on."`
	Prefix    int    `yaml:"prefix" doc:"As network.prefix, for this node." minimum:"1" maximum:"128"`
	Gateway   string `yaml:"gateway" doc:"As network.gateway, for this node."`
	Interface string `yaml:"interface" doc:"As network.interface, for this node."`
}

// IsForeign passes over what other programs keep in the profile, unless it looks like a key of ours that is misspelt.
func (keys) IsForeign(key string) bool {
	return strings.HasPrefix(key, "x-") || strings.HasPrefix(key, ".") || isForeign[keys](key)
}

// IsForeign passes over other programs' keys.
func (group) IsForeign(key string) bool { return isForeign[group](key) }

// IsForeign passes over other programs' keys.
func (assignment) IsForeign(key string) bool { return isForeign[assignment](key) }

func isForeign[T any](key string) bool {
	return suggest.Word(key, yamlfile.Keys(reflect.TypeFor[T]())) == ""
}
