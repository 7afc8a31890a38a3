package states_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/e2e/program"
)

// script runs one of the old scripts, which finds the compiled program.
func (w *world) script(t *testing.T, env []string, name string, args ...string) program.Outcome {
	t.Helper()

	path, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "scripts", name))
	require.NoError(t, err)

	env = append(append(w.settings, "TALOS_MAGE="+talosMage), env...)

	process, err := program.Start(w.root, program.Environment(env...), append([]string{"bash", path}, args...)...)
	require.NoError(t, err)

	return ended(t, process)
}

func (w *world) apply(t *testing.T, env []string, mode string) program.Outcome {
	t.Helper()

	return w.script(t, env, "bootstrap-talos-apply.sh", "talos/clusterconfig", mode)
}

// withImpostor is a cluster with something else in the place of one machine.
func withImpostor(t *testing.T, controlPlanes, workers int, name string) *world {
	t.Helper()

	w := newWorld(t, labcluster.Options{ControlPlanes: controlPlanes, Workers: workers},
		func(w *world, machine *emulator.NodeOptions) {
			if machine.Name == name {
				impostor(t, w, machine)
			}
		})

	return w
}

// sentTo are the changes when these machines, and no others, got their config.
func sentTo(machines ...string) []string {
	changes := []string{}
	for _, name := range machines {
		changes = append(changes, name+" ApplyConfiguration")
	}

	return changes
}

// Logging an error exited the process: the nodes after the first bad one, and the report, never came.
func TestDefect01AnErrorDoesNotEndASequentialRun(t *testing.T) {
	t.Parallel()

	w := withImpostor(t, 2, 2, "cp1")

	got := w.apply(t, nil, "sequential")
	require.Equal(t, 4, got.Code, got.Stderr)
	require.ElementsMatch(t, sentTo("cp2", "worker1", "worker2"), w.changes())
	require.Contains(t, got.Stdout, "applySequential: 3 of 4 nodes applied, 1 failed")
	require.Contains(t, got.Stderr, "Error: cp1 (")
}

// Parallel mode counted in subshells: the report said 0/0 and PASS.
func TestDefect02AParallelRunCountsAndFails(t *testing.T) {
	t.Parallel()

	w := withImpostor(t, 2, 2, "worker1")

	got := w.apply(t, nil, "parallel")
	require.Equal(t, 4, got.Code, got.Stderr)
	require.ElementsMatch(t, sentTo("cp1", "cp2", "worker2"), w.changes())
	require.Contains(t, got.Stdout, "applyParallel: 3 of 4 nodes applied, 1 failed")
	require.Contains(t, got.Stderr, "Error: worker1 (")
}

// Verify took any failed query for "no longer in maintenance": a dead node counted as verified.
func TestDefect03ADeadNodeIsNotVerified(t *testing.T) {
	t.Parallel()

	w := broughtUp(t, labcluster.Options{ControlPlanes: 3, Workers: 1})

	for _, name := range []string{"cp3", "worker1"} {
		w.Node(name).PowerOff()

		got := w.script(t, hurried, "bootstrap-talos-verify.sh")
		require.Equal(t, 5, got.Code, got.Stdout+got.Stderr)
		require.Regexp(t, `failed\s+verify\s+`+name, got.Stdout)
		require.Contains(t, got.Stderr, name)

		w.Node(name).PowerOn()
		eventually(t, func() bool { return inStage("running")(w.Node(name)) && w.voters() == 3 })
	}

	require.Equal(t, 0, w.script(t, nil, "bootstrap-talos-verify.sh").Code)
}

// Verify read the resource's phase, which is always "running", not the machine's stage.
func TestDefect04TheStageIsReadNotThePhase(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: -1}, func(_ *world, machine *emulator.NodeOptions) {
		machine.Faults.InstallStall = 1 << 50
	})

	got := w.script(t, impatient, "bootstrap-talos-verify.sh")
	require.Equal(t, 5, got.Code, got.Stdout+got.Stderr)
	require.Contains(t, got.Stdout, "still in maintenance")

	require.Equal(t, 0, w.apply(t, nil, "sequential").Code)

	// It has left maintenance, and answers with its certificate, but the installer still runs.
	got = w.script(t, impatient, "bootstrap-talos-verify.sh")
	require.Equal(t, 5, got.Code, got.Stdout+got.Stderr)
	require.Contains(t, got.Stdout, "installing unchanged for")
}

// Reachability was asked over the insecure API alone: a configured node was unreachable, and a second run failed.
func TestDefect05AConfiguredNodeIsReachable(t *testing.T) {
	t.Parallel()

	w := broughtUp(t, labcluster.Options{ControlPlanes: 1, Workers: 1})
	start := w.changes()

	for _, script := range []string{"bootstrap-talos-preflight.sh", "bootstrap-talos-verify.sh"} {
		got := w.script(t, nil, script)
		require.Equal(t, 0, got.Code, got.Stdout+got.Stderr)
	}

	got := w.apply(t, nil, "sequential")
	require.Equal(t, 0, got.Code, got.Stdout+got.Stderr)
	require.Contains(t, got.Stdout, "2 of 2 nodes skipped")
	require.Empty(t, w.since(start))
}

// The check after an apply asked the insecure API, which fails exactly when the apply worked.
func TestDefect06AnApplyThatWorkedIsASuccess(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: 1}, nil)

	got := w.apply(t, nil, "sequential")
	require.Equal(t, 0, got.Code, got.Stdout+got.Stderr)
	require.Contains(t, got.Stdout, "2 of 2 nodes applied")
	require.ElementsMatch(t, sentTo("cp1", "worker1"), w.changes())
}

// An apply whose reply was lost was sent again, to a node that had left maintenance, and counted as a failure.
func TestDefect07ALostReplyIsNotAFailure(t *testing.T) {
	t.Parallel()

	for name, mishap := range map[string]emulator.Mishap{"cut": emulator.Cut, "hanging": emulator.Hang,
		"frozen": emulator.Freeze} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: 1}, func(_ *world, machine *emulator.NodeOptions) {
				machine.Faults.Calls = []emulator.CallFault{{Method: "ApplyConfiguration", When: emulator.AfterEffect, Do: mishap,
					Times: 1}}
			})

			got := w.apply(t, []string{"APPLY_TIMEOUT=2s"}, "sequential")
			require.Equal(t, 0, got.Code, got.Stdout+got.Stderr)
			require.Contains(t, got.Stdout, "2 of 2 nodes applied")
			require.ElementsMatch(t, sentTo("cp1", "worker1"), w.changes())

			w.ends(t, 0, nil, "talos")
			require.ElementsMatch(t, eachOnce("cp1", "worker1"), w.changes())
		})
	}
}

// The check of the install disk always passed.
func TestDefect08AMissingInstallDiskIsFound(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: 1}, func(_ *world, machine *emulator.NodeOptions) {
		if machine.Name == "worker1" {
			machine.Disks = []emulator.Disk{{Name: "nvme0n1", Size: 500_000_000_000, Transport: "nvme", Model: "Example 500"}}
		}
	})

	got := w.script(t, nil, "bootstrap-talos-preflight.sh")
	w.tellsAs(t, "preflight", got)
	require.Equal(t, 3, got.Code, got.Stdout+got.Stderr)

	got = w.apply(t, nil, "sequential")
	w.tellsAs(t, "apply", got)
	require.Equal(t, 4, got.Code, got.Stdout+got.Stderr)
	require.Equal(t, sentTo("cp1"), w.changes())
}

// Addresses were cut out of shell text with [0-9.]+: no IPv6, no host names.
func TestDefect09NodesHaveHostNamesAndIPv6Addresses(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: 1, DHCP: true, Endpoint: labcluster.FirstControlPlane},
		nil)

	// The files name machines the way people do; where they answer from here is told apart.
	cp1, worker1 := w.Node("cp1").Address().String(), w.Node("worker1").Address().String()
	replace(t, w.talconfig(), `ipAddress: "`+cp1+`"`, `ipAddress: "2001:db8::11"`)
	replace(t, w.talconfig(), `ipAddress: "`+worker1+`"`, `ipAddress: "worker1"`)

	addresses := []string{"NODE_ADDRESSES=cp1=" + cp1 + ",worker1=" + worker1}

	got := w.apply(t, addresses, "sequential")
	require.Equal(t, 0, got.Code, got.Stdout+got.Stderr)
	require.ElementsMatch(t, sentTo("cp1", "worker1"), w.changes())

	// Without being told where they are, the addresses are tried as they are written, whole.
	got = w.script(t, hurried, "bootstrap-talos-preflight.sh")
	require.Equal(t, 3, got.Code, got.Stdout+got.Stderr)
	require.Contains(t, got.Stdout, "cp1 (2001:db8::11)")
	require.Contains(t, got.Stdout, "failed   preflight  worker1")
	require.Contains(t, got.Stdout, "worker1 does not resolve")
}

// Bootstrap and kubeconfig were tried for ever, also on errors that no waiting heals.
func TestDefect10PermanentErrorsEndBootstrapAndKubeconfig(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1}, func(w *world, machine *emulator.NodeOptions) {
		configured(t, w, machine)

		machine.Faults.Calls = []emulator.CallFault{
			{Method: "Bootstrap", Do: emulator.Fail, Code: codes.PermissionDenied, Text: "not authorized", Times: 1},
			{Method: "Kubeconfig", Do: emulator.Fail, Code: codes.PermissionDenied, Text: "not authorized", Times: 1},
		}
	})

	// Not authorized.
	w.tellsAs(t, "bootstrap", w.ends(t, 6, nil, "bootstrap"))
	require.Equal(t, []string{"cp1 Bootstrap"}, w.changes())
	w.tellsAs(t, "kubeconfig", w.ends(t, 7, nil, "kubeconfig"))
	require.NoFileExists(t, w.kubeconfig())

	// Bootstrapped already.
	for range 2 {
		w.ends(t, 0, nil, "bootstrap")
		require.Equal(t, []string{"cp1 Bootstrap", "cp1 Bootstrap"}, w.changes(), "one was refused, one was enough")
	}

	// A certificate that the cluster does not know: the files alone tell.
	bundle, err := clusterfiles.ForeignSecrets()
	require.NoError(t, err)

	other, err := labcluster.New(t.TempDir(), labcluster.Options{Name: "other", Lab: w.Lab, Off: true, Secrets: bundle})
	require.NoError(t, err)

	foreign := []string{"TALOSCONFIG=" + other.Talosconfig()}
	w.ends(t, 2, foreign, "bootstrap")
	w.ends(t, 2, foreign, "kubeconfig")
	require.Len(t, w.changes(), 2)
}

// The table of running jobs was indexed while holes were made in it: finished jobs were missed.
func TestDefect11EveryJobOfAParallelRunIsReported(t *testing.T) {
	t.Parallel()

	names := []string{"cp1", "cp2", "cp3", "worker1", "worker2", "worker3", "worker4", "worker5"}

	// They end out of order: some at once with a failure, some late.
	w := newWorld(t, labcluster.Options{ControlPlanes: 3, Workers: 5}, func(_ *world, machine *emulator.NodeOptions) {
		switch machine.Name {
		case "cp1", "worker3":
			machine.Faults.Calls = []emulator.CallFault{
				{Method: "ApplyConfiguration", Do: emulator.Fail, Code: codes.Unavailable, Text: "try again", Times: 2},
			}
		case "cp2", "worker5":
			machine.Faults.Impostor = emulator.HTTPSImpostor
		}
	})

	got := w.apply(t, []string{"MAX_PARALLEL=3"}, "parallel")
	require.Equal(t, 4, got.Code, got.Stdout+got.Stderr)
	require.Contains(t, got.Stdout, "applyParallel: 6 of 8 nodes applied, 2 failed")

	for _, name := range names {
		require.Equal(t, 1, strings.Count(got.Stdout, "applyParallel  "+name+" ("), "%s has one line in\n%s", name,
			got.Stdout)
	}
}

// The recovery commands that were printed are refused by a node in maintenance. What is printed now is typed here, word
// for word.
func TestDefect12TheCommandsThatAreAdvisedWork(t *testing.T) {
	t.Parallel()

	w := newWorld(t, labcluster.Options{ControlPlanes: 1, Workers: 1, Endpoint: labcluster.FirstControlPlane}, nil)

	got := w.script(t, impatient, "bootstrap-talos-verify.sh")
	require.Equal(t, 5, got.Code)
	require.NotContains(t, got.Stdout+got.Stderr, "--insecure")

	advised := 0

	for line := range strings.Lines(got.Stdout) {
		if advice, found := strings.CutPrefix(strings.TrimSpace(line), "next: talos-mage "); found {
			w.ends(t, 0, nil, strings.Fields(advice)...)

			advised++
		}
	}

	require.Equal(t, 2, advised, got.Stdout)
	require.ElementsMatch(t, sentTo("cp1", "worker1"), w.changes())
	require.Equal(t, 0, w.script(t, nil, "bootstrap-talos-verify.sh").Code)
}

// Commands joined by `;` passed a failed node over in silence, and the bootstrap waited for ever for a control plane
// that never came.
func TestDefect13AFailedNodeIsNamedAndNotWaitedForEver(t *testing.T) {
	t.Parallel()

	w := withImpostor(t, 3, 1, "cp1")

	// The whole run stops before anything is sent.
	got := w.ends(t, 3, nil, "talos")
	require.Contains(t, got.Stderr, "Error: cp1 (")
	require.Empty(t, w.changes())

	// Step by step, the failure is told and the bootstrap stops.
	got = w.apply(t, nil, "sequential")
	require.Equal(t, 4, got.Code)
	require.Contains(t, got.Stderr, "Error: cp1 (")

	got = w.ends(t, 6, nil, "bootstrap")
	require.Contains(t, got.Stderr, "Error: cp1 (")
	require.ElementsMatch(t, sentTo("cp2", "cp3", "worker1"), w.changes())
}
