package faults_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// scenarios are the kinds of bring-ups that a line of shell commands, one after the other whatever became of it, used
// to leave half done.
func scenarios() []fault {
	return afterBoot([]fault{
		{
			title: "the cable of one machine is loose while the others get their configs", class: "no answer, for a while",
			knob: "Silence", cluster: withWorker,
			inject: func(_ *testing.T, w *world) { w.Node(worker1).Silence(true) },
			during: func(t *testing.T, w *world) {
				t.Helper()
				until(t, w.Node(cp1), func(node *emulator.Node) bool { return node.Config() != nil })
				w.Node(worker1).Silence(false)
			},
			id: diagnosis.NodeSilent, node: worker1, seen: "no answer: in its self-test, rebooting, off, or at another address",
		},
		{
			title: "the controller calls the disk otherwise than its declaration does", only: olderForm,
			class: "in maintenance, without that disk", knob: "NodeOptions.Disks",
			edit: func(_ *testing.T, _ *world, machine *emulator.NodeOptions) {
				machine.Disks = []emulator.Disk{{Name: "sda", Size: 64_000_000_000, Transport: "sata"}}
			},
			code: diagnosis.ExitPreflight, id: diagnosis.InstallDiskAbsent, node: cp1, seen: "/dev/vda",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Zero(t, w.count(cp1, "ApplyConfiguration"))
			},
			repeats: true,
			heal:    func(t *testing.T, w *world) { t.Helper(); w.edit(t, cp1, "disk: /dev/vda", "disk: /dev/sda") },
		},
		{
			title: "a machine loses its power while it installs", only: olderForm,
			class:  "maintenance again, without a reason",
			knob:   "InstallStall, PowerOff",
			inject: set(func(f *emulator.Faults) { f.InstallStall = forEver }),
			during: func(t *testing.T, w *world) {
				t.Helper()
				until(t, w.Node(cp1), inStage("installing"))
				w.Node(cp1).PowerOff()
				w.heal(cp1)
				w.Node(cp1).PowerOn()
			},
			code: diagnosis.ExitVerify, id: diagnosis.InstallFailed, node: cp1, seen: "config sent",
		},
		{
			title: "the talosconfig is that of the cluster before this one", class: "wrong files", knob: "TALOSCONFIG",
			inject: func(t *testing.T, w *world) {
				t.Helper()

				secrets, err := clusterfiles.ForeignSecrets()
				require.NoError(t, err)

				former, err := labcluster.New(t.TempDir(),
					labcluster.Options{Off: true, ControlPlanes: 1, Workers: -1, Secrets: secrets})
				require.NoError(t, err)
				require.NoError(t, former.Close())
				w.settings = append(w.settings, "TALOSCONFIG="+former.Talosconfig())
			},
			code: diagnosis.ExitBadInput, id: diagnosis.TalosconfigForeign, seen: "talosconfig",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Zero(t, w.count(cp1, "ApplyConfiguration"))
			},
			repeats: true,
			heal:    func(_ *testing.T, w *world) { w.settings = append(w.settings, "TALOSCONFIG="+w.Talosconfig()) },
		},
		{
			title: "a node runs with an earlier version of its file", class: "configured, with another config",
			knob: "machine config",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.edit(t, cp1, "machine:\n", "machine:\n  sysctls:\n    vm.swappiness: \"1\"\n")
				w.installed(t)
				w.restore(t, cp1)
			},
			id: diagnosis.ConfigDrifted, node: cp1, says: "its config differs from", seen: "changed, mode",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.NotContains(t, string(w.Node(cp1).Config()), "vm.swappiness")
			},
		},
		{
			title: "the node's API is busy now and then", class: "Unavailable, for a while", knob: "Calls: Fail",
			inject: func(_ *testing.T, w *world) {
				for _, method := range []string{"ApplyConfiguration", "ServiceList", "Bootstrap", "EtcdStatus", "Kubeconfig"} {
					w.fault(cp1, emulator.CallFault{Method: method, Do: emulator.Fail, Code: codes.Unavailable,
						Text: "try again later", Times: 2})
				}
			},
			seen: "attempt 1 failed", node: cp1,
		},
		{
			title: "everything is slow", class: "slow answers", knob: "Timing",
			cluster: labcluster.Options{Timing: emulator.Timing{
				Boot: 15 * time.Second, Apply: 20 * time.Second, Install: 90 * time.Second, Kubelet: 30 * time.Second,
				EtcdStart: 60 * time.Second, ControlPlane: 90 * time.Second,
			}},
			seen: "waiting for the Kubernetes API",
		},
		{
			title: "an earlier run got no further than two of three nodes", class: "configured", knob: "-node=", cluster: three,
			inject: func(t *testing.T, w *world) { t.Helper(); w.installed(t, "NODE=cp1,cp2") },
			seen:   "has its config", node: cp1,
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()

				for _, name := range []string{cp1, cp2, cp3} {
					require.Equal(t, 1, w.count(name, "ApplyConfiguration"), name)
				}
			},
		},
		{
			title: "two of three control planes lose their power", class: "no answer, no quorum", knob: "PowerOff",
			cluster: three,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.ends(t, 0, "talos")
				w.Node(cp2).PowerOff()
				w.Node(cp3).PowerOff()
			},
			run: "bootstrap", settings: []string{"ETCD_TIMEOUT=150s"},
			code: diagnosis.ExitBootstrap, id: diagnosis.EtcdNotHealthy, says: "cp2: no answer; cp3: no answer",
			seen: "etcd exists, so Bootstrap is not called",
			also: func(t *testing.T, _ *world, got outcome) {
				t.Helper()
				require.NotContains(t, got.message, " reset ")
			},
			heal: func(_ *testing.T, w *world) {
				w.Node(cp2).PowerOn()
				w.Node(cp3).PowerOn()
			},
		},
		{
			title: "a tab has got into the talconfig", class: "wrong files", knob: "talconfig.yaml",
			inject: func(t *testing.T, w *world) { t.Helper(); w.indent(t, "    ", "\t") },
			code:   diagnosis.ExitBadInput, id: diagnosis.FileSyntax, seen: "talconfig.yaml",
			repeats: true,
			heal:    func(t *testing.T, w *world) { t.Helper(); w.indent(t, "\t", "    ") },
		},
	})
}

// indent changes the indentation of a line of the talconfig.
func (w *world) indent(t *testing.T, before, after string) {
	t.Helper()

	path := filepath.Join(w.Dir, "talconfig.yaml")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), before+"controlPlane: true")
	require.NoError(t, os.WriteFile(path,
		[]byte(strings.Replace(string(data), before+"controlPlane", after+"controlPlane", 1)), 0o600))
}
