package pages_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// line is a command of a page, and what it ends with in the chapter's state.
type line struct {
	typed string
	code  int
	// first is typed before it; more behind it: what agrees to a loss, or only shows what would be done.
	first, more string
}

// chapter is a state of the cluster, and what people type in it, in order.
type chapter struct {
	state string
	// settings shorten waits that end as they would without.
	settings []string
	// begin brings the state about.
	begin func(t *testing.T, desk *desk)
	lines []line
}

// soonSilent takes little time to take a node for silent.
var soonSilent = []string{"DIAL_TIMEOUT=1s", "NODE_REACHABILITY_RETRIES=1", "NODE_WAIT=5m"}

// lost are the secrets.
const lost = "rm talos/talsecret.yaml;"

// story is a cluster's life, from its files to the loss of its etcd.
var story = []chapter{
	{state: "nothing but files", lines: []line{
		{typed: "talos-mage -l"},
		{typed: "talos-mage --version"},
		{typed: "talos-mage <target> -h"},
		{typed: "talos-mage talos -h"},
		{typed: "source <(talos-mage completion bash)"},
		{typed: "talos-mage completion bash"},
		{typed: "talos-mage completion fish >~/.config/fish/completions/talos-mage.fish"},
		{typed: "talos-mage explain <finding>"},
		{typed: "talos-mage explain TM065"},
		{typed: "talos-mage demo -discover"},
		{typed: "talos-mage demo -talosVersion=…"},
		{typed: "cp -r talos rehearsal && rm -rf rehearsal/clusterconfig rehearsal/talsecret*"},
		{typed: `sed -i 's/192\.168\.10\./127.0.2./g' rehearsal/*.yaml`},
		{typed: "talos-mage config:schema"},
		{typed: "talos-mage config:schema -of=cluster.yaml"},
		{typed: "talos-mage config:schematic"},
		{typed: "talos-mage config:secrets -from=talos/clusterconfig/lab-cp1.yaml"},
		{typed: "talos-mage config:secrets -from=<machine config of a control plane>", first: lost},
		{typed: "talos-mage config:secrets -from=controlplane.yaml", first: lost},
		{typed: "talos-mage config:secrets -from=cp1.yaml", first: lost},
		{typed: "talos-mage config:secrets", first: "rm -r talos/talsecret.yaml talos/clusterconfig;"},
		{typed: "talos-mage config:generate"},
		{typed: "talos-mage config:generate -dryRun"},
		{typed: "task talos:generate-config"},
		{typed: "talos-mage audit"},
		{typed: "talos-mage audit -format=sarif"},
		{typed: "talos-mage audit -profile=interop"},
	}},
	{state: "machines in maintenance", lines: []line{
		{typed: "talos-mage status"},
		{typed: "talos-mage discover"},
		{typed: "talos-mage discover -cidr=192.168.1.0/24,10.0.0.10-10.0.0.99,10.0.3.7"},
		{typed: "talos-mage discover -cidr=192.168.1.0/24 -format=json"},
		{typed: "talos-mage discover -save"},
		{typed: "talos-mage verifyNodes", first: "rm talos/.talos-mage/leases.yaml;"},
		{typed: "task infra:verify-nodes"},
		{typed: "talos-mage preflight"},
		{typed: "talos-mage preflight tlaos", code: 2},
		{typed: "task bootstrap:preflight"},
		{typed: "task bootstrap:preflight -- -node=cp1"},
		{typed: "scripts/bootstrap-talos-preflight.sh"},
		{typed: "talos-mage talos -dryRun", code: 8},
		{typed: "talos-mage applySequential -node=<node>"},
		{typed: "talos-mage applyParallel -parallel=3"},
		{typed: "talos-mage verify"},
		{typed: "task bootstrap:verify"},
		{typed: "scripts/bootstrap-talos-verify.sh"},
	}},
	{state: "a control plane that is silent, and known to be empty",
		settings: soonSilent,
		begin: func(_ *testing.T, desk *desk) {
			desk.fill["<node>"] = "cp3"
			desk.Node("cp3").PowerOff()
		},
		// etcd works then, but not on all that belong to it.
		lines: []line{{typed: "talos-mage bootstrap -assumeEmpty=<node>", code: 6}}},
	{state: "an etcd that it joins",
		begin: func(t *testing.T, desk *desk) {
			t.Helper()
			desk.fill["<node>"] = "worker1"
			desk.Node("cp3").PowerOn()
			require.NoError(t, desk.Node("cp3").WaitFor(t.Context(), (*emulator.Node).EtcdVoter))
		},
		lines: []line{
			{typed: "talos-mage bootstrap"},
			{typed: "talos-mage kubeconfig"},
		}},
	{state: "a cluster that is up", lines: []line{
		{typed: "talos-mage talos"},
		{typed: "talos-mage talos -discover"},
		{typed: "talos-mage talos -applyMode=parallel -parallel=100%"},
		{typed: "talos-mage applySequential -update"},
		{typed: "task bootstrap:talos"},
		{typed: "task -x bootstrap:talos"},
		{typed: "talos-mage applySequential"},
		{typed: "talos-mage applyParallel"},
		{typed: "task bootstrap:apply-sequential"},
		{typed: "task bootstrap:apply-parallel"},
		{typed: "scripts/bootstrap-talos-apply.sh talos/clusterconfig sequential"},
		{typed: "scripts/bootstrap-talos-apply.sh talos/clusterconfig parallel"},
		{typed: "talos-mage applyNode <node>"},
		{typed: "talos-mage applyNode <node> -dryRun"},
		{typed: "talos-mage applyNode <address> -mode=auto"},
		{typed: "task talos:apply-node IP=<address> MODE=auto"},
		{typed: "talos-mage applySequential -node=<node> -update"},
		{typed: "talos-mage apps"},
		{typed: "task bootstrap:apps"},
		{typed: "talos-mage health"},
		{typed: "talos-mage health -profile=interop"},
		{typed: "talos-mage diagnose"},
		{typed: "talos-mage diagnose -node=<node>"},
		{typed: "talos-mage diagnose -bundle"},
		{typed: "talos-mage runs"},
		{typed: "talos-mage report"},
		{typed: "talos-mage report -run=2026-01-04T17-40-35Z -open", first: "run=$(ls talos/.talos-mage/runs | head -1);"},
		{typed: "talos-mage etcd:status"},
		{typed: "talos-mage etcd:members"},
		{typed: "talos-mage etcd:snapshot -file=etcd.db"},
		{typed: "talos-mage etcd:defrag"},
		{typed: "talos-mage config:rotate"},
		{typed: "talos-mage upgrade -node=<node>", more: "-dryRun"},
		{typed: "talos-mage upgrade -cluster=<its name>", more: "-dryRun"},
		{typed: "talos-mage upgradeNode <address>", more: "-dryRun"},
		{typed: "task talos:upgrade-node IP=<address>", more: "-- -dryRun"},
		{typed: "talos-mage upgradeK8s", more: "-dryRun"},
		{typed: "task talos:upgrade-k8s", more: "-- -dryRun"},
		{typed: "talos-mage reset -cluster=<its name>", code: 8, more: "-dryRun"},
		{typed: "task talos:reset", code: 201, more: "-- -dryRun"},
		{typed: "talos-mage config:migrate -dryRun", code: 8},
		{typed: "talos-mage config:migrate", more: "-dirty"},
		{typed: "talos-mage config:generate"},
		{typed: "talos-mage applySequential -update -reboot"},
		{typed: "talos-mage status"},
	}},
	{state: "a worker that is off",
		settings: append([]string{"HEALTH_TIMEOUT=1m"}, soonSilent...),
		begin:    func(_ *testing.T, desk *desk) { desk.Node("worker1").PowerOff() },
		lines: []line{
			{typed: "talos-mage status"},
			{typed: "talos-mage diagnose", code: 5},
			{typed: "talos-mage diagnose -node=<node>", code: 5},
			{typed: "talos-mage health", code: 7},
			{typed: "talos-mage verify -node=<node> -discover", code: 5},
			{typed: "NODE_ADDRESSES=<node>=<address> talos-mage status"},
		}},
	{state: "a worker that is to begin anew",
		begin: func(_ *testing.T, desk *desk) { desk.Node("worker1").PowerOn() },
		lines: []line{
			{typed: "talos-mage reset -node=<node>", more: "-yes"},
			{typed: "talos-mage applySequential -node=<node>"},
		}},
	{state: "a control plane that is gone for good",
		settings: soonSilent,
		begin: func(t *testing.T, desk *desk) {
			t.Helper()
			desk.fill["<node>"], desk.fill["<id>"] = "cp3", desk.member(t, "cp3")
			desk.Node("cp3").PowerOff()
		},
		lines: []line{
			{typed: "talos-mage replaceNode <node>", code: 8, more: "-dryRun -noWait"},
			{typed: "talos-mage etcd:removeMember <id>"},
		}},
	{state: "an etcd that has lost its quorum",
		settings: soonSilent,
		begin: func(_ *testing.T, desk *desk) {
			desk.fill["<node>"] = "cp1"
			desk.Node("cp2").PowerOff()
		},
		lines: []line{
			{typed: "talos-mage etcd:snapshot -node=<node>"},
			{typed: "talos-mage etcd:recover <file>", code: 6, more: "-yes"},
			{typed: "talos-mage etcd:recover etcd.db", code: 6, more: "-yes"},
			{typed: "talos-mage etcd:recover <snapshot> -destroyed=<nodes>", more: "-yes"},
		}},
}

// memberID is how etcd:members shows an id.
var memberID = regexp.MustCompile(`\b[0-9a-f]{14,16}\b`)

// member is the id of a node's member.
func (d *desk) member(t *testing.T, node string) string {
	t.Helper()

	shown := d.types(t, line{typed: "talos-mage etcd:members"})
	ofNode := regexp.MustCompile(`(?m)^.*\b` + node + `\b.*$`).FindString(shown)
	id := memberID.FindString(ofNode)
	require.NotEmpty(t, id, shown)

	return id
}

// writeFiles writes those that the pages' commands name.
func (d *desk) writeFiles(t *testing.T) {
	t.Helper()

	config, err := d.Config("cp1")
	require.NoError(t, err)

	for _, name := range []string{"controlplane.yaml", "cp1.yaml"} {
		require.NoError(t, os.WriteFile(filepath.Join(d.root, name), config, 0o600))
	}

	for _, path := range []string{"kubernetes/apps/network/kustomization.yaml", "bootstrap/helmfile.d/00-crds.yaml",
		"bootstrap/helmfile.d/01-apps.yaml"} {
		path = filepath.Join(d.root, filepath.FromSlash(path))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}

	require.NoError(t, os.MkdirAll(filepath.Join(d.home, ".config", "fish", "completions"), 0o700))
}
