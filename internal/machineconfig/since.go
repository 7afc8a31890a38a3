package machineconfig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config"
	documentconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/yamltree"
)

// NewerKey is a key, or a kind of document, that a Talos version does not know yet.
type NewerKey struct {
	// Name is the key's path, or "kind: <the document's>".
	Name         string
	Line, Column int
	// Since is the first version that knows it.
	Since *config.VersionContract
}

// keySince is the first Talos 1.x release that knows a key: of the document without a kind, or of the kind before the
// slash. What is below a key is as old as the key. From the yaml tags in machinery's config/types: v1.5.0 to v1.10.0,
// v1.11.6, v1.12.6, v1.13.9 and v1.14.1.
var keySince = map[string]int{
	"/cluster.network.cni.flannel": 6, "/cluster.scheduler.config": 6, "/machine.kubelet.credentialProviderConfig": 6,
	"/machine.network.kubespan.harvestExtraEndpoints": 6, "/machine.nodeTaints": 6,

	"/cluster.acceptedCAs": 7, "/machine.acceptedCAs": 7, "/machine.features.hostDNS": 7,
	"/machine.logging.destinations[].extraTags":                     7,
	"/machine.network.interfaces[].bond.deviceSelectors[].physical": 7,
	"/machine.network.interfaces[].deviceSelector.physical":         7,

	"/machine.network.interfaces[].bridge.vlan": 8, "/machine.nodeAnnotations": 8,
	"/machine.systemDiskEncryption.ephemeral.keys[].tpm.checkSecurebootStatusOnEnroll": 8,
	"/machine.systemDiskEncryption.state.keys[].tpm.checkSecurebootStatusOnEnroll":     8,

	"/cluster.apiServer.authorizationConfig": 9, "/machine.baseRuntimeSpecOverrides": 9, "/machine.features.imageCache": 9,
	"/machine.features.nodeAddressSortAlgorithm":                         9,
	"/machine.network.interfaces[].bond.deviceSelectors[].permanentAddr": 9,
	"/machine.network.interfaces[].bridgePort":                           9,
	"/machine.network.interfaces[].deviceSelector.permanentAddr":         9,
	"/machine.network.searchDomains":                                     9,
	"/machine.registries.mirrors.*.skipFallback":                         9,

	"SideroLinkConfig/uniqueToken": 10,

	"UserVolumeConfig/encryption.keys[].lockToState": 11, "UserVolumeConfig/filesystem.projectQuotaSupport": 11,
	"VolumeConfig/encryption": 11,

	"/machine.install.grubUseUKICmdline": 12, "/machine.network.kubespan.filters.excludeAdvertisedNetworks": 12,
	"EthernetConfig/wakeOnLan":                      12,
	"RawVolumeConfig/encryption.keys[].tpm.options": 12, "SwapVolumeConfig/encryption.keys[].tpm.options": 12,
	"UserVolumeConfig/encryption.keys[].tpm.options": 12, "VolumeConfig/encryption.keys[].tpm.options": 12,
	"UserVolumeConfig/volumeType": 12,

	"/cluster.network.cni.flannel.kubeNetworkPoliciesEnabled": 13, "ExistingVolumeConfig/mount.disableAccessTime": 13,
	"ExistingVolumeConfig/mount.secure": 13, "OOMConfig/strictCgroupClassOrdering": 13, "UserVolumeConfig/mount": 13,
	"VolumeConfig/mount": 13,

	"DHCPv4Config/ignoreRoutes": 14, "ExistingVolumeConfig/scrub": 14, "ExistingVolumeConfig/trim": 14,
	"RawVolumeConfig/encryption.allowDiscards": 14,
	"ResolverConfig/hostDNS":                   14, "ResolverConfig/nameservers[].protocol": 14,
	"ResolverConfig/nameservers[].tlsServerName": 14, "SwapVolumeConfig/encryption.allowDiscards": 14,
	"TimeSyncConfig/ntp.useNTS": 14, "UserVolumeConfig/encryption.allowDiscards": 14,
	"UserVolumeConfig/filesystem.xfs": 14, "UserVolumeConfig/scrub": 14, "UserVolumeConfig/trim": 14,
	"VolumeConfig/encryption.allowDiscards": 14, "VolumeConfig/filesystem": 14,
	"VolumeConfig/mount.disableAccessTime": 14, "VolumeConfig/scrub": 14, "VolumeConfig/trim": 14,
}

// keyTree is keySince by steps: a key, "[]" for the items of a list, "*" for any key.
type keyTree struct {
	since    int
	children map[string]*keyTree
}

var keyTrees = sync.OnceValue(func() map[string]*keyTree {
	trees := map[string]*keyTree{}

	for path, since := range keySince {
		kind, keys, _ := strings.Cut(path, "/")
		if trees[kind] == nil {
			trees[kind] = &keyTree{}
		}

		at := trees[kind]

		for step := range strings.SplitSeq(strings.ReplaceAll(keys, "[]", ".[]"), ".") {
			if at.children == nil {
				at.children = map[string]*keyTree{}
			}

			if at.children[step] == nil {
				at.children[step] = &keyTree{}
			}

			at = at.children[step]
		}

		at.since = since
	}

	return trees
})

// NewerKeys lists what a document of a machine config or of a patch has that is newer than a Talos version, in the
// order of their lines. Below a kind or a key that is newer nothing more is listed. A nil version knows all.
func NewerKeys(document *yaml.Node, version *config.VersionContract) []NewerKey {
	if document == nil || document.Kind != yaml.MappingNode || version == nil {
		return nil
	}

	known := func(minor int) bool { return !(&config.VersionContract{Major: 1, Minor: minor}).Greater(version) }

	kind := yamltree.FieldText(document, "kind")
	if since := kindSince[kind]; !known(since) {
		key, _ := child(document, "kind")

		return []NewerKey{{Name: "kind: " + kind, Line: key.Line, Column: key.Column,
			Since: &config.VersionContract{Major: 1, Minor: since}}}
	}

	var newer []NewerKey

	var visit func(*yaml.Node, *keyTree, string)

	visit = func(node *yaml.Node, at *keyTree, path string) {
		for i, content := range node.Content {
			var (
				below *keyTree
				name  = path + "[]"
				value = content
			)

			switch {
			case node.Kind == yaml.SequenceNode:
				below = at.children["[]"]
			case node.Kind == yaml.MappingNode && i%2 == 0:
				below, name, value = cmp.Or(at.children[content.Value], at.children["*"]),
					strings.TrimPrefix(path+"."+content.Value, "."), node.Content[i+1]
			}

			switch {
			case below == nil:
			case !known(below.since):
				newer = append(newer, NewerKey{
					Name: name, Line: content.Line, Column: content.Column,
					Since: &config.VersionContract{Major: 1, Minor: below.since},
				})
			default:
				visit(value, below, name)
			}
		}
	}

	if tree := keyTrees()[kind]; tree != nil {
		visit(document, tree, "")
	}

	slices.SortStableFunc(newer, func(a, b NewerKey) int { return cmp.Compare(a.Line, b.Line) })

	return newer
}

// IsForControlPlanes reports whether Talos takes a kind of document on control planes alone.
func IsForControlPlanes(kind string) bool { return slices.Contains(forControlPlanes(), kind) }

// forControlPlanes are the kinds of such documents, as machinery marks them.
var forControlPlanes = sync.OnceValue(func() []string {
	return slices.DeleteFunc(Kinds(), func(kind string) bool {
		loaded, err := configloader.NewFromBytes(fmt.Appendf(nil, "apiVersion: v1alpha1\nkind: %s\n", kind))
		if err != nil {
			return true
		}

		return !slices.ContainsFunc(loaded.Documents(), func(document documentconfig.Document) bool {
			_, isForControlPlanes := document.(container.ControlplaneOnlyConfig)

			return isForControlPlanes
		})
	})
})

// Kinds are the kinds of documents that machinery knows, in alphabetical order.
func Kinds() []string {
	return slices.Sorted(maps.Keys(kindSince))
}
