package clients_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// talosctl is Talos' own client, as an administrator of a cluster has it. Its release is a newer one than the nodes'.
type talosctl struct {
	program, home string
	cluster       *labcluster.Cluster
}

func newTalosctl(t *testing.T, c *labcluster.Cluster) talosctl {
	t.Helper()

	return talosctl{tool.Find(t, "talosctl"), t.TempDir(), c}
}

// command is one with the cluster's talosconfig, through the first control plane. Names of nodes in the line, as in
// @cp1, become their addresses.
func (p talosctl) command(ctx context.Context, line string) *exec.Cmd {
	words := strings.Fields(line)

	for i := range words {
		for _, node := range p.cluster.Nodes {
			words[i] = strings.ReplaceAll(words[i], "@"+node.Name(), node.Address().String())
		}
	}

	made := exec.CommandContext(ctx, p.program, words...) //nolint:gosec // tests say what to run
	made.Dir = p.home
	made.Env = []string{"HOME=" + p.home, "TALOSCONFIG=" + p.cluster.Talosconfig(), "PATH=" + os.Getenv("PATH")}

	return made
}

// says is all that a command that must succeed prints.
func (p talosctl) says(t *testing.T, line string) string {
	t.Helper()

	output, err := p.command(t.Context(), line).CombinedOutput()
	require.NoError(t, err, "talosctl %s:\n%s", line, output)

	return string(output)
}

// refuses runs a command that must fail, with a text among what it prints.
func (p talosctl) refuses(t *testing.T, line, why string) {
	t.Helper()

	output, err := p.command(t.Context(), line).CombinedOutput()

	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "talosctl %s:\n%s", line, output)
	require.Contains(t, string(output), why, "talosctl %s", line)
}

// at is the flags that lead to nodes through the first control plane.
func at(nodes string) string { return " --endpoints @cp1 --nodes " + nodes }

func TestTalosctlReadsARunningCluster(t *testing.T) {
	t.Parallel()

	c := sharedCluster(t)
	ctl := newTalosctl(t, c)
	release := regexp.QuoteMeta(emulator.DefaultTalosVersion)
	address := func(name string) string { return regexp.QuoteMeta(c.Node(name).Address().String()) }

	for line, wants := range map[string][]string{
		"version" + at("@cp1,@worker1"): {address("cp1"), address("worker1"), "Tag: +" + release, "Enabled: +RBAC"},
		"get machinestatus" + at("@cp1,@worker2"): {
			address("cp1") + ` +runtime +MachineStatus +machine +\d+ +running +true`,
			address("worker2") + ` +runtime +MachineStatus +machine +\d+ +running +true`,
		},
		"get members" + at("@cp2"): {address("cp1"), address("cp2"), address("cp3"), address("worker1"), address("worker2")},
		"get rd" + at("@cp1"):      {"machinestatuses.runtime.talos.dev", "machineconfigs.config.talos.dev"},
		"get links eth0 -o yaml" + at("@worker1"): {
			"node: " + address("worker1"), "type: LinkStatuses.net.talos.dev", "permanentAddr: [0-9a-f:]+",
		},
		"get mc v1alpha1 -o yaml" + at("@worker1"): {"type: worker"},
		"get systemdisk" + at("@cp1"):              {"vda"},
		"get volumestatus" + at("@cp1"):            {"STATE", "EPHEMERAL"},
		"get etcdmembers" + at("@cp1"):             {"local"},
		"service" + at("@cp1,@worker1"): {
			address("cp1") + ` +apid +Running +OK`, address("cp1") + ` +etcd +Running +OK`,
			address("cp1") + ` +trustd +Running +OK`, address("worker1") + ` +kubelet +Running +OK`,
		},
		"service etcd" + at("@cp3"):           {`STATE +Running`, `HEALTH +OK`, "Health check successful"},
		"etcd members" + at("@cp1"):           {"cp1", "cp2", "cp3", "https://" + address("cp2") + ":2380"},
		"etcd status" + at("@cp1,@cp2,@cp3"):  {address("cp1"), address("cp2"), address("cp3")},
		"etcd alarm list" + at("@cp1"):        {},
		"dmesg" + at("@cp1"):                  {`\[talos\] service\[etcd\]\(Running\): Health check successful`},
		"logs machined --tail 5" + at("@cp1"): {},
		"health --wait-timeout 20m" + at("@cp2"): {
			"waiting for etcd to be healthy: OK", "waiting for etcd members to be consistent across nodes: OK",
			"waiting for coredns to report ready: OK", "waiting for all k8s nodes to report schedulable: OK",
		},
		"health --server=false" + at("@cp1"): {
			"waiting for etcd members to be control plane nodes: OK", "waiting for all k8s nodes to report schedulable: OK",
		},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()

			said := ctl.says(t, line)
			for _, want := range wants {
				require.Regexp(t, want, said)
			}
		})
	}
}

func TestTalosctlIsToldWhyNot(t *testing.T) {
	t.Parallel()

	ctl := newTalosctl(t, sharedCluster(t))

	for line, why := range map[string]string{
		"bootstrap" + at("@worker1"):                      "bootstrap is only available on control plane nodes",
		"bootstrap" + at("@cp1"):                          "etcd data directory is not empty",
		"etcd members" + at("@worker1"):                   "member list is only available on control plane nodes",
		"etcd status" + at("@worker1"):                    "etcd status is only available on control plane nodes",
		"etcd snapshot db" + at("@worker1"):               "etcd snapshot is only available on control plane nodes",
		"kubeconfig kubeconfig" + at("@worker1"):          "kubeconfig is only available on control plane nodes",
		"health" + at("@worker1"):                         "cluster health check is only available on control plane nodes",
		"service etcd" + at("@worker1"):                   `service "etcd" is not registered on any nodes`,
		"service etcd stop" + at("@cp1"):                  `service "etcd" doesn't support stop operation via API`,
		"service gadgetd restart" + at("@cp1"):            `service "gadgetd" not defined`,
		"get gadgets" + at("@cp1"):                        `resource "gadgets" is not registered`,
		"get disks sdz" + at("@cp1"):                      "doesn't exist",
		"logs gadgetd" + at("@cp1"):                       "was not registered",
		"version --insecure --nodes @cp1":                 "Unavailable",
		"get hostname -e @worker1 --nodes @cp1":           "no request forwarding",
		"reset --user-disks-to-wipe /dev/no" + at("@cp3"): "device /dev/no wasn't found",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			ctl.refuses(t, line, why)
		})
	}
}

// What talosctl writes to files is whole, and others read it.
func TestTalosctlFetchesFiles(t *testing.T) {
	t.Parallel()

	c := sharedCluster(t)
	ctl := newTalosctl(t, c)

	ctl.says(t, "kubeconfig kubeconfig"+at("@cp2"))

	config, err := clientcmd.LoadFromFile(filepath.Join(ctl.home, "kubeconfig"))
	require.NoError(t, err)
	require.Equal(t, "admin@lab", config.CurrentContext)
	require.Equal(t, c.Generated.Options.Endpoint, config.Clusters["lab"].Server)

	require.Contains(t, ctl.says(t, "etcd snapshot db.snapshot"+at("@cp2")), "etcd snapshot saved to")
	require.FileExists(t, filepath.Join(ctl.home, "db.snapshot"))
}

// The whole life of a cluster, from maintenance to a wiped disk, by talosctl alone.
func TestTalosctlBringsAClusterUpAndDown(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	ctl := newTalosctl(t, c)
	apply := func(name, flags string) string {
		return "apply-config --file " + c.ConfigFile(name) + " " + flags
	}

	for name, want := range map[string]string{
		"version --insecure --nodes @cp1":           regexp.QuoteMeta(emulator.DefaultTalosVersion),
		"get disks --insecure --nodes @cp1":         "vda",
		"get machinestatus --insecure --nodes @cp1": "machine +\\d+ +maintenance +true",
		apply("cp1", "--dry-run -i --nodes @cp1"):   "Dry run summary:",
		"get addresses --insecure --nodes @worker1": regexp.QuoteMeta(c.Node("worker1").Address().String()),
	} {
		require.Regexp(t, want, ctl.says(t, name))
	}

	ctl.refuses(t, "get machineconfig --insecure --nodes @cp1", "not authorized")
	ctl.refuses(t, apply("cp1", at("@cp1")), "certificate signed by unknown authority")
	ctl.refuses(t, apply("cp1", "-i --nodes @cp1 --cert-fingerprint "+strings.Repeat("A", 43)+"="),
		"doesn't match the provided fingerprints")

	for _, name := range []string{"cp1", "worker1"} {
		require.Contains(t, ctl.says(t, apply(name, "-i --nodes @"+name)), "Applied configuration")
	}

	await(t, c.Node("cp1"), func(n *emulator.Node) bool { return n.Installed() && n.Stage() == "booting" })
	require.Eventually(t, func() bool {
		return ctl.command(t.Context(), "bootstrap"+at("@cp1")).Run() == nil
	}, labcluster.Deadline, 20*time.Millisecond)

	for _, node := range c.Nodes {
		await(t, node, (*emulator.Node).Ready)
	}

	ctl.refuses(t, "bootstrap"+at("@cp1"), "etcd data directory is not empty")
	ctl.says(t, "health --wait-timeout 20m"+at("@cp1"))

	boots := c.Node("worker1").Boots()
	ctl.says(t, "reboot --wait=false"+at("@worker1"))
	await(t, c.Node("worker1"), func(n *emulator.Node) bool { return n.Boots() == boots+1 && n.Ready() })

	ctl.says(t, "reset --wait=false --reboot --system-labels-to-wipe STATE,EPHEMERAL"+at("@worker1"))
	await(t, c.Node("worker1"), inMaintenance)

	ctl.says(t, "shutdown --wait=false --force"+at("@cp1"))
	await(t, c.Node("cp1"), func(n *emulator.Node) bool { return n.Stage() == "off" })
}

// newCluster is a control plane and a worker of the test's own, in maintenance mode.
func newCluster(t *testing.T) *labcluster.Cluster {
	t.Helper()

	c, err := labcluster.New(t.TempDir(), labcluster.Options{
		ControlPlanes: 1, Workers: 1, Endpoint: labcluster.FirstControlPlane, CNI: "flannel",
		LabOptions: emulator.LabOptions{Discovery: true, TimeScale: 100},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })

	for _, node := range c.Nodes {
		await(t, node, inMaintenance)
	}

	return c
}

func await(t *testing.T, node *emulator.Node, condition func(*emulator.Node) bool) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), labcluster.Deadline)
	defer cancel()

	require.NoError(t, node.WaitFor(ctx, condition), "%s in stage %s", node.Name(), node.Stage())
}

// advised finds the commands of talosctl in a page's code, and in the texts of hints.
var advised = regexp.MustCompile("`talosctl ([^`]+)`|talosctl -n <[a-z ]+> (?:-e <[a-z ]+> )?([a-z-]+)")

// What the pages and the catalogue have people type, talosctl understands.
func TestTalosctlHasTheCommandsThatPeopleAreAdvised(t *testing.T) {
	t.Parallel()

	ctl := talosctl{tool.Find(t, "talosctl"), t.TempDir(), &labcluster.Cluster{}}

	pages, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "docs", "*.md"))
	require.NoError(t, err)

	commands := []string{
		"config endpoint 192.0.2.11", "etcd members", "etcd remove-member 1", "service etcd", "rotate-ca", "wipe disk sdb",
		"logs kubelet",
	}

	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)

		// One page also tells, towards its end, which commands there are not.
		told, _, _ := strings.Cut(string(text), "\n## Thirteen defects")

		for _, match := range advised.FindAllStringSubmatch(told, -1) {
			commands = append(commands, match[1]+match[2])
		}
	}

	require.Greater(t, len(commands), 15)

	for _, command := range commands {
		t.Run(command, func(t *testing.T) {
			t.Parallel()

			words, flags := parted(command)
			help := ctl.says(t, strings.Join(words, " ")+" --help")
			require.Contains(t, help, "Usage:\n  talosctl ")
			require.NotContains(t, help, "Available Commands:", "it is one command, not a group of them")

			for _, flag := range flags {
				require.Regexp(t, `(?m)^ .*`+flag+`\b`, help)
			}
		})
	}
}

// parted are the words of a command line, and its flags without their values.
func parted(line string) (words, flags []string) {
	fields := strings.Fields(line)

	for i := 0; i < len(fields); i++ {
		flag, _, _ := strings.Cut(fields[i], "=")

		switch {
		case flag == "-n" || flag == "-e":
			i++ // and the node
		case strings.HasPrefix(flag, "-"):
			flags = append(flags, flag)
		case len(flags) == 0:
			words = append(words, fields[i])
		}
	}

	return words, flags
}
