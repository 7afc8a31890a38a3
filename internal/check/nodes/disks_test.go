package nodes_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// labDisks are the disks of a machine with one of each kind.
func labDisks() []*block.Disk {
	cd := disk("sr0", 300e6, "sata", "QEMU DVD-ROM", "")
	cd.TypedSpec().CDROM, cd.TypedSpec().Readonly = true, true

	spinning := disk("sdb", 4e12, "sata", "WDC WD40EFRX", "WD-7")
	spinning.TypedSpec().Rotational = true

	return []*block.Disk{
		disk("dm-0", 20e9, "", "", ""),
		disk("nvme0n1", 1e12, "nvme", "Samsung SSD 980", "S73VNU0X303066H"),
		disk("sda", 40e9, "sata", "INTEL SSDSC2", "PHWA1"),
		spinning,
		cd,
	}
}

func labVolumes() []talos.Volume {
	return []talos.Volume{
		{ID: "nvme0n1", Disk: "/dev/nvme0n1", Name: "gpt", Whole: true, Size: 1e12},
		{ID: "nvme0n1p1", Disk: "/dev/nvme0n1", Name: "ext4", Label: "photos", Size: 9e11},
		{ID: "nvme0n1p2", Disk: "/dev/nvme0n1", Label: "swap", Size: 1e11},
		{ID: "sdb", Disk: "/dev/sdb", Name: "zfs", Whole: true, Size: 4e12},
	}
}

func selector(selector v1alpha1.InstallDiskSelector) func(*v1alpha1.Config) {
	return func(config *v1alpha1.Config) {
		config.MachineConfig.MachineInstall.InstallDisk = ""
		config.MachineConfig.MachineInstall.InstallDiskSelector = &selector
	}
}

func named(disk string) func(*v1alpha1.Config) {
	return func(config *v1alpha1.Config) { config.MachineConfig.MachineInstall.InstallDisk = disk }
}

func TestInstallDisk(t *testing.T) {
	t.Parallel()

	linked := labDisks()
	linked[2].TypedSpec().Symlinks = []string{"/dev/disk/by-id/ata-INTEL_PHWA1"}

	for name, test := range map[string]struct {
		install   func(*v1alpha1.Config)
		disks     []*block.Disk
		ambiguous bool
		id        diagnosis.ID
		severity  diagnosis.Severity
	}{
		"selector matches nothing": {
			install: selector(v1alpha1.InstallDiskSelector{Serial: "S73VNU0X30306H"}),
			disks:   labDisks(), id: diagnosis.InstallDiskNoMatch, severity: diagnosis.Failure,
		},
		"selector matches nothing among no disks": {
			install: selector(v1alpha1.InstallDiskSelector{Type: "ssd"}),
			disks:   []*block.Disk{}, id: diagnosis.InstallDiskNoMatch, severity: diagnosis.Failure,
		},
		"selector rules out disks without transport": {
			install: selector(v1alpha1.InstallDiskSelector{Type: "ssd"}),
			disks:   []*block.Disk{disk("xvda", 40e9, "", "", "")}, id: diagnosis.InstallDiskNoMatch,
			severity: diagnosis.Failure,
		},
		"selector matches several": {
			install: selector(v1alpha1.InstallDiskSelector{Type: "ssd"}),
			disks:   labDisks(), id: diagnosis.InstallDiskAmbiguous, severity: diagnosis.Failure,
		},
		"selector matches several and that is allowed": {
			install: selector(v1alpha1.InstallDiskSelector{Type: "ssd"}), ambiguous: true,
			disks: labDisks(), id: diagnosis.InstallDiskAmbiguous, severity: diagnosis.Warning,
		},
		"selector matches one": {
			install: selector(v1alpha1.InstallDiskSelector{Model: "INTEL*"}),
			disks:   labDisks(), id: diagnosis.InstallDiskNoMatch, severity: diagnosis.OK,
		},
		"selector matches one that holds data": {
			install: selector(v1alpha1.InstallDiskSelector{Type: "nvme"}),
			disks:   labDisks(), id: diagnosis.InstallDiskHoldsData, severity: diagnosis.Warning,
		},
		"named disk absent, its place taken by another kind": {
			install: named("/dev/vda"),
			disks:   labDisks(), id: diagnosis.InstallDiskAbsent, severity: diagnosis.Failure,
		},
		"named disk absent, one usable disk": {
			install: named("/dev/sda"),
			disks:   []*block.Disk{disk("vda", 40e9, "virtio", "", "")}, id: diagnosis.InstallDiskAbsent,
			severity: diagnosis.Failure,
		},
		"named disk absent, no guess": {
			install: named("/dev/mmcblk0"),
			disks:   labDisks(), id: diagnosis.InstallDiskAbsent, severity: diagnosis.Failure,
		},
		"named disk is a CD-ROM drive": {
			install: named("/dev/sr0"),
			disks:   labDisks(), id: diagnosis.InstallDiskAbsent, severity: diagnosis.Failure,
		},
		"named disk present": {
			install: named("/dev/sda"),
			disks:   labDisks(), id: diagnosis.InstallDiskNoMatch, severity: diagnosis.OK,
		},
		"named disk present by link": {
			install: named("/dev/disk/by-id/ata-INTEL_PHWA1"),
			disks:   linked, id: diagnosis.InstallDiskNoMatch, severity: diagnosis.OK,
		},
		"named link on a node that tells no links": {
			install: named("/dev/disk/by-id/ata-INTEL_PHWA1"),
			disks:   labDisks(), id: diagnosis.InstallDiskAbsent, severity: diagnosis.Warning,
		},
		"named disk holds data": {
			install: named("/dev/sdb"),
			disks:   labDisks(), id: diagnosis.InstallDiskHoldsData, severity: diagnosis.Warning,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f := newFixture(t)
			f.patch(t, "cp1", test.install)
			f.options.AllowAmbiguousDisk = test.ambiguous

			facts := goodFacts()
			facts.Disks, facts.Volumes = test.disks, labVolumes()

			finding := the(t, f.checkNode(t, "cp1", facts), test.id)
			require.Equal(t, test.severity, finding.Severity, finding.Cause)
			require.Equal(t, test.severity != diagnosis.OK, finding.Next != "")

			if test.severity == diagnosis.Failure {
				require.Equal(t, diagnosis.ExitPreflight, finding.ExitCode())
			}

			golden.Assert(t, filepath.Join("testdata", "disks", fileName(name)+".txt"),
				finding.Cause+"\nNext: "+finding.Next+"\n")
		})
	}
}

func TestTalosOnADiskIsNoReinstall(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		state    talos.State
		severity diagnosis.Severity
	}{
		"in maintenance": {talos.Maintenance, diagnosis.Warning},
		"configured":     {talos.Ours, diagnosis.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f := newFixture(t)
			f.patch(t, "cp1", named("/dev/nvme0n1")) // not there, which does not matter any more

			facts := goodFacts()
			facts.State, facts.Installed, facts.SystemDisk = test.state, true, "/dev/vda"

			findings := f.checkNode(t, "cp1", facts)
			finding := the(t, findings, diagnosis.AlreadyInstalled)

			require.Equal(t, test.severity, finding.Severity)
			require.Contains(t, finding.Cause, "/dev/vda")

			if test.severity == diagnosis.Warning {
				require.Equal(t, "Talos is already on /dev/vda: install section ignored (its disk is /dev/nvme0n1), no reinstall",
					finding.Cause)
			}

			require.Empty(t, failures(findings), "%+v", findings)
		})
	}
}

func TestUnreadDisksAreNotJudged(t *testing.T) {
	t.Parallel()

	f := newFixture(t)
	facts := goodFacts()
	facts.Disks = nil
	facts.Unread = []check.Unread{{What: "disks", Err: talos.ErrNotAllowed}}

	findings := f.checkNode(t, "cp1", facts)

	require.Empty(t, failures(findings), "%+v", findings)
	require.Contains(t, the(t, findings, diagnosis.FactUnread).Cause, "disks")
}

// fileName makes a test's name that of a golden file.
func fileName(name string) string {
	return strings.NewReplacer(" ", "-", ",", "").Replace(name)
}
