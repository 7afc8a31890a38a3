package clusterhealth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/hashicorp/go-multierror"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/imager/quirks"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
)

// serviceHealthy checks a service of the control planes: all of them have to answer, and its last event counts.
func serviceHealthy(service string) func(ctx context.Context, c *Cluster) error {
	return func(ctx context.Context, c *Cluster) error {
		found, err := c.Talos.ServiceInfo(client.WithNodes(ctx, addresses(c.ControlPlanes)...), service)
		if err != nil {
			return err
		}

		if len(found) != len(c.ControlPlanes) {
			return fmt.Errorf("expected a response with %d node(s), got %d", len(c.ControlPlanes), len(found))
		}

		slices.SortFunc(found, func(a, b client.ServiceInfo) int {
			return cmp.Compare(a.Metadata.GetHostname(), b.Metadata.GetHostname())
		})

		var problems *multierror.Error

		for _, one := range found {
			problems = multierror.Append(problems, serviceProblem(one, service))
		}

		return problems.ErrorOrNil()
	}
}

func serviceProblem(found client.ServiceInfo, service string) error {
	node, events := found.Metadata.GetHostname(), found.Service.GetEvents().GetEvents()
	if len(events) == 0 {
		return fmt.Errorf("%s: no events recorded yet for service %q", node, service)
	}

	if last := events[len(events)-1]; last.GetState() != "Running" {
		return fmt.Errorf("%s: service %q not in expected state %q: current state [%s] %s", node, service, "Running",
			last.GetState(), last.GetMsg())
	}

	if !found.Service.GetHealth().GetHealthy() {
		return fmt.Errorf("%s: service is not healthy: %s", node, service)
	}

	return nil
}

// memberFacts are what all control planes have to agree on about a member.
type memberFacts struct {
	name    string
	id      uint64
	learner bool
}

func etcdConsistent(ctx context.Context, c *Cluster) error {
	reply, err := c.Talos.EtcdMemberList(client.WithNodes(ctx, addresses(c.ControlPlanes)...),
		&machineapi.EtcdMemberListRequest{})
	if err != nil {
		return err
	}

	answers := reply.GetMessages()
	if len(answers) == 0 {
		return errors.New("no messages returned")
	}

	slices.SortFunc(answers, func(a, b *machineapi.EtcdMembers) int {
		return cmp.Compare(a.GetMetadata().GetHostname(), b.GetMetadata().GetHostname())
	})

	known := map[memberFacts]bool{}

	var expected []string

	for _, member := range answers[0].GetMembers() {
		known[memberFacts{member.GetHostname(), member.GetId(), member.GetIsLearner()}] = true
		expected = append(expected, member.GetHostname())
	}

	for _, answer := range answers[1:] {
		node := answer.GetMetadata().GetHostname()

		if members := answer.GetMembers(); len(members) != len(known) {
			actual := make([]string, 0, len(members))
			for _, member := range members {
				actual = append(actual, member.GetHostname())
			}

			return fmt.Errorf("%s: expected to have %v members, got %v", node, expected, actual)
		}

		for _, member := range answer.GetMembers() {
			if !known[memberFacts{member.GetHostname(), member.GetId(), member.GetIsLearner()}] {
				return fmt.Errorf("%s: found unexpected etcd member %s", node, member.GetHostname())
			}
		}
	}

	return nil
}

func etcdOnControlPlanes(ctx context.Context, c *Cluster) error {
	reply, err := c.Talos.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
	if err != nil {
		return err
	}

	if len(reply.GetMessages()) == 0 {
		return errors.New("no messages returned")
	}

	var peers, nodes []string

	for _, member := range reply.GetMessages()[0].GetMembers() {
		for _, peer := range member.GetPeerUrls() {
			parsed, err := url.Parse(peer)
			if err != nil {
				return err
			}

			peers = append(peers, parsed.Hostname())
		}
	}

	for _, node := range c.ControlPlanes {
		for _, address := range node.IPs {
			nodes = append(nodes, address.String())
		}
	}

	for _, peer := range peers {
		if !slices.Contains(nodes, peer) {
			return fmt.Errorf("etcd member ips %q are not subset of control plane node ips %q", peers, nodes)
		}
	}

	return nil
}

func apidReady(ctx context.Context, c *Cluster) error {
	_, err := c.Talos.Version(client.WithNodes(ctx, c.Addresses()...))

	return err
}

// machines are the nodes that are no containers, by their addresses.
func machines(ctx context.Context, c *Cluster) ([]string, error) {
	reply, err := c.Talos.Version(client.WithNodes(ctx, c.Addresses()...))
	if err != nil {
		return nil, fmt.Errorf("error getting version: %w", err)
	}

	var found []string

	for _, answer := range reply.GetMessages() {
		if answer.GetMetadata() == nil {
			return nil, errors.New("got empty metadata")
		}

		if answer.GetPlatform().GetMode() != "container" {
			found = append(found, answer.GetMetadata().GetHostname())
		}
	}

	slices.Sort(found)

	return found, nil
}

const (
	kibibyte = 1 << 10
	mebibyte = 1 << 20
	gibibyte = 1 << 30
	// kernelShare is what a machine may miss of its nominal memory, in bytes.
	kernelShare = 150 * mebibyte
)

func memorySizes(ctx context.Context, c *Cluster) error {
	nodes, err := machines(ctx, c)
	if err != nil || len(nodes) == 0 {
		return err
	}

	reply, err := c.Talos.Memory(client.WithNodes(ctx, nodes...))
	if err != nil {
		return fmt.Errorf("error getting nodes memory: %w", err)
	}

	var problems *multierror.Error

	for _, answer := range reply.GetMessages() {
		if answer.GetMetadata() == nil {
			return errors.New("no metadata in the response")
		}

		node := answer.GetMetadata().GetHostname()

		var smallest uint64

		switch {
		case slices.Contains(addresses(c.ControlPlanes), node):
			smallest = 1848*mebibyte - kernelShare
		case slices.Contains(addresses(c.Workers), node):
			smallest = gibibyte - kernelShare
		default:
			return fmt.Errorf("unexpected node %q in response", node)
		}

		if total := answer.GetMeminfo().GetMemtotal() * kibibyte; total < smallest {
			problems = multierror.Append(problems,
				fmt.Errorf("node %q does not meet memory requirements: expected at least %d MiB, actual %d MiB",
					node, smallest/mebibyte, total/mebibyte))
		}
	}

	return problems.ErrorOrNil()
}

// smallestDisk is what Talos needs at least, in bytes.
const smallestDisk = 6 * gibibyte

// tableShare is what a disk's partition table takes, alignment included, in bytes.
const tableShare = 10 * mebibyte

func diskSizes(ctx context.Context, c *Cluster) error {
	nodes, err := machines(ctx, c)
	if err != nil {
		return err
	}

	sizes := quirks.New("").PartitionSizes()
	smallest := smallestDisk - (sizes.UKIEFISize() + sizes.StateSize() + sizes.METASize() + tableShare)

	var problems *multierror.Error

	for _, node := range nodes {
		volume, err := safe.StateGetByID[*block.VolumeStatus](client.WithNode(ctx, node), c.Talos.COSI,
			constants.EphemeralPartitionLabel)

		switch {
		case client.StatusCode(err) == codes.PermissionDenied:
			return errSkip
		case err != nil:
			problems = multierror.Append(problems, fmt.Errorf("error getting volume status for node %q: %w", node, err))
		case volume.TypedSpec().Size < smallest:
			problems = multierror.Append(problems,
				fmt.Errorf("ephemeral partition %q for node %q is too small, expected at least %s, actual %s",
					volume.TypedSpec().Location, node, gibibytes(smallest), gibibytes(volume.TypedSpec().Size)))
		}
	}

	return problems.ErrorOrNil()
}

func gibibytes(size uint64) string { return fmt.Sprintf("%.1f GiB", float64(size)/gibibyte) }

func diagnostics(ctx context.Context, c *Cluster) error {
	var problems []string

	nodes := c.Addresses()
	slices.Sort(nodes)

	for _, node := range nodes {
		found, err := safe.StateListAll[*runtimeres.Diagnostic](client.WithNode(ctx, node), c.Talos.COSI)
		if client.StatusCode(err) == codes.PermissionDenied {
			return errSkip
		} else if err != nil {
			return err
		}

		var texts []string

		for one := range found.All() {
			texts = append(texts, one.TypedSpec().Message)
		}

		if len(texts) > 0 {
			problems = append(problems, node+": "+strings.Join(texts, ", "))
		}
	}

	if len(problems) > 0 {
		return fmt.Errorf("active diagnostics: %s", strings.Join(problems, "; "))
	}

	return nil
}

// stageEvent is a change of a node's status.
type stageEvent struct {
	node string
	state.Event
}

// booted looks at the stage of all nodes at once, as soon as each has told its own.
func booted(ctx context.Context, c *Cluster) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	events := make(chan stageEvent)

	for _, node := range c.Addresses() {
		changes := make(chan state.Event)
		if err := c.Talos.COSI.Watch(client.WithNode(ctx, node), runtimeres.NewMachineStatus().Metadata(),
			changes); err != nil {
			return err
		}

		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case change := <-changes:
					select {
					case <-ctx.Done():
						return
					case events <- stageEvent{node, change}:
					}
				}
			}
		}()
	}

	stages := map[string]runtimeres.MachineStage{}

	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event := <-events:
			if event.Type == state.Errored {
				return fmt.Errorf("error watching machine %s status: %w", event.node, event.Error)
			}

			if stage := stageOf(event.Resource); stage != runtimeres.MachineStageUnknown {
				stages[event.node] = stage
			}
		}

		if len(stages) == len(c.Addresses()) {
			return stageProblem(stages)
		}
	}
}

func stageOf(shown resource.Resource) runtimeres.MachineStage {
	if status, ok := shown.(*runtimeres.MachineStatus); ok {
		return status.TypedSpec().Stage
	}

	return runtimeres.MachineStageUnknown
}

func stageProblem(stages map[string]runtimeres.MachineStage) error {
	others := map[runtimeres.MachineStage][]string{}

	for node, stage := range stages {
		if stage != runtimeres.MachineStageRunning {
			others[stage] = append(others[stage], node)
		}
	}

	if len(others) == 0 {
		return nil
	}

	var problems []string

	for _, stage := range slices.Sorted(maps.Keys(others)) {
		slices.Sort(others[stage])
		problems = append(problems, fmt.Sprintf("%s: %v", stage, others[stage]))
	}

	return fmt.Errorf("nodes are not running: %s", strings.Join(problems, ", "))
}

// cniLeftOut reports whether the control plane leaves the CNI to somebody else.
func cniLeftOut(ctx context.Context, c *Cluster) (bool, error) {
	manifests, err := safe.StateGetByID[*k8s.BootstrapManifestsConfig](ctx, c.Talos.COSI, k8s.BootstrapManifestsConfigID)
	if err != nil {
		return false, err
	}

	return manifests.TypedSpec().CNIName == constants.NoneCNI, nil
}

// question is something that a cluster answers.
type question func(ctx context.Context, c *Cluster) (bool, error)

// noManifestsOr takes a cluster without bootstrap manifests for one that leaves something out, too.
func noManifestsOr(leftOut question) question {
	return func(ctx context.Context, c *Cluster) (bool, error) {
		missing, err := leftOut(ctx, c)
		if state.IsNotFoundError(err) {
			return true, nil
		}

		return missing, err
	}
}

// etcdLeftOut reports whether the control plane declares no etcd.
func etcdLeftOut(ctx context.Context, c *Cluster) (bool, error) {
	found, err := safe.StateGetByID[*config.MachineConfig](ctx, c.Talos.COSI, config.ActiveID)
	if err != nil {
		return false, err
	}

	cluster := found.Config().Cluster()

	return cluster == nil || cluster.Etcd() == nil || cluster.Etcd().CA() == nil, nil
}

// kubeletLeftOut reports whether the control plane runs no kubelet.
func kubeletLeftOut(ctx context.Context, c *Cluster) (bool, error) {
	_, err := safe.StateGetByID[*k8s.KubeletConfig](ctx, c.Talos.COSI, k8s.KubeletID)
	if state.IsNotFoundError(err) {
		return true, nil
	}

	return false, err
}

func staticPods(ctx context.Context, c *Cluster) error {
	for _, node := range c.ControlPlanes {
		found, err := safe.StateListAll[*k8s.StaticPodStatus](client.WithNode(ctx, node.InternalIP.String()), c.Talos.COSI)
		if err != nil {
			return fmt.Errorf("error listing static pods on node %s: %w", node.InternalIP, err)
		}

		missing := []string{"kube-system/kube-apiserver", "kube-system/kube-controller-manager", "kube-system/kube-scheduler"}

		for pod := range found.All() {
			missing = slices.DeleteFunc(missing, func(name string) bool { return strings.HasPrefix(pod.Metadata().ID(), name) })
		}

		if len(missing) > 0 {
			return fmt.Errorf("missing static pods on node %s: %v", node.InternalIP, missing)
		}
	}

	return nil
}
