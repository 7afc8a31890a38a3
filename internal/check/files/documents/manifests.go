package documents

import (
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
)

// checkManifests looks for documents of extraManifests that a node's config has from elsewhere.
func checkManifests(r *check.Report, in *check.Input) {
	told := map[string]bool{}

	for _, node := range in.Cluster.Nodes {
		settings, known := in.SettingsOf(node)
		if !known || len(settings.ExtraManifests) == 0 {
			continue
		}

		from := documentsBefore(in, node, settings)

		for _, manifest := range manifestsOf(in, settings) {
			for _, root := range manifest.File.Places.Roots() {
				id := check.DocumentID(root)
				key := manifest.File.Path + "\x00" + id

				if root.Kind != yaml.MappingNode || strings.HasPrefix(id, "/") {
					continue
				}

				if place := from[id]; place != "" && !told[key] {
					told[key] = true
					r.Found(manifest.File.Node(root), "make it a patch, which is merged, or drop one of the two",
						"%s is there for %s already, from %s: Talos refuses duplicates", documentLabel(id), node.Name, place)
				}

				from[id] = manifest.File.Location(root.Line, root.Column).String()
			}
		}
	}
}

// documentsBefore are the documents that a node's config has before extraManifests are added, with what they come from,
// in words.
func documentsBefore(in *check.Input, node *inventory.Node, settings talconfig.NodeSettings) map[string]string {
	from := declaredDocuments(in, settings)

	for _, patch := range in.Patches {
		if patch.Form() != check.StrategicPatch || !slices.ContainsFunc(patch.Uses(),
			func(use check.PatchUse) bool { return slices.Contains(in.NodesOf(use), node) }) {
			continue
		}

		for _, root := range patch.File.Places.Roots() {
			if id := check.DocumentID(root); !strings.HasPrefix(id, "/") && len(check.Deletions(root)) == 0 && from[id] == "" {
				from[id] = "the patch " + patch.File.Location(root.Line, root.Column).String()
			}
		}
	}

	return from
}

// manifestsOf are the files of extraManifests that a node gets, in the order in which they are added.
func manifestsOf(in *check.Input, settings talconfig.NodeSettings) []*check.Patch {
	var found []*check.Patch

	for _, item := range settings.ExtraManifests {
		name, _ := check.FileReference(item)

		i := slices.IndexFunc(in.Manifests, func(manifest *check.Patch) bool {
			return !manifest.Inline && (manifest.File.Path == name ||
				manifest.File.Path == filepath.Join(in.Options.TalosDir, name))
		})
		if i >= 0 && in.Manifests[i].Form() == check.StrategicPatch {
			found = append(found, in.Manifests[i])
		}
	}

	return found
}

// declaredDocuments are the documents that the talconfig's own settings surely make, with the settings that make them.
func declaredDocuments(in *check.Input, settings talconfig.NodeSettings) map[string]string {
	from := map[string]string{}

	if contract := in.Contract(); contract != nil && contract.MultidocNetworkConfigSupported() {
		from["HostnameConfig/"] = "the hostname"
	}

	for _, volume := range settings.Volumes {
		from["VolumeConfig/"+volume.Name] = "volumes"
	}

	for _, volume := range settings.UserVolumes {
		from["UserVolumeConfig/"+volume.Name] = "userVolumes"
	}

	for _, service := range settings.ExtensionServices {
		from["ExtensionServiceConfig/"+service.Name] = "extensionServices"
	}

	if settings.IngressFirewall != nil {
		from["NetworkDefaultActionConfig/"] = "ingressFirewall"

		for _, rule := range settings.IngressFirewall.Rules {
			from["NetworkRuleConfig/"+rule.Name] = "ingressFirewall"
		}
	}

	return from
}
