package documents

import (
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// checkControlPlaneKinds looks for documents of workers that only control planes may have.
func checkControlPlaneKinds(r *check.Report, rendered *check.Rendered) {
	if check.IsControlPlane(rendered) {
		return
	}

	for _, document := range rendered.Provider.Documents() {
		if !machineconfig.IsForControlPlanes(document.Kind()) {
			continue
		}

		name := document.Kind()
		if named, isNamed := document.(config.NamedDocument); isNamed {
			name = check.DocumentName(named)
		}

		r.Found(rendered.File.In(name, "kind"), "take it out of the configs of workers",
			"%s is a worker, and %s is for control planes alone", rendered.Name, document.Kind())
	}
}

// checkControlPlaneKindsOfPatches looks for patches that bring such documents to workers.
func checkControlPlaneKindsOfPatches(r *check.Report, in *check.Input) {
	for _, patch := range in.Patches {
		if patch.Form() != check.StrategicPatch {
			continue
		}

		workers := workersOf(in, patch)
		if len(workers) == 0 {
			continue
		}

		for _, root := range patch.File.Places.Roots() {
			if kind := kindOf(root); machineconfig.IsForControlPlanes(kind) && !check.DeletesWhole(root) {
				r.Found(patch.File.Node(root), "list the patch in controlPlane.patches, or for control planes themselves",
					"%s has a %s, which only control planes may have, and it is for %s", patch.Name(), kind,
					check.NodeList(workers))
			}
		}
	}
}

// workersOf are the workers that get a patch.
func workersOf(in *check.Input, patch *check.Patch) []string {
	var names []string

	for _, use := range patch.Uses() {
		for _, node := range in.NodesOf(use) {
			if node.Role != inventory.ControlPlane {
				names = append(names, node.Name)
			}
		}
	}

	return check.Unique(names)
}

func kindOf(root *yaml.Node) string {
	if kind := machineconfig.Field(root, "kind"); kind != nil {
		return strings.TrimSpace(kind.Value)
	}

	return ""
}
