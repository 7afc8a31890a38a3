package images

import (
	"fmt"
	"path/filepath"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
)

// officialInstaller is the repository of the installer that was published outside of the image factory.
const officialInstaller = "siderolabs/installer"

// isCopyOfUnpublished reports whether an image is named as a copy of an official installer that was never published. It
// may be somebody's own by that name.
func isCopyOfUnpublished(text string) bool {
	image := schematic.ParseReference(text)
	tagged, err := talosconfig.ParseContractFromVersion(image.Tag)

	return err == nil && tagged.Greater(lastOnGHCR) && image.Registry != "ghcr.io" &&
		strings.HasSuffix("/"+image.Repository, "/"+officialInstaller)
}

// declaresSince114 reports whether the inventory declares Talos 1.14 or newer.
func declaresSince114(in *check.Input) bool {
	declared, err := talosconfig.ParseContractFromVersion(in.Cluster.TalosVersion)

	return err == nil && declared.Greater(lastOnGHCR)
}

// watchesInstaller is a comment that tells Renovate to watch the tags of the installer.
var watchesInstaller = pattern.New(`#\s*renovate:.*\bghcr\.io/siderolabs/installer(?:\s|$)`)

// checkRenovate looks for comments that tell Renovate to watch an image that gets no tags of newer minor releases.
func checkRenovate(r *check.Report, in *check.Input) {
	proposed := fmt.Sprintf("it proposes releases of up to %s, and never a newer one", lastOnGHCR)
	if declaresSince114(in) {
		proposed = "it proposes nothing any more"
	}

	for _, name := range []string{"talconfig.yaml", "talenv.yaml", "talenv.yml", filepath.Base(in.Cluster.Source)} {
		file := in.Open(filepath.Join(in.Options.TalosDir, name))
		if file == nil {
			continue
		}

		for i, line := range strings.Split(string(file.Data), "\n") {
			if watchesInstaller.MatchString(line) {
				r.Found(file.Line(i+1, strings.Index(line, "#")+1),
					"write `# renovate: datasource=github-releases depName=siderolabs/talos`",
					"Renovate is to watch ghcr.io/siderolabs/installer, which is published up to %s only: %s", lastOnGHCR, proposed)
			}
		}
	}
}

// checkIdleArgs looks for kernel arguments of schematics that change nothing in images of Talos 1.14.
func checkIdleArgs(r *check.Report, in *check.Input) {
	if !declaresSince114(in) {
		return
	}

	for _, declared := range check.Once(in, findSchematics) {
		for i, arg := range declared.Customization.ExtraKernelArgs {
			if why := idle(arg, declared.settings); why != "" {
				r.Found(declared.at.Field("customization.extraKernelArgs").Item(i), "take it out of the schematic", "%s %s",
					arg, why)
			}
		}
	}
}

// idle says why a kernel argument of a schematic changes nothing since Talos 1.14; empty if it does. One that begins
// with a dash takes another out. Source: machinery kernel/kernel.go, imager/quirks/quirks.go.
func idle(arg string, settings talconfig.NodeSettings) string {
	name, value, _ := strings.Cut(arg, "=")

	switch {
	case name == "-lockdown", name == "-init_on_alloc",
		name == "-nvme_core.io_timeout" && settings.MachineSpec.Mode != "aws":
		return "takes out an argument that images of Talos 1.14 do not have"
	case name == "lockdown" && value == "integrity" && settings.MachineSpec.SecureBoot:
		return "is what SecureBoot brings by itself since Talos 1.14"
	default:
		return ""
	}
}
