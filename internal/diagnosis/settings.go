package diagnosis

// What is wrong with a setting.
const (
	BadSetting       ID = "TM036"
	UnskippableCheck ID = "TM037"
)

var settingEntries = []Entry{
	{
		ID: BadSetting, Severity: Failure, Exit: ExitBadInput,
		Title: "A setting has an invalid value",
		Cause: "An environment variable, or the flag that overrides it, can't be read: it is misspelt, has the " +
			"wrong form, or is out of range.",
		Remedy: "Correct the variable or flag that the message names; it says what is allowed. docs/settings.md " +
			"lists every setting.",
		Source: "talos-mage: docs/settings.md",
	},
	{
		ID: UnskippableCheck, Severity: Failure, Exit: ExitBadInput,
		Title: "SKIP_CHECKS names a check that can't be skipped",
		Cause: "Checks of a node's identity and of the certificate authority keep the cluster's secrets from being sent " +
			"to a machine that is not the declared one.",
		Remedy: "Take the id out of SKIP_CHECKS. If a machine was replaced, correct its hardware address in " +
			"talconfig.yaml and generate the configs again.",
		Source: "talos-mage: docs/settings.md",
	},
}
