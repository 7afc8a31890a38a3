package talos

import (
	"context"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// EtcdMember is an entry of etcd's member list.
type EtcdMember struct {
	ID uint64
	// Hostname is empty while the member has not started.
	Hostname string
	// Learner is set until the member votes.
	Learner  bool
	PeerURLs []string
}

// EtcdMembers reads the member list, from the node's own etcd only (queryLocal) or from any control plane's.
// Before etcd is up the call blocks: its deadline passing is an error that Classify retries.
func (c *Conn) EtcdMembers(ctx context.Context, queryLocal bool) ([]EtcdMember, error) {
	var members []EtcdMember

	err := c.read(ctx, OpEtcd, func(ctx context.Context) error {
		reply, err := c.api.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{QueryLocal: queryLocal})
		if err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			for _, member := range message.GetMembers() {
				members = append(members, EtcdMember{
					ID: member.GetId(), Hostname: member.GetHostname(), Learner: member.GetIsLearner(), PeerURLs: member.GetPeerUrls(),
				})
			}
		}

		return nil
	})

	return members, err
}

// EtcdStatus is the state of a node's own etcd.
type EtcdStatus struct {
	MemberID uint64
	// Leader is the leader's member id, 0 without one.
	Leader  uint64
	Learner bool
	// Size is that of the database in bytes, InUse the part of it that is not free.
	Size, InUse int64
	// Errors are what etcd itself complains about: alarms, a missing leader.
	Errors []string
}

// EtcdStatus reads the state of the node's own etcd. It blocks like EtcdMembers before etcd is up.
func (c *Conn) EtcdStatus(ctx context.Context) (EtcdStatus, error) {
	var status EtcdStatus

	err := c.read(ctx, OpEtcd, func(ctx context.Context) error {
		reply, err := c.api.EtcdStatus(ctx)
		if err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			member := message.GetMemberStatus()
			status = EtcdStatus{
				MemberID: member.GetMemberId(), Leader: member.GetLeader(), Learner: member.GetIsLearner(),
				Size: member.GetDbSize(), InUse: member.GetDbSizeInUse(),
				Errors: slices.Clone(member.GetErrors()),
			}
		}

		return nil
	})

	return status, err
}

// EtcdAlarm is an alarm that a member raised: "NOSPACE" or "CORRUPT".
type EtcdAlarm struct {
	MemberID uint64
	Kind     string
}

// EtcdAlarms reads the alarms that the node's etcd knows of.
func (c *Conn) EtcdAlarms(ctx context.Context) ([]EtcdAlarm, error) {
	var alarms []EtcdAlarm

	err := c.read(ctx, OpEtcd, func(ctx context.Context) error {
		reply, err := c.api.EtcdAlarmList(ctx)
		if err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			for _, alarm := range message.GetMemberAlarms() {
				if alarm.GetAlarm() != machine.EtcdMemberAlarm_NONE {
					alarms = append(alarms, EtcdAlarm{MemberID: alarm.GetMemberId(), Kind: alarm.GetAlarm().String()})
				}
			}
		}

		return nil
	})

	return alarms, err
}
