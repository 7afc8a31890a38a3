package clients_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/emulatortest"
)

// The cluster that all tests share; they change nothing on it.
var (
	sharedDir string
	shared    = sync.OnceValues(func() (*labcluster.Cluster, error) {
		c, err := labcluster.New(sharedDir, labcluster.Options{
			ControlPlanes: 3, Workers: 2, CNI: "flannel", LabOptions: emulator.LabOptions{Discovery: true, TimeScale: 100},
		})
		if err != nil {
			return nil, err
		}

		ctx, cancel := context.WithTimeout(context.Background(), labcluster.Deadline)
		defer cancel()

		return c, bringUp(ctx, c)
	})
)

// atOnce is how many tests run at the same time: most of the time they wait.
const atOnce = 8

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}

	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	if sharedDir, err = os.MkdirTemp("", "clients"); err != nil {
		return 1, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(sharedDir)

	code = emulatortest.Run(m, atOnce)

	if _, statErr := os.Stat(filepath.Join(sharedDir, "clusterconfig")); statErr == nil {
		if c, err := shared(); err == nil {
			c.Close()
		}
	}

	return code, nil
}

// sharedCluster is a whole healthy cluster.
func sharedCluster(t *testing.T) *labcluster.Cluster {
	t.Helper()

	c, err := shared()
	require.NoError(t, err)

	return c
}

// secure is an administrator's connection to a node.
func secure(t *testing.T, c *labcluster.Cluster, name string) *client.Client {
	t.Helper()

	api, err := c.Client(t.Context(), name)
	require.NoError(t, err)
	t.Cleanup(func() { api.Close() })

	return api
}

// insecure is a connection to a node in maintenance mode.
func insecure(ctx context.Context, node *emulator.Node) (*client.Client, error) {
	return client.New(ctx, client.WithEndpoints(node.Endpoint()),
		client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}))
}

// bringUp makes a healthy cluster of nodes in maintenance mode.
func bringUp(ctx context.Context, c *labcluster.Cluster) error {
	for _, node := range c.Nodes {
		if err := apply(ctx, c, node); err != nil {
			return fmt.Errorf("apply to %s: %w", node.Name(), err)
		}
	}

	api, err := c.Client(ctx, "cp1")
	if err != nil {
		return err
	}
	defer api.Close()

	for api.Bootstrap(ctx, &machineapi.BootstrapRequest{}) != nil {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("bootstrap: %w", err)
		}

		time.Sleep(5 * time.Millisecond)
	}

	for _, node := range c.Nodes {
		if err := node.WaitFor(ctx, (*emulator.Node).Ready); err != nil {
			return fmt.Errorf("wait for %s to be ready, in stage %s: %w", node.Name(), node.Stage(), err)
		}
	}

	return nil
}

func apply(ctx context.Context, c *labcluster.Cluster, node *emulator.Node) error {
	if err := node.WaitFor(ctx, inMaintenance); err != nil {
		return err
	}

	data, err := c.Config(node.Name())
	if err != nil {
		return err
	}

	api, err := insecure(ctx, node)
	if err != nil {
		return err
	}
	defer api.Close()

	_, err = api.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
		Data: data, Mode: machineapi.ApplyConfigurationRequest_AUTO,
	})

	return err
}

func inMaintenance(node *emulator.Node) bool { return node.Stage() == "maintenance" }

// kubeconfig writes the one that a control plane gives.
func kubeconfig(t *testing.T, c *labcluster.Cluster) string {
	t.Helper()

	data, err := secure(t, c, "cp3").Kubeconfig(t.Context())
	require.NoError(t, err)

	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, data, 0o600))

	return path
}
