package check

import (
	"errors"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check/proxmox"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
)

// machines are the virtual machines of the nodes, or why there are none.
type machines struct {
	vms []proxmox.VM
	why string
	// unread says what may make more of them.
	unread string
}

// Machines are the virtual machines of the nodes, or why there are none to look at.
func (in *Input) Machines() ([]proxmox.VM, string) {
	found := Once(in, readVMs)

	return found.vms, found.why
}

// UnreadVMs says why VMs of nodes may be missing among the machines; empty when each node has one.
func (in *Input) UnreadVMs() string {
	found := Once(in, readVMs)

	hasVM := func(node *inventory.Node) bool {
		return slices.ContainsFunc(found.vms, func(vm proxmox.VM) bool { return in.NodeOfVM(vm) == node.Name })
	}

	if in.Cluster == nil ||
		!slices.ContainsFunc(in.Cluster.Nodes, func(node *inventory.Node) bool { return !hasVM(node) }) {
		return ""
	}

	return found.unread
}

// readVMs finds the virtual machines of the nodes, or says why there are none to look at.
func readVMs(in *Input) machines {
	if in.Options.VMs == nil {
		return machines{why: "there is nothing about VMs: set TOFU_DIR, or PROXMOX_VE_ENDPOINT and PROXMOX_VE_API_TOKEN"}
	}

	found, err := in.Options.VMs(func(name string) bool {
		return in.Cluster == nil || in.Cluster.Node(in.NodeOfVM(proxmox.VM{Name: name})) != nil
	})

	var unread proxmox.UnreadError

	switch {
	case errors.As(err, &unread) && len(found) > 0:
		return machines{vms: in.nodesAmong(found), unread: err.Error()}
	case errors.Is(err, proxmox.ErrNone):
		return machines{why: err.Error()}
	case err != nil:
		return machines{why: "the VMs can't be read: " + err.Error()}
	case len(found) == 0:
		return machines{why: "no VM is called like a node"}
	default:
		return machines{vms: in.nodesAmong(found)}
	}
}

// nodesAmong are the machines that are nodes of the inventory, or may be. If no name is a node's, the machines are
// called otherwise, and all may be.
func (in *Input) nodesAmong(machines []proxmox.VM) []proxmox.VM {
	if in.Cluster == nil || !slices.ContainsFunc(machines,
		func(vm proxmox.VM) bool { return in.Cluster.Node(in.NodeOfVM(vm)) != nil }) {
		return machines
	}

	return slices.DeleteFunc(slices.Clone(machines),
		func(vm proxmox.VM) bool { return vm.Name != "" && in.Cluster.Node(in.NodeOfVM(vm)) == nil })
}

// NodeOfVM is the name of the inventory's node that a machine is; the machine's own, if it is none.
func (in *Input) NodeOfVM(vm proxmox.VM) string {
	if in.Cluster != nil {
		for _, node := range in.Cluster.Nodes {
			if strings.EqualFold(node.Name, vm.Name) || strings.EqualFold(node.Hostname, vm.Name) {
				return node.Name
			}
		}
	}

	if vm.Name == "" {
		return "a VM without a name"
	}

	return vm.Name
}
