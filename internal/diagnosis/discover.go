package diagnosis

// What is wrong with finding machines.
const (
	NothingAnswers ID = "TM160"
)

var discoverEntries = []Entry{
	{
		ID: NothingAnswers, Severity: Failure, Exit: ExitPreflight,
		Title: "No machine was found",
		Cause: "None of the addresses that were asked took a connection on port 50000: the machines are off or still boot, " +
			"they are in another network, or a firewall on the way drops what is sent.",
		Remedy: "Boot the machines from a Talos image: a screen shows the address of its machine. If that is in another " +
			"network, name it: mage discover -cidr=<network>.",
		Source: "siderolabs/talos: internal/app/apid listens on port 50000 in maintenance and with a config alike",
	},
}
