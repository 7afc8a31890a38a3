package documents

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// neverGenerated are the sections that no generated config has, whatever the talconfig says: only patches make them.
// Source: machinery config/generate; docs/talconfig.md.
var neverGenerated = [][]string{
	{"machine", "time"}, {"machine", "logging"}, {"machine", "udev"}, {"machine", "seccompProfiles"},
	{"machine", "systemDiskEncryption"},
	{"machine", "sysfs"}, {"cluster", "externalCloudProvider"}, {"cluster", "adminKubeconfig"},
}

// generatedKinds are the kinds of documents that a talconfig's own settings make, and those that Talos' generator makes
// by itself from contract 1.14 on.
var generatedKinds = []string{
	"BondConfig", "BridgeConfig", "DHCPv4Config", "DHCPv6Config", "DummyLinkConfig", "ExtensionServiceConfig",
	"HCloudVIPConfig", "HostnameConfig",
	"KubeSpanConfig", "Layer2VIPConfig", "LinkAliasConfig", "LinkConfig", "NetworkDefaultActionConfig",
	"NetworkRuleConfig", "ResolverConfig",
	"UserVolumeConfig", "VLANConfig", "VRFConfig", "VolumeConfig", "WireguardConfig",

	"DiscoveryIdentityConfig", "DiscoveryServiceConfig", "FilesystemTrimConfig", "SecurityProfileConfig",
	"UnattendedInstallConfig",
	"KubeAPIServerCAConfig", "KubeAPIServerConfig", "KubeAdmissionControlConfig", "KubeAggregatorCAConfig",
	"KubeAuditPolicyConfig", "KubeAuthenticationConfig", "KubeAuthorizerConfig", "KubeClusterConfig",
	"KubeControllerManagerConfig", "KubeCoreDNSConfig", "KubeEtcdEncryptionConfig", "KubeFlannelCNIConfig",
	"KubeNetworkConfig", "KubeNodeConfig", "KubePrismConfig", "KubeProxyConfig", "KubeSchedulerConfig",
	"KubeServiceAccountConfig", "KubeletConfig",
}

// checkDeletions looks for deletions that can match nothing: of keys that Talos does not have, and of what neither a
// talconfig nor another patch makes.
func checkDeletions(r *check.Report, in *check.Input) {
	if in.Release() == nil {
		return
	}

	var made *patchedKeys

	for _, patch := range in.Patches {
		if patch.Form() != check.StrategicPatch || !in.Used(patch) {
			continue
		}

		for _, root := range patch.File.Places.Roots() {
			for _, found := range check.Deletions(root) {
				if made == nil {
					made = findPatchedKeys(in)
				}

				if why := made.missing(found); why != "" {
					r.Found(patch.File.Node(found.At), "take the deletion out, or correct what it stands under", "%s deletes %s: %s",
						patch.Name(), what(found), why)
				}
			}
		}
	}
}

func what(d check.Deletion) string {
	if len(d.Path) > 0 {
		return strings.ReplaceAll(strings.Join(d.Path, "."), ".[]", "[]")
	}

	return documentLabel(d.Kind + "/" + d.Name)
}

// patchedKeys are what all patches set, without regard to nodes and order: what is not among them is surely not there.
type patchedKeys struct {
	paths     map[string]bool
	documents map[string]bool
	// unknown is set when a patch can't be looked into: then anything may be there.
	unknown bool
}

func findPatchedKeys(in *check.Input) *patchedKeys {
	// What a profile makes is not looked into here.
	found := &patchedKeys{paths: map[string]bool{}, documents: map[string]bool{}, unknown: in.Cluster.Profile != nil}

	for _, patch := range in.Patches {
		switch patch.Form() {
		case check.StrategicPatch:
			for _, root := range patch.File.Places.Roots() {
				found.add(root)
			}
		case check.EmptyPatch:
		default:
			found.unknown = true
		}
	}

	return found
}

func (k *patchedKeys) add(root *yaml.Node) {
	if check.DeletesWhole(root) {
		return
	}

	kind, _, named := strings.Cut(check.DocumentID(root), "/")
	k.documents[check.DocumentID(root)] = true
	k.documents[kind] = k.documents[kind] || named

	if kind != "" || root.Kind != yaml.MappingNode {
		return
	}

	// Two levels are what neverGenerated has.
	for i := 0; i+1 < len(root.Content); i += 2 {
		section := root.Content[i+1]

		for j := 0; j+1 < len(section.Content) && section.Kind == yaml.MappingNode; j += 2 {
			if value := section.Content[j+1]; !onlyDeletes(value) {
				k.paths[root.Content[i].Value+"."+section.Content[j].Value] = true
			}
		}
	}
}

// onlyDeletes reports whether a part of a patch sets nothing.
func onlyDeletes(node *yaml.Node) bool {
	if node.Kind != yaml.MappingNode || len(node.Content) == 0 {
		return false
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		if isMark := node.Content[i].Value == "$patch"; !isMark && !onlyDeletes(node.Content[i+1]) {
			return false
		}
	}

	return true
}

// missing says why a deletion can match nothing; empty if it may.
func (k *patchedKeys) missing(d check.Deletion) string {
	switch {
	case !machineconfig.KnowsKey(d.Kind, d.Path):
		return "Talos knows no such thing"
	case k.unknown:
		return ""
	case d.Kind != "":
		if !slices.Contains(generatedKinds, d.Kind) && !k.documents[d.Kind+"/"+d.Name] {
			return "neither the inventory nor another patch makes such a document"
		}

		return ""
	}

	for _, section := range neverGenerated {
		// Deleting the section itself is no mistake for Talos, only what is below it.
		if len(d.Path) > len(section) && slices.Equal(d.Path[:len(section)], section) &&
			!k.paths[strings.Join(section, ".")] {
			return "neither the inventory nor another patch makes " + strings.Join(section, ".")
		}
	}

	return ""
}
