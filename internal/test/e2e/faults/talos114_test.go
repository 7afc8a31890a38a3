package faults_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/documents"
)

// asTheyAre has the configs used as they are: the talconfig.yaml would render them in the older form.
const asTheyAre = "CONFIG_GENERATOR=none"

// talos114Faults are those of nodes that install unattended: beside their boot, again and again while it fails, and
// with their API open.
func talos114Faults() []fault {
	faults := []fault{
		{
			title: "the installer image can't be pulled, and the node goes on trying", class: "configured, the install fails",
			knob:     "Install: InstallImagePull, a config in documents",
			inject:   inDocuments(func(f *emulator.Faults) { f.Install = emulator.InstallImagePull }, documents.NoImage),
			settings: []string{"VERIFICATION_TIMEOUT=60s"},
			code:     diagnosis.ExitVerify, id: diagnosis.InstallFailed, node: cp1, says: "failed to pull image",
			seen: "after it failed: failed to pull image", repeats: true, heal: corrected,
		},
		{
			title: "the installer image can't be pulled, twice", class: "configured, the install fails",
			knob: "Install: InstallImagePull, InstallTimes: 2, a config in documents",
			inject: inDocuments(func(f *emulator.Faults) {
				f.Install, f.InstallTimes = emulator.InstallImagePull, 2
			}),
			seen: "after it failed: failed to pull image", node: cp1,
		},
		{
			title: "the install disk can't be written to, and the node goes on trying", class: "configured, the install fails",
			knob:     "Install: InstallDiskWrite, a config in documents",
			inject:   inDocuments(func(f *emulator.Faults) { f.Install = emulator.InstallDiskWrite }),
			settings: []string{"VERIFICATION_TIMEOUT=60s"},
			code:     diagnosis.ExitVerify, id: diagnosis.InstallFailed, node: cp1, says: "its install fails again and again",
			seen: "after it failed", heal: calm,
		},
		{
			title: "no disk matches the install's selector", class: "configured, the install waits for a disk",
			knob: "a config in documents", inject: inDocuments(nil, documents.NoDisk),
			settings: []string{"SKIP_CHECKS=" + string(diagnosis.InstallDiskAbsent), "VERIFICATION_TIMEOUT=60s"},
			code:     diagnosis.ExitVerify, id: diagnosis.InstallFailed, node: cp1, says: "no disk matched the selector",
			seen: "goes on trying: no disk matched the selector", heal: corrected,
		},
		{
			title: "an install disk that the machine does not have is found before", class: "maintenance",
			knob: "a config in documents", inject: inDocuments(nil, documents.NoDisk),
			code: diagnosis.ExitPreflight, id: diagnosis.InstallDiskAbsent, node: cp1,
			says: "install disk /dev/nvme7n1 does not exist, and the node would wait for one for ever",
			seen: "install disk /dev/nvme7n1 does not exist", also: applied(0), heal: corrected,
		},
		{
			title: "the install fails, and the host name is made from what would be on the disk",
			class: "connection refused", knob: "Install: InstallImagePull, a config in documents with auto: stable",
			inject: inDocuments(func(f *emulator.Faults) { f.Install = emulator.InstallImagePull },
				documents.AutoHostname),
			settings: []string{"INSTALL_TIMEOUT=4m"},
			code:     diagnosis.ExitVerify, id: diagnosis.NodeRefused, node: cp1,
			says: "nothing but its console tells whether its install fails",
			seen: "port refused until it is installed, however often that fails",
			heal: func(t *testing.T, w *world) {
				t.Helper()
				w.Node(cp1).PowerOff()
				corrected(t, w)
				w.Node(cp1).PowerOn()
			},
		},
		{
			title: "the power is cut while Talos is installed", class: "maintenance again, without a reason",
			knob:   "PowerOff, a config in documents",
			inject: inDocuments(func(f *emulator.Faults) { f.InstallStall = forEver }),
			during: func(t *testing.T, w *world) {
				t.Helper()
				until(t, w.Node(cp1), inStage("booting"))

				looks := w.count(cp1, "ServiceList")

				eventually(t, func() bool { return w.count(cp1, "ServiceList") >= looks+3 })
				w.Node(cp1).PowerOff()
				w.heal(cp1)
				w.Node(cp1).PowerOn()
			},
			code: diagnosis.ExitVerify, id: diagnosis.InstallFailed, node: cp1,
			says: "it accepted its config and came back to maintenance: the install failed", seen: "installing",
		},
		{
			title: "an install begins again while etcd is bootstrapped", class: "Unknown, bootstrap is not allowed",
			knob: "Calls: Fail Bootstrap",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				inDocuments(nil)(t, w)
				w.fault(cp1, emulator.CallFault{Method: "Bootstrap", Do: emulator.Fail, Code: codes.Unknown, Times: 1,
					Text: "bootstrap is not allowed during unattended install (phase: installing)"})
			},
			seen: "bootstrap is not allowed during unattended install", node: cp1,
		},
		{
			title: "a config without a certificate authority for etcd", class: "InvalidArgument",
			knob: "Calls: Fail Bootstrap",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				inDocuments(nil)(t, w)
				w.fault(cp1, emulator.CallFault{Method: "Bootstrap", Do: emulator.Fail, Code: codes.InvalidArgument,
					Times: 1, Text: "etcd is not configured, bootstrap is not possible"})
			},
			code: diagnosis.ExitBootstrap, id: diagnosis.BootstrapFailed, node: cp1,
			seen: "no certificate authority for etcd",
		},
	}

	for i := range faults {
		faults[i].cluster = labcluster.Options{TalosVersion: documents.Talos, Endpoint: labcluster.FirstControlPlane}
		faults[i].edit = func(_ *testing.T, _ *world, machine *emulator.NodeOptions) {
			machine.TalosVersion = documents.Talos
		}
		faults[i].settings = append(faults[i].settings, asTheyAre)
		faults[i].nextSettings = []string{asTheyAre}
	}

	return afterBoot(faults)
}

// inDocuments writes the control plane's config in documents, and has something go wrong for it.
func inDocuments(change func(*emulator.Faults), edits ...documents.Edit) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		t.Helper()

		data, err := documents.Config(w.Generated.Options, cp1, edits...)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(w.ConfigFile(cp1), data, 0o600))

		if change != nil {
			w.Node(cp1).Set(change)
		}
	}
}

// corrected ends what is wrong with the control plane, and with its config.
func corrected(t *testing.T, w *world) {
	t.Helper()
	inDocuments(nil)(t, w)
	w.heal(cp1)
}
