package files_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

const blocking = "kind: NetworkDefaultActionConfig\ningress: block"

// opens is a document of a rule for ports of a protocol.
func opens(name, ports, protocol string, subnets ...string) string {
	text := "kind: NetworkRuleConfig\nname: " + name + "\nportSelector:\n\tports: [" + ports + "]\n\tprotocol: " +
		protocol + "\ningress:"
	if len(subnets) == 0 {
		return text + " []"
	}

	return text + "\n\t- subnet: " + strings.Join(subnets, "\n\t- subnet: ")
}

// walled is a node of a role with a static address and firewall documents.
func walled(role, address string, rules ...string) config {
	return config{role: role,
		documents: append([]string{"kind: LinkConfig\nname: eth0\naddresses:\n\t- address: " + address}, rules...)}
}

// everything is let in by these.
var everything = []string{
	blocking, opens("talos", "50000-50001", "tcp", "192.0.2.0/24"),
	opens("kubernetes", "6443, 10250", "tcp", "192.0.2.0/24"),
	opens("etcd", "2379-2380", "tcp", "192.0.2.0/24"), opens("pods", "4789", "udp", "192.0.2.0/24"),
}

// without are all of them but some, by name.
func without(names ...string) []string {
	var rules []string

	for _, rule := range everything {
		keep := true
		for _, name := range names {
			keep = keep && !strings.Contains(rule, "name: "+name+"\n")
		}

		if keep {
			rules = append(rules, rule)
		}
	}

	return rules
}

// walledLab are two control planes and a worker behind the same rules.
func walledLab(rules ...string) files {
	return lab(walled("", "192.0.2.11/24", rules...), walled("", "192.0.2.12/24", rules...),
		walled("worker", "192.0.2.13/24", rules...)).
		replaced("talconfig.yaml", "https://192.0.2.10:6443", "https://192.0.2.11:6443")
}

func TestFirewallsThatShutTheOperatorOut(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.FirewallOperator, map[string]trial{
		"no rule": {files: walledLab(without("talos")...), line: "ingress: block",
			cause: "n1 lets nobody into the Talos API (50000/tcp)", severity: diagnosis.Failure},
		"other port": {files: walledLab(append(without("talos"), opens("talos", "50001-50010", "tcp", "0.0.0.0/0"))...),
			cause: "nobody"},
		"other protocol": {files: walledLab(append(without("talos"), opens("talos", "50000", "udp", "0.0.0.0/0"))...),
			cause: "nobody"},
		"no subnet": {files: walledLab(append(without("talos"), opens("talos", "50000", "tcp"))...), line: "ingress: []",
			cause: "nobody"},
		"open, closed": {files: walledLab(opens("talos", "50000", "tcp", "192.0.2.0/24"),
			opens("more", "50000", "tcp", "2001:db8::/32")), cause: "nobody"},
		"worker": {files: lab(config{},
			walled("worker", "192.0.2.12/24", blocking, "kind: KubeSpanConfig\nenabled: true")), cause: "n2 lets nobody",
			severity: diagnosis.Warning},
		"everything": {files: walledLab(everything...)},
		"IPv6":       {files: walledLab(append(without("talos"), opens("talos", "50000", "tcp", "2001:db8::/32"))...)},
		"by default": {files: walledLab(opens("web", "80", "tcp", "192.0.2.0/24"))},
		"SideroLink": {files: lab(walled("", "192.0.2.11/24", blocking,
			"kind: SideroLinkConfig\napiUrl: https://siderolink.example.net/join"))},
	})
}

func TestWhereThisComputerCallsFrom(t *testing.T) {
	t.Parallel()

	judged := func(from string) []diagnosis.Finding {
		folder := walledLab(everything...).write(t)

		result := table.Run(t.Context(), check.Read(check.Options{
			TalosDir: folder, Root: folder, Checks: check.Settings{Now: time.Now()},
			CallsFrom: func(netip.Addr) netip.Addr {
				addr, _ := netip.ParseAddr(from)

				return addr
			},
		}))

		return findingsOf(result, diagnosis.FirewallOperator)
	}

	found := judged("198.51.100.7")
	require.Len(t, found, 3)
	require.Equal(t, diagnosis.Warning, found[0].Severity)
	require.Contains(t, found[0].Cause, "does not let 198.51.100.7, which this computer calls it from, into the Talos API")
	require.Contains(t, found[0].At.Text, "ingress:")

	require.Empty(t, judged("192.0.2.200"))
	require.Empty(t, judged("127.0.0.1"), "the node is this computer's own")
	require.Empty(t, judged(""), "nobody knows")

	require.Equal(t, netip.MustParseAddr("127.0.0.1"), check.CallsFrom(netip.MustParseAddr("127.0.0.1")))
}

func TestFirewallsThatShutOtherNodesOut(t *testing.T) {
	t.Parallel()

	// only lets one address into ports.
	only := func(name, ports, protocol string, subnets ...string) files {
		return walledLab(append(without(name), opens(name, ports, protocol, subnets...))...)
	}
	learning := walledLab(without("etcd")...).with("clusterconfig/lab-n2.yaml", config{}.text())
	six := []string{blocking, opens("etcd", "2379-2380", "tcp", "192.0.2.0/24")}

	judge(t, diagnosis.FirewallEtcd, map[string]trial{
		"no rule": {files: walledLab(without("etcd")...), line: "ingress: block",
			cause:    "n1 lets n2 (192.0.2.12) into etcd (2379/tcp) from none of the addresses in the files",
			severity: diagnosis.Failure},
		"peers only": {files: only("etcd", "2379", "tcp", "192.0.2.0/24"), cause: "(2380/tcp)"},
		"another net": {files: only("etcd", "2379-2380", "tcp", "198.51.100.0/24"), line: "ingress:",
			cause: "n2 (192.0.2.12)"},
		"open default": {files: walledLab(opens("etcd", "2379-2380", "tcp", "192.0.2.11/32")), cause: "n1 lets n2"},
		"IPv6": {files: lab(walled("", "2001:db8::11/64", six...),
			walled("", "2001:db8::12/64", six...)).replaced("talconfig.yaml", "192.0.2.1", "2001:db8::1"), cause: "2001:db8::12",
			severity: diagnosis.Warning},
		"DHCP": {files: learning, cause: "n2 (192.0.2.12)", severity: diagnosis.Warning},
		"Tailscale": {files: only("etcd", "2379-2380", "tcp", "100.64.0.0/10"), cause: "n2 (192.0.2.12)",
			severity: diagnosis.Warning},
		"extension": {files: walledLab(append(without("etcd"),
			"kind: ExtensionServiceConfig\nname: tailscale\nenvironment:\n\t- TS_STATE_DIR=/var/lib/tailscale")...),
			cause: "n2 (192.0.2.12)", severity: diagnosis.Warning},
		"each other": {files: only("etcd", "2379-2380", "tcp", "192.0.2.11/32", "192.0.2.12/32")},
		"alone":      {files: lab(walled("", "192.0.2.11/24", without("etcd")...), walled("worker", "192.0.2.12/24"))},
		"KubeSpan":   {files: walledLab(append(without("etcd"), "kind: KubeSpanConfig\nenabled: true")...)},
	})

	judge(t, diagnosis.FirewallKubernetes, map[string]trial{
		"no rule": {files: walledLab(without("kubernetes")...), line: "ingress: block",
			cause: "n1 lets n2 (192.0.2.12), n3 (192.0.2.13) into the Kubernetes API (6443/tcp)", severity: diagnosis.Failure},
		"one left": {files: only("kubernetes", "6443", "tcp", "192.0.2.8/30", "192.0.2.12/32"), line: "ingress:",
			cause: "n1 lets n3 (192.0.2.13)"},
		"except": {files: walledLab(append(without("kubernetes"),
			opens("kubernetes", "6443", "tcp", "192.0.2.0/24\n\t\texcept: 192.0.2.13/32"))...), cause: "n1 lets n3"},
		"balancer": {files: walledLab(without("kubernetes")...).replaced("talconfig.yaml", "https://192.0.2.11:6443",
			"https://api.example.net:6443"), cause: "n3", severity: diagnosis.Warning},
		"own port": {files: lab(walled("", "192.0.2.11/24", everything...),
			walled("worker", "192.0.2.12/24")).replaced("clusterconfig/lab-n1.yaml", "cluster:\n",
			"cluster:\n  apiServer:\n    image: registry.example.net/kube-apiserver:v1.36.0\n").replaced(
			"clusterconfig/lab-n1.yaml", "  controlPlane:\n", "  controlPlane:\n    localAPIServerPort: 7443\n"),
			cause: "7443/tcp"},
		"no firewall": {files: walledLab()},
		"everything":  {files: walledLab(everything...)},
	})

	judge(t, diagnosis.FirewallTrustd, map[string]trial{
		"no rule": {files: only("talos", "50000", "tcp", "192.0.2.0/24"),
			cause: "n1 lets n3 (192.0.2.13) into trustd (50001/tcp)", severity: diagnosis.Failure},
		"control planes": {files: only("talos", "50000-50001", "tcp", "192.0.2.8/30", "192.0.2.12/32"), line: "ingress:",
			cause: "n3"},
		"IPv6 only":  {files: only("talos", "50001", "tcp", "::/0"), cause: "n3 (192.0.2.13)"},
		"everything": {files: walledLab(everything...)},
	})

	judge(t, diagnosis.FirewallKubelet, map[string]trial{
		"no rule": {files: only("kubernetes", "6443", "tcp", "192.0.2.0/24"),
			cause: "n1 lets n2 (192.0.2.12) into the kubelet (10250/tcp)", severity: diagnosis.Warning},
		"worker": {files: lab(walled("", "192.0.2.11/24"),
			walled("worker", "192.0.2.12/24", without("kubernetes")...)), line: "ingress: block", cause: "n2 lets n1"},
		"IPv6 only":      {files: only("kubernetes", "10250", "tcp", "::/0"), line: "ingress:", cause: "10250"},
		"control planes": {files: only("kubernetes", "10250", "tcp", "192.0.2.11/32", "192.0.2.12/32")},
	})

	judge(t, diagnosis.FirewallTalos, map[string]trial{
		"operator only": {files: only("talos", "50000", "tcp", "198.51.100.0/24"), line: "ingress:",
			cause: "n1 lets n2 (192.0.2.12) into the Talos API (50000/tcp)", severity: diagnosis.Warning},
		"worker": {files: lab(walled("", "192.0.2.11/24"), walled("worker", "192.0.2.12/24", blocking)),
			cause: "n2 lets n1"},
		"IPv6 only":  {files: only("talos", "50000", "tcp", "::/0"), cause: "50000"},
		"everything": {files: walledLab(everything...)},
	})

	judge(t, diagnosis.FirewallTunnel, map[string]trial{
		"Flannel": {files: walledLab(without("pods")...), line: "ingress: block",
			cause: "n1 lets n2 (192.0.2.12), n3 (192.0.2.13) into the tunnel (4789/udp)", severity: diagnosis.Warning},
		"KubeSpan": {files: walledLab(append(everything, "kind: KubeSpanConfig\nenabled: true")...), cause: "51820/udp"},
		"TCP":      {files: only("pods", "4789", "tcp", "192.0.2.0/24"), cause: "4789/udp"},
		"other CNI": {files: walledLab(without("pods")...).replaced("clusterconfig/lab-n1.yaml", "cluster:\n",
			"cluster:\n  network:\n    cni:\n      name: none\n").with("clusterconfig/lab-n2.yaml",
			config{}.text()).with("clusterconfig/lab-n3.yaml", config{role: "worker"}.text())},
		"everything": {files: walledLab(everything...)},
	})
}

func TestFirewallRulesThatOpenNothing(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.FirewallRuleEmpty, map[string]trial{
		"no subnets": {files: walledLab(append(everything, opens("web", "80", "tcp"))...), line: "ingress: []",
			cause: "the rule web lets nobody in"},
		"covered": {files: walledLab(append(everything,
			opens("web", "80", "tcp", "192.0.2.0/24\n\t\texcept: 192.0.0.0/16"))...), line: "ingress:", cause: "web"},
		"IPv6": {files: walledLab(append(everything,
			opens("web", "80", "tcp", "2001:db8::/64\n\t\texcept: 2001:db8::/64"))...), cause: "web"},
		"in part": {files: walledLab(append(everything,
			opens("web", "80", "tcp", "192.0.2.0/24\n\t\texcept: 192.0.2.0/25"))...)},
		"to close": {files: walledLab(opens("web", "80", "tcp"))},
	})
}
