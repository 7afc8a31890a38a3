package diagnosis

// What preflight finds. The same id stands for a passed check (severity OK) and for the trouble that it looks for.
const (
	ConfigInvalid          ID = "TM040"
	ConfigRefusedHere      ID = "TM041"
	InstallHidden          ID = "TM042"
	TalosVersionMismatch   ID = "TM044"
	KubernetesUnsupported  ID = "TM045"
	InstallDiskNoMatch     ID = "TM046"
	InstallDiskAmbiguous   ID = "TM047"
	InstallDiskAbsent      ID = "TM048"
	InstallDiskHoldsData   ID = "TM049"
	AlreadyInstalled       ID = "TM050"
	InstallerReference     ID = "TM051"
	InstallerVersion       ID = "TM052"
	InstallerSecureBoot    ID = "TM053"
	LinkAbsent             ID = "TM054"
	LinkDeclaredTwice      ID = "TM055"
	TPMUnsealed            ID = "TM056"
	KernelArgsIgnored      ID = "TM057"
	WrongMachine           ID = "TM058"
	FactUnread             ID = "TM059"
	AddressInClusterSubnet ID = "TM060"
	NodeIPExcluded         ID = "TM061"
	VIPOutsideSubnet       ID = "TM062"
	VIPTaken               ID = "TM063"
	VIPForeign             ID = "TM064"
	EndpointUnusable       ID = "TM065"
	EndpointElsewhere      ID = "TM066"
	HostnameInvalid        ID = "TM067"
	HostnameNotUnique      ID = "TM068"
	TalosconfigEndpoint    ID = "TM069"
	ClientCertificate      ID = "TM072"
	EvenControlPlanes      ID = "TM073"
	NameUnresolved         ID = "TM074"
	NameAmbiguous          ID = "TM075"
	NameNotCertified       ID = "TM076"
	ThroughProxy           ID = "TM077"
	IdentityUnread         ID = "TM078"
	ClientRefused          ID = "TM079"
)

var preflightEntries = []Entry{
	{
		ID:       ConfigInvalid,
		Title:    "The machine config is not valid",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause:    "Talos' own validation refuses the file for every machine. A node would refuse it too.",
		Remedy:   "Correct the inventory or its patches, generate the configs again and rerun preflight.",
		Source:   "machinery config/types/v1alpha1/v1alpha1_validation.go; siderolabs/talos#8134",
	},
	{
		ID:       ConfigRefusedHere,
		Title:    "The node would refuse this machine config",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause: "Some rules depend on the machine: a bare machine without Talos on a disk needs an install section, " +
			"and there " +
			"install.extraKernelArgs and install.grubUseUKICmdline exclude each other.",
		Remedy: "Correct the inventory or its patches, generate the configs again and rerun preflight.",
		Source: "machinery config/types/v1alpha1/v1alpha1_validation.go, RuntimeValidate; siderolabs/talos#10315",
	},
	{
		ID:       InstallHidden,
		Title:    "A failed install would stay hidden",
		Severity: Warning,
		Cause: "A host name of `auto: stable` is made from what Talos keeps on its disk, and without a host name there is no " +
			"certificate for the API: port 50000 stays closed until the install is done. With an UnattendedInstallConfig a " +
			"node tries again for ever, and never comes back to maintenance mode: nothing but its console tells why, and a " +
			"corrected config reaches it only after it was turned off and on.",
		Remedy: "Give the node a host name of its own for the install; or have an eye on its console.",
		Source: "Talos v1.14.1: internal/app/machined/pkg/controllers/cluster/node_identity.go",
	},
	{
		ID:       TalosVersionMismatch,
		Title:    "The machine config is made for another Talos version than the node runs",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause: "A machine config made for a newer minor version has keys and documents that the running Talos does not " +
			"know, so it " +
			"refuses the whole file; so does a machine that was booted from an older image, whatever its installer is. One " +
			"made for an older minor version is accepted, but new defaults are missing: a warning. Patch levels don't matter.",
		Remedy: "Boot the node from an image of the version that the config is made for; or lower talosVersion, or the " +
			"contract alone (TALOS_CONTRACT), and generate the configs again.",
		Source: "cozystack/talm#132, siderolabs/terraform-provider-talos#304",
	},
	{
		ID:       KubernetesUnsupported,
		Title:    "This Kubernetes version does not go with this Talos version",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause:    "Each Talos minor version runs a range of Kubernetes versions and refuses configs outside of it.",
		Remedy:   "Set a kubernetesVersion from the range, or boot and install a newer Talos.",
		Source:   "machinery compatibility/kubernetes_version.go; siderolabs/talos#11198",
	},
	{
		ID:       InstallDiskNoMatch,
		Title:    "The install disk selector matches no disk",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause: "The selector's conditions rule out every disk of the node. Talos adds three of its own: the " +
			"disk has a transport, is not read-only, and is not a CD-ROM.",
		Remedy: "Correct the selector with the values of the table, and generate the configs again.",
		Source: "siderolabs/talos#10315, #6175",
	},
	{
		ID:       InstallDiskAmbiguous,
		Title:    "The install disk selector matches several disks",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause:    "Talos takes the first match without asking, and wipes it.",
		Remedy: "Make the selector match one disk (a serial number does), or accept the marked disk with " +
			"-allowAmbiguousDisk.",
		Source: "siderolabs/talos#12370, #11255",
	},
	{
		ID:       InstallDiskAbsent,
		Title:    "The install disk does not exist on the node",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause: "The node accepts a config that names a missing disk, fails to install, and comes back in maintenance " +
			"mode without a trace.",
		Remedy: "Name a disk of the table, and generate the configs again.",
		Source: "siderolabs/talos#9647, cozystack/talm#34",
	},
	{
		ID:       InstallDiskHoldsData,
		Title:    "The install disk holds data",
		Severity: Warning,
		Cause:    "Talos repartitions the install disk without asking. Everything on it is lost.",
		Remedy:   "Make sure that it is the right disk.",
		Source:   "siderolabs/talos#12370",
	},
	{
		ID:       AlreadyInstalled,
		Title:    "Talos is already on a disk of the node",
		Severity: Warning,
		Cause: "A node in maintenance mode that has Talos on a disk takes a config without installing again: its " +
			"install section is ignored.",
		Remedy: "Nothing, if that disk is the right one. Otherwise wipe it before the node gets its config.",
		Source: "siderolabs/talos#13814, #14228, siderolabs/sbc-raspberrypi#35",
	},
	{
		ID:       InstallerReference,
		Title:    "The installer image's reference is broken",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause: "An image factory reference needs a schematic id of 64 hexadecimal digits and a tag like v1.13.9. The " +
			"installer of ghcr.io/siderolabs is published up to Talos 1.13; a mirror's copy of a newer one is a warning. The " +
			"apply would succeed, and the node would fail much later, while pulling.",
		Remedy: "Correct talosImageURL, or the schematic that it comes from, and generate the configs again.",
		Source: "onedr0p/cluster-template#1398, siderolabs/talos#7170; Talos documentation, what's new in 1.14, Default " +
			"Installer Image",
	},
	{
		ID:       InstallerVersion,
		Title:    "The installer image's version is not the declared Talos version",
		Severity: Warning,
		Cause:    "The node will run the version of the installer image's tag, whatever talosVersion says.",
		Remedy:   "Generate the configs again after talosVersion or the image was changed.",
		Source:   "siderolabs/talos Upgrading Talos Linux, documentation",
	},
	{
		ID:       InstallerSecureBoot,
		Title:    "The installer image and the node's SecureBoot state don't go together",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause: "A SecureBoot machine does not boot what an ordinary installer writes, and the installer for SecureBoot " +
			"fails, or writes a " +
			"disk that is never unlocked, on a machine without it.",
		Remedy: "Use an installer image with -secureboot in its name for SecureBoot machines, and only for them.",
		Source: "siderolabs/talos#12152, #9482, budimanjojo/talhelper#304",
	},
	{
		ID:       LinkAbsent,
		Title:    "The machine config names a link that the node does not have",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause: "Talos can't validate link names: the apply succeeds and the node never answers at its address again. " +
			"Names depend on the " +
			"kernel argument net.ifnames, so a node that booted with other arguments than its image will have shows other " +
			"names: then it is a warning.",
		Remedy: "Use a name of the node's list or, better, select the link by its MAC address.",
		Source: "siderolabs/terraform-provider-talos#267, siderolabs/talos#8640, #10585",
	},
	{
		ID:       LinkDeclaredTwice,
		Title:    "A link is configured both in machine.network.interfaces and in a document of its own",
		Severity: Warning,
		Cause:    "Talos accepts both and merges them in a way that is easy to get wrong.",
		Remedy:   "Keep one of the two.",
		Source:   "cozystack/talm#232",
	},
	{
		ID:       TPMUnsealed,
		Title:    "Disk encryption with a TPM key on a machine without SecureBoot",
		Severity: Warning,
		Cause: "TPM keys are sealed against what a SecureBoot image with a UKI measures. Without them the node may " +
			"install and then never " +
			"come back, because its disk stays locked.",
		Remedy: "Enable SecureBoot and boot a -secureboot image, or use another kind of key.",
		Source: "siderolabs/talos#9415, #8995, #10205",
	},
	{
		ID:       KernelArgsIgnored,
		Title:    "install.extraKernelArgs will be ignored",
		Severity: Warning,
		Cause: "A machine that boots a unified kernel image takes the kernel arguments from the image, not from the " +
			"machine config.",
		Remedy: "Put the arguments into the image's schematic.",
		Source: "siderolabs/talos#10519, #10339, budimanjojo/talhelper#1000",
	},
	{
		ID:       WrongMachine,
		Title:    "Another machine answers at the node's address",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause: "The MAC addresses or the UUID that the files declare for the node, or that a search found for it, are not " +
			"those of the machine that answers: often DHCP gave the address away.",
		Remedy: "Have the node's machine looked for: mage discover -save. Or pass NODE_ADDRESSES, or correct the declared " +
			"addresses.",
		Source:      "siderolabs/talos#7872, #8714",
		Unskippable: true,
	},
	{
		ID:       FactUnread,
		Title:    "Something could not be read from the node, so its check was left out",
		Severity: Warning,
		Cause:    "The node refused a read or did not answer in time.",
		Remedy:   "Run preflight again; if it stays, look at the node's console.",
		Source:   "siderolabs/talos internal/app/resources/access.go",
	},
	{
		ID:       AddressInClusterSubnet,
		Title:    "An address of a machine lies in the pod or service subnets",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause: "Talos leaves out node addresses that lie in the pod or service subnets: etcd then waits forever " +
			"for its address. The default service subnet 10.96.0.0/12 reaches up to 10.111.255.255.",
		Remedy: "Choose other clusterPodNets or clusterSvcNets before the cluster exists; they can't be changed later.",
		Source: "siderolabs/talos#8882, #6205, siderolabs/sidero#1033",
	},
	{
		ID:       NodeIPExcluded,
		Title:    "kubelet.nodeIP.validSubnets leaves out every address of the node",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause:    "The kubelet finds no suitable address and does not start.",
		Remedy:   "Put the node's own subnet into machine.kubelet.nodeIP.validSubnets.",
		Source:   "siderolabs/talos#8882, #7947",
	},
	{
		ID:       VIPOutsideSubnet,
		Title:    "The VIP lies outside a control plane's subnet",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause:    "The VIP is announced on the local network: a control plane in another subnet can't take it over.",
		Remedy:   "Choose a free address of the subnet that all control planes share.",
		Source:   "Talos documentation, Virtual (shared) IP",
	},
	{
		ID:       VIPTaken,
		Title:    "The VIP is the address of something else",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause:    "The VIP is the address of a node or of a gateway: two machines would claim it.",
		Remedy:   "Choose a free address of the control planes' subnet.",
		Source:   "Talos documentation, Virtual (shared) IP",
	},
	{
		ID:       VIPForeign,
		Title:    "Something that is not this cluster answers on the VIP",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause:    "Before the cluster exists nothing should answer on its VIP, and afterwards only its own Kubernetes API.",
		Remedy:   "Free the address, or choose another VIP.",
		Source:   "Talos documentation, Virtual (shared) IP",
	},
	{
		ID:       EndpointUnusable,
		Title:    "The cluster's endpoint can't work",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause: "Every node reaches the Kubernetes API through the endpoint. It is an https URL whose host is the VIP, a " +
			"control plane, " +
			"a balancer in front of them, or a name of one of these.",
		Remedy: "Correct endpoint in the inventory and generate the configs again.",
		Source: "Talos documentation, Production Notes, Kubernetes endpoint",
	},
	{
		ID:       EndpointElsewhere,
		Title:    "The cluster's endpoint is neither the VIP nor a control plane",
		Severity: Warning,
		Cause: "It is assumed to be a balancer, which must forward to port 6443 of the control planes, and to " +
			"port 50001 for workers to join.",
		Remedy: "Nothing, if there is such a balancer.",
		Source: "Talos documentation, Production Notes, Kubernetes endpoint",
	},
	{
		ID:       HostnameInvalid,
		Title:    "The hostname can't be a Kubernetes node name",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause: "Node names are RFC 1123 names: lower-case letters, digits and hyphens, at most 63 characters. From 1.6 on " +
			"Talos makes such a name of most other hostnames, and the node has two names then: a warning.",
		Remedy: "Use the suggested name.",
		Source: "siderolabs/talos#7928, #4484, #7615",
	},
	{
		ID:       HostnameNotUnique,
		Title:    "Two nodes would get the same Kubernetes node name",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause:    "Node names are compared in lower case, and without the domain.",
		Remedy:   "Give each node a hostname of its own.",
		Source:   "siderolabs/talos#7928",
	},
	{
		ID:       TalosconfigEndpoint,
		Title:    "The talosconfig has an endpoint that is not a control plane",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause: "Only a control plane forwards Talos API calls to other nodes. The VIP answers only while etcd " +
			"runs, so not when you need it most.",
		Remedy: "List the control planes' own addresses as endpoints.",
		Source: "Talos documentation, talosctl; cozystack/talos-bootstrap#30",
	},
	{
		ID:       ClientCertificate,
		Title:    "The talosconfig's client certificate is not in date",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause:    "Client certificates last a year by default. With one that is out of date, no configured node answers.",
		Remedy:   "Renew it from the secrets file: mage config:rotate; or with `talosctl config new` while the old one works.",
		Source:   "Talos documentation, How to manage PKI and certificate lifetimes",
	},
	{
		ID:       EvenControlPlanes,
		Title:    "An even number of control planes",
		Severity: Warning,
		Cause: "etcd needs more than half of its members: with two, the loss of either stops the cluster; four " +
			"tolerate no more losses than three.",
		Remedy: "Use 1, 3 or 5 control planes.",
		Source: "siderolabs/talos#9276",
	},
	{
		ID:       NameUnresolved,
		Title:    "A node's name does not resolve",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause:    "The node is declared by a DNS name that this machine can't resolve.",
		Remedy:   "Add the record, or declare the node by its IP address.",
		Source:   "budimanjojo/talhelper#1088",
	},
	{
		ID:       NameAmbiguous,
		Title:    "A node's name leads to more than this node",
		Severity: Warning,
		Exit:     ExitPreflight,
		Cause:    "The node is declared by a DNS name with several addresses, or with the address of the cluster's endpoint.",
		Remedy:   "Use a name that has the node's own address only.",
		Source:   "budimanjojo/talhelper#1088",
	},
	{
		ID:       NameNotCertified,
		Title:    "The node's certificate will not cover its name",
		Severity: Failure,
		Exit:     ExitBadInput,
		Cause: "Once configured, the node's certificate is for its addresses, its hostname and " +
			"machine.certSANs. The name that it is declared by is not among these.",
		Remedy: "Add the name to certSANs and generate the configs again.",
		Source: "budimanjojo/talhelper#1088; siderolabs/talos " +
			"internal/app/machined/pkg/controllers/secrets/api_cert_sans.go",
	},
	{
		ID:       ThroughProxy,
		Title:    "Nodes are reached through a proxy",
		Severity: OK,
		Cause: "HTTPS_PROXY is set, and NO_PROXY leaves the node's address out. Many proxies don't pass connections to " +
			"port 50000.",
		Remedy: "If nodes don't answer, add their subnet to NO_PROXY: NO_PROXY=192.0.2.0/24.",
		Source: "siderolabs/talos#12684, #11665, #10990",
	},
	{
		ID:       IdentityUnread,
		Title:    "The machine's identity could not be read",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause: "MAC addresses or a UUID are declared for the node, but the machine refused to show its own, or " +
			"the connection broke each time. A machine that does not show them is not accepted as the declared " +
			"one.",
		Remedy:      "Run preflight again; if it stays, look at the network in between, or at the node's console.",
		Source:      "talos-mage: docs/reliability.md",
		Unskippable: true,
	},
	{
		ID:       ClientRefused,
		Title:    "The node refuses the talosconfig's client certificate",
		Severity: Failure,
		Exit:     ExitPreflight,
		Cause: "The node's certificate is this cluster's, and it hangs up as soon as it has seen ours: the client " +
			"certificate was signed by another CA, or the " +
			"node's clock says that it is not valid now. A node whose API is just restarting looks the same for a moment.",
		Remedy: "Compare the node's clock with this computer's; renew the talosconfig from the cluster's secrets: " +
			"mage config:rotate.",
		Source: "siderolabs/talos: internal/app/apid; internal/integration/api/apid.go, TestPKIMismatch",
	},
}
