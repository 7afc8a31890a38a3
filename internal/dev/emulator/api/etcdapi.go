package api

import (
	"context"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/etcd"
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

	err := b.Etcd.Await(ctx, func() bool {
		cluster := localCluster(b)
		if cluster == nil && !request.GetQueryLocal() {
			cluster = b.Etcd.Cluster()
		}

		if cluster == nil || !cluster.Works() {
			return false
		}

		members = cluster.Members()

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

	err := b.Etcd.Await(ctx, func() bool {
		if member := b.Etcd.Local(); member != nil {
			reply = member.Status()
		}

		return reply != nil
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

	return s.boot.Etcd.Await(ctx, func() bool {
		cluster := localCluster(s.boot)

		return cluster != nil && cluster.Works()
	})
}

// localCluster is the cluster of the member that runs on the node; nil if none does.
func localCluster(b *machine.Boot) *etcd.Cluster {
	if member := b.Etcd.Local(); member != nil {
		return member.Cluster
	}

	return nil
}
