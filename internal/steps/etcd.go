package steps

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// etcdDirectory is where Talos keeps etcd's data (machinery's constants.EtcdDataPath).
const etcdDirectory = "/var/lib/etcd"

// etcdSight is what one control plane says about its own etcd.
type etcdSight struct {
	sight
	etcd talos.Service
	// certain is set when the node could say whether it holds data: its etcd service is past waiting for its volumes, and
	// the directory was listed.
	certain bool
	data    bool
	// Of a running etcd: its own member id, the leader's (0 without one), what it complains about, and its own list of
	// members.
	member, leader uint64
	complaints     []string
	members        []talos.EtcdMember
}

// running reports whether the etcd process runs, healthy or not.
func (e etcdSight) running() bool { return e.etcd.State == "Running" }

func (e etcdSight) healthy() bool {
	return e.running() && !e.etcd.HealthUnknown && e.etcd.Healthy && e.member != 0 && e.isVoter()
}

// isVoter reports whether its own list holds it as a full member.
func (e etcdSight) isVoter() bool {
	for _, member := range e.members {
		if member.ID == e.member {
			return !member.Learner
		}
	}

	return false
}

// empty tells for sure that this control plane holds no etcd.
func (e etcdSight) empty() bool { return e.certain && !e.data && !e.running() }

// starting recognises an etcd that was bootstrapped and has no data yet, since its image is being pulled: a control
// plane's boot sequence waits for its etcd, and ends with the first Bootstrap.
func (e etcdSight) starting() bool {
	return e.empty() && e.stage() == "running" && e.etcd.State == "Preparing"
}

// stopped recognises what a second Bootstrap can do to a starting etcd: it is stopped for good until the node reboots.
func (e etcdSight) stopped() bool {
	return e.data && e.etcd.State == "Finished" && strings.Contains(e.lastEvent(), "Bootstrap requested")
}

// began is when the service was last created, by the node's clock; zero if there is none.
func (e etcdSight) began() time.Time {
	if len(e.etcd.Events) == 0 {
		return time.Time{}
	}

	return e.etcd.Events[0].Time
}

// booted is when the node's present boot began, by the node's clock; zero if it did not say.
func (e etcdSight) booted() time.Time {
	machined, _ := e.service("machined")
	if len(machined.Events) == 0 {
		return time.Time{}
	}

	return machined.Events[0].Time
}

func (e etcdSight) lastEvent() string {
	if len(e.etcd.Events) == 0 {
		return ""
	}

	return e.etcd.Events[len(e.etcd.Events)-1].Message
}

// describe says in a few words how etcd is on this node, and names it.
func (e etcdSight) describe() string { return e.node.Name + ": " + e.words() }

// words says in a few words how etcd is on this node.
func (e etcdSight) words() string {
	switch {
	case e.silent():
		return "no answer"
	case e.wrong != nil:
		return "another machine"
	case e.State == talos.Maintenance:
		return "in maintenance"
	case e.State != talos.Ours:
		return e.State.String()
	case e.stopped():
		return "etcd was stopped by a second Bootstrap and stays so until the node reboots"
	case e.healthy():
		return "etcd runs and is healthy, " + counted(len(e.members), "member")
	case e.running() && e.member != 0 && e.leader == 0:
		return "etcd runs and sees no leader"
	case e.running() && e.member != 0 && !e.isVoter():
		return "etcd runs, is a learner or not in its own list yet"
	case e.running():
		return "etcd runs, not healthy" + because(strings.Join(e.troubles(), ", "))
	case e.empty() && e.etcd.State == "Failed":
		return "no etcd data, service Failed" + because(e.lastEvent())
	case e.starting():
		return "etcd is bootstrapped and starting" + because(e.lastEvent())
	case e.empty():
		return "no etcd data"
	case e.data:
		return "etcd data on disk, service " + orUnknown(e.etcd.State) + because(e.lastEvent())
	default:
		return "etcd service " + orUnknown(e.etcd.State) + because(e.lastEvent())
	}
}

// troubles are what etcd and its health check complain about.
func (e etcdSight) troubles() []string {
	troubles := slices.Clone(e.complaints)
	if e.etcd.LastMessage != "" {
		troubles = appendNew(troubles, e.etcd.LastMessage)
	}

	return troubles
}

func because(message string) string {
	if message == "" {
		return ""
	}

	return " (" + message + ")"
}

func orUnknown(state string) string {
	if state == "" {
		return "not loaded yet"
	}

	return state
}

// etcdSurvey is what all control planes of the cluster say, also those that this run leaves out: a second etcd must
// never start.
type etcdSurvey []etcdSight

// surveyEtcd asks all control planes at once.
func (r *Run) surveyEtcd(ctx context.Context) etcdSurvey {
	return fanout.Collect(ctx, probeLimit, r.Cluster.ControlPlanes(), r.askEtcd,
		func(node *inventory.Node, err error) etcdSight {
			return etcdSight{sight: unseen(node, err)}
		})
}

func (r *Run) askEtcd(ctx context.Context, node *inventory.Node) etcdSight {
	var asked etcdSight

	asked.sight = r.lookFurther(ctx, node, func(seen *sight, conn *talos.Conn) {
		asked.etcd, _ = seen.service("etcd")

		if names, err := conn.ListDir(ctx, etcdDirectory); err == nil {
			asked.data = len(names) > 0
			asked.certain = asked.data || pastWaiting(asked.etcd.State)
		}

		if asked.running() {
			asked.readMembership(ctx, conn)
		}
	})

	return asked
}

// readMembership asks a running etcd about itself. Without a leader it would not give its members, but keep the call
// waiting.
func (e *etcdSight) readMembership(ctx context.Context, conn *talos.Conn) {
	status, err := conn.EtcdStatus(ctx)
	if err != nil {
		return
	}

	e.member, e.leader, e.complaints = status.MemberID, status.Leader, status.Errors

	if status.Leader != 0 {
		e.members, _ = conn.EtcdMembers(ctx, true) //nolint:errcheck // no list is no proof of anything, which is what an empty one says
	}
}

// pastWaiting reports whether the service's volumes are mounted, so that an empty directory means no data.
func pastWaiting(state string) bool {
	return !slices.Contains([]string{"", "Initialized", "Starting", "Waiting"}, state)
}

// mayExist is false only if the cluster has no etcd for sure: every control plane is in maintenance or was asked and is
// empty, with no etcd starting. One that did not answer counts as having etcd.
func (s etcdSurvey) mayExist() bool {
	return slices.ContainsFunc(s, func(node etcdSight) bool {
		return node.State != talos.Maintenance && (!node.empty() || node.starting())
	})
}

// mayTurnOutEmpty tells of control planes that may have an etcd that they all answer, and that those which can't tell
// yet, since they install or boot, hold none so far.
func (s etcdSurvey) mayTurnOutEmpty() bool {
	return !slices.ContainsFunc(s, func(node etcdSight) bool {
		return node.State != talos.Maintenance && node.State != talos.Ours || node.data || node.running() || node.starting()
	})
}

// without is the survey of the other control planes.
func (s etcdSurvey) without(node *inventory.Node) etcdSurvey {
	return slices.DeleteFunc(slices.Clone(s), func(sight etcdSight) bool { return sight.node == node })
}

// present reports whether some control plane has data or a running etcd.
func (s etcdSurvey) present() bool {
	return slices.ContainsFunc(s, func(node etcdSight) bool { return node.data || node.running() })
}

// running reports whether etcd runs on some control plane.
func (s etcdSurvey) running() bool { return slices.ContainsFunc(s, etcdSight.running) }

// healthyCount is how many members are healthy voters.
func (s etcdSurvey) healthyCount() int {
	count := 0

	for _, node := range s {
		if node.healthy() {
			count++
		}
	}

	return count
}

// unhealthy describes the control planes whose etcd is not a healthy voter.
func (s etcdSurvey) unhealthy() []string {
	var unhealthy []string

	for _, node := range s {
		if !node.healthy() {
			unhealthy = append(unhealthy, node.describe())
		}
	}

	return unhealthy
}

func (s etcdSurvey) describe() string {
	words := make([]string, 0, len(s))
	for _, node := range s {
		words = append(words, node.describe())
	}

	return strings.Join(words, "; ")
}

// memberCount is the largest list that a member gives.
func (s etcdSurvey) memberCount() int {
	count := 0
	for _, node := range s {
		count = max(count, len(node.members))
	}

	return count
}

// losesQuorumWithout reports whether etcd would stop working while the given control plane is away.
func (s etcdSurvey) losesQuorumWithout(away *inventory.Node) bool {
	left, member := s.healthyCount(), false

	for _, node := range s {
		if node.node == away {
			member = node.running()

			if node.healthy() {
				left--
			}
		}
	}

	return member && s.memberCount() > 1 && left < s.memberCount()/2+1
}

// agree reports whether all given control planes are healthy voters whose own lists hold the same members. No Talos
// call carries a cluster id, so that is the proof that they are one etcd.
func (s etcdSurvey) agree(expected []*inventory.Node) bool {
	var ids []uint64

	for _, node := range s {
		if !slices.Contains(expected, node.node) {
			continue
		}

		if !node.healthy() {
			return false
		}

		own := memberIDs(node.members)
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

// lists reports whether a member list names a control plane.
func (s etcdSurvey) lists(node *inventory.Node) bool {
	return slices.ContainsFunc(s, func(other etcdSight) bool {
		return slices.ContainsFunc(other.members, func(member talos.EtcdMember) bool {
			return member.Hostname != "" && member.Hostname == node.Hostname
		})
	})
}

// split recognises two clusters that do not know each other.
func (s etcdSurvey) split() bool {
	var first []uint64

	for _, node := range s {
		if !node.healthy() {
			continue
		}

		own := memberIDs(node.members)
		if first != nil && !slices.ContainsFunc(own, func(id uint64) bool { return slices.Contains(first, id) }) {
			return true
		}

		if first == nil {
			first = own
		}
	}

	return false
}

// strangers are members that the inventory does not name.
func (s etcdSurvey) strangers(cluster *inventory.Cluster) []string {
	var strangers []string

	for _, node := range s {
		for _, member := range node.members {
			if member.Hostname != "" && !knownMember(cluster, s, member) {
				strangers = appendNew(strangers, member.Hostname)
			}
		}
	}

	return strangers
}

func knownMember(cluster *inventory.Cluster, survey etcdSurvey, member talos.EtcdMember) bool {
	for _, node := range survey {
		if node.member == member.ID {
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

// stale are listed members whose node is in maintenance: they hold nothing any more.
func (s etcdSurvey) stale() []string {
	var stale []string

	for _, node := range s {
		if node.State == talos.Maintenance && s.lists(node.node) {
			stale = append(stale, node.node.Name)
		}
	}

	return stale
}
