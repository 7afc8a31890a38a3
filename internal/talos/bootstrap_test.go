package talos_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Each answer that a node gives to Bootstrap, in the order of its checks, with what it recorded.
func TestBootstrapOutcomes(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name    string
		node    string
		roles   []string
		options emulator.NodeOptions
		booting bool // wait for kubelet first
		class   talos.Class
		code    codes.Code
		says    string
	}{
		{name: "a role that doesn't allow it", roles: []string{string(role.Operator)}, class: talos.Final,
			code: codes.PermissionDenied, says: "not authorized"},
		{name: "no role at all", roles: []string{}, class: talos.Final, code: codes.PermissionDenied, says: "not authorized"},
		{
			name: "containers are not up yet", options: emulator.NodeOptions{Timing: emulator.Timing{Containers: time.Hour}},
			class: talos.Retry, code: codes.FailedPrecondition, says: "bootstrap is not available yet",
		},
		{
			name: "the machine type is not known yet", booting: true,
			options: emulator.NodeOptions{Faults: emulator.Faults{Bootstrap: emulator.BootstrapTypeUnset}},
			class:   talos.Retry, code: codes.Unimplemented, says: "machine type is not set",
		},
		{
			name: "a worker", node: "worker1", class: talos.Final, code: codes.Unimplemented, booting: true,
			says: "bootstrap is only available on control plane nodes",
		},
		{
			name: "time is not synced", options: emulator.NodeOptions{Faults: emulator.Faults{TimeUnsynced: true}},
			booting: true,
			class:   talos.Retry, code: codes.FailedPrecondition, says: "time is not in sync yet",
		},
		{
			name: "etcd data of an earlier life", options: emulator.NodeOptions{EtcdData: emulator.WholeEtcdData}, booting: true,
			class: talos.Done, code: codes.AlreadyExists, says: "etcd data directory is not empty",
		},
		{
			name:    "etcd can't be stopped",
			options: emulator.NodeOptions{Faults: emulator.Faults{Bootstrap: emulator.BootstrapEtcdStuck}}, booting: true,
			class: talos.Final, code: codes.Unknown, says: "failed to stop etcd",
		},
		{
			name:    "etcd can't be started",
			options: emulator.NodeOptions{Faults: emulator.Faults{Bootstrap: emulator.BootstrapEtcdStartFails}}, booting: true,
			class: talos.Final, code: codes.Unknown, says: "error starting etcd",
		},
		{
			name: "a worker with Talos 1.12", node: "worker1", class: talos.Final, code: codes.FailedPrecondition,
			options: emulator.NodeOptions{TalosVersion: talos112}, booting: true,
			says: "bootstrap can only be performed on a control plane node",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 0)
			name := "cp1"

			if test.node != "" {
				name = test.node

				l.configured(t, "cp1", emulator.NodeOptions{}) // a worker's certificate comes from there
			}

			node := l.configured(t, name, test.options)

			if test.booting {
				containersUp(t, l, node)
			}

			dialer := l.dialer
			if test.roles != nil {
				dialer = l.withRole(t, test.roles...)
			}

			conn, err := dialer.Secure(t.Context(), node.Endpoint())
			require.NoError(t, err)

			defer conn.Close()

			err = conn.Bootstrap(t.Context())
			require.Error(t, err)
			require.Equal(t, test.class, talos.Classify(talos.OpBootstrap, err), "%v", err)
			require.Contains(t, talos.Explain(err), test.says)
			require.Equal(t, test.name == "time is not synced", talos.IsTimeNotSynced(err))
			require.Equal(t, []string{"Bootstrap " + test.code.String()}, mutating(node))
		})
	}
}

// A second Bootstrap comes between the first and the first file that etcd writes: it stops that etcd, and says that
// there is data.
func TestASecondBootstrapTooEarlyLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{Timing: emulator.Timing{EtcdData: time.Hour}})
	containersUp(t, l, node)

	conn := l.secure(t, node)
	require.NoError(t, conn.Bootstrap(t.Context()))

	require.Eventually(t, func() bool {
		services, err := conn.Services(t.Context())
		require.NoError(t, err)

		return slices.ContainsFunc(services, func(s talos.Service) bool { return s.ID == "etcd" && s.State == "Running" })
	}, labcluster.Deadline, 5*time.Millisecond)

	err := conn.Bootstrap(t.Context())
	require.Equal(t, talos.UnknownOutcome, talos.Classify(talos.OpBootstrap, err), "%v", err)
	require.Contains(t, talos.Explain(err), "etcd data directory is not empty")
	require.Equal(t, []string{"Bootstrap OK", "Bootstrap Unknown"}, mutating(node))
}

// What keeps a Bootstrap from working passes, and the same node then makes its cluster.
func TestABootstrapThatFailedCanBeRepeated(t *testing.T) {
	t.Parallel()

	for _, fault := range []emulator.BootstrapFault{emulator.BootstrapTypeUnset, emulator.BootstrapEtcdStuck,
		emulator.BootstrapEtcdStartFails} {
		l := newLab(t, 0)
		node := l.configured(t, "cp1", emulator.NodeOptions{Faults: emulator.Faults{Bootstrap: fault}})
		containersUp(t, l, node)

		conn := l.secure(t, node)
		require.Error(t, conn.Bootstrap(t.Context()))

		node.Set(func(f *emulator.Faults) { f.Bootstrap = emulator.BootstrapWorks })
		require.NoError(t, conn.Bootstrap(t.Context()))
		require.Eventually(t, node.EtcdVoter, labcluster.Deadline, 5*time.Millisecond)
		require.Equal(t, 1, l.Lab.EtcdClusters())
	}
}

// containersUp waits until a node's cri service runs.
func containersUp(t *testing.T, l *lab, node *emulator.Node) {
	t.Helper()

	require.Eventually(t, func() bool {
		conn, err := l.dialer.Secure(t.Context(), node.Endpoint())
		if err != nil {
			return false
		}
		defer conn.Close()

		services, err := conn.Services(t.Context())
		if err != nil {
			return false
		}

		for _, service := range services {
			if service.ID == "cri" && service.Running() {
				return true
			}
		}

		return false
	}, labcluster.Deadline, 5*time.Millisecond)
}

func TestEtcdComesUpAfterBootstrap(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{})
	containersUp(t, l, node)

	impatient := *l.dialer
	impatient.Timeout = 300 * time.Millisecond

	conn, err := impatient.Secure(t.Context(), node.Endpoint())
	require.NoError(t, err)

	defer conn.Close()

	// Before Bootstrap etcd's calls block: only their own deadline ends them.
	for name, call := range etcdCalls(t.Context(), conn) {
		err := call()
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.Equal(t, talos.Retry, talos.Classify(talos.OpEtcd, err), name)
		require.Equal(t, "etcd did not answer in time: it is not up yet", talos.Explain(err), name)
	}

	require.NoError(t, l.secure(t, node).Bootstrap(t.Context()))

	var status talos.EtcdStatus

	require.Eventually(t, func() bool {
		status, err = conn.EtcdStatus(t.Context())

		return err == nil && status.Leader != 0
	}, labcluster.Deadline, 5*time.Millisecond)

	members, err := conn.EtcdMembers(t.Context(), true)
	require.NoError(t, err)
	require.Len(t, members, 1)
	require.Equal(t, status.MemberID, members[0].ID)
	require.Equal(t, "cp1", members[0].Hostname)
	require.False(t, members[0].Learner)
	require.NotEmpty(t, members[0].PeerURLs)

	alarms, err := conn.EtcdAlarms(t.Context())
	require.NoError(t, err)
	require.Empty(t, alarms)

	names, err := conn.ListDir(t.Context(), talos.EtcdDataDir)
	require.NoError(t, err)
	require.NotEmpty(t, names)

	err = conn.Bootstrap(t.Context())
	require.Equal(t, talos.Done, talos.Classify(talos.OpBootstrap, err), "%v", err)
	require.Equal(t, []string{"Bootstrap OK", "Bootstrap AlreadyExists"}, mutating(node))
}

func etcdCalls(ctx context.Context, conn *talos.Conn) map[string]func() error {
	return map[string]func() error{
		"EtcdMembers": func() error { _, err := conn.EtcdMembers(ctx, true); return err },
		"EtcdStatus":  func() error { _, err := conn.EtcdStatus(ctx); return err },
		"EtcdAlarms":  func() error { _, err := conn.EtcdAlarms(ctx); return err },
	}
}

func TestEtcdCallsThatFailFast(t *testing.T) {
	t.Parallel()

	late := newLab(t, 0)
	unsynced := late.configured(t, "cp1", emulator.NodeOptions{Faults: emulator.Faults{TimeUnsynced: true}})

	l := newLab(t, 0)
	l.configured(t, "cp1", emulator.NodeOptions{}) // a worker's certificate comes from there
	worker := l.configured(t, "worker1", emulator.NodeOptions{})

	for name, call := range etcdCalls(t.Context(), late.secure(t, unsynced)) {
		err := call()
		require.Equal(t, talos.Retry, talos.Classify(talos.OpEtcd, err), "%s: %v", name, err)
		require.Contains(t, talos.Explain(err), "admin.crt", name)
	}

	for name, call := range etcdCalls(t.Context(), l.secure(t, worker)) {
		err := call()
		require.ErrorIs(t, err, talos.ErrNotAllowed, name)
		require.Equal(t, talos.Final, talos.Classify(talos.OpEtcd, err), name)
		require.Contains(t, talos.Explain(err), "only available on control plane nodes", name)
	}
}

func TestALostReplyToBootstrapLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name string
		when emulator.When
		do   emulator.Mishap
	}{
		{"cut before it took effect", emulator.BeforeEffect, emulator.Cut},
		{"cut after it took effect", emulator.AfterEffect, emulator.Cut},
		{"no reply", emulator.AfterEffect, emulator.Hang},
		{"half-open connection", emulator.BeforeEffect, emulator.Freeze},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 0)
			node := l.configured(t, "cp1", emulator.NodeOptions{Faults: emulator.Faults{Calls: []emulator.CallFault{
				{Method: "Bootstrap", When: test.when, Do: test.do},
			}}})
			containersUp(t, l, node)

			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()

			err := l.secure(t, node).Bootstrap(ctx)
			require.Error(t, err)
			require.Equal(t, talos.UnknownOutcome, talos.Classify(talos.OpBootstrap, err), "%v", err)
			require.Len(t, node.MutatingCalls(), 1, "sent exactly once")
		})
	}
}

func TestKubeconfigOutcomes(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{})
	worker := l.configured(t, "worker1", emulator.NodeOptions{})

	kubeconfig, err := l.secure(t, node).Kubeconfig(t.Context())
	require.NoError(t, err, "a control plane makes one before Bootstrap")
	require.Contains(t, string(kubeconfig), "admin@lab")
	require.YAMLEq(t, string(kubeconfig), string(kubeconfig))

	_, err = l.secure(t, worker).Kubeconfig(t.Context())
	require.ErrorIs(t, err, talos.ErrNotAllowed)
	require.Equal(t, talos.Final, talos.Classify(talos.OpKubeconfig, err))
	require.Contains(t, talos.Explain(err), "kubeconfig is only available on control plane nodes")

	reader, err := l.withRole(t, string(role.Reader)).Secure(t.Context(), node.Endpoint())
	require.NoError(t, err)

	defer reader.Close()

	_, err = reader.Kubeconfig(t.Context())
	require.Equal(t, talos.Final, talos.Classify(talos.OpKubeconfig, err))

	node.Set(func(f *emulator.Faults) {
		f.Calls = []emulator.CallFault{{Method: "Kubeconfig", Do: emulator.Hang}}
	})

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()

	_, err = l.secure(t, node).Kubeconfig(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "not the end of the file")
	require.Equal(t, talos.Retry, talos.Classify(talos.OpKubeconfig, err))
}

func TestCtrlCIsNotTheNodesFault(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{Faults: emulator.Faults{Calls: []emulator.CallFault{
		{Method: "ServiceList", Do: emulator.Hang}, {Method: "ApplyConfiguration", Do: emulator.Hang},
	}}})
	conn := l.secure(t, node)

	for op, call := range map[talos.Operation]func(context.Context) error{
		talos.OpRead: func(ctx context.Context) error { _, err := conn.Services(ctx); return err },
		talos.OpApply: func(ctx context.Context) error {
			_, err := conn.Apply(ctx, l.config(t, "cp1"), talos.ApplyOptions{})
			return err
		},
	} {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		before := len(node.Calls())

		go func() { done <- call(ctx) }()

		require.Eventually(t, func() bool { return len(node.Calls()) > before }, labcluster.Deadline, time.Millisecond)
		stop()

		err := <-done
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, "stopped before the node answered", talos.Explain(err))

		want := talos.Final
		if op == talos.OpApply {
			want = talos.UnknownOutcome
		}

		require.Equal(t, want, talos.Classify(op, err))
	}
}
