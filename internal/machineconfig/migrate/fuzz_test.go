package migrate_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// draws are how many clusters are drawn.
const draws = 500

// TestRandomClusters draws talconfigs with patches that set fields which documents replace, and migrates them: every
// node's config has to be equal, and a second run finds nothing to do.
func TestRandomClusters(t *testing.T) {
	t.Parallel()

	for seed := range uint64(draws) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()

			drawn := &draw{Rand: rand.New(rand.NewPCG(seed, 14)), folder: t.TempDir()}
			drawn.write(t)
			drawn.migrate(t, seed%5 == 0)
		})
	}
}

// TestRandomProfiles does the same with profiles and their files of patches.
func TestRandomProfiles(t *testing.T) {
	t.Parallel()

	for seed := range uint64(draws / 5) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()

			drawn := &draw{Rand: rand.New(rand.NewPCG(seed, 15)), folder: t.TempDir()}
			drawn.writeProfile(t)
			drawn.migrate(t, seed%5 == 0)
		})
	}
}

// migrate does it to what was drawn.
func (d *draw) migrate(t *testing.T, newDefaults bool) {
	t.Helper()

	plan, err := planned(t, d.folder, newDefaults)
	require.NoError(t, err, d.text)
	require.Empty(t, plan.Decisions, d.text)
	require.Empty(t, plan.Differences, "%s\n%s", d.text, after(plan.Files))
	require.NotEmpty(t, plan.Files)

	take(t, plan)

	again, err := planned(t, d.folder, false)
	require.NoError(t, err)
	require.False(t, again.Changes(), "there is more to do after\n%s", after(plan.Files))
}

func after(files map[string][]byte) string {
	var text strings.Builder

	for path, data := range files {
		fmt.Fprintf(&text, "%s:\n%s\n", filepath.Base(path), data)
	}

	return text.String()
}

// draw makes one cluster.
type draw struct {
	*rand.Rand

	folder string
	text   string
	files  int
}

func (d *draw) chance(percent int) bool { return d.IntN(100) < percent }

func (d *draw) oneOf(words ...string) string { return words[d.IntN(len(words))] }

// field is one of the older form, with values that it can have.
type field struct {
	path string
	// controlPlane is set where workers would be refused, or nothing would come of it.
	controlPlane bool
	value        func(*draw) string
}

func values(words ...string) func(*draw) string {
	return func(d *draw) string { return d.oneOf(words...) }
}

const certificate = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"

var fields = []field{
	{"machine.kubelet.extraArgs", false, values("{v: '4'}", "{rotate-server-certificates: 'true', v: '2'}",
		"{feature-gates: [A=true, B=false]}")},
	{"machine.kubelet.clusterDNS", false, values("[10.96.0.10]", "[169.254.2.53, 10.96.0.10]")},
	{"machine.kubelet.nodeIP", false, values("{validSubnets: [192.0.2.0/24]}", "{validSubnets: ['!192.0.2.9/32']}")},
	{"machine.kubelet.extraConfig", false, values("{maxPods: 200}",
		"{serverTLSBootstrap: true, imageGCHighThresholdPercent: 70}")},
	{"machine.kubelet.defaultRuntimeSeccompProfileEnabled", false, values("true", "false")},
	{"machine.kubelet.disableManifestsDirectory", false, values("true")},
	{"machine.kubelet.extraMounts", false, values("[]")},
	{"machine.kubelet.registerWithFQDN", false, values("true", "false")},
	{"machine.nodeLabels", false, values("{a.example/b: c}", "{zone: '1', rack: \"2\"}")},
	{"machine.nodeAnnotations", false, values("{a.example/b: c d}")},
	{"machine.nodeTaints", false, values("{a.example/b: 'c:NoSchedule'}")},
	{"machine.sysctls", false, values("{net.core.somaxconn: '65535'}", "{vm.nr_hugepages: \"1024\", vm.swappiness: '1'}")},
	{"machine.sysfs", false, values("{devices.system.cpu.cpu0.cpufreq.scaling_governor: performance}")},
	{"machine.udev.rules", false, values("['SUBSYSTEM==\"drm\", MODE=\"0660\"']")},
	{"machine.kernel.modules", false, values("[{name: nbd}]",
		"[{name: zfs, parameters: [a=1, b=2]}, {name: br_netfilter}]")},
	{"machine.env", false, values("{http_proxy: 'http://proxy.example:3128'}")},
	{"machine.time.servers", false, values("[time.example, 192.0.2.123]")},
	{"machine.network.nameservers", false, values("[192.0.2.53]", "[192.0.2.53, '2001:db8::53']")},
	{"machine.features.hostDNS.resolveMemberNames", false, values("true")},
	{"machine.features.kubePrism.port", false, values("7446")},
	{"machine.features.imageCache.localEnabled", false, values("true")},
	{"machine.baseRuntimeSpecOverrides", false, values(
		"{process: {rlimits: [{type: RLIMIT_NOFILE, hard: 1024, soft: 1024}]}}")},
	{"machine.files", false, values("[{path: /etc/nfsmount.conf, op: overwrite, permissions: 0o644, content: \"[a]\\n\"}]",
		"[{path: /etc/cri/conf.d/20-customization.part, op: create, content: \"[plugins]\\n  a = 1\\n\"}]",
		"[{path: /var/lib/a, op: create, permissions: 0o600, content: a}]")},
	{"machine.install.disk", false, values("/dev/nvme0n1", "/dev/disk/by-id/nvme-a")},
	{"machine.install.wipe", false, values("true", "false")},
	{"machine.install.image", false, values("registry.example/installer:v1.14.1")},
	{"machine.install.grubUseUKICmdline", false, values("true")},
	{"machine.registries.mirrors", false, values("{docker.io: {endpoints: [https://mirror.example]}}")},
	{"machine.logging.destinations", false, values("[{endpoint: 'udp://192.0.2.9:514', format: json_lines}]")},
	{"cluster.network.dnsDomain", false, values("cluster.example")},
	{"cluster.network.cni.name", false, values("none", "flannel")},
	{"cluster.discovery.enabled", false, values("true", "false")},
	{"cluster.clusterName", false, values("other")},
	{"cluster.controlPlane.localAPIServerPort", true, values("6444")},
	{"cluster.apiServer.extraArgs", true, values("{v: '4'}", "{anonymous-auth: 'true'}",
		"{anonymous-auth: 'false', v: '2'}", "{feature-gates: 'A=true'}", "{authorization-mode: 'Node,RBAC', v: '2'}",
		"{oidc-issuer-url: 'https://id.example', oidc-client-id: kubernetes}",
		"{oidc-client-id: a, oidc-issuer-url: 'https://id.example', oidc-username-claim: email, oidc-groups-claim: groups, "+
			"oidc-groups-prefix: 'o:', oidc-required-claim: [a=b, c=d=e], anonymous-auth: 'true'}",
		"{oidc-issuer-url: 'https://id.example', oidc-client-id: a, oidc-username-claim: name, oidc-username-prefix: '-'}")},
	{"cluster.apiServer.certSANs", true, values("[api.example]", "[api.example, 192.0.2.99]")},
	{"cluster.apiServer.env", true, values("{GOGC: '50'}")},
	{"cluster.apiServer.resources", true, values("{requests: {cpu: 100m, memory: 512Mi}}", "{limits: {memory: 2Gi}}")},
	{"cluster.apiServer.admissionControl", true, values(
		"[{name: PodSecurity, configuration: {exemptions: {namespaces: [rook]}}}]",
		"[{name: EventRateLimit, configuration: {kind: Configuration}}]")},
	{"cluster.apiServer.auditPolicy", true, values("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None}]}")},
	{"cluster.apiServer.authorizationConfig", true, values("[{type: Webhook, name: hook, webhook: {timeout: 3s}}]")},
	{"cluster.apiServer.disablePodSecurityPolicy", true, values("true")},
	{"cluster.controllerManager.extraArgs", true, values("{bind-address: 0.0.0.0}", "{node-monitor-period: 2s}")},
	{"cluster.controllerManager.env", true, values("{A: b}")},
	{"cluster.scheduler.extraArgs", true, values("{bind-address: 0.0.0.0}")},
	{"cluster.scheduler.config", true, values("{profiles: [{schedulerName: other}]}")},
	{"cluster.proxy.disabled", true, values("true", "false")},
	{"cluster.proxy.mode", true, values("iptables", "nftables")},
	{"cluster.proxy.extraArgs", true, values("{metrics-bind-address: '0.0.0.0:10249'}", "{ipvs-strict-arp: 'true'}",
		"{nodeport-addresses: '192.0.2.0/24,2001:db8::/64', v: '4'}",
		"{conntrack-tcp-be-liberal: 'true', kube-api-qps: '5.5'}")},
	{"cluster.coreDNS.disabled", true, values("true", "false")},
	{"cluster.extraManifests", true, values("[https://manifests.example/a.yaml, https://manifests.example/b.yaml]")},
	{"cluster.inlineManifests", true, values("[{name: ns, contents: \"apiVersion: v1\\nkind: Namespace\\n\"}]")},
	{"cluster.allowSchedulingOnControlPlanes", true, values("true", "false")},
	{"cluster.etcd.advertisedSubnets", true, values("[192.0.2.0/24]")},
	{"cluster.adminKubeconfig.certLifetime", true, values("24h0m0s")},
	{"cluster.acceptedCAs", false, values("[{crt: " + base64.StdEncoding.EncodeToString([]byte(certificate)) + "}]")},
	{"cluster.discovery", false, values("{$patch: delete}")},
	{"machine.features.kubePrism", false, values("{$patch: delete}")},
	{"machine.features.hostDNS", false, values("{$patch: delete}")},
}

// patch is the text of a strategic merge patch with some fields, of which none is in used.
func (d *draw) patch(onlyControlPlanes, forAll bool, used map[string]bool) string {
	root := &yaml.Node{Kind: yaml.MappingNode}

	for range 1 + d.IntN(5) {
		one := fields[d.IntN(len(fields))]

		if isUsed(used, one.path) || one.controlPlane && !onlyControlPlanes && !forAll ||
			forAll && strings.HasPrefix(one.path, "cluster.etcd") {
			continue
		}

		used[one.path] = true

		var value yaml.Node
		if err := yaml.Unmarshal([]byte(one.value(d)), &value); err != nil {
			panic(err)
		}

		d.set(root, strings.Split(one.path, "."), value.Content[0])
	}

	if len(root.Content) == 0 {
		return ""
	}

	text, err := yaml.Marshal(root)
	if err != nil {
		panic(err)
	}

	return string(text)
}

// isUsed reports whether a field is, or what it is below or has below, or what Talos refuses beside it.
func isUsed(used map[string]bool, path string) bool {
	either := []string{"cluster.apiServer.extraArgs", "cluster.apiServer.authorizationConfig"}

	for other := range used {
		if slices.Contains(either, path) && slices.Contains(either, other) || strings.HasPrefix(path+".", other+".") ||
			strings.HasPrefix(other+".", path+".") {
			return true
		}
	}

	return false
}

// set puts a value below keys, in blocks or in braces, with comments.
func (d *draw) set(mapping *yaml.Node, keys []string, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == keys[0] {
			if len(keys) > 1 && mapping.Content[i+1].Kind == yaml.MappingNode {
				d.set(mapping.Content[i+1], keys[1:], value)
			}

			return
		}
	}

	key := &yaml.Node{Kind: yaml.ScalarNode, Value: keys[0]}
	if d.chance(20) && mapping.Style&yaml.FlowStyle == 0 {
		key.HeadComment = "# " + d.oneOf("why", "see the wiki", "do not touch", "key: value")
	}

	if len(keys) == 1 {
		if d.chance(60) {
			inBlocks(value)
		}

		mapping.Content = append(mapping.Content, key, value)

		return
	}

	below := &yaml.Node{Kind: yaml.MappingNode}
	if d.chance(10) {
		below.Style = yaml.FlowStyle
	}

	mapping.Content = append(mapping.Content, key, below)
	d.set(below, keys[1:], value)
}

func inBlocks(node *yaml.Node) {
	node.Style &^= yaml.FlowStyle
	for _, child := range node.Content {
		inBlocks(child)
	}
}

// list is a list of patches, each as a text of one of YAML's forms, or as a file.
func (d *draw) list(indent string, onlyControlPlanes, forAll bool, used map[string]bool) string {
	var out strings.Builder

	for range d.IntN(3) {
		text := d.patch(onlyControlPlanes, forAll, used)

		switch {
		case text == "":
		case d.chance(25):
			d.files++
			name := fmt.Sprintf("patch-%d.yaml", d.files)

			if err := os.WriteFile(filepath.Join(d.folder, name), []byte(text), 0o600); err != nil {
				panic(err)
			}

			d.text += "# " + name + ":\n# " + strings.ReplaceAll(text, "\n", "\n# ") + "\n"
			out.WriteString(indent + "  - '@./" + name + "'\n")
		case d.chance(10):
			out.WriteString(indent + "  - " + quoted(text) + "\n")
		default:
			out.WriteString(indent + "  - " + d.oneOf("|", "|-", "|+") + "\n")

			for line := range strings.Lines(text) {
				out.WriteString(indent + "    " + line)
			}
		}
	}

	if out.Len() == 0 {
		return ""
	}

	return indent + "patches:" + d.oneOf("", " # ours") + "\n" + out.String()
}

func quoted(text string) string {
	node := &yaml.Node{Kind: yaml.ScalarNode, Value: text, Style: yaml.DoubleQuotedStyle}

	data, err := yaml.Marshal(node)
	if err != nil {
		panic(err)
	}

	return strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", "\n          ")
}

func (d *draw) write(t *testing.T) {
	t.Helper()

	// What is set twice can mean other things by the order of the patches, which moves some of them: fields are drawn
	// once for each node.
	shared := map[string]bool{}

	var parts []string

	parts = append(parts, "clusterName: lab\n", "talosVersion: v1.14.1\n", "kubernetesVersion: v1.36.3\n",
		"endpoint: https://192.0.2.10:6443\n")

	if d.chance(30) {
		parts = append(parts, "cniConfig:\n  name: "+d.oneOf("none", "flannel")+"\n")
		shared["cluster.network.cni.name"] = true
	}

	if d.chance(30) {
		parts = append(parts, "allowSchedulingOnControlPlanes: "+d.oneOf("true", "false")+"\n")
		shared["cluster.allowSchedulingOnControlPlanes"] = true
	}

	if d.chance(20) {
		parts = append(parts, "clusterPodNets:\n  - 10.42.0.0/16\nclusterSvcNets: [10.43.0.0/16]\n")
	}

	global := d.list("", false, true, shared)
	group := d.list("  ", true, false, shared)
	workers := map[string]bool{}

	for path := range shared {
		workers[path] = true
	}

	workerGroup := d.list("  ", false, false, workers)

	var nodes strings.Builder

	nodes.WriteString("nodes:\n")

	for i := range 1 + d.IntN(2) {
		nodes.WriteString(d.node(fmt.Sprintf("cp%d", i+1), 11+i, true, shared))
	}

	for i := range d.IntN(2) {
		nodes.WriteString(d.node(fmt.Sprintf("w%d", i+1), 21+i, false, workers))
	}

	parts = append(parts, nodes.String(), global)

	if group != "" {
		parts = append(parts, "controlPlane:\n"+group)
	}

	if workerGroup != "" {
		parts = append(parts, "worker:\n"+workerGroup)
	}

	d.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })

	text := "# drawn\n" + strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), d.oneOf("", "\n"))
	d.text += text

	require.NoError(t, os.WriteFile(filepath.Join(d.folder, "talconfig.yaml"), []byte(text), 0o600))
}

func (d *draw) node(name string, host int, controlPlane bool, shared map[string]bool) string {
	used := map[string]bool{}
	for path := range shared {
		used[path] = true
	}

	text := fmt.Sprintf("  - hostname: %s\n    ipAddress: 192.0.2.%d\n    installDisk: %s\n", name, host,
		d.oneOf("/dev/sda", "/dev/disk/by-id/ata-a"))

	if controlPlane {
		text += "    controlPlane: true\n"
	}

	if d.chance(30) {
		text += "    nodeLabels: {zone.example/a: 'b'}\n"
	}

	if d.chance(20) && !used["machine.network.nameservers"] {
		text += "    nameservers:\n      - 192.0.2.54\n"
		used["machine.network.nameservers"] = true
	}

	if d.chance(20) {
		text += "    kernelModules:\n      - name: drbd\n"
	}

	return text + d.list("    ", controlPlane, false, used)
}

// writeProfile draws a profile. What its patches set twice could mean other things by their order.
func (d *draw) writeProfile(t *testing.T) {
	t.Helper()

	text := profileText
	if d.chance(50) {
		text = strings.Replace(text, "  vip: {interface: eth0, ip: 192.0.2.10}\n", "", 1)
	}

	if d.chance(30) {
		text = strings.Replace(text, "api_endpoint: 192.0.2.10", "api_endpoint: 192.0.2.10\n  nameservers: [192.0.2.53]", 1)
	}

	shared := map[string]bool{"machine.network.nameservers": true, "cluster.clusterName": true}
	patches := filepath.Join(d.folder, "out", "patches")
	require.NoError(t, os.MkdirAll(patches, 0o755))

	write := func(name string, onlyControlPlanes, forAll bool, used map[string]bool) {
		if patch := d.patch(onlyControlPlanes, forAll, used); patch != "" && d.chance(70) {
			d.text += "# " + name + "\n" + patch
			require.NoError(t, os.WriteFile(filepath.Join(patches, name+".yaml"), []byte(patch), 0o600))
		}
	}

	write("all", false, true, shared)

	workers := maps.Clone(shared)
	write("worker", false, false, workers)
	write("w1", false, false, workers)
	write("controlplane", true, false, shared)
	write("cp1", true, false, shared)

	d.text += text
	require.NoError(t, os.WriteFile(filepath.Join(d.folder, "cluster.yaml"), []byte(text), 0o600))
}
