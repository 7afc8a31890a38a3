package diagnosis

// What the rewriting of a cluster's files finds.
const (
	MigrationUndecided  ID = "TM150"
	MigrationUnequal    ID = "TM151"
	MigrationDirty      ID = "TM152"
	MigrationOlderNodes ID = "TM153"
	MigrationPlanned    ID = "TM154"
)

var migratingEntries = []Entry{
	{
		ID: MigrationUndecided, Title: "A field has no successor", Severity: Failure, Exit: ExitBadInput,
		Cause: "A patch sets a field of the older form that no document of Talos 1.14 replaces as it is: what it is to be " +
			"is for a person to decide. Nothing was changed.",
		Remedy: "Do what the message says of the field, then run mage config:migrate again. Or stay with the older form, " +
			"which Talos 1.14 takes too.",
		Source: "siderolabs/talos, pkg/machinery/config/types at v1.14.1",
	},
	{
		ID: MigrationUnequal, Title: "The rewritten files would make other machine configs", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Every node's config was rendered in both forms and compared in everything that Talos reads of it. They " +
			"differ in what is named, so nothing was changed.",
		Remedy: "Write what the patches say of it as a document by hand. If it is a default of Talos 1.14 that you want, " +
			"-newDefaults takes it.",
		Source: sourceOurs,
	},
	{
		ID: MigrationDirty, Title: "Files that would be rewritten are not committed", Severity: Failure, Exit: ExitBadInput,
		Cause:  "Files are rewritten only where git can bring back how they were.",
		Remedy: "Commit what is there, or add -dirty.",
		Source: sourceOurs,
	},
	{
		ID: MigrationOlderNodes, Title: "Nodes run a release that does not know the new documents", Severity: Warning,
		Cause: "A node with Talos 1.13 or older refuses a config with documents of 1.14 (\"not registered\"). The files " +
			"may be rewritten before the nodes are upgraded, but the configs can't be applied yet.",
		Remedy: "Upgrade the nodes, then apply.",
		Source: "siderolabs/talos, pkg/machinery/config/configloader at v1.13.9",
	},
	{
		ID: MigrationPlanned, Title: "A file would be rewritten", Severity: Warning,
		Cause:  "A dry run shows how mage config:migrate would change the file.",
		Remedy: "Run the same command without -dryRun.",
		Source: sourceOurs,
	},
}
