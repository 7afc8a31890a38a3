package steps

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/retry"
	"github.com/talos-mage/talos-mage/internal/base/secrettext"
	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// EtcdRemoveMember takes a member out of etcd whose node is gone for good, and that node out of Kubernetes.
type EtcdRemoveMember struct{}

// Name is the step's name.
func (EtcdRemoveMember) Name() string { return "etcd:removeMember" }

// Exit is the code for a member that was not removed.
func (EtcdRemoveMember) Exit() diagnosis.ExitCode { return diagnosis.ExitBootstrap }

// Mutates marks the step as one that needs the cluster's lock.
func (EtcdRemoveMember) Mutates() {}

// Run removes the member if nothing answers that could be it, and etcd keeps its quorum without it.
func (s EtcdRemoveMember) Run(ctx context.Context, run *Run) error {
	remover := &memberRemover{begin(run, s)}

	survey, problem := remover.survey(ctx)
	if problem != nil {
		return remover.failed(ctx, problem)
	}

	member, problem := remover.named(survey)
	if problem != nil {
		return remover.failed(ctx, problem)
	}

	if member.ID == 0 {
		return remover.done(report.Skipped, "etcd has no member "+run.Settings.Member+" any more; "+membersText(survey))
	}

	if problem := remover.obstacle(ctx, survey, member); problem != nil {
		return remover.failed(ctx, problem)
	}

	what := "member " + describeMember(member)
	if run.Settings.DryRun {
		remover.record(report.Result{Status: report.Planned, Detail: what})
		return remover.wouldChange(what+" would be removed", "the same command without -dryRun")
	}

	// The Node object first: by its id the member could not be found again.
	name := remover.kubernetesName(survey, member)
	left := remover.deleteNode(ctx, name)

	switch problem := remover.remove(ctx, member); {
	case problem != nil && left != nil:
		return remover.failed(ctx, joined([]*diagnosis.Problem{problem, left}))
	case problem != nil:
		return remover.failed(ctx, problem)
	case left != nil:
		return remover.failed(ctx, left)
	}

	return remover.done(report.Applied, what+" removed"+alsoNode(name))
}

func alsoNode(name string) string {
	if name == "" {
		return ""
	}

	return ", and the Kubernetes node " + name
}

// memberRemover takes members out of etcd.
type memberRemover struct{ *work }

// survey asks all control planes, those that are silent again: one whose connection broke may be there. Members can be
// removed only from one etcd that works.
func (r *memberRemover) survey(ctx context.Context) (observe.EtcdSurvey, *diagnosis.Problem) {
	survey := r.surveyPatiently(ctx)

	switch {
	case ctx.Err() != nil:
		return nil, interrupted(ctx, r.step.Name())
	case survey.Split():
		split := splitFinding(survey)
		return nil, r.clusterProblem(split.ID, split.Cause, split.Next)
	case survey.HealthyCount() == 0:
		return nil, r.clusterProblem(diagnosis.RemovalHeldBack, "no member of etcd is healthy: "+survey.Describe(),
			command("etcd:status", nil))
	default:
		return survey, nil
	}
}

// surveyPatiently asks all control planes, and once more as often as a node is called before it counts as silent.
func (w *work) surveyPatiently(ctx context.Context) (survey observe.EtcdSurvey) {
	//nolint:errcheck // the last survey is given, whatever is missing in it
	retry.Do(ctx, w.Clock, observe.Evenly(w.Settings, w.Settings.ReachabilityRetries),
		func(ctx context.Context, _ int) error {
			survey = w.observer.SurveyEtcd(ctx)
			if slices.ContainsFunc(survey, func(node observe.EtcdObservation) bool { return node.Silent() }) {
				return errMissing
			}

			return nil
		}, func(error) bool { return true })

	return survey
}

// listed are the members that etcd itself lists, by one that is healthy.
func listed(survey observe.EtcdSurvey) []talos.EtcdMember {
	for _, node := range survey {
		if node.Healthy() {
			return node.Members
		}
	}

	return nil
}

func describeMember(member talos.EtcdMember) string {
	return memberName(member.ID) + text.Because(member.Hostname)
}

func membersText(survey observe.EtcdSurvey) string {
	var described []string
	for _, member := range listed(survey) {
		described = append(described, describeMember(member))
	}

	return "its members are " + text.List(described)
}

// removed reports whether an id was that of a member which is gone: it is whole, and no slip of the fingers away from
// any that is left. An id is 64 bits of chance, and never given again.
func removed(id uint64, asked string, ids []string) bool {
	return id != 0 && strings.EqualFold(asked, memberName(id)) && suggest.Word(asked, ids) == ""
}

// named is the member that was asked for; none if it is gone already.
func (r *memberRemover) named(survey observe.EtcdSurvey) (talos.EtcdMember, *diagnosis.Problem) {
	members, asked := listed(survey), r.Settings.Member

	digits := strings.TrimPrefix(strings.ToLower(asked), "0x")
	id, err := strconv.ParseUint(digits, 16, 64)
	at := slices.IndexFunc(members, func(member talos.EtcdMember) bool { return member.ID == id })
	if at >= 0 && err == nil {
		return members[at], nil
	}

	var ids []string
	for _, member := range members {
		ids = append(ids, memberName(member.ID))
	}

	if removed(id, digits, ids) {
		return talos.EtcdMember{}, nil
	}

	unknown := diagnosis.NewProblem(diagnosis.UnknownMember, fmt.Sprintf("%s names %q, which is no member of etcd; %s",
		r.Settings.NameOf("<id>"), secrettext.Shown(asked), membersText(survey)),
		command("etcd:members", nil)).In(r.step.Name())

	if near := suggest.Word(asked, ids); near != "" {
		unknown.Next = "mage etcd:removeMember " + near + ", if that is meant"
	}

	return talos.EtcdMember{}, unknown
}

// obstacle is why a member must stay: its node answers, or etcd would lose its quorum without it.
func (r *memberRemover) obstacle(ctx context.Context, survey observe.EtcdSurvey,
	member talos.EtcdMember) *diagnosis.Problem {
	if problem := r.answers(ctx, survey, member); problem != nil {
		return problem
	}

	return r.quorumWithout(survey, member)
}

// answers is the problem of a member whose node answers at any address that is known of it.
func (r *memberRemover) answers(ctx context.Context, survey observe.EtcdSurvey,
	member talos.EtcdMember) *diagnosis.Problem {
	for _, node := range survey {
		switch {
		case node.MemberID == member.ID:
			return r.answering(node.Observation, "it answers: "+node.Text())
		case r.nodeOf(survey, member) != node.Node.Name || node.MemberID != 0 && node.Wrong == nil:
			continue // another node, or another member since
		case node.State == talos.UnknownCA:
			return r.notOurs(node.Observation)
		case node.State == talos.Ours:
			return r.answering(node.Observation, "it answers: "+node.Text())
		}
	}

	for _, address := range r.undeclared(peerAddresses(member)) {
		if probed := r.observer.Dialer().Probe(ctx, address); probed.State == talos.Ours {
			problem := r.clusterProblem(diagnosis.MemberAnswers, fmt.Sprintf("%s is not removed: a node of this cluster "+
				"answers at its address %s", describeMember(member), address), "reset it, or power it off for good")
			problem.Address = address

			return problem
		}
	}

	return nil
}

func (r *memberRemover) answering(seen observe.Observation, how string) *diagnosis.Problem {
	return r.problem(seen, diagnosis.MemberAnswers, "its member of etcd is not removed, since "+how,
		"power it off for good first; "+command("status", seen.Node))
}

// peerAddresses are where the other members find a member.
func peerAddresses(member talos.EtcdMember) []string {
	var addresses []string
	for _, peer := range member.PeerURLs {
		if parsed, err := url.Parse(peer); err == nil {
			if address, err := netip.ParseAddr(parsed.Hostname()); err == nil {
				addresses = text.AppendNew(addresses, address.String())
			}
		}
	}

	return addresses
}

// undeclared are those of some addresses that are no declared node's: what answers there was asked already.
func (r *memberRemover) undeclared(addresses []string) []string {
	return filtered(addresses, func(address string) bool {
		return !slices.ContainsFunc(r.Cluster.Nodes, func(node *inventory.Node) bool {
			return slices.Contains(r.observer.Addresses(node), address)
		})
	})
}

// quorumWithout is the problem of an etcd that needs the member: most of the others have to be healthy.
func (r *memberRemover) quorumWithout(survey observe.EtcdSurvey, member talos.EtcdMember) *diagnosis.Problem {
	if member.Learner {
		return nil
	}

	voters, healthy := 0, 0
	for _, other := range listed(survey) {
		if other.ID == member.ID || other.Learner {
			continue
		}

		voters++

		if slices.ContainsFunc(survey, func(node observe.EtcdObservation) bool {
			return node.Healthy() && node.MemberID == other.ID
		}) {
			healthy++
		}
	}

	if needed := voters/2 + 1; healthy < needed { //nolint:mnd // a majority
		return r.clusterProblem(diagnosis.RemovalHeldBack, fmt.Sprintf("%s is not removed: of the %s that would be left "+
			"%d would be healthy, and %d are needed: %s", describeMember(member), text.Counted(voters, "voter"), healthy,
			needed, survey.Describe()), command("etcd:status", nil))
	}

	return nil
}

// remove has the member removed through one that is healthy, and looks whether it is gone. An id is never given again,
// so that a call whose reply was lost can be repeated.
func (r *memberRemover) remove(ctx context.Context, member talos.EtcdMember) *diagnosis.Problem {
	since, refusal := r.Clock.Now(), "etcd lists it still"

	return r.waiter().Until(ctx, func(ctx context.Context) wait.State {
		survey := r.observer.SurveyEtcd(ctx)

		switch {
		case gone(survey, member):
			return wait.State{Done: true}
		case survey.HealthyCount() > 0:
			if problem := r.obstacle(ctx, survey, member); problem != nil {
				return wait.State{Problem: problem}
			}

			if err := r.send(ctx, survey, member); err != nil {
				if class := talos.Classify(talos.OpRemoveMember, err); class == talos.Final && ctx.Err() == nil {
					return wait.State{Problem: r.clusterProblem(diagnosis.RemovalFailed, talos.Explain(err),
						command("etcd:status", nil)).From(err)}
				}

				refusal = talos.Explain(err)
			}
		}

		return wait.State{
			Limit: wait.Limit{For: "removing member " + describeMember(member), Since: since, Limit: r.Settings.EtcdTimeout},
			Pause: etcdPause,
			TimeUp: func(waited time.Duration) *diagnosis.Problem {
				return r.clusterProblem(diagnosis.RemovalFailed, fmt.Sprintf("%s is a member still after %s: %s",
					describeMember(member), waited, refusal), command("etcd:status", nil))
			},
		}
	})
}

// gone reports whether the healthy members agree that a member is none.
func gone(survey observe.EtcdSurvey, member talos.EtcdMember) bool {
	return survey.HealthyCount() > 0 && !slices.ContainsFunc(survey, func(node observe.EtcdObservation) bool {
		return node.Healthy() && slices.ContainsFunc(node.Members,
			func(other talos.EtcdMember) bool { return other.ID == member.ID })
	})
}

func (r *memberRemover) send(ctx context.Context, survey observe.EtcdSurvey, member talos.EtcdMember) error {
	var err error

	for _, node := range survey {
		if !node.Healthy() {
			continue
		}

		var conn *talos.Conn
		if conn, err = r.observer.Dialer().Secure(ctx, node.Address); err != nil {
			continue
		}
		defer conn.Close()

		calling, stop := context.WithTimeout(ctx, r.Settings.AttemptTimeout)
		defer stop()

		return r.gate.RemoveMember(calling, conn, member.ID)
	}

	return err //nolint:wrapcheck // its class is the caller's to judge
}

// kubernetesName is what Kubernetes calls the node of a member that is gone; empty where that node lives on as another
// member.
func (r *memberRemover) kubernetesName(survey observe.EtcdSurvey, member talos.EtcdMember) string {
	for _, node := range survey {
		if node.State == talos.Ours && node.Wrong == nil && node.Node.Name == r.nodeOf(survey, member) {
			return ""
		}
	}

	return member.Hostname
}

// deleteNode takes a node out of Kubernetes.
func (r *memberRemover) deleteNode(ctx context.Context, name string) *diagnosis.Problem {
	if name == "" {
		return nil
	}

	err := r.askKubernetes(ctx, func(ctx context.Context, client *kube.Client) error {
		return r.gate.DeleteNode(ctx, client, name)
	})
	if err == nil {
		return nil
	}

	return r.nodeLeft(fmt.Sprintf("the Kubernetes node %s was not deleted: %s", name, kube.Explain(err)),
		"kubectl delete node "+name, err)
}

// askKubernetes asks the API for something, again as often as a node is called before it counts as silent.
func (r *memberRemover) askKubernetes(ctx context.Context, ask func(context.Context, *kube.Client) error) error {
	_, err := retry.Do(ctx, r.Clock, observe.Evenly(r.Settings, r.Settings.ReachabilityRetries),
		func(ctx context.Context, _ int) error {
			client, err := (&observe.Kubernetes{Observer: r.observer}).Client(ctx)
			if err != nil {
				return err
			}

			return ask(ctx, client)
		}, func(error) bool { return true })

	return err //nolint:wrapcheck // the caller explains it
}

// nodeLeft is the problem of a node that Kubernetes lists still.
func (r *memberRemover) nodeLeft(cause, next string, err error) *diagnosis.Problem {
	left := r.clusterProblem(diagnosis.NodeObjectLeft, cause, next).From(err)
	left.Exit = diagnosis.ExitKubernetes

	return left
}
