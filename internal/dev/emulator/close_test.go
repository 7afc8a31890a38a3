package emulator_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// open connects to a port of a machine and says nothing, until the test ends.
func open(t *testing.T, node *emulator.Node, port uint16) {
	t.Helper()

	conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(node.Address(), port).String(), labcluster.Deadline)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // the test is over
}

// ours are the stacks of this module's own goroutines, tests aside.
func ours() []string {
	buffer := make([]byte, 8<<20)
	buffer = buffer[:runtime.Stack(buffer, true)]

	var stacks []string

	for _, stack := range strings.Split(string(buffer), "\n\n") {
		if slices.ContainsFunc(strings.Split(stack, "\n"), isOurs) {
			stacks = append(stacks, stack)
		}
	}

	return stacks
}

// isOurs tells lines of a stack that name a function of the emulator. Lines with a file's path don't count: the folder
// can have any name.
func isOurs(line string) bool {
	const module = "github.com/talos-mage/talos-mage/internal/dev/emulator"

	return strings.HasPrefix(line, module+".") || strings.HasPrefix(line, module+"/")
}

// callAgain makes a call until the context is done, whatever becomes of it.
func callAgain[T any](ctx context.Context, call func(context.Context, *emptypb.Empty, ...grpc.CallOption) (T, error)) {
	for ctx.Err() == nil {
		call(ctx, &emptypb.Empty{})  //nolint:errcheck // it ends with an error only
		time.Sleep(time.Millisecond) //nolint:forbidigo // the machine may be gone by now
	}
}

// Not parallel, so that all goroutines of the emulator are this lab's. What clients hold open, half a handshake, a
// frozen connection, a call that is never answered, keeps no lab from closing, whatever its machines are doing.
func TestALabClosesAtOnceAndLeavesNothing(t *testing.T) { //nolint:paralleltest // see above
	require.NoError(t, closeStanding())

	cluster, err := labcluster.New(t.TempDir(),
		labcluster.Options{ControlPlanes: 1, Workers: 4, Edit: func(o *emulator.NodeOptions) {
			o.Faults.Calls = []emulator.CallFault{{Method: "Memory", Do: emulator.Hang},
				{Method: "LoadAvg", Do: emulator.Freeze}}
		}})
	require.NoError(t, err)

	running := cluster.Node("cp1")
	applyOwn(t, cluster, running.Name())
	installed(t, running)

	api := secure(t, cluster.Talosconfig(), running)
	eventually(t, func() error { return api.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
	waitStage(t, running, "running")
	eventually(t, func() error {
		conn, err := net.Dial("tcp", netip.AddrPortFrom(running.Address(), emulator.KubernetesPort).String())
		if err == nil {
			conn.Close() //nolint:errcheck // it was only a look
		}

		return err
	})

	for _, node := range cluster.Nodes {
		if node != running {
			waitStage(t, node, "maintenance")
		}

		open(t, node, emulator.APIPort)
	}

	open(t, running, emulator.TrustdPort)
	open(t, running, emulator.KubernetesPort)

	balanced := cluster.Lab.Address(200)
	require.NoError(t, cluster.Lab.Balance(balanced, []uint16{emulator.APIPort}, running))
	conn, err := net.Dial("tcp", netip.AddrPortFrom(balanced, emulator.APIPort).String())
	require.NoError(t, err)

	defer conn.Close() //nolint:errcheck // the test is over

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	for _, name := range []string{"worker1", "worker2"} {
		connect := func() *client.Client { return insecure(t, cluster.Node(name)) }
		require.NoError(t, safe.StateWatch(ctx, connect().COSI, runtimeres.NewMachineStatus().Metadata(),
			make(chan safe.WrappedStateEvent[*runtimeres.MachineStatus], 100)))

		// Neither is ever answered. One that the machine did not get, since it renewed its certificate just then, is made
		// again. Each has a connection of its own: nothing more arrives on the one that LoadAvg freezes.
		go callAgain(ctx, connect().MachineClient.Memory)
		go callAgain(ctx, connect().MachineClient.LoadAvg)
	}

	for _, method := range []string{"Memory", "LoadAvg"} {
		eventually(t, func() error {
			for _, call := range cluster.Node("worker1").Calls() {
				if call.Name() == method {
					return nil
				}
			}

			return errNotYet
		})
	}

	cluster.Node("worker2").PowerOff()
	cluster.Node("worker3").Silence(true)
	cluster.Node("worker4").Set(func(f *emulator.Faults) { f.Impostor = emulator.MuteImpostor })
	applyOwn(t, cluster, "worker1") // it closes while it changes its mode

	closed := make(chan error, 1)
	go func() { closed <- cluster.Close() }()

	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(labcluster.Deadline):
		t.Fatalf("still closing:\n%s", strings.Join(ours(), "\n\n"))
	}

	eventually(t, func() error {
		if left := ours(); len(left) > 0 {
			return errors.New(strings.Join(left, "\n\n"))
		}

		return nil
	})
}
