package invocation_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// calls are the ways in which people call the program.
var calls = map[string]invocation.Invocation{
	"mage":    {},
	"go":      {Called: "go tool mage"},
	"by name": {Called: "talos-mage"},
	"by path": {Called: "./bin/talos-mage"},
	"task":    {Called: "/opt/talos-mage", Environ: []string{"TALOS_MAGE_CALLED_AS=task"}},
}

// Commands to copy are those of the program that people called.
func TestHintsNameTheProgramAsItWasCalled(t *testing.T) {
	t.Parallel()

	for name, want := range map[string]string{
		"mage":    "then mage preflight",
		"go":      "then go tool mage preflight",
		"by name": "then talos-mage preflight",
		"by path": "then ./bin/talos-mage preflight",
		"task":    "then task bootstrap:preflight",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			made, out, errs := call(t, calls[name].Environ...)
			made.Called = calls[name].Called
			failure := made.Execute(t.Context(), "preflight", nil, preflight)
			require.Equal(t, diagnosis.ExitPreflight, failure.Code)
			require.Contains(t, out.String(), "next: nothing if it is booting")
			require.Contains(t, failure.Message, want)

			if name != "mage" && name != "go" {
				require.NotRegexp(t, `(^|[^-])\bmage `, out.String()+errs.String()+failure.Message)
			}
		})
	}
}

// A computer without talosctl is told to install it first; one that has it is not.
func TestHintsInstallWhatThisComputerLacks(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	require.NoError(t, tool.WriteProgram(filepath.Join(folder, "talosctl"), []byte("#!/bin/sh\n")))

	for path, want := range map[string]string{
		t.TempDir(): "Read its log: install talosctl, then talosctl -n <node>",
		folder:      "Read its log: talosctl -n <node>",
	} {
		var out bytes.Buffer

		made := invocation.Invocation{Environ: []string{"PATH=" + path}, Out: &out}
		require.Nil(t, made.Explain(string(diagnosis.StageStuck)))
		require.Contains(t, out.String(), want)
	}
}

func TestHintsInstallWhatIsToBeTyped(t *testing.T) {
	t.Parallel()

	for _, typed := range []string{
		"kubectl get pods -A", "kubectl uncordon cp1", "kubectl -n kube-system get pods",
		"sops --encrypt --in-place secrets.yaml", "sops decrypt -i secrets.yaml",
	} {
		program, _, _ := strings.Cut(typed, " ")

		made, _, _ := call(t, "PATH="+t.TempDir())
		failure := made.Execute(t.Context(), "failing", nil, func(*settings.Settings) []steps.Step {
			return []steps.Step{failing{next: typed}}
		})
		require.Contains(t, failure.Message, "Next: install "+program+", then "+typed)
	}
}

// failing is a step that fails, and says what to type.
type failing struct{ next string }

func (failing) Name() string { return "failing" }

func (failing) Exit() diagnosis.ExitCode { return diagnosis.ExitKubernetes }

func (f failing) Run(context.Context, *steps.Run) error {
	return diagnosis.NewProblem(diagnosis.NodeObjectLeft, "a cause", f.next)
}

// With Task, a target without a task is called as the Taskfile calls it.
func TestHintsKeepTheirFlags(t *testing.T) {
	t.Parallel()

	for name, want := range map[string][2]string{
		"mage":    {"then mage applySequential -node=<node> -update.", "then mage bootstrap."},
		"go":      {"then go tool mage applySequential -node=<node> -update.", "then go tool mage bootstrap."},
		"by name": {"then talos-mage applySequential -node=<node> -update.", "then talos-mage bootstrap."},
		"by path": {"then ./bin/talos-mage applySequential -node=<node> -update.", "then ./bin/talos-mage bootstrap."},
		"task":    {"then task bootstrap:apply-sequential -- -node=<node> -update.", "then /opt/talos-mage bootstrap."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var out bytes.Buffer

			made := calls[name]
			made.Out = &out

			require.Nil(t, made.Explain("TM100"))
			require.Contains(t, out.String(), want[0])
			require.Nil(t, made.Explain(string(diagnosis.EtcdStopped)))
			require.Contains(t, out.String(), want[1])
		})
	}
}

// No text names a command as only some computers have it: hints are made of what mage calls a target.
func TestTextsNameNoTasks(t *testing.T) {
	t.Parallel()

	for _, entry := range diagnosis.Catalogue() {
		require.NotRegexp(t, `\btask \w+:`, entry.Title+entry.Cause+entry.Remedy, entry.ID)
	}
}
