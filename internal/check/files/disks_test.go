package files_test

import (
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// installing is a control plane with these fields of its install section.
func installing(fields string) config { return config{machine: "install:\n\t" + fields} }

// userVolume is a document of a user volume with its provisioning.
func userVolume(name, provisioning string) string {
	return "kind: UserVolumeConfig\nname: " + name + "\nprovisioning:\n\t" + provisioning
}

func TestInstallDisks(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.InstallDiskChoice, map[string]trial{
		"both": {files: lab(installing("disk: /dev/vda\n\tdiskSelector:\n\t\tserial: S1")), line: "disk: /dev/vda",
			cause: "both a diskSelector, which counts, and the disk /dev/vda", severity: diagnosis.Warning},
		"neither": {files: lab(installing("wipe: false")), line: "install:", cause: "neither", severity: diagnosis.Warning},
		"second": {files: lab(installing("disk: /dev/vda"), installing("image: ghcr.io/siderolabs/installer:v1.13.9")),
			cause: "neither"},
		"disk":     {files: lab(installing("disk: /dev/vda"))},
		"selector": {files: lab(installing("diskSelector:\n\t\tserial: S1"))},
	})

	judge(t, diagnosis.MachineDiskIsInstall, map[string]trial{
		"the same": {files: lab(config{machine: "install:\n\tdisk: /dev/vda\ndisks:\n\t- device: " +
			"/dev/vda\n\t\tpartitions: []"}), line: "- device: /dev/vda", cause: "/dev/vda is the install disk",
			severity: diagnosis.Warning},
		"second": {files: lab(config{machine: "install:\n\tdisk: /dev/vda\ndisks:\n\t- device: /dev/vdb\n\t- " +
			"device: /dev/vda"}), cause: "/dev/vda"},
		"another": {files: lab(config{machine: "install:\n\tdisk: /dev/vda\ndisks:\n\t- device: /dev/vdb"})},
		"no name here": {files: lab(config{machine: "install:\n\tdiskSelector:\n\t\tserial: S1\ndisks:\n\t- device: " +
			"/dev/vda"})},
	})
}

func TestDiskSelectors(t *testing.T) {
	t.Parallel()

	selector := func(fields string) config { return installing("diskSelector:\n\t\t" + fields) }
	matching := func(match string) config { return documents(userVolume("data", "diskSelector:\n\t\tmatch: "+match)) }

	judge(t, diagnosis.DiskSelectorWide, map[string]trial{
		"install": {files: lab(selector("size: '>= 1GB'")), line: "diskSelector:", cause: "matches every disk"},
		"volume": {files: lab(matching("disk.size > 1u * GB")), line: "match: disk.size > 1u * GB",
			cause: "UserVolumeConfig data matches every disk"},
		"true":             {files: lab(matching("'true'")), cause: "matches every disk"},
		"serial":           {files: lab(selector("serial: S73*"), matching("disk.serial == 'S1'"))},
		"not the system's": {files: lab(matching("'!system_disk'"))},
		"type":             {files: lab(selector("type: ssd"))},
	})

	judge(t, diagnosis.DiskSelectorNever, map[string]trial{
		"sizes": {files: lab(matching("disk.size > 2u * TB && disk.size < 1u * TB")),
			line: "match: disk.size > 2u * TB && disk.size < 1u * TB", cause: "can match no disk", severity: diagnosis.Warning},
		"EPHEMERAL": {files: lab(documents(
			"kind: VolumeConfig\nname: EPHEMERAL\nprovisioning:\n\tdiskSelector:\n\t\tmatch: system_disk && !system_disk")),
			cause: "VolumeConfig EPHEMERAL", severity: diagnosis.Failure},
		"transports": {files: lab(matching("disk.transport == 'nvme' && disk.transport == 'usb'")),
			cause: "UserVolumeConfig data"},
		"system disk": {files: lab(matching("system_disk && !system_disk")), cause: "system_disk"},
		"type and bus": {files: lab(selector("type: hdd\n\t\tsize: '< 0'")),
			cause: "the install disk's selector can match no disk", severity: diagnosis.Failure},
		"any serial": {files: lab(matching("disk.serial != '' && disk.model != 'A'"))},
		"products":   {files: lab(matching("disk.size > 3u * 1024u * GiB"))},
		"two patterns": {files: lab(matching("glob('A*', disk.model) && glob('*B', disk.model)"),
			matching("glob('S[0-9]*', disk.serial)"))},
		"can": {files: lab(matching("disk.transport == 'nvme' && !system_disk && disk.size >= 1u * TB && "+
			"disk.size <= 2u * TB"), selector("model: WDC*\n\t\tsize: '>= 4TB'\n\t\ttype: nvme"))},
		"several values": {files: lab(matching("disk.model == 'A' && disk.serial == 'B' && glob('C*', disk.wwid)"),
			matching("disk.transport in ['nvme', 'sata']"))},
		"a size in words": {files: lab(matching("disk.pretty_size == '250 GB'"),
			matching("disk.transport == 'nvme' && disk.pretty_size != '1.0 TB'"))},
		"links":      {files: lab(matching("'/dev/disk/by-id/a' in disk.symlinks"))},
		"rotational": {files: lab(matching("disk.rotational && disk.transport != 'usb'"))},
	})
}

func TestVolumes(t *testing.T) {
	t.Parallel()

	const (
		limited = "kind: VolumeConfig\nname: EPHEMERAL\nprovisioning:\n\tmaxSize: 50GiB"
		moved   = "kind: VolumeConfig\nname: EPHEMERAL\nprovisioning:\n\tdiskSelector:\n\t\tmatch: disk.transport == 'nvme'"
	)

	onSystem := userVolume("data", "diskSelector:\n\t\tmatch: system_disk\n\tminSize: 10GB")

	judge(t, diagnosis.VolumeOnSystemDisk, map[string]trial{
		"EPHEMERAL fills it": {files: lab(documents(onSystem)), line: "match: system_disk",
			cause: "UserVolumeConfig data can only be on the system disk", severity: diagnosis.Warning},
		"raw volume": {files: lab(documents(
			"kind: RawVolumeConfig\nname: raw\nprovisioning:\n\tdiskSelector:\n\t\tmatch: system_disk && disk.size > " +
				"1u\n\tminSize: 10GB")), cause: "RawVolumeConfig raw"},
		"swap": {files: lab(documents(
			"kind: SwapVolumeConfig\nname: swap\nprovisioning:\n\tdiskSelector:\n\t\tmatch: system_disk\n\tminSize: " +
				"1GB\n\tmaxSize: 2GB")), cause: "swap"},
		"limited": {files: lab(documents(onSystem, limited))},
		"moved":   {files: lab(documents(onSystem, moved))},
		"another disk": {files: lab(documents(
			userVolume("data", "diskSelector:\n\t\tmatch: '!system_disk'\n\tminSize: 10GB")))},
	})

	on := func(name, rest string) string {
		return userVolume(name, "diskSelector:\n\t\tmatch: disk.transport == 'nvme'\n\tminSize: 10GB"+rest)
	}

	judge(t, diagnosis.VolumesShareDisk, map[string]trial{
		"both grow": {files: lab(documents(on("a", "\n\tgrow: true"), on("b", "\n\tgrow: true"))), line: "provisioning:",
			cause: "UserVolumeConfig a and UserVolumeConfig b select the same disk"},
		"two kinds": {files: lab(documents(on("a", "\n\tgrow: true"),
			"kind: RawVolumeConfig\nname: b\nprovisioning:\n\tgrow: true\n\tdiskSelector:\n\t\tmatch: disk.transport   ==  "+
				" 'nvme'")), cause: "RawVolumeConfig b"},
		"one limited": {files: lab(documents(on("a", "\n\tmaxSize: 20GB"), on("b", "\n\tgrow: true")))},
		"apart": {files: lab(documents(on("a", "\n\tgrow: true"),
			userVolume("b", "diskSelector:\n\t\tmatch: disk.transport == 'sata'\n\tgrow: true")))},
	})

	judge(t, diagnosis.VolumeSizes, map[string]trial{
		"above maxSize": {files: lab(documents(userVolume("data", "minSize: 20GB\n\tmaxSize: 10GB"))), line: "minSize: 20GB",
			cause: "above its maxSize", severity: diagnosis.Failure},
		"above disks": {files: lab(documents(userVolume("data",
			"diskSelector:\n\t\tmatch: disk.size < 100u * GB\n\tminSize: 200GB"))), cause: "smaller than its minSize",
			severity: diagnosis.Warning},
		"EPHEMERAL": {files: lab(documents("kind: VolumeConfig\nname: EPHEMERAL\nprovisioning:\n\tminSize: " +
			"20GB\n\tmaxSize: 10GB")), cause: "VolumeConfig EPHEMERAL"},
		"fits": {files: lab(documents(userVolume("data",
			"diskSelector:\n\t\tmatch: disk.size < 300u * GB\n\tminSize: 200GB\n\tmaxSize: 250GB")))},
		"a share": {files: lab(documents("kind: VolumeConfig\nname: EPHEMERAL\nprovisioning:\n\tminSize: " +
			"20GB\n\tmaxSize: 80%"))},
	})
}

// disk is a disk as a node tells it.
func disk(path, transport string, size uint64) *block.Disk {
	made := block.NewDisk(block.NamespaceName, path[len("/dev/"):])
	made.TypedSpec().DevPath, made.TypedSpec().Transport, made.TypedSpec().Size = path, transport, size

	return made
}

func TestVolumesOnTheNode(t *testing.T) {
	t.Parallel()

	facts := check.Facts{
		SystemDisk: "/dev/sda",
		Disks: []*block.Disk{disk("/dev/sda", "sata", 40e9), disk("/dev/nvme0n1", "nvme", 1e12),
			disk("/dev/nvme1n1", "nvme", 2e12)},
		Volumes: []talos.Volume{{Disk: "/dev/nvme1n1", Name: "xfs", Label: "photos", Whole: true}},
	}
	on := func(match string) config { return documents(userVolume("data", "diskSelector:\n\t\tmatch: "+match)) }

	require.Contains(t, lived(t, on("disk.transport == 'usb'"), facts, diagnosis.VolumeNoDisk)[0].Cause,
		"no disk matches UserVolumeConfig data")
	require.Contains(t, lived(t, on("disk.transport == 'nvme'"), facts, diagnosis.VolumeDiskAmbiguous)[0].Cause,
		"2 disks match UserVolumeConfig data: /dev/nvme0n1, /dev/nvme1n1")
	require.Contains(t, lived(t, on("disk.size > 1500u * GB"), facts, diagnosis.VolumeDiskHoldsData)[0].Cause,
		"/dev/nvme1n1 holds xfs \"photos\"")

	fitting := on("disk.transport == 'nvme' && disk.size <= 1500u * GB")
	for _, id := range []diagnosis.ID{diagnosis.VolumeNoDisk, diagnosis.VolumeDiskAmbiguous,
		diagnosis.VolumeDiskHoldsData} {
		require.Empty(t, lived(t, fitting, facts, id))
		require.Empty(t, lived(t, on("system_disk"), facts, id), "the system disk holds Talos")
	}
}

// A volume that takes a disk as a whole gets one only if its selector matches just one, and nothing is on it.
func TestVolumesOfAWholeDiskOnTheNode(t *testing.T) {
	t.Parallel()

	facts := check.Facts{Disks: []*block.Disk{disk("/dev/sda", "sata", 40e9), disk("/dev/nvme0n1", "nvme", 1e12),
		disk("/dev/nvme1n1", "nvme", 2e12)}}
	on := func(kind, match string) config {
		made := documents("kind: UserVolumeConfig\nname: data\n" + kind +
			"provisioning:\n\tdiskSelector:\n\t\tmatch: " + match)
		made.machine = "install:\n\tdisk: /dev/sda"

		return made
	}

	const whole = "volumeType: disk\n"

	require.Contains(t, lived(t, on(whole, "disk.transport == 'sata'"), facts, diagnosis.VolumeNoDisk)[0].Cause,
		"takes a disk as a whole, and matches /dev/sda alone, which Talos is on")

	several := lived(t, on(whole, "disk.transport == 'nvme'"), facts, diagnosis.VolumeDiskAmbiguous)
	require.Contains(t, several[0].Cause, "2 disks match UserVolumeConfig data, which takes one as a whole")
	require.Equal(t, diagnosis.Failure, several[0].Severity)
	require.Equal(t, diagnosis.ExitPreflight, several[0].ExitCode())

	require.Contains(t, lived(t, on("", "disk.transport == 'sata'"), facts, diagnosis.VolumeOnSystemDisk)[0].Cause,
		"UserVolumeConfig data can only be on /dev/sda, which Talos is installed on and EPHEMERAL fills")

	limited := on("", "disk.transport == 'sata'")
	limited.documents = append(limited.documents, "kind: VolumeConfig\nname: EPHEMERAL\nprovisioning:\n\tmaxSize: 10GiB")
	require.Empty(t, lived(t, limited, facts, diagnosis.VolumeOnSystemDisk))

	for _, id := range []diagnosis.ID{diagnosis.VolumeNoDisk, diagnosis.VolumeDiskAmbiguous,
		diagnosis.VolumeOnSystemDisk} {
		require.Empty(t, lived(t, on(whole, "disk.size > 1500u * GB"), facts, id))
		require.Empty(t, lived(t, on("", "disk.size > 1500u * GB"), facts, id))
	}
}

// Before Talos is on a disk, the system disk is the one that the install will take.
func TestTheSystemDiskOfAMachineInMaintenance(t *testing.T) {
	t.Parallel()

	linked := disk("/dev/nvme0n1", "nvme", 1e12)
	linked.TypedSpec().Symlinks = []string{"/dev/disk/by-id/nvme-one"}
	facts := check.Facts{Disks: []*block.Disk{disk("/dev/sda", "sata", 40e9), linked}}

	for name, install := range map[string]string{
		"by its path":   "disk: /dev/sda",
		"by a link":     "disk: /dev/disk/by-id/nvme-one",
		"by a selector": "diskSelector:\n\t\tsize: '>= 500GB'",
		"by nothing":    "diskSelector:\n\t\tsize: '>= 900TB'",
	} {
		made := documents("kind: VolumeConfig\nname: EPHEMERAL\nprovisioning:\n\tdiskSelector:\n\t\tmatch: system_disk")
		made.machine = "install:\n\t" + install

		require.Empty(t, lived(t, made, facts, diagnosis.VolumeNoDisk), name)
	}
}
