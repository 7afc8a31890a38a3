package audit

import (
	"context"
	"fmt"
	"strings"

	blockpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	blockconfig "github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/proto"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Checks of disks and volumes. What a node's own disks decide is preflight's, and checkLiveVolumes'.
var diskChecks = []Check{
	eachConfig(diagnosis.InstallDiskChoice, Disks, checkInstallChoice),
	eachConfig(diagnosis.DiskSelectorWide, Disks, checkWideDiskSelectors),
	eachConfig(diagnosis.DiskSelectorNever, Disks, checkImpossibleDiskSelectors),
	eachConfig(diagnosis.VolumeOnSystemDisk, Disks, checkSystemDiskVolumes),
	eachConfig(diagnosis.VolumesShareDisk, Disks, checkSharedDisks),
	eachConfig(diagnosis.MachineDiskIsInstall, Disks, checkMachineDisks),
	eachConfig(diagnosis.VolumeSizes, Disks, checkVolumeSizes),
}

// checkInstallChoice looks at what says where Talos is installed to.
func checkInstallChoice(r *Report, config *Rendered) {
	install := config.Provider.RawV1Alpha1().MachineConfig.MachineInstall

	switch {
	case install == nil:
	case install.InstallDiskSelector != nil && install.InstallDisk != "":
		r.warn(config.File.at("machine.install.disk"), "keep one of the two",
			"install has both a diskSelector, which counts, and the disk %s", install.InstallDisk)
	case install.InstallDiskSelector == nil && install.InstallDisk == "":
		r.found(config.File.at("machine.install"), "set install.disk or install.diskSelector",
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
	at        at     // of the document's provisioning
}

func (v volume) label() string { return v.kind + " " + v.name }

// volumesOf are the volumes that are provisioned on disks.
func volumesOf(file *File, config *machineconfig.Config) []volume {
	var volumes []volume

	add := func(kind, name string, spec blockconfig.ProvisioningSpec) {
		made := volume{
			kind: kind, name: name, match: spec.DiskSelectorSpec.Match, min: spec.ProvisioningMinSize.Value(),
			unbounded: spec.ProvisioningMaxSize.IsZero(),
			at:        at{file: file, document: kind + "/" + name, path: "provisioning"},
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
	if expression, has := config.installSelector(); has && r.in.reachOf(expression).anyDisk {
		r.found(config.File.at("machine.install.diskSelector"), "select by serial, wwid or a size that one disk has",
			"the install disk's selector matches every disk")
	}

	for _, volume := range volumesOf(config.File, config.Config) {
		if volume.match.IsZero() || volume.isSystem() || !r.in.reachOf(volume.match).anyDisk {
			continue
		}

		// All disks but the system's is a choice where there is one other.
		if !strings.Contains(volume.match.String(), "system_disk") {
			r.found(volume.at.field("diskSelector.match"), "exclude the system disk (!system_disk), or select one disk",
				"the selector of %s matches every disk", volume.label())
		}
	}
}

// checkImpossibleDiskSelectors looks for selectors whose conditions exclude each other.
func checkImpossibleDiskSelectors(r *Report, config *Rendered) {
	if expression, has := config.installSelector(); has && r.in.reachOf(expression).never {
		r.found(config.File.at("machine.install.diskSelector"), "correct the selector",
			"the install disk's selector can match no disk: %s", oneLine(expression))
	}

	for _, volume := range volumesOf(config.File, config.Config) {
		if !volume.match.IsZero() && r.in.reachOf(volume.match).never {
			r.add(volume.severity(), volume.at.field("diskSelector.match"), "correct the selector",
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
		if !volume.isSystem() && !volume.match.IsZero() && r.in.reachOf(volume.match).systemOnly {
			r.found(volume.at.field("diskSelector.match"),
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
			r.found(volume.at, "set maxSize of one of them, or select another disk",
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
			r.found(config.File.at("machine.disks").item(i).field("device"), "take the disk out of machine.disks",
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
			r.found(volume.at.field("minSize"), "correct minSize or maxSize", "the minSize of %s is above its maxSize",
				volume.label())
		case !volume.match.IsZero() && r.in.tooSmall(volume):
			r.add(volume.severity(), volume.at.field("minSize"), "correct minSize or the selector",
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

// checkLiveVolumes evaluates the selectors of volumes on the disks of a node that answered.
func checkLiveVolumes(_ context.Context, l *live) []diagnosis.Finding {
	if len(l.facts.Disks) == 0 {
		return nil
	}

	var findings []diagnosis.Finding

	for _, volume := range volumesOf(nil, l.config) {
		if !volume.match.IsZero() {
			findings = append(findings, l.judgeVolume(volume)...)
		}
	}

	return findings
}

// judgeVolume compares one volume with the node's disks. The disk that will be the system's is known once Talos is on
// it.
func (l *live) judgeVolume(volume volume) []diagnosis.Finding {
	var matching []string

	holding := ""

	for _, disk := range l.facts.Disks {
		var spec blockpb.DiskSpec
		if err := proto.ResourceSpecToProto(disk, &spec); err != nil {
			return nil
		}

		path := disk.TypedSpec().DevPath
		system := path == l.systemDisk()

		matched, err := volume.match.EvalBool(celenv.DiskLocator(), map[string]any{"disk": &spec, "system_disk": system})
		if err != nil {
			return []diagnosis.Finding{l.finding(diagnosis.VolumeNoDisk, "correct the selector",
				fmt.Sprintf("the selector of %s can't be evaluated on %s", volume.label(), path))}
		}

		if matched {
			matching = append(matching, path)
			if held := l.holds(path); held != "" && !system {
				holding = path + " holds " + held
			}
		}
	}

	switch {
	case len(matching) == 0:
		return []diagnosis.Finding{l.finding(diagnosis.VolumeNoDisk, "correct the selector of "+volume.label(),
			fmt.Sprintf("no disk matches %s: %s", volume.label(), oneLine(volume.match)))}
	case len(matching) > 1 && !volume.isSystem():
		return []diagnosis.Finding{l.finding(diagnosis.VolumeDiskAmbiguous,
			"make the selector of "+volume.label()+" match one disk",
			fmt.Sprintf("%d disks match %s: %s", len(matching), volume.label(), strings.Join(matching, ", ")))}
	case holding != "" && !volume.isSystem():
		return []diagnosis.Finding{l.finding(diagnosis.VolumeDiskHoldsData,
			"talosctl wipe disk, if nothing on it is needed; or select another disk",
			fmt.Sprintf("%s is the only disk for %s", holding, volume.label()))}
	default:
		return nil
	}
}

// systemDisk is the disk that Talos is on, or will be installed to.
func (l *live) systemDisk() string {
	if l.facts.SystemDisk != "" {
		return l.facts.SystemDisk
	}

	return l.config.InstallDisk()
}

// holds says what is on a disk other than an empty partition table; empty for nothing.
func (l *live) holds(path string) string {
	var found []string

	for _, volume := range l.facts.Volumes {
		if volume.Disk == path && (!volume.Whole || volume.Name != "gpt") {
			found = append(found, strings.TrimSpace(volume.Name+" "+volume.Label))
		}
	}

	return strings.Join(found, ", ")
}
