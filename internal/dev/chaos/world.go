package chaos

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// endpointHost is the host part of a VIP's or balancer's address; the machines' are the lab's to give.
const endpointHost = 10

const clusterName = "chaos"

// world is the machines of a plan and the files of its operators.
type world struct {
	plan *Plan
	lab  *emulator.Lab
	// folder is the first operator's; others have one beside it.
	folder    string
	generated *clusterfiles.Files
	scale     float64

	mu sync.Mutex
	// machines are those that stand where the inventory says, by the node's name; removed are the ones that a healing
	// replaced.
	machines map[string]*emulator.Node
	removed  []*emulator.Node
	strikes  []Strike
	// care gets the calls that take nodes down; nil while nobody looks after the cluster.
	care *Care
	// gone are the nodes in whose place nothing stands, for good.
	gone map[string]bool
	// doubles are the programs of the operator's computer that are played, apps what those of applications keep; nil for
	// none.
	doubles *doubles
	apps    *appStore
	// changes are how many the programs have made; sound is set once none of them is to fail any more.
	changes int
	sound   bool
	// upgrading is the upgrade of Kubernetes that has begun; nil for none.
	upgrading *KubernetesUpgrade
	// macs are those of machines that were declared later, in the place of others.
	macs map[string]string
}

// newWorld makes the files and switches the machines on.
func newWorld(plan *Plan, folder string, scale float64) (*world, error) {
	w := &world{plan: plan, folder: folder, scale: scale, machines: map[string]*emulator.Node{},
		gone: map[string]bool{}, macs: map[string]string{}}

	var err error

	w.lab, err = emulator.NewLab(emulator.LabOptions{TimeScale: scale, Discovery: plan.Discovery, Watch: w.watch,
		Workloads: plan.workloads()})
	if err != nil {
		return nil, err
	}

	if err := w.build(); err != nil {
		w.close()

		return nil, err
	}

	return w, nil
}

func (w *world) close() {
	if w.doubles != nil {
		w.doubles.close()
	}

	w.lab.Close() //nolint:errcheck // a lab always closes
}

func (w *world) build() error {
	options := clusterfiles.Options{
		ClusterName: clusterName, CNI: constants.NoneCNI,
		TalosVersion: w.plan.oldestTalos(), // a newer Talos takes the config too
	}

	if w.plan.Documents {
		options.Contract = newestForm
	}

	if w.plan.OwnCNI {
		options.CNI = constants.FlannelCNI
	}

	endpoint := w.lab.Address(endpointHost)

	switch w.plan.Endpoint {
	case VIP:
		options.VIP = endpoint
	case NodeAddress:
		endpoint = w.address(w.plan.Machines[0].Name)
	}

	options.Endpoint = "https://" + netip.AddrPortFrom(endpoint, emulator.KubernetesPort).String()

	for _, planned := range w.plan.Machines {
		options.Nodes = append(options.Nodes, w.spec(planned))
	}

	var err error
	if w.generated, err = clusterfiles.Make(options); err != nil {
		return err
	}

	if err := w.generated.Write(w.talosDir()); err != nil {
		return fmt.Errorf("write cluster files: %w", err)
	}

	for _, planned := range w.plan.Machines {
		if err := w.start(planned, true); err != nil {
			return err
		}
	}

	if w.plan.Endpoint != Balancer {
		return nil
	}

	var controlPlanes []*emulator.Node
	for _, name := range w.plan.ControlPlanes() {
		controlPlanes = append(controlPlanes, w.machines[name])
	}

	return w.lab.Balance(endpoint, []uint16{emulator.KubernetesPort, emulator.TrustdPort, emulator.APIPort},
		controlPlanes...)
}

func (w *world) spec(planned Machine) clusterfiles.Node {
	address := w.address(planned.Name)
	spec := clusterfiles.Node{Name: planned.Name, Role: machine.TypeWorker, Declared: address.String()}

	if planned.ControlPlane {
		spec.Role = machine.TypeControlPlane
	}

	if w.plan.DeclaredMACs {
		spec.MAC = w.links(planned.Name)[0].MAC
	}

	if !w.plan.DHCP {
		spec.Address = netip.PrefixFrom(address, w.lab.Prefix().Bits())
	}

	return spec
}

func (w *world) talosDir() string { return filepath.Join(w.folder, "talos") }

// address is where the inventory says that a node answers.
func (w *world) address(name string) netip.Addr { return w.lab.MachineAddress(w.plan.number(name)) }

// firstLease is the number of the first address that a lease can be for, after those of all machines.
const firstLease = 40

// lease is the address that a machine has in maintenance: the seed shifts them against each other.
func (w *world) lease(name string) netip.Addr {
	shifted := (uint64(w.plan.number(name)) + w.plan.Seed) % uint64(len(w.plan.Machines)) //nolint:gosec // never negative

	return w.lab.MachineAddress(firstLease + int(shifted)) //nolint:gosec // a small number
}

// search are the settings with which operators look for the machines.
func (w *world) search() []string {
	if !w.plan.Leases {
		return nil
	}

	return []string{"DISCOVER=true", fmt.Sprintf("DISCOVER_CIDR=%s-%s", w.lab.MachineAddress(0),
		w.lab.MachineAddress(firstLease+len(w.plan.Machines)-1))}
}

// links are those of the machine that a node's declaration is about.
func (w *world) links(name string) []emulator.Link {
	last := w.address(name).As4()
	mac := cmp.Or(w.macs[name], net.HardwareAddr{0x52, 0x54, 0x00, last[1], last[2], last[3]}.String())

	return []emulator.Link{{Name: "eth0", MAC: mac}}
}

// config is a node's machine config.
func (w *world) config(name string) []byte { return w.generated.Configs[w.plan.number(name)].Bytes }

// start switches a machine on, with the mix-ups and the faults that it has from the beginning, or sound.
func (w *world) start(planned Machine, troubled bool) error {
	options := emulator.NodeOptions{
		Name: planned.Name, Address: w.address(planned.Name), TalosVersion: planned.TalosVersion, Timing: planned.Timing,
		Links: w.links(planned.Name),
	}

	if w.plan.Leases {
		options.Address = w.lease(planned.Name)
	}

	var begin []Incident

	for _, incident := range w.plan.Incidents {
		if !troubled || incident.Node != planned.Name || incident.At.Anchor != Before {
			continue
		}

		if incident.equip != nil {
			if err := incident.equip(w, &options); err != nil {
				return err
			}
		}

		begin = append(begin, incident)
	}

	node, err := w.lab.Start(options)
	if err != nil {
		return err
	}

	w.mu.Lock()
	w.machines[planned.Name] = node
	w.mu.Unlock()

	for _, incident := range begin {
		w.strike(incident)
	}

	return nil
}

// node is the machine that stands where a node belongs.
func (w *world) node(name string) *emulator.Node {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.machines[name]
}

// everyMachine is those that stand and those that were removed.
func (w *world) everyMachine() []*emulator.Node {
	return append(w.lab.Nodes(), w.removed...)
}

// settle waits until every machine that can has booted: into maintenance, or as far as it comes without others.
func (w *world) settle(ctx context.Context) {
	const enough = 90 * time.Second

	waiting, stop := w.lab.Clock().WithTimeout(ctx, enough)
	defer stop()

	for _, planned := range w.plan.Machines {
		if !w.isGone(planned.Name) {
			w.node(planned.Name).WaitFor(waiting, settled) //nolint:errcheck // a machine that has a fault may never
		}
	}
}

func settled(node *emulator.Node) bool {
	return node.Stage() == "maintenance" || node.Stage() == "running"
}

// makeFolders makes what an operator's settings point to.
func makeFolders(folders ...string) error {
	for _, folder := range folders {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}

	return nil
}
