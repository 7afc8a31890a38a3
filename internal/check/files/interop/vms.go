package interop

import (
	"slices"
	"strconv"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/files/images"
	"github.com/talos-mage/talos-mage/internal/check/proxmox"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// vmReport judges one machine.
type vmReport struct {
	*check.Report

	vm   proxmox.VM
	node string
	// gap is the setting that could not be judged, and why.
	gap, why string
}

// eachVM is a check of single machines. What it can't judge is told as not run.
func eachVM(id diagnosis.ID, needs diagnosis.Need, run func(*vmReport)) check.Check {
	judge := func(r *check.Report, in *check.Input) []check.NotRun {
		machines, _ := in.Machines()

		var (
			gaps      []check.NotRun
			what, why string
		)

		for _, vm := range machines {
			judged := &vmReport{Report: r, vm: vm, node: in.NodeOfVM(vm)}
			if run(judged); judged.gap != "" {
				what, why = judged.gap, judged.why
				gaps = append(gaps, check.NotRun{ID: id, Node: judged.node, Why: "its " + what + " is not known: " + why})
			}
		}

		if len(gaps) > 0 && len(gaps) == len(machines) {
			gaps = []check.NotRun{{ID: id, Why: "no VM's " + what + " is known: " + why}}
		}

		if unread := in.UnreadVMs(); unread != "" {
			gaps = append(gaps, check.NotRun{ID: id, Why: unread})
		}

		return gaps
	}

	return check.Whole(id, check.Interop, needs, func(r *check.Report, in *check.Input) { judge(r, in) }).
		Except(func(in *check.Input) []check.NotRun { return judge(&check.Report{In: in}, in) })
}

// known reports whether a setting can be judged, and remembers it if not.
func (r *vmReport) known(setting proxmox.Setting, what string) bool {
	if !setting.Known {
		r.gap, r.why = what, setting.Why
	}

	return setting.Known
}

func (r *vmReport) tell(severity diagnosis.Severity, setting proxmox.Setting, change, cause string, args ...any) {
	r.Add(severity, check.Elsewhere(diagnosis.Location{Path: setting.At.Path, Line: setting.At.Line,
		Column: setting.At.Column,
		Text:   setting.At.Text}), change, cause, args...)
	r.Last().Node = r.node
}

// isControlPlaneVM reports whether the machine is a control plane; false for a machine that is no node.
func (r *vmReport) isControlPlane() bool {
	node := r.In.Cluster.Node(r.node)

	return node != nil && node.Role == inventory.ControlPlane
}

// machineConfig is the config of the node; nil if the machine is none.
func (r *vmReport) machineConfig() *check.Rendered {
	for _, config := range r.In.Configs {
		if config.Name == r.node {
			return config
		}
	}

	return nil
}

const guestAgent = "siderolabs/qemu-guest-agent"

// agentMissing reports whether the node's image is known to be without the guest agent.
func (r *vmReport) agentMissing(config *check.Rendered) bool {
	made := images.MadeOf(r.In, config)

	return made != nil && !slices.Contains(made.Customization.SystemExtensions.OfficialExtensions, guestAgent)
}

// checkFirmware looks for machines that their image does not boot on, and for a guest agent that is not in it.
func checkFirmware(r *vmReport) {
	config, bios := r.machineConfig(), r.vm.BIOS
	secure := config != nil && config.SecureBootImage()

	if config != nil && r.vm.Agent.Is("true") && r.agentMissing(config) {
		r.tell(diagnosis.Warning, r.vm.Agent, "add "+guestAgent+" to the schematic, or turn the agent off",
			"the guest agent is on, and the installer image has none (%s)", r.In.Locate(config.InstallPlace("image")))
	}

	switch {
	case !r.known(bios, "bios"):
	case bios.Value != "ovmf" && secure:
		r.tell(diagnosis.Failure, bios, "set bios to ovmf", "the installer image is for SecureBoot, and the BIOS is %s",
			bios.Value)
	case bios.Value != "ovmf":
		r.tell(diagnosis.Warning, bios, "set bios to ovmf", "the BIOS is %s, not ovmf (UEFI)", bios.Value)
	case secure && r.vm.PreEnrolledKeys.Is("true"):
		r.tell(diagnosis.Warning, r.vm.PreEnrolledKeys, "make the EFI disk without pre-enrolled keys",
			"the EFI disk comes with Microsoft's keys, and the installer image is for SecureBoot")
	}
}

// bareProcessors have less than x86-64-v2.
var bareProcessors = []string{"kvm32", "kvm64", "qemu32", "qemu64", "486", "pentium", "pentium2", "pentium3", "coreduo",
	"athlon", "x86-64-v1"}

// checkProcessor looks for machines that Talos stops on.
func checkProcessor(r *vmReport) {
	if machine := r.vm.Machine; r.known(machine, "machine type") && !strings.Contains(machine.Value, "q35") {
		r.tell(diagnosis.Warning, machine, "set machine to q35", "the machine type is %s, not q35", machine.Value)
	}

	switch cpu := r.vm.CPU; {
	case r.vm.CPUArguments, !r.known(cpu, "processor type"):
	case slices.Contains(bareProcessors, strings.ToLower(cpu.Value)):
		r.tell(diagnosis.Warning, cpu, "set the processor type to host",
			"the processor type %s lacks what Talos needs (x86-64-v2)", cpu.Value)
	case cpu.Value != "host":
		r.tell(diagnosis.OK, cpu, "set the processor type to host, unless the VM is to be moved while it runs",
			"the processor type is %s", cpu.Value)
	}
}

// checkBallooning looks for memory that comes and goes.
func checkBallooning(r *vmReport) {
	if balloon := r.vm.Balloon; r.known(balloon, "balloon") && balloon.Value != "0" {
		r.tell(diagnosis.Warning, balloon, "turn ballooning off: balloon 0", "ballooning is on")
	}

	if hotplug := r.vm.Hotplug; r.known(hotplug, "hotplug") && strings.Contains(hotplug.Value, "memory") {
		r.tell(diagnosis.Warning, hotplug, "take memory out of hotplug", "memory is added while the VM runs (hotplug %s)",
			hotplug.Value)
	}
}

// checkDiskController looks for controllers that the bootstrap hangs on.
func checkDiskController(r *vmReport) {
	switch scsi := r.vm.SCSI; {
	case !r.known(scsi, "disk controller"):
	case scsi.Value == "virtio-scsi-single":
		r.tell(diagnosis.Warning, scsi, "use virtio-scsi-pci", "the disk controller is VirtIO SCSI single")
	case scsi.Value != "virtio-scsi-pci":
		r.tell(diagnosis.Warning, scsi, "use virtio-scsi-pci", "the disk controller is %s", scsi.Value)
	}
}

// checkNetworkModel looks for network cards that are emulated.
func checkNetworkModel(r *vmReport) {
	for _, model := range r.vm.Networks {
		if r.known(model, "network model") && model.Value != "virtio" {
			r.tell(diagnosis.Warning, model, "use the model virtio", "a network card is a %s", model.Value)
		}
	}
}

// size is what a machine has at least: cores and memory in MiB.
type size struct{ cores, memory int }

// leastSizes and goodSizes are by whether the node is a control plane. Talos itself takes a little off the least, for
// the kernel.
var (
	leastSizes = map[bool]size{true: {2, 1848}, false: {1, 1024}}
	goodSizes  = map[bool]size{true: {2, 4096}, false: {4, 8192}}
)

// checkResources looks for machines that are too small.
func checkResources(r *vmReport) {
	if r.In.Cluster.Node(r.node) == nil {
		return // its role is not known
	}

	least, good := leastSizes[r.isControlPlane()], goodSizes[r.isControlPlane()]

	compare := func(setting proxmox.Setting, what, unit string, least, good int) {
		value, err := strconv.Atoi(setting.Value)

		switch {
		case !r.known(setting, what) || err != nil:
		case value < least:
			r.tell(diagnosis.Warning, setting, "give it more", "it has %s %d%s, and needs %d%s", what, value, unit, least, unit)
		case value < good:
			r.tell(diagnosis.OK, setting, "give it "+strconv.Itoa(good)+unit, "it has %s %d%s, and %d%s are recommended", what,
				value, unit, good, unit)
		}
	}

	compare(r.vm.Cores, "cores", "", least.cores, good.cores)
	compare(r.vm.Memory, "memory", " MiB", least.memory, good.memory)
}
