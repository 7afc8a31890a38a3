package kubernetes

import (
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// budgetState is how a PodDisruptionBudget stands.
type budgetState struct {
	namespace, name, app string
	needed, healthy, all int
	wantsAll             bool
}

// budgets are those of the workloads, and of what runs on nodes whose pods nobody can evict.
func (s snapshot) budgets() []budgetState {
	var budgets []budgetState

	held := s.heldWork()

	for _, work := range s.work {
		if work.Budget > 0 || held[work] {
			budgets = append(budgets, budgetState{namespace: work.Namespace, name: work.Name, app: work.app(),
				needed: work.Budget, wantsAll: held[work]})
		}
	}

	for i := range budgets {
		budget := &budgets[i]

		for _, pod := range s.pods {
			if !pod.ends.IsZero() || pod.work.Namespace != budget.namespace || pod.work.app() != budget.app {
				continue
			}

			budget.all++

			if s.isReady(pod) {
				budget.healthy++
			}
		}

		if budget.wantsAll {
			budget.needed = budget.all
		}
	}

	return budgets
}

// heldWork is what has pods on a node whose pods nobody can evict.
func (s snapshot) heldWork() map[*Workload]bool {
	held := map[*Workload]bool{}

	for _, pod := range s.pods {
		if slices.ContainsFunc(s.nodes, func(node nodeState) bool { return node.held && node.Name == pod.node }) {
			held[pod.work] = true
		}
	}

	return held
}

func (b budgetState) allowed() int { return max(0, b.healthy-b.needed) }

func (s snapshot) listBudgets() []item {
	var items []item

	for _, one := range s.budgets() {
		needed := intstr.FromInt32(int32(one.needed)) //nolint:gosec // a few
		budget := &policyv1.PodDisruptionBudget{
			TypeMeta: metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
			ObjectMeta: meta(one.name, one.namespace, s.created, s.revision,
				stableUID("PodDisruptionBudget", one.namespace+"/"+one.name)),
			Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &needed,
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: one.app}}},
			Status: policyv1.PodDisruptionBudgetStatus{
				DisruptionsAllowed: int32(one.allowed()), CurrentHealthy: int32(one.healthy), //nolint:gosec // a few
				DesiredHealthy: int32(one.needed), ExpectedPods: int32(one.all), //nolint:gosec // a few
			},
		}

		items = append(items, item{object: budget,
			cells: []any{one.name, needed.String(), "N/A", one.allowed(), s.age(s.created)}})
	}

	return items
}

// evictPod evicts a pod unless its budgets forbid it.
// Source: kubernetes pkg/registry/core/pod/storage/eviction.go.
func (s *Server) evictPod(w http.ResponseWriter, c call, state snapshot) {
	for _, pod := range state.pods {
		if pod.work.Namespace != c.namespace || pod.name() != c.name {
			continue
		}

		if refusal := state.refuses(pod); refusal != nil {
			writeJSON(w, int(refusal.Code), refusal)

			return
		}
	}

	s.deletePod(w, c, state)
}

// refuses is the API server's answer to an eviction that the pod's budgets forbid; nil for one that they allow.
func (s snapshot) refuses(pod podState) *metav1.Status {
	if pod.phase() != corev1.PodRunning || !pod.ends.IsZero() {
		return nil
	}

	var covering []budgetState

	for _, budget := range s.budgets() {
		if budget.namespace == pod.work.Namespace && budget.app == pod.work.app() {
			covering = append(covering, budget)
		}
	}

	refusal := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure}

	switch {
	case len(covering) == 0, covering[0].allowed() > 0 && len(covering) == 1,
		len(covering) == 1 && !s.isReady(pod) && covering[0].healthy >= covering[0].needed:
		return nil
	case len(covering) > 1:
		refusal.Code = http.StatusInternalServerError
		refusal.Message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
	default:
		refusal.Code, refusal.Reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
		refusal.Message = "Cannot evict pod as it would violate the pod's disruption budget."
		refusal.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{
			Type: policyv1.DisruptionBudgetCause,
			Message: fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", covering[0].name,
				covering[0].needed, covering[0].healthy),
		}}}
	}

	return refusal
}
