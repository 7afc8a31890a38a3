package equal

import (
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// Equivalence is what two forms say differently and Talos takes alike.
type Equivalence struct {
	// Accessors are those that are compared in one common form.
	Accessors []string
	// Why says why the forms are equivalent; Source is where Talos shows it.
	Why, Source string

	// unify puts both forms into the common one.
	unify func(config answers)
}

// Equivalences are all that is declared equivalent though it is not equal. Paths are those of Talos' repository at
// v1.14.1.
var Equivalences = []Equivalence{
	{
		Accessors: []string{"Machine.Install", "UnattendedInstallConfig"},
		Why:       "the document installs as the section does: the same image to the same disk, with a reboot after it",
		Source:    "internal/app/machined/pkg/controllers/runtime/unattended_install.go",
		unify:     unifyInstall,
	},
	{
		Accessors: []string{"K8sEtcdEncryptionConfig", "Cluster.SecretboxEncryptionSecret", "Cluster.AESCBCEncryptionSecret"},
		Why: "a node makes the document's content of the two secrets; `identity` at the end, which it adds, only reads " +
			"what was never encrypted, and Talos encrypts from the first day",
		Source: "internal/app/machined/pkg/controllers/k8s/internal/k8stemplates/apiserver.go",
		unify:  unifyEncryption,
	},
	{
		Accessors: []string{"K8sAPIServerConfig.InjectDefaultAuthorizers", "K8sAuthorizerConfigs"},
		Why: "what the API server adds to the section's authorizers, Node and RBAC, are documents; an authorization-mode, " +
			"which Talos takes instead, has these two in any case",
		Source: "internal/app/machined/pkg/controllers/k8s/control_plane.go, NewControlPlaneAuthorizationController; " +
			"control_plane_final.go, handleKubeAPIServerAuthorizationFlags",
		unify: unifyAuthorizers,
	},
	{
		Accessors: []string{"K8sAPIServerConfig.UseAuthenticationConfig", "K8sAuthenticationConfig"},
		Why: "`anonymous-auth` is false with the section, which the document's `anonymous.enabled` says; and of its oidc- " +
			"arguments the API server itself makes what the document says, with the issuer's keys, whatever the algorithm",
		Source: "internal/app/machined/pkg/controllers/k8s/control_plane_final.go; pkg/machinery/config/types/k8s/" +
			"authentication.go; of Kubernetes: pkg/kubeapiserver/options/authentication.go, ToAuthenticationConfig",
		unify: unifyAuthentication,
	},
	{
		Accessors: []string{"K8sAPIServerConfig.ExtraVolumes"},
		Why:       "with the document the API server sees the machine's trusted roots, read-only; nothing turns it off",
		Source:    "pkg/machinery/config/types/k8s/apiserver.go, ExtraVolumes",
		unify: func(config answers) {
			dropItems(under(config, "K8sAPIServerConfig"), "ExtraVolumes", func(volume answers) bool {
				return volume["Name"] == "ca-roots" && volume["ReadOnly"] == "true"
			})
		},
	},
	{
		Accessors: []string{"K8sProxyConfig.UseConfigFile", "K8sProxyConfig.ExtraArgs", "K8sProxyConfig.Config"},
		Why:       "kube-proxy gets the same settings, from a file instead of by arguments",
		Source:    "internal/app/machined/pkg/controllers/k8s/control_plane.go, manageProxyConfigArgs",
		unify:     unifyProxy,
	},
	{
		Accessors: []string{"DiscoveryServiceConfigs.Name", "Cluster.Discovery"},
		Why: "the name of the only discovery service means nothing, and nodes ask Kubernetes only if both switches are " +
			"on",
		Source: "internal/app/machined/pkg/controllers/cluster/config.go",
		unify:  unifyDiscovery,
	},
	{
		Accessors: []string{"K8sExternalManifestConfigs.Name"},
		Why: "the name of an external manifest only tells it from others: namespaces and CRDs are applied first, whatever " +
			"manifest has them",
		Source: "internal/app/machined/pkg/controllers/k8s/control_plane.go, NewControlPlaneExtraManifestsController; " +
			"manifest_apply.go",
		unify: func(config answers) {
			eachItem(config, "K8sExternalManifestConfigs", func(manifest answers) { delete(manifest, "Name") })
		},
	},
	{
		Accessors: []string{"K8sStaticPodConfigs.Name"},
		Why:       "the name of a static pod's document only tells it from others",
		Source:    "internal/app/machined/pkg/controllers/k8s/static_pod_config.go",
		unify: func(config answers) {
			eachItem(config, "K8sStaticPodConfigs", func(pod answers) { delete(pod, "Name") })
		},
	},
	{
		Accessors: []string{"Machine.Files", "EtcFileConfigs", "CRICustomizationConfigs.Name"},
		Why: "a file that replaces one below /etc is what EtcFileConfig writes, and the CRI's part is read as a " +
			"document",
		Source: "internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_sequencer_tasks.go, WriteUserFiles; " +
			"pkg/machinery/config/types/v1alpha1/v1alpha1_cri_bridge.go",
		unify: unifyFiles,
	},
	{
		Accessors: []string{"NetworkHostnameConfig.AutoHostname"},
		Why:       "a name that is made up goes below one that the config says",
		Source:    "internal/app/machined/pkg/controllers/network/hostname_config.go",
		unify: func(config answers) {
			if hostname := under(config, "NetworkHostnameConfig"); hostname["Hostname"] != "" {
				delete(hostname, "AutoHostname")
			}
		},
	},
	{
		Accessors: []string{"K8sAPIServerConfig.CertSANs"},
		Why:       "the host of the cluster's endpoint is in the certificate anyway",
		Source:    "internal/app/machined/pkg/controllers/secrets/kubernetes_cert_sans.go",
		unify:     unifyCertificate,
	},
	{
		Accessors: []string{"SecurityProfileConfig"},
		Why:       "without the document there is no isolation",
		Source:    "internal/app/machined/pkg/sandboxd/enabled.go",
		unify: func(config answers) {
			if under(config, "SecurityProfileConfig")["WorkloadIsolation"] == "false" {
				config["SecurityProfileConfig"] = nil
			}
		},
	},
	{
		Accessors: []string{"K8sCredentialProviderConfig", "ImageCacheConfig"},
		Why:       "an empty configuration is none, and a cache that is off is none",
		Source: "internal/app/machined/pkg/controllers/k8s/kubelet_config.go; " +
			"internal/app/machined/pkg/controllers/cri/image_cache_config.go",
		unify: func(config answers) {
			if under(config, "K8sCredentialProviderConfig")["Configuration"] == nil {
				config["K8sCredentialProviderConfig"] = nil
			}

			if under(config, "ImageCacheConfig")["LocalEnabled"] == "false" {
				config["ImageCacheConfig"] = nil
			}
		},
	},
	{
		Accessors: []string{"Machine.Network.Devices", "NetworkCommonLinkConfigs", "NetworkVirtualIPConfigs"},
		Why:       "a link with addresses, routes and a VIP is the same in the section and in documents",
		Source: "internal/app/machined/pkg/controllers/network: link_config.go, address_config.go, route_config.go, " +
			"operator_vip_config.go",
		unify: unifyDevices,
	},
	{
		Accessors: []string{"NetworkKubeSpanConfig.Filters"},
		Why:       "filters that are empty filter nothing, as none do",
		Source:    "internal/app/machined/pkg/controllers/kubespan/config.go",
		unify: func(config answers) {
			kubeSpan := under(config, "NetworkKubeSpanConfig")
			if filters := under(kubeSpan, "Filters"); filters["Endpoints"] == nil &&
				filters["ExcludeAdvertisedNetworks"] == nil {
				delete(kubeSpan, "Filters")
			}
		},
	},
	{
		Accessors: []string{"Machine.Sysctls", "Machine.Sysfs", "Machine.Udev"},
		Why:       "Talos reads SysctlConfig, SysfsConfig and UdevRulesConfig, which contain these",
		Source:    "pkg/machinery/config/container/container.go",
		unify: func(config answers) {
			for _, name := range []string{"Sysctls", "Sysfs", "Udev"} {
				delete(under(config, "Machine"), name)
			}
		},
	},
	{
		Accessors: []string{"SysctlConfig.net.ipv4.conf.all.send_redirects",
			"SysctlConfig.net.ipv4.conf.default.send_redirects"},
		Why:    "the kernel sends ICMP redirects, unless told not to, as Talos does since 1.14",
		Source: "internal/app/machined/pkg/controllers/runtime/kernel_param_defaults.go",
		unify: func(config answers) {
			maps.DeleteFunc(under(config, "SysctlConfig"), func(key string, value any) bool {
				return slices.Contains(Redirects, key) && value == "1"
			})

			if len(under(config, "SysctlConfig")) == 0 {
				config["SysctlConfig"] = nil
			}
		},
	},
	{
		Accessors: []string{"Volumes.ByName"},
		Why:       "a volume without a document is as one whose document says the same; only of IMAGECACHE it is asked which",
		Source:    "internal/app/machined/pkg/controllers/block/internal/volumes/volumeconfig/system_volumes.go",
		unify: func(config answers) {
			for name, volume := range under(config, "Volumes", "ByName") {
				if volume, ok := volume.(answers); ok && name != "IMAGECACHE" {
					delete(volume, "present")
					delete(under(volume, "value"), "Name")
				}
			}
		},
	},
	{
		Accessors: []string{"Machine.Env", "Environment.Variables"},
		Why:       "both are put into the environment of Talos' services, the document's over the section's",
		Source: "internal/pkg/environment/environment.go; " +
			"internal/app/machined/pkg/controllers/runtime/environment.go",
		unify: func(config answers) {
			all := answers{}
			maps.Copy(all, under(config, "Machine", "Env"))
			maps.Copy(all, under(config, "Environment", "Variables"))

			config["Environment"] = answers{"Variables": all}

			delete(under(config, "Machine"), "Env")
		},
	},
	{
		Accessors: []string{"Machine.SystemDiskEncryption", "Volumes.ByName"},
		Why:       "a volume without encryption in its document is encrypted as the section says",
		Source: "internal/app/machined/pkg/controllers/block/volume_config.go; " +
			"internal/app/machined/pkg/controllers/block/internal/volumes/volumeconfig/system_volumes.go",
		unify: func(config answers) {
			for name, encryption := range under(config, "Machine", "SystemDiskEncryption", "Get") {
				if volume := under(config, "Volumes", "ByName", name, "value"); volume != nil && volume["Encryption"] == nil {
					volume["Encryption"] = encryption
				}
			}

			delete(under(config, "Machine"), "SystemDiskEncryption")
		},
	},
	{
		Accessors: onlyControlPlanes,
		Why:       "a worker runs none of the control plane, whatever its config says of it",
		Source:    "internal/app/machined/pkg/controllers/k8s/control_plane.go, controlplaneMapFunc",
		unify:     unifyWorker,
	},
}

// Redirects are the kernel's settings for ICMP redirects.
var Redirects = []string{"net.ipv4.conf.all.send_redirects", "net.ipv4.conf.default.send_redirects"}

// onlyControlPlanes are the accessors that no worker asks.
var onlyControlPlanes = []string{
	"K8sAggregatorCAConfig", "K8sAdmissionControlPluginConfigs", "K8sAuditPolicyConfig", "K8sAuthenticationConfig",
	"K8sAuthorizerConfigs", "K8sEtcdEncryptionConfig", "K8sAPIServerConfig", "K8sControllerManagerConfig",
	"K8sSchedulerConfig", "K8sProxyConfig", "K8sFlannelCNIConfig", "K8sCoreDNSConfig", "K8sServiceAccountConfig",
	"K8sInlineManifestConfigs", "K8sExternalManifestConfigs", "K8sTalosAPIAccessConfig", "Cluster.Etcd",
	"Cluster.AdminKubeconfig",
}

func unifyWorker(config answers) {
	if under(config, "Machine")["Type"] != "worker" {
		return
	}

	for _, accessor := range onlyControlPlanes {
		within, name, isBelow := strings.Cut(accessor, ".")
		if isBelow {
			delete(under(config, within), name)
		} else {
			delete(config, within)
		}
	}
}

var (
	devPath = pattern.New(`^disk\.dev_path == "(.*)"$`)
	symlink = pattern.New(`^"(.*)" in disk\.symlinks$`)
)

// unifyInstall takes the document for the section.
func unifyInstall(config answers) {
	document, section := under(config, "UnattendedInstallConfig"), under(config, "Machine", "Install")
	delete(config, "UnattendedInstallConfig")

	if section == nil {
		return
	}

	section["Reboot"] = "true"

	if document != nil {
		maps.DeleteFunc(section, func(string, any) bool { return true })
		maps.Copy(section, answers{"Image": document["InstallerImage"], "DiskMatchExpression": document["VolumeSelector"],
			"Disk": "", "Zero": document["VolumeWipe"], "GrubUseUKICmdline": "true", "LegacyBIOSSupport": "false",
			"Extensions": nil, "ExtraKernelArgs": nil, "Reboot": document["RebootAfterInstall"]})

		if section["Reboot"] == nil && section["Image"] != "" {
			section["Reboot"] = "true"
		}
	}

	selector, _ := section["DiskMatchExpression"].(string)

	for _, form := range []pattern.Pattern{devPath, symlink} {
		if match := form.FindStringSubmatch(selector); match != nil {
			section["Disk"], section["DiskMatchExpression"] = match[1], nil
		}
	}

	if section["DiskMatchExpression"] != nil {
		section["Disk"] = "" // the selector goes first
	}
}

func unifyCertificate(config answers) {
	endpoint, err := url.Parse(text(under(config, "K8sClusterConfig")["ClusterEndpoint"]))
	if err != nil {
		return
	}

	server := under(config, "K8sAPIServerConfig")
	names, _ := server["CertSANs"].([]any)

	if server != nil {
		server["CertSANs"] = orNothing(slices.DeleteFunc(slices.Clone(names),
			func(name any) bool { return name == endpoint.Hostname() }))
	}
}

func unifyEncryption(config answers) {
	cluster := under(config, "Cluster")
	secretbox, aescbc := cluster["SecretboxEncryptionSecret"], cluster["AESCBCEncryptionSecret"]

	delete(cluster, "SecretboxEncryptionSecret")
	delete(cluster, "AESCBCEncryptionSecret")

	if document := under(config, "K8sEtcdEncryptionConfig", "EtcdEncryptionConfig"); document != nil {
		eachItem(document, "resources", dropLastIdentity)

		return
	}

	var providers []any

	for _, one := range []struct {
		kind, name string
		secret     any
	}{{"secretbox", "key2", secretbox}, {"aescbc", "key1", aescbc}} {
		if one.secret != "" && one.secret != nil {
			key := answers{"name": one.name, "secret": one.secret}
			providers = append(providers, answers{one.kind: answers{"keys": []any{key}}})
		}
	}

	if providers != nil {
		config["K8sEtcdEncryptionConfig"] = answers{"EtcdEncryptionConfig": answers{
			"resources": []any{answers{"resources": []any{"secrets"}, "providers": providers}},
		}}
	}
}

func unifyDiscovery(config answers) {
	if list, ok := config["DiscoveryServiceConfigs"].([]any); ok && len(list) == 1 {
		delete(list[0].(answers), "Name") //nolint:forcetypeassert // an interface's answers
	}

	discovery := under(config, "Cluster", "Discovery")
	if discovery == nil {
		return
	}

	asksKubernetes := discovery["Enabled"] == "true" &&
		under(discovery, "Registries", "Kubernetes")["Enabled"] == "true"

	maps.DeleteFunc(discovery, func(string, any) bool { return true })

	if asksKubernetes {
		discovery["Kubernetes"] = "true"
	}
}

const criPart = "/etc/cri/conf.d/20-customization.part"

func unifyFiles(config answers) {
	if list, ok := config["CRICustomizationConfigs"].([]any); ok && len(list) == 1 {
		delete(list[0].(answers), "Name") //nolint:forcetypeassert // an interface's answers
	}

	etc, _ := config["EtcFileConfigs"].([]any)

	dropItems(under(config, "Machine"), "Files", func(file answers) bool {
		name, isBelow := strings.CutPrefix(text(file["Path"]), "/etc/")

		switch {
		case file["Path"] == criPart:
			return true
		case !isBelow || file["Op"] != "overwrite" || path.Clean(name) != name:
			return false
		}

		etc = append(etc, answers{"Name": name, "Content": file["Content"], "Mode": file["Permissions"]})

		return true
	})

	slices.SortStableFunc(etc, func(a, b any) int {
		return strings.Compare(text(a.(answers)["Name"]), text(b.(answers)["Name"])) //nolint:forcetypeassert // all are
	})

	if config["EtcFileConfigs"] = etc; len(etc) == 0 {
		config["EtcFileConfigs"] = nil
	}
}

func text(said any) string {
	text, _ := said.(string)

	return text
}

// dropLastIdentity takes out the provider that encrypts nothing, behind others: the first is what secrets are written
// by.
func dropLastIdentity(resource answers) {
	providers, _ := resource["providers"].([]any)

	last := len(providers) - 1
	if last < 1 {
		return
	}

	if provider, isMapping := providers[last].(answers); isMapping {
		if _, isIdentity := provider["identity"]; isIdentity {
			resource["providers"] = providers[:last]
		}
	}
}

// under are the answers at the end of a way; nil if there are none.
func under(said answers, way ...string) answers {
	for _, name := range way {
		said, _ = said[name].(answers)
	}

	return said
}

// place sets a value below dotted keys.
func place(in answers, keys string, value any) {
	first, rest, isBelow := strings.Cut(keys, ".")
	if !isBelow {
		in[first] = value

		return
	}

	inner := under(in, first)
	if inner == nil {
		inner = answers{}
		in[first] = inner
	}

	place(inner, rest, value)
}

// dropKey takes a key out of a mapping, and the mapping too if it was the last.
func dropKey(in answers, mapping, key string) {
	delete(under(in, mapping), key)

	if len(under(in, mapping)) == 0 {
		in[mapping] = nil
	}
}

// dropNothing takes out the keys that say nothing.
func dropNothing(in answers) {
	maps.DeleteFunc(in, func(_ string, value any) bool { return value == nil })
}

func eachItem(in answers, list string, do func(answers)) {
	items, _ := in[list].([]any)
	for _, item := range items {
		if item, ok := item.(answers); ok {
			do(item)
		}
	}
}

// dropItems takes items out of a list, which is nothing without any.
func dropItems(in answers, list string, unwanted func(answers) bool) {
	items, ok := in[list].([]any)
	if !ok {
		return
	}

	items = slices.DeleteFunc(slices.Clone(items), func(item any) bool {
		said, ok := item.(answers)

		return ok && unwanted(said)
	})

	if in[list] = items; len(items) == 0 {
		in[list] = nil
	}
}
