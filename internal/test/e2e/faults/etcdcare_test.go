package faults_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile/baddisk"
	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	parsed "github.com/talos-mage/talos-mage/internal/talos/talosconfig"
)

const (
	snapshotTarget = "etcd:snapshot"
	defragTarget   = "etcd:defrag"
	rotateTarget   = "config:rotate"
)

// etcdCareFaults are what can go wrong while an etcd that works is copied or defragmented.
func etcdCareFaults() []fault {
	full := baddisk.Full
	healedCP1 := healed(cp1)
	switchedOn := func(_ *testing.T, w *world) { w.heal(cp1); w.Node(cp1).PowerOn() }

	return afterBoot([]fault{
		{
			title: "a snapshot of the only etcd breaks off", class: "a snapshot that is not whole", knob: "SnapshotEnd",
			run: snapshotTarget, inject: running(func(w *world) {
				w.Node(cp1).Set(func(f *emulator.Faults) { f.SnapshotEnd = 2000 })
			}),
			code: diagnosis.ExitBootstrap, id: diagnosis.SnapshotFailed, node: cp1,
			says: "2000 bytes are no database and its hash", seen: "the snapshot is not whole", also: keepsNoSnapshot,
			repeats: true, heal: healedCP1, nextRun: snapshotTarget,
		},
		{
			title: "the connection breaks at the end of a snapshot", class: "a reply to a call is lost",
			knob: "Calls: Cut EtcdSnapshot", run: snapshotTarget, inject: running(func(w *world) {
				w.fault(cp1, emulator.CallFault{Method: "EtcdSnapshot", Do: emulator.Cut, When: emulator.AfterEffect, Times: 1})
			}),
			code: diagnosis.ExitBootstrap, id: diagnosis.SnapshotFailed, node: cp1, says: "the connection broke",
			seen: "the connection broke",
			also: keepsNoSnapshot, nextRun: snapshotTarget,
		},
		{
			title: "the only etcd is off when a snapshot is asked for", class: "no answer", knob: "PowerOff",
			run: snapshotTarget, inject: running(func(w *world) { w.off(cp1) }),
			code: diagnosis.ExitBootstrap, id: diagnosis.SnapshotImpossible, says: "no etcd can be copied: cp1: no answer",
			seen: "no etcd can be copied", repeats: true, heal: switchedOn,
		},
		{
			title: "the snapshot's disk is full", class: "no space left on device", knob: "-file", disk: &full,
			onDisk: func(_ *testing.T, w *world, folder string) {
				w.settings = append(w.settings, "-file="+filepath.Join(folder, "etcd.db"))
			},
			run: snapshotTarget, inject: running(func(*world) {}),
			code: diagnosis.ExitUnexpected, id: diagnosis.FileUnwritable, says: "can't be written: no space left on device",
			seen: "no space left on device", repeats: true,
			heal: func(_ *testing.T, w *world) {
				w.settings = append(w.settings, "-file="+filepath.Join(w.root, "etcd.db"))
			},
			nextRun: snapshotTarget,
		},
		{
			title: "the reply to a defragmentation is lost", class: "a reply to a call is lost",
			knob: "Calls: Cut EtcdDefragment", run: defragTarget, inject: running(func(w *world) {
				w.fault(cp1, emulator.CallFault{Method: "EtcdDefragment", Do: emulator.Cut, When: emulator.AfterEffect, Times: 1})
			}),
			seen: "attempt 1 failed", node: cp1,
		},
		{
			title: "a defragmentation never ends", class: "a call hangs", knob: "Calls: Hang EtcdDefragment",
			run: defragTarget, settings: []string{"ETCD_TIMEOUT=60s"}, inject: running(func(w *world) {
				w.fault(cp1, emulator.CallFault{Method: "EtcdDefragment", Do: emulator.Hang})
			}),
			code: diagnosis.ExitBootstrap, id: diagnosis.DefragFailed, node: cp1, says: "it did not answer for 1m0s",
			seen: "defragmenting", heal: calm,
		},
		{
			title: "a node goes off while its etcd is defragmented", class: "no answer", knob: "PowerOff",
			run: defragTarget, settings: []string{"MAX_RETRIES=1"}, inject: running(func(w *world) {
				w.fault(cp1, emulator.CallFault{Method: "EtcdDefragment", Do: emulator.Hang})
			}),
			during: func(t *testing.T, w *world) {
				t.Helper()
				eventually(t, func() bool { return w.count(cp1, "EtcdDefragment") > 0 })
				w.off(cp1)
			},
			code: diagnosis.ExitBootstrap, id: diagnosis.DefragFailed, node: cp1, seen: "attempt 1 failed",
			heal: switchedOn,
		},
		{
			title: "a member is off when etcd is to be defragmented", class: "no answer", knob: "PowerOff",
			run: defragTarget, inject: running(func(w *world) { w.off(cp1) }),
			code: diagnosis.ExitBootstrap, id: diagnosis.DefragHeldBack, says: "cp1: no answer",
			seen: "not every member is a healthy one", repeats: true, heal: switchedOn,
		},
	})
}

// running brings the cluster up before it makes the fault.
func running(inject func(w *world)) func(t *testing.T, w *world) {
	return func(t *testing.T, w *world) { t.Helper(); w.runs(t); inject(w) }
}

func keepsNoSnapshot(t *testing.T, w *world, _ outcome) {
	t.Helper()

	kept, err := filepath.Glob(filepath.Join(w.Dir, "snapshots", "*.db"))
	require.NoError(t, err)
	require.Empty(t, kept)
}

// rotateFaults are what can go wrong while a talosconfig is renewed. No node is asked, and the old one stays.
func rotateFaults() []fault {
	full, readOnly := baddisk.Full, baddisk.ReadOnly

	unwritable := func(title, class string, disk *baddisk.State, code diagnosis.ExitCode) fault {
		return fault{
			title: title, class: class, knob: "TALOSCONFIG", disk: disk, run: rotateTarget,
			onDisk: func(t *testing.T, w *world, folder string) {
				t.Helper()
				w.expires(t, w.Generated.Options.Secrets)

				talosconfig, err := config.Open(w.Talosconfig())
				require.NoError(t, err)

				path := filepath.Join(folder, "talosconfig")
				require.NoError(t, talosconfig.Save(path))
				w.settings = append(w.settings, "TALOSCONFIG="+path)
			},
			code: code, id: diagnosis.FileUnwritable, says: class, seen: class, also: stays(false), repeats: true,
			heal: func(t *testing.T, w *world) {
				t.Helper()
				w.settings = append(w.settings, "TALOSCONFIG="+w.Talosconfig())
				w.ends(t, diagnosis.ExitOK, rotateTarget)
			},
		}
	}

	return afterBoot([]fault{
		{
			title: "a talosconfig has expired, and is renewed", class: "wrong files", knob: "TALOSCONFIG", run: rotateTarget,
			inject: func(t *testing.T, w *world) { t.Helper(); w.expires(t, w.Generated.Options.Secrets) },
			seen:   "expired on", also: stays(true),
		},
		{
			title: "the secrets that a talosconfig is to be renewed from are another cluster's", class: "wrong files",
			knob: "talsecret.yaml", run: rotateTarget,
			inject: func(t *testing.T, w *world) {
				t.Helper()

				bundle, err := clusterfiles.ForeignSecrets()
				require.NoError(t, err)
				w.expires(t, bundle)
			},
			code: diagnosis.ExitBadInput, id: diagnosis.RotateRefused, says: "one of them is another cluster's",
			seen: "has the machine CA of the secrets file", also: stays(false), repeats: true,
			heal: func(t *testing.T, w *world) {
				t.Helper()
				w.hasSecrets(t, w.Generated.Options.Secrets)
				w.ends(t, diagnosis.ExitOK, rotateTarget)
			},
		},
		unwritable("the disk is full when a talosconfig is to be renewed", "no space left on device", &full,
			diagnosis.ExitUnexpected),
		unwritable("a talosconfig is to be renewed in a read-only folder", "read-only file system", &readOnly,
			diagnosis.ExitBadInput),
	})
}

// expires gives the cluster secrets, and a talosconfig that is not valid any more.
func (w *world) expires(t *testing.T, bundle *secrets.Bundle) {
	t.Helper()
	withExpiredClient(t, w)
	w.hasSecrets(t, bundle)
}

func (w *world) hasSecrets(t *testing.T, bundle *secrets.Bundle) {
	t.Helper()

	text, err := clustersecrets.Encode(bundle)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "talsecret.yaml"), text, 0o600))
}

// stays checks that the talosconfig is good, or as useless as before, and that no node was asked.
func stays(good bool) func(t *testing.T, w *world, _ outcome) {
	return func(t *testing.T, w *world, _ outcome) {
		t.Helper()

		talosconfig, err := config.Open(w.Talosconfig())
		require.NoError(t, err)

		ends := parsed.ClientCertificate(talosconfig.Contexts[talosconfig.Context]).NotAfter
		require.Equal(t, good, ends.After(time.Now()))
		require.Empty(t, w.Node(cp1).MutatingCalls())
	}
}
