package diagnosis

// What the making of secrets and machine configs finds, and what a run refuses before it starts.
const (
	SecretsMissing  ID = "TM012"
	ProgramMissing  ID = "TM013"
	ProgramFailed   ID = "TM014"
	RenderedDiffers ID = "TM015"
	BadInput        ID = "TM016"
	UnknownNode     ID = "TM017"
)

var makingEntries = []Entry{
	{
		ID: SecretsMissing, Title: "The cluster's secrets are not here", Severity: Failure, Exit: ExitBadInput,
		Cause:  "Without its secrets file a cluster's configs can't be rendered, and new secrets would make another cluster: nodes that are configured already would never accept it.",
		Remedy: "Restore talsecret.sops.yaml. New secrets are made only when no config exists and every node is in maintenance.",
		Source: "budimanjojo/talhelper#926, #436",
	},
	{
		ID: ProgramMissing, Title: "A program is not installed", Severity: Failure, Exit: ExitBadInput,
		Cause:  "Secrets and machine configs are made by talhelper and encrypted by sops; one of them is not on the PATH.",
		Remedy: "Install it, or bring the rendered machine configs along.",
		Source: sourceOurs,
	},
	{
		ID: ProgramFailed, Title: "A program failed", Severity: Failure, Exit: ExitBadInput,
		Cause:  "talhelper or sops ended with an error: a mistake in the talconfig or a patch, or a key that can't decrypt the secrets.",
		Remedy: "Correct what it complains about. For sops: SOPS_AGE_KEY_FILE names the key's file, SOPS_AGE_KEY would be the key itself.",
		Source: "budimanjojo/talhelper#671; getsops/sops#1402",
	},
	{
		ID: RenderedDiffers, Title: "Rendered configs would replace existing ones", Severity: Warning,
		Cause:  "The talconfig, a patch or the generator changed since the configs were made, and nodes run with the old ones.",
		Remedy: "Render them on purpose: task talos:generate-config; then look at the difference on each node before it is applied.",
		Source: sourceOurs,
	},
	{
		ID: BadInput, Title: "An input file is wrong", Severity: Failure, Exit: ExitBadInput,
		Cause:  "The file named by the message can't be read or says something that can't be.",
		Remedy: "Correct the line that the message names.",
		Source: sourceOurs,
	},
	{
		ID: UnknownNode, Title: "A setting names a node that does not exist", Severity: Failure, Exit: ExitBadInput,
		Cause:  "Node names are those of the talconfig; machines of one ignoreHostname entry are called like cp[192.0.2.11].",
		Remedy: "mage status lists the names.",
		Source: sourceOurs,
	},
}
