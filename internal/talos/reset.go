package talos

import (
	"cmp"
	"context"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
)

// Partition is a partition that Talos keeps something on.
type Partition struct {
	// Label names it: "STATE", "EPHEMERAL", "u-data" for a user's volume.
	Label string
	// Disk is the device that it is on: "/dev/sda".
	Disk string
	Size int64
}

// Partitions reads the partitions that Talos keeps something on, by disk and place. What is but a folder on another one
// is not among them.
func (c *Conn) Partitions(ctx context.Context) ([]Partition, error) {
	volumes, err := list[*block.VolumeStatus](ctx, c, block.NewVolumeStatus(block.NamespaceName, "").Metadata())
	if err != nil {
		return nil, err
	}

	slices.SortStableFunc(volumes, func(a, b *block.VolumeStatus) int {
		return cmp.Or(cmp.Compare(a.TypedSpec().ParentLocation, b.TypedSpec().ParentLocation),
			cmp.Compare(a.TypedSpec().PartitionIndex, b.TypedSpec().PartitionIndex))
	})

	var partitions []Partition
	for _, volume := range volumes {
		if spec := volume.TypedSpec(); spec.Location != "" && spec.Type == block.VolumeTypePartition {
			partitions = append(partitions, Partition{Label: volume.Metadata().ID(), Disk: spec.ParentLocation,
				Size: int64(spec.Size)}) //nolint:gosec // no disk is that large
		}
	}

	return partitions, nil
}

// Reset is what a node is to wipe.
type Reset struct {
	// Partitions are labels. Without any the node wipes the whole disk that Talos is on, its boot loader included.
	Partitions []string
	// Disks are other disks, by device path.
	Disks []string
	// Graceful has the node drain itself and leave etcd first. If it can't leave, nothing is wiped.
	Graceful bool
}

// Reset asks the node to wipe what it has, and to reboot. The reply comes before the node does anything.
func (c *Conn) Reset(ctx context.Context, reset Reset) error {
	request := &machine.ResetRequest{Graceful: reset.Graceful, Reboot: true, UserDisksToWipe: reset.Disks}
	for _, label := range reset.Partitions {
		request.SystemPartitionsToWipe = append(request.SystemPartitionsToWipe,
			&machine.ResetPartitionSpec{Label: label, Wipe: true})
	}

	return c.call(ctx, OpReset, changeTimeout, func(ctx context.Context) error {
		return c.api.ResetGeneric(ctx, request)
	})
}
