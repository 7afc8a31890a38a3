// Package talconfig has the keys of talhelper's talconfig.yaml and the variables in its texts.
package talconfig

import (
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime/extensions"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
)

// Config is a talconfig.yaml, with the keys that the JSON schema of talhelper v3.1.16 lists. Where talhelper uses
// Talos' own types, so does this.
type Config struct {
	ClusterName                    string              `yaml:"clusterName" required:"true" doc:"The cluster's name: of the machine configs' files, of the context in talosconfig and kubeconfig."`
	TalosVersion                   string              `yaml:"talosVersion" doc:"The Talos release, as v1.13.9. Default: the newest that is known."`
	KubernetesVersion              string              `yaml:"kubernetesVersion" required:"true" doc:"The Kubernetes release, as v1.36.3."`
	Endpoint                       string              `yaml:"endpoint" required:"true" doc:"URL of the Kubernetes API, as https://192.0.2.10:6443: of the VIP, of a load balancer, or of the only control plane."`
	Domain                         string              `yaml:"domain" doc:"The cluster's DNS domain. Default: cluster.local."`
	AllowSchedulingOnMasters       bool                `yaml:"allowSchedulingOnMasters" doc:"Lets workloads run on control planes; an older spelling of allowSchedulingOnControlPlanes."`
	AllowSchedulingOnControlPlanes bool                `yaml:"allowSchedulingOnControlPlanes" doc:"Lets workloads run on control planes."`
	AdditionalMachineCertSANs      []string            `yaml:"additionalMachineCertSans" doc:"More addresses and names in the certificates of all nodes' Talos APIs."`
	AdditionalAPIServerCertSANs    []string            `yaml:"additionalApiServerCertSans" doc:"More addresses and names in the certificate of the Kubernetes API."`
	InlineManifests                []InlineManifest    `yaml:"inlineManifests" doc:"Kubernetes manifests that are applied when the cluster starts."`
	PodNets                        []string            `yaml:"clusterPodNets" doc:"The pods' subnets. Default: 10.244.0.0/16."`
	ServiceNets                    []string            `yaml:"clusterSvcNets" doc:"The services' subnets. Default: 10.96.0.0/12."`
	CNI                            *v1alpha1.CNIConfig `yaml:"cniConfig" doc:"What connects the pods. Default: flannel."`
	Patches                        []string            `yaml:"patches" doc:"Patches for all nodes: texts, or @file. They come after those of groups and nodes."`
	Nodes                          []Node              `yaml:"nodes" required:"true" doc:"The machines."`
	ImageFactory                   ImageFactory        `yaml:"imageFactory" doc:"Where installers and boot images come from. Default: factory.talos.dev."`
	ControlPlane                   NodeSettings        `yaml:"controlPlane" doc:"For all control planes; a node's own keys win."`
	Worker                         NodeSettings        `yaml:"worker" doc:"For all workers; a node's own keys win."`
}

// IsForeign tells of keys under which anchors are commonly kept, and which nothing reads.
func (Config) IsForeign(key string) bool {
	return strings.HasPrefix(key, "x-") || strings.HasPrefix(key, ".")
}

// Node is one entry of `nodes`: one machine, or several that share everything.
type Node struct {
	Hostname                string                        `yaml:"hostname" required:"true" doc:"The node's name."`
	IPAddress               string                        `yaml:"ipAddress" required:"true" doc:"Its address, or a name. Several with commas between them are several machines that share one config."`
	ControlPlane            bool                          `yaml:"controlPlane" doc:"Makes it a control plane; otherwise it is a worker."`
	InstallDisk             string                        `yaml:"installDisk" doc:"Disk that Talos is installed to, as /dev/sda. Either this or installDiskSelector."`
	InstallDiskSelector     *v1alpha1.InstallDiskSelector `yaml:"installDiskSelector" doc:"Finds that disk by what it is."`
	IgnoreHostname          bool                          `yaml:"ignoreHostname" doc:"Leaves the hostname out of the config: the machine gets one by DHCP, or makes one."`
	OverridePatches         bool                          `yaml:"overridePatches" doc:"The node's patches replace those of its group."`
	OverrideExtraManifests  bool                          `yaml:"overrideExtraManifests" doc:"The node's extra manifests replace those of its group."`
	OverrideMachineCertSANs bool                          `yaml:"overrideMachineCertSANs" doc:"The node's certSANs replace those of its group."`
	NodeSettings            `yaml:",inline"`
}

// NodeSettings stand at a node, or at `controlPlane` and `worker` for all nodes of a role; the node's own win.
type NodeSettings struct {
	NodeLabels          map[string]string              `yaml:"nodeLabels" doc:"Labels of the Kubernetes node; values may be templates."`
	NodeAnnotations     map[string]string              `yaml:"nodeAnnotations" doc:"Annotations of the Kubernetes node; values may be templates."`
	NodeTaints          map[string]string              `yaml:"nodeTaints" doc:"Taints of the Kubernetes node, as key: value:effect."`
	MachineDisks        []*v1alpha1.MachineDisk        `yaml:"machineDisks" doc:"More disks, with partitions to make and mount."`
	MachineFiles        []MachineFile                  `yaml:"machineFiles" doc:"Files to write on the node."`
	DisableSearchDomain bool                           `yaml:"disableSearchDomain" doc:"Leaves the node's domain out of the search list for names."`
	KernelModules       []*v1alpha1.KernelModuleConfig `yaml:"kernelModules" doc:"Kernel modules to load."` //nolint:staticcheck // it has its keys
	Nameservers         []string                       `yaml:"nameservers" doc:"DNS servers."`
	NetworkInterfaces   []*v1alpha1.Device             `yaml:"networkInterfaces" doc:"The network links."`
	ExtraManifests      []string                       `yaml:"extraManifests" doc:"Files with more documents for the machine config."`
	CertSANs            []string                       `yaml:"certSANs" doc:"More addresses and names in the certificate of the node's Talos API."`
	Patches             []string                       `yaml:"patches" doc:"Patches: strategic merge patches, or JSON patches (RFC 6902) up to Talos 1.11; texts, or @file."`
	TalosImageURL       string                         `yaml:"talosImageURL" doc:"The installer image without its tag, in place of the Image Factory's."`
	NoSchematicValidate bool                           `yaml:"noSchematicValidate" doc:"Takes the names in schematic as they are."`
	Schematic           *schematic.Schematic           `yaml:"schematic" doc:"What the Image Factory makes the installer of."`
	ImageSchematic      *schematic.Schematic           `yaml:"imageSchematic" doc:"What it makes the boot image of. Default: schematic."`
	MachineSpec         MachineSpec                    `yaml:"machineSpec" doc:"What installer and boot image have to fit."`
	IngressFirewall     *IngressFirewall               `yaml:"ingressFirewall" doc:"Who may call the node."`
	ExtensionServices   []ExtensionService             `yaml:"extensionServices" doc:"Settings of services that system extensions bring."`
	Volumes             []Volume                       `yaml:"volumes" doc:"Talos' own volumes, as EPHEMERAL."`
	UserVolumes         []UserVolume                   `yaml:"userVolumes" doc:"Volumes of your own, mounted at /var/mnt/<name>."`
	FilenameTmpl        string                         `yaml:"filenameTmpl" doc:"Name of the machine config's file, of ClusterName, Hostname, IPAddress and Role. Default: {{.ClusterName}}-{{.Hostname}}.yaml."`
}

// InlineManifest is a Kubernetes manifest: its text, or @file.
type InlineManifest struct {
	Name     string `yaml:"name" doc:"The manifest's name."`
	Contents string `yaml:"contents" doc:"Its text, or @file."`
	// SkipEnvsubst keeps variables in a file's text as they are.
	SkipEnvsubst bool `yaml:"skipEnvsubst" doc:"Keeps variables in the file as they are."`
}

// MachineFile is a file on the node: its text, or @file.
type MachineFile struct {
	Content     string            `yaml:"content" doc:"Its text, or @file."`
	Permissions v1alpha1.FileMode `yaml:"permissions" doc:"Its mode, as 0o644."`
	Path        string            `yaml:"path" doc:"Where it is on the node; below /var, but for files that Talos lets be changed."`
	Op          string            `yaml:"op" enum:"create,append,overwrite" doc:"create, append or overwrite."`
	// SkipEnvsubst keeps variables in a file's text as they are.
	SkipEnvsubst bool `yaml:"skipEnvsubst" doc:"Keeps variables in the file as they are."`
}

// ImageFactory says where installers and boot images come from; the templates take sprig's functions.
type ImageFactory struct {
	RegistryURL       string `yaml:"registryURL" doc:"The factory's host. Default: factory.talos.dev."`
	SchematicEndpoint string `yaml:"schematicEndpoint" doc:"Where it takes schematics. Not used here: ids are computed."`
	Protocol          string `yaml:"protocol" enum:"https,http" doc:"Protocol of boot images. Default: https."`
	InstallerURLTmpl  string `yaml:"installerURLTmpl" doc:"Template of the installer's name, of RegistryURL, ID, Version, Mode and Secureboot."`
	ImageURLTmpl      string `yaml:"ISOURLTmpl" doc:"Template of the boot image's URL, of the same and of Protocol, Arch, UseUKI, BootMethod and Suffix."`
}

// MachineSpec is what installer and boot image have to fit.
type MachineSpec struct {
	Mode        string `yaml:"mode" doc:"The platform, as metal or nocloud. Default: metal."`
	Arch        string `yaml:"arch" enum:"amd64,arm64" doc:"The processor. Default: amd64."`
	SecureBoot  bool   `yaml:"secureboot" doc:"Takes images that are signed for SecureBoot."`
	UseUKI      bool   `yaml:"useUKI" doc:"Boots a unified kernel image."`
	BootMethod  string `yaml:"bootMethod" enum:"iso,disk-image,pxe" doc:"What the machine is started with first. Default: iso."`
	ImageSuffix string `yaml:"imageSuffix" doc:"Ending of the disk image's file, as raw.xz."`
}

// IngressFirewall becomes one NetworkDefaultActionConfig and a NetworkRuleConfig for each rule.
type IngressFirewall struct {
	DefaultAction nethelpers.DefaultAction `yaml:"defaultAction" doc:"What happens to calls that no rule allows."`
	Rules         []NetworkRule            `yaml:"rules" doc:"What is allowed."`
}

// NetworkRule is one rule of an ingress firewall.
type NetworkRule struct {
	Name         string                   `yaml:"name" doc:"The rule's name."`
	PortSelector network.RulePortSelector `yaml:"portSelector" doc:"Which ports it opens."`
	Ingress      network.IngressConfig    `yaml:"ingress" doc:"Who may call."`
}

// ExtensionService becomes an ExtensionServiceConfig.
type ExtensionService struct {
	Name        string                    `yaml:"name" doc:"The service's name."`
	ConfigFiles extensions.ConfigFileList `yaml:"configFiles" doc:"Files for it."`
	Environment []string                  `yaml:"environment" doc:"Variables for it, as NAME=value."`
}

// Volume becomes a VolumeConfig.
type Volume struct {
	Name         string                 `yaml:"name" doc:"The volume's name, as EPHEMERAL."`
	Provisioning block.ProvisioningSpec `yaml:"provisioning" doc:"Where it is made, and how large."`
	Encryption   block.EncryptionSpec   `yaml:"encryption" doc:"How it is encrypted; it may hold a passphrase."`
}

// UserVolume becomes a UserVolumeConfig.
type UserVolume struct {
	Name         string                 `yaml:"name" doc:"The volume's name."`
	VolumeType   *block.VolumeType      `yaml:"volumeType" doc:"What it is made of: partition, which is the default, disk or directory."`
	Provisioning block.ProvisioningSpec `yaml:"provisioning" doc:"Where it is made, and how large."`
	Filesystem   block.FilesystemSpec   `yaml:"filesystem" doc:"What it is formatted with."`
	Encryption   block.EncryptionSpec   `yaml:"encryption" doc:"How it is encrypted; it may hold a passphrase."`
}
