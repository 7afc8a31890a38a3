package api

import (
	"context"
	"errors"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/etcd"
)

// EtcdLeaveCluster takes this node out of etcd.
func (s *etcdAPI) EtcdLeaveCluster(ctx context.Context,
	_ *machineapi.EtcdLeaveClusterRequest) (*machineapi.EtcdLeaveClusterResponse, error) {
	b := s.boot

	if err := onlyOnControlPlane(b, "etcd leave"); err != nil {
		return nil, err
	}

	member, err := b.Etcd.OwnMember(ctx)
	if err == nil {
		err = b.Etcd.LeaveCluster(ctx, member)
	}

	if err != nil {
		return nil, fmt.Errorf("failed to leave cluster: %w", err)
	}

	return &machineapi.EtcdLeaveClusterResponse{Messages: []*machineapi.EtcdLeaveCluster{{}}}, nil
}

// EtcdForfeitLeadership gives the leadership to another member. The reply names it only if there was something to give.
func (s *etcdAPI) EtcdForfeitLeadership(ctx context.Context,
	_ *machineapi.EtcdForfeitLeadershipRequest) (*machineapi.EtcdForfeitLeadershipResponse, error) {
	b := s.boot

	if err := onlyOnControlPlane(b, "etcd forfeit leadership"); err != nil {
		return nil, err
	}

	reply := &machineapi.EtcdForfeitLeadership{}

	member, err := b.Etcd.OwnMember(ctx)
	if err != nil {
		return nil, err
	}

	err = b.Etcd.With(ctx, func(cluster *etcd.Cluster) (err error) {
		reply.Member, err = cluster.Forfeit(member)

		return err
	})
	if err != nil {
		return nil, err
	}

	return &machineapi.EtcdForfeitLeadershipResponse{Messages: []*machineapi.EtcdForfeitLeadership{reply}}, nil
}

// EtcdRemoveMemberByID removes any member from etcd.
func (s *etcdAPI) EtcdRemoveMemberByID(ctx context.Context,
	request *machineapi.EtcdRemoveMemberByIDRequest) (*machineapi.EtcdRemoveMemberByIDResponse, error) {
	b := s.boot

	if err := onlyOnControlPlane(b, "etcd remove member"); err != nil {
		return nil, err
	}

	err := b.Etcd.With(ctx, func(cluster *etcd.Cluster) error {
		if err := cluster.Remove(request.GetMemberId()); err != nil {
			return fmt.Errorf("failed to remove member %d: %w", request.GetMemberId(), err)
		}

		return nil
	})

	switch {
	case errors.Is(err, etcd.ErrMemberNotFound):
		return nil, status.Error(codes.NotFound, err.Error())
	case err != nil:
		return nil, fmt.Errorf("failed to remove member: %w", err)
	}

	return &machineapi.EtcdRemoveMemberByIDResponse{Messages: []*machineapi.EtcdRemoveMemberByID{{}}}, nil
}
