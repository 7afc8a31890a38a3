package kills_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/folderwatch"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// timeScale is how many times faster than the wall clock nodes live, and the program waits.
const timeScale = 100

// lastLines is how much of a machine's console a failed test shows.
const lastLines = 12

// quick is what the machines need for a bring-up of half a minute of their time.
var quick = emulator.Timing{
	Boot: 3 * time.Second, Apply: time.Second, Install: 6 * time.Second, Stop: time.Second, Reboot: 3 * time.Second,
	Containers: time.Second,
	Kubelet:    2 * time.Second, ControlPlane: 3 * time.Second, EtcdJoinLimit: 24 * time.Hour,
}

// patient are limits that no run comes near, however busy the machine is: what has to come comes.
var patient = []string{
	"VERIFICATION_TIMEOUT=5h", "INSTALL_TIMEOUT=5h", "NODE_WAIT=5h", "STAGE_TIMEOUT=5h", "ETCD_TIMEOUT=5h",
	"ETCD_JOIN_TIMEOUT=5h", "TIME_SYNC_TIMEOUT=5h",
	"API_TIMEOUT=5h", "APPLY_TIMEOUT=10s",
}

// shape is how a cluster and its operator's folders look at the beginning.
type shape struct {
	controlPlanes, workers int
	// talos is the release that the machines run, and contract the form of their configs; empty for the usual ones.
	talos, contract string
	parallel        bool
	// rendered is set when the machine configs exist already, and no program is needed to make any.
	rendered bool
	// otherCluster is set when the operator's kubeconfig has another cluster in it.
	otherCluster bool
}

// world is a cluster of emulated machines and the folders of its operator.
type world struct {
	*labcluster.Cluster
	// root is the operator's repository, temporary his folder for temporary files, templates what talhelper renders.
	root, temporary, templates string
	env                        []string
	shape                      shape
	// left are the leftovers of killed runs.
	left map[string]bool
	// alarm is that of the process that runs.
	alarm atomic.Pointer[alarm]
}

func newWorld(t *testing.T, shape shape) *world {
	t.Helper()

	w := &world{root: t.TempDir(), temporary: t.TempDir(), shape: shape}
	options := labcluster.Options{
		ControlPlanes: shape.controlPlanes, Workers: shape.workers, Timing: quick,
		TalosVersion: shape.talos, Contract: shape.contract,
		LabOptions: emulator.LabOptions{TimeScale: timeScale,
			Watch: func(*emulator.Node, emulator.Call) { w.happened(call) }},
	}

	if options.Workers == 0 {
		options.Workers = -1
	}

	made, err := labcluster.New(filepath.Join(w.root, "talos"), options)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, node := range made.Lab.Nodes() {
				console := node.Console()
				t.Logf("%s, %s:\n%s", node.Name(), node.Stage(), strings.Join(console[max(0, len(console)-lastLines):], "\n"))
			}
		}

		require.NoError(t, made.Close())
	})

	w.Cluster = made
	w.furnish(t)

	folders := []string{w.root, w.temporary, w.Dir}
	if shape.rendered {
		folders = append(folders, w.ConfigDir())
	}

	folderwatch.Watch(t, func(name string) {
		// Events are written all the time; the lines on stderr stand for them.
		if name != filepath.Base(w.report()) {
			w.happened(file)
		}
	}, folders...)

	for _, node := range made.Nodes {
		w.until(t, node, func(node *emulator.Node) bool { return node.Stage() == "maintenance" })
	}

	return w
}

func (w *world) kubeconfig() string { return filepath.Join(w.root, "kubeconfig") }

func (w *world) report() string { return filepath.Join(w.root, "report.jsonl") }

func (w *world) records() string { return filepath.Join(w.Dir, ".talos-mage", "runs") }

func (w *world) secrets() string { return filepath.Join(w.Dir, "talsecret.sops.yaml") }

const otherContext = `apiVersion: v1
kind: Config
clusters:
- {name: other, cluster: {server: "https://192.0.2.1:6443"}}
contexts:
- {name: other, context: {cluster: other, user: other}}
users:
- {name: other, user: {token: abc}}
current-context: other
`

// sealedWith is the last line that the stand-in for sops writes.
const sealedWith = "sops: {age: [{recipient: age1example}]}"

// furnish makes what else the operator has: the programs that render, which take their time, settings, and perhaps a
// kubeconfig.
func (w *world) furnish(t *testing.T) {
	t.Helper()

	aside := t.TempDir()
	w.templates = filepath.Join(aside, "rendered")

	forgetEndpoints(t, w.Talosconfig())
	require.NoError(t, os.CopyFS(w.templates, os.DirFS(w.ConfigDir())))

	if !w.shape.rendered {
		require.NoError(t, os.RemoveAll(w.ConfigDir()))
	}

	script(t, filepath.Join(aside, "talhelper"), `
while [ "$1" != --out-dir ]; do shift; done
for file in `+w.templates+`/*; do
  to=$2/$(basename "$file")
  head -c 1000 "$file" > "$to"
  sleep 0.005
  tail -c +1001 "$file" >> "$to"
done`)
	script(t, filepath.Join(aside, "sops"), `echo "sealed: $(base64 -w 0)"; sleep 0.01; echo "`+sealedWith+`"`)
	require.NoError(t, os.WriteFile(filepath.Join(w.root, ".sops.yaml"), []byte("creation_rules: []\n"), 0o600))

	if w.shape.otherCluster {
		require.NoError(t, os.WriteFile(w.kubeconfig(), []byte(otherContext), 0o600))
	}

	mode := "sequential"
	if w.shape.parallel {
		mode = "parallel"
	}

	w.env = append([]string{
		"ROOT_DIR=" + w.root,
		"TALOS_DIR=" + w.Dir,
		"KUBECONFIG=" + w.kubeconfig(),
		"TMPDIR=" + w.temporary,
		"REPORT_FILE=" + w.report(),
		"CLOCK_SCALE=" + strconv.Itoa(timeScale),
		"APPLY_MODE=" + mode,
		"CONFIG_GENERATOR=talhelper",
		"PATH=" + aside + string(filepath.ListSeparator) + os.Getenv("PATH"),
	}, patient...)
}

// forgetEndpoints leaves it to the program to fill them in.
func forgetEndpoints(t *testing.T, path string) {
	t.Helper()

	talosconfig, err := config.Open(path)
	require.NoError(t, err)

	for _, context := range talosconfig.Contexts {
		context.Endpoints, context.Nodes = nil, nil
	}

	require.NoError(t, talosconfig.Save(path))
}

// script makes a program of the operator's.
func script(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, tool.WriteProgram(path, []byte("#!/bin/sh\n"+text+"\n")))
}

// happened tells the running process's alarm of an event.
func (w *world) happened(what event) {
	if alarm := w.alarm.Load(); alarm != nil {
		alarm.happened(what)
	}
}

// launchedEnv is the environment for mage.
func (w *world) launchedEnv() []string { return slices.Concat(w.env, launcher.Environ()) }

// start starts the recipe, below mage or alone.
func (w *world) start(t *testing.T, launched bool, tell func(line string)) *process {
	t.Helper()

	if launched {
		return start(t, w.root, w.launchedEnv(), tell, launcher.Command(w.root, "talos")...)
	}

	return start(t, w.root, w.env, tell, talosMage, "talos")
}

// run runs the recipe to its end.
func (w *world) run(t *testing.T, launched bool) *process {
	t.Helper()

	p := w.start(t, launched, func(string) {})
	p.wait(t)

	return p
}

// until waits for a machine.
func (w *world) until(t *testing.T, node *emulator.Node, condition func(*emulator.Node) bool) {
	t.Helper()

	waiting, stop := context.WithTimeout(t.Context(), labcluster.Deadline)
	defer stop()

	require.NoError(t, node.WaitFor(waiting, condition))
}

// changes are the calls that changed a machine or could have, as "cp1 ApplyConfiguration OK".
func (w *world) changes() []string {
	var made []string

	for _, node := range w.Nodes {
		for _, call := range node.MutatingCalls() {
			made = append(made, fmt.Sprintf("%s %s %s", node.Name(), call.Name(), call.Code))
		}
	}

	return made
}

// settled waits until the machines are done with all calls, and gives the changes.
func (w *world) settled(t *testing.T) []string {
	t.Helper()

	require.Eventually(t, func() bool {
		for _, node := range w.Nodes {
			for _, call := range node.Calls() {
				if !call.Done {
					return false
				}
			}
		}

		return true
	}, labcluster.Deadline, 5*time.Millisecond, "machines are still busy with calls of a process that is gone")

	return w.changes()
}
