package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// EtcdDirectory is where Talos keeps etcd's data (machinery's constants.EtcdDataPath).
const EtcdDirectory = "/var/lib/etcd"

// EtcdObservation is what one control plane says about its own etcd.
type EtcdObservation struct {
	Observation
	Etcd talos.Service
	// Certain is set when the node could say whether it holds data: its etcd service is past waiting for its volumes, and
	// the directory was listed.
	Certain bool
	HasData bool
	// Of a running etcd: its own member id, the leader's (0 without one), whether it does not vote yet, what it complains
	// about, and its own list of members.
	MemberID, Leader uint64
	Learner          bool
	Size, InUse      int64 // of its database, in bytes
	complaints       []string
	Members          []talos.EtcdMember
}

// Running reports whether the etcd process runs, healthy or not.
func (e EtcdObservation) Running() bool { return e.Etcd.State == "Running" }

// unchecked reports whether etcd has just begun to run.
func (e EtcdObservation) unchecked() bool { return e.Running() && e.Etcd.HealthUnknown }

// Healthy reports whether etcd runs, is healthy and a voter.
func (e EtcdObservation) Healthy() bool {
	return e.Running() && !e.Etcd.HealthUnknown && e.Etcd.Healthy && e.MemberID != 0 && e.IsVoter()
}

// IsVoter reports whether its own list holds it as a full member.
func (e EtcdObservation) IsVoter() bool {
	for _, member := range e.Members {
		if member.ID == e.MemberID {
			return !member.Learner
		}
	}

	return false
}

// Empty reports whether this control plane holds no etcd for sure.
func (e EtcdObservation) Empty() bool { return e.Certain && !e.HasData && !e.Running() }

// Starting recognises an etcd that was bootstrapped and has no data yet, since its image is being pulled: a control
// plane's boot sequence waits for its etcd, and ends with the first Bootstrap.
func (e EtcdObservation) Starting() bool {
	return e.Empty() && e.Stage() == "running" && e.Etcd.State == "Preparing"
}

// Stopped recognises what a second Bootstrap can do to a starting etcd: it is stopped for good until the node reboots.
func (e EtcdObservation) Stopped() bool {
	return e.HasData && e.Etcd.State == "Finished" && strings.Contains(e.LastEvent(), "Bootstrap requested")
}

// Began is when the service was last created, by the node's clock; zero if there is none.
func (e EtcdObservation) Began() time.Time {
	if len(e.Etcd.Events) == 0 {
		return time.Time{}
	}

	return e.Etcd.Events[0].Time
}

// LastEvent is what last happened to the service, in Talos' words.
func (e EtcdObservation) LastEvent() string { return e.Etcd.LastEvent() }

// Describe says in a few words how etcd is on this node, and names it.
func (e EtcdObservation) Describe() string { return e.Node.Name + ": " + e.Text() }

// CatchingUp reports whether etcd is a learner, or waits for its first health check: nothing is known to be wrong.
func (e EtcdObservation) CatchingUp() bool {
	leaderless := e.MemberID != 0 && e.Leader == 0

	return e.Running() && !leaderless &&
		(e.Learner || e.unchecked() || strings.Contains(e.Etcd.LastMessage, notForLearners))
}

// notForLearners is what every health check of a learner ends with.
const notForLearners = "rpc not supported for learner"

// Text says in a few words how etcd is on this node.
func (e EtcdObservation) Text() string {
	switch {
	case e.Silent():
		return "no answer"
	case e.Wrong != nil:
		return "another machine"
	case e.State == talos.Maintenance:
		return "in maintenance"
	case e.State != talos.Ours:
		return e.State.String()
	case e.Stopped():
		return "etcd was stopped by a second Bootstrap and stays so until the node reboots"
	case e.Healthy():
		return "etcd runs and is healthy, " + text.Counted(len(e.Members), "member")
	case e.Running() && e.MemberID != 0 && e.Leader == 0:
		return "etcd runs, but has no leader"
	case e.Learner:
		return "etcd is a learner, catching up"
	case e.Running() && strings.Contains(e.Etcd.LastMessage, notForLearners):
		return "etcd has caught up, its next health check is due"
	case e.unchecked():
		return "etcd runs, its first health check is due"
	case e.Running() && e.MemberID != 0 && !e.IsVoter():
		return "etcd runs, not in its own list of members yet"
	case e.Running():
		return "etcd runs, not healthy" + text.Because(strings.Join(e.allComplaints(), ", "))
	case e.Empty() && e.Etcd.State == "Failed":
		return "no etcd data, service Failed" + text.Because(e.LastEvent())
	case e.Starting():
		return "etcd is bootstrapped and starting" + text.Because(e.LastEvent())
	case e.Empty():
		return "no etcd data"
	case e.HasData:
		return "etcd data on disk, service " + OrUnknown(e.Etcd.State) + text.Because(e.LastEvent())
	default:
		return "etcd service " + OrUnknown(e.Etcd.State) + text.Because(e.LastEvent())
	}
}

// allComplaints are what etcd and its health check complain about.
func (e EtcdObservation) allComplaints() []string {
	complaints := slices.Clone(e.complaints)
	if e.Etcd.LastMessage != "" {
		complaints = text.AppendNew(complaints, e.Etcd.LastMessage)
	}

	return complaints
}

// OrUnknown is a service's state in words, also where it has none yet.
func OrUnknown(state string) string {
	if state == "" {
		return "not loaded yet"
	}

	return state
}

// EtcdSurvey is what all control planes of the cluster say, also those that this run leaves out: a second etcd must
// never start.
type EtcdSurvey []EtcdObservation

// SurveyEtcd asks all control planes at once.
func (o *Observer) SurveyEtcd(ctx context.Context) EtcdSurvey {
	return survey(ctx, o.Cluster.ControlPlanes(), o.ObserveEtcd)
}

func survey(ctx context.Context, nodes []*inventory.Node,
	observe func(context.Context, *inventory.Node) EtcdObservation) EtcdSurvey {
	return fanout.Collect(ctx, Limit, nodes, observe, func(node *inventory.Node, err error) EtcdObservation {
		return EtcdObservation{Observation: Unobserved(node, err)}
	})
}

// ObserveEtcd observes a control plane, and how its etcd is.
func (o *Observer) ObserveEtcd(ctx context.Context, node *inventory.Node) EtcdObservation {
	return observeEtcd(ctx, func(ctx context.Context, more reading) Observation { return o.observe(ctx, node, more) })
}

func observeEtcd(ctx context.Context, observe func(context.Context, reading) Observation) EtcdObservation {
	var asked EtcdObservation

	asked.Observation = observe(ctx, func(seen *Observation, conn *talos.Conn) {
		asked.Etcd, _ = seen.Service("etcd")

		if names, err := conn.ListDir(ctx, EtcdDirectory); err == nil {
			asked.HasData = len(names) > 0
			asked.Certain = asked.HasData || pastWaiting(asked.Etcd.State)
		}

		if asked.Running() {
			asked.readMembership(ctx, conn)
		}
	})

	return asked
}

// readMembership asks a running etcd about itself. Without a leader it would not give its members, but keep the call
// waiting.
func (e *EtcdObservation) readMembership(ctx context.Context, conn *talos.Conn) {
	status, err := conn.EtcdStatus(ctx)
	if err != nil {
		return
	}

	e.MemberID, e.Leader, e.Learner, e.complaints = status.MemberID, status.Leader, status.Learner, status.Errors
	e.Size, e.InUse = status.Size, status.InUse

	if status.Leader != 0 {
		e.Members, _ = conn.EtcdMembers(ctx, true) //nolint:errcheck // no list is no proof of anything, which is what an empty one says
	}
}

// pastWaiting reports whether the service's volumes are mounted, so that an empty directory means no data.
func pastWaiting(state string) bool {
	return !slices.Contains([]string{"", "Initialized", "Starting", "Waiting"}, state)
}

// CanLeave reports whether a control plane can leave etcd in order: it is healthy, and there are other members.
func (s EtcdSurvey) CanLeave(leaving *inventory.Node) bool {
	return slices.ContainsFunc(s, func(node EtcdObservation) bool {
		return node.Node == leaving && node.Healthy() && len(node.Members) > 1
	})
}

// MayExist is false only if the cluster has no etcd for sure: every control plane is in maintenance or was asked and is
// empty, with no etcd starting. One that did not answer counts as having etcd.
func (s EtcdSurvey) MayExist() bool {
	return slices.ContainsFunc(s, func(node EtcdObservation) bool {
		return node.State != talos.Maintenance && (!node.Empty() || node.Starting())
	})
}

// MayTurnOutEmpty reports whether all control planes answer, and those which can't tell yet whether they have an etcd,
// since they install or boot, hold none so far.
func (s EtcdSurvey) MayTurnOutEmpty() bool {
	return !slices.ContainsFunc(s, func(node EtcdObservation) bool {
		return node.State != talos.Maintenance && node.State != talos.Ours || node.HasData ||
			node.Running() || node.Starting()
	})
}

// Without is the survey of the other control planes.
func (s EtcdSurvey) Without(node *inventory.Node) EtcdSurvey {
	return slices.DeleteFunc(slices.Clone(s), func(other EtcdObservation) bool { return other.Node == node })
}

// Present reports whether some control plane has data or a running etcd.
func (s EtcdSurvey) Present() bool {
	return slices.ContainsFunc(s, func(node EtcdObservation) bool { return node.HasData || node.Running() })
}

// Running reports whether etcd runs on some control plane.
func (s EtcdSurvey) Running() bool { return slices.ContainsFunc(s, EtcdObservation.Running) }

// Configured reports whether some control plane has a config of this cluster.
func (s EtcdSurvey) Configured() bool {
	return slices.ContainsFunc(s, func(node EtcdObservation) bool { return node.State == talos.Ours })
}

// AwaitsBootstrap reports whether all control planes are up with their configs, and hold no etcd for sure.
func (s EtcdSurvey) AwaitsBootstrap() bool {
	return len(s) > 0 && !slices.ContainsFunc(s, func(node EtcdObservation) bool {
		return !node.Up() || !node.Empty() || node.Starting()
	})
}

// HealthyCount is how many members are healthy voters.
func (s EtcdSurvey) HealthyCount() int {
	count := 0
	for _, node := range s {
		if node.Healthy() {
			count++
		}
	}

	return count
}

// Unhealthy describes the control planes whose etcd is not a healthy voter.
func (s EtcdSurvey) Unhealthy() []string {
	var unhealthy []string
	for _, node := range s {
		if !node.Healthy() {
			unhealthy = append(unhealthy, node.Describe())
		}
	}

	return unhealthy
}

// Unchecked reports whether nothing but a first health check keeps etcd from being known to be healthy everywhere.
func (s EtcdSurvey) Unchecked() bool {
	return !slices.ContainsFunc(s, func(node EtcdObservation) bool { return !node.Healthy() && !node.unchecked() })
}

// Settling reports whether nothing but the boot of their nodes, or a first health check, keeps members from being
// healthy.
func (s EtcdSurvey) Settling() bool {
	return !slices.ContainsFunc(s, func(node EtcdObservation) bool {
		return !node.Healthy() && !node.unchecked() && node.Stage() != talos.StageBooting
	})
}

// UnhealthyOf are those of some control planes whose etcd is not a healthy voter.
func (s EtcdSurvey) UnhealthyOf(nodes []*inventory.Node) EtcdSurvey {
	return slices.DeleteFunc(slices.Clone(s), func(node EtcdObservation) bool {
		return node.Healthy() || !slices.Contains(nodes, node.Node)
	})
}

// Names are the control planes' names.
func (s EtcdSurvey) Names() []string {
	names := make([]string, 0, len(s))
	for _, node := range s {
		names = append(names, node.Node.Name)
	}

	return names
}

// Describe says in a few words how etcd is on each node.
func (s EtcdSurvey) Describe() string {
	words := make([]string, 0, len(s))
	for _, node := range s {
		words = append(words, node.Describe())
	}

	return strings.Join(words, "; ")
}

// MemberCount is how many members the lists of all name.
func (s EtcdSurvey) MemberCount() int {
	known := map[uint64]bool{}
	for _, node := range s {
		for _, member := range node.Members {
			known[member.ID] = true
		}
	}

	return len(known)
}

// LosesQuorumWithout reports whether etcd would stop working while the given control plane is away.
func (s EtcdSurvey) LosesQuorumWithout(away *inventory.Node) bool {
	left, member := s.HealthyCount(), false
	for _, node := range s {
		if node.Node == away {
			member = node.Running()

			if node.Healthy() {
				left--
			}
		}
	}

	return member && s.MemberCount() > 1 && left < s.MemberCount()/2+1
}

// QuorumWithout reports whether etcd works, and would still work once some control planes have left it for good. Only a
// healthy member can leave it.
func (s EtcdSurvey) QuorumWithout(leaving []*inventory.Node) bool {
	return s.HealthyCount() > 0 && s.healthyWithout(leaving) > s.MembersWithout(leaving)/2
}

// MembersWithout is how many members etcd has once some control planes have left it.
func (s EtcdSurvey) MembersWithout(leaving []*inventory.Node) int {
	return s.MemberCount() - (s.HealthyCount() - s.healthyWithout(leaving))
}

func (s EtcdSurvey) healthyWithout(leaving []*inventory.Node) int {
	count := 0
	for _, node := range s {
		if node.Healthy() && !slices.Contains(leaving, node.Node) {
			count++
		}
	}

	return count
}

// Agree reports whether all given control planes are healthy voters whose own lists hold the same members. No Talos
// call carries a cluster id, so that is the proof that they are one etcd.
func (s EtcdSurvey) Agree(expected []*inventory.Node) bool {
	var ids []uint64
	for _, node := range s {
		if !slices.Contains(expected, node.Node) {
			continue
		}

		if !node.Healthy() {
			return false
		}

		own := memberIDs(node.Members)
		if ids != nil && !slices.Equal(ids, own) {
			return false
		}

		ids = own
	}

	return len(ids) > 0
}

func memberIDs(members []talos.EtcdMember) []uint64 {
	ids := make([]uint64, 0, len(members))
	for _, member := range members {
		ids = append(ids, member.ID)
	}

	slices.Sort(ids)

	return ids
}

// Lists reports whether a member list names a control plane.
func (s EtcdSurvey) Lists(node *inventory.Node) bool {
	return slices.ContainsFunc(s, func(other EtcdObservation) bool {
		return slices.ContainsFunc(other.Members, func(member talos.EtcdMember) bool {
			return member.Hostname != "" && member.Hostname == node.Hostname
		})
	})
}

// Clusters are the healthy members, by the etcd cluster that they belong to: those of one know a common member.
func (s EtcdSurvey) Clusters() []EtcdSurvey {
	var clusters []EtcdSurvey
	for _, node := range s {
		if !node.Healthy() {
			continue
		}

		own := slices.IndexFunc(clusters, func(others EtcdSurvey) bool { return others[0].sharesMembers(node) })
		if own < 0 {
			clusters = append(clusters, EtcdSurvey{node})
		} else {
			clusters[own] = append(clusters[own], node)
		}
	}

	return clusters
}

// sharesMembers reports whether two lists of members have one in common.
func (e EtcdObservation) sharesMembers(other EtcdObservation) bool {
	own := memberIDs(e.Members)
	return slices.ContainsFunc(memberIDs(other.Members), func(id uint64) bool { return slices.Contains(own, id) })
}

// Split reports whether there are several clusters that do not know each other.
func (s EtcdSurvey) Split() bool { return len(s.Clusters()) > 1 }

// UnknownMembers are members that the inventory does not name.
func (s EtcdSurvey) UnknownMembers(cluster *inventory.Cluster) []string {
	var unknown []string
	for _, node := range s {
		for _, member := range node.Members {
			if member.Hostname != "" && !knownMember(cluster, s, member) {
				unknown = text.AppendNew(unknown, member.Hostname)
			}
		}
	}

	return unknown
}

func knownMember(cluster *inventory.Cluster, survey EtcdSurvey, member talos.EtcdMember) bool {
	for _, node := range survey {
		if node.MemberID == member.ID {
			return true
		}
	}

	for _, node := range cluster.ControlPlanes() {
		if node.Hostname == member.Hostname || node.IgnoreHostname {
			return true
		}
	}

	return false
}

// Stale are listed members whose node is in maintenance: they hold nothing any more.
func (s EtcdSurvey) Stale() []string {
	var stale []string
	for _, node := range s {
		if node.State == talos.Maintenance && s.Lists(node.Node) {
			stale = append(stale, node.Node.Name)
		}
	}

	return stale
}

// CauseText says why etcd is not healthy, as far as its members tell.
func (s EtcdSurvey) CauseText() string {
	var causes []string
	for _, node := range s {
		switch {
		case node.State == talos.Ours && node.Unsynced():
			causes = append(causes, node.Node.Name+"'s clock is not synced")
		case node.Running() && node.MemberID != 0 && node.Leader == 0:
			causes = text.AppendNew(causes, "quorum is lost: a member runs without a leader")
		case node.HasData && !node.Running():
			causes = append(causes, node.Node.Name+" has data and its etcd does not run")
		}
	}

	if len(causes) == 0 {
		return ""
	}

	return "; cause: " + strings.Join(causes, ", ")
}

// MemberText lists the members that the control planes know of.
func (s EtcdSurvey) MemberText() string {
	var members []string
	for _, node := range s {
		for _, member := range node.Members {
			members = text.AppendNew(members, memberName(member))
		}
	}

	if len(members) == 0 {
		return "not readable, etcd does not answer without quorum"
	}

	return text.List(members)
}

func memberName(member talos.EtcdMember) string {
	switch {
	case member.Hostname == "":
		return fmt.Sprintf("%016x (never started)", member.ID)
	case member.Learner:
		return member.Hostname + " (learner)"
	default:
		return member.Hostname
	}
}

// LoneData is the only control plane that holds data, when all others were asked and are empty.
func (s EtcdSurvey) LoneData() *inventory.Node {
	var lone *inventory.Node
	for _, node := range s {
		switch {
		case node.HasData && lone == nil:
			lone = node.Node
		case !node.Empty():
			return nil
		}
	}

	return lone
}
