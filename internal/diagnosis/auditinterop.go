package diagnosis

// What the interoperability profile of the audit finds: TM350 to TM379. An entry of severity OK is a suggestion:
// nothing is wrong without it.
const (
	HostDNSOff          ID = "TM350"
	HostDNSNotForwarded ID = "TM351"
	HostDNSBehindCilium ID = "TM352"
	ResolversDefault    ID = "TM353"
	ResolverIsHostDNS   ID = "TM354"
	ResolverSingle      ID = "TM355"
	ResolverFamily      ID = "TM356"
	CiliumBesideCNI     ID = "TM357"
	CiliumKubeProxy     ID = "TM358"
	CiliumIPAM          ID = "TM359"
	CiliumCgroup        ID = "TM360"
	CiliumAPIServer     ID = "TM361"
	CiliumCapabilities  ID = "TM362"
	CiliumValueMisspelt ID = "TM363"
	TimeSyncOff         ID = "TM364"
	TimeServersDefault  ID = "TM365"
	TimeServersNamed    ID = "TM366"
	EtcdMetricsOff      ID = "TM367"
	EtcdMetricsURL      ID = "TM368"
	EtcdMetricsOpen     ID = "TM369"
	EtcdMetricsDiffer   ID = "TM370"
	NodeLabelsNone      ID = "TM371"
	NodeLabelRefused    ID = "TM372"
	TopologyIncomplete  ID = "TM373"
	VMFirmware          ID = "TM374"
	VMProcessor         ID = "TM375"
	VMBallooning        ID = "TM376"
	VMDiskController    ID = "TM377"
	VMNetworkModel      ID = "TM378"
	VMResources         ID = "TM379"
)

// Sources and remedies that several entries share.
const (
	hostDNSPage = "Talos documentation, Host DNS; machinery config/types/v1alpha1/v1alpha1_types.go, " +
		"HostDNSConfig"
	ciliumPage             = "Talos documentation, Deploying Cilium CNI"
	etcdMetricsPage        = "Talos documentation, etcd metrics"
	proxmoxPage            = "Talos documentation, Proxmox"
	correctHelmValues      = "Correct the Helm values of Cilium, or the HelmRelease that has them."
	correctVirtualMachine  = "Change the VM in OpenTofu, or in Proxmox, while it is off; then start it again."
	nodeRestrictionSources = "kubernetes/kubernetes plugin/pkg/admission/noderestriction/admission.go and " +
		"staging/src/k8s.io/kubelet/pkg/apis/well_known_labels.go; siderolabs/talos " +
		"internal/app/machined/pkg/controllers/k8s/node_apply.go"
	ciliumHelmDefaultsSource = "; cilium/cilium install/kubernetes/cilium/values.yaml"
)

var interopEntries = []Entry{
	{
		ID: HostDNSOff, Title: "A node has no DNS cache of its own", Severity: Warning,
		Cause: "machine.features.hostDNS.enabled is not true. Configs of Talos 1.7 and newer have it; without it each " +
			"lookup of the node and of its containers goes to a name server, and resolveMemberNames has no effect.",
		Remedy: "Set machine.features.hostDNS.enabled to true.",
		Source: hostDNSPage,
	},
	{
		ID: HostDNSNotForwarded, Title: "CoreDNS does not ask the node's DNS cache", Severity: OK,
		Cause: "machine.features.hostDNS.forwardKubeDNSToHost is not true: CoreDNS forwards to the name servers " +
			"itself. The setting is a default of Talos 1.8 and newer. It must be off if Cilium masquerades in " +
			"eBPF without host routing.",
		Remedy: "Set machine.features.hostDNS.forwardKubeDNSToHost to true, unless something is in its way.",
		Source: hostDNSPage,
	},
	{
		ID: HostDNSBehindCilium, Title: "CoreDNS forwards to a DNS cache that Cilium cuts off", Severity: Warning,
		Cause: "With kubeProxyReplacement and bpf.masquerade Cilium routes in eBPF, past the host's stack. " +
			"Answers of the node's DNS cache at 169.254.116.108 then don't reach CoreDNS: names outside of the " +
			"cluster don't resolve in pods (i/o timeout in CoreDNS' log), since Cilium 1.16.5.",
		Remedy: "Set bpf.hostLegacyRouting to true in Cilium's values, or machine.features.hostDNS.forwardKubeDNSToHost " +
			"to false, or add 169.254.116.108/32 to the link lo.",
		Source: "siderolabs/talos#10002, #9200; cilium/cilium#36761, #36852; " + ciliumPage + ", known issues",
	},
	{
		ID: ResolversDefault, Title: "No name servers are configured", Severity: OK,
		Cause:  "The nodes use those from DHCP, and without DHCP 1.1.1.1 and 8.8.8.8.",
		Remedy: "Declare the name servers in machine.network.nameservers or a ResolverConfig document.",
		Source: "Talos documentation, Resolvers; machinery constants/constants.go, DefaultPrimaryResolver",
	},
	{
		ID: ResolverIsHostDNS, Title: "A name server is the node's own DNS cache", Severity: Warning,
		Cause:  "127.0.0.53 and 169.254.116.108 are where the node's DNS cache listens: it would ask itself.",
		Remedy: "Declare the servers that the cache should ask.",
		Source: "Talos documentation, Host DNS; machinery constants/constants.go, HostDNSAddress",
	},
	{
		ID: ResolverSingle, Title: "A node has one name server", Severity: OK,
		Cause: "While that server is down the node pulls no images, and can't resolve an endpoint that is a " +
			"name.",
		Remedy: "Add a second name server.",
		Source: "Talos documentation, Resolvers",
	},
	{
		ID: ResolverFamily, Title: "A node has no address to ask its name servers from", Severity: Warning,
		Cause:  "All name servers are IPv6, and the node's addresses are IPv4, or the other way round.",
		Remedy: "Name a server of the node's own address family.",
		Source: "RFC 4213, 2",
	},
	{
		ID: CiliumBesideCNI, Title: "Talos installs a CNI beside Cilium", Severity: Warning,
		Cause: "cluster.network.cni.name is not none: flannel, or the manifests of cni.urls, and Cilium both write a CNI " +
			"configuration into the nodes.",
		Remedy: "Set cluster.network.cni.name to none.",
		Source: ciliumPage,
	},
	{
		ID: CiliumKubeProxy, Title: "kube-proxy and Cilium don't agree on who serves Services", Severity: Warning,
		Cause: "With kubeProxyReplacement and a kube-proxy, both program the nodes. With neither, no Service " +
			"answers, including the API server's.",
		Remedy: "Set cluster.proxy.disabled to true together with kubeProxyReplacement, or neither.",
		Source: ciliumPage + "; Cilium documentation, Kubernetes without kube-proxy",
	},
	{
		ID: CiliumIPAM, Title: "Cilium gives pods addresses of another network", Severity: Warning,
		Cause: "ipam.mode is not kubernetes: Cilium takes pods' addresses from a pool of its own, 10.0.0.0/8 by default, " +
			"and cluster.network.podSubnets has no effect on pods.",
		Remedy: "Set ipam.mode to kubernetes.",
		Source: ciliumPage + ciliumHelmDefaultsSource,
	},
	{
		ID: CiliumCgroup, Title: "Cilium mounts cgroups that Talos has mounted", Severity: Warning,
		Cause: "Talos has cgroup v2 at /sys/fs/cgroup. By default Cilium mounts it again with a privileged helper, in a " +
			"place of its own.",
		Remedy: "Set cgroup.autoMount.enabled to false and cgroup.hostRoot to /sys/fs/cgroup.",
		Source: ciliumPage + "; machinery constants/constants.go, CgroupMountPath",
	},
	{
		ID: CiliumAPIServer, Title: "Cilium does not find the API server", Severity: Warning,
		Cause: "Without kube-proxy the Service of the API server is served by Cilium itself, which has to reach the API " +
			"server by another address first: KubePrism's, localhost:7445 on every node. At another port, or with KubePrism " +
			"off, nothing listens there on a worker.",
		Remedy: "Set k8sServiceHost to localhost and k8sServicePort to KubePrism's port, 7445, and " +
			"machine.features.kubePrism.enabled to true.",
		Source: ciliumPage + "; machinery constants/constants.go, DefaultKubePrismPort",
	},
	{
		ID: CiliumCapabilities, Title: "Cilium asks for a capability that Talos never gives", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "No container may load kernel modules on Talos. Cilium's chart asks for SYS_MODULE by default, " +
			"and its agent then does not start.",
		Remedy: "List securityContext.capabilities.ciliumAgent without SYS_MODULE.",
		Source: ciliumPage + ciliumHelmDefaultsSource,
	},
	{
		ID: CiliumValueMisspelt, Title: "A Helm value of Cilium is misspelt", Severity: Warning,
		Cause: "Helm's keys are case-sensitive, and Helm silently ignores keys that no template reads. The " +
			"chart's default then counts.",
		Remedy: correctHelmValues,
		Source: "Helm documentation, Values files" + ciliumHelmDefaultsSource,
	},
	{
		ID: TimeSyncOff, Title: "A node does not set its clock", Severity: Warning,
		Cause: "Certificates are valid by the clock. The others refuse a node whose clock is wrong, and nothing " +
			"corrects the clock.",
		Remedy: "Remove machine.time.disabled, or enabled: false from the TimeSyncConfig document.",
		Source: "Talos documentation, Time sync; siderolabs/talos#6493",
	},
	{
		ID: TimeServersDefault, Title: "The nodes' time server is Talos' default", Severity: OK,
		Cause: "No time servers are configured, so the nodes use time.cloudflare.com. That needs a name server " +
			"and the internet before etcd can start.",
		Remedy: "Name time servers of your own network, in machine.time.servers or a TimeSyncConfig document.",
		Source: "machinery constants/constants.go, DefaultNTPServer",
	},
	{
		ID: TimeServersNamed, Title: "All time servers are declared by name", Severity: OK,
		Cause:  "The first synchronisation of a boot then waits for a name server.",
		Remedy: "Add a time server by its address.",
		Source: "Talos documentation, Time sync",
	},
	{
		ID: EtcdMetricsOff, Title: "etcd offers no metrics", Severity: OK,
		Cause: "Without listen-metrics-urls etcd's metrics are behind client certificates, so monitoring does " +
			"not see the disk latency and the elections that decide the cluster's health.",
		Remedy: "Set cluster.etcd.extraArgs.listen-metrics-urls to http://0.0.0.0:2381 on the control planes, and shut " +
			"the port to others with the firewall documents.",
		Source: etcdMetricsPage,
	},
	{
		ID: EtcdMetricsURL, Title: "etcd can't listen at its metrics URL", Severity: Failure, Exit: ExitBadInput,
		Cause: "etcd takes URLs of http or https with an address, or localhost, without a path, and a port that is not " +
			"its own 2379 or 2380; with others it does not start.",
		Remedy: "Write it as http://0.0.0.0:2381.",
		Source: etcdMetricsPage + "; etcd-io/etcd client/pkg/types/urls.go, server/embed/config.go",
	},
	{
		ID: EtcdMetricsOpen, Title: "Anybody can read etcd's metrics", Severity: OK,
		Cause: "The metrics are served without TLS or credentials at every address of the node. etcd's " +
			"advertisedSubnets select the addresses that it advertises, not where it listens.",
		Remedy: "Let a NetworkRuleConfig document open the port to those that read it, with NetworkDefaultActionConfig " +
			"ingress: block.",
		Source: etcdMetricsPage + "; Talos documentation, Ingress firewall",
	},
	{
		ID: EtcdMetricsDiffer, Title: "Some control planes offer etcd's metrics and others don't", Severity: Warning,
		Cause:  "Alerts on the members that are not read never fire.",
		Remedy: "Give all control planes the same cluster.etcd.extraArgs.",
		Source: etcdMetricsPage,
	},
	{
		ID: NodeLabelsNone, Title: "Nodes have no topology labels", Severity: OK,
		Cause: "Without topology.kubernetes.io/zone and region pods can't be spread over hosts that fail " +
			"together, and storage does not know where a node is. A cloud controller manager may set them later.",
		Remedy: "Set machine.nodeLabels, unless a cloud controller manager does it.",
		Source: "Talos documentation, Node labels; kubernetes.io, Well-known labels",
	},
	{
		ID: NodeLabelRefused, Title: "A worker sets a label that Kubernetes does not let it set", Severity: Warning,
		Cause: "A worker writes its labels as its own kubelet, and NodeRestriction allows a kubelet few labels " +
			"of kubernetes.io and k8s.io. The whole write is refused, so the node's other labels, annotations " +
			"and taints are not set either. Control planes write theirs as an administrator.",
		Remedy: "Use a label of your own domain, or set it with kubectl label node.",
		Source: nodeRestrictionSources,
	},
	{
		ID: TopologyIncomplete, Title: "Some nodes have a topology label and others don't", Severity: Warning,
		Cause:  "Pods that are spread by a label never run on nodes without it.",
		Remedy: "Give every node the label.",
		Source: "kubernetes.io, Pod topology spread constraints",
	},
	{
		ID: VMFirmware, Title: "A VM's firmware or guest agent does not fit its Talos image", Severity: Warning,
		Cause: "Talos should boot with UEFI (OVMF). A SecureBoot image boots only that way, and can enroll its " +
			"keys only on an EFI disk without Microsoft's. If the guest agent is switched on in the VM but is " +
			"not in the image, it never answers: OpenTofu and Proxmox wait for it until they give up.",
		Remedy: correctVirtualMachine + " Make the EFI disk again, without pre-enrolled keys.",
		Source: proxmoxPage + "; Talos documentation, SecureBoot",
	},
	{
		ID: VMProcessor, Title: "A VM's machine or processor model does not suit Talos", Severity: Warning,
		Cause: "Talos needs x86-64-v2, which the processor types kvm64 and qemu64 lack; with those it stops " +
			"before maintenance mode. The documented types are q35 and host.",
		Remedy: correctVirtualMachine,
		Source: proxmoxPage + "; Talos documentation, System requirements; siderolabs/talos discussion 6313",
	},
	{
		ID: VMBallooning, Title: "A VM's memory changes while it runs", Severity: Warning,
		Cause: "Talos does not take part in ballooning or memory hotplug: with a balloon the host may reclaim memory that " +
			"Kubernetes has given to pods, and with hotplug of memory " +
			"Talos sees too little of it to install.",
		Remedy: "Set balloon, memory.floating in the bpg provider, to 0, and leave memory out of hotplug.",
		Source: proxmoxPage,
	},
	{
		ID: VMDiskController, Title: "A VM has a disk controller that Talos has trouble with", Severity: Warning,
		Cause:  "With VirtIO SCSI single the bootstrap was seen to hang; other controllers are emulated and slow.",
		Remedy: "Use VirtIO SCSI, virtio-scsi-pci.",
		Source: "siderolabs/talos#11173; " + proxmoxPage,
	},
	{
		ID: VMNetworkModel, Title: "A VM's network card is emulated", Severity: Warning,
		Cause: "Other models than virtio cost the host time on every packet, and offloads of some lose packets of " +
			"overlay networks.",
		Remedy: "Use the model virtio.",
		Source: proxmoxPage,
	},
	{
		ID: VMResources, Title: "A VM has less than Talos asks for", Severity: Warning,
		Cause: "The least is 2 cores and 2 GiB for a control plane, 1 core and 1 GiB for a worker; with less " +
			"the kernel ends etcd or the API server. On Proxmox 2 cores and 4 GiB are recommended for a control " +
			"plane, 4 cores and 8 GiB for a worker. Less than that is only a suggestion.",
		Remedy: correctVirtualMachine,
		Source: proxmoxPage + " and System requirements; siderolabs/talos pkg/minimal/limits.go",
	},
}
