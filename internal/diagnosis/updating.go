package diagnosis

// What changing the nodes of a running cluster finds.
const (
	ChangeHeldBack ID = "TM140"
	RebootPending  ID = "TM141"
)

var updatingEntries = []Entry{
	{
		ID: ChangeHeldBack, Title: "A change is held back", Severity: Failure, Exit: ExitApply,
		Cause: "A running cluster is changed one node at a time. One node did not come back well, so the same change is " +
			"not made to the others.",
		Remedy: "Bring that node up again, then apply to the others.",
		Source: sourceOurs,
	},
	{
		ID: RebootPending, Title: "A change waits for a reboot, or may", Severity: Warning,
		Cause: "From Talos 1.14 on, a node takes every change of its config without a reboot, and some fields take effect " +
			"at the next one only. Of the named ones that is known, or not known to be otherwise.",
		Remedy: "Reboot the node when it suits: talosctl -n <node> reboot. It is never rebooted for what is not known.",
		Source: "Talos v1.14.1: internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go (ApplyConfiguration)",
	},
}
