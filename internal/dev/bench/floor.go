package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/sourcegraph/conc/pool"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// floor is how long nodes take from when all have their configs until all are up, with a Bootstrap at the moment that
// the first control plane takes one: install, reboot, boot, etcd and Kubernetes of the slowest chain. Nobody who brings
// nodes up can be faster.
func (b *bench) floor(ctx context.Context, nodes int) (time.Duration, error) {
	lab, err := b.startLab(ctx, nodes)
	if err != nil {
		return 0, err
	}
	defer lab.close()

	applies := pool.New().WithContext(ctx).WithCancelOnError()

	for _, node := range lab.Nodes {
		applies.Go(func(ctx context.Context) error { return lab.apply(ctx, node) })
	}

	if err := applies.Wait(); err != nil {
		return 0, err //nolint:wrapcheck // it names the node
	}

	began := time.Now()

	if err := lab.bootstrap(ctx, lab.Nodes[0]); err != nil {
		return 0, err
	}

	last, err := lab.awaitUp(ctx)

	return last.Sub(began), err
}

// apply sends a node in maintenance its config.
func (l *lab) apply(ctx context.Context, node *emulator.Node) error {
	config, err := l.Config(node.Name())
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}

	api, err := client.New(ctx, client.WithEndpoints(node.Endpoint()),
		client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true})) //nolint:gosec // maintenance mode has no CA to check
	if err != nil {
		return fmt.Errorf("connect to %s: %w", node.Name(), err)
	}
	defer api.Close() //nolint:errcheck // it has served

	if _, err := api.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
		Data: config, Mode: machineapi.ApplyConfigurationRequest_AUTO,
	}); err != nil {
		return fmt.Errorf("send %s its config: %w", node.Name(), err)
	}

	return nil
}

// bootstrap sends a node Bootstrap as soon as it takes it.
func (l *lab) bootstrap(ctx context.Context, node *emulator.Node) error {
	if err := node.WaitFor(ctx, isBack); err != nil {
		return err //nolint:wrapcheck // it names the node
	}

	for {
		err := l.bootstrapOnce(ctx, node)
		if err == nil {
			return nil
		}

		if l.Lab.Clock().Sleep(ctx, bootstrapAgain) != nil {
			return fmt.Errorf("bootstrap %s: %w", node.Name(), err)
		}
	}
}

// bootstrapAgain is between two tries, in the nodes' time.
const bootstrapAgain = 20 * time.Millisecond

func (l *lab) bootstrapOnce(ctx context.Context, node *emulator.Node) error {
	api, err := l.Client(ctx, node.Name())
	if err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	defer api.Close() //nolint:errcheck // it has served

	return api.Bootstrap(ctx, &machineapi.BootstrapRequest{}) //nolint:wrapcheck // the caller does
}
