package match_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/profile"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/discover/match"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

func disk(id string, size uint64, change func(*block.DiskSpec)) *block.Disk {
	made := block.NewDisk(block.NamespaceName, id)
	made.TypedSpec().DevPath, made.TypedSpec().Transport = "/dev/"+id, "sata"
	made.TypedSpec().SetSize(size)
	change(made.TypedSpec())

	return made
}

// The media that a machine was booted from.
func bootMedia() []*block.Disk {
	return []*block.Disk{
		disk("sr0", 400e6, func(d *block.DiskSpec) { d.CDROM, d.Readonly, d.Serial = true, true, "QM00003" }),
		disk("sdb", 16e9, func(d *block.DiskSpec) { d.Transport, d.Serial = "usb", "STICK" }),
		disk("loop0", 70e6, func(d *block.DiskSpec) { d.Transport, d.Readonly = "", true }),
	}
}

func proposed(cluster *inventory.Cluster, result match.Result) string {
	var texts []string
	for _, proposal := range match.Propose(cluster, result) {
		texts = append(texts, proposal.YAML)
	}

	return strings.Join(texts, "\n")
}

func withDisks(made discover.Machine, disks ...*block.Disk) discover.Machine {
	made.Disks = append(bootMedia(), disks...)
	return made
}

func TestProposalsIdentifyMachinesAndDisks(t *testing.T) {
	t.Parallel()

	serial := withDisks(machine(11, macA), disk("sda", 500e9, func(d *block.DiskSpec) { d.Serial = "S3YJNX0M" }))
	wwid := withDisks(machine(12, macB), disk("nvme0n1", 512110190592, func(d *block.DiskSpec) {
		d.Transport, d.WWID, d.Model = "nvme", "eui.0025388b01c2d3e4", "Samsung SSD 970"
	}))
	// Neither tells the disks apart, and the node says which it is.
	model := withDisks(machine(13, "02:00:5e:10:00:0d"),
		disk("sda", 512110190592, func(d *block.DiskSpec) { d.Model, d.Serial = "Fast", "1" }),
		disk("sdc", 4e12, func(d *block.DiskSpec) { d.Model, d.Serial = "Large", "1" }))
	several := withDisks(machine(14, macC, "02:00:5e:10:00:0e"),
		disk("sda", 500e9, func(d *block.DiskSpec) { d.Serial = "ONE" }),
		disk("sdc", 500e9, func(d *block.DiskSpec) { d.Serial = "TWO" }))
	several.Links[1].Up = true

	path := node(3)
	path.InstallDisk = "/dev/sda"

	selected := node(5)
	selected.DiskSelector = "size: >= 100GB"

	nodes := []*inventory.Node{node(1), node(2), path, node(4), selected, node(6, "02:00:5e:10:00:06"), node(7)}
	result := match.Match(nodes,
		[]discover.Machine{serial, wwid, model, several, withDisks(machine(15, "02:00:5e:10:00:0f")),
			withDisks(machine(77, "02:00:5e:10:00:77")), configured(talos.Foreign, "", machine(78))}, match.Options{})

	for name, cluster := range map[string]*inventory.Cluster{
		"talconfig":      {Source: "talos/talconfig.yaml", Contract: config.TalosVersion1_13},
		"talconfig-1.14": {Source: "talos/talconfig.yaml", Contract: config.TalosVersion1_14},
		"profile":        {Source: "talos/cluster.yaml", Profile: &profile.Profile{}, Contract: config.TalosVersion1_13},
	} {
		golden.Assert(t, filepath.Join("testdata", name+".golden"), proposed(cluster, result))
	}
}

// What is pasted is found again, so that the next search matches the machine by its MAC.
func TestAPastedProposalIdentifiesTheMachine(t *testing.T) {
	t.Parallel()

	found := withDisks(machine(11, macA), disk("sda", 500e9, func(d *block.DiskSpec) { d.Serial = "S3YJNX0M" }))
	paste := func(contract *config.VersionContract, profile *profile.Profile) string {
		cluster := &inventory.Cluster{Source: "talconfig.yaml", Contract: contract, Profile: profile}

		return proposed(cluster, match.Match([]*inventory.Node{node(1)}, []discover.Machine{found}, match.Options{}))
	}

	dir := t.TempDir()
	text := "clusterName: lab\nendpoint: https://192.0.2.10:6443\nnodes:\n  - hostname: cp1\n    ipAddress: 192.0.2.11\n" +
		"    controlPlane: true\n    " + strings.ReplaceAll(paste(config.TalosVersion1_13, nil), "\n", "\n    ")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "talconfig.yaml"), []byte(text), 0o600))

	cluster, err := inventory.Load(inventory.Options{TalosDir: dir})
	require.NoError(t, err)
	require.Equal(t, []string{macA}, cluster.Nodes[0].MACs)
	require.Contains(t, cluster.Nodes[0].DiskSelector, "S3YJNX0M")
	require.Equal(t, []string{"cp1 at 192.0.2.11 by MAC"},
		lines(match.Match(cluster.Nodes, []discover.Machine{found}, match.Options{})))

	_, document, _ := strings.Cut(paste(config.TalosVersion1_14, nil), "- |-\n")
	file := filepath.Join(dir, "cp1.yaml")
	text = "version: v1alpha1\nmachine: {type: controlplane}\ncluster: {controlPlane: {endpoint: https://192.0.2.10:6443}}" +
		"\n---\n" + strings.ReplaceAll(document, "    ", "")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "selector:\n", "selector:\n ")), 0o600))

	loaded, err := machineconfig.Load(file)
	require.NoError(t, err)
	require.Equal(t, []string{macA}, loaded.MACs())
}
