package files_test

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/proxmox"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// interop reads a repository for the profile: machine configs in talos, OpenTofu files in tofu.
func interop(root, talos, tofu string) *check.Input {
	return check.Read(check.Options{
		Profile: check.InteropProfile, TalosDir: talos, Root: root, Checks: check.Settings{Now: time.Now()},
		VMs: func(func(string) bool) ([]proxmox.VM, error) {
			machines, err := proxmox.FromTofu(tofu, filepath.Base)
			if err == nil && len(machines) == 0 {
				return nil, proxmox.ErrNone
			}

			return machines, err
		},
	})
}

// profiled reads files with the profile: talconfig.yaml and machine configs as lab has them, the rest by its path in
// the repository.
func (f files) profiled(t testing.TB) *check.Input {
	t.Helper()

	folder := f.write(t)

	return interop(folder, folder, filepath.Join(folder, "tofu"))
}

// judgeProfile is judge for checks of the profile.
func judgeProfile(t *testing.T, id diagnosis.ID, trials map[string]trial) {
	t.Helper()
	judgeRead(t, id, trials, files.profiled)
}

func TestTheInteroperabilityProfileOfAWholeRepository(t *testing.T) {
	t.Parallel()

	root, err := filepath.Abs(filepath.Join("testdata", "interop"))
	require.NoError(t, err)

	result := table.Run(context.Background(),
		interop(root, filepath.Join(root, "talos"), filepath.Join(root, "infrastructure", "tofu")))

	golden.Assert(t, filepath.Join("testdata", "interop", "table.golden"), write(t, result, "table"))
	require.Equal(t, diagnosis.ExitOK, result.ExitCode())
}

// featuring is a control plane with these fields of machine.features.
func featuring(fields string) config {
	return config{machine: "features:\n\t" + strings.ReplaceAll(fields, "\n", "\n\t")}
}

const (
	noHostDNS   = "hostDNS: {enabled: false}"
	hostDNS     = "hostDNS: {enabled: true, resolveMemberNames: true}"
	forwarding  = "hostDNS:\n\tenabled: true\n\tforwardKubeDNSToHost: true"
	onLoopback  = "\nnetwork:\n\tinterfaces:\n\t\t- interface: lo\n\t\t\taddresses: [169.254.116.108/32]"
	inBPF       = "kubeProxyReplacement: true\nbpf:\n  masquerade: true\n"
	legacyRoute = inBPF + "  hostLegacyRouting: true\n"
)

// cilium adds Helm values as a file, and released the same as a HelmRelease of Flux.
func (f files) cilium(values string) files {
	return f.with("kubernetes/cilium/release.yaml", released(values))
}

func released(values string) string {
	text := "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata:\n  name: cilium\nspec:\n  chart: " +
		"{spec: {chart: cilium}}\n  values:\n"

	return text + "    " + strings.ReplaceAll(strings.TrimSpace(values), "\n", "\n    ") + "\n"
}

func TestHostDNS(t *testing.T) {
	t.Parallel()

	worker := config{role: "worker"}

	judgeProfile(t, diagnosis.HostDNSOff, map[string]trial{
		"off": {files: lab(featuring(noHostDNS)), line: "hostDNS: {enabled: false}", cause: "not enabled",
			severity: diagnosis.Warning},
		"not set": {files: lab(featuring(hostDNS), worker), cause: "not enabled"},
		"on":      {files: lab(featuring(hostDNS), featuring(forwarding))},
	})

	judgeProfile(t, diagnosis.HostDNSNotForwarded, map[string]trial{
		"not set":           {files: lab(featuring(hostDNS)), line: hostDNS, cause: "does not ask", severity: diagnosis.OK},
		"on":                {files: lab(featuring(forwarding))},
		"off":               {files: lab(featuring(noHostDNS))},
		"Cilium forbids it": {files: lab(featuring(hostDNS)).cilium(inBPF)},
	})

	blocked := func(values string) files { return lab(featuring(forwarding)).cilium(values) }

	judgeProfile(t, diagnosis.HostDNSBehindCilium, map[string]trial{
		"masquerade": {files: blocked(inBPF), at: "kubernetes/cilium/release.yaml", line: "masquerade: true",
			cause: "clusterconfig/lab-n1.yaml:7:7", severity: diagnosis.Warning},
		"legacy routing": {files: blocked(legacyRoute)},
		"not set":        {files: blocked("kubeProxyReplacement: true")},
		"kube-proxy":     {files: blocked("kubeProxyReplacement: false\nbpf: {masquerade: true}")},
		"not forwarded":  {files: lab(featuring(hostDNS)).cilium(inBPF)},
		"on loopback, document": {files: lab(config{machine: featuring(forwarding).machine,
			documents: []string{"kind: LinkConfig\nname: lo\naddresses:\n\t- address: 169.254.116.108/32"}}).cilium(inBPF)},
		"on loopback":      {files: lab(config{machine: featuring(forwarding).machine + onLoopback}).cilium(inBPF)},
		"a value unknown":  {files: blocked("kubeProxyReplacement: true\nbpf: {masquerade: \"${MASQUERADE}\"}")},
		"nothing to judge": {files: lab(featuring(forwarding))},
	})
}

// resolving is a control plane with name servers in the old style, resolvingDocument one with a ResolverConfig
// document.
func resolving(servers ...string) config {
	return config{machine: "network:\n\tnameservers:\n\t\t- " + strings.Join(servers, "\n\t\t- ")}
}

func resolvingDocument(servers ...string) config {
	return config{documents: []string{"kind: ResolverConfig\nnameservers:\n\t- address: " +
		strings.Join(servers, "\n\t- address: ")}}
}

func TestResolversOfTheProfile(t *testing.T) {
	t.Parallel()

	judgeProfile(t, diagnosis.ResolversDefault, map[string]trial{
		"none": {files: lab(resolving("192.0.2.53"), config{role: "worker"}), cause: "no name servers",
			severity: diagnosis.OK},
		"fields":   {files: lab(resolving("192.0.2.53"))},
		"document": {files: lab(resolvingDocument("2001:db8::53"))},
	})

	judgeProfile(t, diagnosis.ResolverIsHostDNS, map[string]trial{
		"loopback": {files: lab(resolving("192.0.2.53", "127.0.0.53")), line: "- 127.0.0.53",
			cause: "127.0.0.53 is the node itself"},
		"IPv6": {files: lab(resolving("'::1'")), line: "- '::1'", cause: "::1 is the node itself"},
		"document": {files: lab(resolvingDocument("169.254.116.108")), line: "- address: 169.254.116.108",
			cause: "the node itself", severity: diagnosis.Warning},
		"others": {files: lab(resolving("192.0.2.53"), resolvingDocument("2001:db8::53"))},
	})

	judgeProfile(t, diagnosis.ResolverSingle, map[string]trial{
		"fields": {files: lab(resolving("192.0.2.53")), line: "- 192.0.2.53", cause: "192.0.2.53 is the only name server",
			severity: diagnosis.OK},
		"document": {files: lab(resolvingDocument("2001:db8::53")), line: "- address: 2001:db8::53",
			cause: "2001:db8::53 is the only"},
		"two":  {files: lab(resolving("192.0.2.53", "192.0.2.54"))},
		"none": {files: lab(config{})},
	})

	at := func(address string, servers ...string) config {
		made := resolving(servers...)
		made.machine += "\n\tinterfaces:\n\t\t- interface: eth0\n\t\t\taddresses: ['" + address + "']"

		return made
	}
	dhcp := at("192.0.2.11/24", "2001:db8::53")
	dhcp.machine += "\n\t\t\tdhcp: true"

	judgeProfile(t, diagnosis.ResolverFamily, map[string]trial{
		"IPv4 node": {files: lab(at("192.0.2.11/24", "2001:db8::53", "2001:db8::54")), line: "- 2001:db8::53",
			cause: "no address of the node is of the family"},
		"IPv6 node": {files: lab(at("2001:db8::11/64", "192.0.2.53")), line: "- 192.0.2.53", cause: "192.0.2.53",
			severity: diagnosis.Warning},
		"one fits": {files: lab(at("192.0.2.11/24", "2001:db8::53", "192.0.2.53"))},
		"DHCP":     {files: lab(dhcp)},
	})
}

func TestTimeOfTheProfile(t *testing.T) {
	t.Parallel()

	document := func(fields string) config { return config{documents: []string{"kind: TimeSyncConfig\n" + fields}} }

	judgeProfile(t, diagnosis.TimeSyncOff, map[string]trial{
		"fields": {files: lab(config{machine: "time:\n\tdisabled: true"}), line: "disabled: true", cause: "is off",
			severity: diagnosis.Warning},
		"document": {files: lab(document("enabled: false")), line: "enabled: false", cause: "is off"},
		"on":       {files: lab(config{machine: "time:\n\tdisabled: false"}, document("enabled: true"), config{})},
	})

	judgeProfile(t, diagnosis.TimeServersDefault, map[string]trial{
		"none":     {files: lab(config{}), cause: "time.cloudflare.com", severity: diagnosis.OK},
		"document": {files: lab(document("bootTimeout: 2m")), cause: "time.cloudflare.com"},
		"given": {files: lab(config{machine: "time:\n\tservers: [192.0.2.123]"},
			document("ntp: {servers: [192.0.2.123]}"))},
		"PTP": {files: lab(document("ptp:\n\tdevices: [/dev/ptp0]"))},
		"off": {files: lab(document("enabled: false"))},
	})

	judgeProfile(t, diagnosis.TimeServersNamed, map[string]trial{
		"fields": {files: lab(config{machine: "time:\n\tservers:\n\t\t- time.example.net"}), line: "- time.example.net",
			cause: "by name alone", severity: diagnosis.OK},
		"document": {files: lab(document("ntp:\n\tservers:\n\t\t- time.example.net")), line: "- time.example.net",
			cause: "time.example.net"},
		"one by IP": {files: lab(config{machine: "time:\n\tservers: [time.example.net, 2001:db8::123]"})},
		"none":      {files: lab(config{})},
	})
}

func TestEtcdMetrics(t *testing.T) {
	t.Parallel()

	metrics := func(urls string) config {
		return config{cluster: "etcd:\n\textraArgs:\n\t\tlisten-metrics-urls: " + urls}
	}
	worker := config{role: "worker"}
	shut := metrics("http://0.0.0.0:2381")
	shut.documents = []string{"kind: NetworkDefaultActionConfig\ningress: block"}

	judgeProfile(t, diagnosis.EtcdMetricsOff, map[string]trial{
		"none":    {files: lab(config{}, worker), cause: "serves no metrics", severity: diagnosis.OK},
		"served":  {files: lab(metrics("http://0.0.0.0:2381"), worker)},
		"a list":  {files: lab(metrics("[http://192.0.2.11:2381]"))},
		"workers": {files: lab(worker)},
	})

	trials := map[string]trial{
		"no scheme":  {files: lab(metrics("0.0.0.0:2381")), cause: "no URL", severity: diagnosis.Failure},
		"tcp":        {files: lab(metrics("tcp://0.0.0.0:2381")), cause: "begin with http"},
		"no port":    {files: lab(metrics("http://0.0.0.0")), cause: "no port"},
		"path":       {files: lab(metrics("http://0.0.0.0:2381/metrics")), cause: "must not have a path"},
		"a slash":    {files: lab(metrics("http://0.0.0.0:2381/")), cause: "must not have a path"},
		"a socket":   {files: lab(metrics("unix://127.0.0.1:2381"))},
		"no host":    {files: lab(metrics("'http://:2381'")), cause: "is no address"},
		"etcd's own": {files: lab(metrics("http://0.0.0.0:2379")), cause: "port 2379 is etcd's own"},
		"peers":      {files: lab(metrics("'http://127.0.0.1:2381,http://[2001:db8::11]:2380'")), cause: "2380"},
		"name":       {files: lab(metrics("http://n1.example.net:2381")), cause: "no address"},
		"right":      {files: lab(metrics("'http://127.0.0.1:2381,http://[::]:2381'"), metrics("https://localhost:2381"))},
	}

	judgeProfile(t, diagnosis.EtcdMetricsURL, trials)
	judge(t, diagnosis.EtcdMetricsURL, trials) // holds for every cluster

	judgeProfile(t, diagnosis.EtcdMetricsOpen, map[string]trial{
		"open":     {files: lab(metrics("http://0.0.0.0:2381")), cause: "port 2381", severity: diagnosis.OK},
		"IPv6":     {files: lab(metrics("'http://[::]:2381'")), cause: "port 2381"},
		"firewall": {files: lab(shut)},
		"loopback": {files: lab(metrics("http://127.0.0.1:2381"))},
		"none":     {files: lab(config{})},
	})

	judgeProfile(t, diagnosis.EtcdMetricsDiffer, map[string]trial{
		"one without": {files: lab(metrics("http://0.0.0.0:2381"), config{}), cause: "and on n1 it does",
			severity: diagnosis.Warning},
		"all":  {files: lab(metrics("http://0.0.0.0:2381"), metrics("http://0.0.0.0:2381"), worker)},
		"none": {files: lab(config{}, config{})},
	})
}

func TestNodeLabels(t *testing.T) {
	t.Parallel()

	labelled := func(role string, labels ...string) config {
		return config{role: role, machine: "nodeLabels:\n\t" + strings.Join(labels, "\n\t")}
	}
	zone := labelled("worker", "topology.kubernetes.io/zone: a")

	judgeProfile(t, diagnosis.NodeLabelsNone, map[string]trial{
		"none":   {files: lab(config{}), cause: "no topology labels", severity: diagnosis.OK},
		"others": {files: lab(labelled("", "example.net/rack: a")), cause: "no topology labels"},
		"zone":   {files: lab(zone)},
	})

	refused := map[string]trial{
		"role": {files: lab(labelled("worker", "node-role.kubernetes.io/worker: \"\"")),
			line: "node-role.kubernetes.io/worker: \"\"", cause: "node-role.kubernetes.io/worker", severity: diagnosis.Warning},
		"restriction": {files: lab(labelled("worker", "example.net/a: b", "tenant.node-restriction.kubernetes.io/a: b")),
			line: "tenant.node-restriction.kubernetes.io/a: b", cause: "may not set"},
		"k8s.io": {files: lab(labelled("worker", "cni.k8s.io/a: b")), cause: "cni.k8s.io/a"},
		"allowed": {files: lab(
			labelled("worker", "topology.kubernetes.io/region: a", "topology.kubernetes.io/zone: b",
				"node.kubernetes.io/exclude-from-external-load-balancers: \"\"", "example.net/a: b", "plain: a"),
			labelled("controlplane", "node-role.kubernetes.io/database: \"\""), // written as an administrator
		)},
	}

	judgeProfile(t, diagnosis.NodeLabelRefused, refused)
	judge(t, diagnosis.NodeLabelRefused, refused)

	judgeProfile(t, diagnosis.TopologyIncomplete, map[string]trial{
		"a worker": {files: lab(zone, config{role: "worker"}),
			cause: "topology.kubernetes.io/zone is not set, and on n1", severity: diagnosis.Warning},
		"control planes": {files: lab(zone, config{cluster: "allowSchedulingOnControlPlanes: true"}), cause: "on n1"},
		"not scheduled":  {files: lab(zone, config{})},
		"nowhere":        {files: lab(config{role: "worker"}, config{role: "worker"})},
	})
}

// rightCilium are Helm values that are right for Talos.
const rightCilium = `ipam:
  mode: kubernetes
kubeProxyReplacement: true
k8sServiceHost: localhost
k8sServicePort: 7445
cgroup:
  autoMount:
    enabled: false
  hostRoot: /sys/fs/cgroup
securityContext:
  capabilities:
    ciliumAgent:
      - NET_ADMIN
      - SYS_ADMIN
`

// forCilium is a control plane that leaves the network to Cilium.
func forCilium() config {
	return config{
		machine: "features:\n\tkubePrism: {enabled: true}",
		cluster: "network:\n\tcni: {name: none}\nproxy:\n\tdisabled: true",
	}
}

func TestCilium(t *testing.T) {
	t.Parallel()

	const release = "kubernetes/cilium/release.yaml"

	right := func() files {
		return lab(forCilium(), config{role: "worker", machine: forCilium().machine}).cilium(rightCilium)
	}
	with := func(old, replacement string) files {
		return right().replaced(release, strings.ReplaceAll(old, "\n", "\n    "),
			strings.ReplaceAll(replacement, "\n", "\n    "))
	}
	configured := func(old, replacement string) files {
		return right().replaced("clusterconfig/lab-n1.yaml", old, replacement)
	}

	judgeProfile(t, diagnosis.CiliumBesideCNI, map[string]trial{
		"flannel": {files: configured("cni: {name: none}", "cni: {name: flannel}"), line: "cni: {name: flannel}",
			cause: "the CNI flannel", severity: diagnosis.Warning},
		"default": {files: configured("cni: {name: none}", "dnsDomain: cluster.local"), cause: "the CNI flannel"},
		"custom": {files: configured("cni: {name: none}",
			"cni: {name: custom, urls: ['https://example.net/calico.yaml']}"), cause: "the CNI custom"},
		"custom, Cilium's": {files: configured("cni: {name: none}",
			"cni: {name: custom, urls: ['https://example.net/cilium.yaml']}")},
		"none": {files: right()},
		"none, worker's own": {files: right().replaced("clusterconfig/lab-n2.yaml", "cluster:\n",
			"cluster:\n  network: {cni: {name: flannel}}\n")},
	})

	judgeProfile(t, diagnosis.CiliumKubeProxy, map[string]trial{
		"both": {files: configured("disabled: true", "disabled: false"), at: release, line: "kubeProxyReplacement: true",
			cause: "Talos runs it (clusterconfig/lab-n1.yaml:", severity: diagnosis.Warning},
		"neither": {files: with("kubeProxyReplacement: true", "kubeProxyReplacement: false"),
			line: "kubeProxyReplacement: false", cause: "Talos does not run it"},
		"not set":  {files: with("kubeProxyReplacement: true\n", ""), cause: "Talos does not run it"},
		"old word": {files: with("kubeProxyReplacement: true", "kubeProxyReplacement: strict")},
		"template": {files: with("kubeProxyReplacement: true", "kubeProxyReplacement: ${REPLACE}")},
		"right":    {files: right()},
	})

	judgeProfile(t, diagnosis.CiliumIPAM, map[string]trial{
		"pool": {files: with("mode: kubernetes", "mode: cluster-pool"), line: "mode: cluster-pool",
			cause: "ipam.mode is cluster-pool", severity: diagnosis.Warning},
		"default": {files: with("ipam:\n  mode: kubernetes\n", ""), cause: "cluster-pool, the chart's default"},
		"right":   {files: right()},
	})

	judgeProfile(t, diagnosis.CiliumCgroup, map[string]trial{
		"mount": {files: with("enabled: false", "enabled: true"), line: "enabled: true",
			cause: "cgroup.autoMount.enabled is true", severity: diagnosis.Warning},
		"default": {files: with("autoMount:\n    enabled: false\n  hostRoot", "hostRoot"),
			cause: "true, the chart's default"},
		"root": {files: with("hostRoot: /sys/fs/cgroup", "hostRoot: /run/cilium/cgroupv2"),
			line: "hostRoot: /run/cilium/cgroupv2", cause: "/run/cilium/cgroupv2"},
		"right": {files: right()},
	})

	judgeProfile(t, diagnosis.CiliumAPIServer, map[string]trial{
		"port": {files: with("7445", "6443"), line: "k8sServicePort: 6443", cause: "KubePrism listens at 7445",
			severity: diagnosis.Warning},
		"no port": {files: with("k8sServicePort: 7445\n", ""), cause: "KubePrism listens at 7445"},
		"KubePrism off": {files: configured("enabled: true", "enabled: false"), line: "k8sServiceHost: localhost",
			cause: "KubePrism is off (clusterconfig/lab-n1.yaml:"},
		"no host":      {files: with("k8sServiceHost: localhost\n", ""), cause: "k8sServiceHost is not set"},
		"another host": {files: with("localhost", "192.0.2.10")},
		"another port": {files: right().replaced("clusterconfig/lab-n1.yaml", "enabled: true",
			"enabled: true, port: 7446").replaced("clusterconfig/lab-n2.yaml", "enabled: true",
			"enabled: true, port: 7446").replaced(release, "7445", "7446")},
		"with a proxy": {files: with("kubeProxyReplacement: true\nk8sServiceHost: localhost\n", "")},
		"right":        {files: right()},
	})

	judgeProfile(t, diagnosis.CiliumCapabilities, map[string]trial{
		"listed": {files: with("- NET_ADMIN\n", "- NET_ADMIN\n      - SYS_MODULE\n"), line: "- SYS_MODULE",
			cause: "holds SYS_MODULE", severity: diagnosis.Failure},
		"default": {files: with("securityContext:\n  capabilities:\n    ciliumAgent:\n      - NET_ADMIN\n      - "+
			"SYS_ADMIN", "debug: {enabled: false}"), cause: "the chart's default holds SYS_MODULE"},
		"privileged": {files: with("capabilities:\n    ciliumAgent:\n      - NET_ADMIN\n      - SYS_ADMIN",
			"privileged: true")},
		"right": {files: right()},
	})

	judgeProfile(t, diagnosis.CiliumValueMisspelt, map[string]trial{
		"autoMount": {files: with("autoMount:", "automount:"), line: "automount:",
			cause: "nothing reads cgroup.automount; did you mean autoMount?", severity: diagnosis.Warning},
		"top level": {files: with("k8sServiceHost:", "K8sServiceHost:"), line: "K8sServiceHost: localhost",
			cause: "did you mean k8sServiceHost?"},
		"right": {files: right()},
	})
}

func TestWhereCiliumsValuesAreFound(t *testing.T) {
	t.Parallel()

	made := func() files { return lab(forCilium()) }
	fromConfigMap := "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata:\n  name: cilium\nspec:\n  " +
		"valuesFrom:\n    - {kind: ConfigMap, name: cilium-values}\n"

	for name, test := range map[string]struct {
		files  files
		values string
		notRun string
	}{
		"a HelmRelease in the repository": {files: made().cilium(rightCilium)},
		"among other documents": {files: made().with("apps/cilium.yaml",
			"kind: Namespace\n---\n"+released(rightCilium))},
		"a file of values that is named": {files: made().with("values.yaml", rightCilium), values: "values.yaml"},
		"a HelmRelease that is named":    {files: made().with("a.yaml", released(rightCilium)), values: "a.yaml"},
		"a file beside, for a ConfigMap": {files: made().with("apps/cilium/app/release.yaml",
			fromConfigMap).with("apps/cilium/app/helm/values.yaml", rightCilium)},
		"nowhere": {files: made(),
			notRun: "no Helm values of Cilium were found: set CILIUM_VALUES"},
		"a release of another chart": {files: made().with("cilium/a.yaml",
			strings.ReplaceAll(released(rightCilium), "chart: cilium", "chart: hubble")), notRun: "no Helm values"},
		"a ConfigMap that can't be found": {files: made().with("apps/cilium/release.yaml", fromConfigMap),
			notRun: "the HelmRelease in apps/cilium/release.yaml takes its values from elsewhere (valuesFrom)"},
		"a release without values": {files: made().with("cilium.yaml",
			"kind: HelmRelease\nmetadata: {name: cilium}\nspec: {interval: 1h}\n"), notRun: "sets no values"},
		"a name that is none": {files: made(), values: "absent.yaml",
			notRun: "CILIUM_VALUES names absent.yaml, which can't be read"},
		"a file that is no YAML": {files: made().with("v.yaml", "a: [\n"), values: "v.yaml",
			notRun: "v.yaml:2 is not valid YAML"},
		"a file that holds a list": {files: made().with("v.yaml", "- a\n"), values: "v.yaml",
			notRun: "holds no Helm values"},
		"folders that belong to other things": {files: made().with(".git/cilium.yaml",
			released(rightCilium)).with("node_modules/cilium.yaml", released(rightCilium)), notRun: "no Helm values"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			folder := test.files.write(t)
			options := check.Options{Profile: check.InteropProfile, TalosDir: folder, Root: folder}

			if test.values != "" {
				options.CiliumValues = filepath.Join(folder, test.values)
			}

			result := table.Run(context.Background(), check.Read(options))
			row := result.Areas[2]
			require.Equal(t, check.CiliumArea, row.Area)

			if test.notRun == "" {
				require.Equal(t, "Compliant", row.Status, row.Finding)
				require.Contains(t, result.Passed, diagnosis.CiliumIPAM)

				return
			}

			require.Equal(t, "Not Run", row.Status)
			require.Contains(t, row.Finding, test.notRun)
			require.NotContains(t, result.Passed, diagnosis.CiliumIPAM)
		})
	}
}

// What a template or a ConfigMap makes can't be judged, and never passes.
func TestValuesThatAreNotWrittenAreNotRun(t *testing.T) {
	t.Parallel()

	for name, values := range map[string]string{
		"a variable of Flux": released(strings.Replace(rightCilium, "mode: kubernetes", "mode: ${IPAM}", 1)),
		"a ConfigMap's": strings.Replace(released(strings.Replace(rightCilium, "ipam:\n  mode: kubernetes\n", "", 1)),
			"spec:\n", "spec:\n  valuesFrom: [{kind: ConfigMap, name: more}]\n", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			result := table.Run(context.Background(), lab(forCilium()).with("cilium.yaml", values).profiled(t))

			require.Empty(t, findingsOf(result, diagnosis.CiliumIPAM))
			require.NotContains(t, result.Passed, diagnosis.CiliumIPAM)
			require.Contains(t, result.NotRun,
				check.NotRun{ID: diagnosis.CiliumIPAM, Why: "Cilium's ipam.mode is not written as a value"})
			require.Contains(t, result.Passed, diagnosis.CiliumCgroup)
			require.Contains(t, result.Areas[2].Finding, "nothing wrong in what could be judged (")
		})
	}
}

// rightVM is a machine that is as documented; name is a reference or a string.
func rightVM(name string) string {
	return "resource \"proxmox_virtual_environment_vm\" \"" + strings.Trim(name, "\"") + "\" {\n  name = " + name + `
  bios = "ovmf"
  machine = "q35"
  scsi_hardware = "virtio-scsi-pci"
  cpu {
    type = "host"
    cores = 4
  }
  memory {
    dedicated = 8192
    floating = 0
  }
  network_device {
    model = "virtio"
  }
  efi_disk {
    pre_enrolled_keys = false
  }
}
`
}

func TestVirtualMachines(t *testing.T) {
	t.Parallel()

	const (
		main   = "tofu/main.tf"
		secure = "factory.talos.dev/installer-secureboot/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.13.9"
	)

	right := func(configs ...config) files {
		return lab(append(configs, config{}, config{role: "worker"})[:2]...).with(main, rightVM(`"n1"`)+rightVM(`"n2"`))
	}
	with := func(old, replacement string) files { return right().replaced(main, old, replacement) }
	securely := installing("disk: /dev/sda\n\timage: " + secure)

	judgeProfile(t, diagnosis.VMFirmware, map[string]trial{
		"SeaBIOS": {files: with(`"ovmf"`, `"seabios"`), at: "main.tf", line: `bios = "seabios"`,
			cause: "the BIOS is seabios", severity: diagnosis.Warning},
		"default": {files: with("  bios = \"ovmf\"\n", ""), cause: "the BIOS is seabios"},
		"SecureBoot": {files: right(securely).replaced(main, `"ovmf"`, `"seabios"`),
			cause: "for SecureBoot", severity: diagnosis.Failure},
		"enrolled keys": {files: right(securely).replaced(main, "pre_enrolled_keys = false",
			"pre_enrolled_keys = true"), line: "pre_enrolled_keys = true", cause: "Microsoft's keys",
			severity: diagnosis.Warning},
		"enrolled keys without SecureBoot": {files: with("pre_enrolled_keys = false", "pre_enrolled_keys = true")},
		"an agent without its extension": {
			files: right(installing("disk: /dev/sda\n\timage: "+
				"factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.13.9")).replaced(main, "  bios", "  agent {\n    enabled = true\n  }\n  bios"),
			line: "enabled = true", cause: "the installer image has none (clusterconfig/lab-n1.yaml:",
		},
		"an agent with its extension": {files: right(
			installing("disk: /dev/sda\n\timage: factory.talos.dev/metal-installer/"+idOfGuestAgent+":v1.13.9")).replaced(main,
			"  bios", "  agent {\n    enabled = true\n  }\n  bios")},
		"from a template": {files: with("  bios = \"ovmf\"\n", "  clone {\n    vm_id = 9000\n  }\n")},
		"right":           {files: right(securely)},
	})

	judgeProfile(t, diagnosis.VMProcessor, map[string]trial{
		"machine": {files: with(`"q35"`, `"pc"`), line: `machine = "pc"`, cause: "the machine type is pc",
			severity: diagnosis.Warning},
		"kvm64": {files: with(`"host"`, `"kvm64"`), line: `type = "kvm64"`, cause: "lacks what Talos needs",
			severity: diagnosis.Warning},
		"no cpu": {files: with("  cpu {\n    type = \"host\"\n    cores = 4\n  }\n", ""),
			cause: "the processor type qemu64"},
		"another": {files: with(`"host"`, `"x86-64-v2-AES,flags=+aes"`), cause: "the processor type is x86-64-v2-AES",
			severity: diagnosis.OK},
		"flags": {files: with(`type = "host"`, `type = "kvm64"`).replaced(main, "  bios",
			"  kvm_arguments = \"-cpu kvm64,+cx16\"\n  bios")},
		"q35 version": {files: with(`"q35"`, `"pc-q35-9.0"`)},
	})

	judgeProfile(t, diagnosis.VMBallooning, map[string]trial{
		"on": {files: with("floating = 0", "floating = 4096"), line: "floating = 4096", cause: "ballooning is on",
			severity: diagnosis.Warning},
		"default": {files: with("    floating = 0\n", "")},
		"hotplug": {files: with("  bios", "  hotplug = \"network,memory\"\n  bios"), line: `hotplug = "network,memory"`,
			cause: "memory is added while the VM runs"},
		"unknown": {files: with("floating = 0", "floating = var.balloon")},
	})

	judgeProfile(t, diagnosis.VMDiskController, map[string]trial{
		"single": {files: with(`"virtio-scsi-pci"`, `"virtio-scsi-single"`), line: `scsi_hardware = "virtio-scsi-single"`,
			cause: "VirtIO SCSI single", severity: diagnosis.Warning},
		"lsi":     {files: with(`"virtio-scsi-pci"`, `"lsi"`), cause: "the disk controller is lsi"},
		"default": {files: with("  scsi_hardware = \"virtio-scsi-pci\"\n", "")},
	})

	judgeProfile(t, diagnosis.VMNetworkModel, map[string]trial{
		"e1000": {files: with(`"virtio"`, `"e1000"`), line: `model = "e1000"`, cause: "a network card is a e1000",
			severity: diagnosis.Warning},
		"right": {files: right()},
	})

	judgeProfile(t, diagnosis.VMResources, map[string]trial{
		"cores": {files: with("cores = 4", "cores = 1"), line: "cores = 1", cause: "it has cores 1, and needs 2",
			severity: diagnosis.Warning},
		"memory": {files: with("8192", "1024"), line: "dedicated = 1024",
			cause: "it has memory 1024 MiB, and needs 1848 MiB"},
		"recommended": {files: with("8192", "4096"), line: "dedicated = 4096", cause: "and 8192 MiB are recommended",
			severity: diagnosis.OK},
		"no node": {files: with("cores = 4", "cores = 1").replaced(main, `"n1"`, `"vm1"`).replaced(main, `"n2"`,
			`"vm2"`)},
		"right": {files: right()},
	})
}

func TestWhichMachinesAreJudged(t *testing.T) {
	t.Parallel()

	judged := func(main string) check.Result {
		return table.Run(context.Background(), lab(config{}, config{role: "worker"}).with("tofu/main.tf", main).profiled(t))
	}
	area := func(result check.Result) check.AreaResult { return result.Areas[len(result.Areas)-1] }

	// Machines of other things in the same folder are left alone.
	result := judged(rightVM(`"n1"`) + rightVM(`"n2"`) + strings.ReplaceAll(rightVM(`"nas"`), "ovmf", "seabios"))
	require.Equal(t, check.AreaResult{Area: check.ProxmoxArea, Status: "Compliant",
		Finding: "firmware, processor, memory, disk controller and network as documented"}, area(result))

	// Names that are told at apply are judged, under the name of what makes them.
	result = judged(strings.ReplaceAll(rightVM("var.name"), "ovmf", "seabios"))
	require.Len(t, findingsOf(result, diagnosis.VMFirmware), 1)
	require.Equal(t, "Not Compliant", area(result).Status)

	// One of two machines can't be judged.
	result = judged(rightVM(`"n1"`) + strings.ReplaceAll(rightVM(`"n2"`), `"ovmf"`, "var.bios"))
	require.Contains(t, result.NotRun,
		check.NotRun{ID: diagnosis.VMFirmware, Node: "n2",
			Why: "its bios is not known: var.bios is not declared (main.tf:23)"})
	require.Contains(t, result.Passed, diagnosis.VMFirmware)

	// None can.
	result = judged(strings.ReplaceAll(rightVM(`"n1"`)+rightVM(`"n2"`), `"ovmf"`, "var.bios"))
	require.Contains(t, result.NotRun,
		check.NotRun{ID: diagnosis.VMFirmware, Why: "no VM's bios is known: var.bios is not declared (main.tf:23)"})
	require.NotContains(t, result.Passed, diagnosis.VMFirmware)

	// A node without a VM may be made by a module that is not read; when each has one, the module makes something else.
	module := "module \"more\" {\n  source = \"acme/vms/proxmox\"\n}\n"
	unread := check.NotRun{ID: diagnosis.VMFirmware,
		Why: "modules that come from elsewhere are not read, and may make VMs: module more (main.tf:1)"}

	require.Contains(t, judged(module+rightVM(`"n1"`)).NotRun, unread)
	require.NotContains(t, judged(module+rightVM(`"n1"`)+rightVM(`"n2"`)).NotRun, unread)

	result = judged("resource \"x\" {\n")
	require.Equal(t, check.AreaResult{Area: check.ProxmoxArea, Status: "Not Run",
		Finding: "the VMs can't be read: main.tf:1:14: Unclosed configuration block: There is no closing brace for this " +
			"block before the end of the file. This may be caused by incorrect brace nesting elsewhere in this file."},
		area(result))

	result = judged("")
	require.Contains(t, area(result).Finding, "no OpenTofu files describe VMs: set TOFU_DIR")
}

// Without its input an area is not run, and a run without the profile knows nothing of it.
func TestAProfileWithoutInput(t *testing.T) {
	t.Parallel()

	result := table.Run(context.Background(), files{"talconfig.yaml": lab(config{})["talconfig.yaml"]}.profiled(t))
	for _, row := range result.Areas {
		require.Equal(t, "Not Run", row.Status, row.Area)
		require.NotEmpty(t, row.Finding)
	}

	folder := lab(featuring(noHostDNS)).write(t)
	plain := table.Run(context.Background(), check.Read(check.Options{TalosDir: folder, Root: folder}))
	require.Empty(t, plain.Areas)
	require.Empty(t, findingsOf(plain, diagnosis.HostDNSOff))
	require.NotContains(t, plain.Passed, diagnosis.HostDNSOff)
	require.Contains(t, plain.Passed, diagnosis.NodeLabelRefused)
}

func TestSuggestionsAreInEveryFormat(t *testing.T) {
	t.Parallel()

	result := table.Run(context.Background(), lab(config{}).profiled(t))
	require.Contains(t, write(t, result, "table"), "suggestion  TM371")
	require.Contains(t, write(t, result, "json"), `"severity": "suggestion"`)
	require.Contains(t, write(t, result, "json"), `"area": "Node Labels"`)
	require.Contains(t, write(t, result, "sarif"), `"level": "note"`)
}

// Configs as Talos makes them have nothing wrong about them, in either style.
func TestTheProfileOfAGeneratedClusterHasOnlySuggestions(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*clusterfiles.Options){
		"documents":  nil,
		"old fields": func(options *clusterfiles.Options) { options.TalosVersion = "v1.11.6" },
		"DHCP": func(options *clusterfiles.Options) {
			for i := range options.Nodes {
				node := &options.Nodes[i]
				node.Declared, node.Address, node.Gateway = node.Address.Addr().String(), netip.Prefix{}, netip.Addr{}
			}
		},
		"for Cilium": func(options *clusterfiles.Options) { options.CNI = "none" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			folder := generated(t, 5, change)
			result := table.Run(context.Background(), interop(folder, folder, filepath.Join(folder, "tofu")))

			require.Empty(t, result.Trouble())

			for _, row := range result.Areas {
				require.NotEqual(t, "Not Compliant", row.Status, row.Finding)
			}

			require.Equal(t, "Compliant", result.Areas[0].Status)
			require.Contains(t, result.Areas[0].Finding, "enabled, forwards kube-dns")
		})
	}
}
