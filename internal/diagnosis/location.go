package diagnosis

// Location is where something stands in a file. Lines and columns count from 1; 0 is unknown.
type Location struct {
	// Path is as people are shown it; empty when nothing is known.
	Path         string
	Line, Column int
	// Text is the line itself, without anything secret; empty when it is not known or not to be shown.
	Text string
	// From is where the text comes from when the file was made from another; it may be nil.
	From *Location
	// Unwritten is set for a file that is in memory only.
	Unwritten bool
}

// String is path:line:column, with what is unknown left out.
func (l Location) String() string {
	if l.Unwritten {
		return Place(l.Path+" (not written yet)", l.Line, l.Column)
	}

	return Place(l.Path, l.Line, l.Column)
}

// Need is what a check looks at. A check whose needs are not met is reported as not run, never as passed.
type Need int

// Needs; a check may have several.
const (
	// NeedsTalconfig is the inventory.
	NeedsTalconfig Need = 1 << iota
	// NeedsConfig is the machine config of one node: the check runs once for each.
	NeedsConfig
	// NeedsConfigs are the machine configs of all nodes: files that differ are told from each other only when all are
	// there.
	NeedsConfigs
	// NeedsTalosconfig is the client configuration.
	NeedsTalosconfig
	// NeedsSecrets is the cluster's secrets file.
	NeedsSecrets
	// NeedsOwnSecrets is that the files which are needed hold the cluster's own secrets: none that were made up.
	NeedsOwnSecrets
	// NeedsNetwork is an answer of a name server, or of who has an address.
	NeedsNetwork
	// NeedsFacts is what a node in maintenance tells about itself: the check runs once for each node that answers.
	NeedsFacts
	// NeedsCilium are the Helm values of Cilium.
	NeedsCilium
	// NeedsVMs are the virtual machines that the nodes run on.
	NeedsVMs
)

// needNames are the words for needs, in order.
var needNames = []struct {
	need Need
	name string
}{
	{NeedsTalconfig, "the inventory"},
	{NeedsConfig, "a machine config"},
	{NeedsConfigs, "all machine configs"},
	{NeedsTalosconfig, "the talosconfig"},
	{NeedsSecrets, "the secrets file"},
	{NeedsOwnSecrets, "the cluster's own secrets"},
	{NeedsNetwork, "the network"},
	{NeedsFacts, "a node's answer"},
	{NeedsCilium, "Cilium's Helm values"},
	{NeedsVMs, "the Proxmox VMs"},
}

// Has reports whether another need is part of this one.
func (n Need) Has(other Need) bool { return n&other == other }

// Names are the needs in words.
func (n Need) Names() []string {
	var names []string

	for _, known := range needNames {
		if n.Has(known.need) {
			names = append(names, known.name)
		}
	}

	return names
}
