// Package talconfig has the keys of talhelper's talconfig.yaml and the variables in its texts.
package talconfig

import (
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime/extensions"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"github.com/talos-mage/talos-mage/internal/schematic"
)

// Config is a talconfig.yaml, with the keys that the JSON schema of talhelper v3.1.16 lists. Where talhelper uses Talos' own types, so
// does this.
type Config struct {
	ClusterName                    string              `yaml:"clusterName" required:"true"`
	TalosVersion                   string              `yaml:"talosVersion"`
	KubernetesVersion              string              `yaml:"kubernetesVersion"`
	Endpoint                       string              `yaml:"endpoint" required:"true"`
	Domain                         string              `yaml:"domain"`
	AllowSchedulingOnMasters       bool                `yaml:"allowSchedulingOnMasters"`
	AllowSchedulingOnControlPlanes bool                `yaml:"allowSchedulingOnControlPlanes"`
	AdditionalMachineCertSANs      []string            `yaml:"additionalMachineCertSans"`
	AdditionalAPIServerCertSANs    []string            `yaml:"additionalApiServerCertSans"`
	InlineManifests                []InlineManifest    `yaml:"inlineManifests"`
	PodNets                        []string            `yaml:"clusterPodNets"`
	ServiceNets                    []string            `yaml:"clusterSvcNets"`
	CNI                            *v1alpha1.CNIConfig `yaml:"cniConfig"`
	Patches                        []string            `yaml:"patches"`
	Nodes                          []Node              `yaml:"nodes" required:"true"`
	ImageFactory                   ImageFactory        `yaml:"imageFactory"`
	ControlPlane                   NodeSettings        `yaml:"controlPlane"`
	Worker                         NodeSettings        `yaml:"worker"`
}

// IsForeign tells of keys under which anchors are commonly kept, and which nothing reads.
func (Config) IsForeign(key string) bool {
	return strings.HasPrefix(key, "x-") || strings.HasPrefix(key, ".")
}

// Node is one entry of `nodes`: one machine, or several that share everything.
type Node struct {
	Hostname                string                        `yaml:"hostname" required:"true"`
	IPAddress               string                        `yaml:"ipAddress" required:"true"`
	ControlPlane            bool                          `yaml:"controlPlane"`
	InstallDisk             string                        `yaml:"installDisk"`
	InstallDiskSelector     *v1alpha1.InstallDiskSelector `yaml:"installDiskSelector"`
	IgnoreHostname          bool                          `yaml:"ignoreHostname"`
	OverridePatches         bool                          `yaml:"overridePatches"`
	OverrideExtraManifests  bool                          `yaml:"overrideExtraManifests"`
	OverrideMachineCertSANs bool                          `yaml:"overrideMachineCertSANs"`
	NodeSettings            `yaml:",inline"`
}

// NodeSettings stand at a node, or at `controlPlane` and `worker` for all nodes of a role; the node's own win.
type NodeSettings struct {
	NodeLabels          map[string]string              `yaml:"nodeLabels"`
	NodeAnnotations     map[string]string              `yaml:"nodeAnnotations"`
	NodeTaints          map[string]string              `yaml:"nodeTaints"`
	MachineDisks        []*v1alpha1.MachineDisk        `yaml:"machineDisks"`
	MachineFiles        []MachineFile                  `yaml:"machineFiles"`
	DisableSearchDomain bool                           `yaml:"disableSearchDomain"`
	KernelModules       []*v1alpha1.KernelModuleConfig `yaml:"kernelModules"`
	Nameservers         []string                       `yaml:"nameservers"`
	NetworkInterfaces   []*v1alpha1.Device             `yaml:"networkInterfaces"`
	ExtraManifests      []string                       `yaml:"extraManifests"`
	CertSANs            []string                       `yaml:"certSANs"`
	Patches             []string                       `yaml:"patches"`
	TalosImageURL       string                         `yaml:"talosImageURL"`
	NoSchematicValidate bool                           `yaml:"noSchematicValidate"`
	Schematic           *schematic.Schematic           `yaml:"schematic"`
	ImageSchematic      *schematic.Schematic           `yaml:"imageSchematic"`
	MachineSpec         MachineSpec                    `yaml:"machineSpec"`
	IngressFirewall     *IngressFirewall               `yaml:"ingressFirewall"`
	ExtensionServices   []ExtensionService             `yaml:"extensionServices"`
	Volumes             []Volume                       `yaml:"volumes"`
	UserVolumes         []UserVolume                   `yaml:"userVolumes"`
	FilenameTmpl        string                         `yaml:"filenameTmpl"`
}

// InlineManifest is a Kubernetes manifest: its text, or @file.
type InlineManifest struct {
	Name     string `yaml:"name"`
	Contents string `yaml:"contents"`
	// SkipEnvsubst keeps variables in a file's text as they are.
	SkipEnvsubst bool `yaml:"skipEnvsubst"`
}

// MachineFile is a file on the node: its text, or @file.
type MachineFile struct {
	Content     string            `yaml:"content"`
	Permissions v1alpha1.FileMode `yaml:"permissions"`
	Path        string            `yaml:"path"`
	Op          string            `yaml:"op" enum:"create,append,overwrite"`
	// SkipEnvsubst keeps variables in a file's text as they are.
	SkipEnvsubst bool `yaml:"skipEnvsubst"`
}

// ImageFactory says where installers and boot images come from; the templates take sprig's functions.
type ImageFactory struct {
	RegistryURL       string `yaml:"registryURL"`
	SchematicEndpoint string `yaml:"schematicEndpoint"`
	Protocol          string `yaml:"protocol" enum:"https,http"`
	InstallerURLTmpl  string `yaml:"installerURLTmpl"`
	ImageURLTmpl      string `yaml:"ISOURLTmpl"`
}

// MachineSpec is what installer and boot image have to fit.
type MachineSpec struct {
	Mode        string `yaml:"mode"`
	Arch        string `yaml:"arch" enum:"amd64,arm64"`
	SecureBoot  bool   `yaml:"secureboot"`
	UseUKI      bool   `yaml:"useUKI"`
	BootMethod  string `yaml:"bootMethod" enum:"iso,disk-image,pxe"`
	ImageSuffix string `yaml:"imageSuffix"`
}

// IngressFirewall becomes one NetworkDefaultActionConfig and a NetworkRuleConfig for each rule.
type IngressFirewall struct {
	DefaultAction nethelpers.DefaultAction `yaml:"defaultAction"`
	Rules         []NetworkRule            `yaml:"rules"`
}

// NetworkRule is one rule of an ingress firewall.
type NetworkRule struct {
	Name         string                   `yaml:"name"`
	PortSelector network.RulePortSelector `yaml:"portSelector"`
	Ingress      network.IngressConfig    `yaml:"ingress"`
}

// ExtensionService becomes an ExtensionServiceConfig.
type ExtensionService struct {
	Name        string                    `yaml:"name"`
	ConfigFiles extensions.ConfigFileList `yaml:"configFiles"`
	Environment []string                  `yaml:"environment"`
}

// Volume becomes a VolumeConfig.
type Volume struct {
	Name         string                 `yaml:"name"`
	Provisioning block.ProvisioningSpec `yaml:"provisioning"`
	Encryption   Encryption             `yaml:"encryption"`
}

// UserVolume becomes a UserVolumeConfig.
type UserVolume struct {
	Name         string                 `yaml:"name"`
	VolumeType   *block.VolumeType      `yaml:"volumeType"`
	Provisioning block.ProvisioningSpec `yaml:"provisioning"`
	Filesystem   block.FilesystemSpec   `yaml:"filesystem"`
	Encryption   Encryption             `yaml:"encryption"`
}

// Encryption of a volume; it may hold a passphrase.
type Encryption struct {
	block.EncryptionSpec `yaml:",inline"`

	// AllowDiscards is known from Talos 1.14 on.
	AllowDiscards *bool `yaml:"allowDiscards"`
}
