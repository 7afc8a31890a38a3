package documents

import (
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/check"
)

// sameThing is an older field and the kind of document that has its meaning now.
type sameThing struct {
	field, kind string
	// set reports whether the field says anything, as Talos judges it.
	set func(*check.Rendered) bool
}

// sameThings are those that Talos refuses to have both of.
// Source: machinery config/types/network/resolver.go, time_sync.go, kubespan.go (V1Alpha1ConflictValidate).
var sameThings = []sameThing{
	{"machine.network.nameservers", "ResolverConfig",
		func(c *check.Rendered) bool { return c.Provider.RawV1Alpha1().Resolvers() != nil }},
	{"machine.network.searchDomains", "ResolverConfig",
		func(c *check.Rendered) bool { return c.Provider.RawV1Alpha1().SearchDomains().IsPresent() }},
	{"machine.network.disableSearchDomain", "ResolverConfig",
		func(c *check.Rendered) bool { return c.Provider.RawV1Alpha1().DisableSearchDomain() }},
	{"machine.time.disabled", "TimeSyncConfig", ofTime(config.NetworkTimeSyncConfig.Disabled)},
	{"machine.time.servers", "TimeSyncConfig",
		ofTime(func(sync config.NetworkTimeSyncConfig) bool { return len(sync.Servers()) > 0 })},
	{"machine.time.bootTimeout", "TimeSyncConfig",
		ofTime(func(sync config.NetworkTimeSyncConfig) bool { return sync.BootTimeout() != 0 })},
	{"machine.network.kubespan", "KubeSpanConfig",
		func(c *check.Rendered) bool { return c.Provider.RawV1Alpha1().NetworkKubeSpanConfig() != nil }},
}

func ofTime(set func(config.NetworkTimeSyncConfig) bool) func(*check.Rendered) bool {
	return func(c *check.Rendered) bool {
		sync := c.Provider.RawV1Alpha1().NetworkTimeSyncConfig()

		return sync != nil && set(sync)
	}
}

func checkDocumentConflicts(r *check.Report, config *check.Rendered) {
	documents := map[string]bool{}

	for _, document := range config.Provider.Documents() {
		documents[document.Kind()] = true
	}

	for _, same := range sameThings {
		if documents[same.kind] && same.set(config) {
			r.Found(config.File.At(same.field), "take the field out",
				"%s says what the document %s says, at %s: Talos refuses both",
				same.field, same.kind, r.In.Locate(config.File.In(same.kind, "")))
		}
	}

	if documents["VolumeConfig"] {
		checkEncryptionConflicts(r, config)
	}

	if documents["RegistryMirrorConfig"] || documents["RegistryAuthConfig"] || documents["RegistryTLSConfig"] {
		checkRegistryConflicts(r, config)
	}
}

// checkEncryptionConflicts looks for volumes whose encryption is declared twice.
func checkEncryptionConflicts(r *check.Report, config *check.Rendered) {
	for _, name := range []string{constants.StatePartitionLabel, constants.EphemeralPartitionLabel} {
		volume, declared := config.Provider.Volumes().ByName(name)

		if declared && volume.Encryption() != nil && config.Provider.Machine().SystemDiskEncryption().Get(name) != nil {
			r.Found(config.File.At("machine.systemDiskEncryption."+strings.ToLower(name)), "take the field out",
				"the encryption of %s is declared here and in a VolumeConfig, at %s: Talos refuses both", name,
				r.In.Locate(config.File.In("VolumeConfig/"+name, "encryption")))
		}
	}
}

// checkRegistryConflicts looks for registries that are declared twice, of which Talos takes the document without a
// word.
func checkRegistryConflicts(r *check.Report, config *check.Rendered) {
	registries := config.Provider.RawV1Alpha1().MachineConfig.MachineRegistries //nolint:staticcheck // old files have it

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
