package clients_test

import (
	"strings"
	"testing"
	"time"

	etcdres "github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

func TestService(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := sharedCluster(t)

		all := works(t, ctl, c.at([]string{"cp1", "worker1"}, "service")).stdout
		for _, service := range []string{"apid", "containerd", "cri", "etcd", "kubelet", "machined", "trustd", "udevd"} {
			require.Regexp(t, address(c.Node("cp1"))+` +`+service+` +Running +OK`, all)
		}

		require.Regexp(t, address(c.Node("worker1"))+` +kubelet +Running +OK`, all)
		require.NotRegexp(t, address(c.Node("worker1"))+` +etcd `, all)

		etcd := works(t, ctl, c.on("cp3", "service", "etcd")).stdout
		require.Regexp(t, `STATE +Running`, etcd)
		require.Regexp(t, `HEALTH +OK`, etcd)
		require.Contains(t, etcd, "Health check successful")

		// Nothing is stopped or started by these.
		require.Contains(t, works(t, ctl, c.on("worker1", "service", "kubelet", "start")).stdout, `Service "kubelet" started`)
		fails(t, ctl, c.on("cp1", "service", "etcd", "stop"), `service "etcd" doesn't support stop operation via API`)
		fails(t, ctl, c.on("cp1", "service", "trustd", "restart"),
			`service "trustd" doesn't support restart operation via API`)
		fails(t, ctl, c.on("cp1", "service", "gadgetd", "restart"), `service "gadgetd" not defined`)
		fails(t, ctl, c.on("worker1", "service", "etcd"), `service "etcd" is not registered on any nodes`)

		// A node that some cannot say is a warning up to v1.13, and only then: the rest is shown in any case.
		require.Contains(t, ctl.run(t, c.at([]string{"cp1", "worker1"}, "service", "etcd")).stdout, "Health check successful")
	})
}

func TestServiceRestart(t *testing.T) {
	t.Parallel()

	c := newConfigured(t, 1, 0)

	withEach(t, func(t *testing.T, ctl talosctl) {
		require.Eventually(t, func() bool {
			return strings.Contains(ctl.run(t, c.on("cp1", "service", "kubelet")).stdout, "Running")
		}, limit, 10*time.Millisecond)

		require.Contains(t, works(t, ctl, c.on("cp1", "service", "kubelet", "restart")).stdout, `Service "kubelet" restarted`)
	})
}

func TestEtcd(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := sharedCluster(t)
		controlPlanes := []string{"cp1", "cp2", "cp3"}

		members := works(t, ctl, c.at(controlPlanes, "etcd", "members")).stdout
		status := works(t, ctl, c.at(controlPlanes, "etcd", "status")).stdout
		leaders := map[string]bool{}

		for _, name := range controlPlanes {
			node := c.Node(name)
			id := etcdres.FormatMemberID(node.EtcdMemberID())

			// Each of the three tells of all three.
			require.Equal(t, len(controlPlanes), strings.Count(members, id), members)
			require.Contains(t, members, "https://"+address(node)+":2380")
			require.Contains(t, members, "https://"+address(node)+":2379")
			require.Regexp(t, address(node)+` +`+id, status)

			if strings.Count(status, id) > 1 {
				leaders[id] = true
			}
		}

		require.Len(t, leaders, 1, "one member is its own and the others' leader:\n%s", status)

		fails(t, ctl, c.on("worker1", "etcd", "members"), "member list is only available on control plane nodes")
		fails(t, ctl, c.on("worker1", "etcd", "status"), "etcd status is only available on control plane nodes")
		works(t, ctl, c.on("cp1", "etcd", "alarm", "list"))

		mixed := ctl.run(t, c.at([]string{"cp1", "worker1"}, "etcd", "members"))
		require.Contains(t, mixed.stdout, "cp2")
		require.Contains(t, mixed.stderr, "member list is only available on control plane nodes")
	})
}

func TestDmesg(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := sharedCluster(t)

		log := works(t, ctl, c.at([]string{"cp1", "worker1"}, "dmesg")).stdout
		require.Regexp(t, `(?m)^`+address(c.Node("cp1"))+`: .*\[talos\] service\[etcd\]\(Running\): Health check successful`,
			log)
		require.Regexp(t, `(?m)^`+address(c.Node("worker1"))+`: .*\[talos\]`, log)
	})
}

func TestEvents(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := sharedCluster(t)

		events := c.at([]string{"cp1", "worker1"}, "events")
		events.tail = -1
		events.enough = func(stdout string) bool {
			return strings.Contains(stdout, "machine.SequenceEvent") && strings.Contains(stdout, "machine.ServiceStateEvent") &&
				strings.Contains(stdout, "machine.MachineStatusEvent") && strings.Contains(stdout, "machine.PhaseEvent") &&
				strings.Contains(stdout, address(c.Node("cp1"))) && strings.Contains(stdout, address(c.Node("worker1"))) &&
				strings.Contains(stdout, "RUNNING")
		}

		works(t, ctl, events)
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := sharedCluster(t)

		check := c.on("cp2", "health")
		check.limit = 20 * time.Minute // of the node's time

		r := works(t, ctl, check)

		for _, node := range c.Nodes {
			require.Regexp(t, `discovered nodes: \[.*"`+address(node)+`".*\]`, r.text())
		}

		for _, condition := range []string{
			"etcd to be healthy", "etcd members to be consistent across nodes", "etcd members to be control plane nodes",
			"apid to be ready",
			"all nodes memory sizes", "all nodes disk sizes", "no diagnostics", "kubelet to be healthy",
			"all nodes to finish boot sequence",
			"all k8s nodes to report", "all control plane static pods to be running", "all control plane components to be ready",
			"all k8s nodes to report ready", "kube-proxy to report ready", "coredns to report ready",
			"all k8s nodes to report schedulable",
		} {
			require.Contains(t, r.text(), "waiting for "+condition+": OK")
		}

		fails(t, ctl, c.on("worker1", "health"), "cluster health check is only available on control plane nodes")
	})
}

func TestHealthOfAClusterWithoutEtcd(t *testing.T) {
	t.Parallel()

	c := newConfigured(t, 1, 0)

	withEach(t, func(t *testing.T, ctl talosctl) {
		check := c.on("cp1", "health")
		check.limit = time.Minute // of the node's time

		r := ctl.run(t, check)
		require.Equal(t, 1, r.code)
		require.NotContains(t, r.text(), "schedulable: OK")
	})
}

func TestReboot(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := newRunning(t, 1, 1)
		worker := c.Node("worker1")
		boots := worker.Boots()

		reboot := c.on("worker1", "reboot")
		reboot.limit = limit

		works(t, ctl, reboot)
		require.Equal(t, boots+1, worker.Boots())
		require.Equal(t, "running", worker.Stage())
		require.Equal(t, 1, taken(worker, "Reboot"))
		require.Zero(t, taken(c.Node("cp1"), "Reboot"))

		atOnce := c.on("cp1", "reboot")
		atOnce.noWait = true
		boots = c.Node("cp1").Boots()

		works(t, ctl, atOnce)
		c.await(t, "cp1", func(n *emulator.Node) bool { return n.Boots() == boots+1 && n.Ready() })
	})
}
