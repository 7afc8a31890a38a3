package clients_test

import (
	"context"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"k8s.io/client-go/rest"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/clusterhealth"
)

// healthFromHere makes the checks of the cluster's health from the operator's side: the members as the endpoint knows
// them, every call through it.
func (s *invocation) healthFromHere(ctx context.Context) error {
	// Whom the command is for does not matter.
	s.nodes = []string{""}

	lines, hangUp, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp()

	api := lines[0].Client
	checked := &clusterhealth.Cluster{Talos: api, Kubernetes: s.kubernetesOnce(api)}

	members, err := safe.StateListAll[*clusterres.Member](ctx, api.COSI)
	if err != nil {
		return err
	}

	for member := range members.All() {
		node := clusterhealth.Node{InternalIP: member.TypedSpec().Addresses[0], IPs: member.TypedSpec().Addresses}

		if member.TypedSpec().MachineType == machine.TypeWorker {
			checked.Workers = append(checked.Workers, node)
		} else {
			checked.ControlPlanes = append(checked.ControlPlanes, node)
		}
	}

	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()

	return clusterhealth.Wait(ctx, checked, clusterhealth.Options{
		Interval: func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(lookAgain):
				return nil
			}
		},
	}, func(line string) error {
		s.warn("%s", line)

		return nil
	})
}

// kubernetesOnce connects when it is first asked to.
func (s *invocation) kubernetesOnce(api *client.Client) func(context.Context) (rest.Interface, error) {
	var known rest.Interface

	return func(ctx context.Context) (rest.Interface, error) {
		if known != nil {
			return known, nil
		}

		made, err := s.kubernetes(ctx, api)
		if err != nil {
			return nil, err
		}

		known = made.CoreV1().RESTClient()

		return known, nil
	}
}
