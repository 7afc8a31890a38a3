package images

import (
	"fmt"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/imager/imageropts"
	"github.com/siderolabs/talos/pkg/machinery/imager/quirks"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
)

// declaredSchematic is a schematic of the talconfig.
type declaredSchematic struct {
	*schematic.Schematic

	at check.Place
	// settings are those that it stands among.
	settings talconfig.NodeSettings
}

// findSchematics lists the schematics of the talconfig, of roles and of nodes, each place once: an alias stands where
// its anchor does.
func findSchematics(in *check.Input) []declaredSchematic {
	if in.Cluster == nil || in.Cluster.Talconfig == nil || in.Talconfig == nil {
		return nil
	}

	var found []declaredSchematic

	seen := map[[2]int]bool{}

	add := func(settings talconfig.NodeSettings, place check.Place) {
		for i, made := range []*schematic.Schematic{settings.Schematic, settings.ImageSchematic} {
			if made == nil {
				continue
			}

			place := place.Field([]string{"schematic", "imageSchematic"}[i])
			inside := place.Field("customization")
			line, column := inside.Position()

			if position := [2]int{line, column}; !seen[position] {
				seen[position] = true
				found = append(found, declaredSchematic{made, place, settings})
			}
		}
	}

	declared := in.Cluster.Talconfig
	add(declared.ControlPlane, in.Talconfig.At("controlPlane"))
	add(declared.Worker, in.Talconfig.At("worker"))

	for i, node := range declared.Nodes {
		add(node.NodeSettings, in.Talconfig.At("nodes").Item(i))
	}

	return found
}

// extensions are a schematic's official extensions with their places.
func (d declaredSchematic) extensions(visit func(name string, place check.Place)) {
	for i, name := range d.Customization.SystemExtensions.OfficialExtensions {
		visit(name, d.at.Field("customization.systemExtensions.officialExtensions").Item(i))
	}
}

// ownNames reports whether the inventory calls its images as it likes: then their names don't say what they are for.
func ownNames(in *check.Input) bool {
	return in.Cluster != nil && in.Cluster.Talconfig != nil && in.Cluster.Talconfig.ImageFactory.InstallerURLTmpl != ""
}

// fromPublicFactory reports whether images come from the public factory, whose extensions are known; other factories
// may have their own.
func fromPublicFactory(in *check.Input) bool {
	registry := in.Cluster.Talconfig.ImageFactory.RegistryURL

	return registry == "" || registry == schematic.DefaultRegistry
}

// checkExtensionNames looks for extensions that no image factory knows, and for those that are listed twice.
func checkExtensionNames(r *check.Report, in *check.Input) {
	for _, declared := range check.Once(in, findSchematics) {
		listed := map[string]bool{}

		declared.extensions(func(name string, place check.Place) {
			owner, short, _ := strings.Cut(name, "/")
			near := suggest.Word(short, knownExtensions())
			_, known := extensionSince[short]

			switch {
			case listed[name]:
				r.Warn(place, "list it once", "the extension %s is listed twice", name)
			case !fromPublicFactory(in):
			case owner == "" || short == "" || strings.ContainsAny(short, "/:@ "):
				r.Found(place, "write the name alone, as siderolabs/iscsi-tools",
					"%q is no official extension: they have an owner and a name, without registry and tag", name)
			case declared.settings.NoSchematicValidate:
			case owner+"/" == Siderolabs && !known && near != "":
				r.Warn(place, "did you mean "+Siderolabs+near+"?", "the extension %s is not known here", name)
			}

			listed[name] = true
		})
	}
}

func knownExtensions() []string {
	names := make([]string, 0, len(extensionSince))
	for name := range extensionSince {
		names = append(names, name)
	}

	slices.Sort(names)

	return names
}

// nvidia are the extensions that come in two series; the first two are drivers for the same devices.
var nvidia = []string{
	Siderolabs + "nonfree-kmod-nvidia", Siderolabs + "nvidia-open-gpu-kernel-modules",
	Siderolabs + "nvidia-container-toolkit", Siderolabs + "nvidia-fabricmanager",
}

func isNVIDIA(name string) bool {
	return slices.ContainsFunc(nvidia, func(one string) bool { return strings.HasPrefix(name, one+"-") })
}

// excludes says why two of NVIDIA's extensions can't be together; empty if they can.
func excludes(some, other string) string {
	isDriver := func(name string) bool {
		return strings.HasPrefix(name, nvidia[0]) || strings.HasPrefix(name, nvidia[1])
	}

	switch {
	case strings.HasSuffix(some, "-lts") != strings.HasSuffix(other, "-lts"):
		return "are of different series"
	case some != other && isDriver(some) && isDriver(other):
		return "are drivers for the same devices"
	default:
		return ""
	}
}

// checkContradictions looks for parts of a schematic that exclude each other.
func checkContradictions(r *check.Report, in *check.Input) {
	for _, declared := range check.Once(in, findSchematics) {
		var drivers []string

		declared.extensions(func(name string, place check.Place) {
			if !strings.HasSuffix(name, "-lts") && !strings.HasSuffix(name, "-production") || !isNVIDIA(name) {
				return
			}

			for _, other := range drivers {
				if why := excludes(name, other); why != "" {
					r.Found(place, "keep one of the two", "%s and %s %s", name, other, why)

					break
				}
			}

			drivers = append(drivers, name)
		})

		spec := declared.settings.MachineSpec

		if declared.Overlay.Name != "" && spec.Arch == schematic.DefaultArch {
			r.Found(declared.at.Field("overlay"), "set machineSpec.arch: arm64",
				"the overlay %s is for boards with arm64, and machineSpec.arch is %s", declared.Overlay.Name, spec.Arch)
		}

		if spec.SecureBoot && declared.Customization.Bootloader == imageropts.BootLoaderKindGrub {
			r.Found(declared.at.Field("customization.bootloader"), "take bootloader out",
				"SecureBoot images boot by systemd-boot, and the schematic asks for GRUB")
		}
	}
}

// checkSchematicVersions looks for what came with a later Talos than the declared one.
func checkSchematicVersions(r *check.Report, in *check.Input) {
	version, err := talosconfig.ParseContractFromVersion(in.Cluster.TalosVersion)
	if err != nil {
		return
	}

	for _, declared := range check.Once(in, findSchematics) {
		tell := func(place check.Place, what string, since int) {
			r.Found(place, fmt.Sprintf("set talosVersion to v1.%d or newer, or take it out", since),
				"%s came with Talos v1.%d, and talosVersion is %s: the image factory builds no such image", what, since,
				in.Cluster.TalosVersion)
		}

		declared.extensions(func(name string, place check.Place) {
			since := extensionSince[strings.TrimPrefix(name, Siderolabs)]

			if fromPublicFactory(in) && strings.HasPrefix(name, Siderolabs) &&
				(&talosconfig.VersionContract{Major: 1, Minor: since}).Greater(version) && since > firstListed {
				tell(place, "the extension "+name, since)
			}
		})

		if declared.Overlay.Name != "" && !quirks.New(in.Cluster.TalosVersion).SupportsOverlay() {
			tell(declared.at.Field("overlay"), "overlays", 7)
		}

		if declared.Customization.EmbeddedMachineConfiguration != "" &&
			!quirks.New(in.Cluster.TalosVersion).SupportsEmbeddedConfig() {
			tell(declared.at.Field("customization.embeddedMachineConfiguration"), "embeddedMachineConfiguration", 12)
		}
	}
}

// firstListed is the release that the list of extensions begins with.
const firstListed = 5
