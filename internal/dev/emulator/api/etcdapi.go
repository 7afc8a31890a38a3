package api

import (
	"context"
	"fmt"
	"net/netip"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// EtcdMemberList asks the local etcd, or the control planes that the node knows of. Without an etcd that answers it
// blocks until the caller's deadline, as etcd's client does.
func (s *etcdAPI) EtcdMemberList(ctx context.Context,
	request *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	b := s.boot

	if err := onlyOnControlPlane(b, "member list"); err != nil {
		return nil, err
	}

	if err := b.Etcd.ClientReady(); err != nil {
		return nil, err
	}

	if !request.GetQueryLocal() && !b.Members.KnowsControlPlanes() {
		return nil, machine.ErrNoEndpoints
	}

	var members []*machineapi.EtcdMember

	err := b.Etcd.Await(ctx, func(endpoints []netip.Addr) bool {
		cluster := b.Etcd.LocalCluster()
		if cluster == nil && !request.GetQueryLocal() {
			cluster = b.Etcd.Reachable(endpoints)
		}

		if cluster == nil || !cluster.Quorum() {
			return false
		}

		members = cluster.List()

		return true
	})
	if err != nil {
		return nil, err
	}

	names := make([]string, 0, len(members))
	for _, member := range members {
		names = append(names, member.GetHostname())
	}

	return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{{LegacyMembers: names,
		Members: members}}}, nil
}

// EtcdStatus asks the local etcd.
func (s *etcdAPI) EtcdStatus(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdStatusResponse, error) {
	b := s.boot

	if err := onlyOnControlPlane(b, "etcd status"); err != nil {
		return nil, err
	}

	if err := b.Etcd.ClientReady(); err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}

	var reply *machineapi.EtcdMemberStatus

	err := b.Etcd.Await(ctx, func([]netip.Addr) bool {
		member := b.Etcd.LocalMember()
		if member == nil {
			return false
		}

		reply = &machineapi.EtcdMemberStatus{
			StorageVersion:   "3.6.0",
			MemberId:         member.ID,
			ProtocolVersion:  "3.6.12",
			DbSize:           20480,
			DbSizeInUse:      16384,
			Leader:           member.Cluster.Leader,
			RaftIndex:        42,
			RaftTerm:         2,
			RaftAppliedIndex: 42,
			IsLearner:        member.Learner,
		}

		if member.Cluster.Leader == 0 {
			reply.Errors = []string{"etcdserver: no leader"}
		}

		return true
	})
	if err != nil {
		return nil, err
	}

	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: reply}}}, nil
}

// EtcdAlarmList asks the local etcd.
func (s *etcdAPI) EtcdAlarmList(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdAlarmListResponse,
	error) {
	if err := s.maintain(ctx, "etcd alarm list"); err != nil {
		return nil, err
	}

	return &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{}}}, nil
}

// EtcdAlarmDisarm asks the local etcd; there are never any alarms.
func (s *etcdAPI) EtcdAlarmDisarm(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdAlarmDisarmResponse,
	error) {
	if err := s.maintain(ctx, "etcd alarm disarm"); err != nil {
		return nil, err
	}

	return &machineapi.EtcdAlarmDisarmResponse{Messages: []*machineapi.EtcdAlarmDisarm{{}}}, nil
}

// EtcdDefragment asks the local etcd, which has nothing to tidy up.
func (s *etcdAPI) EtcdDefragment(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdDefragmentResponse,
	error) {
	if err := s.maintain(ctx, "etcd defragment"); err != nil {
		return nil, err
	}

	return &machineapi.EtcdDefragmentResponse{Messages: []*machineapi.EtcdDefragment{{}}}, nil
}

// maintain waits for the local etcd to answer what only control planes answer.
func (s *etcdAPI) maintain(ctx context.Context, what string) error {
	if err := onlyOnControlPlane(s.boot, what); err != nil {
		return err
	}

	if err := s.boot.Etcd.ClientReady(); err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}

	return s.boot.Etcd.Await(ctx, func([]netip.Addr) bool {
		cluster := s.boot.Etcd.LocalCluster()

		return cluster != nil && cluster.Quorum()
	})
}
