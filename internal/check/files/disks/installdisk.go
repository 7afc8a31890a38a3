package disks

import (
	"fmt"
	"slices"
	"strings"

	blockpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/check"
)

// checkSystemDiskVolumes looks for volumes that have no place but the system disk, where EPHEMERAL leaves none.
func checkSystemDiskVolumes(r *check.Report, config *check.Rendered) {
	volumes := VolumesOf(config.File, config.Config)
	if LeavesRoom(volumes) {
		return
	}

	for _, volume := range volumes {
		if !volume.IsSystem() && !volume.whole && onInstallDisk(r.In, config, volume) {
			r.Found(volume.at.Field("diskSelector.match"),
				"limit EPHEMERAL with a VolumeConfig (maxSize), or select another disk: !system_disk",
				"%s can only be on the system disk, which EPHEMERAL fills", volume.Label())
		}
	}
}

// LeavesRoom reports whether Talos' own data is limited, or on another disk than the system's.
func LeavesRoom(volumes []Volume) bool {
	return slices.ContainsFunc(volumes, func(volume Volume) bool {
		return volume.IsSystem() && volume.name == constants.EphemeralPartitionLabel &&
			(!volume.unbounded || !volume.Match.IsZero())
	})
}

// checkWholeDisks looks for volumes that take a disk as a whole, and can get none but the one that Talos is on.
func checkWholeDisks(r *check.Report, config *check.Rendered) {
	for _, volume := range VolumesOf(config.File, config.Config) {
		if volume.whole && onInstallDisk(r.In, config, volume) {
			r.Found(volume.at.Field("diskSelector.match"), "select another disk: !system_disk; or take `volumeType: disk` out",
				"%s takes a disk as a whole, and can only match the one that Talos is on", volume.Label())
		}
	}
}

// onInstallDisk reports whether a volume can be on no disk but the one that Talos is on, or is installed on.
func onInstallDisk(in *check.Input, config *check.Rendered, volume Volume) bool {
	if volume.Match.IsZero() {
		return false
	}

	install, isInstall := installCondition(config)
	judged := check.Once(in, func(*check.Input) onInstall { return onInstall{} })
	key := [2]string{volume.Match.String(), install}

	if _, known := judged[key]; !known {
		judged[key] = reachOf(in, volume.Match).systemOnly ||
			install != "" && (linkSelected(OneLine(volume.Match), config.InstallDisk()) ||
				selectsOnly(volume, install, isInstall))
	}

	return judged[key]
}

// onInstall says of the expressions of a volume and of the install disk, judged once, whether they are of one disk.
type onInstall map[[2]string]bool

// selectsOnly tries a volume's selector on disks that are made from it and from what says where Talos is installed.
// What leaves more than one disk is not judged.
func selectsOnly(volume Volume, install string, isInstall func(*blockpb.DiskSpec) bool) bool {
	text := withoutPlainGlobs(OneLine(volume.Match))

	disks, enough := madeUpDisks(text + " && " + withoutPlainGlobs(install))
	if !enough {
		return false
	}

	var matched []*blockpb.DiskSpec

	for _, disk := range disks {
		if disk.GetReadonly() || disk.GetCdrom() || disk.GetTransport() == "" {
			continue // nothing is ever put there
		}

		system := isInstall(disk)

		picked, err := volume.Match.EvalBool(celenv.DiskLocator(), map[string]any{"disk": disk, "system_disk": system})
		if err != nil || picked && !system {
			return false
		}

		if picked {
			matched = append(matched, disk)
		}
	}

	return len(matched) > 0 && identifies(text, matched)
}

// plainGlob is a pattern that is one text.
var plainGlob = pattern.New(`glob\("([^"*?\[\]{}\\]*)", disk\.(\w+)\)`)

// withoutPlainGlobs compares with a text where a pattern is one.
func withoutPlainGlobs(expression string) string {
	return plainGlob.ReplaceAllString(expression, `disk.$2 == "$1"`)
}

// installCondition is what picks the install disk, as an expression and as a function; empty if it is not known.
func installCondition(config *check.Rendered) (string, func(*blockpb.DiskSpec) bool) {
	if expression, has := config.DiskExpression(); has {
		return OneLine(expression), func(disk *blockpb.DiskSpec) bool {
			picked, err := expression.EvalBool(celenv.DiskLocator(), map[string]any{"disk": disk, "system_disk": false})

			return err == nil && picked
		}
	}

	path := config.InstallDisk()
	if path == "" {
		return "", nil
	}

	return fmt.Sprintf("disk.dev_path == %q", path), func(disk *blockpb.DiskSpec) bool { return disk.GetDevPath() == path }
}

// linkSelected reports whether an expression is that a disk has one symbolic link.
func linkSelected(expression, path string) bool {
	plain := strings.NewReplacer("'", `"`, " ", "").Replace(expression)

	return path != "" && plain == fmt.Sprintf("%qindisk.symlinks", path)
}

// identifies reports whether an expression picks a single disk: all that it picks have the same serial number or the
// like, which it compares with.
func identifies(expression string, picked []*blockpb.DiskSpec) bool {
	for _, match := range equalText.FindAllStringSubmatch(expression, -1) {
		value := match[2] + match[3]
		get, known := identities[match[1]]

		if !known || value == "" {
			continue
		}

		if !slices.ContainsFunc(picked, func(disk *blockpb.DiskSpec) bool { return get(disk) != value }) {
			return true
		}
	}

	return false
}

// identities are the properties of a disk that no other disk of a machine has.
var identities = map[string]func(*blockpb.DiskSpec) string{
	"serial": (*blockpb.DiskSpec).GetSerial, "wwid": (*blockpb.DiskSpec).GetWwid, "uuid": (*blockpb.DiskSpec).GetUuid,
	"dev_path": (*blockpb.DiskSpec).GetDevPath,
}
