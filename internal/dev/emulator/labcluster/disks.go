package labcluster

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	blockpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// Sizes of disks, in bytes.
const (
	gigabyte = 1_000_000_000
	// usualDiskSize is what a machine's disk holds when nothing else is asked of it.
	usualDiskSize = 50 * gigabyte
)

// disksFor are the disks that a machine needs for its machine config: the one that it installs on, those that it
// partitions, and one for each volume that has no disk yet.
func disksFor(installOn string, config talosconfig.Provider) []emulator.Disk {
	disks := []emulator.Disk{installDisk(installOn)}

	raw := config.RawV1Alpha1()
	if raw == nil || raw.MachineConfig == nil {
		return disks
	}

	if install := raw.MachineConfig.MachineInstall; install != nil {
		selectDisk(&disks[0], install.InstallDiskSelector)
	}

	for _, declared := range raw.MachineConfig.MachineDisks { //nolint:staticcheck // releases that are in use have it
		disks = append(disks, partitioned(declared))
	}

	for _, volume := range volumesOf(config) {
		if spare, needed := spareFor(volume, disks); needed {
			disks = append(disks, spare)
		}
	}

	return disks
}

// installDisk is the disk at a declared path.
func installDisk(path string) emulator.Disk {
	disk := emulator.Disk{Name: "vda", Size: usualDiskSize, Transport: "virtio"}

	switch {
	case path == "":
	case filepath.Dir(path) == "/dev":
		disk.Name = filepath.Base(path)
	default:
		disk.Symlinks = []string{path}
	}

	return disk
}

// selectDisk makes a disk that a selector matches; patterns lose their stars.
func selectDisk(disk *emulator.Disk, selector *v1alpha1.InstallDiskSelector) {
	if selector == nil {
		return
	}

	plain := func(pattern string) string { return strings.ReplaceAll(pattern, "*", "") }

	disk.Model, disk.Serial, disk.WWID = plain(selector.Model), plain(selector.Serial), plain(selector.WWID)
	disk.UUID, disk.Modalias, disk.BusPath = plain(selector.UUID), plain(selector.Modalias), plain(selector.BusPath)

	switch strings.ToLower(string(selector.Type)) {
	case "nvme":
		disk.Name, disk.Transport = "nvme0n1", "nvme"
	case "hdd":
		disk.Name, disk.Transport, disk.Rotational = "sda", "sata", true
	case "ssd":
		disk.Name, disk.Transport = "sda", "sata"
	case "sd":
		disk.Name, disk.Transport = "mmcblk0", "mmc"
	}

	if selector.Size != nil {
		disk.Size = fittingSize(selector.Size.MatchData.Op, selector.Size.MatchData.Size)
	}
}

// fittingSize is a size that passes a comparison.
func fittingSize(operator string, size uint64) uint64 {
	switch operator {
	case ">", ">=":
		return size + gigabyte
	case "<", "<=":
		return size - min(size, 1)
	default:
		return size
	}
}

// partitioned is a disk that the config has partitioned, with room for that.
func partitioned(declared *v1alpha1.MachineDisk) emulator.Disk {
	disk := installDisk(declared.DeviceName)

	var needed uint64
	for _, partition := range declared.DiskPartitions {
		needed += partition.Size()
	}

	disk.Size = max(disk.Size, needed+gigabyte)

	return disk
}

// volume is what a volume asks of its disk.
type volume struct {
	match cel.Expression
	size  uint64
}

func volumesOf(config talosconfig.Provider) []volume {
	var volumes []volume

	add := func(spec block.ProvisioningSpec) {
		if !spec.DiskSelectorSpec.Match.IsZero() {
			volumes = append(volumes, volume{spec.DiskSelectorSpec.Match, spec.ProvisioningMinSize.Value()})
		}
	}

	for _, document := range config.Documents() {
		switch typed := document.(type) {
		case *block.VolumeConfigV1Alpha1:
			add(typed.ProvisioningSpec)
		case *block.UserVolumeConfigV1Alpha1:
			add(typed.ProvisioningSpec)
		case *block.RawVolumeConfigV1Alpha1:
			add(typed.ProvisioningSpec)
		case *block.SwapVolumeConfigV1Alpha1:
			add(typed.ProvisioningSpec)
		}
	}

	return volumes
}

// matches reports whether the volume can be on a disk.
func (v volume) matches(disk emulator.Disk, system bool) bool {
	matched, err := v.match.EvalBool(celenv.DiskLocator(), map[string]any{"system_disk": system, "disk": &blockpb.DiskSpec{
		DevPath: "/dev/" + disk.Name, Size: disk.Size, Model: disk.Model, Serial: disk.Serial, Wwid: disk.WWID,
		Uuid: disk.UUID, Transport: disk.Transport, Rotational: disk.Rotational, Symlinks: disk.Symlinks,
	}})

	return err == nil && matched
}

// spareFor finds a disk that a volume's selector matches, among disks as machines have them; none if one of the
// machine's own does, or nothing that is tried.
func spareFor(v volume, present []emulator.Disk) (disk emulator.Disk, needed bool) {
	for i, disk := range present {
		if v.matches(disk, i == 0) {
			return emulator.Disk{}, false
		}
	}

	for _, spare := range spares(v) {
		taken := slices.ContainsFunc(present, func(disk emulator.Disk) bool { return disk.Name == spare.Name })
		if !taken && v.matches(spare, false) {
			return spare, true
		}
	}

	return emulator.Disk{}, false
}

// quoted finds the texts that an expression compares with.
var quoted = regexp.MustCompile(`"([^"]*)"|'([^']*)'`)

// spares are disks of each kind and size, and of each with a text of the volume's selector in one of its fields.
func spares(v volume) []emulator.Disk {
	var disks []emulator.Disk

	for _, size := range []uint64{100, 500, 1_000, 2_000, 4_000, 10_000, 50} {
		size = max(size*gigabyte, v.size+gigabyte)

		for number := 1; number < 9; number++ {
			letter := string(rune('a' + number))
			disks = append(disks,
				emulator.Disk{Name: "vd" + letter, Size: size, Transport: "virtio"},
				emulator.Disk{Name: fmt.Sprintf("nvme%dn1", number), Size: size, Transport: "nvme"},
				emulator.Disk{Name: "sd" + letter, Size: size, Transport: "sata"},
				emulator.Disk{Name: "sd" + letter, Size: size, Transport: "sata", Rotational: true},
			)
		}
	}

	var named []emulator.Disk

	for _, match := range quoted.FindAllStringSubmatch(fmt.Sprint(v.match), -1) {
		text := strings.Trim(match[1]+match[2], "*")

		for _, disk := range disks {
			byPath, byModel, bySerial, byWWID := disk, disk, disk, disk
			byPath.Name = strings.TrimPrefix(text, "/dev/")
			byModel.Model, bySerial.Serial, byWWID.WWID = text, text, text
			byLink := disk
			byLink.Symlinks = []string{text}
			named = append(named, byPath, byModel, bySerial, byWWID, byLink)
		}
	}

	return append(disks, named...)
}
