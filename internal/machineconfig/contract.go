package machineconfig

import (
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
)

// DefaultTalosVersion is the Talos release that configs are for where none is declared: the one that machinery's types
// come from.
const DefaultTalosVersion = "v1.13.9"

// kindSince is the first Talos 1.x release that knows a kind of document, as the registries of its machinery list them.
var kindSince = map[string]int{
	"EventSinkConfig": 5, "KmsgLogConfig": 5, "SideroLinkConfig": 5,
	"NetworkDefaultActionConfig": 6, "NetworkRuleConfig": 6,
	"ExtensionServiceConfig": 7, "WatchdogTimerConfig": 7,
	"TrustedRootsConfig": 8, "VolumeConfig": 8, "KubeSpanEndpointsConfig": 8,
	"EthernetConfig": 10, "UserVolumeConfig": 10, "PCIDriverRebindConfig": 10,
	"ExistingVolumeConfig": 11, "RawVolumeConfig": 11, "SwapVolumeConfig": 11, "ZswapConfig": 11,
	"BondConfig": 12, "BridgeConfig": 12, "DHCPv4Config": 12, "DHCPv6Config": 12, "DummyLinkConfig": 12,
	"HCloudVIPConfig": 12,
	"HostnameConfig":  12, "Layer2VIPConfig": 12, "LinkAliasConfig": 12, "LinkConfig": 12, "OOMConfig": 12,
	"ResolverConfig":     12,
	"RegistryAuthConfig": 12, "RegistryMirrorConfig": 12, "RegistryTLSConfig": 12,
	"StaticHostConfig": 12, "TimeSyncConfig": 12, "VLANConfig": 12, "WireguardConfig": 12,
	"BlackholeRouteConfig": 13, "EnvironmentConfig": 13, "ExternalVolumeConfig": 13, "ImageVerificationConfig": 13,
	"KubeSpanConfig": 13, "RoutingRuleConfig": 13, "TCPProbeConfig": 13, "VRFConfig": 13,
	"BGPInstanceConfig": 14, "CRIBaseRuntimeSpecConfig": 14, "CRICustomizationConfig": 14, "ContainerConfig": 14,
	"DiscoveryIdentityConfig": 14, "DiscoveryServiceConfig": 14, "EtcFileConfig": 14, "FilesystemScrubConfig": 14,
	"FilesystemTrimConfig": 14, "HTTPProbeConfig": 14, "ImageCacheConfig": 14, "KernelModuleConfig": 14,
	"KubeAPIServerCAConfig": 14, "KubeAPIServerConfig": 14, "KubeAdmissionControlConfig": 14,
	"KubeAggregatorCAConfig": 14, "KubeAuditPolicyConfig": 14, "KubeAuthenticationConfig": 14,
	"KubeAuthorizerConfig": 14, "KubeClusterConfig": 14, "KubeControllerManagerConfig": 14, "KubeCoreDNSConfig": 14,
	"KubeCredentialProviderConfig": 14, "KubeEtcdEncryptionConfig": 14, "KubeExternalManifestConfig": 14,
	"KubeFlannelCNIConfig": 14, "KubeInlineManifestConfig": 14, "KubeNetworkConfig": 14, "KubeNodeConfig": 14,
	"KubePrismConfig": 14, "KubeProxyConfig": 14, "KubeSchedulerConfig": 14, "KubeServiceAccountConfig": 14,
	"KubeStaticPodConfig": 14, "KubeTalosAPIAccessConfig": 14, "KubeletConfig": 14, "LVMLogicalVolumeConfig": 14,
	"LVMVolumeGroupConfig": 14, "RAIDArrayConfig": 14, "SecurityProfileConfig": 14, "SysctlConfig": 14,
	"SysfsConfig": 14, "UdevRulesConfig": 14, "UnattendedInstallConfig": 14, "VethConfig": 14,
}

// TalosContract is the oldest Talos version, 1.5 at least, that can decode the config, going by the kinds of its
// documents and the fields that were added since: an older node refuses it. Docs: docs.siderolabs.com, what's new of
// each release.
func (c *Config) TalosContract() *config.VersionContract {
	const oldest = 5

	minor := oldest

	for _, document := range c.Provider.Documents() {
		minor = max(minor, kindSince[document.Kind()])
	}

	machine := c.raw.MachineConfig

	if features := machine.MachineFeatures; features != nil &&
		(features.ImageCacheSupport != nil || features.FeatureNodeAddressSortAlgorithm != "") {
		minor = max(minor, 9)
	}

	if install := machine.MachineInstall; install != nil && install.InstallGrubUseUKICmdline != nil {
		minor = max(minor, 12)
	}

	if network := c.raw.ClusterConfig.ClusterNetwork; network != nil && network.CNI != nil &&
		network.CNI.CNIFlannel != nil &&
		network.CNI.CNIFlannel.FlannelKubeNetworkPoliciesEnabled != nil {
		minor = max(minor, 13)
	}

	return &config.VersionContract{Major: 1, Minor: minor}
}

// documentsSince is the Talos release whose configs have documents where those before had fields.
var documentsSince = config.TalosVersion1_14

// InDocuments reports whether the config has the form that Talos has since 1.14, as any document of that release tells.
func (c *Config) InDocuments() bool { return !documentsSince.Greater(c.TalosContract()) }

// KindsSince are the kinds of documents that the config has and a Talos release does not know, in alphabetical order.
func (c *Config) KindsSince(release *config.VersionContract) []string {
	var kinds []string

	for _, document := range c.Provider.Documents() {
		if (&config.VersionContract{Major: 1, Minor: kindSince[document.Kind()]}).Greater(release) {
			kinds = append(kinds, document.Kind())
		}
	}

	slices.Sort(kinds)

	return slices.Compact(kinds)
}
