package faults_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// Versions of an upgrade of Kubernetes, and the Talos whose talosctl the tests have.
const (
	talosOfTalosctl  = "v1.14.1"
	kubernetesBefore = "1.36.3"
	kubernetesAfter  = "1.37.0"

	upgradeK8sTarget = "upgradeK8s"
)

// upgradeK8sFaults are what can go wrong while Kubernetes is upgraded by way of the real talosctl.
func upgradeK8sFaults() []fault {
	shape := labcluster.Options{ControlPlanes: 2, TalosVersion: talosOfTalosctl, CNI: "flannel"}
	goesOn := func(t *testing.T, w *world) {
		t.Helper()
		w.ends(t, diagnosis.ExitOK, upgradeK8sTarget)
	}
	untouched := func(t *testing.T, w *world, _ outcome) {
		t.Helper()
		require.Equal(t, 1, w.count(cp1, "ApplyConfiguration"), "that of the bring-up")
	}
	installed := func(t *testing.T, w *world) {
		t.Helper()
		w.hasTalosctl(t, "exec \"$REAL\" \"$@\"")
		goesOn(t, w)
	}

	return []fault{
		{
			title: "talosctl is missing when Kubernetes is to be upgraded", class: "no talosctl", knob: "PATH",
			cluster: shape, inject: kubernetesBehind, run: upgradeK8sTarget,
			code: diagnosis.ExitBadInput, id: diagnosis.TalosctlUnfit, says: "talosctl is not on the PATH",
			seen: "talosctl is not on the PATH", also: untouched, repeats: true, heal: installed,
		},
		{
			title: "talosctl is of another minor than the nodes", class: "no talosctl", knob: "PATH",
			cluster: shape,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				kubernetesBehind(t, w)
				w.hasTalosctl(t, "echo Talos v1.13.9")
			},
			run:  upgradeK8sTarget,
			code: diagnosis.ExitBadInput, id: diagnosis.TalosctlUnfit, node: cp1,
			says: "talosctl is v1.13.9, and the node runs Talos v1.14.1", seen: "talosctl is v1.13.9", also: untouched,
			heal: installed,
		},
		{
			title: "a node is off when Kubernetes is to be upgraded", class: "no answer", knob: "PowerOff",
			cluster: labcluster.Options{ControlPlanes: 1, Workers: 1, TalosVersion: talosOfTalosctl, CNI: "flannel"},
			inject: func(t *testing.T, w *world) {
				t.Helper()
				kubernetesBehind(t, w)
				w.hasTalosctl(t, "exec \"$REAL\" \"$@\"")
				w.off(worker1)
			},
			run:  upgradeK8sTarget,
			code: diagnosis.ExitKubernetes, id: diagnosis.K8sUpgradeHeldBack, node: worker1, says: "it does not answer",
			seen: "does not answer", also: untouched,
			heal: func(t *testing.T, w *world) {
				t.Helper()
				w.Node(worker1).PowerOn()
				until(t, w.Node(worker1), inStage("running"))
				goesOn(t, w)
			},
		},
		{
			title: "a node can't pull an image of Kubernetes", class: "talosctl fails at a node", knob: "Calls: Fail ImagePull",
			cluster: shape,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				kubernetesBehind(t, w)
				w.hasTalosctl(t, "exec \"$REAL\" \"$@\"")
				w.fault(cp2, emulator.CallFault{Method: "ImagePull", Do: emulator.Fail, Code: codes.NotFound,
					Text: "error pulling image: not found"})
			},
			run:  upgradeK8sTarget,
			code: diagnosis.ExitKubernetes, id: diagnosis.K8sUpgradeFailed, node: cp2, says: "error pulling image: not found",
			seen: "error pulling image: not found", repeats: true,
			heal: func(t *testing.T, w *world) { t.Helper(); w.heal(cp2); goesOn(t, w) },
		},
		{
			title: "a node does not take its config while Kubernetes is upgraded", class: "talosctl fails at a node",
			knob:    "Calls: Fail ApplyConfiguration",
			cluster: shape,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				kubernetesBehind(t, w)
				w.hasTalosctl(t, "exec \"$REAL\" \"$@\"")
				w.fault(cp2, emulator.CallFault{Method: "ApplyConfiguration", Do: emulator.Fail, Code: codes.Unavailable,
					Text: "out of order", After: 1, Times: 1})
			},
			run:  upgradeK8sTarget,
			code: diagnosis.ExitKubernetes, id: diagnosis.K8sUpgradeFailed, node: cp2,
			says: "talosctl stopped at kube-apiserver",
			seen: "out of order", heal: goesOn,
		},
		{
			title: "talosctl is killed in the middle of an upgrade of Kubernetes", class: "talosctl ends", knob: "SIGKILL",
			cluster: shape,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				kubernetesBehind(t, w)
				w.hasTalosctl(t, "echo $$ > \"$0.pid\"; exec \"$REAL\" \"$@\"")
			},
			run: upgradeK8sTarget,
			during: func(t *testing.T, w *world) {
				t.Helper()
				// The first is that of the bring-up, the second that of the dry run.
				eventually(t, func() bool { return w.count(cp1, "ApplyConfiguration") > 2 }) //nolint:mnd // as said
				w.killTalosctl(t)
			},
			code: diagnosis.ExitKubernetes, id: diagnosis.K8sUpgradeFailed, node: cp1,
			says: "talosctl stopped at kube-apiserver", seen: "talosctl stopped", heal: goesOn,
		},
	}
}

// kubernetesBehind brings the cluster up with a Kubernetes that is a minor behind the one that the files then declare.
func kubernetesBehind(t *testing.T, w *world) {
	t.Helper()

	w.declareKubernetes(t, kubernetesAfter, kubernetesBefore)
	w.ends(t, diagnosis.ExitOK, "talos")
	w.declareKubernetes(t, kubernetesBefore, kubernetesAfter)
}

// declareKubernetes writes another version of Kubernetes into all files of the cluster.
func (w *world) declareKubernetes(t *testing.T, before, after string) {
	t.Helper()

	files := []string{filepath.Join(w.Dir, "talenv.yaml")}
	for _, spec := range w.Generated.Options.Nodes {
		files = append(files, w.ConfigFile(spec.Name))
	}

	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(data), before, file)
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(data), before, after)), 0o600))
	}
}

// hasTalosctl puts a shell script on the operator's PATH that stands for talosctl; REAL is the real one.
func (w *world) hasTalosctl(t *testing.T, script string) {
	t.Helper()

	program := tool.Find(t, "talosctl")
	path := filepath.Join(w.root, "bin", "talosctl")

	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, tool.WriteProgram(path, []byte("#!/bin/sh\nREAL='"+program+"'\n"+script+"\n")))
}

// killTalosctl kills the one that the script has told of last.
func (w *world) killTalosctl(t *testing.T) {
	t.Helper()

	data, err := os.ReadFile(filepath.Join(w.root, "bin", "talosctl.pid"))
	require.NoError(t, err)

	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}
