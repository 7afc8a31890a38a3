package talosapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/talosapi"
)

// What nodes answer, and gRPC says, in the words of Talos 1.13 and 1.12. The emulator's tests show the same over the wire for 1.13.
func TestClassify(t *testing.T) {
	t.Parallel()

	const (
		refused   = `connection error: desc = "transport: Error while dialing: dial tcp 192.0.2.11:50000: connect: connection refused"`
		handshake = `connection error: desc = "transport: authentication handshake failed: tls: failed to verify certificate: x509: `
		alert     = `connection error: desc = "error reading server preface: remote error: tls: `
	)

	everything := []talosapi.Operation{
		talosapi.OpDial, talosapi.OpRead, talosapi.OpList, talosapi.OpWatch, talosapi.OpApply, talosapi.OpDryRun, talosapi.OpBootstrap,
		talosapi.OpEtcd, talosapi.OpKubeconfig, talosapi.OpReboot,
	}
	reads := []talosapi.Operation{talosapi.OpRead, talosapi.OpList, talosapi.OpWatch, talosapi.OpDryRun, talosapi.OpEtcd, talosapi.OpKubeconfig}
	changes := []talosapi.Operation{talosapi.OpApply, talosapi.OpBootstrap, talosapi.OpReboot}

	apply := []talosapi.Operation{talosapi.OpApply}
	bootstrap := []talosapi.Operation{talosapi.OpBootstrap}
	etcd := []talosapi.Operation{talosapi.OpEtcd}

	for _, test := range []struct {
		ops   []talosapi.Operation
		code  codes.Code
		text  string
		class talosapi.Class
	}{
		// ApplyConfiguration, 1.13.
		{apply, codes.Unimplemented, "API is not implemented in agent mode", talosapi.Final},
		{apply, codes.FailedPrecondition, "another apply configuration is already in progress", talosapi.Retry},
		{
			apply, codes.FailedPrecondition,
			"configuration was already applied and node is rebooting, cannot apply more configuration changes until next reboot", talosapi.Retry,
		},
		{apply, codes.PermissionDenied, "not authorized", talosapi.Final},
		{apply, codes.InvalidArgument, "config not found", talosapi.Final},
		{apply, codes.InvalidArgument, "expected a YAML document at line 1", talosapi.Final},
		{apply, codes.InvalidArgument, "error decoding document /v1alpha1/ (line 1): unknown keys found during decoding:\nmachine:\n    foo: bar\n", talosapi.Final},
		{
			apply, codes.InvalidArgument,
			"the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config instead?", talosapi.Final,
		},
		{apply, codes.InvalidArgument, "this config change can't be applied in immediate mode\ndiff:\n", talosapi.Final},
		{apply, codes.Unknown, "failed to save config to the META", talosapi.Final},
		{apply, codes.Internal, "runtime error: invalid memory address or nil pointer dereference", talosapi.UnknownOutcome},
		{apply, codes.ResourceExhausted, "grpc: received message larger than max (5000000 vs. 4194304)", talosapi.Final},
		// ApplyConfiguration, 1.12.
		{apply, codes.Unimplemented, "apply configuration --mode='no-reboot' is not supported in maintenance mode", talosapi.Final},
		{apply, codes.Unknown, "failed to parse config: decode error: yaml: line 2: did not find expected node content", talosapi.Final},
		{apply, codes.InvalidArgument, "configuration validation failed: 1 error occurred:\n\t* install instructions are required in \"metal\" mode\n\n", talosapi.Final},
		{apply, codes.InvalidArgument, "runtime configuration validation failed: 1 error occurred:\n\t* no disks matched the expression\n\n", talosapi.Final},
		{
			apply, codes.Unavailable,
			`closing transport due to: connection error: desc = "error reading from server: EOF", received prior goaway: code: NO_ERROR, debug data: "graceful_stop"`,
			talosapi.UnknownOutcome,
		},

		// Bootstrap, 1.13 and 1.12.
		{bootstrap, codes.PermissionDenied, "not authorized", talosapi.Final},
		{bootstrap, codes.FailedPrecondition, "bootstrap is not available yet", talosapi.Retry},
		{bootstrap, codes.Unimplemented, "machine type is not set, cannot use bootstrap API", talosapi.Retry},
		{bootstrap, codes.Unimplemented, "bootstrap is only available on control plane nodes", talosapi.Final},
		{bootstrap, codes.FailedPrecondition, "bootstrap can only be performed on a control plane node", talosapi.Final},
		{bootstrap, codes.FailedPrecondition, "time is not in sync yet", talosapi.Retry},
		{bootstrap, codes.AlreadyExists, "etcd data directory is not empty", talosapi.Done},
		{bootstrap, codes.Unknown, "failed to stop etcd: context canceled", talosapi.Final},
		{bootstrap, codes.Unknown, "etcd data directory is not empty", talosapi.UnknownOutcome},
		{bootstrap, codes.Unknown, "error starting etcd in bootstrap mode: no such service", talosapi.Final},
		{bootstrap, codes.Canceled, "context canceled", talosapi.UnknownOutcome},

		// etcd, 1.13 and 1.12.
		{etcd, codes.Unimplemented, "member list is only available on control plane nodes", talosapi.Final},
		{etcd, codes.DeadlineExceeded, "context deadline exceeded", talosapi.Retry},
		{etcd, codes.DeadlineExceeded, "stream terminated by RST_STREAM with error code: CANCEL", talosapi.Retry},
		{
			etcd, codes.Unknown,
			"failed to create etcd client: error building etcd client TLS config: open /system/secrets/etcd/admin.crt: no such file or directory", talosapi.Retry,
		},
		{etcd, codes.Unknown, "no controlplane endpoints discovered yet", talosapi.Retry},
		{etcd, codes.Unknown, "etcdserver: no leader", talosapi.Retry},
		{etcd, codes.Unknown, "etcdserver: request timed out", talosapi.Retry},
		{etcd, codes.Unknown, "etcdserver: mvcc: database space exceeded", talosapi.Final},

		// Kubeconfig.
		{[]talosapi.Operation{talosapi.OpKubeconfig}, codes.Unimplemented, "kubeconfig is only available on control plane nodes", talosapi.Final},

		// Reads.
		{reads, codes.PermissionDenied, `resource type "nope" is not supported`, talosapi.Final},
		{reads, codes.Unimplemented, "API is not implemented in maintenance mode", talosapi.Final},
		{reads, codes.NotFound, "resource doesn't exist", talosapi.Final},
		{[]talosapi.Operation{talosapi.OpWatch}, codes.FailedPrecondition, "invalid watch bookmark", talosapi.Retry},
		{
			[]talosapi.Operation{talosapi.OpWatch}, codes.Unavailable,
			`closing transport due to: connection error: desc = "error reading from server: EOF", received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "too_many_pings"`,
			talosapi.Retry,
		},

		// The way to a node: whatever the server's reason, the text is a race and plays no part.
		{everything, codes.Unavailable, refused, talosapi.Retry},
		{everything, codes.Unavailable, alert + `certificate required"`, talosapi.Retry},
		{everything, codes.Unavailable, alert + `unknown certificate authority"`, talosapi.Retry},
		{everything, codes.Unavailable, alert + `expired certificate"`, talosapi.Retry},
		{everything, codes.Unavailable, alert + `bad certificate"`, talosapi.Retry},
		{everything, codes.Unavailable, `name resolver error: produced zero addresses`, talosapi.Retry},
		{reads, codes.Unavailable, `connection error: desc = "error reading from server: EOF"`, talosapi.Retry},
		{changes, codes.Unavailable, `connection error: desc = "error reading from server: EOF"`, talosapi.UnknownOutcome},
		{reads, codes.Unavailable, `write tcp 192.0.2.1:40000->192.0.2.11:50000: write: broken pipe`, talosapi.Retry},
		{changes, codes.Unavailable, `write tcp 192.0.2.1:40000->192.0.2.11:50000: write: broken pipe`, talosapi.UnknownOutcome},
		{reads, codes.DeadlineExceeded, "context deadline exceeded", talosapi.Retry},
		{changes, codes.DeadlineExceeded, "context deadline exceeded", talosapi.UnknownOutcome},
		{reads, codes.Canceled, "context canceled", talosapi.Retry},
		// A machinery client's own verification; a Conn tells maintenance from another cluster.
		{everything, codes.Unavailable, handshake + `certificate signed by unknown authority"`, talosapi.Retry},
		{
			everything, codes.Unavailable, handshake + `certificate signed by unknown authority (possibly because of "x509: Ed25519 verification failure" ` +
				`while trying to verify candidate authority certificate "talos")"`, talosapi.Final,
		},
		{everything, codes.Unavailable, handshake + `certificate has expired or is not yet valid: current time is before"`, talosapi.Retry},
		{
			everything, codes.Unavailable,
			`connection error: desc = "transport: authentication handshake failed: leaf peer certificate doesn't match the provided fingerprints: [YWJj]"`,
			talosapi.Final,
		},
		{everything, codes.Unavailable, handshake + `certificate is valid for 192.0.2.5, not 192.0.2.11"`, talosapi.Final},

		// Anything else.
		{everything, codes.DataLoss, "something new", talosapi.Final},
		{reads, codes.Unknown, "something new", talosapi.Final},
		{reads, codes.Internal, "something new", talosapi.Final},
	} {
		for _, op := range test.ops {
			t.Run(fmt.Sprintf("%d %s %.60s", op, test.code, test.text), func(t *testing.T) {
				t.Parallel()

				err := status.Error(test.code, test.text)

				require.Equal(t, test.class, talosapi.Classify(op, err))
				require.Equal(t, test.class, talosapi.Classify(op, fmt.Errorf("wrapped: %w", err)))
				require.NotContains(t, talosapi.Explain(err), "rpc error")
				require.NotContains(t, talosapi.Explain(err), "desc =")
			})
		}
	}
}

func TestClassifyOfErrorsWithoutAStatus(t *testing.T) {
	t.Parallel()

	require.Equal(t, talosapi.Done, talosapi.Classify(talosapi.OpApply, nil))
	require.Equal(t, talosapi.Final, talosapi.Classify(talosapi.OpRead, errors.New("something new")))
	require.Equal(t, talosapi.Final, talosapi.Classify(talosapi.OpRead, context.Canceled))
	require.Equal(t, talosapi.Retry, talosapi.Classify(talosapi.OpRead, context.DeadlineExceeded))
	// What a kubeconfig stream ends in when its deadline passes.
	require.Equal(t, talosapi.Retry, talosapi.Classify(talosapi.OpKubeconfig, io.EOF))
}

func TestIsTimeNotSynced(t *testing.T) {
	t.Parallel()

	require.True(t, talosapi.IsTimeNotSynced(status.Error(codes.FailedPrecondition, "time is not in sync yet")))
	require.False(t, talosapi.IsTimeNotSynced(status.Error(codes.FailedPrecondition, "bootstrap is not available yet")))
	require.False(t, talosapi.IsTimeNotSynced(nil))
	require.False(t, talosapi.IsTimeNotSynced(errors.New("time is not in sync yet")))
}

func TestExplainIsForPeople(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"nothing", nil, ""},
		{"not allowed", status.Error(codes.PermissionDenied, "not authorized"), "the node doesn't allow this here (not authorized)"},
		{"deadline", status.Error(codes.DeadlineExceeded, "context deadline exceeded"), "no answer in time"},
		{"timeout", &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}, "no answer in time"},
		{
			"etcd's deadline", &talosapi.Error{Op: talosapi.OpEtcd, Err: status.Error(codes.DeadlineExceeded, "context deadline exceeded")},
			"etcd did not answer in time: it is not up yet",
		},
		{
			"broken connection", status.Error(codes.Unavailable, `connection error: desc = "error reading from server: EOF"`),
			"the connection broke: EOF",
		},
		{"cut off", status.Error(codes.Canceled, "context canceled"), "the call was cut off: the node's API is restarting"},
		{"plain", status.Error(codes.FailedPrecondition, "time is not in sync yet"), "time is not in sync yet"},
		{"stopped", context.Canceled, "stopped before the node answered"},
		{"clock", &talosapi.ClockError{Skew: 90 * 60e9}, "the node's certificate becomes valid only in 1h30m0s: its clock or this computer's is wrong"},
		{
			"control characters", status.Error(codes.Unknown, "\x1b[31mred\x1b[0m\x00 text\nsecond line"),
			"[31mred[0m text second line",
		},
		{
			"a diff with secrets", status.Error(codes.InvalidArgument, "this config change can't be applied in immediate mode\ndiff:\n-  token: abcdef.0123456789abcdef"),
			"this config change can't be applied in immediate mode",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			require.Equal(t, test.want, talosapi.Explain(test.err))
		})
	}
}

func TestStringsOfStatesAndClasses(t *testing.T) {
	t.Parallel()

	seen := map[string]bool{}

	for _, value := range []fmt.Stringer{
		talosapi.Unreachable, talosapi.NotTalos, talosapi.Maintenance, talosapi.Ours, talosapi.Foreign, talosapi.UnknownCA, talosapi.State(99),
		talosapi.Answered, talosapi.Refused, talosapi.NoAnswer, talosapi.Broken, talosapi.Silence(99),
		talosapi.Final, talosapi.Retry, talosapi.Done, talosapi.UnknownOutcome, talosapi.Class(99),
	} {
		require.NotEmpty(t, value.String())
		require.False(t, seen[value.String()], "%q twice", value)
		seen[value.String()] = true
	}
}
