package faults_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// healthFaults are met by a look at a cluster that is up.
func healthFaults() []fault {
	const check = "HealthCheck"

	flannel := labcluster.Options{ControlPlanes: 3, CNI: "flannel"}

	// up brings the cluster up before something goes wrong.
	up := func(then func(w *world)) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			t.Helper()
			w.ends(t, 0, "talos")

			for _, node := range w.Lab.Nodes() {
				until(t, node, (*emulator.Node).Ready)
			}

			then(w)
		}
	}

	// askedOf reports which control plane made the check.
	askedOf := func(name string) func(*testing.T, *world, outcome) {
		return func(t *testing.T, _ *world, got outcome) {
			t.Helper()
			require.Contains(t, got.stdout, "made by "+name)
		}
	}

	const patient = "HEALTH_TIMEOUT=4h"

	return []fault{
		{
			title: "a control plane's check of the cluster is cut off", class: "a call breaks off", knob: "Calls: Cut",
			cluster: flannel,
			inject:  up(func(w *world) { w.fault(cp1, emulator.CallFault{Method: check, Do: emulator.Cut}) }),
			run:     "health", settings: []string{patient}, seen: "can't check the cluster", also: askedOf(cp2),
		},
		{
			title: "a control plane hangs while it checks the cluster", class: "a call hangs", knob: "Calls: Freeze",
			cluster: flannel,
			inject:  up(func(w *world) { w.fault(cp1, emulator.CallFault{Method: check, Do: emulator.Freeze}) }),
			run:     "health", settings: []string{patient}, seen: "can't check the cluster", also: askedOf(cp2),
		},
		{
			title: "no control plane answers a look at the cluster's health", class: "no answer", knob: "PowerOff",
			cluster: labcluster.Options{ControlPlanes: 1, Workers: 1, CNI: "flannel"},
			inject:  up(func(w *world) { w.Node(cp1).PowerOff() }),
			run:     "health", settings: []string{patient},
			code: diagnosis.ExitKubernetes, id: diagnosis.NodeSilent, node: cp1, says: "no answer at", seen: "no answer",
			also: func(t *testing.T, _ *world, got outcome) {
				t.Helper()
				require.Contains(t, got.stdout, string(diagnosis.HealthUnasked)+"  cluster  cp1: no answer")
			},
			repeats: true, heal: func(_ *testing.T, w *world) { w.Node(cp1).PowerOn() },
		},
		{
			title: "a worker falls silent, and the cluster's health is asked for", class: "no answer", knob: "Silence",
			cluster: labcluster.Options{ControlPlanes: 1, Workers: 1, CNI: "flannel"},
			inject:  up(func(w *world) { w.Node(worker1).Silence(true) }),
			run:     "health", settings: []string{patient},
			code: diagnosis.ExitKubernetes, id: diagnosis.NodeSilent, node: worker1, says: "no answer at", seen: "no answer",
			heal: func(_ *testing.T, w *world) { w.Node(worker1).Silence(false) },
		},
		{
			title: "etcd is ill, and the cluster's health is asked for", class: "etcd Running, not healthy",
			knob:    "EtcdUnhealthy",
			cluster: labcluster.Options{ControlPlanes: 1, CNI: "flannel"},
			inject:  up(func(w *world) { w.Node(cp1).Set(func(f *emulator.Faults) { f.EtcdUnhealthy = true }) }),
			run:     "health", settings: []string{"HEALTH_TIMEOUT=5m"},
			code: diagnosis.ExitKubernetes, id: diagnosis.HealthFails, node: cp1,
			says: "etcd is not healthy on every control plane", seen: "service is not healthy: etcd", heal: calm,
		},
	}
}
