package faults_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

const appsTarget = "apps"

// appsFaults are what can go wrong while the first applications are installed, by doubles of the programs that do it.
func appsFaults() []fault {
	faults := []fault{
		{
			title: "a release is not ready in time", class: "helmfile ends with an error", knob: "a double of helmfile",
			inject: withDouble("helmfile", `case "$*" in *sync*) echo 'release cilium failed: timed out' >&2; exit 1;; esac`),
			code:   diagnosis.ExitKubernetes, id: diagnosis.AppsReleaseFailed, says: "release cilium failed: timed out",
			seen: "helmfile says", heal: func(t *testing.T, w *world) { t.Helper(); w.double(t, "helmfile", "") },
		},
		{
			title: "the Kubernetes API refuses an object", class: "kubectl ends with an error", knob: "a double of kubectl",
			inject: withDouble("kubectl", `case "$*" in *" apply "*) echo 'Error from server (Forbidden)' >&2; exit 1;; esac`),
			code:   diagnosis.ExitKubernetes, id: diagnosis.AppsApplyRefused, says: "Error from server (Forbidden)",
			seen: "kubectl says", heal: func(t *testing.T, w *world) { t.Helper(); w.double(t, "kubectl", "") },
		},
		{
			title: "the only control plane is off when applications are to be installed", class: "no answer", knob: "PowerOff",
			settings: []string{"API_TIMEOUT=60s"},
			inject:   func(t *testing.T, w *world) { t.Helper(); w.withApps(t); w.off(cp1) },
			code:     diagnosis.ExitKubernetes, id: diagnosis.APINotReady,
			says: "no control plane answers with this cluster's certificate authority", seen: "did not list its nodes",
			heal: func(_ *testing.T, w *world) { w.Node(cp1).PowerOn() },
		},
		{
			title: "helm is not installed", class: "a program is missing", knob: "PATH",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.withApps(t)
				require.NoError(t, os.Remove(filepath.Join(w.root, "bin", "helm")))
			},
			code: diagnosis.ExitBadInput, id: diagnosis.AppsProgramMissing, says: "helm is not on the PATH",
			seen: "helm is not on the PATH", heal: func(t *testing.T, w *world) { t.Helper(); w.double(t, "helm", "") },
		},
	}

	for i := range faults {
		faults[i].cluster = labcluster.Options{ControlPlanes: 1, Workers: 1}
		faults[i].run, faults[i].nextRun, faults[i].repeats = appsTarget, appsTarget, true
	}

	return faults
}

// refusedUpgrades are those in which no node may be touched.
func refusedUpgrades() []fault {
	untouched := func(t *testing.T, w *world, _ outcome) {
		t.Helper()

		for _, name := range []string{cp1, cp2, worker1} {
			require.Zero(t, w.count(name, "Pull")+w.count(name, "Upgrade")+w.count(name, "EtcdSnapshot"))
		}
	}

	return []fault{
		{
			title: "a member of etcd is away when a worker is to be upgraded", class: "etcd is not whole", knob: "PowerOff",
			cluster: upgradable, only: olderForm, run: upgradeTarget,
			inject:   toUpgrade(func(_ *testing.T, w *world) { w.Node(cp3).PowerOff() }),
			settings: []string{"-node=" + worker1, "-yes=true"},
			code:     diagnosis.ExitPreflight, id: diagnosis.UpgradeEtcdUnhealthy, says: "cp3: no answer",
			seen: "not every member is a healthy one", also: untouched, repeats: true,
			heal:    func(_ *testing.T, w *world) { w.Node(cp3).PowerOn() },
			nextRun: upgradeTarget, nextSettings: []string{"-cluster=lab", "-yes=true"},
		},
		{
			title: "a node is off when the cluster is to be upgraded", class: "no answer", knob: "PowerOff",
			cluster: upgradable, only: olderForm, run: upgradeTarget,
			inject:   toUpgrade(func(_ *testing.T, w *world) { w.Node(worker1).PowerOff() }),
			settings: []string{"-cluster=lab", "-yes=true"},
			code:     diagnosis.ExitPreflight, id: diagnosis.UpgradeNodeAway, node: worker1, seen: "does not answer",
			also: untouched, says: "it does not answer, so nothing is begun",
			heal:    func(_ *testing.T, w *world) { w.Node(worker1).PowerOn() },
			nextRun: upgradeTarget, nextSettings: []string{"-cluster=lab", "-yes=true"},
		},
	}
}

// withDouble brings the cluster up, and has one of the programs that install applications do something else.
func withDouble(name, does string) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		t.Helper()
		w.withApps(t)
		w.double(t, name, does)
	}
}

// withApps brings the cluster up, and adds what applications are installed from.
func (w *world) withApps(t *testing.T) {
	t.Helper()
	w.ends(t, diagnosis.ExitOK, "talos")

	for _, path := range []string{"kubernetes/apps/network/kustomization.yaml", "bootstrap/helmfile.d/00-crds.yaml",
		"bootstrap/helmfile.d/01-apps.yaml"} {
		path = filepath.Join(w.root, filepath.FromSlash(path))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}

	for _, name := range []string{"kubectl", "helmfile", "helm"} {
		w.double(t, name, "")
	}
}

// double makes a program that does only what it is told here.
func (w *world) double(t *testing.T, name, does string) {
	t.Helper()

	path := filepath.Join(w.root, "bin", name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, tool.WriteProgram(path, []byte("#!/bin/bash\n"+does+"\n")))
}
