package drain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/talos-mage/talos-mage/internal/kube"
)

// HeldPod is a pod whose eviction the API refuses.
type HeldPod struct {
	Namespace, Name string
	// Budgets are the PodDisruptionBudgets that cover the pod; none if the refusal has another cause.
	Budgets []Budget
	// Answer is what the API server says.
	Answer string
	// ForGood is a refusal that no waiting changes.
	ForGood bool
}

// Budget is a PodDisruptionBudget as it is now.
type Budget struct {
	Name string
	// Healthy pods there are; Needed must stay.
	Healthy, Needed int32
}

func (p HeldPod) String() string {
	pod := fmt.Sprintf("pod %s/%s", p.Namespace, p.Name)

	switch len(p.Budgets) {
	case 0:
		return fmt.Sprintf("%s (%s)", pod, p.Answer)
	case 1:
		budget := p.Budgets[0]

		return fmt.Sprintf("%s (PodDisruptionBudget %s needs %d healthy pods and has %d)", pod, budget.Name, budget.Needed,
			budget.Healthy)
	default:
		names := make([]string, 0, len(p.Budgets))
		for _, budget := range p.Budgets {
			names = append(names, budget.Name)
		}

		return fmt.Sprintf("%s (PodDisruptionBudgets %s cover it, and Kubernetes evicts no pod that more than one covers)",
			pod, strings.Join(names, " and "))
	}
}

// BlockedError is a drain that the API did not let end: it names the pods and their budgets.
type BlockedError struct {
	Node string
	Pods []HeldPod
}

func (e *BlockedError) Error() string {
	pods := make([]string, 0, len(e.Pods))
	for _, pod := range e.Pods {
		pods = append(pods, pod.String())
	}

	return fmt.Sprintf("node %s can't be drained: it holds %s", e.Node, strings.Join(pods, ", "))
}

// StuckError is a drain whose pods were all evicted, but did not end in time.
type StuckError struct {
	Node  string
	Pods  []string
	Limit time.Duration
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("node %s can't be drained: evicted pods did not end within %s: %s", e.Node, e.Limit,
		strings.Join(e.Pods, ", "))
}

// CordonLeftError is a drain that failed, and whose cordon could not be taken back.
type CordonLeftError struct {
	Node string
	// Cause is why the drain failed, Err why the cordon stays.
	Cause, Err error
}

func (e *CordonLeftError) Error() string {
	return fmt.Sprintf("%s; and node %s stays cordoned: %s", e.Cause, e.Node, kube.Explain(e.Err))
}

// text is the same for people, to whom only the drain's own errors speak.
func (e *CordonLeftError) text() string {
	var (
		blocked *BlockedError
		stuck   *StuckError
	)

	if errors.As(e.Cause, &blocked) || errors.As(e.Cause, &stuck) {
		return e.Error()
	}

	return fmt.Sprintf("the drain ended (%s), and node %s stays cordoned: %s", kube.Explain(e.Cause), e.Node,
		kube.Explain(e.Err))
}

// Unwrap gives both.
func (e *CordonLeftError) Unwrap() []error { return []error{e.Cause, e.Err} }

// holder says why a pod can't be evicted: which budgets cover it, and what the API answered.
func (d Drainer) holder(ctx context.Context, pod corev1.Pod, refusal error) HeldPod {
	held := HeldPod{Namespace: pod.Namespace, Name: pod.Name, Answer: answer(refusal), ForGood: !transient(refusal)}

	// That more than one budget covers a pod is an error of the server's own, without a reason.
	if !isBudget(refusal) && codeOf(refusal) != http.StatusInternalServerError {
		return held
	}

	// Without the list the answer still names the budget.
	if budgets, err := d.budgetsOf(ctx, pod); err == nil {
		held.Budgets = budgets
		held.ForGood = held.ForGood || len(budgets) > 1
	}

	return held
}

// budgetsOf are the budgets that cover a pod.
func (d Drainer) budgetsOf(ctx context.Context, pod corev1.Pod) ([]Budget, error) {
	var list policyv1.PodDisruptionBudgetList
	if err := d.Client.Read(ctx, "/apis/policy/v1/namespaces/"+pod.Namespace+"/poddisruptionbudgets", &list); err != nil {
		return nil, err
	}

	var budgets []Budget

	for _, one := range list.Items {
		selector, err := metav1.LabelSelectorAsSelector(one.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			budgets = append(budgets, Budget{Name: one.Name, Healthy: one.Status.CurrentHealthy,
				Needed: one.Status.DesiredHealthy})
		}
	}

	return budgets, nil
}

// answer is the API server's own words, with the cause that it names.
func answer(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return kube.Explain(err)
	}

	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause {
				return cause.Message
			}
		}
	}

	return status.Status().Message
}

func isBudget(err error) bool { return apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) }

// codeOf is what the API server itself answered, 0 if something failed on the way to it.
func codeOf(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}

	return int(status.Status().Code)
}

// transient reports whether trying again can help.
func transient(err error) bool {
	code := codeOf(err)

	return code == 0 && kube.MayPass(err) ||
		code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusConflict ||
		isBudget(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
