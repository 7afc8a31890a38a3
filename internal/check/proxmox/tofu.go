package proxmox

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check/proxmox/tofu"
)

// FromTofu reads the machines that OpenTofu files make: proxmox_virtual_environment_vm of the bpg provider and
// proxmox_vm_qemu of Telmate's. shown is how people are told a path. Machines that are templates for others are left
// out. With an UnreadError come those that could be read.
func FromTofu(folder string, shown func(path string) string) ([]VM, error) {
	module, err := tofu.Read(folder, shown)
	if err != nil {
		return nil, err
	}

	bpg, err := module.Resources("proxmox_virtual_environment_vm")
	if err != nil {
		return nil, err
	}

	telmate, err := module.Resources("proxmox_vm_qemu")
	if err != nil {
		return nil, err
	}

	var machines []VM

	for _, resource := range bpg {
		if template, set := resource.Attribute("template"); !set || template.Text != "true" {
			machines = append(machines, fromBPG(resource))
		}
	}

	for _, resource := range telmate {
		machines = append(machines, fromTelmate(resource))
	}

	if unread := module.Unread(); len(unread) > 0 {
		return machines, UnreadError{errors.New(
			"modules that come from elsewhere are not read, and may make VMs: " + strings.Join(unread, ", "))}
	}

	return machines, nil
}

// source is a block that settings are taken out of.
type source struct {
	tofu.Block

	// unset says why what is not set can't be told: it comes from a template, or from a block that may be made. Without
	// it that has the provider's default.
	unset string
}

// setting is an attribute, or its default.
func (s source) setting(name, byDefault string) Setting {
	value, set := s.Attribute(name)
	if !set || value.Null {
		return Setting{Value: byDefault, Known: s.unset == "", Why: s.unset, At: location(s.At)}
	}

	return Setting{Value: value.Text, Known: value.Known, Why: value.Why, At: location(value.At)}
}

// inner is the first block of a type, or an empty one that has all defaults.
func (s source) inner(kind string) source {
	blocks, untold := s.Blocks(kind)
	if len(blocks) > 0 {
		return source{blocks[0], s.unset}
	}

	return source{tofu.Block{At: s.At}, cmp.Or(s.unset, untold)}
}

// has reports whether there is, or may be, a block of a type.
func (s source) has(kind string) bool {
	blocks, untold := s.Blocks(kind)

	return len(blocks) > 0 || untold != ""
}

// all are the settings of all blocks of a type.
func (s source) all(kind, name, byDefault string) []Setting {
	var found []Setting

	blocks, untold := s.Blocks(kind)
	for _, block := range blocks {
		found = append(found, source{block, s.unset}.setting(name, byDefault))
	}

	if untold != "" {
		found = append(found, Setting{Why: untold, At: location(s.At)})
	}

	return found
}

func fromTemplate(resource tofu.Resource) string {
	return fmt.Sprintf("it may come from the template that is cloned (%s)", resource.At)
}

func location(at tofu.Position) Location {
	return Location{Path: at.Path, Line: at.Line, Column: at.Column, Text: at.Text}
}

// nameOf is the machine's name, or the key that stands for it.
func nameOf(resource tofu.Resource) string {
	if name, set := resource.Attribute("name"); set && name.Known {
		return name.Text
	}

	if resource.Key == "" && !resource.Several {
		return resource.Name
	}

	return resource.Key
}

// cpuType takes the flags off a processor type.
func cpuType(setting Setting) Setting {
	setting.Value, _, _ = strings.Cut(setting.Value, ",")

	return setting
}

// times multiplies the cores by the sockets.
func times(cores, sockets Setting) Setting {
	one, err := strconv.Atoi(cores.Value)
	other, err2 := strconv.Atoi(sockets.Value)

	cores.Why = cmp.Or(cores.Why, sockets.Why)

	if cores.Known = cores.Known && sockets.Known && err == nil && err2 == nil; cores.Known {
		cores.Value = strconv.Itoa(one * other)
	}

	return cores
}

func fromBPG(resource tofu.Resource) VM {
	vm := source{Block: resource.Block}
	if vm.has("clone") {
		vm.unset = fromTemplate(resource)
	}

	cpu, memory := vm.inner("cpu"), vm.inner("memory")
	_, arguments := vm.Attribute("kvm_arguments")

	made := VM{
		Name: nameOf(resource), BIOS: vm.setting("bios", "seabios"), Machine: vm.setting("machine", "pc"),
		CPU:          cpuType(cpu.setting("type", "qemu64")),
		CPUArguments: arguments, Cores: times(cpu.setting("cores", "1"), cpu.setting("sockets", "1")),
		Memory:  memory.setting("dedicated", "512"),
		Balloon: memory.setting("floating", "0"), SCSI: vm.setting("scsi_hardware", "virtio-scsi-pci"),
		Agent: vm.inner("agent").setting("enabled", "false"), Hotplug: vm.setting("hotplug", usualHotplug),
	}

	if vm.has("efi_disk") {
		made.PreEnrolledKeys = vm.inner("efi_disk").setting("pre_enrolled_keys", "false")
	}

	made.Networks = vm.all("network_device", "model", "virtio")

	return made
}

func fromTelmate(resource tofu.Resource) VM {
	_, cloned := resource.Attribute("clone")
	_, clonedByID := resource.Attribute("clone_id")
	_, arguments := resource.Attribute("args")

	vm := source{Block: resource.Block}
	if cloned || clonedByID {
		vm.unset = fromTemplate(resource)
	}

	made := VM{
		Name: nameOf(resource), BIOS: vm.setting("bios", "seabios"), Machine: vm.setting("machine", "pc"),
		CPUArguments: arguments,
		Memory:       vm.setting("memory", "512"), Balloon: vm.setting("balloon", "0"), SCSI: vm.setting("scsihw", "lsi"),
		Agent: enabled(vm.setting("agent", "0")), Hotplug: vm.setting("hotplug", usualHotplug),
	}

	// Version 3 has a block, earlier ones attributes.
	if vm.has("cpu") {
		cpu := vm.inner("cpu")
		made.CPU, made.Cores = cpuType(cpu.setting("type", "host")),
			times(cpu.setting("cores", "1"), cpu.setting("sockets", "1"))
	} else {
		made.CPU, made.Cores = cpuType(vm.setting("cpu_type", "host")),
			times(vm.setting("cores", "1"), vm.setting("sockets", "1"))

		if _, set := vm.Attribute("cpu"); set {
			made.CPU = cpuType(vm.setting("cpu", "host"))
		}
	}

	if vm.has("efidisk") {
		made.PreEnrolledKeys = enabled(vm.inner("efidisk").setting("pre_enrolled_keys", "false"))
	}

	made.Networks = vm.all("network", "model", "")

	return made
}

// enabled has true for 1.
func enabled(setting Setting) Setting {
	if setting.Value == "1" {
		setting.Value = "true"
	}

	return setting
}
