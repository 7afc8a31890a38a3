package documents

import (
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/machineconfig/successor"
)

// toldElsewhere are kinds of documents whose conflicts with older fields are other checks', or told below.
var toldElsewhere = []string{"HostnameConfig", "VolumeConfig"}

// checkDocumentConflicts looks for fields of the older form beside the documents that replace them, where Talos refuses
// both.
func checkDocumentConflicts(r *check.Report, config *check.Rendered) {
	for _, document := range config.Provider.Documents() {
		if config.Conflicts(document) && !slices.Contains(toldElsewhere, document.Kind()) {
			tellConflict(r, config, document.Kind())
		}
	}

	checkEncryptionConflicts(r, config)
	checkRegistryConflicts(r, config)
}

// tellConflict names the fields that say what a document of a kind says.
func tellConflict(r *check.Report, config *check.Rendered, kind string) {
	for _, root := range config.File.Places.Roots() {
		for _, field := range successor.Find(root) {
			if field.Kind == kind && saysSomething(field.Value) {
				r.Found(config.File.Node(field.At), "take the field out",
					"%s says what the document %s says, at %s: Talos refuses both",
					field.Name(), kind, r.In.Locate(config.File.In(kind, "")))
			}
		}
	}
}

// saysSomething reports whether a value is more than what counts without it.
func saysSomething(value *yaml.Node) bool {
	switch value.Kind {
	case yaml.ScalarNode:
		return value.Tag != "!!null" && value.Value != "" && value.Value != "false"
	default:
		return len(value.Content) > 0
	}
}

// checkEncryptionConflicts looks for volumes whose encryption is declared twice.
func checkEncryptionConflicts(r *check.Report, config *check.Rendered) {
	for _, name := range []string{constants.StatePartitionLabel, constants.EphemeralPartitionLabel} {
		volume, declared := config.Provider.Volumes().ByName(name)

		if declared && volume.Encryption() != nil && config.OlderEncryption(name) != nil {
			r.Found(config.File.At("machine.systemDiskEncryption."+strings.ToLower(name)), "take the field out",
				"the encryption of %s is declared here and in a VolumeConfig, at %s: Talos refuses both", name,
				r.In.Locate(config.File.In("VolumeConfig/"+name, "encryption")))
		}
	}
}

// checkRegistryConflicts looks for registries that are declared twice, of which Talos takes the document without a
// word.
func checkRegistryConflicts(r *check.Report, config *check.Rendered) {
	registries := config.Registries()

	for _, document := range config.Provider.Documents() {
		name := ""
		if named, isNamed := document.(interface{ Name() string }); isNamed {
			name = named.Name()
		}

		access := registries.RegistryConfig[name]
		field := ""

		switch kind := document.Kind(); {
		case kind == "RegistryMirrorConfig" && registries.RegistryMirrors[name] != nil:
			field = "machine.registries.mirrors"
		case kind == "RegistryAuthConfig" && access != nil && access.RegistryAuth != nil,
			kind == "RegistryTLSConfig" && access != nil && access.RegistryTLS != nil:
			field = "machine.registries.config"
		}

		if field != "" {
			r.Warn(config.File.At(field), "keep one of the two",
				"%s declares %s, and so does the document %s, at %s, which goes before it", field, name,
				document.Kind(), r.In.Locate(config.File.In(document.Kind()+"/"+name, "")))
		}
	}
}
