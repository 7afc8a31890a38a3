package check

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	blockconfig "github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Checks of disks and volumes. What a node's own disks decide is preflight's, and checkLiveVolumes'.
func diskChecks() []Check {
	return []Check{
		EachConfig(diagnosis.InstallDiskChoice, Disks, checkInstallChoice),
		EachConfig(diagnosis.DiskSelectorWide, Disks, checkWideDiskSelectors),
		EachConfig(diagnosis.DiskSelectorNever, Disks, checkImpossibleDiskSelectors),
		EachConfig(diagnosis.VolumeOnSystemDisk, Disks, checkSystemDiskVolumes),
		EachConfig(diagnosis.VolumesShareDisk, Disks, checkSharedDisks),
		EachConfig(diagnosis.MachineDiskIsInstall, Disks, checkMachineDisks),
		EachConfig(diagnosis.VolumeSizes, Disks, checkVolumeSizes),
	}
}

// checkInstallChoice looks at what says where Talos is installed to.
func checkInstallChoice(r *Report, config *Rendered) {
	install := config.Provider.RawV1Alpha1().MachineConfig.MachineInstall

	switch {
	case install == nil:
	case install.InstallDiskSelector != nil && install.InstallDisk != "":
		r.Warn(config.File.At("machine.install.disk"), "keep one of the two",
			"install has both a diskSelector, which counts, and the disk %s", install.InstallDisk)
	case install.InstallDiskSelector == nil && install.InstallDisk == "":
		r.Found(config.File.At("machine.install"), "set install.disk or install.diskSelector",
			"install names neither a disk nor a diskSelector")
	}
}

// volume is a volume that a document declares.
type volume struct {
	kind, name string
	match      cel.Expression
	// unbounded volumes take all that is left of their disk.
	unbounded bool
	min, max  uint64 // 0 for none
	at        Place  // of the document's provisioning
}

func (v volume) label() string { return v.kind + " " + v.name }

// volumesOf are the volumes that are provisioned on disks.
func volumesOf(file *File, config *machineconfig.Config) []volume {
	var volumes []volume

	add := func(kind, name string, spec blockconfig.ProvisioningSpec) {
		made := volume{
			kind: kind, name: name, match: spec.DiskSelectorSpec.Match, min: spec.ProvisioningMinSize.Value(),
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
		case *blockconfig.RawVolumeConfigV1Alpha1:
			add(typed.Kind(), typed.MetaName, typed.ProvisioningSpec)
		case *blockconfig.SwapVolumeConfigV1Alpha1:
			add(typed.Kind(), typed.MetaName, typed.ProvisioningSpec)
		}
	}

	return volumes
}

// isSystem reports whether a volume is one of Talos' own.
func (v volume) isSystem() bool { return v.kind == "VolumeConfig" }

// severity is how bad it is that a volume is never made: the node waits for Talos' own, and only what uses them for
// others.
func (v volume) severity() diagnosis.Severity {
	if v.isSystem() {
		return diagnosis.Failure
	}

	return diagnosis.Warning
}

// installSelector is the expression of the install disk's selector; false if there is none that can be read.
func (c *Rendered) installSelector() (cel.Expression, bool) {
	install := c.Provider.RawV1Alpha1().MachineConfig.MachineInstall
	if install == nil || install.InstallDiskSelector == nil {
		return cel.Expression{}, false
	}

	expression, err := install.DiskMatchExpression()
	if err != nil || expression == nil {
		return cel.Expression{}, false // validation tells why
	}

	return *expression, true
}

// checkWideDiskSelectors looks for selectors that leave the choice to chance.
func checkWideDiskSelectors(r *Report, config *Rendered) {
	if expression, has := config.installSelector(); has && r.In.reachOf(expression).anyDisk {
		r.Found(config.File.At("machine.install.diskSelector"), "select by serial, wwid or a size that one disk has",
			"the install disk's selector matches every disk")
	}

	for _, volume := range volumesOf(config.File, config.Config) {
		if volume.match.IsZero() || volume.isSystem() || !r.In.reachOf(volume.match).anyDisk {
			continue
		}

		// All disks but the system's is a choice where there is one other.
		if !strings.Contains(volume.match.String(), "system_disk") {
			r.Found(volume.at.Field("diskSelector.match"), "exclude the system disk (!system_disk), or select one disk",
				"the selector of %s matches every disk", volume.label())
		}
	}
}

// checkImpossibleDiskSelectors looks for selectors whose conditions exclude each other.
func checkImpossibleDiskSelectors(r *Report, config *Rendered) {
	if expression, has := config.installSelector(); has && r.In.reachOf(expression).never {
		r.Found(config.File.At("machine.install.diskSelector"), "correct the selector",
			"the install disk's selector can match no disk: %s", oneLine(expression))
	}

	for _, volume := range volumesOf(config.File, config.Config) {
		if !volume.match.IsZero() && r.In.reachOf(volume.match).never {
			r.Add(volume.severity(), volume.at.Field("diskSelector.match"), "correct the selector",
				"the selector of %s can match no disk: %s", volume.label(), oneLine(volume.match))
		}
	}
}

// oneLine is an expression as people write it: CEL breaks long ones.
func oneLine(expression cel.Expression) string {
	return strings.Join(strings.Fields(expression.String()), " ")
}

// checkSystemDiskVolumes looks for volumes that have no place but the system disk, where EPHEMERAL leaves none.
func checkSystemDiskVolumes(r *Report, config *Rendered) {
	volumes := volumesOf(config.File, config.Config)

	for _, volume := range volumes {
		// Where Talos' own data is elsewhere, or limited, there is room.
		if volume.isSystem() && volume.name == constants.EphemeralPartitionLabel &&
			(!volume.unbounded || !volume.match.IsZero()) {
			return
		}
	}

	for _, volume := range volumes {
		if !volume.isSystem() && !volume.match.IsZero() && r.In.reachOf(volume.match).systemOnly {
			r.Found(volume.at.Field("diskSelector.match"),
				"limit EPHEMERAL with a VolumeConfig (maxSize), or select another disk: !system_disk",
				"%s can only be on the system disk, which EPHEMERAL fills", volume.label())
		}
	}
}

// checkSharedDisks looks for volumes that leave each other no room.
func checkSharedDisks(r *Report, config *Rendered) {
	growing := map[string]volume{}

	for _, volume := range volumesOf(config.File, config.Config) {
		if volume.isSystem() || volume.match.IsZero() || !volume.unbounded {
			continue
		}

		text := oneLine(volume.match)
		if first, taken := growing[text]; taken {
			r.Found(volume.at, "set maxSize of one of them, or select another disk",
				"%s and %s select the same disk, and neither has a maxSize", first.label(), volume.label())
		} else {
			growing[text] = volume
		}
	}
}

// checkMachineDisks looks for the install disk among the disks that are partitioned by hand.
func checkMachineDisks(r *Report, config *Rendered) {
	machine := config.Provider.RawV1Alpha1().MachineConfig
	if machine.MachineInstall == nil || machine.MachineInstall.InstallDisk == "" ||
		machine.MachineInstall.InstallDiskSelector != nil {
		return
	}

	for i, disk := range machine.MachineDisks { //nolint:staticcheck // old files have them
		if disk != nil && disk.DeviceName == machine.MachineInstall.InstallDisk {
			r.Found(config.File.At("machine.disks").Item(i).Field("device"), "take the disk out of machine.disks",
				"%s is the install disk", disk.DeviceName)
		}
	}
}

// checkVolumeSizes looks for sizes that no disk can give.
func checkVolumeSizes(r *Report, config *Rendered) {
	for _, volume := range volumesOf(config.File, config.Config) {
		switch {
		case volume.min == 0:
		case volume.max > 0 && volume.min > volume.max:
			r.Found(volume.at.Field("minSize"), "correct minSize or maxSize", "the minSize of %s is above its maxSize",
				volume.label())
		case !volume.match.IsZero() && r.In.tooSmall(volume):
			r.Add(volume.severity(), volume.at.Field("minSize"), "correct minSize or the selector",
				"every disk that %s matches is smaller than its minSize", volume.label())
		}
	}
}

// tooSmall reports whether the disks that a volume's selector can match are smaller than the volume has to be.
func (in *Input) tooSmall(volume volume) bool {
	if in.reachOf(volume.match).never {
		return false
	}

	disks, enough := madeUpDisks(oneLine(volume.match) + fmt.Sprintf(" && %du > 0u", volume.min))
	if !enough {
		return false
	}

	for _, disk := range disks {
		for _, system := range []bool{false, true} {
			matched, err := volume.match.EvalBool(celenv.DiskLocator(), map[string]any{"disk": disk, "system_disk": system})
			if err != nil || matched && disk.GetSize() >= volume.min {
				return false
			}
		}
	}

	return true
}
