package talos

import (
	"context"
	"errors"
	"strings"
	"time"

	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// HealthCheck is one of the checks that a control plane makes of its cluster, and what it came to so far.
type HealthCheck struct {
	// Name is Talos' own: "etcd to be healthy".
	Name string
	// Passed and LeftOut are how it can be over; until then Reason is why it does not pass, empty before it is known.
	Passed, LeftOut bool
	Reason          string
}

// Over reports whether nothing more is to come of the check.
func (c HealthCheck) Over() bool { return c.Passed || c.LeftOut }

// ErrHealthCutOff is a stream that ended as if all were well, before all was checked.
var ErrHealthCutOff = errors.New("it stopped before it had checked everything")

// HealthNodes are the addresses of the nodes to check; none where the node is to find out by itself: from discovery, or
// without that from Kubernetes.
type HealthNodes struct{ ControlPlanes, Workers []string }

// CheckHealth has the node, a control plane, check its cluster, and gives what it tells. It goes on until every check
// passes, or the limit is over, which is the node's time. A check that fails in the same way is silent for as long as
// it may go on; a node that no longer answers ends it.
func (c *Conn) CheckHealth(ctx context.Context, limit time.Duration, nodes HealthNodes, tell func(HealthCheck)) error {
	return c.work(ctx, OpHealth, func(ctx context.Context, _ func()) error {
		stream, err := c.api.ClusterHealthCheck(ctx, limit, &clusterapi.ClusterInfo{ControlPlaneNodes: nodes.ControlPlanes,
			WorkerNodes: nodes.Workers})
		if err != nil {
			return err
		}

		last := HealthCheck{}

		err = receive(stream.Recv, func(progress *clusterapi.HealthCheckProgress) {
			if check, told := parseHealth(progress.GetMessage()); told {
				last = check
				tell(check)
			}
		})
		if err == nil && !last.Over() {
			return ErrHealthCutOff
		}

		return err
	})
}

// IsTimeUp reports whether a check of the cluster's health ended since its time was over.
func IsTimeUp(err error) bool {
	return err != nil && (errors.Is(err, context.DeadlineExceeded) || client.StatusCode(err) == codes.DeadlineExceeded)
}

// parseHealth reads a line: "waiting for etcd to be healthy: OK". Others, as the list of nodes, are no checks.
func parseHealth(line string) (check HealthCheck, told bool) {
	rest, told := strings.CutPrefix(line, "waiting for ")
	if !told {
		return HealthCheck{}, false
	}

	name, state, _ := strings.Cut(rest, ": ")
	check.Name = strings.TrimSpace(name)

	switch state = strings.TrimSpace(state); state {
	case "OK":
		check.Passed = true
	case "SKIP":
		check.LeftOut = true
	case "", "...":
	default:
		check.Reason = plainReason(state)
	}

	return check, true
}

// Parts of reasons that say nothing to people: how machinery joins several errors, and how gRPC begins one.
var (
	listing  = pattern.New(`\d+ errors? occurred:\s*`)
	answered = pattern.New(`rpc error: code = \w+ desc = `)
	noReply  = pattern.New(`context deadline exceeded|stream terminated by RST_STREAM with error code: CANCEL`)
)

// plainReason is a reason on one line, without secrets, in plain words where they are known.
func plainReason(text string) string {
	text = strings.ReplaceAll(listing.ReplaceAllString(text, ""), "\n\t* ", "; ")
	text = noReply.ReplaceAllString(answered.ReplaceAllString(text, ""), errNoAnswer.Error())

	return strings.TrimPrefix(oneLine(scrub(text)), "* ")
}
