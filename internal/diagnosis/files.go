package diagnosis

import (
	"errors"
	"syscall"
)

// Entries about the user's files. All of them end with exit code 2: no node has to be asked.
const (
	FileMissing    ID = "TM001"
	FileUnreadable ID = "TM002"
	FileSyntax     ID = "TM003"
	FileKey        ID = "TM004"
	FileType       ID = "TM005"
	FileVariable   ID = "TM006"
	FileValue      ID = "TM007"
	FileAddress    ID = "TM008"
	FileDuplicate  ID = "TM009"
	FileNoNodes    ID = "TM010"
	SharedConfig   ID = "TM011"

	ConfigMissing       ID = "TM020"
	ConfigUnreadable    ID = "TM021"
	ConfigRole          ID = "TM022"
	ConfigHostname      ID = "TM023"
	ConfigAddress       ID = "TM024"
	ConfigCA            ID = "TM025"
	ConfigSecrets       ID = "TM026"
	ConfigPlaceholder   ID = "TM027"
	TalosconfigMissing  ID = "TM028"
	TalosconfigBroken   ID = "TM029"
	TalosconfigForeign  ID = "TM030"
	SecretsFileMisnamed ID = "TM031"
	ConfigCluster       ID = "TM032"
	FileUnwritable      ID = "TM038"
	SecretsAmbiguous    ID = "TM039"
)

const (
	talhelperSource = "talhelper v3.1.16, pkg/config/schemas/talconfig.json"
	regenerate      = "Make the machine configs again from one set of secrets: `mage config:generate`."
)

var fileEntries = []Entry{
	{
		ID: FileMissing, Title: "A file of the cluster does not exist or is empty", Severity: Failure, Exit: ExitBadInput,
		Cause: "The inventory, talconfig.yaml or cluster.yaml, is not where TALOS_DIR points to, or is empty. A " +
			"topf.yaml is not one.",
		Remedy: "Set TALOS_DIR to the folder that holds it, or write a talconfig.yaml (clusterName, endpoint and nodes " +
			"are needed) or a profile (docs/profile.md).",
		Source: talhelperSource,
	},
	{
		ID: FileUnreadable, Title: "A file of the cluster can't be read", Severity: Failure, Exit: ExitBadInput,
		Cause: "The file exists, but the operating system refuses to read it, because of its mode or its " +
			"owner, or because it is a folder.",
		Remedy: "Give your user the right to read it.",
		Source: "operating system",
	},
	{
		ID: FileSyntax, Title: "A file is not valid YAML", Severity: Failure, Exit: ExitBadInput,
		Cause:  "The text can't be parsed: a tab in the indentation, a bracket or quote left open, a key set twice.",
		Remedy: "Correct the line that is named; the mistake can also be in the line above it.",
		Source: "yaml.org/spec/1.2.2",
	},
	{
		ID: FileKey, Title: "A file has a key that nothing reads", Severity: Failure, Exit: ExitBadInput,
		Cause: "The key is misspelt, stands at the wrong level, or belongs to another version of talhelper. " +
			"talhelper itself ignores it silently. At the top level it is only a warning while aliases refer to an " +
			"anchor below it.",
		Remedy: "Correct the spelling, or move the key to where it is known; keys that only hold anchors may start with x- " +
			"or a dot at the top level.",
		Source: talhelperSource,
	},
	{
		ID: FileType, Title: "A value has the wrong type", Severity: Failure, Exit: ExitBadInput,
		Cause: "For example, there is a list where a single value is expected, or a word where true or false " +
			"is expected.",
		Remedy: "Write the value in the form that the message names.",
		Source: talhelperSource,
	},
	{
		ID: FileVariable, Title: "A variable has no value", Severity: Failure, Exit: ExitBadInput,
		Cause: "talconfig.yaml uses ${NAME}, and neither talenv.yaml nor the environment sets NAME, or it is " +
			"empty. A talenv.sops.yaml is read only if sops is installed and finds a key.",
		Remedy: "Set the variable in talenv.yaml or in the environment, give it a default, ${NAME:-value}, or write $$ " +
			"for a dollar sign.",
		Source: "github.com/a8m/envsubst, as talhelper's pkg/substitute calls it; budimanjojo/talhelper#833, #1459",
	},
	{
		ID: FileValue, Title: "A value is missing or not usable", Severity: Failure, Exit: ExitBadInput,
		Cause:  "clusterName, endpoint, or a node's hostname or ipAddress is missing, or a value is not what its key needs.",
		Remedy: "Correct the value as the message says, or add it if it is missing.",
		Source: talhelperSource,
	},
	{
		ID: FileAddress, Title: "A node's address is not an address", Severity: Failure, Exit: ExitBadInput,
		Cause: "ipAddress takes IP addresses and DNS names, separated by commas. Ranges, prefix lengths and " +
			"ports are not allowed; talhelper takes some of them for host names.",
		Remedy: "Write each machine's address out.",
		Source: "talhelper v3.1.16, pkg/config/validator.go",
	},
	{
		ID: FileDuplicate, Title: "Two nodes have the same address, hostname or machine config", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "An entry was copied and not changed everywhere. Hostnames are compared without regard to case, " +
			"because Kubernetes node names are in lower case.",
		Remedy: "Give each node its own address and hostname.",
		Source: "docs.siderolabs.com, hostnames; talhelper v3.1.16, pkg/config/outputfilename.go",
	},
	{
		ID: FileNoNodes, Title: "No nodes are declared", Severity: Failure, Exit: ExitBadInput,
		Cause:  "`nodes:` is missing or empty in talconfig.yaml, or `nodes.controlplane.assignments:` in cluster.yaml.",
		Remedy: "List the machines there.",
		Source: talhelperSource,
	},
	{
		ID: SharedConfig, Title: "Several machines would get the same hostname or address", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Several addresses in one ipAddress are several machines that share one machine config. A static hostname " +
			"or address in it would " +
			"be set on each of them.",
		Remedy: "Give each machine an entry of its own, or set `ignoreHostname: true` and leave names and addresses to DHCP.",
		Source: "budimanjojo/talhelper#344, #346, #407",
	},
	{
		ID: ConfigMissing, Title: "A node's machine config does not exist", Severity: Failure, Exit: ExitBadInput,
		Cause: "The configs were not generated since the node was added to talconfig.yaml, or CLUSTERCONFIG_DIR points " +
			"elsewhere.",
		Remedy: "Make them: `mage config:generate`.",
		Source: "talhelper v3.1.16, pkg/config/outputfilename.go",
	},
	{
		ID: ConfigUnreadable, Title: "A machine config can't be decoded", Severity: Failure, Exit: ExitBadInput,
		Cause: "It is empty, not YAML, has keys or documents that Talos does not know, or lacks the main document.",
		Remedy: "Correct what the message names, in talconfig.yaml or in a patch, and generate again: " +
			"`mage config:generate`.",
		Source: "siderolabs/talos, pkg/machinery/config/configloader",
	},
	{
		ID: ConfigRole, Title: "A machine config is for the other role", Severity: Failure, Exit: ExitBadInput,
		Cause: "talconfig.yaml and machine.type disagree on whether the node is a control plane. The role decides where " +
			"etcd is bootstrapped, so " +
			"nothing is done with either.",
		Remedy: "Correct `controlPlane` in talconfig.yaml, or generate the configs again: `mage config:generate`.",
		Source: "siderolabs/talos#8134; cozystack/talos-bootstrap#14",
	},
	{
		ID: ConfigHostname, Title: "A machine config has another hostname", Severity: Failure, Exit: ExitBadInput,
		Cause:  "The static hostname in the config is not the one of talconfig.yaml: the file is old, or another node's.",
		Remedy: "Generate the configs again: `mage config:generate`.",
		Source: "siderolabs/talos, HostnameConfig document and machine.network.hostname",
	},
	{
		ID: ConfigAddress, Title: "A machine config has no static address that talconfig.yaml declares", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "The config sets static addresses, and ipAddress of talconfig.yaml is none of them: after the apply the " +
			"node would answer elsewhere, " +
			"or the config is another node's.",
		Remedy: "Make ipAddress one of the node's static addresses; where the machine answers now, mage discover -save " +
			"finds out.",
		Source: "siderolabs/talos#7872, #11645",
	},
	{
		ID: ConfigCA, Title: "The files trust different certificate authorities", Severity: Failure, Exit: ExitBadInput,
		Unskippable: true,
		Cause: "The files come from two sets of secrets. It happens when the secrets file is missing or misnamed: " +
			"talhelper then makes new secrets " +
			"on every run.",
		Remedy: regenerate,
		Source: "budimanjojo/talhelper#242, #436, #926; siderolabs/talos#5711, #12575",
	},
	{
		ID: ConfigSecrets, Title: "The machine configs don't share the cluster's secrets", Severity: Failure,
		Exit: ExitBadInput, Unskippable: true,
		Cause:  "Tokens, the cluster id or the Kubernetes CA differ between the files: they were not made in one go.",
		Remedy: regenerate,
		Source: "siderolabs/talos#5942",
	},
	{
		ID: ConfigPlaceholder, Title: "A secret in a machine config is still a placeholder or encrypted", Severity: Failure,
		Exit: ExitBadInput, Unskippable: true,
		Cause: "A reference for a password manager, an unresolved variable or SOPS ciphertext stands where a secret " +
			"should be.",
		Remedy: "Resolve or decrypt the secrets before the configs are generated, or decrypt the file.",
		Source: "budimanjojo/talhelper#865; postfinance/topf#69",
	},
	{
		ID: TalosconfigMissing, Title: "There is no talosconfig", Severity: Failure, Exit: ExitBadInput,
		Cause:  "Without it nobody can talk to a node once it is configured.",
		Remedy: "Make it with the machine configs: `mage config:generate`, or set TALOSCONFIG to where it is.",
		Source: "siderolabs/talos, pkg/machinery/client/config",
	},
	{
		ID: TalosconfigBroken, Title: "The talosconfig can't be used", Severity: Failure, Exit: ExitBadInput,
		Cause:  "It can't be parsed, has no current context, or its certificates can't be decoded.",
		Remedy: "Make it again: `mage config:generate`.",
		Source: "siderolabs/talos, pkg/machinery/client/config",
	},
	{
		ID: TalosconfigForeign, Title: "The talosconfig is another cluster's", Severity: Failure, Exit: ExitBadInput,
		Unskippable: true,
		Cause: "Its certificate authority is not the one in the machine configs: every node would refuse it as soon as " +
			"it is configured.",
		Remedy: "Set TALOSCONFIG to this cluster's file, or " +
			"make the configs and the talosconfig again from one set of secrets: `mage config:generate`.",
		Source: "siderolabs/talos#12575; budimanjojo/talhelper#436",
	},
	{
		ID: SecretsFileMisnamed, Title: "The cluster's secrets file may be misnamed", Severity: Warning, Exit: ExitBadInput,
		Cause: "The secrets are read from talsecret.yaml or talsecret.sops.yaml, and neither exists. talhelper " +
			"would then silently make new ones on every run. Here none are made.",
		Remedy: "Rename the file to talsecret.sops.yaml.",
		Source: "budimanjojo/talhelper#926; onedr0p/cluster-template#1358",
	},
	{
		ID: ConfigCluster, Title: "A machine config belongs to another cluster or endpoint", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "The cluster's name or endpoint in the config is not the one of talconfig.yaml: the file is old, or " +
			"another cluster's.",
		Remedy: "Generate the configs again: `mage config:generate`.",
		Source: "siderolabs/talos, cluster.clusterName and cluster.controlPlane.endpoint",
	},
	{
		ID: FileUnwritable, Title: "A file can't be written", Severity: Failure, Exit: ExitBadInput,
		Cause: "The folder is read-only or not yours, the disk is full, or something else has the file's name. " +
			"An existing file is unchanged.",
		Remedy: "Make room, or the folder writable, and run the same command again; or say where else the file may be " +
			"(TMPDIR, REPORT_FILE, TALOSCONFIG, CLUSTERCONFIG_DIR).",
		Source: "operating system",
	},
	{
		ID: SecretsAmbiguous, Title: "There is more than one secrets file", Severity: Warning, Exit: ExitBadInput,
		Cause: "The first of talsecret.yaml, talsecret.sops.yaml, talsecret.yml and talsecret.sops.yml that " +
			"exists is read. A plain one beside the encrypted one wins, even if it is older or another " +
			"cluster's.",
		Remedy: "Keep the one that the nodes' configs were made from, encrypted, and move the other one away.",
		Source: "talhelper v3.1.16, cmd/genconfig.go",
	},
}

// Unwritable is the problem of a file or folder that a run could not write, with the operating system's reason.
func Unwritable(path string, err error) *Problem {
	reason := err.Error()

	var number syscall.Errno
	if errors.As(err, &number) {
		reason = number.Error()
	}

	problem := &Problem{Err: err, Finding: Finding{
		ID:       FileUnwritable,
		Severity: Failure,
		Cause:    path + " can't be written: " + reason,
		Next:     "make its folder writable, then run the same command again",
		Exit:     ExitBadInput,
	}}

	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		// No setting or file is wrong.
		problem.Exit = ExitUnexpected
		problem.Next = "free some space, then run the same command again"
	}

	return problem
}
