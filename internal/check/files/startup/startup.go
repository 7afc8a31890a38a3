// Package startup holds the checks of what a node starts with: its files, mounts, labels and taints, the arguments of
// its components, and the manifests that control planes apply.
package startup

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return []check.Check{
		check.EachConfig(diagnosis.FileOutsideVar, check.Startup, checkCreatedFiles),
		check.Whole(diagnosis.ManifestUnusable, check.Startup, diagnosis.NeedsConfig, checkInlineManifests),
		check.EachConfig(diagnosis.ArgumentRefused, check.Startup, checkArguments),
		check.EachConfig(diagnosis.ArgumentUndoes, check.Startup, checkUndoneSettings),
		check.EachConfig(diagnosis.RegistrationRefused, check.Startup, checkRegistration),
		check.EachConfig(diagnosis.WorkerTaints, check.Startup, checkWorkerTaints),
		check.EachConfig(diagnosis.MountSourceImpossible, check.Startup, checkMounts),
	}
}

// checkCreatedFiles looks for files that Talos can't create. Static pods and containerd's configuration have places of
// their own.
func checkCreatedFiles(r *check.Report, config *check.Rendered) {
	for i, file := range config.Files() {
		if file == nil || file.FileOp != "create" || file.FilePath == "/etc/"+constants.CRICustomizationConfigPart ||
			path.Dir(file.FilePath) == constants.ManifestsDirectory || isIn(file.FilePath, "var") {
			continue
		}

		r.Found(config.At("machine.files").Item(i).Field("path"),
			"put it below /var, or write `op: overwrite` for a file that Talos has",
			"%s is to be created, and that is possible below /var only", file.FilePath)
	}
}

// isIn reports whether a path begins with one of these folders.
func isIn(file string, folders ...string) bool {
	first, _, _ := strings.Cut(strings.TrimLeft(file, "/"), "/")

	return slices.Contains(folders, first)
}

// checkMounts looks for mounts into the kubelet whose source is not there and can't be made: Talos makes missing
// folders, and can do so in few places.
func checkMounts(r *check.Report, config *check.Rendered) {
	for i, mount := range config.Kubelet().ExtraMounts() {
		source := path.Clean(mount.Source)

		// What an image or an extension has at other places is not known.
		if mount.Type != "bind" || !path.IsAbs(source) || source == "/mnt" ||
			isIn(source, "var", "run", "tmp", "dev", "sys", "proc", "opt", "etc", "usr", "lib", "lib64", "bin", "sbin", "boot",
				"system", "") {
			continue
		}

		r.Found(config.At("machine.kubelet.extraMounts").Item(i).Field("source"),
			"take a folder below /var; a user volume is mounted at "+constants.UserVolumeMountPoint+"/<name>",
			"the source %s does not exist, and can't be made: nothing outside of /var is writable", source)
	}
}

// checkInlineManifests looks for texts that are no objects of Kubernetes, once each.
func checkInlineManifests(r *check.Report, in *check.Input) {
	told := map[string]bool{}

	for _, config := range in.Configs {
		if check.IsWorker(config) {
			continue
		}

		r.Config = config

		for _, manifest := range config.InlineManifests() {
			why := unusableManifest(manifest.Text)
			if why == "" || told[manifest.Name+why] {
				continue
			}

			told[manifest.Name+why] = true
			r.Found(config.File.In(manifest.Document, manifest.Key).Masked(), "correct the manifest",
				"the inline manifest %s %s", manifest.Name, why)
		}
	}
}

// unusableManifest says why Talos can't read a text as objects, or the API server refuses one; empty if neither is so.
func unusableManifest(text string) string {
	places := machineconfig.NewPlaces([]byte(text))
	if line, _, message := places.SyntaxError(); message != "" {
		return fmt.Sprintf("is not valid YAML: %s (line %d of it)", message, line)
	}

	for _, root := range places.Roots() {
		if why := unusableObject(root); why != "" {
			return fmt.Sprintf("%s (line %d of it)", why, root.Line)
		}
	}

	return ""
}

func unusableObject(root *yaml.Node) string {
	value := func(key string) string {
		if field := machineconfig.Field(root, key); field != nil {
			return field.Value
		}

		return ""
	}

	switch {
	case root.Kind == yaml.ScalarNode && root.Tag == "!!null", root.Kind == yaml.MappingNode && len(root.Content) == 0:
		return ""
	case root.Kind != yaml.MappingNode:
		return "is no object of Kubernetes"
	case value("kind") == "":
		return "has an object without kind"
	case value("apiVersion") == "":
		return "has an object without apiVersion"
	case machineconfig.Field(root, "items") != nil:
		return ""
	case nameOf(root) == "":
		return "has an object without metadata.name"
	default:
		return ""
	}
}

func nameOf(root *yaml.Node) string {
	metadata := machineconfig.Field(root, "metadata")
	for _, key := range []string{"name", "generateName"} {
		if name := machineconfig.Field(metadata, key); name != nil && name.Value != "" {
			return name.Value
		}
	}

	return ""
}
