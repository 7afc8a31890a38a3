package talos_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	machinery "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/talos"
)

func replace(old, fresh string) func(string) string {
	return func(config string) string { return strings.Replace(config, old, fresh, 1) }
}

// appendDocument adds a document to a config.
func appendDocument(text string) func(string) string {
	return func(config string) string { return strings.TrimRight(config, "\n") + "\n---\n" + text }
}

func text(replacement string) func(string) string { return func(string) string { return replacement } }

// underMachine puts a line into the machine section.
func underMachine(line string) func(string) string {
	return replace("machine:\n", "machine:\n  "+line+"\n")
}

var installDisk = regexp.MustCompile(`(?m)^( +)disk: /dev/vda.*$`)

func installWith(line string) func(string) string {
	return func(config string) string { return installDisk.ReplaceAllString(config, "${1}"+line) }
}

// withoutInstall leaves the install section out.
func withoutInstall(config string) string {
	return regexp.MustCompile(`(?m)^  install:\n(?:   .*\n)+`).ReplaceAllString(config, "")
}

// What a node in maintenance refuses is final, told line by line, and changes nothing.
func TestAnInvalidConfigIsFinal(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.inMaintenance(t, "cp1", emulator.NodeOptions{})
	conn := l.maintenance(t, node)
	valid := string(l.config(t, "cp1"))

	for i, test := range []struct {
		name   string
		change func(string) string
		says   string
	}{
		{"empty", text(""), "config not found"},
		{"scalar", text("hello"), "expected a YAML document at line 1"},
		{"broken flow sequence", text("machine: [a\nb: c"), "decode error: yaml: while parsing a flow sequence"},
		{"tab indent", text("machine:\n\ttype: worker"), "decode error: yaml"},
		{"unknown key", underMachine("foo: bar"), "unknown keys: .machine.foo"},
		{"wrong type", replace("machine:\n", "debug: []\nmachine:\n"), "line"},
		{"unknown kind", appendDocument("apiVersion: v1alpha1\nkind: FooConfig\n"), `"FooConfig" "v1alpha1": not registered`},
		{"second document without kind", appendDocument("machine: {}\n"), "duplicate document /v1alpha1/ is not allowed"},
		{"endpoint without scheme", func(c string) string {
			return regexp.MustCompile(`endpoint: https://\S+`).ReplaceAllString(c, "endpoint: 192.0.2.10:6443")
		}, "first path segment in URL cannot contain colon"},
		{"unknown machine type", replace("type: controlplane", "type: master"), `unknown machine type "master"`},
		{"control plane's secrets on a worker", replace("type: controlplane", "type: worker"),
			"etcd config is only allowed on control plane machines"},
		{"selector without a match", installWith("diskSelector: {model: 'NOPE*'}"), "no disks matched the expression"},
		{"selector of an unknown type", installWith("diskSelector: {type: floppy}"), `unsupported disk type "floppy"`},
		{"selector on name", installWith("diskSelector: {name: sda}"), "selector on name is not supported"},
		{"no install section", withoutInstall, `install instructions are required in "metal" mode`},
		{
			"kernel arguments beside those of a UKI", installWith("disk: /dev/vda\n    extraKernelArgs: [quiet]"),
			"install.extraKernelArgs and install.grubUseUKICmdline can't be used together",
		},
		{"kubelet from long ago", func(c string) string {
			return regexp.MustCompile(`(ghcr\.io/siderolabs/kubelet):v\S+`).ReplaceAllString(c, "$1:v1.10.0")
		}, "kubelet image is not valid: version of Kubernetes 1.10.0 is too old to be used with Talos"},
		{"two hostnames", underMachine("network: {hostname: cp1}"), "hostname"},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := test.change(valid)
			require.NotEqual(t, valid, changed)

			_, err := conn.Apply(t.Context(), []byte(changed), talos.ApplyOptions{})

			var rejected *talos.RejectedError

			require.ErrorAs(t, err, &rejected)
			require.Equal(t, talos.Final, talos.Classify(talos.OpApply, err))
			require.Contains(t, strings.Join(rejected.Problems, "\n"), test.says)
			require.NotContains(t, talos.Explain(err), "error occurred")
			require.NotContains(t, err.Error(), "\n")

			calls := node.MutatingCalls()
			require.Len(t, calls, i+1, "sent exactly once")
			require.Equal(t, codes.InvalidArgument, calls[i].Code)
			require.Equal(t, "maintenance", node.Stage())
			require.Nil(t, node.Config())
		})
	}
}

func TestApplyInMaintenance(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.inMaintenance(t, "cp1", emulator.NodeOptions{})
	config := l.config(t, "cp1")
	conn := l.maintenance(t, node)

	planned, err := conn.Apply(t.Context(), config, talos.ApplyOptions{Mode: talos.ModeReboot, DryRun: true})
	require.NoError(t, err)
	require.Equal(t, talos.ModeNoReboot, planned.Mode)
	require.Empty(t, mutating(node), "a dry run")

	_, err = conn.Apply(t.Context(), config, talos.ApplyOptions{Mode: "later"})
	require.ErrorContains(t, err, "later")
	require.Empty(t, mutating(node), "an unknown mode is never sent")

	applied, err := conn.Apply(t.Context(), config, talos.ApplyOptions{})
	require.NoError(t, err)
	require.Equal(t, talos.ModeNoReboot, applied.Mode)

	// The connection outlives the change for a moment, and then is of no use any more.
	for {
		_, err = conn.Apply(t.Context(), config, talos.ApplyOptions{})
		require.Error(t, err, "a second apply is never accepted")

		class := talos.Classify(talos.OpApply, err)
		require.Contains(t, []talos.Class{talos.UnknownOutcome, talos.Retry}, class, "%v", err)

		if class == talos.Retry {
			break
		}
	}

	succeeded := 0

	for _, call := range node.MutatingCalls() {
		if call.Succeeded() {
			succeeded++
		}
	}

	require.Equal(t, 1, succeeded)
}

// Talos 1.13 answers a late insecure apply like this while it leaves maintenance: the config came from somebody,
// perhaps from us.
func TestALateApplyIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.inMaintenance(t, "cp1", emulator.NodeOptions{Faults: emulator.Faults{Calls: []emulator.CallFault{
		{Method: "ApplyConfiguration", Do: emulator.Fail, Code: codes.PermissionDenied, Text: "not authorized"},
	}}})

	_, err := l.maintenance(t, node).Apply(t.Context(), l.config(t, "cp1"), talos.ApplyOptions{})
	require.Equal(t, talos.UnknownOutcome, talos.Classify(talos.OpApply, err))

	_, err = l.maintenance(t, node).Apply(t.Context(), l.config(t, "cp1"), talos.ApplyOptions{DryRun: true})
	require.Equal(t, talos.Final, talos.Classify(talos.OpDryRun, err))
	require.Len(t, node.MutatingCalls(), 1)
}

func TestApplyOnAConfiguredNode(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{})
	conn := l.secure(t, node)
	config := string(l.config(t, "cp1"))

	live := underMachine("sysctls: {net.core.somaxconn: '65535'}")(config)
	needsReboot := underMachine("udev: {rules: ['SUBSYSTEM==\"drm\"']}")(config)

	for _, test := range []struct{ name, config, mode, effective string }{
		{"auto takes it live", live, talos.ModeAuto, talos.ModeNoReboot},
		{"auto has to reboot", needsReboot, talos.ModeAuto, talos.ModeReboot},
		{"reboot", live, talos.ModeReboot, talos.ModeReboot},
		{"staged", needsReboot, talos.ModeStaged, talos.ModeStaged},
		{"try", live, talos.ModeTry, talos.ModeTry},
	} {
		planned, err := conn.Apply(t.Context(), []byte(test.config), talos.ApplyOptions{Mode: test.mode, DryRun: true})
		require.NoError(t, err, test.name)
		require.Equal(t, test.effective, planned.Mode, test.name)
	}

	require.Empty(t, mutating(node))

	_, err := conn.Apply(t.Context(), []byte("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: cp9\n"),
		talos.ApplyOptions{})
	require.Equal(t, talos.Final, talos.Classify(talos.OpApply, err))
	require.Contains(t, talos.Explain(err), "doesn't contain v1alpha1 config")

	_, err = conn.Apply(t.Context(), []byte(needsReboot), talos.ApplyOptions{Mode: talos.ModeNoReboot})
	require.Equal(t, talos.Final, talos.Classify(talos.OpApply, err))
	require.Equal(t, "the node refuses the machine config: this config change can't be applied in immediate mode",
		talos.Explain(err))
	require.NotContains(t, err.Error(), "diff", "the node's diff carries secrets")

	reader, err := l.withRole(t, string(role.Reader)).Secure(t.Context(), node.Endpoint())
	require.NoError(t, err)

	defer reader.Close()

	_, err = reader.Apply(t.Context(), []byte(live), talos.ApplyOptions{})
	require.ErrorIs(t, err, talos.ErrNotAllowed)
	require.Equal(t, talos.Final, talos.Classify(talos.OpApply, err), "our role, not a race")

	applied, err := conn.Apply(t.Context(), []byte(live), talos.ApplyOptions{})
	require.NoError(t, err)
	require.Equal(t, talos.ModeNoReboot, applied.Mode)
	require.Contains(t, string(node.Config()), "somaxconn")

	require.Equal(t, []string{
		"ApplyConfiguration InvalidArgument", "ApplyConfiguration InvalidArgument", "ApplyConfiguration PermissionDenied",
		"ApplyConfiguration OK",
	}, mutating(node))
}

// A node that waits for its META volume handles one apply, whose caller may have given up long ago, and turns the
// others away until it is done.
func TestAnApplyBehindAnotherIsRetried(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.inMaintenance(t, "cp1", emulator.NodeOptions{Faults: emulator.Faults{MetaNotReady: true}})
	conn := l.maintenance(t, node)
	config := l.config(t, "cp1")

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()

	_, err := conn.Apply(ctx, config, talos.ApplyOptions{})
	require.Equal(t, talos.UnknownOutcome, talos.Classify(talos.OpApply, err), "%v", err)

	for _, options := range []talos.ApplyOptions{{}, {DryRun: true}} {
		_, err = conn.Apply(t.Context(), config, options)
		require.Equal(t, talos.Retry, talos.Classify(talos.OpApply, err), "%v", err)
		require.Contains(t, talos.Explain(err), "another apply configuration is already in progress")
	}

	require.Nil(t, node.Config())
	require.Len(t, node.MutatingCalls(), 2)
	require.Equal(t, codes.FailedPrecondition, node.MutatingCalls()[1].Code)

	// What its caller gave up on, the node does all the same.
	node.Set(func(f *emulator.Faults) { f.MetaNotReady = false })
	require.Eventually(t, func() bool { return node.Config() != nil }, labcluster.Deadline, time.Millisecond)
	require.Equal(t, codes.OK, node.MutatingCalls()[0].Code)
}

// A node that reboots with a new config takes no other before it has.
func TestAnApplyToANodeThatRebootsIsRetried(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{Timing: emulator.Timing{Pods: 24 * time.Hour}})
	conn := l.secure(t, node)

	require.Eventually(t, func() bool {
		services, err := conn.Services(t.Context())
		require.NoError(t, err)

		return slices.ContainsFunc(services,
			func(s talos.Service) bool { return s.ID == "kubelet" && s.Running() && s.Healthy })
	}, labcluster.Deadline, 5*time.Millisecond)

	applied, err := conn.Apply(t.Context(), l.config(t, "cp1"), talos.ApplyOptions{Mode: talos.ModeReboot})
	require.NoError(t, err)
	require.Equal(t, talos.ModeReboot, applied.Mode)

	_, err = conn.Apply(t.Context(), l.config(t, "cp1"), talos.ApplyOptions{})
	require.Equal(t, talos.Retry, talos.Classify(talos.OpApply, err), "%v", err)
	require.Contains(t, talos.Explain(err), "configuration was already applied and node is rebooting")

	// The reply comes first.
	require.Eventually(t, func() bool { return node.Stage() == "rebooting" }, labcluster.Deadline, time.Millisecond)

	status, err := conn.MachineStatus(t.Context())
	require.NoError(t, err)
	require.Equal(t, "rebooting", status.Stage)
	require.Equal(t, []string{"ApplyConfiguration OK", "ApplyConfiguration FailedPrecondition"}, mutating(node))
}

// A call that may have changed the node is never counted as failed and never sent twice, whatever became of its reply.
func TestALostReplyOfANodeLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name  string
		when  emulator.When
		do    emulator.Mishap
		taken bool
	}{
		{"cut before it took effect", emulator.BeforeEffect, emulator.Cut, false},
		{"cut after it took effect", emulator.AfterEffect, emulator.Cut, true},
		{"no reply, without effect", emulator.BeforeEffect, emulator.Hang, false},
		{"no reply, with effect", emulator.AfterEffect, emulator.Hang, true},
		{"half-open connection", emulator.AfterEffect, emulator.Freeze, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 0)
			node := l.inMaintenance(t, "cp1", emulator.NodeOptions{Faults: emulator.Faults{Calls: []emulator.CallFault{
				{Method: "ApplyConfiguration", When: test.when, Do: test.do},
			}}})

			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()

			_, err := l.maintenance(t, node).Apply(ctx, l.config(t, "cp1"), talos.ApplyOptions{})
			require.Error(t, err)
			require.Equal(t, talos.UnknownOutcome, talos.Classify(talos.OpApply, err), "%v", err)

			var failure *talos.Error

			require.ErrorAs(t, err, &failure)
			require.Contains(t, []codes.Code{codes.Unavailable, codes.Canceled, codes.DeadlineExceeded},
				machinery.StatusCode(failure.Err), "%v", err)
			require.Len(t, node.MutatingCalls(), 1, "sent exactly once")

			if test.taken {
				require.Eventually(t, func() bool { return node.Config() != nil }, labcluster.Deadline, time.Millisecond)
			} else {
				require.Nil(t, node.Config())
			}
		})
	}
}

func TestAnApplyThatNeverLeftIsRetried(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.inMaintenance(t, "cp1", emulator.NodeOptions{})
	conn := l.maintenance(t, node)

	node.Refuse(true)

	require.Eventually(t, func() bool {
		_, err := conn.Version(t.Context())

		return err != nil
	}, labcluster.Deadline, time.Millisecond)

	_, err := conn.Apply(t.Context(), l.config(t, "cp1"), talos.ApplyOptions{})
	require.Equal(t, talos.Retry, talos.Classify(talos.OpApply, err), "%v", err)
	require.Empty(t, node.MutatingCalls())
}
