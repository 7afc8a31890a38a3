package steps_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/discover/match"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/talos"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// What people read of a search in which everything that may go wrong does.
func TestWhatDiscoverSaysOfMatching(t *testing.T) {
	t.Parallel()

	found := func(last int, mac string, state talos.State) discover.Machine {
		disk := block.NewDisk(block.NamespaceName, "sda")
		disk.TypedSpec().DevPath, disk.TypedSpec().Transport, disk.TypedSpec().Serial = "/dev/sda", "sata", "S3YJNX0M"
		disk.TypedSpec().SetSize(500e9)

		machine := discover.Machine{Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(last)})}, State: state}
		if mac != "" {
			machine.MACs, machine.Version, machine.Disks = []string{mac}, "v1.13.9", []*block.Disk{disk}
			machine.Links = []talos.Link{{Name: "eth0", MAC: mac, Physical: true, Up: true}}
		}

		return machine
	}

	declared := func(name string, last int, macs ...string) *inventory.Node {
		return &inventory.Node{Name: name, Hostname: name, Address: fmt.Sprintf("192.0.2.%d", last), MACs: macs, Line: last}
	}

	nodes := []*inventory.Node{
		declared("cp1", 11, "02:00:5e:10:00:01"), declared("cp2", 12), declared("cp3", 13, "02:00:5e:10:00:03"),
		declared("worker1", 21, "02:00:5e:10:00:21"), declared("worker2", 22), declared("worker3", 23),
	}
	machines := []discover.Machine{
		found(12, "02:00:5e:10:00:02", talos.Maintenance), found(50, "02:00:5e:10:00:01", talos.Maintenance),
		found(51, "02:00:5e:10:00:03", talos.Maintenance), found(52, "02:00:5e:10:00:03", talos.Maintenance),
		found(53, "02:00:5e:10:00:99", talos.Maintenance), found(23, "", talos.Foreign), found(60, "", talos.Foreign),
	}

	show := func(options match.Options, nodes []*inventory.Node, machines []discover.Machine) string {
		cluster := &inventory.Cluster{Source: "talos/talconfig.yaml", Nodes: nodes, Contract: config.TalosVersion1_13}
		result := match.Match(nodes, machines, options)
		discovery := steps.Discovery{Machines: machines, Matched: result, Proposals: match.Propose(cluster, result)}

		return discovery.Table(120) + "\n" + discovery.Remarks()
	}

	golden.Assert(t, filepath.Join("testdata", "discover", "matching.txt"),
		show(match.Options{}, nodes, machines))
	golden.Assert(t, filepath.Join("testdata", "discover", "bycount.txt"), show(match.Options{ByCount: true},
		[]*inventory.Node{declared("cp2", 12), declared("cp10", 13)},
		[]discover.Machine{found(100, "02:00:5e:10:00:02", talos.Maintenance),
			found(99, "02:00:5e:10:00:01", talos.Maintenance)}))
}

// byNode is which node's each machine is taken for, by the machine's name.
func (l *lab) byNode(found *steps.Discovery) map[string]string {
	matched := map[string]string{}

	for _, pair := range found.Matched.Pairs {
		for _, node := range l.Nodes {
			if node.Address() == pair.Address {
				matched[node.Name()] = pair.Node.Name + " by " + pair.By
			}
		}
	}

	return matched
}

// Two machines stand where the other belongs; beside them are one that nobody declares, and another cluster's.
func TestSwappedMachinesAreMatchedBesideOthersOnTheirSubnet(t *testing.T) {
	t.Parallel()

	swap := func(with int) func(*emulator.NodeOptions) {
		return func(node *emulator.NodeOptions) {
			address := node.Address.As4()
			address[3] = byte(int(address[3]) + with)
			node.Links[0].MAC = fmt.Sprintf("52:54:00:%02x:%02x:%02x", address[1], address[2], address[3])
		}
	}

	lab := newLab(t, 2, 1, edit("cp1", swap(1)), edit("cp2", swap(-1)))

	extra, err := lab.Lab.Start(emulator.NodeOptions{Name: "spare", Address: lab.Lab.MachineAddress(5),
		Links: []emulator.Link{{Name: "eth0", MAC: "52:54:00:ff:ff:ff"}}})
	require.NoError(t, err)

	secrets, err := clusterfiles.ForeignSecrets()
	require.NoError(t, err)

	theirs := lab.Lab.MachineAddress(6)
	other, err := clusterfiles.Make(clusterfiles.Options{ClusterName: "other", CNI: "none", Secrets: secrets,
		Endpoint: "https://" + netip.AddrPortFrom(theirs, emulator.KubernetesPort).String(),
		Nodes: []clusterfiles.Node{{Name: "cp1", Role: machine.TypeControlPlane,
			Address: netip.PrefixFrom(theirs, lab.Lab.Prefix().Bits())}}})
	require.NoError(t, err)

	foreign, err := lab.Lab.Start(emulator.NodeOptions{Name: "theirs", Address: theirs, Config: other.Configs[0].Bytes})
	require.NoError(t, err)

	lab.untilMaintenance(t)
	wait(t, extra, inStage("maintenance"))
	require.Eventually(t, func() bool {
		return new(talos.Dialer).Probe(t.Context(), foreign.Endpoint()).Configured()
	}, patience, time.Millisecond)

	found := lab.discovered(t, "DISCOVER_CIDR="+lab.Lab.MachineAddress(0).String()+"-"+theirs.String())
	require.Equal(t, map[string]string{"cp1": "cp2 by MAC", "cp2": "cp1 by MAC", "worker1": "worker1 by MAC"},
		lab.byNode(found))
	require.Len(t, found.Matched.Extra, 2)
	require.Equal(t, talos.Foreign, found.Matched.Extra[1].State, "another cluster's cp1 is not ours")
	require.Equal(t, "the same command with -save; then mage preflight", found.Next)
}

// A configured node of ours is known by its host name, and by nothing else of another cluster's.
func TestConfiguredNodesAreMatchedByTheirNames(t *testing.T) {
	t.Parallel()

	lab := newLab(t, 1, 0)
	lab.installed(t)

	found := lab.discovered(t)
	require.Equal(t, map[string]string{"cp1": "cp1 by MAC, host name"}, lab.byNode(found))
	require.Equal(t, "mage status", found.Next)
}

func TestDiscoverFailsForNodesWithoutAMachine(t *testing.T) {
	t.Parallel()

	lab := newLab(t, 1, 2, edit("worker1", func(node *emulator.NodeOptions) { node.Links[0].MAC = "52:54:00:ff:ff:ff" }))
	lab.Node("worker2").PowerOff()
	wait(t, lab.Node("cp1"), inStage("maintenance"))
	wait(t, lab.Node("worker1"), inStage("maintenance"))

	step := &steps.Discover{}
	run := lab.session(t).do(t, step)
	require.Equal(t, diagnosis.ExitPreflight, steps.CodeOf(run.err))
	require.NotNil(t, step.Found, "what was found is shown all the same")
	require.ErrorContains(t, run.err, "but the machine has 52:54:00:ff:ff:ff, declared is 52:54:00:")
	require.ErrorContains(t, run.err, "worker2")
	require.ErrorContains(t, run.err, "none of the machines that answer is its machine")

	// Only the nodes that are asked for count.
	lab.session(t, "NODE=cp1").succeeds(t, &steps.Discover{})
}

// Where nothing tells machines apart, the declared address does, or the order if that is asked for.
func TestMachinesThatNothingIdentifiesAreMatchedByAddressOrCount(t *testing.T) {
	t.Parallel()

	noMACs := func(options *labcluster.Options) { options.NoMACs = true }

	lab := newLab(t, 1, 1, noMACs)
	lab.untilMaintenance(t)

	found := lab.discovered(t)
	require.Equal(t, map[string]string{"cp1": "cp1 by address", "worker1": "worker1 by address"}, lab.byNode(found))
	require.Len(t, found.Proposals, 2)

	moved := newLab(t, 1, 1, noMACs, edit("cp1", func(node *emulator.NodeOptions) {
		address := node.Address.As4()
		address[3] += 20
		node.Address = netip.AddrFrom4(address)
	}))
	moved.untilMaintenance(t)

	moved.session(t).fails(t, diagnosis.ExitPreflight, diagnosis.MachineMissing, &steps.Discover{})

	found = moved.discovered(t, "-matchByCount=true")
	require.Equal(t, map[string]string{"cp1": "cp1 by count", "worker1": "worker1 by address"}, moved.byNode(found))
}

// Where the files say no MAC, those of the VMs that Proxmox has under the nodes' names do; two VMs here have each
// other's address.
func TestMachinesAreMatchedByTheirVMsOnProxmox(t *testing.T) {
	t.Parallel()

	lab := newLab(t, 1, 2, func(options *labcluster.Options) { options.NoMACs = true })
	lab.untilMaintenance(t)

	machineOf := map[string]string{"cp1": "worker1", "worker1": "cp1", "worker2": "worker2"}
	names := slices.Sorted(maps.Keys(machineOf))

	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var data any

		switch path := strings.TrimPrefix(request.URL.Path, "/api2/json/"); path {
		case "cluster/resources":
			vms := []map[string]any{{"vmid": 99, "name": "unrelated", "node": "pve1", "type": "qemu"}}
			for i, name := range names {
				vms = append(vms, map[string]any{"vmid": 100 + i, "name": name, "node": "pve1", "type": "qemu"})
			}

			data = vms
		default:
			var id int

			_, err := fmt.Sscanf(path, "nodes/pve1/qemu/%d/config", &id)
			if err != nil || id < 100 {
				http.Error(w, path, http.StatusNotFound)

				return
			}

			mac := lab.Node(machineOf[names[id-100]]).Options().Links[0].MAC
			data = map[string]any{"net1": "virtio=BC:24:11:00:00:01,bridge=vmbr1",
				"net0": "virtio=" + strings.ToUpper(mac) + ",bridge=vmbr0"}
		}

		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}))
	t.Cleanup(host.Close)

	found := lab.discovered(t, "PROXMOX_VE_ENDPOINT="+host.URL,
		"PROXMOX_VE_API_TOKEN=root@pam!discover=00000000-0000-4000-8000-000000000001")
	require.Equal(t, map[string]string{"cp1": "worker1 by Proxmox", "worker1": "cp1 by Proxmox",
		"worker2": "worker2 by Proxmox"}, lab.byNode(found))
}
