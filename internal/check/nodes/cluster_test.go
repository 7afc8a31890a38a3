package nodes_test

import (
	"context"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// ourSecrets is one bundle for the whole test process.
var ourSecrets = sync.OnceValues(clusterfiles.NewSecrets)

// fixture is a cluster whose files and machines fit each other, to be spoiled in one way by each test.
type fixture struct {
	cluster     *inventory.Cluster
	configs     map[string]*machineconfig.Config
	talosconfig []byte
	options     check.Settings
	generated   *clusterfiles.Files
}

// newFixture makes three control planes and a worker, with a VIP as endpoint; change may alter what is generated.
func newFixture(t *testing.T, change ...func(*clusterfiles.Options)) *fixture {
	t.Helper()

	bundle, err := ourSecrets()
	require.NoError(t, err)

	options := clusterfiles.Options{
		ClusterName: "demo",
		Endpoint:    "https://192.0.2.10:6443",
		VIP:         netip.MustParseAddr("192.0.2.10"),
		CNI:         "none",
		InstallDisk: "/dev/vda",
		Secrets:     bundle,
	}

	for i, name := range []string{"cp1", "cp2", "cp3", "w1"} {
		role := inventory.ControlPlane
		if name == "w1" {
			role = inventory.Worker
		}

		host := byte(11 + i)

		options.Nodes = append(options.Nodes, clusterfiles.Node{
			Name: name, Role: role, Link: "eth0",
			Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, host}), 24),
			Gateway: netip.MustParseAddr("192.0.2.1"),
		})
	}

	for _, change := range change {
		change(&options)
	}

	generated, err := generate(options, len(change) == 0)
	require.NoError(t, err)

	endpoint, err := url.Parse(options.Endpoint)
	require.NoError(t, err)

	f := &fixture{
		cluster: &inventory.Cluster{
			Name: "demo", Endpoint: endpoint, TalosVersion: "v1.13.9",
			KubernetesVersion: "v" + generated.Options.KubernetesVersion, CNI: "none",
			PodSubnets:     []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
			ServiceSubnets: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
			Source:         "talconfig.yaml",
		},
		configs:     make(map[string]*machineconfig.Config),
		talosconfig: generated.Talosconfig,
		options:     check.Settings{Now: time.Now()},
		generated:   generated,
	}

	for _, made := range generated.Configs {
		node := &inventory.Node{
			Name: made.Node.Name, Hostname: made.Node.Name, Role: made.Node.Role, Address: made.Node.Declared,
			ConfigFile: made.FileName,
		}

		if node.Role == inventory.ControlPlane && options.VIP.IsValid() {
			node.VIPs = []netip.Addr{options.VIP}
		}

		f.cluster.Nodes = append(f.cluster.Nodes, node)
		f.setConfig(t, node.Name, made.Bytes)
	}

	return f
}

// generate makes the files, those of the unchanged fixture only once.
func generate(options clusterfiles.Options, unchanged bool) (*clusterfiles.Files, error) {
	if !unchanged {
		return clusterfiles.Make(options)
	}

	usual.once.Do(func() { usual.generated, usual.err = clusterfiles.Make(options) })

	return usual.generated, usual.err
}

var usual struct {
	once      sync.Once
	generated *clusterfiles.Files
	err       error
}

func (f *fixture) setConfig(t *testing.T, name string, data []byte) {
	t.Helper()

	config, err := machineconfig.FromBytes(f.cluster.Node(name).ConfigFile, data)
	require.NoError(t, err)

	f.configs[name] = config
}

// patch changes the v1alpha1 document of a node's machine config.
func (f *fixture) patch(t *testing.T, name string, change func(*v1alpha1.Config)) {
	t.Helper()

	patched, err := f.configs[name].Provider.PatchV1Alpha1(func(config *v1alpha1.Config) error {
		change(config)

		return nil
	})
	require.NoError(t, err)

	data, err := patched.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	require.NoError(t, err)

	f.setConfig(t, name, data)
}

// replace changes the text of a node's machine config.
func (f *fixture) replace(t *testing.T, name, from, to string) {
	t.Helper()

	text := string(f.configs[name].Bytes)
	require.Contains(t, text, from)

	f.setConfig(t, name, []byte(strings.ReplaceAll(text, from, to)))
}

// resolve answers DNS questions from a table.
func (f *fixture) resolve(table map[string][]string) {
	f.options.LookupHost = func(_ context.Context, host string) ([]netip.Addr, error) {
		var addresses []netip.Addr

		for _, text := range table[host] {
			addresses = append(addresses, netip.MustParseAddr(text))
		}

		return addresses, nil
	}
}

func (f *fixture) checkCluster(t *testing.T) []diagnosis.Finding {
	t.Helper()

	dir := t.TempDir()
	cluster := &inventory.Cluster{
		Name: f.cluster.Name, Endpoint: f.cluster.Endpoint, TalosVersion: f.cluster.TalosVersion,
		KubernetesVersion: f.cluster.KubernetesVersion, CNI: f.cluster.CNI, PodSubnets: f.cluster.PodSubnets,
		ServiceSubnets: f.cluster.ServiceSubnets, Source: filepath.Join(dir, f.cluster.Source), Files: reading.New(dir, nil),
	}

	for _, node := range f.cluster.Nodes {
		placed := *node
		placed.ConfigFile = filepath.Join(dir, node.ConfigFile)
		cluster.Nodes = append(cluster.Nodes, &placed)

		if config := f.configs[node.Name]; config != nil {
			require.NoError(t, os.WriteFile(placed.ConfigFile, config.Bytes, 0o600))
		}
	}

	if f.talosconfig != nil {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "talosconfig"), f.talosconfig, 0o600))
	}

	result := table.Run(t.Context(), check.Read(check.Options{
		TalosDir: dir, ConfigDir: dir, Talosconfig: filepath.Join(dir, "talosconfig"), Root: dir, Cluster: cluster,
		Checks: f.options,
	}))

	return slices.DeleteFunc(result.Findings,
		func(finding diagnosis.Finding) bool { return finding.ID < "TM040" || finding.ID >= "TM080" })
}

func (f *fixture) checkNode(t *testing.T, name string, facts check.Facts) []diagnosis.Finding {
	t.Helper()

	return table.Node(t.Context(), &check.Node{
		Node: f.cluster.Node(name), Cluster: f.cluster, Config: f.configs[name], Facts: facts, Settings: f.options,
	})
}

// goodFacts are those of a machine that fits the fixture's machine configs.
func goodFacts() check.Facts {
	return check.Facts{
		Address:   "192.0.2.11",
		State:     talos.Maintenance,
		Version:   "v1.13.9",
		Disks:     []*block.Disk{disk("vda", 40e9, "virtio", "QEMU", "V001")},
		Links:     []talos.Link{{Name: "eth0", MAC: "02:00:00:00:00:11", Physical: true, Up: true}, {Name: "lo"}},
		System:    talos.SystemInfo{UUID: "00000000-0000-4000-8000-000000000011"},
		Security:  &talos.Security{},
		Cmdline:   "talos.platform=metal console=tty0",
		Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.11/24")},
	}
}

func disk(name string, size uint64, transport, model, serial string) *block.Disk {
	made := block.NewDisk(block.NamespaceName, name)
	spec := made.TypedSpec()
	spec.DevPath, spec.Transport, spec.Model, spec.Serial = "/dev/"+name, transport, model, serial
	spec.SetSize(size)

	return made
}

// failures are the ids of what would end the run.
func failures(findings []diagnosis.Finding) []diagnosis.ID {
	return idsOf(findings, diagnosis.Failure)
}

func warnings(findings []diagnosis.Finding) []diagnosis.ID {
	return idsOf(findings, diagnosis.Warning)
}

func idsOf(findings []diagnosis.Finding, severity diagnosis.Severity) []diagnosis.ID {
	var ids []diagnosis.ID

	for _, finding := range findings {
		if finding.Severity == severity {
			ids = append(ids, finding.ID)
		}
	}

	return ids
}

// the finds the one finding with an id.
func the(t *testing.T, findings []diagnosis.Finding, id diagnosis.ID) diagnosis.Finding {
	t.Helper()

	var found []diagnosis.Finding

	for _, finding := range findings {
		if finding.ID == id {
			found = append(found, finding)
		}
	}

	require.Len(t, found, 1, "findings with %s in %+v", id, findings)

	return found[0]
}

func TestFilesThatFitEachOtherHaveNoTrouble(t *testing.T) {
	t.Parallel()

	f := newFixture(t)
	findings := f.checkCluster(t)

	require.Empty(t, failures(findings), "%+v", findings)
	require.Empty(t, warnings(findings), "%+v", findings)
	require.NotEmpty(t, findings, "passed checks are shown")

	for _, finding := range findings {
		require.NotEmpty(t, finding.Cause)
		require.Empty(t, finding.Next, "a passed check asks for nothing: %+v", finding)
	}
}

func TestNodeThatFitsItsConfigHasNoTrouble(t *testing.T) {
	t.Parallel()

	f := newFixture(t)

	for _, name := range []string{"cp1", "w1"} {
		findings := f.checkNode(t, name, goodFacts())

		require.Empty(t, failures(findings), "%+v", findings)
		require.Empty(t, warnings(findings), "%+v", findings)
		require.NotEmpty(t, findings)

		for _, finding := range findings {
			require.Equal(t, name, finding.Node)
			require.Equal(t, "192.0.2.11", finding.Address)
		}
	}
}

func TestEveryTroubleHasACauseACommandAndAnEntry(t *testing.T) {
	t.Parallel()

	for _, entry := range diagnosis.Catalogue() {
		if entry.ID < "TM040" || entry.ID >= "TM080" {
			continue
		}

		require.NotEmpty(t, entry.Title, entry.ID)
		require.NotEmpty(t, entry.Cause, entry.ID)
		require.NotEmpty(t, entry.Remedy, entry.ID)
		require.NotEmpty(t, entry.Source, entry.ID)

		if entry.Severity == diagnosis.Failure {
			require.Contains(t, []diagnosis.ExitCode{diagnosis.ExitBadInput, diagnosis.ExitPreflight}, entry.Exit, entry.ID)
		}
	}
}

func TestSkippedChecksAreShownAsWarnings(t *testing.T) {
	t.Parallel()

	f := newFixture(t)
	f.options.SkipChecks = []diagnosis.ID{diagnosis.InstallDiskAbsent, diagnosis.WrongMachine}
	f.cluster.Node("cp1").UUID = "00000000-0000-4000-8000-000000000099"

	facts := goodFacts()
	facts.Disks = nil

	findings := f.checkNode(t, "cp1", facts)

	absent := the(t, findings, diagnosis.InstallDiskAbsent)
	require.Equal(t, diagnosis.Warning, absent.Severity)
	require.True(t, absent.Skipped)

	wrong := the(t, findings, diagnosis.WrongMachine)
	require.Equal(t, diagnosis.Failure, wrong.Severity, "it can't be skipped")
	require.False(t, wrong.Skipped)
}
