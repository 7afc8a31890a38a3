// Package disks holds the checks of disks and volumes, as far as files tell. A node's own disks are for package nodes.
package disks

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	blockconfig "github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return []check.Check{
		check.EachConfig(diagnosis.InstallDiskChoice, check.Disks, checkInstallChoice),
		check.EachConfig(diagnosis.DiskSelectorWide, check.Disks, checkWideDiskSelectors),
		check.EachConfig(diagnosis.DiskSelectorNever, check.Disks, checkImpossibleDiskSelectors),
		check.EachConfig(diagnosis.VolumeOnSystemDisk, check.Disks, checkSystemDiskVolumes),
		check.EachConfig(diagnosis.VolumesShareDisk, check.Disks, checkSharedDisks),
		check.EachConfig(diagnosis.MachineDiskIsInstall, check.Disks, checkMachineDisks),
		check.EachConfig(diagnosis.VolumeSizes, check.Disks, checkVolumeSizes),
		check.EachConfig(diagnosis.WholeDiskTaken, check.Disks, checkWholeDisks),
	}
}

// checkInstallChoice looks at what says where Talos is installed to.
func checkInstallChoice(r *check.Report, config *check.Rendered) {
	switch displaced := config.DisplacedInstallDisk(); {
	case displaced != "":
		r.Warn(config.At("machine.install.disk"), "keep one of the two",
			"install has both a diskSelector, which counts, and the disk %s", displaced)
	case config.HasInstall() && !config.SaysInstallDisk():
		r.Found(config.At("machine.install"), "set install.disk or install.diskSelector",
			"install names neither a disk nor a diskSelector")
	}
}

// Volume is a volume that a document declares.
type Volume struct {
	kind, name string
	Match      cel.Expression
	// whole volumes take a disk as a whole, and no other than one that is empty.
	whole bool
	// unbounded volumes take all that is left of their disk.
	unbounded bool
	min, max  uint64      // 0 for none
	at        check.Place // of the document's provisioning
}

// Label is the volume's kind and name.
func (v Volume) Label() string { return v.kind + " " + v.name }

// VolumesOf are the volumes that are provisioned on disks.
func VolumesOf(file *check.File, config *machineconfig.Config) []Volume {
	var volumes []Volume

	add := func(kind, name string, spec blockconfig.ProvisioningSpec) {
		made := Volume{
			kind: kind, name: name, Match: spec.DiskSelectorSpec.Match, min: spec.ProvisioningMinSize.Value(),
			unbounded: spec.ProvisioningMaxSize.IsZero(),
			at:        file.In(kind+"/"+name, "provisioning"),
		}

		if !spec.ProvisioningMaxSize.IsZero() && !spec.ProvisioningMaxSize.IsRelative() &&
			!spec.ProvisioningMaxSize.IsNegative() {
			made.max = spec.ProvisioningMaxSize.Value()
		}

		volumes = append(volumes, made)
	}

	for _, document := range config.Provider.Documents() {
		switch typed := document.(type) {
		case *blockconfig.VolumeConfigV1Alpha1:
			add(typed.Kind(), typed.MetaName, typed.ProvisioningSpec)
		case *blockconfig.UserVolumeConfigV1Alpha1:
			add(typed.Kind(), typed.MetaName, typed.ProvisioningSpec)
			volumes[len(volumes)-1].whole = typed.Type().ValueOrZero() == block.VolumeTypeDisk
		case *blockconfig.RawVolumeConfigV1Alpha1:
			add(typed.Kind(), typed.MetaName, typed.ProvisioningSpec)
		case *blockconfig.SwapVolumeConfigV1Alpha1:
			add(typed.Kind(), typed.MetaName, typed.ProvisioningSpec)
		}
	}

	return volumes
}

// IsSystem reports whether a volume is one of Talos' own.
func (v Volume) IsSystem() bool { return v.kind == "VolumeConfig" }

// IsWhole reports whether a volume takes a disk as a whole.
func (v Volume) IsWhole() bool { return v.whole }

// severity is how bad it is that a volume is never made: the node waits for Talos' own, and only what uses them for
// others.
func (v Volume) severity() diagnosis.Severity {
	if v.IsSystem() {
		return diagnosis.Failure
	}

	return diagnosis.Warning
}

// checkWideDiskSelectors looks for selectors that leave the choice to chance.
func checkWideDiskSelectors(r *check.Report, config *check.Rendered) {
	if expression, has := config.DiskExpression(); has && reachOf(r.In, expression).anyDisk {
		r.Found(config.At("machine.install.diskSelector"), "select by serial, wwid or a size that one disk has",
			"the install disk's selector matches every disk")
	}

	for _, volume := range VolumesOf(config.File, config.Config) {
		if volume.Match.IsZero() || volume.IsSystem() || !reachOf(r.In, volume.Match).anyDisk {
			continue
		}

		// All disks but the system's is a choice where there is one other.
		if !strings.Contains(volume.Match.String(), "system_disk") {
			r.Found(volume.at.Field("diskSelector.match"), "exclude the system disk (!system_disk), or select one disk",
				"the selector of %s matches every disk", volume.Label())
		}
	}
}

// checkImpossibleDiskSelectors looks for selectors whose conditions exclude each other.
func checkImpossibleDiskSelectors(r *check.Report, config *check.Rendered) {
	if expression, has := config.DiskExpression(); has && reachOf(r.In, expression).never {
		r.Found(config.At("machine.install.diskSelector"), "correct the selector",
			"the install disk's selector can match no disk: %s", OneLine(expression))
	}

	for _, volume := range VolumesOf(config.File, config.Config) {
		if !volume.Match.IsZero() && reachOf(r.In, volume.Match).never {
			r.Add(volume.severity(), volume.at.Field("diskSelector.match"), "correct the selector",
				"the selector of %s can match no disk: %s", volume.Label(), OneLine(volume.Match))
		}
	}
}

// OneLine is an expression as people write it: CEL breaks long ones.
func OneLine(expression cel.Expression) string {
	return strings.Join(strings.Fields(expression.String()), " ")
}

// checkSharedDisks looks for volumes that leave each other no room.
func checkSharedDisks(r *check.Report, config *check.Rendered) {
	growing := map[string]Volume{}

	for _, volume := range VolumesOf(config.File, config.Config) {
		if volume.IsSystem() || volume.Match.IsZero() || !volume.unbounded {
			continue
		}

		text := OneLine(volume.Match)
		if first, taken := growing[text]; taken {
			r.Found(volume.at, "set maxSize of one of them, or select another disk",
				"%s and %s select the same disk, and neither has a maxSize", first.Label(), volume.Label())
		} else {
			growing[text] = volume
		}
	}
}

// checkMachineDisks looks for the install disk among the disks that are partitioned by hand.
func checkMachineDisks(r *check.Report, config *check.Rendered) {
	install := config.InstallDisk()
	if install == "" {
		return
	}

	for i, disk := range config.Disks() {
		if disk != nil && disk.DeviceName == install {
			r.Found(config.At("machine.disks").Item(i).Field("device"), "take the disk out of machine.disks",
				"%s is the install disk", disk.DeviceName)
		}
	}
}

// checkVolumeSizes looks for sizes that no disk can give.
func checkVolumeSizes(r *check.Report, config *check.Rendered) {
	for _, volume := range VolumesOf(config.File, config.Config) {
		switch {
		case volume.min == 0:
		case volume.max > 0 && volume.min > volume.max:
			r.Found(volume.at.Field("minSize"), "correct minSize or maxSize", "the minSize of %s is above its maxSize",
				volume.Label())
		case !volume.Match.IsZero() && tooSmall(r.In, volume):
			r.Add(volume.severity(), volume.at.Field("minSize"), "correct minSize or the selector",
				"every disk that %s matches is smaller than its minSize", volume.Label())
		}
	}
}

// tooSmall reports whether the disks that a volume's selector can match are smaller than the volume has to be.
func tooSmall(in *check.Input, volume Volume) bool {
	if reachOf(in, volume.Match).never {
		return false
	}

	disks, enough := madeUpDisks(OneLine(volume.Match) + fmt.Sprintf(" && %du > 0u", volume.min))
	if !enough {
		return false
	}

	for _, disk := range disks {
		for _, system := range []bool{false, true} {
			matched, err := volume.Match.EvalBool(celenv.DiskLocator(), map[string]any{"disk": disk, "system_disk": system})
			if err != nil || matched && disk.GetSize() >= volume.min {
				return false
			}
		}
	}

	return true
}
