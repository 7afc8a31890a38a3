package steps_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/documents"
	"github.com/talos-mage/talos-mage/internal/test/emulatortest"
)

// Variables that make this program be the process that upgrades, and is killed.
const (
	victimFolder   = "TALOS_MAGE_UPGRADE_IN"
	victimSettings = "TALOS_MAGE_UPGRADE_WITH"
)

// upgradeUntilKilled is the other process.
func upgradeUntilKilled(folder string) int {
	var given []string
	if err := json.Unmarshal([]byte(os.Getenv(victimSettings)), &given); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	environ, flags := emulatortest.Settings(given)

	loaded, err := settings.Load(environ, flags, folder)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	timepiece := clock.Scaled(scale)
	console := report.NewConsole(report.ConsoleOptions{Out: os.Stdout, Err: os.Stderr, LogFormat: loaded.LogFormat,
		LogLevel: loaded.LogLevel, Now: timepiece.Now})
	recorder := report.NewRecorder(timepiece.Now, console)

	run, err := steps.New(context.Background(), loaded, environ, recorder, console.Logger(), timepiece)
	if err == nil {
		err = steps.Execute(context.Background(), run, steps.Upgrade{})
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return 0
}

// A run that is killed says nothing more and takes nothing back: whatever it was at, the next one goes on from there.
func TestAKilledUpgradeIsContinuedByTheNext(t *testing.T) {
	t.Parallel()

	for name, moment := range map[string]struct {
		node, call string
		after      bool // the call goes through
		alone      bool // the control plane is the only node
	}{
		"in the snapshot":                       {node: "cp1", call: "EtcdSnapshot"},
		"in the pull":                           {node: "cp2", call: "Pull"},
		"after the drain, before the installer": {node: "cp2", call: "Upgrade"},
		"before the reboot":                     {node: "cp2", call: "Reboot"},
		"while the node reboots":                {node: "cp2", call: "Reboot", after: true},
		"in a worker's turn":                    {node: "worker1", call: "Reboot", after: true},
		"while the only etcd is down":           {node: "cp1", call: "Reboot", after: true, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			controlPlanes, workers := 3, 1
			if moment.alone {
				controlPlanes, workers = 1, 0
			}

			var (
				victim atomic.Pointer[os.Process]
				seen   atomic.Int64
			)

			kill := func(node *emulator.Node, call emulator.Call) {
				process := victim.Load()
				if process == nil || call.Name() != moment.call || node.Name() != moment.node {
					return
				}

				seen.Add(1)

				if !moment.after {
					_ = process.Kill() // it may have ended by then
					return
				}

				time.AfterFunc(20*time.Millisecond, func() { _ = process.Kill() })
			}

			l := toUpgrade(t, controlPlanes, workers, documents.Talos,
				func(options *labcluster.Options) { options.LabOptions.Watch = kill })

			given, err := json.Marshal(l.environ("-yes=true", "MAX_PARALLEL=1"))
			require.NoError(t, err)

			process := exec.CommandContext(t.Context(), os.Args[0])
			process.Dir = l.folder
			process.Env = append(os.Environ(), victimFolder+"="+l.folder, victimSettings+"="+string(given),
				"GOCOVERDIR="+t.TempDir())
			require.NoError(t, process.Start())
			victim.Store(process.Process)
			require.Error(t, process.Wait(), "it was killed")
			victim.Store(nil)
			require.Positive(t, seen.Load())

			l.session(t, "-yes=true").succeeds(t, steps.Upgrade{})
			l.isUpgraded(t, documents.Talos)
		})
	}
}
