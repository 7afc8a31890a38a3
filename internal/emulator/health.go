package emulator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// clusterCheck is one of the checks that a control plane runs for a client.
type clusterCheck struct {
	name string
	// problem says what is wrong among the cluster's nodes; nil when nothing is.
	problem func(nodes []*boot) error
}

// Checks that have names of their own in the code.
const (
	checkDiagnostics = "no diagnostics"
	checkNodesReady  = "all k8s nodes to report ready"
)

// errSkipped is the outcome of a check that the cluster's config leaves nothing to check for.
var errSkipped = errors.New("SKIP")

// checkCluster runs Talos' checks in order, each until it passes. It fails when the time that the caller gives it is over.
func (b *boot) checkCluster(limit time.Duration, stream grpc.ServerStreamingServer[clusterapi.HealthCheckProgress]) error {
	ctx, cancel := b.node.lab.clock.WithTimeout(stream.Context(), limit)
	defer cancel()

	say := func(text string) error { return stream.Send(&clusterapi.HealthCheckProgress{Message: text}) }

	nodes := b.clusterNodes()
	names := make([]string, 0, len(nodes))

	for _, node := range nodes {
		names = append(names, node.node.Address().String())
	}

	slices.Sort(names)

	if err := say(fmt.Sprintf("discovered nodes: %q", names)); err != nil {
		return err
	}

	for _, check := range b.clusterChecks() {
		if err := say("waiting for " + check.name + ": ..."); err != nil {
			return err
		}

		if err := b.passWithin(ctx, b.release.checkLimit(check.name), check, say); err != nil {
			return err
		}
	}

	return nil
}

// passWithin is pass with a limit for this check alone; 0 is none.
func (b *boot) passWithin(ctx context.Context, limit time.Duration, check clusterCheck, say func(string) error) error {
	if limit == 0 {
		return b.pass(ctx, check, say)
	}

	ctx, cancel := b.node.lab.clock.WithTimeout(ctx, limit)
	defer cancel()

	return b.pass(ctx, check, say)
}

// pass waits until a check passes, telling each new problem, and how it ended.
func (b *boot) pass(ctx context.Context, check clusterCheck, say func(string) error) error {
	var told string

	for {
		changed := b.node.lab.changed.wait()

		problem := check.problem(b.clusterNodes())
		if problem == nil {
			return say("waiting for " + check.name + ": OK")
		}

		if text := problem.Error(); text != told {
			told = text

			if err := say("waiting for " + check.name + ": " + text); err != nil {
				return err
			}
		}

		if errors.Is(problem, errSkipped) {
			return nil
		}

		poll, cancel := b.node.lab.clock.WithTimeout(ctx, kubeletRetry)
		err := wait(ctx, poll, changed)

		cancel()

		if err != nil {
			return status.FromContextError(err).Err()
		}
	}
}

// clusterNodes are the running machines of the node's cluster.
func (b *boot) clusterNodes() []*boot {
	var nodes []*boot

	for _, other := range b.node.lab.running() {
		if other == b || (other.clusterID() != "" && other.clusterID() == b.clusterID()) {
			nodes = append(nodes, other)
		}
	}

	return nodes
}

func (b *boot) clusterChecks() []clusterCheck {
	network, config := b.settings().Cluster().Network(), b.settings().Cluster()
	withoutCNI := network.CNI().Name() == constants.NoneCNI && !b.release.checksNodesWithoutCNI

	return []clusterCheck{
		{"etcd to be healthy", onControlPlanes(func(node *boot) error { return node.serviceProblem(serviceEtcd) })},
		{"etcd members to be consistent across nodes", onControlPlanes(sameEtcd(b))},
		{"etcd members to be control plane nodes", onControlPlanes(sameEtcd(b))},
		{"apid to be ready", onAll(func(node *boot) error { return node.apiProblem() })},
		{"all nodes memory sizes", onAll(func(node *boot) error { return node.apiProblem() })},
		{"all nodes disk sizes", onAll(func(node *boot) error { return node.apiProblem() })},
		{checkDiagnostics, onAll(func(node *boot) error { return node.apiProblem() })},
		{"kubelet to be healthy", onControlPlanes(func(node *boot) error { return node.serviceProblem(serviceKubelet) })},
		{"all nodes to finish boot sequence", onAll(func(node *boot) error {
			if stage := node.stageName(); stage != runtimeres.MachineStageRunning.String() {
				return fmt.Errorf("%s: machine is in stage %s", node.node.Address(), stage)
			}

			return nil
		})},
		{"all k8s nodes to report", onAll(func(node *boot) error {
			if known, _ := node.nodeReady(); !known {
				return fmt.Errorf("can't find expected node with IPs [%q]", node.node.Address())
			}

			return nil
		})},
		{"all control plane static pods to be running", onControlPlanes((*boot).staticPodsError)},
		{"all control plane components to be ready", onControlPlanes((*boot).staticPodsError)},
		{checkNodesReady, unless(withoutCNI, onAll((*boot).readyProblem))},
		{"kube-proxy to report ready", unless(!config.Proxy().Enabled(), onAll((*boot).apiProblem))},
		{"coredns to report ready", unless(withoutCNI || !config.CoreDNS().Enabled(), onAll((*boot).readyProblem))},
		{"all k8s nodes to report schedulable", onAll((*boot).apiProblem)},
	}
}

// unless is a check that is skipped on a condition.
func unless(skip bool, problem func([]*boot) error) func([]*boot) error {
	if skip {
		return func([]*boot) error { return errSkipped }
	}

	return problem
}

// onAll is a check that every node must pass; onControlPlanes one for control planes.
func onAll(problem func(*boot) error) func([]*boot) error {
	return func(nodes []*boot) error {
		for _, node := range nodes {
			if err := problem(node); err != nil {
				return err
			}
		}

		return nil
	}
}

func onControlPlanes(problem func(*boot) error) func([]*boot) error {
	return onAll(func(node *boot) error {
		if !node.role().IsControlPlane() {
			return nil
		}

		return problem(node)
	})
}

func sameEtcd(b *boot) func(*boot) error {
	return func(other *boot) error {
		if b.node.EtcdClusterID() == 0 || other.node.EtcdClusterID() != b.node.EtcdClusterID() {
			return fmt.Errorf("etcd member lists differ: %s", other.node.Address())
		}

		return nil
	}
}

func (b *boot) serviceProblem(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()

	svc := b.services[id]

	switch {
	case svc == nil:
		return fmt.Errorf("%s: service %q is not registered", b.node.Address(), id)
	case svc.state != stateRunning:
		return fmt.Errorf("%s: service %q not in expected state %q: current state [%s] %s", b.node.Address(), id, stateRunning, svc.state, svc.message)
	case !svc.up():
		return fmt.Errorf("%s: service is not healthy: %s", b.node.Address(), id)
	default:
		return nil
	}
}

func (b *boot) readyProblem() error {
	if _, ready := b.nodeReady(); !ready {
		return fmt.Errorf("some nodes are not ready: [%s]", b.hostname())
	}

	return nil
}

func (b *boot) apiProblem() error {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.api == nil || b.api.wish.kind != apiSecure {
		return fmt.Errorf("%s: rpc error: code = Unavailable desc = connection error", b.node.Address())
	}

	return nil
}

func (b *boot) staticPodsError() error {
	if text := b.staticPodProblems(); text != "" {
		return errors.New(text)
	}

	return nil
}
