package emulator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"
)

// etcdDirectory is where a control plane keeps etcd's data.
const etcdDirectory = "/var/lib/etcd"

// EtcdMemberList asks the local etcd, or the control planes that the node knows of. Without an etcd that answers it
// blocks until the caller's deadline, as etcd's client does.
func (s *etcdAPI) EtcdMemberList(ctx context.Context,
	request *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	b := s.boot

	if err := b.onlyOnControlPlane("member list"); err != nil {
		return nil, err
	}

	if err := b.etcd.clientReady(); err != nil {
		return nil, err
	}

	if !request.GetQueryLocal() && !b.members.knowsControlPlanes() {
		return nil, errNoEndpoints
	}

	var members []*machineapi.EtcdMember

	err := b.etcd.await(ctx, func(endpoints []netip.Addr) bool {
		cluster := b.etcd.localCluster()
		if cluster == nil && !request.GetQueryLocal() {
			cluster = b.etcd.reachable(endpoints)
		}

		if cluster == nil || !cluster.quorum() {
			return false
		}

		members = cluster.list()

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

	if err := b.onlyOnControlPlane("etcd status"); err != nil {
		return nil, err
	}

	if err := b.etcd.clientReady(); err != nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", err)
	}

	var reply *machineapi.EtcdMemberStatus

	err := b.etcd.await(ctx, func([]netip.Addr) bool {
		member := b.etcd.localMember()
		if member == nil {
			return false
		}

		reply = &machineapi.EtcdMemberStatus{
			StorageVersion:   "3.6.0",
			MemberId:         member.id,
			ProtocolVersion:  "3.6.12",
			DbSize:           20480,
			DbSizeInUse:      16384,
			Leader:           member.cluster.leader,
			RaftIndex:        42,
			RaftTerm:         2,
			RaftAppliedIndex: 42,
			IsLearner:        member.learner,
		}

		if member.cluster.leader == 0 {
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
	if err := s.boot.etcd.maintain(ctx, "etcd alarm list"); err != nil {
		return nil, err
	}

	return &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{}}}, nil
}

// EtcdAlarmDisarm asks the local etcd; there are never any alarms.
func (s *etcdAPI) EtcdAlarmDisarm(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdAlarmDisarmResponse,
	error) {
	if err := s.boot.etcd.maintain(ctx, "etcd alarm disarm"); err != nil {
		return nil, err
	}

	return &machineapi.EtcdAlarmDisarmResponse{Messages: []*machineapi.EtcdAlarmDisarm{{}}}, nil
}

// EtcdDefragment asks the local etcd, which has nothing to tidy up.
func (s *etcdAPI) EtcdDefragment(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdDefragmentResponse,
	error) {
	if err := s.boot.etcd.maintain(ctx, "etcd defragment"); err != nil {
		return nil, err
	}

	return &machineapi.EtcdDefragmentResponse{Messages: []*machineapi.EtcdDefragment{{}}}, nil
}

// maintain waits for the local etcd to answer what only control planes answer.
func (e *etcdService) maintain(ctx context.Context, what string) error {
	if err := e.boot.onlyOnControlPlane(what); err != nil {
		return err
	}

	if err := e.clientReady(); err != nil {
		return fmt.Errorf("failed to create etcd client: %w", err)
	}

	return e.await(ctx, func([]netip.Addr) bool {
		cluster := e.localCluster()

		return cluster != nil && cluster.quorum()
	})
}

// clientReady fails before the node has the certificate that its own etcd client needs: that takes a synced clock.
func (e *etcdService) clientReady() error {
	if e.boot.synced() {
		return nil
	}

	return errors.New("error building etcd client TLS config: open /system/secrets/etcd/admin.crt: no such file or " +
		"directory")
}

// await waits until the question can be answered. It is asked with the lab locked, and given the control planes
// that the node knows of.
func (e *etcdService) await(ctx context.Context, answered func(endpoints []netip.Addr) bool) error {
	lab := e.boot.node.lab

	return lab.changed.Until(ctx, func() bool {
		endpoints := e.boot.members.controlPlaneEndpoints()

		lab.mu.Lock()
		defer lab.mu.Unlock()

		return answered(endpoints)
	})
}

// reachable is the cluster that one of the endpoints leads to. Needs Lab.mu.
func (e *etcdService) reachable(endpoints []netip.Addr) *etcdCluster {
	for _, cluster := range e.boot.node.lab.clusters {
		if cluster.ca == e.ca() && cluster.reachable(e.boot.node.lab, endpoints) {
			return cluster
		}
	}

	return nil
}

// localMember is the running member on this node. Needs Lab.mu.
func (e *etcdService) localMember() *etcdMember {
	for _, cluster := range e.boot.node.lab.clusters {
		for _, member := range cluster.members {
			if member.boot == e.boot {
				return member
			}
		}
	}

	return nil
}

// localCluster is the cluster of the running member on this node. Needs Lab.mu.
func (e *etcdService) localCluster() *etcdCluster {
	if member := e.localMember(); member != nil {
		return member.cluster
	}

	return nil
}

// list is the members as the API shows them. Needs Lab.mu.
func (c *etcdCluster) list() []*machineapi.EtcdMember {
	members := make([]*machineapi.EtcdMember, 0, len(c.members))

	for _, member := range c.members {
		shown := &machineapi.EtcdMember{
			Id:        member.id,
			PeerUrls:  []string{"https://" + netip.AddrPortFrom(member.address, 2380).String()},
			IsLearner: member.learner,
		}

		// A member that never started has no name and no client URL yet.
		if member.startedOnce {
			shown.Hostname = member.name
			shown.ClientUrls = []string{"https://" + netip.AddrPortFrom(member.address, 2379).String()}
		}

		members = append(members, shown)
	}

	return members
}

// List lists a directory: only /var/lib/etcd has anything in it that clients ask for.
func (s *fileAPI) List(request *machineapi.ListRequest, stream machineapi.MachineService_ListServer) error {
	root := path.Clean("/" + request.GetRoot())

	entries, known := s.boot.files.directory(root)
	if !known {
		return fmt.Errorf("lstat %s: no such file or directory", root)
	}

	now := s.boot.now().Unix()

	if err := stream.Send(&machineapi.FileInfo{Name: root, RelativeName: ".", Mode: uint32(os.ModeDir | 0o700),
		IsDir: true, Modified: now}); err != nil {
		return err
	}

	for _, entry := range entries {
		full := path.Join(root, entry)

		if err := stream.Send(&machineapi.FileInfo{Name: full, RelativeName: entry, Mode: uint32(os.ModeDir | 0o700),
			IsDir: true, Modified: now}); err != nil {
			return err
		}
	}

	return nil
}

// directory is what a directory holds; the second result is false when there is none.
func (f *fileTree) directory(root string) ([]string, bool) {
	drive := f.boot.node.readDrive()
	mounted := f.boot.services.up(serviceCRI)

	switch {
	case root == "/":
		return []string{"etc", "proc", "system", "var"}, true
	case root == "/var/lib":
		if mounted && f.boot.config.role().IsControlPlane() {
			return []string{"containerd", "etcd", "kubelet"}, true
		}

		return nil, true
	case root == etcdDirectory && mounted && f.boot.config.role().IsControlPlane():
		if drive.etcd == nil {
			return nil, true
		}

		return []string{"member"}, true
	case root == etcdDirectory+"/member" && mounted && drive.etcd != nil:
		return []string{"snap", "wal"}, true
	case path.Dir(root) == etcdDirectory+"/member" && mounted && drive.etcd != nil:
		return nil, true
	default:
		return nil, false
	}
}
