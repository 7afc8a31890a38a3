package machineconfig

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v4"
)

// Effect is when a changed field takes effect on a node with Talos 1.14 or newer, which takes every change and reboots
// for none.
type Effect int

// Effects. What the table does not say may wait for a reboot.
const (
	EffectUnknown Effect = iota
	EffectAtOnce
	EffectAtReboot
)

// sources of several rows of the table below.
const (
	sourceTasks       = "internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_sequencer_tasks.go"
	sourceControllers = "internal/app/machined/pkg/controllers/"
	// sourceImmediate is the list that Talos itself went by until 1.13.
	sourceImmediate = "v1.13.9: internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_runtime.go, CanApplyImmediate"
)

// fieldEffect is one row: of a field and all below it, or of all documents of some kinds.
type fieldEffect struct {
	fields string // separated by spaces
	effect Effect
	source string // in siderolabs/talos v1.14.1, unless it says otherwise
}

// fieldEffects are all that is known. The longest field that a change is of, or below, counts.
var fieldEffects = []fieldEffect{
	{"machine.type SecurityProfileConfig", EffectAtReboot, sourceTasks + ", StartAllServices"},
	{"machine.files", EffectAtReboot, sourceTasks + ", WriteUserFiles"},
	// Services that run keep the variables that they were started with.
	{"machine.env EnvironmentConfig", EffectAtReboot, sourceTasks + ", SetUserEnvVars"},
	{"machine.features.diskQuotaSupport", EffectAtReboot,
		sourceControllers + "block/internal/volumes/volumeconfig/system_volumes.go, ProjectQuotaSupport"},
	{"cluster.etcd.image cluster.etcd.extraArgs", EffectAtReboot,
		"internal/app/machined/pkg/system/services/etcd.go, PreFunc"},
	{"KernelModuleConfig.parameters", EffectAtReboot, "pkg/machinery/config/types/runtime/kernel_module.go, Parameters"},

	{"debug cluster machine.ca machine.acceptedCAs machine.time machine.certSANs machine.install machine.network " +
		"machine.sysfs machine.sysctls machine.logging machine.controlPlane machine.kubelet machine.kernel " +
		"machine.registries machine.pods machine.seccompProfiles machine.nodeAnnotations machine.nodeLabels " +
		"machine.nodeTaints machine.features.kubernetesTalosAPIAccess machine.features.kubePrism " +
		"machine.features.hostDNS machine.features.imageCache machine.features.nodeAddressSortAlgorithm",
		EffectAtOnce, sourceImmediate},
	{"machine.token", EffectAtOnce, sourceControllers + "secrets/root.go"},
	{"machine.udev UdevRulesConfig", EffectAtOnce, sourceControllers + "files/udev.go"},
	{"machine.baseRuntimeSpecOverrides CRIBaseRuntimeSpecConfig CRICustomizationConfig", EffectAtOnce,
		sourceControllers + "cri/service.go"},
	{"KubeClusterConfig KubeNodeConfig KubeletConfig KubeNetworkConfig KubeFlannelCNIConfig KubeAPIServerCAConfig " +
		"KubeAggregatorCAConfig KubeServiceAccountConfig KubeAPIServerConfig KubeAdmissionControlConfig " +
		"KubeAuditPolicyConfig KubeAuthorizerConfig KubeAuthenticationConfig KubeEtcdEncryptionConfig " +
		"KubeControllerManagerConfig KubeSchedulerConfig KubeProxyConfig KubeCoreDNSConfig KubePrismConfig " +
		"KubeTalosAPIAccessConfig KubeCredentialProviderConfig KubeStaticPodConfig KubeInlineManifestConfig " +
		"KubeExternalManifestConfig", EffectAtOnce, sourceControllers + "k8s"},
	{"DiscoveryServiceConfig DiscoveryIdentityConfig", EffectAtOnce, sourceControllers + "cluster/config.go"},
	{"HostnameConfig ResolverConfig StaticHostConfig LinkConfig LinkAliasConfig BondConfig BridgeConfig VLANConfig " +
		"VRFConfig VethConfig DummyLinkConfig WireguardConfig EthernetConfig DHCPv4Config DHCPv6Config Layer2VIPConfig " +
		"HCloudVIPConfig BlackholeRouteConfig RoutingRuleConfig TCPProbeConfig HTTPProbeConfig BGPInstanceConfig " +
		"NetworkRuleConfig NetworkDefaultActionConfig TimeSyncConfig", EffectAtOnce, sourceControllers + "network"},
	{"KubeSpanConfig KubeSpanEndpointsConfig", EffectAtOnce, sourceControllers + "kubespan"},
	{"RegistryMirrorConfig RegistryAuthConfig RegistryTLSConfig ImageCacheConfig", EffectAtOnce,
		sourceControllers + "cri"},
	{"SysctlConfig SysfsConfig", EffectAtOnce, sourceControllers + "runtime/kernel_param_config.go"},
	{"KernelModuleConfig", EffectAtOnce, sourceControllers + "runtime/kernel_module_spec.go"},
	{"EventSinkConfig", EffectAtOnce, sourceControllers + "runtime/events_sink.go"},
	{"KmsgLogConfig", EffectAtOnce, sourceControllers + "runtime/kmsg_log.go"},
	{"OOMConfig", EffectAtOnce, sourceControllers + "runtime/oom.go"},
	{"WatchdogTimerConfig", EffectAtOnce, sourceControllers + "runtime/watchdog_timer.go"},
	{"ExtensionServiceConfig", EffectAtOnce, sourceControllers + "runtime/extension_service.go"},
	{"EtcFileConfig", EffectAtOnce, sourceControllers + "files/etc_file_config.go"},
	{"TrustedRootsConfig", EffectAtOnce, sourceControllers + "secrets/trusted_roots.go"},
	{"ImageVerificationConfig", EffectAtOnce, sourceControllers + "security/image_verification_config.go"},
	{"ContainerConfig", EffectAtOnce, sourceControllers + "containers"},
	{"ZswapConfig", EffectAtOnce, sourceControllers + "block/zswap_status.go"},
	{"FilesystemTrimConfig", EffectAtOnce, sourceControllers + "block/volume_trim.go"},
	{"FilesystemScrubConfig", EffectAtOnce, sourceControllers + "block/fs_scrub.go"},
	// An installed node does not look at it.
	{"UnattendedInstallConfig", EffectAtOnce, sourceControllers + "runtime/unattended_install.go"},
}

// ChangedFields names what two configs differ in, by when a node with Talos 1.14 takes it: by its row in the table, or
// else by itself.
func ChangedFields(running, wanted *Config) map[Effect][]string {
	before, after := running.documents(), wanted.documents()
	changed := map[Effect][]string{}

	for _, document := range slices.Sorted(maps.Keys(merged(before, after))) {
		kind, _, _ := strings.Cut(document, " ")

		for _, keys := range differing(before[document], after[document]) {
			name, effect := effectOf(join(kind, keys))
			if row, isOfKind := strings.CutPrefix(name, kind); isOfKind {
				name = document + row
			}

			if !slices.Contains(changed[effect], name) {
				changed[effect] = append(changed[effect], name)
			}
		}
	}

	return changed
}

// effectOf finds a field's row in the table: the longest name that it is, or is below.
func effectOf(field string) (name string, effect Effect) {
	for _, row := range fieldEffects {
		for known := range strings.FieldsSeq(row.fields) {
			if len(known) > len(name) && strings.HasPrefix(field+".", known+".") {
				name, effect = known, row.effect
			}
		}
	}

	return cmp.Or(name, field), effect
}

// documents are the decoded documents by kind and name; the one without a kind has neither.
func (c *Config) documents() map[string]any {
	decoded := map[string]any{}

	for _, document := range c.Provider.Documents() {
		data, err := encoder.NewEncoder(document, encoder.WithComments(encoder.CommentsDisabled)).Encode()
		if err != nil {
			continue // it was decoded from such a text
		}

		var tree map[string]any
		if yaml.Unmarshal(data, &tree) == nil {
			decoded[strings.ReplaceAll(strings.TrimSuffix(documentOrder(document), "/"), "/", " ")] = tree
		}
	}

	return decoded
}

// differing are the deepest keys at which two values differ; one empty text if they differ as a whole.
func differing(before, after any) []string {
	old, isOld := before.(map[string]any)
	wanted, isNew := after.(map[string]any)

	if !isOld || !isNew {
		if reflect.DeepEqual(before, after) {
			return nil
		}

		return []string{""}
	}

	var keys []string

	for _, key := range slices.Sorted(maps.Keys(merged(old, wanted))) {
		for _, below := range differing(old[key], wanted[key]) {
			keys = append(keys, join(key, below))
		}
	}

	return keys
}

// merged has the keys of two maps.
func merged(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	maps.Copy(all, b)

	return all
}

func join(key, below string) string { return strings.Trim(key+"."+below, ".") }
