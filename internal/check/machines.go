package check

import (
	"errors"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check/proxmox"
)

// machines are the virtual machines of the nodes, or why there are none.
type machines struct {
	vms []proxmox.VM
	why string
}

// Machines are the virtual machines of the nodes, or why there are none to look at.
func (in *Input) Machines() ([]proxmox.VM, string) {
	found := Once(in, readVMs)

	return found.vms, found.why
}

// readVMs finds the virtual machines of the nodes, or says why there are none to look at.
func readVMs(in *Input) machines {
	found, why := in.findVMs()

	return machines{found, why}
}

func (in *Input) findVMs() ([]proxmox.VM, string) {
	if in.Options.VMs == nil {
		return nil, "there is nothing about VMs: set TOFU_DIR, or PROXMOX_VE_ENDPOINT and PROXMOX_VE_API_TOKEN"
	}

	machines, err := in.Options.VMs(func(name string) bool {
		return in.Cluster == nil || in.Cluster.Node(in.NodeOfVM(proxmox.VM{Name: name})) != nil
	})

	switch {
	case errors.Is(err, proxmox.ErrNone):
		return nil, err.Error()
	case err != nil:
		return nil, "the VMs can't be read: " + err.Error()
	case len(machines) == 0:
		return nil, "no VM is called like a node"
	default:
		return in.nodesAmong(machines), ""
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
