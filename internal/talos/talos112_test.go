package talos_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// What is read of a machine in maintenance comes from its resources, which Talos 1.12 has as well; what it does not
// have is not allowed, and final.
func TestMaintenanceOfTalos112(t *testing.T) {
	t.Parallel()

	l := newLabOf(t, talos112, 0)
	node := l.inMaintenance(t, "cp1", emulator.NodeOptions{})
	conn := l.maintenance(t, node)
	ctx := t.Context()

	version, err := conn.Version(ctx)
	require.NoError(t, err)
	require.Equal(t, talos112, version)

	status, err := conn.MachineStatus(ctx)
	require.NoError(t, err)
	require.Equal(t, talos.StageMaintenance, status.Stage)

	links, err := conn.Links(ctx)
	require.NoError(t, err)
	require.Len(t, links, 1)

	disks, err := conn.Disks(ctx)
	require.NoError(t, err)
	require.Len(t, disks, 1)

	_, installed, err := conn.SystemDisk(ctx)
	require.NoError(t, err)
	require.False(t, installed)

	for name, call := range map[string]func() error{
		"Services":       func() error { _, err := conn.Services(ctx); return err },
		"InstallFailure": func() error { _, err := conn.InstallFailure(ctx); return err },
		"MachineConfig":  func() error { _, err := conn.MachineConfig(ctx); return err },
		"Bootstrap":      func() error { return conn.Bootstrap(ctx) },
		"Reboot":         func() error { return conn.Reboot(ctx) },
		"Kubeconfig":     func() error { _, err := conn.Kubeconfig(ctx); return err },
		"EtcdMembers":    func() error { _, err := conn.EtcdMembers(ctx, true); return err },
	} {
		err := call()
		require.ErrorIs(t, err, talos.ErrNotAllowed, name)
		require.Equal(t, talos.Final, talos.Classify(talos.OpRead, err), name)
	}
}

// The older texts and codes say the same to a person.
func TestAConfigThatTalos112RefusesIsFinal(t *testing.T) {
	t.Parallel()

	l := newLabOf(t, talos112, 0)
	node := l.inMaintenance(t, "cp1", emulator.NodeOptions{})
	conn := l.maintenance(t, node)
	valid := string(l.config(t, "cp1"))

	for _, test := range []struct {
		name   string
		change func(string) string
		code   codes.Code
		says   []string
	}{
		{"separator too many", func(c string) string { return c + "---\n" }, codes.Unknown,
			[]string{"recovered: expected a mapping node"}},
		{"unknown key", underMachine("foo: s3cret"), codes.Unknown,
			[]string{"error decoding document /v1alpha1/ (line 1): unknown keys: .machine.foo"}},
		{"unknown kind", appendDocument("apiVersion: v1alpha1\nkind: VRFConfig\nname: a\n"), codes.Unknown,
			[]string{`"VRFConfig" "v1alpha1": not registered`}},
		{"unknown machine type", replace("type: controlplane", "type: master"), codes.InvalidArgument, []string{
			"etcd config is only allowed on control plane machines",
			"cluster CA key is not allowed on non-controlplane nodes (.cluster.ca)",
			`unknown machine type "master"`,
		}},
		{"Kubernetes of a newer Talos", func(c string) string {
			return regexp.MustCompile(`(ghcr\.io/siderolabs/kubelet):v\S+`).ReplaceAllString(c, "$1:v1.36.3")
		}, codes.InvalidArgument,
			[]string{"kubelet image is not valid: version of Kubernetes 1.36.3 is too new to be used with Talos 1.12.1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := conn.Apply(t.Context(), []byte(test.change(valid)), talos.ApplyOptions{})

			var rejected *talos.RejectedError

			require.ErrorAs(t, err, &rejected)
			require.Equal(t, test.says, rejected.Problems)
			require.Equal(t, talos.Final, talos.Classify(talos.OpApply, err))
			require.NotContains(t, err.Error(), "s3cret")

			calls := node.MutatingCalls()
			require.Equal(t, test.code, calls[len(calls)-1].Code)
		})
	}

	_, err := conn.Apply(t.Context(), []byte(valid), talos.ApplyOptions{Mode: talos.ModeNoReboot})
	require.ErrorIs(t, err, talos.ErrNotAllowed)
	require.Equal(t, talos.Final, talos.Classify(talos.OpApply, err))
	require.Nil(t, node.Config())
}

func TestApplyInMaintenanceOfTalos112(t *testing.T) {
	t.Parallel()

	l := newLabOf(t, talos112, 0)
	node := l.inMaintenance(t, "cp1",
		emulator.NodeOptions{Faults: emulator.Faults{Lingers: 24 * time.Hour, InstallStall: 24 * time.Hour}})
	config := l.config(t, "cp1")
	conn, late := l.maintenance(t, node), l.maintenance(t, node)

	planned, err := conn.Apply(t.Context(), config, talos.ApplyOptions{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, talos.ModeReboot, planned.Mode, "all that it ever says")
	require.Empty(t, mutating(node), "a dry run")

	applied, err := conn.Apply(t.Context(), config, talos.ApplyOptions{})
	require.NoError(t, err)
	require.Equal(t, talos.ModeReboot, applied.Mode)

	// Somebody else's config, on a connection that was open: nobody takes it, nor says so.
	lost := make(chan error, 1)

	go func() {
		_, err := late.Apply(t.Context(), []byte(strings.Replace(string(config), "debug: false", "debug: true", 1)),
			talos.ApplyOptions{})
		lost <- err
	}()

	require.Eventually(t, func() bool { return len(node.MutatingCalls()) == 2 }, labcluster.Deadline, time.Millisecond)
	node.Set(func(f *emulator.Faults) { f.Lingers = 0 })

	err = <-lost
	require.Equal(t, talos.UnknownOutcome, talos.Classify(talos.OpApply, err), "%v", err)
	require.Equal(t, talos.Refused, l.dialer.Probe(t.Context(), node.Endpoint()).Silence)
	require.Equal(t, string(config), string(node.Config()))
}

func TestReadsOfAConfiguredNodeOfTalos112(t *testing.T) {
	t.Parallel()

	l := newLabOf(t, talos112, 0)
	conn := l.secure(t, l.configured(t, "cp1", emulator.NodeOptions{}))

	version, err := conn.Version(t.Context())
	require.NoError(t, err)
	require.Equal(t, talos112, version)

	running, err := conn.MachineConfig(t.Context())
	require.NoError(t, err)
	require.Equal(t, string(l.config(t, "cp1")), string(running))

	services, err := conn.Services(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, services)

	_, err = conn.Apply(t.Context(), append(l.config(t, "cp1"), "---\n"...), talos.ApplyOptions{})

	var rejected *talos.RejectedError

	require.ErrorAs(t, err, &rejected)
	require.Equal(t, []string{"recovered: expected a mapping node"}, rejected.Problems)
}
