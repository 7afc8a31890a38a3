package clients_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGetInMaintenanceMode(t *testing.T) {
	t.Parallel()

	c := newCluster(t, 1, 0, nil)

	withEach(t, func(t *testing.T, ctl talosctl) {
		for resource, facts := range map[string][]string{
			"machinestatus":              {"MachineStatus", "machine", "maintenance"},
			"MachineStatuses":            {"MachineStatus", "maintenance"},
			"disks":                      {"vda"},
			"links":                      {"eth0"},
			"systeminformation":          {"systeminformation"},
			"machinetype":                {"unknown"},
			"discoveredvolumes":          {},
			"members":                    {},
			"hostnamestatus":             {},
			"rd":                         {"machinestatuses.runtime.talos.dev", "machineconfigs.config.talos.dev"},
			"securitystate":              {"securitystate"},
			"versions.runtime.talos.dev": {"v1.13.9"},
		} {
			r := works(t, ctl, c.insecurely("cp1", "get", resource))
			for _, fact := range facts {
				require.Contains(t, r.stdout, fact, resource)
			}
		}

		yaml := c.insecurely("cp1", "get", "machinestatus", "machine")
		yaml.output = "yaml"
		require.Regexp(t, `(?s)type: MachineStatuses.runtime.talos.dev\n.*id: machine\n.*stage: maintenance\n.*ready: true`,
			works(t, ctl, yaml).stdout)

		require.NotContains(t, works(t, ctl, c.insecurely("cp1", "get", "members")).stdout, "cp1")
		require.NotContains(t, works(t, ctl, c.insecurely("cp1", "get", "systemdisk")).stdout, "vda")

		fails(t, ctl, c.insecurely("cp1", "get", "machineconfig"), "not authorized")
		fails(t, ctl, c.insecurely("cp1", "get", "gadgets"), `resource "gadgets" is not registered`)
		fails(t, ctl, c.insecurely("cp1", "get", "disks", "sdz"), "doesn't exist")
	})
}

func TestGetOfARunningCluster(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := sharedCluster(t)

		stages := works(t, ctl, c.at([]string{"cp1", "worker2"}, "get", "machinestatus")).stdout
		for _, name := range []string{"cp1", "worker2"} {
			require.Regexp(t, address(c.Node(name))+` +runtime +MachineStatus +machine +\d+ +running +true`, stages)
		}

		members := works(t, ctl, c.on("cp2", "get", "members")).stdout
		for _, node := range c.Nodes {
			require.Contains(t, members, node.Name())
			require.Contains(t, members, address(node))
		}

		yaml := c.on("worker1", "get", "links", "eth0")
		yaml.output = "yaml"
		require.Regexp(t, `(?s)node: `+address(c.Node("worker1"))+
			`\n.*type: LinkStatuses.net.talos.dev\n.*permanentAddr: [0-9a-f:]+\n`, works(t, ctl, yaml).stdout)

		for resource, fact := range map[string]string{
			"systemdisk": "vda", "machinetype": "controlplane", "hostname": "cp1", "etcdmembers": "local", "services": "etcd",
			"nodename": "cp1", "timestatus": "true", "addresses": address(c.Node("cp1")), "mc": "v1alpha1",
		} {
			require.Contains(t, works(t, ctl, c.on("cp1", "get", resource)).stdout, fact, resource)
		}

		config := c.on("worker1", "get", "machineconfig", "v1alpha1")
		config.output = "yaml"
		require.Contains(t, works(t, ctl, config).stdout, "type: worker")

		fails(t, ctl, c.on("cp1", "get", "disks", "sdz"), "doesn't exist")
		require.Contains(t, fails(t, ctl, c.at([]string{"cp1", "cp2"}, "get", "links", "eth7"), "doesn't exist").stdout,
			"NODE")

		// The nodes and endpoints of the talosconfig do as well.
		require.Contains(t, works(t, ctl, command{
			words: []string{"get", "hostname"}, talosconfig: c.ownTalosconfig(t, "cp3", "worker2"),
		}).stdout, "worker2")

		// A worker answers for itself and no one else.
		own := command{words: []string{"get", "hostname"}, talosconfig: c.ownTalosconfig(t, "worker1", "worker1")}
		require.Contains(t, works(t, ctl, own).stdout, "worker1")

		others := command{words: []string{"get", "hostname"}, talosconfig: c.ownTalosconfig(t, "worker1", "cp1")}
		fails(t, ctl, others, "no request forwarding")
	})
}

func TestGetWatchTellsChanges(t *testing.T) {
	t.Parallel()

	withAny(t, func(t *testing.T, ctl talosctl) {
		c := newCluster(t, 1, 0, nil)

		applied := make(chan error, 1)
		started := false

		watch := c.insecurely("cp1", "get", "machinestatus")
		watch.watch = true
		watch.enough = func(stdout string) bool {
			if !started && strings.Contains(stdout, "maintenance") {
				started = true

				go func() { applied <- c.apply(t.Context(), "cp1") }()
			}

			return strings.Contains(stdout, "installing") || strings.Contains(stdout, "booting")
		}

		works(t, ctl, watch)
		require.NoError(t, <-applied)
	})
}
