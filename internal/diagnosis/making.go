package diagnosis

// What the making of secrets and machine configs finds, and what a run refuses before it starts.
const (
	SecretsMissing  ID = "TM012"
	ProgramMissing  ID = "TM013"
	ProgramFailed   ID = "TM014"
	RenderedDiffers ID = "TM015"
	BadInput        ID = "TM016"
	UnknownNode     ID = "TM017"

	SecretsUndecryptable  ID = "TM018"
	SecretsNotEncryptable ID = "TM019"
	SecretsExist          ID = "TM033"
	SecretsPlain          ID = "TM034"
	ConfigsStale          ID = "TM035"
)

var makingEntries = []Entry{
	{
		ID: SecretsMissing, Title: "The cluster's secrets are not here", Severity: Failure, Exit: ExitBadInput,
		Cause: "Without its secrets file a cluster's configs can't be rendered, and new secrets would make another " +
			"cluster: nodes that are configured already would never accept it.",
		Remedy: "Restore talsecret.sops.yaml. New secrets are made only when no config exists and every node is in " +
			"maintenance.",
		Source: "budimanjojo/talhelper#926, #436",
	},
	{
		ID: ProgramMissing, Title: "A program is not installed", Severity: Failure, Exit: ExitBadInput,
		Cause: "Encrypted files need sops, and CONFIG_GENERATOR=talhelper needs talhelper; the program that is named is " +
			"not on the PATH.",
		Remedy: "Install it, or provide the rendered machine configs.",
		Source: sourceOurs,
	},
	{
		ID: ProgramFailed, Title: "A program failed", Severity: Failure, Exit: ExitBadInput,
		Cause: "talhelper ended with an error: a mistake in the talconfig or a patch, or a key that can't decrypt the " +
			"secrets.",
		Remedy: "Correct what it complains about. For sops: SOPS_AGE_KEY_FILE names the key's file; " +
			"SOPS_AGE_KEY holds the key itself.",
		Source: "budimanjojo/talhelper#671; getsops/sops#1402",
	},
	{
		ID: RenderedDiffers, Title: "Machine configs no longer fit what is declared", Severity: Warning,
		Cause: "The talconfig, a patch or the generator changed since the configs were made. They are not replaced unasked " +
			"while nodes are configured.",
		Remedy: "Render them: mage config:generate (with -dryRun it shows the differences), then mage applySequential " +
			"-update.",
		Source: sourceOurs,
	},
	{
		ID: BadInput, Title: "An input file is wrong", Severity: Failure, Exit: ExitBadInput,
		Cause:  "The file named by the message can't be read, or something in it is impossible.",
		Remedy: "Correct the line that the message names.",
		Source: sourceOurs,
	},
	{
		ID: UnknownNode, Title: "A setting names a node that does not exist", Severity: Failure, Exit: ExitBadInput,
		Cause: "Node names are those of the talconfig; machines of one ignoreHostname entry have names such as " +
			"cp[192.0.2.11].",
		Remedy: "mage status lists the names.",
		Source: sourceOurs,
	},
	{
		ID: SecretsUndecryptable, Title: "A file can't be decrypted", Severity: Failure, Exit: ExitBadInput,
		Cause:  "None of the keys that sops found here belongs to a recipient of the file, or it found none.",
		Remedy: "Provide the key: SOPS_AGE_KEY_FILE names the key's file; SOPS_AGE_KEY holds the key itself.",
		Source: "getsops/sops, age/keysource.go, issue 1402; budimanjojo/talhelper#671",
	},
	{
		ID: SecretsNotEncryptable, Title: "The cluster's secrets can't be encrypted", Severity: Failure, Exit: ExitBadInput,
		Cause: "No rule of .sops.yaml matches this file, its keys can't be used, or the rule is for other files " +
			"and would leave the values unencrypted. Nothing was written.",
		Remedy: "Add a rule with `path_regex: talsecret\\.sops\\.yaml$` and your key before the others.",
		Source: "getsops/sops, README: using .sops.yaml, encrypting only parts of a file",
	},
	{
		ID: SecretsExist, Title: "There are secrets already", Severity: Failure, Exit: ExitBadInput,
		Cause: "New secrets make another cluster: no node that is configured would accept them, and without the old ones " +
			"it can't be managed any more.",
		Remedy: "Keep them. If they are of a cluster that is gone for good, move the file away yourself.",
		Source: "budimanjojo/talhelper#436",
	},
	{
		ID: SecretsPlain, Title: "The cluster's secrets are not encrypted", Severity: Warning,
		Cause: "There is no .sops.yaml that says how to encrypt them, so the file is in the clear. Whoever reads it owns " +
			"the cluster.",
		Remedy: "Make a .sops.yaml, then `sops encrypt talsecret.yaml > talsecret.sops.yaml`, and remove the plain file.",
		Source: "talhelper's guide: generating secrets",
	},
	{
		ID: ConfigsStale, Title: "A machine config belongs to no node", Severity: Warning,
		Cause: "A node was renamed or taken out of the inventory since its config was made, or the pattern of the names " +
			"changed. The file still holds the cluster's secrets.",
		Remedy: "Remove the file once you are sure that no machine needs it.",
		Source: sourceOurs,
	},
}
