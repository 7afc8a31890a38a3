package configrules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// later are the kinds of documents, and the fields of older kinds, that a release brought.
type later struct {
	kinds []string
	// fields are paths such as "filesystem.xfs", by kind, which is empty for the main document; they lead through lists.
	fields map[string][]string
}

var since113 = later{
	kinds: []string{
		"BlackholeRouteConfig", "EnvironmentConfig", "ExternalVolumeConfig", "ImageVerificationConfig", "KubeSpanConfig",
		"RoutingRuleConfig", "TCPProbeConfig", "VRFConfig",
	},
	fields: map[string][]string{
		"":                     {"cluster.network.cni.flannel.kubeNetworkPoliciesEnabled"},
		"ExistingVolumeConfig": {"mount.disableAccessTime", "mount.secure"},
		"OOMConfig":            {"strictCgroupClassOrdering"},
		"UserVolumeConfig":     {"mount"},
		"VolumeConfig":         {"mount"},
	},
}

var since114 = later{
	kinds: []string{
		"BGPInstanceConfig", "CRIBaseRuntimeSpecConfig", "CRICustomizationConfig", "ContainerConfig",
		"DiscoveryIdentityConfig", "DiscoveryServiceConfig", "EtcFileConfig", "FilesystemScrubConfig",
		"FilesystemTrimConfig", "HTTPProbeConfig", "ImageCacheConfig", "KernelModuleConfig", "KubeAPIServerCAConfig",
		"KubeAPIServerConfig", "KubeAdmissionControlConfig", "KubeAggregatorCAConfig", "KubeAuditPolicyConfig",
		"KubeAuthenticationConfig", "KubeAuthorizerConfig", "KubeClusterConfig", "KubeControllerManagerConfig",
		"KubeCoreDNSConfig", "KubeCredentialProviderConfig", "KubeEtcdEncryptionConfig", "KubeExternalManifestConfig",
		"KubeFlannelCNIConfig", "KubeInlineManifestConfig", "KubeNetworkConfig", "KubeNodeConfig", "KubePrismConfig",
		"KubeProxyConfig", "KubeSchedulerConfig", "KubeServiceAccountConfig", "KubeStaticPodConfig",
		"KubeTalosAPIAccessConfig", "KubeletConfig", "LVMLogicalVolumeConfig", "LVMVolumeGroupConfig", "RAIDArrayConfig",
		"SecurityProfileConfig", "SysctlConfig", "SysfsConfig", "UdevRulesConfig", "UnattendedInstallConfig", "VethConfig",
	},
	fields: map[string][]string{
		"DHCPv4Config":         {"ignoreRoutes"},
		"ExistingVolumeConfig": {"scrub", "trim"},
		"RawVolumeConfig":      {"encryption.allowDiscards"},
		"ResolverConfig":       {"hostDNS", "nameservers.protocol", "nameservers.tlsServerName"},
		"SwapVolumeConfig":     {"encryption.allowDiscards"},
		"TimeSyncConfig":       {"ntp.useNTS"},
		"UserVolumeConfig":     {"encryption.allowDiscards", "filesystem.xfs", "scrub", "trim"},
		"VolumeConfig": {"encryption.allowDiscards", "filesystem", "mount.disableAccessTime", "scrub",
			"trim"},
	},
}

// refuseLater says what the releases do not know of a machine config that later ones do; nil if there is nothing.
func (r *Rules) refuseLater(data []byte) error {
	for _, document := range documentsOf(data) {
		if err := r.refuseDocument(document); err != nil {
			return err
		}
	}

	return nil
}

func (r *Rules) refuseDocument(document *yaml.Node) error {
	kind, version := valueOf(document, "kind"), valueOf(document, "apiVersion")
	name := fmt.Sprintf("error decoding document %s/%s/%s (line %d): ", version, cmp.Or(kind, "v1alpha1"),
		valueOf(document, "name"), document.Line)

	if r.bareRefusals {
		name = ""
	}

	for _, release := range r.unknown {
		if slices.Contains(release.kinds, kind) {
			return fmt.Errorf("%s%q %q: not registered", name, kind, version)
		}

		for _, path := range release.fields[kind] {
			if field := cut(document, strings.Split(path, ".")); field != nil {
				text, err := yaml.Marshal(field)
				if err != nil {
					return fmt.Errorf("show %s of %s: %w", path, kind, err)
				}

				return fmt.Errorf("%sunknown keys found during decoding:\n%s", name, text)
			}
		}
	}

	return nil
}

// valueOf is the text at a key of a document; empty if there is none.
func valueOf(document *yaml.Node, key string) string {
	if value := at(document, key); value != nil {
		return value.Value
	}

	return ""
}

// at finds a key's value in a mapping; nil if there is none.
func at(node *yaml.Node, key string) *yaml.Node {
	if node.Kind != yaml.MappingNode {
		return nil
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}

	return nil
}

// cut leaves of a node what lies at a path, in each entry of the lists on the way; nil if that is nothing.
func cut(node *yaml.Node, path []string) *yaml.Node {
	if len(path) == 0 {
		return node
	}

	if node.Kind == yaml.SequenceNode {
		left := &yaml.Node{Kind: yaml.SequenceNode}

		for _, entry := range node.Content {
			if part := cut(entry, path); part != nil {
				left.Content = append(left.Content, part)
			}
		}

		if len(left.Content) == 0 {
			return nil
		}

		return left
	}

	value := at(node, path[0])
	if value == nil {
		return nil
	}

	if value = cut(value, path[1:]); value == nil {
		return nil
	}

	key := &yaml.Node{Kind: yaml.ScalarNode, Value: path[0]}

	return &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key, value}}
}
