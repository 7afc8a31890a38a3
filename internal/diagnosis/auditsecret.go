package diagnosis

// What the audit finds about secrets: TM315 to TM329.
const (
	SecretsFileOpen ID = "TM315"
)

var secretEntries = []Entry{
	{
		ID: SecretsFileOpen, Title: "A plaintext secrets file can be read by other users", Severity: Warning,
		Cause: "The file holds the cluster's root of trust in the clear, and its mode lets other users of this computer " +
			"read it.",
		Remedy: "Encrypt it with sops, or remove the rights of others: chmod 600.",
		Source: "Talos documentation, talosctl gen secrets",
	},
}
