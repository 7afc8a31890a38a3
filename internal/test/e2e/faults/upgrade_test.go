package faults_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/kube/drain"
)

const upgradeTarget = "upgrade"

// upgradable is the cluster whose files declare another release once it is up.
var upgradable = labcluster.Options{ControlPlanes: 3, Workers: 1, CNI: "flannel"}

// laterTalos is the release that machines are upgraded to.
func laterTalos() string {
	switch {
	case !newerThan112():
		return "v1.13.9"
	case strings.HasPrefix(playedTalos(), "v1.13."):
		return "v1.14.1"
	default:
		return "v1.14.2"
	}
}

// toUpgrade brings the cluster up and has its files declare another release, and then makes the fault.
func toUpgrade(inject func(t *testing.T, w *world)) func(t *testing.T, w *world) {
	return func(t *testing.T, w *world) {
		t.Helper()
		w.ends(t, diagnosis.ExitOK, "talos")

		path := filepath.Join(w.Dir, "talenv.yaml")
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(data), playedTalos(), laterTalos(), 1)), 0o600))

		inject(t, w)
	}
}

// on makes a fault of one machine.
func on(name string, change func(f *emulator.Faults)) func(t *testing.T, w *world) {
	return func(t *testing.T, w *world) { t.Helper(); w.Node(name).Set(change) }
}

// upgradeFaults are what can go wrong while nodes are upgraded, one by one.
func upgradeFaults() []fault {
	var faults []fault

	asked := []string{"-cluster=lab", "-yes=true"}

	for _, f := range append(append(pullFaults(), systemFaults()...), interruptions()...) {
		if f.cluster.ControlPlanes == 0 {
			f.cluster = upgradable
		}

		f.inject, f.run, f.nextRun = toUpgrade(f.inject), upgradeTarget, upgradeTarget
		possible := f.only
		f.only = func() bool { return olderForm() && (possible == nil || possible()) }
		f.settings, f.nextSettings = append(f.settings, asked...), asked
		faults = append(faults, f)
	}

	return faults
}

// pullFaults are those before anything has stopped on a node.
func pullFaults() []fault {
	return []fault{
		{
			title: "the registry is too slow for the first pull of an image", class: "a pull fails, the next one does not",
			knob:   "Install: InstallImageSlow, InstallTimes: 1",
			inject: on(cp1, func(f *emulator.Faults) { f.Install, f.InstallTimes = emulator.InstallImageSlow, 1 }),
			seen:   "failed to pull image", node: cp1,
		},
		{
			title: "the pull of an image comes to a standstill", class: "a pull fails, the next one does not",
			knob:    "Install: InstallImageStalls, InstallTimes: 1",
			cluster: labcluster.Options{ControlPlanes: 1, CNI: "flannel"}, only: newerThan112,
			inject: on(cp1, func(f *emulator.Faults) { f.Install, f.InstallTimes = emulator.InstallImageStalls, 1 }),
			seen:   "it came to a standstill", node: cp1,
		},
		{
			title: "no registry has the installer image", class: "a pull fails", knob: "Install: InstallImagePull",
			inject: on(cp2, func(f *emulator.Faults) { f.Install = emulator.InstallImagePull }),
			code:   diagnosis.ExitApply, id: diagnosis.UpgradeImageMissing, node: cp2, says: "not found",
			seen:    "left alone, since cp2 did not come through",
			repeats: true, heal: healed(cp2),
		},
		{
			title: "a snapshot of etcd breaks off on every control plane", class: "a snapshot that is not whole",
			knob: "SnapshotEnd",
			inject: func(t *testing.T, w *world) {
				t.Helper()

				for _, name := range []string{cp1, cp2, cp3} {
					w.Node(name).Set(func(f *emulator.Faults) { f.SnapshotEnd = 2000 })
				}
			},
			code: diagnosis.ExitApply, id: diagnosis.SnapshotFailed, node: cp2,
			says: "2000 bytes are no database and its hash", seen: "the snapshot is not whole",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Zero(t, w.count(cp1, "Pull")+w.count(cp1, "Upgrade"), "nothing is touched without one")
			},
			heal: healed(cp1, cp2, cp3),
		},
		{
			title: "a budget forbids to evict a pod", class: "an eviction is refused", knob: "LabOptions.Workloads",
			cluster: labcluster.Options{ControlPlanes: 3, Workers: 1, CNI: "flannel", LabOptions: emulator.LabOptions{
				Workloads: []kubernetes.Workload{{Name: "db", Node: worker1, Budget: 1}}}},
			inject: func(*testing.T, *world) {},
			code:   diagnosis.ExitKubernetes, id: diagnosis.DrainBlocked, node: worker1, says: "PodDisruptionBudget db needs 1",
			seen: "draining",
			next: diagnosis.ExitKubernetes, nextID: diagnosis.DrainBlocked,
		},
	}
}

// systemFaults are those of the new system.
func systemFaults() []fault {
	return []fault{
		{
			title: "the installer fails on the node's disk", class: "an installer ends with an error",
			knob:   "Install: InstallDiskWrite",
			inject: on(cp1, func(f *emulator.Faults) { f.Install = emulator.InstallDiskWrite }),
			code:   diagnosis.ExitApply, id: whetherAtOnce(diagnosis.UpgradeRolledBack, diagnosis.UpgradeFailed), node: cp1,
			says: whetherAtOnce("the installer failed, or", "the installer ended with code 1"), seen: "left alone",
			heal: healed(cp1),
		},
		{
			title: "the new system does not come up", class: "all calls end well, and the old version runs",
			knob:   "NewSystemFails",
			inject: on(worker1, func(f *emulator.Faults) { f.NewSystemFails = true }),
			code:   diagnosis.ExitApply, id: diagnosis.UpgradeRolledBack, node: worker1,
			says: "the node went back to the one before (A/B rollback)", seen: "booting",
			heal: healed(worker1),
		},
		{
			title: "a node never comes back from its reboot", class: "no answer", knob: "PowerOff",
			inject: func(*testing.T, *world) {},
			during: func(t *testing.T, w *world) {
				t.Helper()
				until(t, w.Node(cp2), inStage("rebooting"))
				w.Node(cp2).PowerOff()
			},
			settings: []string{"NODE_WAIT=300s", "INSTALL_TIMEOUT=300s"},
			code:     diagnosis.ExitApply, id: diagnosis.NodeSilent, node: cp2,
			says: "it did not come back from the reboot into",
			seen: "left alone, since cp2 did not come through",
			heal: func(_ *testing.T, w *world) { w.Node(cp2).PowerOn() },
		},
	}
}

// interruptions are calls that break off, and runs that did.
func interruptions() []fault {
	lost := func(title, method string, when emulator.When, seen string) fault {
		return fault{
			title: title, class: "a reply to a call is lost", knob: "Calls: Cut " + method,
			inject: func(_ *testing.T, w *world) {
				w.fault(worker1, emulator.CallFault{Method: method, Do: emulator.Cut, When: when, Times: 1})
			},
			seen: seen, node: worker1,
		}
	}

	const arrived = "the call may not have arrived"

	unknown := whetherAtOnce(arrived, "it is not known whether the new system was installed")

	return []fault{
		lost("the reply to the upgrade is lost before it took effect", "Upgrade", emulator.BeforeEffect, unknown),
		lost("the reply to the upgrade is lost after it took effect", "Upgrade", emulator.AfterEffect, ""),
		lost("the reply to the reboot is lost before it took effect", "Reboot", emulator.BeforeEffect,
			whetherAtOnce("", arrived)),
		lost("the reply to the reboot is lost after it took effect", "Reboot", emulator.AfterEffect,
			whetherAtOnce("", arrived)),
		{
			title: "the node panics in the upgrade", class: "an answer that tells nothing", knob: "Calls: Fail with Internal",
			inject: func(_ *testing.T, w *world) {
				w.fault(worker1, emulator.CallFault{Method: "Upgrade", Do: emulator.Fail, Code: codes.Internal,
					Text: "runtime error: invalid memory address", Times: 1})
			},
			seen: unknown, node: worker1,
		},
		{
			title: "a run was killed after it had drained a node", class: "a cordon of ours", knob: "kube/drain",
			inject: func(t *testing.T, w *world) { t.Helper(); w.drain(t, worker1) },
			seen:   "draining", node: worker1,
			also: func(t *testing.T, w *world, _ outcome) { t.Helper(); w.takesPods(t) },
		},
		{
			title: "a run was killed while a node rebooted into the new system", class: "a cordon of ours, and the new version",
			knob: "kube/drain, Upgrade by another client",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.drain(t, cp1)
				w.upgradeByHand(t, cp1)
			},
			seen: "runs Talos", node: cp1,
			also: func(t *testing.T, w *world, _ outcome) { t.Helper(); w.takesPods(t) },
		},
	}
}

// whetherAtOnce is what holds for a node that upgrades at once, by the older call, or else for a newer one.
func whetherAtOnce[T any](older, newer T) T {
	if newerThan112() {
		return newer
	}

	return older
}

// healed takes the faults of machines away.
func healed(names ...string) func(t *testing.T, w *world) {
	return func(_ *testing.T, w *world) {
		for _, name := range names {
			w.heal(name)
		}
	}
}

// kubernetes is a client of the cluster's API.
func (w *world) kubernetes(t *testing.T) *kube.Client {
	t.Helper()

	kubeconfig, err := os.ReadFile(filepath.Join(w.root, "kubeconfig"))
	require.NoError(t, err)

	client, err := kube.Open(kubeconfig, kube.Options{})
	require.NoError(t, err)

	return client
}

// drain leaves a node as a run does that is killed after it drained it.
func (w *world) drain(t *testing.T, name string) {
	t.Helper()

	drainer := drain.Drainer{Client: w.kubernetes(t), Clock: clock.Scaled(w.Scale)}
	require.NoError(t, drainer.Drain(t.Context(), name, func(drain.Progress) {}))
}

// takesPods checks that no node is cordoned.
func (w *world) takesPods(t *testing.T) {
	t.Helper()

	drainer := drain.Drainer{Client: w.kubernetes(t), Clock: clock.Scaled(w.Scale)}

	for _, spec := range w.Generated.Options.Nodes {
		owner, err := drainer.Cordoned(t.Context(), spec.Name)
		require.NoError(t, err)
		require.Equal(t, drain.Nobody, owner, spec.Name)
	}
}

// upgradeByHand has a machine install the later release and reboot.
func (w *world) upgradeByHand(t *testing.T, name string) {
	t.Helper()

	image := w.Generated.Options.Image + ":" + laterTalos()
	api := w.client(t, name)

	if !newerThan112() {
		_, err := api.MachineClient.Upgrade(t.Context(), //nolint:staticcheck // what this release knows
			&machine.UpgradeRequest{Image: image, Preserve: true})
		require.NoError(t, err)

		return
	}

	where := &common.ContainerdInstance{Driver: common.ContainerDriver_CRI,
		Namespace: common.ContainerdNamespace_NS_SYSTEM}

	pulling, err := api.ImageClient.Pull(t.Context(), &machine.ImageServicePullRequest{Containerd: where, ImageRef: image})
	require.NoError(t, err)
	toTheEnd(t, pulling.Recv)

	installing, err := api.LifecycleClient.Upgrade(t.Context(), &machine.LifecycleServiceUpgradeRequest{
		Containerd: where, Source: &machine.InstallArtifactsSource{ImageName: image}})
	require.NoError(t, err)
	toTheEnd(t, installing.Recv)
	require.NoError(t, api.Reboot(t.Context()))

	until(t, w.Node(name), func(node *emulator.Node) bool { return node.Stage() != "running" })
}

// toTheEnd reads a stream to its end.
func toTheEnd[T any](t *testing.T, next func() (T, error)) {
	t.Helper()

	for began := time.Now(); time.Since(began) < labcluster.Deadline; {
		if _, err := next(); err != nil {
			require.ErrorContains(t, err, "EOF")

			return
		}
	}

	require.Fail(t, "the stream goes on and on")
}
