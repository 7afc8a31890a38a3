package emulator_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// logOf is all that a log holds.
func logOf(t *testing.T, stream grpc.ServerStreamingClient[common.Data], err error) string {
	t.Helper()
	require.NoError(t, err)

	var text strings.Builder

	for {
		data, err := stream.Recv()
		if err == io.EOF { //nolint:errorlint // gRPC gives it as it is
			return text.String()
		}

		require.NoError(t, err)
		text.Write(data.GetBytes())
	}
}

func TestAMachineSaysAndFindsWhatItIsTold(t *testing.T) {
	t.Parallel()

	for _, version := range []string{"v1.12.1", "v1.13.9", "v1.14.1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			cluster, node := configured(t, labcluster.Options{TalosVersion: version})
			c := secure(t, cluster.Talosconfig(), node)

			node.Set(func(f *emulator.Faults) {
				f.Says = []emulator.Saying{{Line: "I/O error, dev vda"}, {Service: "apid", Line: "a line of its log"},
					{Service: "apid", History: true, Line: "a line of its history"}}
				f.Diagnostics = []emulator.Diagnostic{{ID: "address-overlap", Message: "they overlap", Details: []string{"all"}}}
			})

			eventually(t, func() error {
				stream, err := c.Dmesg(deadline(t), false, false)
				return until(strings.Contains(logOf(t, stream, err), "]: I/O error, dev vda\n"))
			})

			eventually(t, func() error {
				stream, err := c.Logs(deadline(t), "system", common.ContainerDriver_CONTAINERD, "apid", false, -1)
				return until(logOf(t, stream, err) == "a line of its log\n")
			})

			history := serviceInfo(t, c, "apid").GetEvents().GetEvents()
			require.Equal(t, "a line of its history", history[len(history)-1].GetMsg())

			eventually(t, func() error { return found(deadline(t), c.COSI) })
		})
	}
}

// found is an error unless the machine shows what it has found.
func found(ctx context.Context, from state.State) error {
	diagnostic, err := safe.StateGetByID[*runtimeres.Diagnostic](ctx, from, "address-overlap")
	if err != nil {
		return err
	}

	return until(diagnostic.TypedSpec().Message == "they overlap" && len(diagnostic.TypedSpec().Details) == 1)
}
