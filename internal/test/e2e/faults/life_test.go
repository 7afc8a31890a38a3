package faults_test

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// worker1 is the only worker of the clusters that have one.
const worker1 = "worker1"

// withWorker is a control plane and a worker that reaches trustd without a VIP.
var withWorker = labcluster.Options{Workers: 1, Endpoint: labcluster.FirstControlPlane}

// forEver is longer than any test.
const forEver = 1000 * time.Hour

// lifeFaults are what can go wrong in the life of a machine: its boot, its install, what it does with its config.
func lifeFaults() []fault {
	return afterBoot(slices.Concat(installFaults(), bootFaults(), serviceFaults()))
}

// afterBoot has faults happen once all machines of the inventory are in maintenance mode.
func afterBoot(faults []fault) []fault {
	for i, f := range faults {
		faults[i].inject = func(t *testing.T, w *world) {
			t.Helper()

			for _, spec := range w.Generated.Options.Nodes {
				w.inMaintenance(t, spec.Name)
			}

			if f.inject != nil {
				f.inject(t, w)
			}
		}
	}

	return faults
}

// installFaults are those between the apply and the first boot from disk.
func installFaults() []fault {
	failing := func(title, knob string, reason emulator.InstallFault, words string) fault {
		return fault{
			title: title, class: "maintenance again, with a reason", knob: knob, only: showsInstalling,
			inject: set(func(f *emulator.Faults) { f.Install, f.InstallTimes, f.InstallStall = reason, 1, forEver }),
			// The install fails once somebody listens.
			during: func(t *testing.T, w *world) {
				t.Helper()
				eventually(t, func() bool { return w.count(cp1, "Events") > 0 })
				w.Node(cp1).Set(func(f *emulator.Faults) { f.InstallStall = 0 })
			},
			code: diagnosis.ExitVerify, id: diagnosis.InstallFailed, node: cp1, says: words, seen: "installing",
		}
	}

	return []fault{
		failing("the install disk does not exist", "Install: InstallDiskMissing", emulator.InstallDiskMissing,
			"lstat /dev/vda: no such file or directory"),
		failing("the installer image does not exist", "Install: InstallImagePull", emulator.InstallImagePull,
			"failed to pull image"),
		failing("the installer image's pull takes too long, once", "Install: InstallImageSlow, InstallTimes: 1",
			emulator.InstallImageSlow, "context deadline exceeded"),
		failing("the install disk can't be written to", "Install: InstallDiskWrite", emulator.InstallDiskWrite,
			"failed: exit code 1"),
		{
			title: "the install fails while the API is closed", only: olderForm,
			class:   "maintenance again, without a reason",
			knob:    "Install, LabOptions.AutoHostnames",
			cluster: labcluster.Options{AutoHostnames: true},
			inject:  set(func(f *emulator.Faults) { f.Install = emulator.InstallImagePull }),
			code:    diagnosis.ExitVerify, id: diagnosis.InstallFailed, node: cp1, seen: "config sent",
			repeats: true, heal: calm,
		},
		{
			title: "maintenance, then configured, then maintenance again: the disk keeps nothing", only: showsInstalling,
			class: "maintenance again, without a reason", knob: "Forgets",
			inject: set(func(f *emulator.Faults) { f.Forgets, f.InstallStall = true, forEver }),
			during: func(t *testing.T, w *world) { t.Helper(); w.installsUnder(t, cp1) },
			code:   diagnosis.ExitVerify, id: diagnosis.InstallFailed, node: cp1,
			says: "it accepted its config and came back to maintenance: the install failed",
			seen: "installing", heal: calm,
		},
		{
			title: "maintenance goes on for 90 s after the config was accepted",
			class: "maintenance, with the certificate that got the config", knob: "Lingers: 90 s",
			inject:   set(func(f *emulator.Faults) { f.Lingers = 90 * time.Second }),
			settings: []string{"VERIFICATION_TIMEOUT=2h"},
			seen:     "accepted its config, still in maintenance", node: cp1,
		},
		{
			title: "maintenance never ends after the config was accepted",
			class: "maintenance, with the certificate that got the config", knob: "Lingers",
			inject: set(func(f *emulator.Faults) { f.Lingers = forEver }), settings: []string{"VERIFICATION_TIMEOUT=60s"},
			code: diagnosis.ExitVerify, id: diagnosis.StillMaintenance, node: cp1,
			says: "it accepted its config, and it is still in maintenance",
			seen: "accepted its config, still in maintenance",
			heal: func(t *testing.T, w *world) {
				t.Helper()
				// What it accepted is lost: it was never written anywhere.
				w.Node(cp1).PowerOff()
				w.heal(cp1)
				w.Node(cp1).PowerOn()
			},
		},
		{
			title: "its file is edited while a node installs", only: showsInstalling,
			class: "configured, installing", knob: "InstallStall",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.Node(cp1).Set(func(f *emulator.Faults) { f.InstallStall = forEver })
				w.ends(t, 0, "applyParallel")
				until(t, w.Node(cp1), inStage("installing"))

				api := w.client(t, cp1)

				eventually(t, func() bool { _, err := api.Version(t.Context()); return err == nil })
				w.edit(t, cp1, "machine:\n", "machine:\n  sysctls:\n    vm.swappiness: \"1\"\n")
			},
			during: func(t *testing.T, w *world) { t.Helper(); w.installsUnder(t, cp1) },
			id:     diagnosis.ConfigDrifted, node: cp1, says: "its config differs from", seen: "waiting for the install to end",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Equal(t, 2, w.Node(cp1).Boots(), "nothing took over the installer")
				require.Contains(t, string(w.Node(cp1).Config()), "vm.swappiness")
			},
		},
		{
			title: "an install of 15 minutes that shows its progress", class: "configured, installing",
			knob: "Timing.Install: 15 min",
			cluster: labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: hastyScale},
				Timing: emulator.Timing{Install: 15 * time.Minute}},
			settings: unhurried, seen: "installing", node: cp1, nextSettings: unhurried,
		},
		{
			title: "an install that is silent for 12 minutes", only: olderForm, class: "connection refused",
			knob:     "InstallStall: 12 min, LabOptions.AutoHostnames",
			cluster:  labcluster.Options{AutoHostnames: true, LabOptions: emulator.LabOptions{TimeScale: hastyScale}},
			inject:   set(func(f *emulator.Faults) { f.InstallStall = 12 * time.Minute }),
			settings: unhurried,
			seen:     "port refused: installing or booting", node: cp1,
			nextSettings: unhurried,
		},
		{
			title: "an install that never ends", only: olderForm,
			class: "connection refused", knob: "InstallStall, LabOptions.AutoHostnames",
			cluster: labcluster.Options{AutoHostnames: true},
			inject:  set(func(f *emulator.Faults) { f.InstallStall = forEver }), settings: []string{"INSTALL_TIMEOUT=4m"},
			code: diagnosis.ExitVerify, id: diagnosis.NodeRefused, node: cp1, seen: "port refused: installing or booting",
			heal: calm,
		},
		{
			title: "the node's META volume is slow to get ready", only: newerThan112,
			class:   "no reply to the apply, then FailedPrecondition",
			knob:    "MetaNotReady",
			cluster: slow,
			inject:  set(func(f *emulator.Faults) { f.MetaNotReady = true }),
			during: func(t *testing.T, w *world) {
				t.Helper()
				eventually(t, func() bool { return w.count(cp1, "ApplyConfiguration") >= 2 })
				w.heal(cp1)
			},
			seen: "another apply configuration is already in progress", node: cp1,
		},
		{
			title: "the node's META volume never gets ready", only: newerThan112,
			class:   "no reply to the apply, then FailedPrecondition",
			knob:    "MetaNotReady",
			cluster: slow,
			inject:  set(func(f *emulator.Faults) { f.MetaNotReady = true }), settings: []string{"MAX_RETRIES=2"},
			code: diagnosis.ExitApply, id: diagnosis.ApplyGaveUp, node: cp1,
			seen: "another apply configuration is already in progress",
			heal: func(t *testing.T, w *world) {
				t.Helper()
				w.heal(cp1)
				// The apply whose caller gave up takes effect now.
				until(t, w.Node(cp1), func(node *emulator.Node) bool { return node.Config() != nil })
			},
		},
		{
			title: "the node finds keys in its config that its Talos does not know", class: "InvalidArgument",
			knob: "Calls: Fail ApplyConfiguration",
			inject: func(_ *testing.T, w *world) {
				w.fault(cp1, emulator.CallFault{
					Method: "ApplyConfiguration", Do: emulator.Fail, Code: codes.InvalidArgument, Times: 1,
					Text: "unknown keys found during decoding:\nmachine:\n    install:\n        grubUseUKICmdline: true\n",
				})
			},
			code: diagnosis.ExitApply, id: diagnosis.ApplyRejected, node: cp1, seen: "the node refused the config",
			also: applied(1), // sending it again would not help
		},
		{
			title: "an older Talos finds keys in its config that it does not know", class: "Unknown, failed to parse config",
			knob: "Calls: Fail ApplyConfiguration",
			inject: func(_ *testing.T, w *world) {
				w.fault(cp1, emulator.CallFault{
					Method: "ApplyConfiguration", Do: emulator.Fail, Code: codes.Unknown, Times: 1,
					Text: "failed to parse config: \"HostnameConfig\" \"v1alpha1\": not registered",
				})
			},
			code: diagnosis.ExitApply, id: diagnosis.ApplyRejected, node: cp1, seen: "the node refused the config",
			also: applied(1), // sending it again would not help
		},
	}
}

// slow lets little time pass on the machines while a call is waited for by the wall's clock.
var slow = labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: 20}}

// hastyScale lets waits of minutes pass in seconds; unhurried are limits that such a haste does not come near, the one
// that a fault tries aside.
const hastyScale = 150

var unhurried = []string{"ETCD_TIMEOUT=5h", "API_TIMEOUT=5h", "STAGE_TIMEOUT=5h", "VERIFICATION_TIMEOUT=5h"}

// installsUnder lets the install of a machine go on once the run has looked at it.
func (w *world) installsUnder(t *testing.T, name string) {
	t.Helper()

	until(t, w.Node(name), inStage("installing"))

	looks := w.count(name, "ServiceList")

	eventually(t, func() bool { return w.count(name, "ServiceList") >= looks+3 })
	w.Node(name).Set(func(f *emulator.Faults) { f.InstallStall = 0 })
}

// count is how many calls of a method a machine received.
func (w *world) count(name, method string) int {
	count := 0

	for _, call := range w.Node(name).Calls() {
		if call.Name() == method {
			count++
		}
	}

	return count
}

// edit changes a node's machine config.
func (w *world) edit(t *testing.T, name, before, after string) {
	t.Helper()

	data, err := w.Config(name)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(data), before), "%q is there once", before)
	require.NoError(t, os.WriteFile(w.ConfigFile(name), []byte(strings.Replace(string(data), before, after, 1)), 0o600))
}

// bootFaults are those of a machine's boots, and of where it is found.
func bootFaults() []fault {
	return []fault{
		{
			title: "a node that reboots for ever", class: "refuses and answers in turn", knob: "BootLoop",
			cluster: labcluster.Options{Timing: emulator.Timing{Containers: 40 * time.Second, Reboot: 20 * time.Second}},
			inject:  set(func(f *emulator.Faults) { f.BootLoop = true }),
			code:    diagnosis.ExitVerify, id: diagnosis.StageStuck, node: cp1,
			says: "it rebooted 3 times without getting any further", seen: "booting",
			heal: calm,
		},
		{
			title: "a power-on self-test of 7 minutes", class: "no answer", knob: "Timing.SelfTest: 7 min",
			cluster: labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: hastyScale},
				Timing: emulator.Timing{SelfTest: 7 * time.Minute}},
			settings: unhurried, seen: "no answer: self-test, reboot or off", node: cp1, nextSettings: unhurried,
		},
		{
			title: "the config selects a link by a driver that the machine does not have",
			class: "in maintenance, without that link", knob: "NodeOptions.Links",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.edit(t, cp1, "name: ethSel0\nselector:\n  match: ",
					"name: ethSel0\nselector:\n  match: link.driver == \"ixgbe\" && ")
			},
			code: diagnosis.ExitPreflight, id: diagnosis.LinkSelectorUnmatched, node: cp1,
			says: "matches no link: what is set for ethSel0 reaches no link", seen: "reaches no link",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Zero(t, w.count(cp1, "ApplyConfiguration"))
			},
			repeats: true,
			heal:    func(t *testing.T, w *world) { t.Helper(); w.restore(t, cp1) },
		},
		{
			title: "the config names a link that the machine does not have", class: "in maintenance, without that link",
			knob:   "NodeOptions.Links",
			inject: func(t *testing.T, w *world) { t.Helper(); w.callLink(t, "ens18") },
			code:   diagnosis.ExitPreflight, id: diagnosis.LinkAbsent, node: cp1, says: "no link ens18",
			seen: "it would not be on the network",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Zero(t, w.count(cp1, "ApplyConfiguration"))
			},
			repeats: true,
			heal:    func(t *testing.T, w *world) { t.Helper(); w.restore(t, cp1) },
		},
		{
			title: "such a config is applied all the same", class: "no answer", knob: "Lost: LostLink, SKIP_CHECKS",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.callLink(t, "ens18")
				w.Node(cp1).Set(func(f *emulator.Faults) { f.Lost = emulator.LostLink })
			},
			settings: []string{"SKIP_CHECKS=" + string(diagnosis.LinkAbsent), "NODE_WAIT=150s"},
			code:     diagnosis.ExitVerify, id: diagnosis.NodeSilent, node: cp1,
			says: "or off the network, if it has no link ens18",
			seen: "no answer: self-test, reboot or off",
			heal: func(t *testing.T, w *world) {
				t.Helper()
				w.reinstall(cp1)
				w.restore(t, cp1)
			},
		},
		{
			title: "a disk that the TPM does not unlock", class: "no answer", knob: "Lost: LostDisk",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.Node(cp1).Set(func(f *emulator.Faults) { f.Lost = emulator.LostDisk })
				w.edit(t, cp1, "machine:\n",
					"machine:\n  systemDiskEncryption:\n    state:\n      provider: luks2\n      keys:\n        - slot: 0\n"+
						"          tpm: {}\n")
			},
			settings: []string{"NODE_WAIT=20s"},
			code:     diagnosis.ExitVerify, id: diagnosis.NodeSilent, node: cp1,
			says: "or its disk can't be unlocked with the TPM's key",
			seen: "it may never unlock them again",
			heal: calm,
		},
		{
			title: "Talos is installed on another disk than the config's", class: "in maintenance, with a Talos disk",
			knob: "NodeOptions.Installed, Disks",
			edit: func(_ *testing.T, _ *world, machine *emulator.NodeOptions) {
				machine.Installed = true
				machine.Disks = []emulator.Disk{
					{Name: "sda", Size: 64_000_000_000, Transport: "sata"}, {Name: "vda", Size: 50_000_000_000, Transport: "virtio"},
				}
			},
			id: diagnosis.AlreadyInstalled, node: cp1, seen: "sda",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Equal(t, 1, w.Node(cp1).Boots(), "nothing was installed")
			},
		},
		{
			title: "the config is newer than the Talos that the node booted", only: newerThan112,
			class: "in maintenance, another Talos version",
			knob:  "NodeOptions.TalosVersion",
			edit:  func(_ *testing.T, _ *world, machine *emulator.NodeOptions) { machine.TalosVersion = "v1.12.1" },
			code:  diagnosis.ExitPreflight, id: diagnosis.TalosVersionMismatch, node: cp1,
			seen: "would refuse",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Zero(t, w.count(cp1, "ApplyConfiguration"))
			},
			next: diagnosis.ExitPreflight, nextID: diagnosis.TalosVersionMismatch,
		},
		{
			cluster: labcluster.Options{TalosVersion: "v1.12.1"},
			title:   "the config is older than the Talos that the node booted", class: "in maintenance, another Talos version",
			knob: "NodeOptions.TalosVersion",
			edit: func(_ *testing.T, _ *world, machine *emulator.NodeOptions) {
				machine.TalosVersion = emulator.DefaultTalosVersion
			},
			id: diagnosis.TalosVersionMismatch, node: cp1, seen: "its machine config is made for the older",
		},
		{
			title: "a node in maintenance does not tell its version", class: "Unimplemented",
			knob:    "NodeOptions.TalosVersion: v1.12.1",
			cluster: labcluster.Options{TalosVersion: "v1.12.1"},
			edit:    func(_ *testing.T, _ *world, machine *emulator.NodeOptions) { machine.TalosVersion = "v1.12.1" },
			seen:    "config sent", node: cp1,
		},
		{
			title: "a node has another address in maintenance than afterwards", class: "answers at another address",
			knob: "NodeOptions.Address, NODE_ADDRESSES",
			edit: func(_ *testing.T, w *world, machine *emulator.NodeOptions) { machine.Address = w.Lab.Address(99) },
			inject: func(_ *testing.T, w *world) {
				w.settings = append(w.settings, "NODE_ADDRESSES="+cp1+"="+w.Lab.Address(99).String())
			},
			seen: ", at ", node: cp1,
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.NotEqual(t, w.Lab.Address(99), w.Node(cp1).Address())
			},
		},
		{
			title: "a node of two cards is declared by the address of the second", class: "answers at both addresses",
			knob:    "machine config: two addresses",
			cluster: labcluster.Options{ControlPlanes: 3},
			inject: func(t *testing.T, w *world) {
				t.Helper()

				own := netip.PrefixFrom(w.Node(cp1).Options().Address, w.Lab.Prefix().Bits()).String()
				w.edit(t, cp1, "- address: "+own, "- address: "+w.Lab.Address(98).String()+"/24\n  - address: "+own)
			},
			seen: "config sent", node: cp1,
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Equal(t, w.Lab.Address(98), w.Node(cp1).Address())
			},
		},
	}
}

// callLink makes the config of the control plane name its only link otherwise.
func (w *world) callLink(t *testing.T, name string) {
	t.Helper()

	w.edit(t, cp1, "name: ethSel0\naddresses:", "name: "+name+"\naddresses:")
	w.edit(t, cp1, "link: ethSel0", "link: "+name)
}

// restore makes a node's machine config what it was.
func (w *world) restore(t *testing.T, name string) {
	t.Helper()

	for _, config := range w.Generated.Configs {
		if config.Node.Name == name {
			require.NoError(t, os.WriteFile(w.ConfigFile(name), config.Bytes, 0o600))
		}
	}
}

// reinstall empties a machine's disks and boots it from its image again.
func (w *world) reinstall(name string) {
	w.Node(name).PowerOff()
	w.heal(name)
	w.Node(name).Wipe()
	w.Node(name).PowerOn()
}

// serviceFaults are those of the services that a booted machine runs.
func serviceFaults() []fault {
	return []fault{
		{
			title: "the clock is synced late", class: "time is not synced", knob: "TimeUnsynced",
			inject: set(func(f *emulator.Faults) { f.TimeUnsynced = true }), settings: []string{"TIME_SYNC_TIMEOUT=1h"},
			during: func(t *testing.T, w *world) {
				t.Helper()
				until(t, w.Node(cp1), func(node *emulator.Node) bool { return node.Boots() == 2 && node.Stage() == "booting" })

				looks := w.count(cp1, "ServiceList")

				eventually(t, func() bool { return w.count(cp1, "ServiceList") >= looks+10 })
				w.heal(cp1)
			},
			seen: "its clock is not synced, and etcd waits for that", node: cp1,
		},
		{
			title: "the clock is never synced", class: "time is not synced", knob: "TimeUnsynced",
			inject: set(func(f *emulator.Faults) { f.TimeUnsynced = true }), settings: []string{"TIME_SYNC_TIMEOUT=20s"},
			code: diagnosis.ExitBootstrap, id: diagnosis.TimeNotSynced, node: cp1,
			seen:    "its clock is not synced, and etcd waits for that",
			repeats: true, heal: calm,
		},
		{
			title: "trustd is late", class: "connection refused", knob: "TrustdDown", cluster: withWorker,
			inject: set(func(f *emulator.Faults) { f.TrustdDown = true }),
			during: func(t *testing.T, w *world) {
				t.Helper()
				until(t, w.Node(cp1), (*emulator.Node).EtcdVoter)
				w.heal(cp1)
			},
			seen: "its API opens once the endpoint can be reached", node: worker1,
		},
		{
			title: "trustd never answers", class: "connection refused", knob: "TrustdDown", cluster: withWorker,
			inject:   set(func(f *emulator.Faults) { f.TrustdDown = true }),
			settings: []string{"INSTALL_TIMEOUT=4m", "STAGE_TIMEOUT=4m"},
			code:     diagnosis.ExitVerify, id: diagnosis.WorkerJoining, node: worker1,
			says: "a worker opens its API when a control plane signs its certificate",
			seen: "its API opens once the endpoint can be reached", heal: calm,
		},
		{
			title: "a worker's kubelet never gets healthy", class: "booting, kubelet not healthy", knob: "KubeletDown",
			cluster:  withWorker,
			inject:   func(_ *testing.T, w *world) { w.Node(worker1).Set(func(f *emulator.Faults) { f.KubeletDown = true }) },
			settings: []string{"STAGE_TIMEOUT=4m"},
			code:     diagnosis.ExitVerify, id: diagnosis.StageStuck, node: worker1,
			says: "booting: kubelet not healthy", seen: "kubelet not healthy",
			heal: func(_ *testing.T, w *world) { w.heal(worker1) },
		},
		{
			title: "a control plane's kubelet never gets healthy", class: "booting, kubelet not healthy", knob: "KubeletDown",
			inject: set(func(f *emulator.Faults) { f.KubeletDown = true }), settings: []string{"STAGE_TIMEOUT=4m"},
			code: diagnosis.ExitVerify, id: diagnosis.StageStuck, node: cp1, says: "booting: kubelet not healthy",
			seen: "kubelet not healthy",
			heal: calm,
		},
		{
			title: "a worker is switched off once it has its config", only: olderForm,
			class: "no answer", knob: "PowerOff", cluster: withWorker,
			inject: func(_ *testing.T, w *world) {
				w.Node(worker1).Set(func(f *emulator.Faults) { f.InstallStall = forEver })
			},
			during: func(t *testing.T, w *world) {
				t.Helper()
				until(t, w.Node(worker1), inStage("installing"))
				w.Node(worker1).PowerOff()
				w.heal(worker1)
			},
			settings: []string{"NODE_WAIT=4m"},
			code:     diagnosis.ExitVerify, id: diagnosis.NodeSilent, node: worker1,
			says: "powered off, still in its self-test, or at another address",
			seen: "its API opens once the endpoint can be reached",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.True(t, w.Node(cp1).EtcdVoter(), "a worker never holds up the cluster")
				require.FileExists(t, w.root+"/kubeconfig")
			},
			heal: func(_ *testing.T, w *world) { w.Node(worker1).PowerOn() },
		},
		{
			title: "the Kubernetes API never comes up", class: "port 6443 refused", knob: "KubernetesDown",
			inject: set(func(f *emulator.Faults) { f.KubernetesDown = true }), settings: []string{"API_TIMEOUT=30s"},
			code: diagnosis.ExitKubernetes, id: diagnosis.APINotReady, says: "is not ready after",
			seen:    "waiting for the Kubernetes API",
			repeats: true, heal: calm,
		},
		{
			title: "no CNI: the nodes are never Ready", class: "NotReady", knob: "labcluster.Options.CNI: none",
			cluster: withWorker,
			seen:    "expected until a CNI is installed",
		},
		{
			title: "no network in spite of Talos' own CNI", only: olderForm,
			class: "NotReady", knob: "machine config: CNI flannel",
			cluster: withWorker,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.ends(t, 0, "talos")

				// The file says that Talos brings its own, and no network ever comes.
				w.edit(t, cp1, "name: none", "name: flannel")
			},
			settings: []string{"API_TIMEOUT=60s"},
			code:     diagnosis.ExitKubernetes, id: diagnosis.NodesNotReady, says: "not Ready after",
			seen: "waiting for nodes to become Ready",
			heal: func(_ *testing.T, w *world) { w.Lab.InstallCNI() },
		},
	}
}
