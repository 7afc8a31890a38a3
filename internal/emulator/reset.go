package emulator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/google/uuid"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reset checks what is to be wiped, answers, and then wipes it.
func (s *machineService) Reset(ctx context.Context, request *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	b := s.boot

	if err := b.checkReset(ctx, request); err != nil {
		return nil, err
	}

	actor := b.act("reset", seqReset, false, func(ctx context.Context) error { return b.reset(ctx, request) })

	return &machineapi.ResetResponse{Messages: []*machineapi.Reset{{ActorId: actor}}}, nil
}

func (b *boot) checkReset(ctx context.Context, request *machineapi.ResetRequest) error {
	if len(request.GetUserDisksToWipe()) > 0 && request.GetMode() == machineapi.ResetRequest_SYSTEM_DISK {
		return errors.New("reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter")
	}

	for _, device := range request.GetUserDisksToWipe() {
		i := slices.IndexFunc(b.node.options.Disks, func(d Disk) bool { return "/dev/"+d.Name == device })

		switch {
		case i < 0:
			return fmt.Errorf("reset user disk failed: device %s wasn't found", device)
		case b.node.options.Disks[i].Readonly:
			return fmt.Errorf("reset user disk failed: device %s is readonly", device)
		case b.node.options.Disks[i].Name == b.node.readDrive().systemDisk:
			return fmt.Errorf("reset user disk failed: device %s is the system disk", device)
		}
	}

	if len(request.GetSystemPartitionsToWipe()) > 0 && request.GetMode() == machineapi.ResetRequest_USER_DISKS {
		return errors.New("reset failed: invalid input, wipe mode USER_DISKS doesn't support SystemPartitionsToWipe parameter")
	}

	for _, partition := range request.GetSystemPartitionsToWipe() {
		if _, err := safe.StateGetByID[*block.VolumeStatus](ctx, b.resources, partition.GetLabel()); err != nil {
			return fmt.Errorf("failed to get volume status with label %q: %w", partition.GetLabel(), err)
		}
	}

	return nil
}

// reset leaves the cluster if asked to, wipes, and reboots or switches off.
func (b *boot) reset(ctx context.Context, request *machineapi.ResetRequest) error {
	if request.GetGraceful() {
		b.leaveEtcd()
	}

	b.shutServices()

	if err := b.sleep(ctx, b.node.options.Timing.Stop); err != nil {
		return err
	}

	if request.GetMode() != machineapi.ResetRequest_USER_DISKS {
		b.node.editDrive(func(d *drive) { d.wipe(request.GetSystemPartitionsToWipe()) })
	}

	if request.GetReboot() {
		b.finish(endReboot)
	} else {
		b.finish(endPowerOff)
	}

	return nil
}

// wipe clears partitions; without a list it clears the whole system disk.
func (d *drive) wipe(partitions []*machineapi.ResetPartitionSpec) {
	if len(partitions) == 0 {
		*d = drive{meta: map[uint8]string{}}

		return
	}

	for _, partition := range partitions {
		if !partition.GetWipe() {
			continue
		}

		switch partition.GetLabel() {
		case constants.StatePartitionLabel:
			d.config, d.identity = nil, ""
		case constants.EphemeralPartitionLabel:
			d.etcd = nil
		case constants.MetaPartitionLabel:
			d.meta = map[uint8]string{}
		}
	}
}

// leaveEtcd takes the node out of its etcd cluster for good.
func (b *boot) leaveEtcd() {
	member := b.node.readDrive().etcd
	if member == nil {
		return
	}

	b.stopEtcd(errors.New("leaving the cluster"))

	lab := b.node.lab

	lab.mu.Lock()
	member.cluster.members = slices.DeleteFunc(member.cluster.members, func(m *etcdMember) bool { return m == member })
	member.cluster.elect()
	lab.mu.Unlock()

	b.node.editDrive(func(d *drive) { d.etcd = nil })
	lab.changed.raise()
}

// Upgrade checks, answers, and then installs the image and reboots.
func (s *machineService) Upgrade(_ context.Context, request *machineapi.UpgradeRequest) (*machineapi.UpgradeResponse, error) {
	b := s.boot

	if !b.node.Installed() {
		return nil, status.Error(codes.FailedPrecondition, "Talos is not installed")
	}

	if request.GetImage() == "" {
		return nil, fmt.Errorf("error validating installer image %q: invalid reference format", request.GetImage())
	}

	actor := uuid.NewString()

	b.tasks.Go(func() {
		err := b.runSequence(b.ctx, seqUpgrade, actor, false, func(ctx context.Context) error {
			if err := b.sleep(ctx, b.node.options.Timing.Install); err != nil {
				return err
			}

			return b.reboot(ctx)
		})
		if err != nil {
			b.print("upgrade failed: %s", err)
		}
	})

	return &machineapi.UpgradeResponse{Messages: []*machineapi.Upgrade{{Ack: "Upgrade request received", ActorId: actor}}}, nil
}

// EtcdLeaveCluster takes this node out of etcd.
func (s *machineService) EtcdLeaveCluster(context.Context, *machineapi.EtcdLeaveClusterRequest) (*machineapi.EtcdLeaveClusterResponse, error) {
	if err := s.boot.onlyOnControlPlane("etcd leave"); err != nil {
		return nil, err
	}

	s.boot.leaveEtcd()

	return &machineapi.EtcdLeaveClusterResponse{Messages: []*machineapi.EtcdLeaveCluster{{}}}, nil
}

// EtcdForfeitLeadership gives the leadership to another member.
func (s *machineService) EtcdForfeitLeadership(context.Context, *machineapi.EtcdForfeitLeadershipRequest) (*machineapi.EtcdForfeitLeadershipResponse, error) {
	if err := s.boot.onlyOnControlPlane("etcd forfeit leadership"); err != nil {
		return nil, err
	}

	lab := s.boot.node.lab
	reply := &machineapi.EtcdForfeitLeadership{}

	lab.mu.Lock()
	defer lab.mu.Unlock()

	if member := s.boot.localMember(); member != nil && member.cluster.leader == member.id {
		for _, other := range member.cluster.members {
			if other != member && !other.learner && other.boot != nil {
				member.cluster.leader = other.id
				reply.Member = other.name

				break
			}
		}
	}

	return &machineapi.EtcdForfeitLeadershipResponse{Messages: []*machineapi.EtcdForfeitLeadership{reply}}, nil
}

// EtcdRemoveMemberByID removes any member from etcd.
func (s *machineService) EtcdRemoveMemberByID(ctx context.Context, request *machineapi.EtcdRemoveMemberByIDRequest) (*machineapi.EtcdRemoveMemberByIDResponse, error) {
	if err := s.boot.onlyOnControlPlane("etcd remove member"); err != nil {
		return nil, err
	}

	lab := s.boot.node.lab

	lab.mu.Lock()
	defer lab.mu.Unlock()

	cluster := s.boot.localEtcd()
	if cluster == nil {
		return nil, status.FromContextError(context.DeadlineExceeded).Err()
	}

	i := slices.IndexFunc(cluster.members, func(m *etcdMember) bool { return m.id == request.GetMemberId() })
	if i < 0 {
		return nil, status.Error(codes.NotFound, "etcdserver: member not found")
	}

	cluster.members = slices.Delete(cluster.members, i, i+1)
	cluster.elect()

	return &machineapi.EtcdRemoveMemberByIDResponse{Messages: []*machineapi.EtcdRemoveMemberByID{{}}}, ctx.Err()
}
