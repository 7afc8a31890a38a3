package diagnosis

// What the audit finds about firewall documents: TM330 to TM339.
const (
	FirewallOperator   ID = "TM330"
	FirewallEtcd       ID = "TM331"
	FirewallKubernetes ID = "TM332"
	FirewallTrustd     ID = "TM333"
	FirewallKubelet    ID = "TM334"
	FirewallTalos      ID = "TM335"
	FirewallTunnel     ID = "TM336"
	FirewallRuleEmpty  ID = "TM337"
	FirewallEtcdHTTP   ID = "TM338"
)

const firewallSource = "Talos documentation, Ingress Firewall; siderolabs/talos " +
	"internal/app/machined/pkg/controllers/network/nftables_chain_config.go"

var firewallEntries = []Entry{
	{
		ID: FirewallOperator, Title: "A node's firewall shuts out the operator", Severity: Failure, Exit: ExitBadInput,
		Cause: "Talos' API is on port 50000. With rules that let nobody in there, the node can't be asked, " +
			"changed or repaired once it has its config. It is a warning if others are let in, but not the " +
			"address that this computer calls from.",
		Remedy: "Add the operator's subnet to a NetworkRuleConfig for port 50000.",
		Source: firewallSource,
	},
	{
		ID: FirewallEtcd, Title: "A control plane's firewall shuts out etcd's other members", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "The members of etcd join through port 2379 and talk to each other on 2380: a control plane that " +
			"is shut out waits forever to join. It is a warning if DHCP or a router may give the other node " +
			"another address.",
		Remedy: "Add the control planes' addresses to a NetworkRuleConfig for the ports 2379-2380.",
		Source: firewallSource,
	},
	{
		ID: FirewallKubernetes, Title: "A control plane's firewall shuts nodes out of the Kubernetes API", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Every node's kubelet needs the Kubernetes API (port 6443) to register. It is a warning if there " +
			"is a balancer in front, or if addresses are in no file.",
		Remedy: "Add the nodes' subnet to a NetworkRuleConfig for port 6443.",
		Source: firewallSource,
	},
	{
		ID: FirewallTrustd, Title: "A control plane's firewall shuts workers out of trustd", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "A worker gets the certificate of its API from a control plane's trustd (port 50001). Without it " +
			"the worker never opens its API. It is a warning if there is a balancer in front, or if addresses " +
			"are in no file.",
		Remedy: "Add the workers' subnet to a NetworkRuleConfig for port 50001 on the control planes.",
		Source: firewallSource,
	},
	{
		ID: FirewallKubelet, Title: "A node's firewall shuts control planes out of its kubelet", Severity: Warning,
		Cause: "The Kubernetes API reads logs and runs commands through the kubelet (port 10250): without it kubectl " +
			"logs and exec, and metrics, fail on the node.",
		Remedy: "Add the control planes' addresses to a NetworkRuleConfig for port 10250.",
		Source: firewallSource,
	},
	{
		ID: FirewallTalos, Title: "A node's firewall shuts out control planes that forward Talos calls", Severity: Warning,
		Cause: "talosctl asks its endpoints, the control planes, which then call the node itself on port 50000. " +
			"They are shut out, so the node can only be called directly.",
		Remedy: "Add the control planes' addresses to the NetworkRuleConfig for port 50000.",
		Source: firewallSource,
	},
	{
		ID: FirewallTunnel, Title: "A node's firewall shuts out the tunnels between nodes", Severity: Warning,
		Cause: "Pods of different nodes talk through Flannel's tunnel (UDP port 4789), and with KubeSpan " +
			"everything between nodes goes through WireGuard (UDP port 51820): if these are shut out, nodes are " +
			"Ready but their pods don't reach each other.",
		Remedy: "Add the nodes' subnet to a NetworkRuleConfig for that port, with protocol udp.",
		Source: firewallSource,
	},
	{
		ID: FirewallRuleEmpty, Title: "A firewall rule lets nobody in", Severity: Warning,
		Cause: "Where the default is to block, a rule opens its ports to its ingress subnets. One without subnets, or " +
			"with exceptions that cover them, opens nothing.",
		Remedy: "Add the subnets that are meant, or take the rule out.",
		Source: firewallSource,
	},
	{
		ID: FirewallEtcdHTTP, Title: "A firewall rule for etcd's port does not have the one that its metrics moved to",
		Severity: Warning,
		Cause: "Since Talos 1.14 etcd serves /metrics and /health on port 2383, and no longer on 2379. Where the default " +
			"is to block, whoever was let in at 2379 to read metrics is shut out at 2383. Where it is to accept, and a rule " +
			"guards 2379, port 2383 is open to everybody.",
		Remedy: "Add port 2383 to the rule, or to one of its own.",
		Source: "Talos documentation, what's new in 1.14, etcd; siderolabs/talos v1.14.1 " +
			"internal/app/machined/pkg/system/services/etcd.go",
	},
}
