package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/sequence"
)

// CheckReset finds fault with a request, in the words of a node: none of these errors has a code.
func (p *phases) CheckReset(ctx context.Context, request *machineapi.ResetRequest) error {
	if len(request.GetUserDisksToWipe()) > 0 && request.GetMode() == machineapi.ResetRequest_SYSTEM_DISK {
		return errors.New("reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter")
	}

	for _, device := range request.GetUserDisksToWipe() {
		i := slices.IndexFunc(p.boot.Node.options.Disks, func(d Disk) bool { return "/dev/"+d.Name == device })

		switch {
		case i < 0:
			return fmt.Errorf("reset user disk failed: device %s wasn't found", device)
		case p.boot.Node.options.Disks[i].Readonly:
			return fmt.Errorf("reset user disk failed: device %s is readonly", device)
		case p.boot.Node.options.Disks[i].Name == p.boot.Node.ReadDrive().SystemDisk:
			return fmt.Errorf("reset user disk failed: device %s is the system disk", device)
		}
	}

	if len(request.GetSystemPartitionsToWipe()) > 0 && request.GetMode() == machineapi.ResetRequest_USER_DISKS {
		return errors.New("reset failed: invalid input, wipe mode USER_DISKS doesn't support SystemPartitionsToWipe " +
			"parameter")
	}

	wiped := map[string]bool{}
	for _, partition := range request.GetSystemPartitionsToWipe() {
		wiped[partition.GetLabel()] = wiped[partition.GetLabel()] || partition.GetWipe()
	}

	for _, partition := range request.GetSystemPartitionsToWipe() {
		volume, err := safe.StateGetByID[*block.VolumeStatus](ctx, p.boot.Resources.Own, partition.GetLabel())
		if err != nil {
			return fmt.Errorf("failed to get volume status with label %q: %w", partition.GetLabel(), err)
		}

		parent := volume.TypedSpec().MountSpec.ParentID

		switch {
		case volume.TypedSpec().Location != "", p.boot.Release.NestedVolumes && wiped[parent]:
		case p.boot.Release.NestedVolumes && parent != "":
			return fmt.Errorf("failed to reset: volume %q resides on volume %q, and therefore %q cannot be wiped without "+
				"wiping %q", partition.GetLabel(), parent, partition.GetLabel(), parent)
		default:
			return fmt.Errorf("failed to reset: volume %q is not located", partition.GetLabel())
		}
	}

	return nil
}

// Reset leave the cluster in order if that is asked for, stop everything, wipe, and reboot or switch the machine
// off.
func (p *phases) Reset(request *machineapi.ResetRequest) []sequence.Phase {
	var phases []sequence.Phase

	partitions := slices.DeleteFunc(slices.Clone(request.GetSystemPartitionsToWipe()),
		func(spec *machineapi.ResetPartitionSpec) bool { return !spec.GetWipe() })
	boots := slices.ContainsFunc(partitions,
		func(spec *machineapi.ResetPartitionSpec) bool { return spec.GetLabel() == constants.BootPartitionLabel })
	kexec := len(partitions) > 0 && !boots

	cleanup := sequence.Single("cleanup", "stopAllPods", p.stopAllPods)

	if request.GetGraceful() {
		if p.boot.Kubelet.registers() {
			drain := sequence.Single("drain", "cordonAndDrainNode", p.boot.Kubelet.cordonAndDrain)
			phases = append(phases, p.boot.Sequences.Warned(drain)...)
		}

		cleanup = sequence.Single("cleanup", "removeAllPods", p.stopAllPods)
	}

	phases = append(append(phases, p.boot.Sequences.Warned(cleanup)...), p.stopDBus()...)

	if request.GetGraceful() && p.boot.Config.Role().IsControlPlane() {
		phases = append(phases, sequence.Single("leave", "leaveEtcd", p.boot.Etcd.leave))
	}

	phases = append(phases, sequence.Single("preReset", "sendResetSignal", func(context.Context) error {
		p.boot.Resources.put(runtimeres.NewMachineResetSignal())

		return nil
	}))
	phases = append(phases, p.boot.Sequences.Warned(p.stopAll(kexec)...)...)
	phases = append(phases, sequence.Single("forceCleanup", "forceCleanup", p.failToWipe))
	phases = append(phases, p.wipe(request, partitions)...)

	command := int64(commandRestart)
	if kexec && p.kexecs() {
		command = commandKexec
	}

	if request.GetReboot() && p.boot.Node.Faults().Reset != faults.ResetPowersOff {
		return append(phases, p.restart(command))
	}

	return append(phases, p.powerOff())
}

// failToWipe fails where nothing can be wiped: a reset that fails ends in a reboot.
func (p *phases) failToWipe(context.Context) error {
	if p.boot.Node.Faults().Reset != faults.ResetWipeFails {
		return nil
	}

	return errors.New("failed wiping partition STATE: failed to open device: device or resource busy")
}

// wipe wipe the named partitions, or without any the whole system disk, and the named other disks.
func (p *phases) wipe(request *machineapi.ResetRequest, partitions []*machineapi.ResetPartitionSpec) []sequence.Phase {
	var phases []sequence.Phase

	if request.GetMode() != machineapi.ResetRequest_USER_DISKS {
		phases = append(phases, p.wipeSystem(request, partitions))
	}

	if len(request.GetUserDisksToWipe()) > 0 && request.GetMode() != machineapi.ResetRequest_SYSTEM_DISK {
		phases = append(phases, sequence.Single("resetUserDisks", "resetUserDisks", func(context.Context) error {
			for _, device := range request.GetUserDisksToWipe() {
				p.boot.Log("wiping user disk %s", device)
				p.boot.Node.EditDrive(func(d *Drive) { d.WipeDisk(device) })
			}

			return nil
		}))
	}

	return phases
}

func (p *phases) wipeSystem(request *machineapi.ResetRequest,
	partitions []*machineapi.ResetPartitionSpec) sequence.Phase {
	if len(partitions) > 0 {
		return sequence.Single("resetSpec", "resetSystemDiskSpec", func(context.Context) error {
			for _, partition := range partitions {
				p.boot.Log("wiping volume %q", partition.GetLabel())
				p.boot.Node.EditDrive(func(d *Drive) { d.wipePartition(partition.GetLabel()) })
			}

			p.boot.Log("successfully reset system disk by the spec")

			return nil
		})
	}

	return sequence.Single("reset", "resetSystemDisk", func(context.Context) error {
		// Partitions that were named only to be spared spare the disk as well: Talos finds nothing to wipe then.
		if len(request.GetSystemPartitionsToWipe()) == 0 {
			p.boot.Node.EditDrive((*Drive).wipeSystemDisk)
		}

		return nil
	})
}

// wipeSystemDisk clears the whole disk that Talos is on, its boot loader included.
func (d *Drive) wipeSystemDisk() { *d = Drive{Meta: map[uint8]string{}, wiped: d.wiped} }

// WipeDisk clears a disk, named as in "/dev/vdb".
func (d *Drive) WipeDisk(device string) { d.wiped = append(slices.Clone(d.wiped), device) }

// wipePartition clears a system partition and drops it. What has a partition of its own is not in EPHEMERAL.
func (d *Drive) wipePartition(label string) {
	d.unallocated = d.unallocated || label == constants.EphemeralPartitionLabel || slices.Contains(d.own, label)
	d.own = slices.DeleteFunc(slices.Clone(d.own), func(own string) bool { return own == label })

	switch label {
	case constants.StatePartitionLabel:
		d.config, d.identity = nil, ""
	case constants.EphemeralPartitionLabel:
		for _, volume := range promotable {
			if !slices.Contains(d.own, volume) {
				d.wipePartition(volume)
			}
		}
	case constants.EtcdDataVolumeID:
		d.Etcd, d.Recovery = nil, nil
	case constants.KubeletDataVolumeID:
		d.registered = false
	case constants.CRIContainerdVolumeID:
		d.images = nil
	case constants.MetaPartitionLabel:
		// By this partition a machine knows that it is installed.
		d.Meta, d.Installed, d.SystemDisk = map[uint8]string{}, false, ""
	}
}
