package steps_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/talos"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// discovered is what a search in a lab finds.
func (l *lab) discovered(t *testing.T, environ ...string) *steps.Discovery {
	t.Helper()

	step := &steps.Discover{}
	l.session(t, environ...).succeeds(t, step)
	require.NotNil(t, step.Found)

	return step.Found
}

// DHCP gives machines other addresses than the declared ones, in the same network.
func TestMachinesAreFoundInTheNetworksOfTheInventory(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 2, func(options *labcluster.Options) {
		options.Edit = func(node *emulator.NodeOptions) {
			last := node.Address.As4()
			last[3] += 90
			node.Address = netip.AddrFrom4(last)
		}
	})
	l.untilMaintenance(t)

	found := l.discovered(t)
	require.Len(t, found.Machines, 3)

	for i, machine := range found.Machines {
		require.Equal(t, l.Nodes[i].Address(), machine.Address())
		require.Equal(t, []string{l.Generated.Options.Nodes[i].MAC}, machine.MACs)
	}

	require.Contains(t, found.Next, "mage preflight")
}

// Two clusters share a subnet: ours is read with the talosconfig, of the other its certificate tells.
func TestMachinesOfTwoClustersAreToldApart(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, throughFirst)
	l.untilMaintenance(t)

	foreign, err := clusterfiles.ForeignSecrets()
	require.NoError(t, err)

	cluster, err := labcluster.New(filepath.Join(l.folder, "other"), labcluster.Options{Name: "other", ControlPlanes: 1,
		Workers: -1, Secrets: foreign, Lab: l.Lab, Endpoint: labcluster.FirstControlPlane, DHCP: true,
		LabOptions: emulator.LabOptions{TimeScale: scale},
		Edit:       func(node *emulator.NodeOptions) { node.Name, node.Address = "other1", l.Lab.Address(77) }})
	require.NoError(t, err)

	other := &lab{cluster, l.folder}
	wait(t, other.Node("other1"), inStage("maintenance"))

	config, err := cluster.Config("cp1")
	require.NoError(t, err)
	other.applyInsecurely(t, "other1", config)
	l.session(t).succeeds(t, steps.Apply{}, steps.Verify{})
	wait(t, other.Node("other1"), inStage("booting"))

	states := map[talos.State]discover.Machine{}
	for _, machine := range l.discovered(t).Machines {
		states[machine.State] = machine
	}

	require.Equal(t, "cp1", states[talos.Ours].Hostname)
	require.NotEmpty(t, states[talos.Ours].MACs)
	require.NoError(t, states[talos.Ours].Err)
	require.NotEmpty(t, states[talos.Foreign].CertificateNames)
	require.Empty(t, states[talos.Foreign].MACs)
	require.ErrorIs(t, states[talos.Foreign].Err, talos.ErrForeignCA)
}

// A machine that is still off is found the next time.
func TestWhereNothingAnswersWhatToDoIsNamed(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.untilMaintenance(t)
	l.Nodes[0].PowerOff()

	problem := l.session(t).fails(t, diagnosis.ExitPreflight, diagnosis.NothingAnswers, &steps.Discover{})
	require.Contains(t, problem.Cause, "none of 254 addresses in "+l.Lab.Prefix().String()+" answers on port 50000")
	require.Contains(t, problem.Cause, "253 refused: a router or firewall may do so for them", "as loopback does")
	require.Contains(t, problem.Next, "mage discover -cidr=")

	l.Nodes[0].PowerOn()
	wait(t, l.Nodes[0], inStage("maintenance"))
	require.Len(t, l.discovered(t).Machines, 1)
}

func TestNetworksThatNobodyShouldAskAreBadInput(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)

	for setting, want := range map[string]string{
		"DISCOVER_CIDR=10.0.0.0/40": `DISCOVER_CIDR: "10.0.0.0/40" is no network`,
		"-cidr=8.8.8.0/24":          "-cidr: 8.8.8.0/24 is a public network",
		"-cidr=10.0.0.0/19":         "-cidr: 10.0.0.0/19 has 8190 addresses",
		"-cidr=fd00::/64":           "-cidr: fd00::/64 has more than 4096 addresses",
	} {
		problem := l.session(t, setting).fails(t, diagnosis.ExitBadInput, diagnosis.BadSetting, &steps.Discover{})
		require.Contains(t, problem.Cause, want)
	}
}

// someMachines are one of each kind.
func someMachines(t *testing.T) *steps.Discovery {
	t.Helper()

	networks, err := discover.ParseNetworks([]string{"192.168.1.0/24", "fd00::100-fd00::1ff"}, false)
	require.NoError(t, err)

	at := func(texts ...string) (addresses []netip.Addr) {
		for _, text := range texts {
			addresses = append(addresses, netip.MustParseAddr(text))
		}

		return addresses
	}

	disk := func(name, transport string, size uint64) *block.Disk {
		made := block.NewDisk(block.NamespaceName, name)
		*made.TypedSpec() = block.DiskSpec{Size: size, Transport: transport, CDROM: name == "sr0", Model: "Model of " + name,
			Serial: "S-" + name}

		return made
	}

	const fingerprint = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

	return &steps.Discovery{
		Networks: networks,
		Progress: discover.Progress{Asked: 510, Total: 510, Answers: 6, Refused: 2},
		Machines: []discover.Machine{
			{Addresses: at("192.168.1.57", "192.168.1.58", "fd00::157"), State: talos.Maintenance, Version: "v1.13.9",
				MACs: []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}, UUID: "4c4c4544-0042-3510-8056-b4c04f564433",
				Serial: "7BX0VD3", Hostname: "talos-8ox-5df", SecureBoot: true, UKI: true, Fingerprint: fingerprint,
				Disks: []*block.Disk{disk("loop0", "", 75e6), disk("nvme0n1", "nvme", 1e12), disk("sda", "sata", 4e12),
					disk("sdb", "sata", 4e12), disk("sdc", "sata", 4e12), disk("sdd", "sata", 4e12), disk("sr0", "sata", 2e9)}},
			{Addresses: at("192.168.1.60"), State: talos.Ours, Version: "v1.14.1", MACs: []string{"52:54:00:00:00:03"},
				UUID: "00000000-0000-0000-0000-000000000003", Hostname: "cp1", UKI: true, Fingerprint: fingerprint,
				CertificateNames: []string{"cp1", "192.168.1.60"}, Disks: []*block.Disk{disk("vda", "virtio", 50e9)}},
			{Addresses: at("192.168.1.61"), State: talos.Foreign, Hostname: "db1", Fingerprint: fingerprint,
				CertificateNames: []string{"db1", "192.168.1.61"}, Err: talos.ErrForeignCA},
			{Addresses: at("192.168.1.99"), State: talos.NotTalos, Err: errors.Join(talos.ErrNotTalos)},
		},
		Next: "say which node is where",
	}
}

func TestATableOfMachines(t *testing.T) {
	t.Parallel()

	table := someMachines(t).Table(0)
	golden.Assert(t, filepath.Join("testdata", "discover", "table.golden"), table)

	for line := range strings.Lines(table) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
	}
}

func TestADocumentOfMachines(t *testing.T) {
	t.Parallel()

	golden.Assert(t, filepath.Join("testdata", "discover", "document.golden"), someMachines(t).JSON())
}
