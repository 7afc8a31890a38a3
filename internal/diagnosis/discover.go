package diagnosis

// What is wrong with finding machines.
const (
	NothingAnswers   ID = "TM160"
	MachineAmbiguous ID = "TM161"
	MachineMissing   ID = "TM162"
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
	{
		ID: MachineAmbiguous, Severity: Failure, Exit: ExitPreflight,
		Title: "It can't be told which machine is the node's",
		Cause: "One machine fits several nodes, several machines fit one node, or what is declared goes against what " +
			"the machine says: by its MAC address it is one node's and by its UUID another's, or the declared address is " +
			"another machine's by now. Clones of a VM, and boards without a UUID of their own, say the same of themselves.",
		Remedy: "Correct the MAC addresses, the UUID or the address that the files declare, rename the VM, or switch the " +
			"machine off that is not meant. Then mage discover. Until then it takes none of them for the node's.",
		Source: "siderolabs/talos: pkg/machinery/resources/network LinkStatus and resources/hardware SystemInformation",
	},
	{
		ID: MachineMissing, Severity: Failure, Exit: ExitPreflight,
		Title: "No machine that answers is the node's",
		Cause: "None has a MAC address or the UUID that the files declare, and none in maintenance has the declared " +
			"address. The machine is off, still boots, or is in another network; or nothing that is declared tells it from " +
			"others.",
		Remedy: "Boot the machine from a Talos image, name its network with -cidr, or add what mage discover proposes to " +
			"the files. Then mage discover.",
		Source: "siderolabs/talos: pkg/machinery/resources/network LinkStatus and resources/hardware SystemInformation",
	},
}
