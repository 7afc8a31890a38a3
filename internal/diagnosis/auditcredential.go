package diagnosis

// What the audit finds about keys, certificates and the files that hold them: TM316 to TM329.
const (
	ControlPlaneSecrets  ID = "TM316"
	CAOutOfDate          ID = "TM317"
	CAKeyForeign         ID = "TM318"
	SecretMalformed      ID = "TM319"
	ClientRoleWeak       ID = "TM320"
	ClientNotSigned      ID = "TM321"
	SecretsFileBroken    ID = "TM324"
	SecretsFileOther     ID = "TM325"
	KubeconfigOutOfDate  ID = "TM326"
	SecretTracked        ID = "TM322"
	FilesWithSecretsOpen ID = "TM323"
)

const (
	bootstrapTokenSource   = "kubernetes.io, Authenticating with Bootstrap Tokens"
	machineSecretsSource   = "machinery config/generate/secrets/bundle.go"
	talosCertificateSource = "Talos documentation, How to manage PKI and certificate lifetimes"
)

var credentialEntries = []Entry{
	{
		ID: ControlPlaneSecrets, Title: "The control planes don't share the secrets of Kubernetes and etcd",
		Severity: Failure, Exit: ExitBadInput,
		Cause: "Each control plane signs and encrypts with the keys of its own file: with another etcd CA it can't join, " +
			"with another service account key its tokens are refused elsewhere, and with another encryption secret it can't " +
			"read what others stored. Another aggregator CA, which breaks metrics and other added APIs alone, is a warning.",
		Remedy: "Generate all machine configs again from one secrets file.",
		Source: machineSecretsSource,
	},
	{
		ID: CAOutOfDate, Title: "A certificate authority is not in date", Severity: Failure, Exit: ExitBadInput,
		Cause: "Talos and Kubernetes trust no certificate of an authority that has expired. It is a warning if " +
			"the authority ends within 30 days, if it is not valid yet by this computer's clock, or if an " +
			"additionally accepted one ends.",
		Remedy: "Rotate the authority (talosctl rotate-ca), or, before the cluster exists, make new secrets.",
		Source: talosCertificateSource,
	},
	{
		ID: CAKeyForeign, Title: "A certificate authority's key belongs to another certificate",
		Severity: Failure, Exit: ExitBadInput,
		Cause: "Signatures of the key do not match the certificate that everybody trusts, so no node or client " +
			"would be trusted.",
		Remedy: "Take certificate and key from the same secrets file.",
		Source: machineSecretsSource,
	},
	{
		ID: SecretMalformed, Title: "A secret does not have the right form", Severity: Failure, Exit: ExitBadInput,
		Cause: "A token, a key or a certificate has another form: it is a placeholder that nobody filled in, or " +
			"a part is missing. Kubernetes accepts bootstrap tokens of 6 and 16 letters and digits, and " +
			"encryption secrets of 32 bytes in base64. If only discovery or a worker's certificate needs it, it " +
			"is a warning.",
		Remedy: "Take the value from the cluster's secrets file, or generate the configs again.",
		Source: bootstrapTokenSource + "; " + machineSecretsSource,
	},
	{
		ID: ClientRoleWeak, Title: "The talosconfig's certificate lacks the role for a bring-up", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Applying a config to a running node, bootstrapping etcd and reading the kubeconfig need the " +
			"role os:admin; operators and readers lack it. Without RBAC in the machine configs roles don't " +
			"matter.",
		Remedy: "Use a talosconfig with the role os:admin: generate it, or `talosctl config new --roles os:admin`.",
		Source: "siderolabs/talos internal/app/machined/pkg/system/services/machined.go; Talos documentation, Role-based " +
			"access control",
	},
	{
		ID: ClientNotSigned, Title: "The talosconfig's certificate is not signed by an authority that nodes trust",
		Severity: Failure, Exit: ExitBadInput,
		Cause: "Its ca and crt come from different clusters or runs: this computer trusts the nodes, but they " +
			"refuse every call.",
		Remedy: "Generate the talosconfig again from the cluster's secrets.",
		Source: "siderolabs/talos#12575; " + talosCertificateSource,
	},
	{
		ID: SecretTracked, Title: "Git tracks a file with secrets in the clear", Severity: Warning,
		Cause: "Whoever can read the repository, or a copy of it, can take over the cluster. The history keeps " +
			"the file after it is deleted.",
		Remedy: "Encrypt the file with sops, or take it out of git (git rm --cached) and list it in .gitignore. " +
			"Replace secrets that were published.",
		Source: "talhelper documentation, Configuring SOPS; Talos documentation, talosctl gen secrets",
	},
	{
		ID: SecretsFileBroken, Title: "The secrets file lacks a part, or holds something else", Severity: Warning,
		Cause: "A secrets file without one of its keys or tokens, or with a placeholder in its place, can't " +
			"make machine configs. The next generation fails, or its configs don't fit the cluster.",
		Remedy: "Restore the part from a backup, or the whole bundle from a control plane's machine config.",
		Source: machineSecretsSource,
	},
	{
		ID: SecretsFileOther, Title: "The machine configs have other secrets than the secrets file", Severity: Warning,
		Cause: "The authority is the same, but a token or key differs: the file was changed after the configs " +
			"were made. The next configs won't fit the nodes that run with these.",
		Remedy: "Generate all machine configs again before the cluster exists; afterwards restore the file.",
		Source: "budimanjojo/talhelper#436; " + machineSecretsSource,
	},
	{
		ID: KubeconfigOutOfDate, Title: "The kubeconfig's client certificate is not in date", Severity: Warning,
		Cause: "Talos issues kubeconfigs that are valid for a year. After that the Kubernetes API rejects " +
			"kubectl.",
		Remedy: "Get a new one: mage kubeconfig.",
		Source: "Talos documentation, talosctl kubeconfig; " + talosCertificateSource,
	},
	{
		ID: FilesWithSecretsOpen, Title: "Machine configs or the talosconfig can be read by other users", Severity: Warning,
		Cause: "They hold keys that open the cluster, and their mode lets other users of this computer read them. Git " +
			"does not keep modes: after a checkout they are open.",
		Remedy: "Remove the rights of others: chmod 600.",
		Source: "talhelper v3.1.16, pkg/generate/config.go",
	},
}
