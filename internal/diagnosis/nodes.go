package diagnosis

// What a node's connection can be diagnosed with.
const (
	NotTalos            ID = "TM080"
	ForeignNode         ID = "TM081"
	UnknownNodeCA       ID = "TM082"
	NodeClock           ID = "TM083"
	FingerprintMismatch ID = "TM084"
	CertificateName     ID = "TM085"
	ProxyInTheWay       ID = "TM086"
	CallNotAllowed      ID = "TM087"
	TalosconfigExpired  ID = "TM088"
	LocalNetworkBlocked ID = "TM089"
)

var nodeEntries = []Entry{
	{
		ID: NotTalos, Severity: Failure, Exit: ExitPreflight,
		Title:  "Something other than a Talos node answers at the node's address",
		Cause:  "Another machine or program has this address and port: an SSH or web server, a balancer, the Kubernetes API.",
		Remedy: "Check the address in talconfig.yaml, or have the node's machine looked for: mage discover -save.",
		Source: "Talos' API speaks HTTP/2 over TLS on port 50000 and either asks for a client certificate or presents the " +
			"certificate of maintenance mode: siderolabs/talos internal/app/apid",
	},
	{
		ID: ForeignNode, Severity: Failure, Exit: ExitPreflight, Unskippable: true,
		Title: "The node belongs to another cluster",
		Cause: "The node is configured and its certificate comes from another machine CA than the talosconfig's: it runs " +
			"in another cluster, or the secrets were made anew after it was configured.",
		Remedy: "Check the address and TALOSCONFIG. If the secrets were made anew, restore the earlier " +
			"talosconfig and secrets file from git or a backup: new ones do not work on nodes that have the " +
			"earlier ones. If the machine is meant to join this cluster, reset it with its own cluster's " +
			"talosconfig; that wipes it.",
		Source: "siderolabs/talos: internal/app/apid, TLS of a configured node",
	},
	{
		ID: UnknownNodeCA, Severity: Failure, Exit: ExitBadInput, Unskippable: true,
		Title: "The node is configured, and without a talosconfig its cluster is unknown",
		Cause: "The node asks for a client certificate, so it has a machine config; without a talosconfig its " +
			"cluster is unknown.",
		Remedy: "Point TALOSCONFIG to the cluster's talosconfig, or make it again from the cluster's secrets: " +
			"mage config:generate.",
		Source: "siderolabs/talos: internal/app/apid, TLS of a configured node",
	},
	{
		ID: NodeClock, Severity: Failure, Exit: ExitPreflight,
		Title: "The node's certificate is not valid at this time",
		Cause: "The node's clock or this computer's is wrong: the node makes its certificate itself, valid for 24 hours " +
			"from its own now.",
		Remedy: "Compare both clocks. A node makes a new certificate as soon as its time is synchronised: check that it " +
			"reaches its time servers (UDP port 123).",
		Source: "siderolabs/talos: internal/app/machined/pkg/controllers/secrets/api.go",
	},
	{
		ID: FingerprintMismatch, Severity: Failure, Exit: ExitPreflight, Unskippable: true,
		Title: "The node's certificate has none of the given fingerprints",
		Cause: "CERT_FINGERPRINTS names the only certificates to talk to. A node in maintenance makes a new one at each " +
			"boot, when its time is synchronised and when its addresses change; or another machine answers.",
		Remedy: "Read the fingerprint from the machine's console again and give it with CERT_FINGERPRINTS.",
		Source: "siderolabs/talos: internal/app/machined/pkg/controllers/secrets/api.go, reconcileMaintenance",
	},
	{
		ID: CertificateName, Severity: Failure, Exit: ExitPreflight,
		Title: "The node's certificate doesn't name the address it is called at",
		Cause: "A configured node's certificate names its own addresses, its hostname and machine.certSANs; through a " +
			"VIP, a port forward or another name it can't be called.",
		Remedy: "Call the node at one of the addresses that its certificate names, or add the address to machine.certSANs.",
		Source: "siderolabs/talos: internal/app/machined/pkg/controllers/secrets/api_cert_sans.go",
	},
	{
		ID: ProxyInTheWay, Severity: Failure, Exit: ExitPreflight,
		Title: "The connection to the node goes through a proxy, and fails there",
		Cause: "HTTPS_PROXY is set and NO_PROXY doesn't exempt the node's address. The proxy can't or may not " +
			"connect to it.",
		Remedy: "Exempt the nodes: NO_PROXY takes addresses, CIDRs and names, separated by commas.",
		Source: "https://github.com/siderolabs/talos/issues/12684",
	},
	{
		ID: CallNotAllowed, Severity: Failure, Exit: ExitPreflight,
		Title: "The node doesn't allow the call",
		Cause: "The talosconfig's client certificate lacks the role for it, the node isn't a control plane, or its mode " +
			"doesn't have the call.",
		Remedy: "Use a talosconfig with the role os:admin. Check the node's role and state with: mage status.",
		Source: "siderolabs/talos: pkg/grpc/middleware/authz; https://docs.siderolabs.com/talos/v1.13/security/rbac",
	},
	{
		ID: TalosconfigExpired, Severity: Failure, Exit: ExitBadInput,
		Title:  "The talosconfig's client certificate has expired",
		Cause:  "A talosconfig is good for a year from when it was made.",
		Remedy: "Renew it from the cluster's secrets, without asking a node: mage config:rotate.",
		Source: "siderolabs/talos: pkg/machinery/constants, TalosAPIDefaultCertificateValidityDuration",
	},
	{
		ID: LocalNetworkBlocked, Severity: Warning, Exit: ExitPreflight,
		Title: "macOS may keep this terminal from the local network",
		Cause: "Connections end with \"no route to host\" while other programs connect: since macOS 15 each terminal " +
			"program needs a permission of its own, which its child processes inherit.",
		Remedy: "System Settings, Privacy & Security, Local Network: switch the terminal on, then try again.",
		Source: "https://github.com/siderolabs/talos/issues/10880",
	},
}
