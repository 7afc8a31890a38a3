package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// Scenario is a lab and what happens in it.
type Scenario struct {
	// Scale is how many times as fast as the wall clock time passes on the nodes. Default 20.
	Scale float64
	// Discovery makes the nodes find each other without the cluster's endpoint.
	Discovery bool
	// Cluster is what the cluster's files declare.
	Cluster Cluster
	// Timing is that of every node that has no timing of its own.
	Timing emulator.Timing
	// Nodes are those that differ from a sound one, by name: control planes are cp1, cp2 and so on, workers worker1 and so
	// on.
	Nodes map[string]Node
	// Workloads are what runs on the cluster beside its own pods.
	Workloads []kubernetes.Workload
	// ConfigMaps are what the cluster holds beside its own.
	ConfigMaps []kubernetes.ConfigMap
	// Events are what happens while the nodes run.
	Events []Event
}

// Cluster is the cluster whose files are made.
type Cluster struct {
	// Name is the cluster's name. Default "lab".
	Name string
	// ControlPlanes is how many there are, 1 to 50. Default 3.
	ControlPlanes int
	// Workers is how many there are, 0 to 1500. Default 3.
	Workers int
	// Endpoint is what the cluster's endpoint is. Default vip.
	Endpoint labcluster.EndpointKind
	// CNI is none, flannel or custom. Default none.
	CNI string
	// TalosVersion is what the nodes run and the files are for. Default v1.13.9.
	TalosVersion string
	// Contract is the release whose form the machine configs have, as in v1.14. Default that of talosVersion, at the most
	// v1.13.
	Contract string
	// AutoHostnames leaves the host names to the nodes.
	AutoHostnames bool
	// DHCP leaves the addresses out of the machine configs.
	DHCP bool
}

// Node is how one node differs from a sound one.
type Node struct {
	// TalosVersion is the release that it runs. Default that of the cluster.
	TalosVersion string
	// Address is where it answers in maintenance mode, as by DHCP: the last part of an address in the lab's block. Default
	// the declared one.
	Address netip.Addr
	// UUID is the SMBIOS UUID. Default made from the name.
	UUID string
	// Links are its network links. Default one physical link eth0 with the MAC that the inventory declares.
	Links []emulator.Link
	// Disks are its disks. Default one empty 50 GB virtio disk, vda.
	Disks []emulator.Disk
	// SecureBoot reports whether it booted with SecureBoot.
	SecureBoot bool
	// UKI reports whether it was booted from a unified kernel image.
	UKI bool
	// Cmdline is the kernel command line. Default that of the metal image.
	Cmdline string
	// Extensions are the system extensions of the image that it booted from.
	Extensions []emulator.Extension
	// Schematic is the image factory's id of that image.
	Schematic string
	// Installed reports whether Talos is on its first disk already, so that it needs no install.
	Installed bool
	// EtcdData is what a control plane's etcd directory holds from an earlier life.
	EtcdData emulator.EtcdData
	// Timing is how long things take on it.
	Timing emulator.Timing
	// Faults are what is wrong with it from the start.
	Faults emulator.Faults
}

// Action is what an event does.
type Action int

// Actions of events.
const (
	// Set gives a node other faults in the place of those that it has.
	Set Action = iota
	// Heal takes all faults of a node back.
	Heal
	// PowerOff cuts a node's power.
	PowerOff
	// PowerOn switches a node on.
	PowerOn
	// Cordon is an administrator who keeps new pods off a node.
	Cordon
	// Uncordon is one who lets them on it again.
	Uncordon
)

// Event is something that happens to a node.
type Event struct {
	// At is when, in node time since the nodes were switched on.
	At time.Duration
	// Node is the name of the node.
	Node string
	// Do is what happens. Default set.
	Do Action
	// Faults are what is wrong with the node from then on; of set alone.
	Faults emulator.Faults
}

// String tells of the event, as in "30s: cp1 powerOff".
func (e Event) String() string {
	return fmt.Sprintf("%s: %s %s", e.At, e.Node, words[reflect.TypeFor[Action]()][e.Do])
}

// Load reads a scenario. What can't be played is refused, each mistake with its line, field and reason.
func Load(path string) (*Scenario, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the user names it
	if err != nil {
		return nil, fmt.Errorf("read scenario: %w", err)
	}

	return Parse(path, data)
}

// Parse reads a scenario from a file's content; path is for messages alone.
func Parse(path string, data []byte) (*Scenario, error) {
	made := &Scenario{Scale: labcluster.DemoScale, Cluster: Cluster{ControlPlanes: 3, Workers: 3}}

	places, err := decode(path, data, made)
	if err != nil {
		return nil, err
	}

	if err := made.check(places); err != nil {
		return nil, err
	}

	return made, nil
}

// Names are those of all nodes, control planes first.
func (s *Scenario) Names() []string {
	var names []string

	for i := range s.Cluster.ControlPlanes {
		names = append(names, fmt.Sprintf("cp%d", i+1))
	}

	for i := range s.Cluster.Workers {
		names = append(names, fmt.Sprintf("worker%d", i+1))
	}

	return names
}

// Options are those of a labcluster that has the scenario's nodes.
func (s *Scenario) Options() labcluster.Options {
	options := labcluster.Options{
		Name:          s.Cluster.Name,
		ControlPlanes: s.Cluster.ControlPlanes,
		Workers:       s.Cluster.Workers,
		Endpoint:      s.Cluster.Endpoint,
		CNI:           s.Cluster.CNI,
		TalosVersion:  s.Cluster.TalosVersion,
		Contract:      s.Cluster.Contract,
		AutoHostnames: s.Cluster.AutoHostnames,
		DHCP:          s.Cluster.DHCP,
		Timing:        s.Timing,
		LabOptions: emulator.LabOptions{TimeScale: s.Scale, Discovery: s.Discovery, Workloads: s.Workloads,
			ConfigMaps: s.ConfigMaps},
		Edit: s.edit,
	}

	// Labclusters take 0 for their default.
	if options.Workers == 0 {
		options.Workers = -1
	}

	return options
}

// edit makes a machine what the scenario says of it.
func (s *Scenario) edit(machine *emulator.NodeOptions) {
	node, ok := s.Nodes[machine.Name]
	if !ok {
		return
	}

	if node.TalosVersion != "" {
		machine.TalosVersion = node.TalosVersion
	}

	if node.Address.IsValid() {
		machine.Address = inBlock(node.Address, machine.Address)
	}

	if len(node.Links) > 0 {
		machine.Links = node.Links
	}

	if node.Timing != (emulator.Timing{}) {
		machine.Timing = node.Timing
	}

	machine.UUID, machine.Disks, machine.SecureBoot, machine.UKI = node.UUID, node.Disks, node.SecureBoot, node.UKI
	machine.Cmdline, machine.Extensions, machine.Schematic = node.Cmdline, node.Extensions, node.Schematic
	machine.Installed, machine.EtcdData = node.Installed, node.EtcdData
	machine.Faults = faultsInBlock(node.Faults, machine.Address)
}

// events are in the order in which they happen.
func (s *Scenario) events() []Event {
	return slices.SortedStableFunc(slices.Values(s.Events), func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}

// named are the nodes that the scenario tells about, in order.
func (s *Scenario) named() []string { return slices.Sorted(maps.Keys(s.Nodes)) }
