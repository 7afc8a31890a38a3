package talos_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// What tells of its progress is given up when there is none any more, though the node answers other calls; what is
// silent by its nature is not.
func TestACallInWhichNothingMovesIsGivenUp(t *testing.T) {
	t.Parallel()

	const installer = "factory.talos.dev/metal-installer/abc:v1.13.9"

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{})
	containersUp(t, l, node)
	require.NoError(t, l.secure(t, node).Bootstrap(t.Context()))
	require.Eventually(t, node.EtcdVoter, labcluster.Deadline, 5*time.Millisecond)

	node.Set(func(f *emulator.Faults) {
		f.Install = emulator.InstallImageStalls

		for _, method := range []string{"EtcdSnapshot", "Copy", "EtcdRecover", "/machine.LifecycleService/Upgrade"} {
			f.Calls = append(f.Calls, emulator.CallFault{Method: method, Do: emulator.Hang})
		}
	})

	impatient := *l.dialer
	impatient.Timeout = 250 * time.Millisecond

	for name, test := range map[string]struct {
		op     talos.Operation
		call   func(ctx context.Context, conn *talos.Conn) error
		silent bool
	}{
		"a pull": {op: talos.OpPull, call: func(ctx context.Context, conn *talos.Conn) error {
			return conn.PullImage(ctx, installer, func(int64, int64) {})
		}},
		"a snapshot": {op: talos.OpEtcd, call: func(ctx context.Context, conn *talos.Conn) error {
			return conn.EtcdSnapshot(ctx, io.Discard)
		}},
		"a copy of the database": {op: talos.OpEtcd, call: func(ctx context.Context, conn *talos.Conn) error {
			return conn.EtcdDatabase(ctx, io.Discard)
		}},
		"an upload": {op: talos.OpEtcdUpload, call: func(ctx context.Context, conn *talos.Conn) error {
			return conn.EtcdUpload(ctx, strings.NewReader("a database"))
		}},
		"an installer": {op: talos.OpUpgrade, silent: true, call: func(ctx context.Context, conn *talos.Conn) error {
			return conn.InstallUpgrade(ctx, installer, func(string) {})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			conn, err := impatient.Secure(t.Context(), node.Endpoint())
			require.NoError(t, err)
			t.Cleanup(conn.Close)

			// Longer than anything may stand still.
			ctx, stop := context.WithTimeout(t.Context(), 40*impatient.Timeout)
			defer stop()

			err = test.call(ctx, conn)

			if test.silent {
				require.Error(t, err, "the test's own patience has an end")
				require.NotErrorAs(t, err, new(*talos.StandstillError))

				return
			}

			require.ErrorAs(t, err, new(*talos.StandstillError))
			require.Equal(t, talos.Retry, talos.Classify(test.op, err))
			require.Equal(t, "it came to a standstill: nothing moved for 6s", talos.Explain(err))
		})
	}
}
