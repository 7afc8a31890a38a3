package scenario_test

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/scenario"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

// aliasBomb is a short text that repeats 300 volumes on each of 300 disks of three nodes.
var aliasBomb = "nodes:\n  cp1:\n    disks: &disks\n      - &disk {name: a, size: 1, volumes: [" +
	strings.Repeat("{name: a},", 300) + "]}\n" +
	strings.Repeat("      - *disk\n", 300) + "  cp2: {disks: *disks}\n  cp3: {disks: *disks}\n"

const whole = `
scale: 200
discovery: true
cluster:
  name: lab
  controlPlanes: 3
  workers: 1
  endpoint: firstControlPlane
  cni: flannel
  talosVersion: v1.13.9
timing: {boot: 3s}
workloads:
  - {name: web, replicas: 2, budget: 2, ending: 30s}
  - {namespace: data, name: db, kind: statefulSet, node: cp1, emptyDir: true}
nodes:
  cp2:
    talosVersion: v1.12.1
    uuid: 10f5d3b2-0000-4000-8000-000000000002
    secureBoot: true
    disks:
      - {name: vda, size: 50_000_000_000, transport: virtio}
      - {name: sda, size: 4000000000, transport: usb, readonly: true}
    timing: {install: 12m}
    faults:
      install: imagePull
      installTimes: 1
      addressAfter: 77
      calls:
        - {method: ApplyConfiguration, when: after, do: cut, times: 1}
        - {method: Bootstrap, do: fail, code: Unavailable, text: not now}
events:
  - {at: 90s, node: worker1, do: powerOn}
  - {at: 30s, node: worker1, do: powerOff}
  - at: 40s
    node: cp1
    faults: {timeUnsynced: true, clockOffset: -2h}
  - {at: 50s, node: cp1, do: heal}
`

func TestAScenarioDescribesALab(t *testing.T) {
	t.Parallel()

	made, err := scenario.Parse("lab.yaml", []byte(whole))
	require.NoError(t, err)

	options := made.Options()
	require.Equal(t, 3, options.ControlPlanes)
	require.Equal(t, 1, options.Workers)
	require.Equal(t, labcluster.FirstControlPlane, options.Endpoint)
	require.True(t, options.LabOptions.Discovery)
	require.InDelta(t, 200, options.LabOptions.TimeScale, 0)
	require.Equal(t, 3*time.Second, options.Timing.Boot)
	require.Equal(t, []kubernetes.Workload{
		{Name: "web", Replicas: 2, Budget: 2, Ending: 30 * time.Second},
		{Namespace: "data", Name: "db", Kind: kubernetes.StatefulSet, Node: "cp1", EmptyDir: true},
	}, options.LabOptions.Workloads)

	machine := emulator.NodeOptions{Name: "cp2", Address: netip.MustParseAddr("127.4.5.12"), Timing: options.Timing}
	options.Edit(&machine)
	require.Equal(t, "v1.12.1", machine.TalosVersion)
	require.True(t, machine.SecureBoot)
	require.Len(t, machine.Disks, 2)
	require.Equal(t, uint64(50_000_000_000), machine.Disks[0].Size)
	require.Equal(t, emulator.Timing{Install: 12 * time.Minute}, machine.Timing)
	require.Equal(t, emulator.InstallImagePull, machine.Faults.Install)
	require.Equal(t, "127.4.5.77", machine.Faults.AddressAfter.String())
	require.Equal(t, []emulator.CallFault{
		{Method: "ApplyConfiguration", When: emulator.AfterEffect, Do: emulator.Cut, Times: 1},
		{Method: "Bootstrap", Do: emulator.Fail, Code: codes.Unavailable, Text: "not now"},
	}, machine.Faults.Calls)

	sound := emulator.NodeOptions{Name: "cp1", Timing: options.Timing}
	options.Edit(&sound)
	require.Equal(t, emulator.NodeOptions{Name: "cp1", Timing: options.Timing}, sound, "nothing was said of it")
}

func TestTheEventsOfAScenarioHappen(t *testing.T) {
	t.Parallel()

	made, err := scenario.Parse("lab.yaml", []byte(`
scale: 200
cluster: {controlPlanes: 1, workers: 0}
events:
  - {at: 60s, node: cp1, do: powerOn}
  - {at: 30s, node: cp1, do: powerOff}
  - {at: 20s, node: cp1, do: heal}
  - {at: 10s, node: cp1, faults: {timeUnsynced: true}}
`))
	require.NoError(t, err)

	cluster, err := labcluster.New(t.TempDir(), made.Options())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	require.Len(t, cluster.Nodes, 1)

	var happened []scenario.Action

	made.Play(t.Context(), cluster, func(event scenario.Event) {
		happened = append(happened, event.Do)
		require.Contains(t, event.String(), "0s: cp1 ")

		switch node := cluster.Node("cp1"); event.Do {
		case scenario.Set:
			require.True(t, node.Faults().TimeUnsynced)
		case scenario.Heal:
			require.False(t, node.Faults().TimeUnsynced)
		case scenario.PowerOff:
			require.Equal(t, "off", node.Stage())
		case scenario.PowerOn:
			require.NotEqual(t, "off", node.Stage())
		}
	})
	require.Equal(t, []scenario.Action{scenario.Set, scenario.Heal, scenario.PowerOff, scenario.PowerOn}, happened,
		"in the order of their times")

	stopped, stop := context.WithCancel(t.Context())
	stop()
	made.Play(stopped, cluster, func(event scenario.Event) { require.Fail(t, "a stopped scenario went on", "%v", event) })
}

func TestAnImpossibleScenarioIsRefusedWithFieldAndReason(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ text, want string }{
		"nothing in it": {"", "lab.yaml: the scenario is empty"},
		"no YAML":       {"nodes: [\n", "lab.yaml:2:1: is not valid YAML: "},
		"a list":        {"- cp1\n", `lab.yaml:1:1: the file: takes fields, not a list`},
		"a field that is misspelt": {"clutser: {}\n",
			`lab.yaml:1:1: clutser: there is no such field, did you mean "cluster"?`},
		"a fault that is misspelt": {
			"nodes:\n  cp1:\n    faults: {timeUnsyncd: true}\n",
			`lab.yaml:3:14: nodes.cp1.faults.timeUnsyncd: there is no such field, did you mean "timeUnsynced"?`,
		},
		"a field given twice": {"scale: 2\nscale: 3\n", `lab.yaml:2:`},
		"a word that is no one": {"nodes: {cp1: {faults: {install: imagepul}}}\n",
			`takes none, diskMissing, imagePull, diskWrite, imageSlow, imageStalls, did you mean "imagePull"?`},
		"a wrong type": {"nodes: {cp1: {faults: {refuse: sometimes}}}\n",
			`lab.yaml:1:32: nodes.cp1.faults.refuse: "sometimes": takes true or false`},
		"a wrong shape": {"nodes: {cp1: {faults: [refuse]}}\n", `nodes.cp1.faults: takes fields, not a list`},
		"no duration":   {"timing: {install: 12}\n", `timing.install: "12": takes a duration, such as 90s or 12m`},
		"no number":     {"cluster: {workers: some}\n", `cluster.workers: "some": takes a whole number`},
		"no size": {"nodes: {cp1: {disks: [{name: vda, size: -1}]}}\n",
			`nodes.cp1.disks.1.size: "-1": takes a whole number from 0 on`},
		"no place in the block": {"nodes: {cp1: {faults: {addressAfter: 192.0.2.7}}}\n",
			`takes the last part of an address in the lab's block, 1 to 254`},
		"time that stands":    {"scale: 0\n", `lab.yaml:1:8: scale: has to be more than 0`},
		"time that runs back": {"nodes: {cp1: {timing: {boot: -1s}}}\n", `nodes.cp1.timing.boot: can't be less than 0`},
		"no control plane":    {"cluster: {controlPlanes: 0}\n", `cluster.controlPlanes: has to be 1 to 50`},
		"too many workers":    {"cluster: {workers: 1501}\n", `cluster.workers: has to be 0 to 1500`},
		"a CNI":               {"cluster: {cni: flanel}\n", `takes none, flannel, custom, did you mean "flannel"?`},
		"a contract": {"cluster: {contract: v1.14}\n",
			`cluster.contract: Talos v1.13 does not know the contract v1.14`},
		"a release": {"nodes: {cp1: {talosVersion: v1.11.6}}\n",
			`nodes.cp1.talosVersion: TalosVersion "v1.11.6" can't be played, only v1.14.x, v1.13.x, v1.12.x can`},
		"a node that isn't": {"nodes: {wroker1: {uki: true}}\n",
			`lab.yaml:1:9: nodes.wroker1: there is no node "wroker1"`},
		"a worker's etcd data": {"nodes: {worker1: {etcdData: whole}}\n",
			`nodes.worker1.etcdData: a worker holds no etcd data`},
		"a worker's trustd": {"nodes: {worker1: {faults: {trustdDown: true}}}\n",
			`nodes.worker1.faults.trustdDown: a worker has no trustd`},
		"faults at odds": {"nodes: {cp1: {faults: {refuse: true, silence: true}}}\n",
			`nodes.cp1.faults.refuse: a port that is refused is not silent`},
		"nobody to speak": {"nodes: {cp1: {faults: {silence: true, impostor: ssh}}}\n",
			`nothing answers on a port that is refused or silent`},
		"no reason to fail": {"nodes: {cp1: {faults: {installTimes: 2}}}\n",
			`no install fails without a reason: give install too`},
		"a workload without a name":   {"workloads: [{kind: job}]\n", "workloads.1.name: \"\": takes a name"},
		"a workload of another kind":  {"workloads: [{name: a, kind: cronJob}]\n", "workloads.1.kind"},
		"a workload where no node is": {"workloads: [{name: a, node: cp9}]\n", "workloads.1.node: there is no node \"cp9\""},
		"too much work":               {"workloads: [{name: a, replicas: 900}]\n", "workloads.1.replicas: has to be 0 to 100"},
		"an end before its beginning": {"workloads: [{name: a, ending: -1s}]\n", "workloads.1: starting and ending can't be"},
		"late for ever": {"nodes: {cp1: {faults: {etcdNever: true, etcdJoin: 3m}}}\n",
			`an etcd that never joins is not late`},
		"a call without a name": {"nodes: {cp1: {faults: {calls: [{do: cut}]}}}\n",
			`nodes.cp1.faults.calls.1: names no method`},
		"a failure without why": {"nodes: {cp1: {faults: {calls: [{method: List, do: fail}]}}}\n",
			`a call that fails needs a code`},
		"a code for a cut": {"nodes: {cp1: {faults: {calls: [{method: List, code: Internal}]}}}\n",
			`only a call that fails has a code and a text`},
		"no hardware address": {"nodes: {cp1: {links: [{name: eth0, mac: 52-54}]}}\n",
			`nodes.cp1.links.1.mac: "52-54": takes a hardware address`},
		"two documents": {"scale: 2\n---\nscale: 3\n", `lab.yaml: has a second document; a scenario is one`},
		"an alias bomb": {aliasBomb, `is more than a scenario holds: 100000 values`},
		"one address for two": {"nodes:\n  cp1: {address: 77}\n  cp2: {address: 77}\n",
			`lab.yaml:3:18: nodes.cp2.address: "77" is also that of cp1`},
		"an address elsewhere": {"nodes: {cp1: {address: 192.0.2.7}}\n",
			`nodes.cp1.address: "192.0.2.7": takes the last part of an address`},
		"a call that isn't": {"nodes: {cp1: {faults: {calls: [{method: Bootstrp, do: cut}]}}}\n",
			`nodes.cp1.faults.calls.1.method: "Bootstrp": the API has no such call, did you mean "Bootstrap"?`},
		"two disks of a name": {"nodes: {cp1: {disks: [{name: vda, size: 1}, {name: vda, size: 1}]}}\n",
			`nodes.cp1.disks.2.name: cp1 has two disks of this name`},
		"a disk without a size": {"nodes: {cp1: {disks: [{name: vda}]}}\n",
			`nodes.cp1.disks.1: a disk needs a name and a size`},
		"installed nowhere": {"nodes: {cp1: {installed: true, disks: []}}\n",
			`nodes.cp1.disks: Talos is on a disk of this node, so it has one`},
		"lost and looping": {"nodes: {cp1: {faults: {lost: disk, bootLoop: true}}}\n",
			`nodes.cp1.faults.bootLoop: a lost machine does not come as far as that`},
		"switched off twice": {"events: [{at: 9s, node: cp1, do: powerOff}, {at: 3s, node: cp1, do: powerOff}]\n",
			`lab.yaml:1:34: events.1.do: cp1 is off already at 9s`},
		"switched on while on": {"events: [{at: 9s, node: cp1, do: powerOn}]\n", `events.1.do: cp1 is on already at 9s`},
		"a shared UUID": {"nodes:\n  cp1: {uuid: a}\n  cp2: {uuid: a}\n",
			`lab.yaml:3:15: nodes.cp2.uuid: "a" is also that of cp1`},
		"an event of nobody":    {"events: [{at: 1s, do: heal}]\n", `events.1: names no node`},
		"an event too early":    {"events: [{at: -1s, node: cp1, do: heal}]\n", `events.1.at: can't be less than 0`},
		"an event's other node": {"events: [{node: cp4, do: heal}]\n", `events.1.node: there is no node "cp4"`},
		"set without faults":    {"events: [{node: cp1}]\n", `events.1: set takes faults`},
		"faults without set": {"events: [{node: cp1, do: heal, faults: {refuse: true}}]\n",
			`events.1.faults: only set takes faults`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := scenario.Parse("lab.yaml", []byte(test.text))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestAllMistakesOfAScenarioAreToldInTheirOrder(t *testing.T) {
	t.Parallel()

	_, err := scenario.Parse("lab.yaml",
		[]byte("events: [{node: cp9, do: heal}]\nscale: -1\ncluster: {controlPlanes: 0}\n"))
	require.EqualError(t, err, `lab.yaml:1:17: events.1.node: there is no node "cp9"; the cluster has 0 control planes, cp1 and on, and 3 workers, worker1 and on
lab.yaml:2:8: scale: has to be more than 0
lab.yaml:3:26: cluster.controlPlanes: has to be 1 to 50`)
}

func TestANodeThatAnswersElsewhereIsFoundThere(t *testing.T) {
	t.Parallel()

	made, err := scenario.Parse("lab.yaml",
		[]byte("scale: 200\ncluster: {controlPlanes: 1, workers: 0}\nnodes: {cp1: {address: 77}}\n"))
	require.NoError(t, err)

	cluster, err := labcluster.New(t.TempDir(), made.Options())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	require.Contains(t, cluster.Environ(), "NODE_ADDRESSES=cp1="+cluster.Lab.Address(77).String())
}

func TestTheExampleCanBePlayed(t *testing.T) {
	t.Parallel()

	_, err := scenario.Load(filepath.Join("..", "..", "..", "..", "examples", "scenario.yaml"))
	require.NoError(t, err)

	_, err = scenario.Load(filepath.Join(t.TempDir(), "none.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// FuzzScenario reads any text as a scenario.
func FuzzScenario(f *testing.F) {
	for _, text := range []string{whole, aliasBomb, "nodes: &a {cp1: *a}\n", "scale: 0\n", "- cp1\n"} {
		f.Add([]byte(text))
	}

	for _, data := range fuzztest.Seeds(f, ".yaml", ".yml") {
		f.Add(data)
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		fuzztest.Bounded(t, func() {
			made, err := scenario.Parse("lab.yaml", data)
			if err != nil {
				require.NotEmpty(t, err.Error())

				return
			}

			require.NotEmpty(t, made.Names())
			require.Positive(t, made.Options().ControlPlanes)
		})
	})
}
