// Package proxmox reads how the virtual machines of a cluster are set up, from OpenTofu files or from the API of
// Proxmox VE.
//
// What is not set has the default of who makes the machine: that of the provider in OpenTofu files, that of Proxmox in
// its API's answers. The defaults are those of github.com/bpg/terraform-provider-proxmox
// (docs/resources/virtual_environment_vm.md), of github.com/Telmate/terraform-provider-proxmox
// (docs/resources/vm_qemu.md), and of Proxmox' qm.conf(5).
package proxmox

import "errors"

// VM is a virtual machine, in Proxmox' own words.
type VM struct {
	// Name is the machine's name; empty when it can't be told.
	Name string
	// Where is its id and host, as "101 on pve1"; empty in OpenTofu files.
	Where string
	// MACs are the addresses of its network cards, lower case with colons, and UUID is its firmware's: as far as
	// Proxmox' API tells them.
	MACs []string
	UUID string
	// BIOS is "ovmf" or "seabios".
	BIOS Setting
	// Machine is the machine type, as "q35" or "pc-q35-9.0".
	Machine Setting
	// CPU is the processor type without its flags.
	CPU Setting
	// CPUArguments is set when QEMU is given arguments of its own, which may change the processor.
	CPUArguments bool
	// Cores are those of all sockets.
	Cores Setting
	// Memory is in MiB.
	Memory Setting
	// Balloon is the least memory in MiB, or "0" for no balloon at all.
	Balloon Setting
	// SCSI is the disk controller, as "virtio-scsi-pci".
	SCSI Setting
	// Networks are the models of the network cards, as "virtio".
	Networks []Setting
	// Agent is "true" when the guest agent is on.
	Agent Setting
	// Hotplug are the kinds of hardware that are added while the machine runs, as "disk,network".
	Hotplug Setting
	// PreEnrolledKeys is "true" when the EFI disk comes with Microsoft's keys.
	PreEnrolledKeys Setting
}

// usualHotplug is what Proxmox adds to a running machine if nothing else is said.
const usualHotplug = "network,disk,usb"

// Setting is one setting of a machine, and where it is set.
type Setting struct {
	Value string
	// Known is false when only OpenTofu can tell the value; Why says why, with a place.
	Known bool
	Why   string
	At    Location
}

// Location is where a setting stands. Path is empty for the API's answers.
type Location struct {
	Path         string
	Line, Column int
	Text         string
}

// Is reports whether the setting is known to be one of these.
func (s Setting) Is(values ...string) bool {
	for _, value := range values {
		if s.Known && s.Value == value {
			return true
		}
	}

	return false
}

// ErrNone says that there is nothing that describes machines.
var ErrNone = errors.New("no OpenTofu files describe VMs: set TOFU_DIR, or PROXMOX_VE_ENDPOINT and " +
	"PROXMOX_VE_API_TOKEN")

// UnreadError says that machines may be missing: with it come those that could be read.
type UnreadError struct{ Err error }

func (e UnreadError) Error() string { return e.Err.Error() }

func (e UnreadError) Unwrap() error { return e.Err }
