package faults_test

import (
	"path/filepath"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile/baddisk"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// operatorFaults are those of the computer that the program runs on.
func operatorFaults() []fault {
	full, readOnly := baddisk.Full, baddisk.ReadOnly
	elsewhere := func(name, file string) func(*testing.T, *world, string) {
		return func(_ *testing.T, w *world, folder string) {
			w.settings = append(w.settings, name+"="+filepath.Join(folder, file))
		}
	}

	// mended is a healed disk: the file may be where it was meant to be at first.
	mended := func(setting string, path func(w *world) string) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.settings = append(w.settings, setting+"="+path(w)) }
	}
	root := func(name string) func(*world) string {
		return func(w *world) string { return filepath.Join(w.root, name) }
	}

	return afterBoot([]fault{
		{
			title: "the kubeconfig's disk is full", class: "no space left on device", knob: "KUBECONFIG",
			disk: &full, onDisk: elsewhere("KUBECONFIG", "kubeconfig"),
			code: diagnosis.ExitUnexpected, id: diagnosis.KubeconfigUnwritable, says: "no space left on device",
			seen:    "no space left on device",
			repeats: true, heal: mended("KUBECONFIG", root("kubeconfig")),
		},
		{
			title: "the kubeconfig's folder is read-only", class: "read-only file system", knob: "KUBECONFIG",
			disk: &readOnly, onDisk: elsewhere("KUBECONFIG", "kubeconfig"),
			code: diagnosis.ExitBadInput, id: diagnosis.KubeconfigUnwritable, says: "read-only file system",
			seen:    "read-only file system",
			repeats: true, heal: mended("KUBECONFIG", root("kubeconfig")),
		},
		{
			title: "the talosconfig's folder is read-only", class: "read-only file system", knob: "TALOSCONFIG",
			disk: &readOnly,
			onDisk: func(t *testing.T, w *world, folder string) {
				t.Helper()

				// The run wants to write the nodes' addresses into it.
				talosconfig, err := config.Open(w.Talosconfig())
				require.NoError(t, err)

				talosconfig.Contexts[talosconfig.Context].Nodes = nil
				path := filepath.Join(folder, "talosconfig")
				require.NoError(t, talosconfig.Save(path))
				w.settings = append(w.settings, "TALOSCONFIG="+path)
			},
			code: diagnosis.ExitBadInput, id: diagnosis.FileUnwritable, says: "can't be written: read-only file system",
			seen: "read-only file system",
			heal: mended("TALOSCONFIG", func(w *world) string { return w.Talosconfig() }),
		},
		{
			title: "the report's disk is full", class: "no space left on device", knob: "REPORT_FILE",
			settings: []string{"REPORT_FILE=/dev/full"},
			code:     diagnosis.ExitUnexpected, id: diagnosis.FileUnwritable,
			says: "/dev/full can't be written: no space left on device", seen: "no space left on device",
			repeats: true,
		},
		{
			title: "the report's folder is read-only", class: "read-only file system", knob: "REPORT_FILE",
			disk: &readOnly, onDisk: elsewhere("REPORT_FILE", "report.jsonl"),
			code: diagnosis.ExitBadInput, id: diagnosis.FileUnwritable, says: "can't be written: read-only file system",
			seen: "report.jsonl",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Zero(t, w.count(cp1, "ApplyConfiguration"))
			},
			heal: mended("REPORT_FILE", root("report.jsonl")),
		},
		{
			title: "the lock's folder is read-only", class: "read-only file system", knob: "TMPDIR",
			disk: &readOnly, onDisk: elsewhere("TMPDIR", ""),
			code: diagnosis.ExitBadInput, id: diagnosis.FileUnwritable, says: "can't be written: read-only file system",
			seen: "read-only file system",
			also: func(t *testing.T, w *world, _ outcome) {
				t.Helper()
				require.Zero(t, w.count(cp1, "ApplyConfiguration"))
			},
			repeats: true, heal: mended("TMPDIR", func(w *world) string { return w.root }),
		},
		{
			title: "the lock's disk is full", class: "no space left on device", knob: "TMPDIR",
			disk: &full, onDisk: elsewhere("TMPDIR", ""), seen: "config sent", node: cp1,
		},
	})
}
