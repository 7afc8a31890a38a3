package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// mixup is a kind of trouble with machines and addresses that are not what the inventory says.
type mixup struct {
	name string
	draw func(random *rand.Rand, plan *Plan, node string) (incidents []Incident, fits bool)
}

var mixups = []mixup{
	{"another address", drawAddress},
	{"swapped machines", drawSwap},
	{"swapped leases", drawLeases},
	{"undeclared machine", drawUndeclared},
	{"another cluster's node", drawForeign},
	{"another node's config", drawConfused},
	{"former etcd data", drawFormerEtcd},
}

// elsewhere is where the DHCP server puts a machine that gets another lease: beyond the addresses of all machines.
func (w *world) elsewhere(node string) netip.Addr {
	const beyond = 100

	return w.lab.MachineAddress(beyond + w.plan.number(node))
}

// drawAddress is another DHCP lease once the machine has its config.
func drawAddress(_ *rand.Rand, _ *Plan, node string) ([]Incident, bool) {
	return []Incident{{
		Node: node, Words: "gets another address once it has its config", Class: away, At: Moment{Anchor: Before},
		equip: func(w *world, options *emulator.NodeOptions) error {
			options.Faults.AddressAfter = w.elsewhere(node)

			return nil
		},
	}}, true
}

// partner is another machine of the plan of the same role.
func partner(random *rand.Rand, plan *Plan, node string) (string, bool) {
	var others []string

	for _, machine := range plan.Machines {
		if machine.Name != node && machine.ControlPlane == plan.machine(node).ControlPlane {
			others = append(others, machine.Name)
		}
	}

	if len(others) == 0 {
		return "", false
	}

	return pick(random, others...), true
}

// drawSwap is two machines, each plugged in where the other belongs. Only a declared MAC tells.
func drawSwap(random *rand.Rand, plan *Plan, node string) ([]Incident, bool) {
	other, found := partner(random, plan, node)
	if !found || !plan.DeclaredMACs {
		return nil, false
	}

	swap := func(node, other string) Incident {
		return Incident{
			Node: node, Other: other, Words: fmt.Sprintf("stands where %s belongs", other), Class: wrongMachine,
			At: Moment{Anchor: Before},
			equip: func(w *world, options *emulator.NodeOptions) error {
				options.Links = w.links(other)

				return nil
			},
		}
	}

	return []Incident{swap(node, other), swap(other, node)}, true
}

// drawLeases is a DHCP server that gives two machines each other's address once they have their configs.
func drawLeases(random *rand.Rand, plan *Plan, node string) ([]Incident, bool) {
	other, found := partner(random, plan, node)
	if !found || !plan.DHCP {
		return nil, false
	}

	swap := func(node, other string) Incident {
		return Incident{
			Node: node, Other: other, Words: fmt.Sprintf("gets the address of %s once it has its config", other), Class: moved,
			At: Moment{Anchor: Before},
			equip: func(w *world, options *emulator.NodeOptions) error {
				options.Faults.AddressAfter = w.address(other)

				return nil
			},
		}
	}

	return []Incident{swap(node, other), swap(other, node)}, true
}

// drawUndeclared is a machine that the inventory does not know, in the place of one that it does.
func drawUndeclared(_ *rand.Rand, plan *Plan, node string) ([]Incident, bool) {
	return []Incident{{
		Node: node, Words: "is another machine than the declared one", Class: wrongMachine, At: Moment{Anchor: Before},
		equip: func(_ *world, options *emulator.NodeOptions) error {
			options.Links = []emulator.Link{{Name: "eth0", MAC: undeclaredMAC}}

			return nil
		},
	}}, plan.DeclaredMACs
}

// undeclaredMAC is no declared machine's.
const undeclaredMAC = "52:54:00:ff:ff:ff"

// drawForeign is a machine that runs in another cluster.
func drawForeign(_ *rand.Rand, _ *Plan, node string) ([]Incident, bool) {
	return []Incident{{
		Node: node, Words: "is another cluster's node", Class: foreignNode, At: Moment{Anchor: Before},
		equip: func(w *world, options *emulator.NodeOptions) error {
			config, err := foreignConfig(w, options.Address)
			options.Config = config

			return err
		},
	}}, true
}

// foreignConfig is another cluster's control plane's: a worker of that cluster would have no API without one.
func foreignConfig(w *world, address netip.Addr) ([]byte, error) {
	secrets, err := clusterfiles.ForeignSecrets()
	if err != nil {
		return nil, err
	}

	generated, err := clusterfiles.Make(clusterfiles.Options{
		ClusterName: "other",
		Endpoint:    "https://" + netip.AddrPortFrom(address, emulator.KubernetesPort).String(),
		CNI:         "none",
		Secrets:     secrets,
		Nodes: []clusterfiles.Node{{Name: "theirs", Role: machine.TypeControlPlane,
			Address: netip.PrefixFrom(address, w.lab.Prefix().Bits())}},
	})
	if err != nil {
		return nil, err
	}

	return generated.Configs[0].Bytes, nil
}

// drawConfused is a machine that somebody gave another node's config. Where configs have addresses it would have moved
// there.
func drawConfused(random *rand.Rand, plan *Plan, node string) ([]Incident, bool) {
	other, found := partner(random, plan, node)

	return []Incident{{
		Node: node, Other: other, Words: "has the config of " + other + " already", Class: swapped,
		At: Moment{Anchor: Before},
		equip: func(w *world, options *emulator.NodeOptions) error {
			options.Config = w.config(other)

			return nil
		},
	}}, found && plan.DHCP
}

// drawFormerEtcd is a control plane whose disk holds an etcd from an earlier life.
func drawFormerEtcd(random *rand.Rand, plan *Plan, node string) ([]Incident, bool) {
	data, words := emulator.WholeEtcdData, "holds the data of an etcd that it was the only member of"
	if random.IntN(2) == 0 {
		data, words = emulator.LostEtcdData, "holds the data of an etcd whose other members are gone"
	}

	return []Incident{{
		Node: node, Words: words, Class: otherEtcd, At: Moment{Anchor: Before}, hasEtcd: true,
		equip: func(w *world, options *emulator.NodeOptions) error {
			options.EtcdData, options.EtcdKubernetes = data, "v"+w.generated.Options.KubernetesVersion

			return nil
		},
	}}, plan.machine(node).ControlPlane
}
