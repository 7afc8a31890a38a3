// Package images holds the checks of installer images, and of what they are made from. What only a machine knows, as
// how it booted, is for package nodes.
package images

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/talos-mage/talos-mage/internal/check"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return []check.Check{
		check.EachConfig(diagnosis.KernelArgsRefused, check.Images, checkKernelArgs),
		check.Whole(diagnosis.KernelArgsRefused, check.Images, diagnosis.NeedsTalconfig, checkPatchedKernelArgs),
		check.EachConfig(diagnosis.KernelArgsSecureBoot, check.Images, checkSecureBootArgs),
		check.Whole(diagnosis.SchematicDiffers, check.Images, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig,
			checkSchematicOfImage),
		check.Whole(diagnosis.SecureBootDeclared, check.Images, diagnosis.NeedsTalconfig, checkDeclaredSecureBoot),
		check.EachConfig(diagnosis.TPMWithoutSecureBoot, check.Images, checkTPMKeys),
		check.Whole(diagnosis.InstallerReference, check.Images, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig,
			checkReferences),
		check.Whole(diagnosis.InstallerReference, check.Images, diagnosis.NeedsTalconfig, checkDeclaredImages),
		check.Whole(diagnosis.SchematicUnused, check.Images, diagnosis.NeedsTalconfig, checkUnusedSchematics),
		check.Whole(diagnosis.ExtensionName, check.Images, diagnosis.NeedsTalconfig, checkExtensionNames),
		check.Whole(diagnosis.ExtensionsContradict, check.Images, diagnosis.NeedsTalconfig, checkContradictions),
		check.Whole(diagnosis.ExtensionService, check.Images, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig,
			checkExtensionServices),
		check.Whole(diagnosis.InstallerPlatform, check.Images, diagnosis.NeedsTalconfig, checkPlatforms),
		check.Whole(diagnosis.SchematicTooNew, check.Images, diagnosis.NeedsTalconfig, checkSchematicVersions),
		check.Whole(diagnosis.ModuleWithoutImage, check.Images, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig, checkModules),
		check.EachConfig(diagnosis.InstallExtensions, check.Images, checkInstallExtensions),
		check.Whole(diagnosis.RenovateInstaller, check.Images, diagnosis.NeedsTalconfig, checkRenovate),
		check.Whole(diagnosis.KernelArgsIdle, check.Images, diagnosis.NeedsTalconfig, checkIdleArgs),
		check.Whole(diagnosis.InstallerVersion, check.Versions, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig,
			checkInstallerTags),
	}
}

// checkKernelArgs looks for arguments in the config of a node that takes them from its image.
func checkKernelArgs(r *check.Report, config *check.Rendered) {
	args := config.ExtraKernelArgs()
	if len(args) == 0 || !config.UsesUKICmdline() {
		return
	}

	severity := diagnosis.Failure

	// Machines that don't install themselves take the config, and are refused an upgrade only.
	if platform := schematic.ParseReference(config.InstallImage()).Platform(); platform != "" &&
		platform != schematic.DefaultPlatform || bootsInstalled(r.In, config) {
		severity = diagnosis.Warning
	}

	r.Add(severity, config.InstallPlace("extraKernelArgs"), intoSchematic(r.In, config, args),
		"install.extraKernelArgs (%s) and install.grubUseUKICmdline can't be used together", argNames(args))
}

// argNames are the arguments without their values, which may be secret.
func argNames(args []string) string {
	var names []string

	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		names = append(names, name)
	}

	return strings.Join(names, ", ")
}

// checkPatchedKernelArgs looks for arguments in patches of nodes that have no config yet: from 1.12 on it will take
// them from the image.
func checkPatchedKernelArgs(r *check.Report, in *check.Input) {
	contract := in.Contract()
	if contract == nil || !contract.GrubUseUKICmdlineDefault() || slices.ContainsFunc(in.Patches, setsUKICmdline) {
		return
	}

	for _, patch := range in.Patches {
		if patch.Form() != check.StrategicPatch {
			continue
		}

		var names []string

		severity := diagnosis.Warning

		for _, use := range patch.Uses() {
			for _, node := range in.NodesOf(use) {
				if in.ConfigOf(node) != nil || slices.Contains(names, node.Name) {
					continue
				}

				names = append(names, node.Name)

				if installsItself(in, node) {
					severity = diagnosis.Failure
				}
			}
		}

		for _, root := range patch.File.Places.Roots() {
			install := machineconfig.Field(machineconfig.Field(root, "machine"), "install")

			if args := machineconfig.Field(install, "extraKernelArgs"); len(names) > 0 && args != nil && len(args.Content) > 0 &&
				args.Kind == yaml.SequenceNode {
				r.Found(patch.File.Node(args),
					"put the arguments into the schematic's extraKernelArgs, and take them out of the patch",
					"%s sets install.extraKernelArgs for %s, and configs for Talos %s have install.grubUseUKICmdline: they can't "+
						"be used together",
					patch.Name(), check.NodeList(names), contract)
				r.Last().Severity = severity
			}
		}
	}
}

// setsUKICmdline reports whether a patch decides on grubUseUKICmdline itself, or may do so.
func setsUKICmdline(patch *check.Patch) bool {
	switch patch.Form() {
	case check.StrategicPatch:
		return slices.ContainsFunc(patch.File.Places.Roots(), func(root *yaml.Node) bool {
			install := machineconfig.Field(machineconfig.Field(root, "machine"), "install")

			return machineconfig.Field(install, "grubUseUKICmdline") != nil || len(check.Deletions(root)) > 0 && install != nil
		})
	case check.EmptyPatch:
		return false
	default:
		return true
	}
}

// checkInstallExtensions looks for extensions that are to be added by the installer.
func checkInstallExtensions(r *check.Report, config *check.Rendered) {
	if config.HasInstallExtensions() {
		r.Found(config.InstallPlace("extensions"),
			"put the extensions into the image's schematic, and take install.extensions out",
			"install.extensions is deprecated, and newer installers don't read it")
	}
}

// bootsInstalled reports whether the inventory declares machines that start from a disk image, as boards do: Talos is
// on them already.
func bootsInstalled(in *check.Input, config *check.Rendered) bool {
	return in.Cluster != nil && slices.ContainsFunc(config.Nodes,
		func(node *inventory.Node) bool { return !installsItself(in, node) })
}

// installsItself reports whether Talos has yet to be installed on a machine, as far as the inventory says.
func installsItself(in *check.Input, node *inventory.Node) bool {
	settings, _ := in.SettingsOf(node)
	spec := settings.MachineSpec

	return spec.BootMethod != "disk-image" && (spec.Mode == "" || spec.Mode == schematic.DefaultPlatform) &&
		(settings.Schematic == nil || settings.Schematic.Overlay.Name == "")
}

// intoSchematic says how arguments get into the image: with the id of the schematic that then results, where it is
// known what the image holds.
func intoSchematic(in *check.Input, config *check.Rendered, args []string) string {
	const general = "put the arguments into the schematic's extraKernelArgs, and take them out of machine.install"

	made := MadeOf(in, config)
	if made == nil {
		return general
	}

	changed := *made

	for _, arg := range args {
		if !slices.Contains(changed.Customization.ExtraKernelArgs, arg) {
			changed.Customization.ExtraKernelArgs = append(slices.Clone(changed.Customization.ExtraKernelArgs), arg)
		}
	}

	id, err := changed.ID()
	if err != nil {
		return general
	}

	return general + "; the schematic's id is then " + id
}

// MadeOf is what a node's installer image is made of; nil if its schematic's id is none that is known here.
func MadeOf(in *check.Input, config *check.Rendered) *schematic.Schematic {
	return schematicOf(in, config.InstallImage())
}

func schematicOf(in *check.Input, image string) *schematic.Schematic {
	switch reference := schematic.ParseReference(image); {
	case reference.Repository == officialInstaller:
		return &schematic.Schematic{}
	case reference.Schematic == "":
		return nil
	default:
		return check.Once(in, findKnown)[reference.Schematic]
	}
}

// known are the schematics whose ids are known here: those of the inventory, the empty one, and those with one
// official extension alone.
type known map[string]*schematic.Schematic

func findKnown(in *check.Input) known {
	known := known{}

	add := func(made *schematic.Schematic) {
		if id, err := made.ID(); err == nil {
			known[id] = made
		}
	}

	for id, made := range CommonSchematics() {
		known[id] = made
	}

	for _, declared := range check.Once(in, findSchematics) {
		add(declared.Schematic)
	}

	return known
}

// CommonSchematics are those that are told by their id without a factory, by id.
var CommonSchematics = sync.OnceValue(func() map[string]*schematic.Schematic {
	known := map[string]*schematic.Schematic{schematic.PlainID: {}}

	for name := range extensionSince {
		made := &schematic.Schematic{}
		made.Customization.SystemExtensions.OfficialExtensions = []string{Siderolabs + name}

		if id, err := made.ID(); err == nil {
			known[id] = made
		}
	}

	return known
})

// Siderolabs owns the official extensions.
const Siderolabs = "siderolabs/"

// checkSecureBootArgs looks for arguments that a SecureBoot image never takes from a config.
func checkSecureBootArgs(r *check.Report, config *check.Rendered) {
	args := config.ExtraKernelArgs()

	if len(args) > 0 && config.SecureBootImage() && !config.UsesUKICmdline() {
		r.Found(config.InstallPlace("extraKernelArgs"), intoSchematic(r.In, config, args),
			"install.extraKernelArgs (%s) will be ignored: %s is for SecureBoot", argNames(args), config.InstallImage())
	}
}

// checkSchematicOfImage compares each node's installer with what the inventory makes of its schematic or talosImageURL.
func checkSchematicOfImage(r *check.Report, in *check.Input) {
	for _, config := range in.Configs {
		settings, known := settings(in, config)
		image := schematic.ParseReference(config.InstallImage())

		if !known || !schematic.IsID(image.Schematic) || patchesImage(in, config) {
			continue
		}

		want, from := "", ""

		switch declared := schematic.ParseReference(settings.TalosImageURL); {
		case schematic.IsID(declared.Schematic):
			want, from = declared.Schematic, "the image"
		case settings.TalosImageURL == "" && settings.Schematic != nil:
			want, _ = settings.Schematic.ID()
			from = "the schematic"
		}

		if want != "" && want != image.Schematic {
			r.Config = config
			r.Found(config.InstallPlace("image"), machineconfig.HowToGenerate,
				"the installer image is of schematic %s, and %s in the inventory is %s", image.Schematic, from, want)
		}
	}
}

// settings are what the inventory declares for the machines that get a config.
func settings(in *check.Input, config *check.Rendered) (talconfig.NodeSettings, bool) {
	if in.Cluster == nil || len(config.Nodes) == 0 {
		return talconfig.NodeSettings{}, false
	}

	return in.SettingsOf(config.Nodes[0])
}

// patchesImage reports whether a patch for the node names an image of its own, or may do so.
func patchesImage(in *check.Input, config *check.Rendered) bool {
	return slices.ContainsFunc(check.Once(in, findImagePatches), func(patch *check.Patch) bool {
		return slices.ContainsFunc(patch.Uses(),
			func(use check.PatchUse) bool { return slices.Contains(in.NodesOf(use), config.Nodes[0]) })
	})
}

// imagePatches are the patches that name an installer image, or that can't be looked into.
type imagePatches []*check.Patch

func findImagePatches(in *check.Input) imagePatches {
	return slices.DeleteFunc(slices.Clone(in.Patches), func(patch *check.Patch) bool {
		switch patch.Form() {
		case check.StrategicPatch:
			return !slices.ContainsFunc(patch.File.Places.Roots(), func(root *yaml.Node) bool {
				return machineconfig.Field(machineconfig.Field(machineconfig.Field(root, "machine"), "install"), "image") != nil
			})
		case check.EmptyPatch:
			return true
		default:
			return false
		}
	})
}

// installer is the installer image of a declared node: the one that its machine config names, or its talosImageURL
// where there is no config.
type installer struct {
	node     *inventory.Node
	settings talconfig.NodeSettings
	text     string
	image    schematic.Reference
	place    check.Place
}

// eachInstaller visits the installers of the nodes whose settings are known.
func eachInstaller(r *check.Report, in *check.Input, visit func(installer)) {
	for _, node := range in.Cluster.Nodes {
		settings, known := in.SettingsOf(node)
		if !known {
			continue
		}

		found := installer{node: node, settings: settings, text: settings.TalosImageURL, place: imagePlace(in, node)}

		r.Config = in.ConfigOf(node)
		if r.Config != nil {
			found.text, found.place = r.Config.InstallImage(), r.Config.InstallPlace("image")
		}

		found.image = schematic.ParseReference(found.text)
		visit(found)
	}
}

// checkDeclaredSecureBoot compares machineSpec.secureboot with the installer that the node's config names, or its
// talosImageURL where there is no config.
func checkDeclaredSecureBoot(r *check.Report, in *check.Input) {
	eachInstaller(r, in, func(its installer) {
		switch spec := its.settings.MachineSpec; {
		case its.text == "" || !its.image.Official() || ownNames(in):
		case spec.SecureBoot && !its.image.SecureBoot():
			r.Found(its.place, "use the -secureboot installer of the same schematic",
				"%s is declared with SecureBoot, and its installer %s is not for it: it would not boot again", its.node.Name,
				its.text)
		case !spec.SecureBoot && its.image.SecureBoot() && spec != talconfig.MachineSpec{}:
			r.Warn(its.place, "set machineSpec.secureboot: true, or use the ordinary installer",
				"the installer %s is for SecureBoot, and machineSpec of %s names a boot image that is not", its.text, its.node.Name)
		}
	})
}

// imagePlace is where a node's image is declared: at its entry, or at its role.
func imagePlace(in *check.Input, node *inventory.Node) check.Place {
	const key = "talosImageURL"

	if in.Cluster.Profile != nil || in.Talconfig == nil {
		return in.Declared(key)
	}

	entry := in.Node(node)
	role := in.Talconfig.At("worker")

	if node.Role == inventory.ControlPlane {
		role = in.Talconfig.At("controlPlane")
	}

	for _, place := range []check.Place{entry.Field(key), role.Field(key)} {
		if place.Exists() {
			return place
		}
	}

	return entry
}

// checkTPMKeys looks for keys that the TPM of a machine without SecureBoot would hold.
func checkTPMKeys(r *check.Report, config *check.Rendered) {
	image := schematic.ParseReference(config.InstallImage())

	if !config.HasTPMKeys() || !image.Official() || image.SecureBoot() || ownNames(r.In) {
		return
	}

	const next = "use the -secureboot installer, or other encryption keys"

	if place, checked := enrollCheck(config); checked {
		r.Add(diagnosis.Failure, place, next,
			"the TPM's key is made only with SecureBoot (checkSecurebootStatusOnEnroll), and the installer %s is not for it",
			config.InstallImage())

		return
	}

	r.Found(config.InstallPlace("image"), next,
		"disks are encrypted with TPM keys, and the installer %s is not for SecureBoot", config.InstallImage())
}

// enrollCheck is the place of a volume's TPM key that is made with SecureBoot alone.
func enrollCheck(c *check.Rendered) (check.Place, bool) {
	checked := func(encryption config.EncryptionConfig) bool {
		return encryption != nil && slices.ContainsFunc(encryption.Keys(), func(key config.EncryptionKey) bool {
			return key.TPM() != nil && key.TPM().CheckSecurebootOnEnroll()
		})
	}

	for _, label := range []string{constants.StatePartitionLabel, constants.EphemeralPartitionLabel} {
		if volume, declared := c.Provider.Volumes().ByName(label); declared && checked(volume.Encryption()) {
			return c.File.In("VolumeConfig/"+label, "encryption"), true
		}

		if checked(c.OlderEncryption(label)) {
			return c.At("machine.systemDiskEncryption." + strings.ToLower(label)), true
		}
	}

	return check.Place{}, false
}

// checkDeclaredImages looks at the talosImageURL of nodes that have no config yet; of others the config's image is
// judged.
func checkDeclaredImages(r *check.Report, in *check.Input) {
	told := map[check.Place]bool{}

	for _, node := range in.Cluster.Nodes {
		settings, known := in.SettingsOf(node)
		declared := settings.TalosImageURL

		if !known || declared == "" || in.ConfigOf(node) != nil || in.Cluster.Profile != nil {
			continue
		}

		fault := referenceFault(declared + ":" + cmp.Or(in.Cluster.TalosVersion, machineconfig.DefaultTalosVersion))
		if schematic.ParseReference(declared).Tag != "" {
			fault = "it has a tag, and talosVersion is added to it as another"
		}

		if place := imagePlace(in, node); fault != "" && !told[place] {
			told[place] = true
			r.Found(place, "write it as factory.talos.dev/metal-installer/<schematic id>, without a tag", "talosImageURL %s: %s",
				declared, fault)
		}
	}
}

// checkUnusedSchematics looks for schematics that a talosImageURL of another one sets aside.
func checkUnusedSchematics(r *check.Report, in *check.Input) {
	told := map[check.Place]bool{}

	for _, node := range in.Cluster.Nodes {
		settings, known := in.SettingsOf(node)
		if !known || settings.TalosImageURL == "" || settings.Schematic == nil {
			continue
		}

		id, err := settings.Schematic.ID()
		place := imagePlace(in, node)

		if image := schematic.ParseReference(settings.TalosImageURL); err != nil || image.Schematic == id || told[place] {
			continue
		}

		told[place] = true
		r.Found(place, "take talosImageURL out, or name schematic "+id+" in it",
			"talosImageURL of %s goes before its schematic, which is %s: nothing is made from that", node.Name, id)
	}
}

// checkPlatforms compares machineSpec with the installer's platform, and boards with their processor.
func checkPlatforms(r *check.Report, in *check.Input) {
	eachInstaller(r, in, func(its installer) {
		platform, mode := its.image.PlatformIn(cmp.Or(its.image.Tag, in.Cluster.TalosVersion)), its.settings.MachineSpec.Mode
		if platform != "" && mode != "" && platform != mode {
			r.Found(its.place, "use "+mode+"-installer", "the installer %s is for platform %s, and machineSpec.mode of %s is %s",
				its.text, platform, its.node.Name, mode)
		}
	})
}

// checkExtensionServices compares the services that a node configures with those in its image, where it is known what
// that is made of.
func checkExtensionServices(r *check.Report, in *check.Input) {
	for _, node := range in.Configs {
		made := MadeOf(in, node)
		if made == nil {
			continue
		}

		configured := map[string]bool{}

		for _, service := range node.Provider.ExtensionServiceConfigs() {
			name := service.Name()
			configured[name] = true

			if _, official := extensionSince[name]; official && !HasExtension(made, name) {
				r.Config = node
				r.Found(node.File.In("ExtensionServiceConfig/"+name, "name"), "add "+Siderolabs+name+" to the schematic",
					"the service %s is configured, and the installer image is without the extension %s", name, Siderolabs+name)
			}
		}

		for _, name := range waitingServices {
			if HasExtension(made, name) && !configured[name] {
				r.Config = node
				r.Found(node.InstallPlace("image"), "add an ExtensionServiceConfig named "+name,
					"the extension %s is in the installer image, and its service waits for an ExtensionServiceConfig that is "+
						"not there", Siderolabs+name)
			}
		}
	}
}

// waitingServices are the extensions whose service does not start without configuration. Source: siderolabs/extensions,
// network/*/*.yaml.
var waitingServices = []string{"cloudflared", "nebula", "netbird", "newt", "zerotier"}

// HasExtension reports whether an image made by the schematic has a system extension.
func HasExtension(made *schematic.Schematic, name string) bool {
	return slices.Contains(made.Customization.SystemExtensions.OfficialExtensions, Siderolabs+name)
}

// moduleExtensions are the extensions that bring a kernel module, one of which has to be there. Source:
// siderolabs/extensions.
var moduleExtensions = map[string][]string{
	"drbd": {"drbd"}, "drbd_transport_tcp": {"drbd"}, "zfs": {"zfs"}, "gasket": {"gasket-driver"},
	"apex": {"gasket-driver"}, "uinput": {"uinput"},
	"nvidia": nvidiaModules, "nvidia_uvm": nvidiaModules, "nvidia_drm": nvidiaModules, "nvidia_modeset": nvidiaModules,
}

var nvidiaModules = []string{
	"nonfree-kmod-nvidia", "nonfree-kmod-nvidia-lts", "nonfree-kmod-nvidia-production", "nvidia-open-gpu-kernel-modules",
	"nvidia-open-gpu-kernel-modules-lts", "nvidia-open-gpu-kernel-modules-production",
}

// checkModules looks for kernel modules that the image is known not to have.
func checkModules(r *check.Report, in *check.Input) {
	for _, config := range in.Configs {
		made := MadeOf(in, config)
		if made == nil {
			continue
		}

		for i, module := range config.Provider.KernelModuleConfigs() {
			extensions := moduleExtensions[module.Name()]

			if len(extensions) > 0 && !slices.ContainsFunc(extensions,
				func(name string) bool { return HasExtension(made, name) }) {
				r.Config = config
				r.Found(config.At("machine.kernel.modules").Item(i), "add "+Siderolabs+extensions[0]+" to the schematic",
					"the module %s is part of the extension %s, which the installer image is without", module.Name(),
					Siderolabs+extensions[0])
			}
		}
	}
}

// lastOnGHCR is the last Talos minor version whose installer was published outside of the image factory, by the release
// notes of 1.14.
var lastOnGHCR = talosconfig.TalosVersion1_13

// referenceFault says in plain words what is wrong with an installer image's reference; empty when nothing is.
func referenceFault(text string) string {
	image := schematic.ParseReference(text)
	tagged, err := talosconfig.ParseContractFromVersion(image.Tag)

	switch {
	case image.Registry == schematic.DefaultRegistry && !image.HasSchematic, image.HasSchematic && image.Schematic == "":
		return "the schematic id is missing"
	case image.HasSchematic && !schematic.IsID(image.Schematic):
		return "the schematic id " + image.Schematic + " is not 64 hexadecimal digits"
	case image.Tag == "" && image.Digest == "":
		return "the tag is missing"
	case image.Tag != "" && image.Official() && !release.IsTag(image.Tag):
		return "the tag " + image.Tag + " is not a version like v1.13.9"
	case image.Registry == "ghcr.io" && image.Repository == officialInstaller && err == nil &&
		tagged.Greater(lastOnGHCR):
		return "it is published up to " + lastOnGHCR.String() + " only: newer ones come from the image factory"
	default:
		return ""
	}
}

// checkReferences looks at each installer image's reference: Talos itself would only find out while pulling.
func checkReferences(r *check.Report, in *check.Input) {
	r.EachNode(func(node *inventory.Node, config *check.Rendered) {
		reference := config.InstallImage()
		if reference == "" {
			return // Talos installs its own version's image
		}

		if fault := referenceFault(reference); fault != "" {
			r.Found(config.InstallPlace("image"), in.Regenerate("correct the image of "+node.Name), "installer image %s: %s",
				reference, fault)
		} else if isCopyOfUnpublished(reference) {
			r.Warn(config.InstallPlace("image"), in.Regenerate("name an installer of the image factory for "+node.Name),
				"installer image %s: if it is a copy of ghcr.io/%s, there is nothing to copy: that is published up to %s only",
				reference, officialInstaller, lastOnGHCR)
		}
	})

	r.Passed(diagnosis.InstallerReference, "the installer images' references are sound")
}

// checkInstallerTags compares installers with talosVersion.
func checkInstallerTags(r *check.Report, in *check.Input) {
	r.EachNode(func(node *inventory.Node, config *check.Rendered) {
		tag, declared := schematic.ParseReference(config.InstallImage()).Tag, in.Cluster.TalosVersion

		if declared != "" && release.IsTag(tag) && !release.IsBuildOf(tag, declared) &&
			referenceFault(config.InstallImage()) == "" {
			r.Found(config.InstallPlace("image"), in.Regenerate("bring talosVersion and the image of "+node.Name+" together"),
				"the installer image is %s, talosVersion is %s: the node will run %s", tag, declared, tag)
		}
	})
}
