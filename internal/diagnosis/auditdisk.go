package diagnosis

// What the audit finds about disks and volumes: TM260 to TM274.
const (
	InstallDiskChoice    ID = "TM260"
	DiskSelectorWide     ID = "TM261"
	DiskSelectorNever    ID = "TM262"
	VolumeOnSystemDisk   ID = "TM263"
	VolumesShareDisk     ID = "TM264"
	MachineDiskIsInstall ID = "TM265"
	VolumeNoDisk         ID = "TM266"
	VolumeDiskHoldsData  ID = "TM267"
	VolumeDiskAmbiguous  ID = "TM268"
	VolumeSizes          ID = "TM269"
	WholeDiskTaken       ID = "TM270"
)

const (
	volumeSource = "Talos documentation, Disk Management; siderolabs/talos " +
		"internal/app/machined/pkg/controllers/block/internal/volumes"
	celSource = "machinery cel/celenv/celenv.go, DiskLocator"
)

var diskEntries = []Entry{
	{
		ID: InstallDiskChoice, Title: "The install section has both a disk and a selector, or neither", Severity: Warning,
		Cause: "With both Talos takes the selector and never looks at the disk's name. With neither it refuses " +
			"to install; a machine that already has Talos on its disk needs neither.",
		Remedy: "Keep one of the two.",
		Source: "siderolabs/talos#9647; machinery config/types/v1alpha1/v1alpha1_validation.go",
	},
	{
		ID: DiskSelectorWide, Title: "A disk selector matches every disk", Severity: Warning,
		Cause: "Talos takes the first match without asking, and an installer wipes it: with a second disk, or a USB " +
			"stick, that may be the wrong one.",
		Remedy: "Select by serial, wwid or a size that one disk has.",
		Source: "siderolabs/talos#12370, #11255",
	},
	{
		ID: DiskSelectorNever, Title: "A disk selector can never match", Severity: Failure, Exit: ExitBadInput,
		Cause: "Its conditions exclude each other, or ask for what Talos rules out anyway: an empty transport, a " +
			"read-only disk, a CD-ROM. For a volume that is not Talos' own it is a warning.",
		Remedy: "Correct the conditions.",
		Source: "siderolabs/talos#10315; " + celSource,
	},
	{
		ID: VolumeOnSystemDisk, Title: "A volume is on the system disk, which EPHEMERAL fills", Severity: Warning,
		Cause: "EPHEMERAL grows to the end of the system disk unless a VolumeConfig limits it: nothing is left for a " +
			"volume that can only be there.",
		Remedy: "Set maxSize in the VolumeConfig of EPHEMERAL, or put the volume on another disk: !system_disk.",
		Source: volumeSource,
	},
	{
		ID: VolumesShareDisk, Title: "Two volumes without a limit select the same disk", Severity: Warning,
		Cause:  "A volume without maxSize takes all that is left of its disk: the other one waits for room.",
		Remedy: "Set maxSize of one of them, or select another disk.",
		Source: volumeSource,
	},
	{
		ID: MachineDiskIsInstall, Title: "A disk of machine.disks is the install disk", Severity: Warning,
		Cause: "The installer partitions the install disk for itself, and machine.disks would partition it again. On a " +
			"machine that has Talos on another disk already the install disk is not used.",
		Remedy: "Take the disk out of machine.disks; a UserVolumeConfig can use what is left of it.",
		Source: "machinery config/types/v1alpha1/v1alpha1_types.go, machine.disks; " + volumeSource,
	},
	{
		ID: VolumeNoDisk, Title: "A volume's selector matches no disk of the node", Severity: Failure, Exit: ExitPreflight,
		Cause:  "The volume waits forever for a disk. Whatever should be mounted there does not start.",
		Remedy: "Correct the selector with the values of the table.",
		Source: volumeSource,
	},
	{
		ID: VolumeDiskHoldsData, Title: "A volume's only disk holds data", Severity: Warning,
		Cause: "Talos does not wipe a disk for a volume: one with a file system, or without room, stays as it is and the " +
			"volume waits.",
		Remedy: "Wipe the disk if nothing on it is needed (talosctl wipe disk), or select another.",
		Source: volumeSource,
	},
	{
		ID: VolumeDiskAmbiguous, Title: "A volume's selector matches several disks of the node", Severity: Warning,
		Cause: "Talos takes the first with enough room: until the volume is made, the order in which disks are " +
			"found may change that.",
		Remedy: "Make the selector match one disk.",
		Source: volumeSource,
	},
	{
		ID: VolumeSizes, Title: "A volume's sizes can't be met", Severity: Failure, Exit: ExitBadInput,
		Cause: "minSize is above maxSize, which Talos refuses, or above the size that the selector asks the disk to " +
			"stay below.",
		Remedy: "Correct minSize, maxSize or the selector.",
		Source: "machinery config/types/block/volume_config.go; " + volumeSource,
	},
	{
		ID: WholeDiskTaken, Title: "A volume of a whole disk has no disk but the one that Talos is on", Severity: Warning,
		Cause: "With `volumeType: disk` a volume takes the one disk that its selector matches, if there is nothing on it. " +
			"The system disk has Talos' partitions: the volume waits forever.",
		Remedy: "Select another disk: !system_disk.",
		Source: "siderolabs/talos internal/app/machined/pkg/controllers/block/internal/volumes/locate.go, disk.go",
	},
}
