package diagnosis

// ChangeHeldBack is what changing the nodes of a running cluster finds.
const ChangeHeldBack ID = "TM140"

var updatingEntries = []Entry{
	{
		ID: ChangeHeldBack, Title: "A change is held back", Severity: Failure, Exit: ExitApply,
		Cause: "A running cluster is changed one node at a time. One node did not come back well, so the same change is " +
			"not made to the others.",
		Remedy: "Bring that node up again, then apply to the others.",
		Source: sourceOurs,
	},
}
