package inventory

import (
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime/extensions"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"go.yaml.in/yaml/v4"
)

// The keys of talconfig.yaml, as the JSON schema of talhelper v3.1.16 lists them. What is not read here is known, so that a
// misspelt key can be told from one that only talhelper needs. Where talhelper uses Talos' own types, so do these.

type talconfig struct {
	ClusterName                    string              `yaml:"clusterName"`
	TalosVersion                   string              `yaml:"talosVersion"`
	KubernetesVersion              string              `yaml:"kubernetesVersion"`
	Endpoint                       string              `yaml:"endpoint"`
	Domain                         string              `yaml:"domain"`
	AllowSchedulingOnMasters       bool                `yaml:"allowSchedulingOnMasters"`
	AllowSchedulingOnControlPlanes bool                `yaml:"allowSchedulingOnControlPlanes"`
	AdditionalMachineCertSANs      []string            `yaml:"additionalMachineCertSans"`
	AdditionalAPIServerCertSANs    []string            `yaml:"additionalApiServerCertSans"`
	InlineManifests                []inlineManifest    `yaml:"inlineManifests"`
	PodNets                        []string            `yaml:"clusterPodNets"`
	ServiceNets                    []string            `yaml:"clusterSvcNets"`
	CNI                            *v1alpha1.CNIConfig `yaml:"cniConfig"`
	Patches                        []string            `yaml:"patches"`
	Nodes                          []talnode           `yaml:"nodes"`
	ImageFactory                   imageFactory        `yaml:"imageFactory"`
	ControlPlane                   nodeSettings        `yaml:"controlPlane"`
	Worker                         nodeSettings        `yaml:"worker"`
}

type talnode struct {
	Hostname                string                        `yaml:"hostname"`
	IPAddress               string                        `yaml:"ipAddress"`
	ControlPlane            bool                          `yaml:"controlPlane"`
	InstallDisk             string                        `yaml:"installDisk"`
	InstallDiskSelector     *v1alpha1.InstallDiskSelector `yaml:"installDiskSelector"`
	IgnoreHostname          bool                          `yaml:"ignoreHostname"`
	OverridePatches         bool                          `yaml:"overridePatches"`
	OverrideExtraManifests  bool                          `yaml:"overrideExtraManifests"`
	OverrideMachineCertSANs bool                          `yaml:"overrideMachineCertSANs"`
	nodeSettings            `yaml:",inline"`
}

// nodeSettings stand at a node, or at `controlPlane` and `worker` for all nodes of a role; the node's own win.
type nodeSettings struct {
	NodeLabels          map[string]string              `yaml:"nodeLabels"`
	NodeAnnotations     map[string]string              `yaml:"nodeAnnotations"`
	NodeTaints          map[string]string              `yaml:"nodeTaints"`
	MachineDisks        []*v1alpha1.MachineDisk        `yaml:"machineDisks"`
	MachineFiles        []machineFile                  `yaml:"machineFiles"`
	DisableSearchDomain bool                           `yaml:"disableSearchDomain"`
	KernelModules       []*v1alpha1.KernelModuleConfig `yaml:"kernelModules"`
	Nameservers         []string                       `yaml:"nameservers"`
	NetworkInterfaces   []*v1alpha1.Device             `yaml:"networkInterfaces"`
	ExtraManifests      []string                       `yaml:"extraManifests"`
	CertSANs            []string                       `yaml:"certSANs"`
	Patches             []string                       `yaml:"patches"`
	TalosImageURL       string                         `yaml:"talosImageURL"`
	NoSchematicValidate bool                           `yaml:"noSchematicValidate"`
	Schematic           *schematic                     `yaml:"schematic"`
	ImageSchematic      *schematic                     `yaml:"imageSchematic"`
	MachineSpec         machineSpec                    `yaml:"machineSpec"`
	IngressFirewall     *ingressFirewall               `yaml:"ingressFirewall"`
	ExtensionServices   []extensionService             `yaml:"extensionServices"`
	Volumes             []volume                       `yaml:"volumes"`
	UserVolumes         []userVolume                   `yaml:"userVolumes"`
	FilenameTmpl        string                         `yaml:"filenameTmpl"`
}

type inlineManifest struct {
	Name         string `yaml:"name"`
	Contents     string `yaml:"contents"`
	SkipEnvsubst bool   `yaml:"skipEnvsubst"`
}

type machineFile struct {
	Content      string `yaml:"content"`
	Permissions  any    `yaml:"permissions"`
	Path         string `yaml:"path"`
	Op           string `yaml:"op"`
	SkipEnvsubst bool   `yaml:"skipEnvsubst"`
}

type imageFactory struct {
	RegistryURL       string `yaml:"registryURL"`
	SchematicEndpoint string `yaml:"schematicEndpoint"`
	Protocol          string `yaml:"protocol"`
	InstallerURLTmpl  string `yaml:"installerURLTmpl"`
	ImageURLTmpl      string `yaml:"ISOURLTmpl"`
}

type machineSpec struct {
	Mode        string `yaml:"mode"`
	Arch        string `yaml:"arch"`
	SecureBoot  bool   `yaml:"secureboot"`
	UseUKI      bool   `yaml:"useUKI"`
	BootMethod  string `yaml:"bootMethod"`
	ImageSuffix string `yaml:"imageSuffix"`
}

// schematic is the image factory's; talhelper's schema has `meta` once as a mapping and once as a list of them.
type schematic struct {
	Owner   string `yaml:"owner"`
	Overlay struct {
		Image   string         `yaml:"image"`
		Name    string         `yaml:"name"`
		Options map[string]any `yaml:"options"`
	} `yaml:"overlay"`
	Customization struct {
		ExtraKernelArgs  []string `yaml:"extraKernelArgs"`
		Meta             metaList `yaml:"meta"`
		SystemExtensions struct {
			OfficialExtensions []string `yaml:"officialExtensions"`
		} `yaml:"systemExtensions"`
		Bootloader string `yaml:"bootloader"`
		SecureBoot struct {
			IncludeWellKnownCertificates bool `yaml:"includeWellKnownCertificates"`
		} `yaml:"secureboot"`
	} `yaml:"customization"`
}

// metaList also takes a single item.
type metaList []metaValue

type metaValue struct {
	Key   int    `yaml:"key"`
	Value string `yaml:"value"`
}

// UnmarshalYAML decodes nothing: check has looked at the keys, and the values are not needed here.
func (*metaList) UnmarshalYAML(*yaml.Node) error { return nil }

type ingressFirewall struct {
	DefaultAction string `yaml:"defaultAction"`
	Rules         []struct {
		Name         string `yaml:"name"`
		PortSelector struct {
			Ports    []any  `yaml:"ports"`
			Protocol string `yaml:"protocol"`
		} `yaml:"portSelector"`
		Ingress []struct {
			Subnet string `yaml:"subnet"`
			Except string `yaml:"except"`
		} `yaml:"ingress"`
	} `yaml:"rules"`
}

type extensionService struct {
	Name        string                    `yaml:"name"`
	ConfigFiles extensions.ConfigFileList `yaml:"configFiles"`
	Environment []string                  `yaml:"environment"`
}

type volume struct {
	Name         string       `yaml:"name"`
	Provisioning provisioning `yaml:"provisioning"`
	// Encryption holds passphrases: its keys are checked and its values never looked at.
	Encryption block.EncryptionSpec `yaml:"encryption"`
}

type userVolume struct {
	Name         string       `yaml:"name"`
	VolumeType   any          `yaml:"volumeType"`
	Provisioning provisioning `yaml:"provisioning"`
	Filesystem   struct {
		Type string `yaml:"type"`
	} `yaml:"filesystem"`
	Encryption block.EncryptionSpec `yaml:"encryption"`
}

type provisioning struct {
	DiskSelector struct {
		Match string `yaml:"match"`
	} `yaml:"diskSelector"`
	Grow    bool   `yaml:"grow"`
	MinSize string `yaml:"minSize"`
	MaxSize string `yaml:"maxSize"`
}
