package nodes_test

import (
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// readFrom starts one emulated machine in maintenance mode and reads its facts.
func readFrom(t *testing.T, options emulator.NodeOptions) check.Facts {
	t.Helper()

	lab, err := emulator.NewLab(emulator.LabOptions{TimeScale: 100})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })

	node, err := lab.Start(options)
	require.NoError(t, err)

	dialer := &talos.Dialer{}
	address := node.Address().String()

	// The machine needs a moment to boot.
	var conn *talos.Conn

	require.Eventually(t, func() bool {
		conn, err = dialer.Maintenance(t.Context(), address)

		return err == nil
	}, 30*time.Second, 20*time.Millisecond, "the machine does not answer")

	defer conn.Close()

	return check.ReadFacts(t.Context(), conn)
}

func TestFactsOfAMachineThatFits(t *testing.T) {
	t.Parallel()

	facts := readFrom(t, emulator.NodeOptions{
		Name: "cp1",
		UUID: "00000000-0000-4000-8000-000000000011",
		Links: []emulator.Link{{Name: "eth0", MAC: "02:00:00:00:00:11"},
			{Name: "bond0", MAC: "02:00:00:00:00:12", Virtual: true}},
		Disks:      []emulator.Disk{{Name: "vda", Size: 40e9, Transport: "virtio", Serial: "V001"}},
		SecureBoot: true,
		Cmdline:    "talos.platform=metal net.ifnames=0",
	})

	require.Empty(t, facts.Unread)
	require.NotEmpty(t, facts.Address)
	require.Equal(t, "v1.13.9", facts.Version)
	require.Equal(t, "00000000-0000-4000-8000-000000000011", facts.System.UUID)
	require.Equal(t, &talos.Security{SecureBoot: true}, facts.Security)
	require.Equal(t, "talos.platform=metal net.ifnames=0", facts.Cmdline)
	require.NotEmpty(t, facts.Addresses)
	require.False(t, facts.Installed)
	require.Len(t, facts.Disks, 1)
	require.Equal(t, "/dev/vda", facts.Disks[0].TypedSpec().DevPath)

	names := make(map[string]bool)
	for _, link := range facts.Links {
		names[link.Name] = link.Physical
	}

	require.True(t, names["eth0"])
	require.False(t, names["bond0"])
}

func TestLiveMachinesAreJudged(t *testing.T) {
	t.Parallel()

	links := []emulator.Link{{Name: "eth0", MAC: "02:00:00:00:00:11"}}
	twoDisks := []emulator.Disk{
		{Name: "nvme0n1", Size: 1e12, Transport: "nvme",
			Volumes: []emulator.Volume{{Filesystem: "ext4", Label: "photos", Size: 1e12}}},
		{Name: "sda", Size: 40e9, Transport: "sata"},
	}

	for name, test := range map[string]struct {
		machine  emulator.NodeOptions
		spoil    func(*testing.T, *fixture)
		failures []diagnosis.ID
		warnings []diagnosis.ID
	}{
		"fits": {
			machine: emulator.NodeOptions{Links: links},
		},
		"another machine": {
			machine:  emulator.NodeOptions{Links: links},
			spoil:    func(_ *testing.T, f *fixture) { f.cluster.Node("cp1").MACs = []string{"02:00:00:00:00:99"} },
			failures: []diagnosis.ID{diagnosis.WrongMachine},
		},
		"older Talos": {
			machine:  emulator.NodeOptions{Links: links, TalosVersion: "v1.12.1"},
			spoil:    func(_ *testing.T, f *fixture) { f.cluster.KubernetesVersion = "v1.35.0" },
			failures: []diagnosis.ID{diagnosis.TalosVersionMismatch, diagnosis.KubernetesUnsupported},
		},
		"several disks match": {
			machine:  emulator.NodeOptions{Links: links, Disks: twoDisks},
			spoil:    func(t *testing.T, f *fixture) { f.patch(t, "cp1", selector(v1alpha1.InstallDiskSelector{Type: "ssd"})) },
			failures: []diagnosis.ID{diagnosis.InstallDiskAmbiguous},
		},
		"install disk absent, link absent": {
			machine: emulator.NodeOptions{Links: []emulator.Link{{Name: "ens18", MAC: "02:00:00:00:00:11"}},
				Disks: twoDisks[1:]},
			failures: []diagnosis.ID{diagnosis.InstallDiskAbsent, diagnosis.LinkAbsent},
		},
		"Talos on a disk": {
			machine:  emulator.NodeOptions{Links: links, Installed: true},
			warnings: []diagnosis.ID{diagnosis.AlreadyInstalled},
		},
		"SecureBoot": {
			machine:  emulator.NodeOptions{Links: links, SecureBoot: true, UKI: true},
			failures: []diagnosis.ID{diagnosis.InstallerSecureBoot},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f := newFixture(t)
			if test.spoil != nil {
				test.spoil(t, f)
			}

			test.machine.Name = "cp1"
			findings := f.checkNode(t, "cp1", readFrom(t, test.machine))

			require.Equal(t, test.failures, failures(findings), "%+v", findings)
			require.Equal(t, test.warnings, warnings(findings), "%+v", findings)
		})
	}
}

// Talos 1.12 tells as much, and is asked for more: an installed machine in maintenance mode judges an install section
// that it does not need.
func TestLiveMachinesOfTalos112AreJudged(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		installed bool
		change    func(*v1alpha1.Config)
		failures  []diagnosis.ID
		warnings  []diagnosis.ID
		says      string
	}{
		"fits": {},
		"installed": {
			installed: true, warnings: []diagnosis.ID{diagnosis.AlreadyInstalled},
		},
		"installed, no install section": {
			installed: true, change: func(c *v1alpha1.Config) { c.MachineConfig.MachineInstall = nil },
			failures: []diagnosis.ID{diagnosis.ConfigRefusedHere}, warnings: []diagnosis.ID{diagnosis.AlreadyInstalled},
			says: "nothing says how Talos is to be installed",
		},
		"installed, no disk matches": {
			installed: true, change: selector(v1alpha1.InstallDiskSelector{Model: "NOPE*"}),
			failures: []diagnosis.ID{diagnosis.ConfigRefusedHere}, warnings: []diagnosis.ID{diagnosis.AlreadyInstalled},
			says: "no disks matched the expression",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f := newFixture(t, func(options *clusterfiles.Options) { options.TalosVersion = "v1.12.1" })
			f.cluster.TalosVersion = "v1.12.1"

			if test.change != nil {
				f.patch(t, "cp1", test.change)
			}

			facts := readFrom(t, emulator.NodeOptions{
				Name: "cp1", TalosVersion: "v1.12.1", Installed: test.installed,
				Links: []emulator.Link{{Name: "eth0", MAC: "02:00:00:00:00:11"}},
			})
			require.Empty(t, facts.Unread)

			facts.State = talos.Maintenance
			findings := f.checkNode(t, "cp1", facts)

			require.Equal(t, test.failures, failures(findings), "%+v", findings)
			require.Equal(t, test.warnings, warnings(findings), "%+v", findings)

			if test.says != "" {
				require.Contains(t, the(t, findings, diagnosis.ConfigRefusedHere).Cause, test.says)
			}
		})
	}
}

func TestReadsThatFailLeaveTheRestRead(t *testing.T) {
	t.Parallel()

	f, facts := newFixture(t), goodFacts()
	facts.Security = nil
	facts.Unread = []check.Unread{{What: "security state", Err: talos.ErrNotAllowed},
		{What: "hostname", Err: talos.ErrNotAllowed}}

	findings := f.checkNode(t, "cp1", facts)

	require.Empty(t, failures(findings))
	require.Equal(t, []diagnosis.ID{diagnosis.FactUnread}, warnings(findings), "one for each reason")
	require.Contains(t, findings[0].Cause, "security state, hostname")
	require.Equal(t, "mage preflight -node=cp1", findings[0].Next)
}
