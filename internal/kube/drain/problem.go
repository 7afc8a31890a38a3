package drain

import (
	"errors"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
)

// Problem is what a person reads of a drain or an uncordon that failed. Again is the command that goes on.
func Problem(err error, again string) *diagnosis.Problem {
	var (
		blocked *BlockedError
		stuck   *StuckError
		left    *CordonLeftError
	)

	problem := diagnosis.NewProblem(kube.Diagnose(err), "the Kubernetes API does not drain the node: "+kube.Explain(err),
		again)

	switch {
	case errors.As(err, &left):
		problem = diagnosis.NewProblem(diagnosis.CordonLeft, left.text(), fmt.Sprintf("kubectl uncordon %s", left.Node))
	case errors.As(err, &blocked):
		problem = diagnosis.NewProblem(diagnosis.DrainBlocked, blocked.Error(),
			"kubectl get poddisruptionbudgets -A shows what they allow; then "+again)
	case errors.As(err, &stuck):
		problem = diagnosis.NewProblem(diagnosis.DrainUnending, stuck.Error(),
			"kubectl describe pod shows what it waits for; then "+again)
	}

	return problem.From(err)
}
