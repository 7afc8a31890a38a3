package steps_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

func TestTheTalosconfigIsCompletedAndKeepsWhatElseIsInIt(t *testing.T) {
	t.Parallel()

	l := newLab(t, 2, 1)
	l.installed(t)

	talosconfig, err := config.Open(l.Talosconfig())
	require.NoError(t, err)

	ours := talosconfig.Context
	talosconfig.Contexts[ours].Endpoints, talosconfig.Contexts[ours].Nodes = nil, nil
	talosconfig.Contexts["other"] = &config.Context{Endpoints: []string{"192.0.2.99"}, CA: talosconfig.Contexts[ours].CA}
	require.NoError(t, talosconfig.Save(l.Talosconfig()))

	l.session(t, "DRY_RUN=true").fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.Kubeconfig{})
	unchanged, err := config.Open(l.Talosconfig())
	require.NoError(t, err)
	require.Empty(t, unchanged.Contexts[ours].Endpoints)

	l.session(t).succeeds(t, steps.Kubeconfig{})

	completed, err := config.Open(l.Talosconfig())
	require.NoError(t, err)

	address := func(name string) string { return l.Node(name).Options().Address.String() }
	require.Equal(t, []string{address("cp1"), address("cp2")}, completed.Contexts[ours].Endpoints)
	require.Equal(t, []string{address("cp1"), address("cp2"), address("worker1")}, completed.Contexts[ours].Nodes)
	require.Equal(t, []string{"192.0.2.99"}, completed.Contexts["other"].Endpoints)
	require.Equal(t, ours, completed.Context)

	info, err := os.Stat(l.Talosconfig())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestTheTalosconfigLosesTheAddressOfAMachineThatWasReplaced(t *testing.T) {
	t.Parallel()

	l := newLab(t, 2, 0)
	l.installed(t)

	address := func(name string) string { return l.Node(name).Options().Address.String() }
	gone := l.Lab.Address(99).String()

	for name, tt := range map[string]struct{ before, after []string }{
		"one that was replaced":     {[]string{address("cp1"), gone}, []string{address("cp1"), address("cp2")}},
		"chosen ones":               {[]string{address("cp2")}, []string{address("cp2")}},
		"a name":                    {[]string{"talos.example.org"}, []string{"talos.example.org"}},
		"the VIP":                   {[]string{l.VIP.String()}, []string{l.VIP.String()}},
		"none that is left but all": {[]string{gone}, []string{address("cp1"), address("cp2")}},
	} {
		l.nameInTalosconfig(t, tt.before)
		l.session(t).succeeds(t, steps.Kubeconfig{})

		endpoints, nodes := l.namedInTalosconfig(t)
		require.Equal(t, tt.after, endpoints, name)
		require.Equal(t, tt.after, nodes, name)
	}
}

// nameInTalosconfig makes addresses the endpoints and the nodes of the talosconfig.
func (l *lab) nameInTalosconfig(t *testing.T, addresses []string) {
	t.Helper()

	talosconfig, err := config.Open(l.Talosconfig())
	require.NoError(t, err)

	talosconfig.Contexts[talosconfig.Context].Endpoints = addresses
	talosconfig.Contexts[talosconfig.Context].Nodes = addresses
	require.NoError(t, talosconfig.Save(l.Talosconfig()))
}

func (l *lab) namedInTalosconfig(t *testing.T) (endpoints, nodes []string) {
	t.Helper()

	talosconfig, err := config.Open(l.Talosconfig())
	require.NoError(t, err)

	current := talosconfig.Contexts[talosconfig.Context]

	return current.Endpoints, current.Nodes
}

// The kubeconfig is an administrator's, and a repository's root is where it goes by default.
func TestAKubeconfigThatGitDoesNotIgnoreIsWarnedOf(t *testing.T) {
	t.Parallel()

	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("there is no git")
	}

	for name, tt := range map[string]struct {
		ignored string
		warned  bool
	}{
		"not ignored": {"age.key\n", true},
		"ignored":     {"/kubeconfig*\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0)
			l.installed(t)

			s := l.session(t, "PATH="+filepath.Dir(git), "GIT_DIR=/nowhere")
			root := filepath.Dir(s.Settings.Kubeconfig)
			require.NoError(t, exec.CommandContext(t.Context(), git, "init", root).Run())
			require.NoError(t, os.WriteFile(filepath.Join(root, ".gitignore"), []byte(tt.ignored), 0o600))

			s.succeeds(t, steps.Kubeconfig{})

			if tt.warned {
				require.Contains(t, s.out.String(), string(diagnosis.KubeconfigNotIgnored))
				require.Contains(t, s.out.String(), "next: list kubeconfig* in .gitignore")
			} else {
				require.NotContains(t, s.out.String(), string(diagnosis.KubeconfigNotIgnored))
			}
		})
	}
}

func TestAKubeconfigIsAskedForAgain(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		code  codes.Code
		asked int
		ends  diagnosis.ExitCode
	}{
		"after a failure that may pass": {codes.Unavailable, 2, diagnosis.ExitOK},
		"not after one for good":        {codes.PermissionDenied, 1, diagnosis.ExitKubernetes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0)
			l.installed(t)
			fault(l.Node("cp1"), emulator.CallFault{Method: "Kubeconfig", Do: emulator.Fail, Code: tt.code, Text: "not now",
				Times: 1})

			s := l.session(t).do(t, steps.Kubeconfig{})
			require.Equal(t, tt.ends, steps.CodeOf(s.err), s.out)
			require.Equal(t, tt.asked, calls(l.Node("cp1"), "Kubeconfig"))
		})
	}
}

func TestAKubeconfigThatIsGoodIsNotTouched(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.installed(t)

	s := l.session(t).succeeds(t, steps.Kubeconfig{})
	require.Equal(t, report.Applied, s.status("kubeconfig", ""))

	before, err := os.ReadFile(s.Settings.Kubeconfig)
	require.NoError(t, err)

	s = l.session(t).succeeds(t, steps.Kubeconfig{})
	require.Equal(t, report.Skipped, s.status("kubeconfig", ""))
	require.Equal(t, "kubeconfig is good", s.detail("kubeconfig", ""), "below the root its path is short")

	after, err := os.ReadFile(s.Settings.Kubeconfig)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestNoControlPlaneMeansNoKubeconfigAndNoFiles(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.untilMaintenance(t)
	require.NoError(t, os.Remove(l.Talosconfig()))

	s := l.session(t)
	s.fails(t, diagnosis.ExitKubernetes, diagnosis.KubeconfigUnavailable, steps.Kubeconfig{})
	require.NoFileExists(t, s.Settings.Kubeconfig)
	require.NoFileExists(t, l.Talosconfig())
}
