package talos_test

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

	"github.com/talos-mage/talos-mage/internal/talos"
)

// What nodes answer, and gRPC says, in the words of Talos 1.13 and 1.12. The emulator's tests show the same over the
// wire for 1.13.
func TestClassify(t *testing.T) {
	t.Parallel()

	const (
		refused   = `connection error: desc = "transport: Error while dialing: dial tcp 192.0.2.11:50000: connect: connection refused"`
		handshake = `connection error: desc = "transport: authentication handshake failed: tls: failed to verify certificate: x509: `
		alert     = `connection error: desc = "error reading server preface: remote error: tls: `
	)

	everything := []talos.Operation{
		talos.OpDial, talos.OpRead, talos.OpList, talos.OpWatch, talos.OpApply, talos.OpDryRun, talos.OpBootstrap,
		talos.OpEtcd, talos.OpKubeconfig, talos.OpReboot, talos.OpPull, talos.OpUpgrade,
		talos.OpReset, talos.OpRemoveMember, talos.OpEtcdUpload,
	}
	reads := []talos.Operation{talos.OpRead, talos.OpList, talos.OpWatch, talos.OpDryRun, talos.OpEtcd,
		talos.OpKubeconfig, talos.OpPull, talos.OpEtcdUpload}
	changes := []talos.Operation{talos.OpApply, talos.OpBootstrap, talos.OpReboot, talos.OpUpgrade, talos.OpReset,
		talos.OpRemoveMember}

	apply := []talos.Operation{talos.OpApply}
	bootstrap := []talos.Operation{talos.OpBootstrap}
	etcd := []talos.Operation{talos.OpEtcd}
	pull := []talos.Operation{talos.OpPull}
	upgrade := []talos.Operation{talos.OpUpgrade}

	for _, test := range []struct {
		ops   []talos.Operation
		code  codes.Code
		text  string
		class talos.Class
	}{
		// EtcdRemoveMemberByID and EtcdRecover, 1.14.
		{[]talos.Operation{talos.OpRemoveMember}, codes.NotFound, "etcdserver: member not found", talos.Done},
		{[]talos.Operation{talos.OpRemoveMember}, codes.Unknown, "etcdserver: unhealthy cluster", talos.Retry},
		{
			[]talos.Operation{talos.OpRemoveMember}, codes.Unknown,
			"etcdserver: re-configuration failed due to not enough started members", talos.Final,
		},
		{
			[]talos.Operation{talos.OpEtcdUpload}, codes.FailedPrecondition,
			"etcd service is not ready for recovery yet", talos.Retry,
		},

		// ApplyConfiguration, 1.13.
		{apply, codes.Unimplemented, "API is not implemented in agent mode", talos.Final},
		{apply, codes.FailedPrecondition, "another apply configuration is already in progress", talos.Retry},
		{
			apply, codes.FailedPrecondition,
			"configuration was already applied and node is rebooting, cannot apply more configuration changes until next reboot",
			talos.Retry,
		},
		{apply, codes.PermissionDenied, "not authorized", talos.Final},
		{apply, codes.InvalidArgument, "config not found", talos.Final},
		{apply, codes.InvalidArgument, "expected a YAML document at line 1", talos.Final},
		{apply, codes.InvalidArgument,
			"error decoding document /v1alpha1/ (line 1): unknown keys found during decoding:\nmachine:\n    foo: bar\n",
			talos.Final},
		{
			apply, codes.InvalidArgument,
			"the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config " +
				"instead?", talos.Final,
		},
		{apply, codes.InvalidArgument, "this config change can't be applied in immediate mode\ndiff:\n", talos.Final},
		{apply, codes.Unknown, "failed to save config to the META", talos.Final},
		{apply, codes.Internal, "runtime error: invalid memory address or nil pointer dereference", talos.UnknownOutcome},
		{apply, codes.ResourceExhausted, "grpc: received message larger than max (5000000 vs. 4194304)", talos.Final},
		// ApplyConfiguration, 1.12.
		{apply, codes.Unimplemented, "apply configuration --mode='no-reboot' is not supported in maintenance mode",
			talos.Final},
		{apply, codes.Unknown, "failed to parse config: decode error: yaml: line 2: did not find expected node content",
			talos.Final},
		{apply, codes.InvalidArgument,
			"configuration validation failed: 1 error occurred:\n\t* install instructions are required in \"metal\" mode\n\n",
			talos.Final},
		{apply, codes.InvalidArgument,
			"runtime configuration validation failed: 1 error occurred:\n\t* no disks matched the expression\n\n", talos.Final},
		{
			apply, codes.Unavailable,
			`closing transport due to: connection error: desc = "error reading from server: EOF", received prior goaway: code: NO_ERROR, debug data: "graceful_stop"`,
			talos.UnknownOutcome,
		},

		// Bootstrap, 1.13 and 1.12.
		{bootstrap, codes.PermissionDenied, "not authorized", talos.Final},
		{bootstrap, codes.FailedPrecondition, "bootstrap is not available yet", talos.Retry},
		{bootstrap, codes.Unimplemented, "machine type is not set, cannot use bootstrap API", talos.Retry},
		{bootstrap, codes.Unimplemented, "bootstrap is only available on control plane nodes", talos.Final},
		{bootstrap, codes.FailedPrecondition, "bootstrap can only be performed on a control plane node", talos.Final},
		{bootstrap, codes.FailedPrecondition, "time is not in sync yet", talos.Retry},
		{bootstrap, codes.AlreadyExists, "etcd data directory is not empty", talos.Done},
		{bootstrap, codes.Unknown, "failed to stop etcd: context canceled", talos.Final},
		{bootstrap, codes.Unknown, "etcd data directory is not empty", talos.UnknownOutcome},
		{bootstrap, codes.Unknown, "error starting etcd in bootstrap mode: no such service", talos.Final},
		{bootstrap, codes.Canceled, "context canceled", talos.UnknownOutcome},

		// etcd, 1.13 and 1.12.
		{etcd, codes.Unimplemented, "member list is only available on control plane nodes", talos.Final},
		{etcd, codes.DeadlineExceeded, "context deadline exceeded", talos.Retry},
		{etcd, codes.DeadlineExceeded, "stream terminated by RST_STREAM with error code: CANCEL", talos.Retry},
		{
			etcd, codes.Unknown,
			"failed to create etcd client: error building etcd client TLS config: open /system/secrets/etcd/admin.crt: no " +
				"such file or directory", talos.Retry,
		},
		{etcd, codes.Unknown, "no controlplane endpoints discovered yet", talos.Retry},
		{etcd, codes.Unknown, "etcdserver: no leader", talos.Retry},
		{etcd, codes.Unknown, "etcdserver: request timed out", talos.Retry},
		{etcd, codes.Unknown, "etcdserver: mvcc: database space exceeded", talos.Final},

		// Kubeconfig.
		{[]talos.Operation{talos.OpKubeconfig}, codes.Unimplemented, "kubeconfig is only available on control plane nodes",
			talos.Final},

		// Reads.
		{reads, codes.PermissionDenied, `resource type "nope" is not supported`, talos.Final},
		{reads, codes.Unimplemented, "API is not implemented in maintenance mode", talos.Final},
		{reads, codes.NotFound, "resource doesn't exist", talos.Final},
		{[]talos.Operation{talos.OpWatch}, codes.FailedPrecondition, "invalid watch bookmark", talos.Retry},
		{
			[]talos.Operation{talos.OpWatch}, codes.Unavailable,
			`closing transport due to: connection error: desc = "error reading from server: EOF", received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "too_many_pings"`,
			talos.Retry,
		},

		// The way to a node: whatever the server's reason, the text is a race and plays no part.
		{everything, codes.Unavailable, refused, talos.Retry},
		{everything, codes.Unavailable, alert + `certificate required"`, talos.Retry},
		{everything, codes.Unavailable, alert + `unknown certificate authority"`, talos.Retry},
		{everything, codes.Unavailable, alert + `expired certificate"`, talos.Retry},
		{everything, codes.Unavailable, alert + `bad certificate"`, talos.Retry},
		{everything, codes.Unavailable, `name resolver error: produced zero addresses`, talos.Retry},
		{reads, codes.Unavailable, `connection error: desc = "error reading from server: EOF"`, talos.Retry},
		{changes, codes.Unavailable, `connection error: desc = "error reading from server: EOF"`, talos.UnknownOutcome},
		{reads, codes.Unavailable, `write tcp 192.0.2.1:40000->192.0.2.11:50000: write: broken pipe`, talos.Retry},
		{changes, codes.Unavailable, `write tcp 192.0.2.1:40000->192.0.2.11:50000: write: broken pipe`, talos.UnknownOutcome},
		{reads, codes.DeadlineExceeded, "context deadline exceeded", talos.Retry},
		{changes, codes.DeadlineExceeded, "context deadline exceeded", talos.UnknownOutcome},
		{reads, codes.Canceled, "context canceled", talos.Retry},
		// A machinery client's own verification; a Conn tells maintenance from another cluster.
		{everything, codes.Unavailable, handshake + `certificate signed by unknown authority"`, talos.Retry},
		{
			everything, codes.Unavailable,
			handshake + `certificate signed by unknown authority (possibly because of "x509: Ed25519 verification failure" ` +
				`while trying to verify candidate authority certificate "talos")"`, talos.Final,
		},
		{everything, codes.Unavailable, handshake + `certificate has expired or is not yet valid: current time is before"`,
			talos.Retry},
		{
			everything, codes.Unavailable,
			`connection error: desc = "transport: authentication handshake failed: leaf peer certificate doesn't match the provided fingerprints: [YWJj]"`,
			talos.Final,
		},
		{everything, codes.Unavailable, handshake + `certificate is valid for 192.0.2.5, not 192.0.2.11"`, talos.Final},

		// An installer image, pulled for the LifecycleService and by the older call.
		{append(pull, upgrade...), codes.DeadlineExceeded, "1 error(s) occurred:\n\tfailed to pull image \"x\": context " +
			"deadline exceeded", talos.Retry},
		{pull, codes.Unknown, "1 error(s) occurred:\n\tfailed to pull image \"factory.talos.dev/installer/1:v1.14.1\": " +
			"context deadline exceeded", talos.Retry},
		{pull, codes.Unknown, "failed to pull image \"x\": failed to resolve reference \"x\": failed to do request: Head " +
			"\"https://factory.talos.dev/v2/\": net/http: TLS handshake timeout", talos.Retry},
		{pull, codes.Unknown, "failed to pull image \"x\": unexpected status from GET request to " +
			"https://factory.talos.dev/v2/: 502 Bad Gateway", talos.Retry},
		{pull, codes.Unknown, "failed to pull image \"x\": dial tcp 192.0.2.1:443: i/o timeout", talos.Retry},
		{pull, codes.NotFound, "error pulling image: 1 error(s) occurred:\n\tfailed to pull image \"x\": x: not found",
			talos.Final},
		{pull, codes.Unimplemented, "unknown service machine.ImageService", talos.Final},
		{pull, codes.Unavailable, `error connecting to containerd: failed to dial "/run/containerd/containerd.sock": ` +
			"context deadline exceeded", talos.Retry},
		{upgrade, codes.Unknown, "error validating installer image \"x\": 1 error(s) occurred:\n\tfailed to pull image " +
			"\"x\": context deadline exceeded", talos.Retry},
		{upgrade, codes.Unknown, "error validating installer image \"x\": 1 error(s) occurred:\n\tfailed to pull image " +
			"\"x\": x: not found", talos.Final},
		{upgrade, codes.FailedPrecondition, "another installation/upgrade is already in progress", talos.Retry},
		{upgrade, codes.FailedPrecondition, "machine is not installed", talos.Final},
		{upgrade, codes.Internal, "upgrade failed: failed to send exit code: EOF", talos.UnknownOutcome},

		// Anything else.
		{everything, codes.DataLoss, "something new", talos.Final},
		{reads, codes.Unknown, "something new", talos.Final},
		{reads, codes.Internal, "something new", talos.Final},
	} {
		for _, op := range test.ops {
			t.Run(fmt.Sprintf("%d %s %.60s", op, test.code, test.text), func(t *testing.T) {
				t.Parallel()

				err := status.Error(test.code, test.text)

				require.Equal(t, test.class, talos.Classify(op, err))
				require.Equal(t, test.class, talos.Classify(op, fmt.Errorf("wrapped: %w", err)))
				require.NotContains(t, talos.Explain(err), "rpc error")
				require.NotContains(t, talos.Explain(err), "desc =")
			})
		}
	}
}

func TestClassifyOfErrorsWithoutAStatus(t *testing.T) {
	t.Parallel()

	require.Equal(t, talos.Done, talos.Classify(talos.OpApply, nil))
	require.Equal(t, talos.Final, talos.Classify(talos.OpRead, errors.New("something new")))
	require.Equal(t, talos.Final, talos.Classify(talos.OpRead, context.Canceled))
	require.Equal(t, talos.Retry, talos.Classify(talos.OpRead, context.DeadlineExceeded))
	// What a kubeconfig stream ends in when its deadline passes.
	require.Equal(t, talos.Retry, talos.Classify(talos.OpKubeconfig, io.EOF))
	// An installer's failure is the node's last word.
	require.Equal(t, talos.Final, talos.Classify(talos.OpUpgrade, &talos.InstallerError{Code: 1}))
}

func TestIsTimeNotSynced(t *testing.T) {
	t.Parallel()

	require.True(t, talos.IsTimeNotSynced(status.Error(codes.FailedPrecondition, "time is not in sync yet")))
	require.False(t, talos.IsTimeNotSynced(status.Error(codes.FailedPrecondition, "bootstrap is not available yet")))
	require.False(t, talos.IsTimeNotSynced(nil))
	require.False(t, talos.IsTimeNotSynced(errors.New("time is not in sync yet")))
}

func TestExplainIsForPeople(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"nothing", nil, ""},
		{"not allowed", status.Error(codes.PermissionDenied, "not authorized"),
			"the node doesn't allow this here (not authorized)"},
		{"deadline", status.Error(codes.DeadlineExceeded, "context deadline exceeded"), "no answer in time"},
		{"timeout", &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}, "no answer in time"},
		{
			"etcd's deadline", &talos.Error{Op: talos.OpEtcd,
				Err: status.Error(codes.DeadlineExceeded, "context deadline exceeded")},
			"etcd did not answer in time: it is not up yet",
		},
		{
			"broken connection", status.Error(codes.Unavailable, `connection error: desc = "error reading from server: EOF"`),
			"the connection broke: EOF",
		},
		{"cut off", status.Error(codes.Canceled, "context canceled"), "the call was cut off: the node's API is restarting"},
		{"plain", status.Error(codes.FailedPrecondition, "time is not in sync yet"), "time is not in sync yet"},
		{"a registry's deadline", status.Error(codes.DeadlineExceeded, "1 error(s) occurred:\n\tfailed to pull image \"x\": "+
			"context deadline exceeded"), "1 error(s) occurred: failed to pull image \"x\": context deadline exceeded"},
		{"stopped", context.Canceled, "stopped before the node answered"},
		{"clock", &talos.ClockError{Skew: 90 * 60e9},
			"the node's certificate becomes valid only in 1h30m0s: its clock or this computer's is wrong"},
		{
			"control characters", status.Error(codes.Unknown, "\x1b[31mred\x1b[0m\x00 text\nsecond line"),
			"[31mred[0m text second line",
		},
		{
			"a diff with secrets", status.Error(codes.InvalidArgument,
				"this config change can't be applied in immediate mode\ndiff:\n-  token: abcdef.0123456789abcdef"),
			"this config change can't be applied in immediate mode",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			require.Equal(t, test.want, talos.Explain(test.err))
		})
	}
}

func TestStringsOfStates(t *testing.T) {
	t.Parallel()

	seen := map[string]bool{}

	for _, value := range []fmt.Stringer{
		talos.Unreachable, talos.NotTalos, talos.Maintenance, talos.Ours, talos.Foreign, talos.UnknownCA, talos.State(99),
		talos.Answered, talos.Refused, talos.NoAnswer, talos.Broken, talos.Silence(99),
	} {
		require.NotEmpty(t, value.String())
		require.False(t, seen[value.String()], "%q twice", value)
		seen[value.String()] = true
	}
}
