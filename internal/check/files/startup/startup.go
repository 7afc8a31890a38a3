// Package startup holds the checks of what a node starts with: its files, mounts, labels and taints, the arguments of
// its components, and the manifests that control planes apply.
package startup

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return []check.Check{
		check.EachConfig(diagnosis.MachineFileRefused, check.Startup, checkFiles),
		check.Whole(diagnosis.ManifestUnusable, check.Startup, diagnosis.NeedsConfig, checkInlineManifests),
		check.EachConfig(diagnosis.ArgumentRefused, check.Startup, checkArguments),
		check.EachConfig(diagnosis.ArgumentUndoes, check.Startup, checkUndoneSettings),
		check.EachConfig(diagnosis.RegistrationRefused, check.Startup, checkRegistration),
		check.EachConfig(diagnosis.WorkerTaints, check.Startup, checkWorkerTaints),
		check.EachConfig(diagnosis.MountSourceImpossible, check.Startup, checkMounts),
	}
}

// operations are what Talos does with a file.
var operations = []string{"create", "append", "overwrite"}

// checkFiles looks for files that Talos does not write.
func checkFiles(r *check.Report, config *check.Rendered) {
	for i, file := range config.Files() {
		if file == nil {
			continue
		}

		place := config.At("machine.files").Item(i)

		switch {
		case !slices.Contains(operations, file.FileOp):
			near := cmp.Or(suggest.Word(file.FileOp, operations), "one of them")
			r.Found(place.Field("op"), "write "+near, "the op of %s is %q, and Talos knows only %s", file.FilePath, file.FileOp,
				strings.Join(operations, ", "))
		case file.FileOp == "create" && !canBeCreated(file.FilePath):
			r.Found(place.Field("path"), "put it below /var, or write `op: overwrite` for a file that Talos has",
				"%s is to be created, and that is possible below /var only", file.FilePath)
		}
	}
}

// canBeCreated reports whether Talos creates a file at a path. Static pods and containerd's configuration have places
// of their own.
func canBeCreated(file string) bool {
	return isIn(file, "var") || path.Dir(file) == constants.ManifestsDirectory ||
		file == "/etc/"+constants.CRICustomizationConfigPart
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
