package files_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// patched adds patches to a talconfig with one control plane and one worker: list is its key with what follows, below
// "nodes" when it is indented.
func withList(list string) files {
	made := lab(config{}, config{role: "worker"})
	made["talconfig.yaml"] += strings.ReplaceAll(strings.Trim(list, "\n"), "\t", "  ") + "\n"

	return made
}

// inline is one patch for all nodes that stands in the talconfig.
func inline(patch string) files {
	return withList("patches:\n\t- |-\n\t\t" + strings.ReplaceAll(strings.Trim(patch, "\n"), "\n", "\n\t\t"))
}

// inFile is one patch for all nodes in a file.
func inFile(patch string) files {
	return withList("patches:\n\t- '@./patches/a.yaml'").with("patches/a.yaml", strings.ReplaceAll(patch, "\t", "  "))
}

func talosVersion(made files, version string) files {
	return made.replaced("talconfig.yaml", "talosVersion: v1.13.9", "talosVersion: "+version).replaced("talconfig.yaml",
		"v1.36.0", "v1.33.0")
}

// Patches are judged as they are rendered: with the variables' values, and one dollar sign for two.
func TestPatchesAreJudgedAsTheyAreRendered(t *testing.T) {
	t.Parallel()

	const (
		key      = "machine:\n\tsysctls:\n\t\t$$patch: delete\n"
		label    = "machine:\n\tnodeLabels:\n\t\tnode.kubernetes.io/exclude:\n\t\t\t$$patch: delete\n"
		document = "apiVersion: v1alpha1\nkind: HostnameConfig\n$$patch: delete\n"
		number   = "machine:\n\tnetwork:\n\t\tinterfaces:\n\t\t\t- interface: eth0\n\t\t\t\tmtu: ${MTU}\n"
	)

	for name, patch := range map[string]string{
		"a key": key, "a label": label, "a document": document, "a variable": number, "no operation": "[]",
		"no operation in lines": "[\n\n]\n",
	} {
		for way, made := range map[string]files{
			"in a file": inFile(patch), "inline": inline(strings.ReplaceAll(patch, "\t", "  ")),
		} {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()

				result := table.Run(context.Background(), made.with("talenv.yaml", "MTU: 1450\n").read(t))

				for _, id := range []diagnosis.ID{
					diagnosis.PatchUnusable, diagnosis.PatchUnknownKey, diagnosis.PatchDeletesNone, diagnosis.FileVariable,
				} {
					require.Empty(t, findingsOf(result, id), "%s", id)
				}
			})
		}
	}

	wrong := table.Run(context.Background(), inFile(number).with("talenv.yaml", "MTU: large\n").read(t))
	require.Len(t, findingsOf(wrong, diagnosis.PatchUnusable), 1, "what a variable brings is judged too")

	// A deletion is not taken for the mistake that stands elsewhere, or where it is.
	for name, test := range map[string]struct {
		id               diagnosis.ID
		patch, at, cause string
	}{
		"a key beside a deletion": {diagnosis.PatchUnknownKey,
			"# all\n" + document + "---\n# of nodes\nmachine:\n\tsysctl: {a: b}\n", "8:3", "machine.sysctl"},
		"a key beside a deletion of a list": {diagnosis.PatchUnknownKey,
			"machine:\n\tcertSANs:\n\t\t$$patch: delete\n\n\tsysctl: {a: b}\n", "5:3", "machine.sysctl"},
		"a value beside a deletion": {diagnosis.PatchUnusable,
			"# all\n" + key + "\n\tnetwork:\n\t\tinterfaces:\n\t\t\t- mtu: large\n", "8:7", "can't be decoded"},
		"a kind beside a deletion": {diagnosis.PatchUnknownKey,
			"# all\n" + document + "---\napiVersion: v1alpha1\nkind: HostConfig\n", "6:1", "kind HostConfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			found := findingsOf(table.Run(context.Background(), inFile(test.patch).read(t)), test.id)
			require.Len(t, found, 1)
			require.Equal(t, "patches/a.yaml:"+test.at, found[0].At.String())
			require.Contains(t, found[0].Cause, test.cause)
		})
	}
}

func TestDocumentsThatAPatchHasTwice(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.DocumentTwice, map[string]trial{
		"without a kind": {files: inFile("machine:\n\tsysctls: {a: b}\n---\nmachine:\n\tsysctls: {c: d}\n"),
			at: "patches/a.yaml", line: "machine:",
			cause: "a document without a kind a second time: the first begins in line 1"},
		"of one name": {files: inline("apiVersion: v1alpha1\nkind: VLANConfig\nname: v1\nvlanID: 5\nparent: " +
			"eth0\n---\napiVersion: v1alpha1\nkind: VLANConfig\nname: v1\nvlanID: 6\nparent: eth0"), at: "talconfig.yaml",
			line: "apiVersion: v1alpha1", cause: "VLANConfig v1 a second time: the first begins in line 16"},
		"of two names": {files: inline("apiVersion: v1alpha1\nkind: VLANConfig\nname: v1\nvlanID: 5\nparent: " +
			"eth0\n---\napiVersion: v1alpha1\nkind: VLANConfig\nname: v2\nvlanID: 6\nparent: eth0")},
		"by variables": {files: inFile("apiVersion: v1alpha1\nkind: VLANConfig\nname: ${A}\nvlanID: 5\nparent: " +
			"eth0\n---\napiVersion: v1alpha1\nkind: VLANConfig\nname: ${B}\nvlanID: 6\nparent: eth0\n")},
	})
}

func TestJSONPatches(t *testing.T) {
	t.Parallel()

	const operations = "- op: remove\n\tpath: /cluster/apiServer/admissionControl\n"

	judge(t, diagnosis.JSONPatchRefused, map[string]trial{
		"file for all": {files: inFile(operations), at: "talconfig.yaml", line: "- '@./patches/a.yaml'",
			cause: "the patch patches/a.yaml is a list of operations (RFC 6902), which Talos refuses for configs of several " +
				"documents, and from Talos 1.12 on HostnameConfig is one of n1, n2"},
		"inline": {files: inline(operations), line: "- |-", cause: "n1, n2"},
		"as JSON": {files: withList("patches:\n\t- '[{\"op\": \"remove\", \"path\": \"/cluster/apiServer\"}]'"),
			cause: "list of operations"},
		"a role": {files: withList("worker:\n\tpatches:\n\t\t- '@./patches/a.yaml'").with("patches/a.yaml",
			strings.ReplaceAll(operations, "\t", "  ")), cause: "of n2"},
		"a node": {files: withList("\t\tpatches:\n\t\t\t- '@patches/a.yaml'").with("patches/a.yaml",
			strings.ReplaceAll(operations, "\t", "  ")), line: "- '@patches/a.yaml'", cause: "of n2"},
		"firewall": {files: talosVersion(inFile(operations), "v1.11.6").replaced("talconfig.yaml",
			"    installDisk: /dev/vda\n  - hostname: n2",
			"    installDisk: /dev/vda\n    ingressFirewall: {defaultAction: block}\n  - hostname: n2"),
			cause: "ingressFirewall makes some of n1"},
		"one document": {files: talosVersion(inFile(operations), "v1.11.6")},
		"nobody's": {files: lab(config{}).replaced("talconfig.yaml", "nodes:",
			"worker:\n  patches: ['@./patches/a.yaml']\nnodes:").with("patches/a.yaml",
			strings.ReplaceAll(operations, "\t", "  "))},
		"overridden": {files: withList("\t\toverridePatches: true\nworker:\n\tpatches: ['@./patches/a.yaml']").with(
			"patches/a.yaml", strings.ReplaceAll(operations, "\t", "  "))},
	})

	found := findingsOf(table.Run(context.Background(), inFile(operations).read(t)), diagnosis.JSONPatchRefused)
	require.Equal(t, "write it as a strategic merge patch: {cluster: {apiServer: {admissionControl: {$patch: delete}}}}",
		found[0].Next)
}

func TestPatchesWithoutContent(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.PatchEmpty, map[string]trial{
		"no byte": {files: inFile(""), at: "talconfig.yaml", line: "- '@./patches/a.yaml'",
			cause: "the patch patches/a.yaml is empty"},
		"comments": {files: inFile("---\n# machine: {}\n"), cause: "is empty"},
		"inline":   {files: withList("patches:\n\t- \"\""), line: `- ""`, cause: "the patch is empty"},
		"by a template": {files: inFile("\n").with("templates/a.yaml.j2",
			"#% if loki_enabled %#\nmachine: {}\n#% endif %#\n"),
			cause: `its template writes it only if "loki_enabled" holds (templates/a.yaml.j2:1)`},
		"operations":                           {files: inFile("[]\n"), cause: "is empty"},
		"no operations, on lines of their own": {files: inFile("---\n[\n\n]\n"), cause: "is empty"},
		"something":                            {files: inFile("# all\nmachine:\n\tsysctls: {a: b}\n")},
	})

	judge(t, diagnosis.PatchUnusable, map[string]trial{
		"a word": {files: inFile("sysctls\n"), at: "patches/a.yaml", line: "(masked)",
			cause: "the patch patches/a.yaml is a single value, and no mapping"},
		"a list": {files: inFile("- machine: {}\n"), cause: "is a list, and not of operations"},
		"no file": {files: withList("patches:\n\t- patches/a.yaml for all"), at: "talconfig.yaml",
			cause: "a single value"},
		"inline": {files: inline("machine:\n\tsysctls: [a"), at: "talconfig.yaml", cause: "is not valid YAML"},
		"wrong type": {files: inFile("machine:\n\tnetwork:\n\t\tinterfaces:\n\t\t\t- mtu: large\n"), at: "patches/a.yaml",
			line:  "- mtu: large",
			cause: "can't be decoded"},
		"no kind":  {files: inFile("apiVersion: v1\nmetadata: {name: a}\n"), cause: "missing kind"},
		"nothing":  {files: inFile("name: a\n"), cause: "the patch patches/a.yaml says nothing"},
		"template": {files: inFile("{{ if true }}\nmachine: {}\n{{ end }}\n")},
		"by a variable": {files: inFile("machine:\n\tnetwork:\n\t\tinterfaces:\n\t\t\t- mtu: ${MTU}\n\tcertSANs: [${A}, " +
			"${B}]\n")},
		"ciphertext": {files: inFile("machine:\n\ttoken: ENC[AES256_GCM,data:x]\nsops: {version: 3.9.0}\n")},
	})
}

func TestPatchesThatAreListedAndNotThere(t *testing.T) {
	t.Parallel()

	missing := func() files { return withList("patches:\n\t- '@./patches/machine-logging.yaml'") }

	judge(t, diagnosis.PatchMissing, map[string]trial{
		"for all": {files: missing(), at: "talconfig.yaml", line: "- '@./patches/machine-logging.yaml'",
			cause: "the patch patches/machine-logging.yaml does not exist"},
		"a role": {files: withList("worker:\n\tpatches:\n\t\t- '@patches/a.yaml'"), line: "- '@patches/a.yaml'",
			cause: "does not exist"},
		"a node":         {files: withList("\t\tpatches: ['@patches/a.yaml']"), cause: "does not exist"},
		"without a sign": {files: withList("patches: [patches/a.yaml]"), cause: "does not exist"},
		"manifest": {files: withList("\t\textraManifests: ['@manifests/a.yaml']"),
			line: "extraManifests: ['@manifests/a.yaml']", cause: "manifests/a.yaml does not exist"},
		"condition": {
			files: missing().with("templates/patches/machine-logging.yaml.j2",
				"#% if talos_system_logs_enabled %#\nmachine: {}\n#% endif %#\n").with("cluster.yml", "loki_enabled: true\n"),
			cause: `its template writes it only if "talos_system_logs_enabled" holds (templates/patches/machine-logging.yaml.j2:1), and talos_system_logs_enabled stands in none of cluster.yml, talconfig.yaml`,
		},
		"defined": {files: missing().with("machine-logging.yaml.tmpl", "{{- if .loki }}\n").with("values.yaml",
			"loki: false\n"), cause: `only if ".loki" holds (machine-logging.yaml.tmpl:1)`},
		"not rendered": {files: missing().with("templates/machine-logging.yaml.j2", "# all\nmachine: {}\n"),
			cause: "made from templates/machine-logging.yaml.j2, which was not rendered since"},
		"there":         {files: missing().with("patches/machine-logging.yaml", "machine: {}\n")},
		"by a variable": {files: withList("patches: ['@patches/${CLUSTER}.yaml']")},
		"of no node": {files: lab(config{}).replaced("talconfig.yaml", "nodes:",
			"worker:\n  patches: ['@./patches/a.yaml']\nnodes:")},
		"two places": {files: withList("patches: ['@a.yaml']\nworker:\n\tpatches: ['@b.yaml']").with("a.yaml",
			"machine: {}\n"), cause: "b.yaml"},
		"near one there": {files: missing().with("patches/machine-loging.yaml", ""), cause: "does not exist"},
	})

	found := findingsOf(table.Run(context.Background(),
		missing().with("patches/machine-loging.yaml", "machine: {}\n").read(t)), diagnosis.PatchMissing)
	require.Equal(t, "did you mean machine-loging.yaml?", found[0].Next)
}

func TestKeysOfPatches(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.PatchUnknownKey, map[string]trial{
		"misspelt": {files: inFile("machine:\n\tsysctl:\n\t\ta: b\n"), at: "patches/a.yaml", line: "sysctl:",
			cause: "unknown keys: machine.sysctl (did you mean sysctls?)"},
		"inline": {files: inline("machine:\n\tkubelet:\n\t\textraArg: {a: b}"), at: "talconfig.yaml",
			line: "extraArg: (masked)", cause: "machine.kubelet.extraArg (did you mean extraArgs?)"},
		"a role": {files: withList("controlPlane:\n\tpatches:\n\t\t- '@a.yaml'").with("a.yaml",
			"cluster: {apiserver: {}}\n"), at: "a.yaml", cause: "cluster.apiserver (did you mean apiServer?)"},
		"in a list": {files: inFile("machine:\n\tnetwork:\n\t\tinterfaces:\n\t\t\t- interface: eth0\n\t\t\t\taddress: " +
			"[192.0.2.1/24]\n"), line: "address: [192.0.2.1/24]",
			cause: "machine.network.interfaces[].address (did you mean addresses?)"},
		"document": {files: inFile("apiVersion: v1alpha1\nkind: HostnameConfig\nhostnme: a\n"), line: "hostnme: (masked)",
			cause: "hostnme (did you mean hostname?)"},
		"a secret": {files: inFile("machine: {abcdef.0123456789abcdef: a}\n"), line: "machine: (masked)",
			cause: "unknown keys: machine.(masked: it looks like a key)"},
		"a secret's": {files: inFile("machine:\n\tregistries:\n\t\tconfig:\n\t\t\tghcr.io:\n\t\t\t\tauth:\n\t\t\t\t\t" +
			"pasword: hunter2\n"), line: "pasword: (masked)", cause: "auth.pasword (did you mean password?)"},
		"kind": {files: inFile("apiVersion: v1alpha1\nkind: HostnamConfig\nhostname: a\n"), line: "apiVersion: v1alpha1",
			cause: "kind HostnamConfig, which Talos does not know (did you mean HostnameConfig?)"},
		"manifest": {files: inFile("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"),
			cause: "kind ConfigMap, which Talos does not know"},
		"with variable": {files: inFile("machine:\n\tsysctl:\n\t\ta: ${B}\n"), line: "sysctl:", cause: "machine.sysctl"},
		"right": {files: inFile("machine:\n\tsysctls:\n\t\ta: ${B}\n---\napiVersion: v1alpha1\nkind: " +
			"HostnameConfig\nhostname: a\n")},
		"newer Talos": {files: talosVersion(inFile("apiVersion: v1alpha1\nkind: SysctlConfig\n"),
			"v1.14.0").replaced("talconfig.yaml", "v1.33.0", "v1.36.0")},
	})

	judge(t, diagnosis.PatchNewerKey, map[string]trial{
		"key": {files: talosVersion(inFile("machine:\n\tinstall:\n\t\tgrubUseUKICmdline: false\n"), "v1.11.6"),
			at: "patches/a.yaml", line: "grubUseUKICmdline: false",
			cause: "machine.install.grubUseUKICmdline, which Talos knows from v1.12 on, and talosVersion is v1.11.6"},
		"document": {files: talosVersion(inline("apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data"), "v1.9.5"),
			at: "talconfig.yaml", line: "kind: UserVolumeConfig", cause: "from v1.10 on"},
		"known": {files: talosVersion(inFile("machine:\n\tinstall:\n\t\tgrubUseUKICmdline: false\n"), "v1.12.0")},
		"undeclared": {files: inFile("machine:\n\tinstall:\n\t\tgrubUseUKICmdline: false\n").replaced("talconfig.yaml",
			"talosVersion: v1.13.9\n", "")},
	})
}

// A misspelt key may be that of a secret, whatever is found in its line, and whoever finds it.
func TestNothingShowsWhatAMisspeltKeyOfAPatchSets(t *testing.T) {
	t.Parallel()

	const value = "hunter2"

	for name, patch := range map[string]string{
		"alone": "machine:\n\tregistries:\n\t\tconfig:\n\t\t\tghcr.io:\n\t\t\t\tauth:\n\t\t\t\t\tpasword: " + value + "\n",
		"of a document": "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nencryption:\n\tprovider: luks2\n" +
			"\tkeys:\n\t\t- slot: 0\n\t\t\tstatic: {passphrse: " + value + "}\n",
		"in one line":               "{machine: {kubelt: {pasword: " + value + "}}}\n",
		"where a number belongs":    "machine:\n\tnetwork:\n\t\tinterfaces:\n\t\t\t- mtu: {pasword: " + value + "}\n",
		"beside another":            "machine:\n\tkubelt: {}\n\tnetwork: {pasword: " + value + "}\n",
		"beside a deletion":         "machine:\n\ttme: {pasword: " + value + ", $patch: delete}\n",
		"in a document twice":       "{machine: {pasword: " + value + "}}\n---\n{machine: {pasword: " + value + "}}\n",
		"in what is no YAML":        "machine: {pasword: " + value + "\n",
		"in an operation":           "- {op: add, path: /machine, value: {pasword: " + value + "}}\n",
		"in a list of no operation": "- pasword: " + value + "\n",
		"with an unset variable":    "{machine: {pasword: " + value + ", env: {A: \"${UNSET}\"}}}\n",
	} {
		text := strings.ReplaceAll(patch, "\t", "  ")

		for way, made := range map[string]files{
			"in a file": inFile(patch), "inline": inline(text),
			"inline in one line": withList(fmt.Sprintf("patches:\n\t- %q", text)),
		} {
			for how, read := range map[string]func(files, testing.TB) *check.Input{"read": files.read, "rendered": rendered} {
				t.Run(name+" "+way+" "+how, func(t *testing.T) {
					t.Parallel()

					result := table.Run(context.Background(), read(made, t))
					require.NotEmpty(t, result.Trouble())

					said := write(t, result, "table") + write(t, result, "json") + write(t, result, "sarif")
					require.False(t, strings.Contains(said, value), write(t, result, "table"))
				})
			}
		}
	}
}

func TestDeletionsThatMatchNothing(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.PatchDeletesNone, map[string]trial{
		"unknown key": {files: inFile("cluster:\n\tapiserver:\n\t\t$patch: delete\n"), at: "patches/a.yaml",
			line: "$patch: delete", cause: "deletes cluster.apiserver: Talos knows no such thing"},
		"nobody's": {files: inline("machine:\n\ttime:\n\t\tservers:\n\t\t\t$patch: delete"), at: "talconfig.yaml",
			line: "$patch: delete", cause: "deletes machine.time.servers: neither the inventory nor another patch makes " +
				"machine.time"},
		"document": {files: inFile("apiVersion: v1alpha1\nkind: WatchdogTimerConfig\n$patch: delete\n"),
			cause: "deletes WatchdogTimerConfig: neither the inventory nor another patch"},
		"unknown kind": {files: inFile("apiVersion: v1alpha1\nkind: HostConfig\n$patch: delete\n"),
			cause: "deletes HostConfig: Talos knows no such thing"},
		"default": {files: inFile("cluster:\n\tapiServer:\n\t\tadmissionControl:\n\t\t\t- name: " +
			"PodSecurity\n\t\t\t\t$patch: delete\n")},
		"another's": {files: withList("patches: ['@a.yaml', '@b.yaml']").with("a.yaml",
			"machine:\n  time:\n    servers: [time.example.net]\n").with("b.yaml",
			"machine:\n  time:\n    servers:\n      $patch: delete\n")},
		"generated":   {files: inFile("apiVersion: v1alpha1\nkind: HostnameConfig\n$patch: delete\n")},
		"by itself":   {files: inFile("apiVersion: v1alpha1\nkind: FilesystemTrimConfig\n$patch: delete\n")},
		"free text":   {files: inFile("machine:\n\tkubelet:\n\t\textraConfig:\n\t\t\tserializeImagePulls:\n\t\t\t\t$patch: delete\n")},
		"the section": {files: inFile("machine:\n\ttime:\n\t\t$patch: delete\n")},
		"unreadable": {files: withList("patches: ['@a.yaml', '@b.yaml']").with("a.yaml", "{{ .X }}\n").with("b.yaml",
			"machine:\n  time:\n    servers:\n      $patch: delete\n")},
	})
}

func TestPatchesThatReachANodeTwice(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.PatchListedTwice, map[string]trial{
		"one list": {files: withList("patches:\n\t- '@a.yaml'\n\t- '@./a.yaml'").with("a.yaml", "machine: {}\n"),
			line: "- '@./a.yaml'", cause: "the patch a.yaml is listed twice for n1, n2: the first time at talconfig.yaml:15:5"},
		"two": {files: withList("patches: ['@a.yaml']\nworker:\n\tpatches: ['@a.yaml']").with("a.yaml",
			"machine: {}\n"), line: "patches: ['@a.yaml']", cause: "for n2"},
		"inline": {files: withList("patches:\n\t- '{machine: {certSANs: [a]}}'\nworker:\n\tpatches:\n\t\t- '{machine: " +
			"{certSANs: [a]}}'"), cause: "the patch is listed twice for n2"},
		"two roles": {files: withList("controlPlane:\n\tpatches: ['@a.yaml']\nworker:\n\tpatches: ['@a.yaml']").with("a.yaml",
			"machine: {}\n")},
	})
}

func TestManifestsThatBringWhatIsThere(t *testing.T) {
	t.Parallel()

	const volume = "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\n"

	extra := func(more string) files {
		return withList("\t\textraManifests: ['@m.yaml']\n"+more).with("m.yaml", volume)
	}

	judge(t, diagnosis.ManifestDuplicate, map[string]trial{
		"userVolumes": {files: extra("\t\tuserVolumes: [{name: data}]"), at: "m.yaml", line: "apiVersion: v1alpha1",
			cause: "UserVolumeConfig data is there for n2 already, from userVolumes"},
		"patch": {files: extra("patches: ['@p.yaml']").with("p.yaml", "# p\n"+volume),
			cause: "from the patch p.yaml:2:1"},
		"another": {files: extra("").replaced("talconfig.yaml", "['@m.yaml']", "['@m.yaml', '@o.yaml']").with("o.yaml",
			volume), at: "o.yaml", cause: "from m.yaml:1:1"},
		"the name": {files: extra("").with("m.yaml", "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n"),
			cause: "HostnameConfig is there for n2 already, from the hostname"},
		"other names": {files: extra("\t\tuserVolumes: [{name: other}]")},
		"older Talos": {files: talosVersion(extra("").with("m.yaml",
			"apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n"), "v1.11.6")},
		"other nodes": {files: extra("controlPlane:\n\tpatches: ['@p.yaml']").with("p.yaml", volume)},
	})
}

func TestDocumentsAndFieldsThatSayTheSame(t *testing.T) {
	t.Parallel()

	both := func(machine string, documents ...string) files {
		return lab(config{machine: machine, documents: documents})
	}

	judge(t, diagnosis.DocumentConflict, map[string]trial{
		"resolvers": {files: both("network:\n\tnameservers: [192.0.2.53]",
			"kind: ResolverConfig\nnameservers: [{address: 192.0.2.53}]"), line: "nameservers: [192.0.2.53]",
			cause: "machine.network.nameservers says what the document ResolverConfig says, at " +
				"clusterconfig/lab-n1.yaml:10:1",
			severity: diagnosis.Failure},
		"time": {files: both("time:\n\tservers: [192.0.2.123]", "kind: TimeSyncConfig\nntp: {servers: [192.0.2.124]}"),
			line: "servers: [192.0.2.123]", cause: "TimeSyncConfig"},
		"KubeSpan": {files: both("network:\n\tkubespan: {enabled: true}", "kind: KubeSpanConfig\nenabled: true"),
			line: "kubespan: {enabled: true}", cause: "KubeSpanConfig"},
		"encryption": {files: both("systemDiskEncryption:\n\tstate:\n\t\tprovider: luks2\n\t\tkeys: [{slot: 0, nodeID: {}}]",
			"kind: VolumeConfig\nname: STATE\nencryption:\n\tprovider: luks2\n\tkeys: [{slot: 0, nodeID: {}}]"), line: "state:",
			cause: "encryption of STATE"},
		"registry": {files: both("registries:\n\tmirrors:\n\t\tdocker.io: {endpoints: ['https://mirror.example.net']}",
			"kind: RegistryMirrorConfig\nname: docker.io\nendpoints: [{url: 'https://mirror.example.net'}]"), line: "mirrors:",
			cause: "machine.registries.mirrors declares docker.io", severity: diagnosis.Warning},
		"apart": {files: both("network:\n\tnameservers: [192.0.2.53]\nregistries:\n\tmirrors:\n\t\tghcr.io: {endpoints: "+
			"['https://mirror.example.net']}",
			"kind: TimeSyncConfig\nntp: {servers: [192.0.2.124]}",
			"kind: RegistryMirrorConfig\nname: docker.io\nendpoints: [{url: 'https://mirror.example.net'}]",
			"kind: VolumeConfig\nname: EPHEMERAL\nencryption:\n\tprovider: luks2\n\tkeys: [{slot: 0, nodeID: {}}]")},
	})
}

// declaredProfile is a cluster profile with a control plane cp1 and a worker w1, and files in its folder of patches.
func declaredProfile(talos string, patches files) files {
	made := files{"cluster.yaml": "name: demo\nnetwork: {api_endpoint: 192.0.2.10}\ntalos:\n  version: " + talos +
		"\n  kubernetes_version: 1.34.1\n" +
		"  factory: {schematic_id: " + guestAgentID +
		"}\n  config_dir: configs\nnodes:\n  controlplane:\n    assignments: [{name: cp1, ip: 192.0.2.11}]\n" +
		"  workers:\n    assignments: [{name: w1, ip: 192.0.2.21}]\n"}

	for name, text := range patches {
		made["configs/patches/"+name] = text
	}

	return made
}

func TestPatchesOfAProfile(t *testing.T) {
	t.Parallel()

	const operations = "- op: remove\n  path: /machine/sysctls\n"

	judge(t, diagnosis.JSONPatchRefused, map[string]trial{
		"all": {files: declaredProfile("1.13.9", files{"all.yaml": operations}), at: "configs/patches/all.yaml",
			cause: "of cp1, w1"},
		"one": {files: declaredProfile("1.13.9", files{"w1.yaml": operations}), at: "configs/patches/w1.yaml",
			cause: "of w1"},
		"a role":    {files: declaredProfile("1.13.9", files{"controlplane.yml": operations}), cause: "of cp1"},
		"nobody":    {files: declaredProfile("1.13.9", files{"w2.yaml": operations, "notes.txt": "machine"})},
		"old Talos": {files: declaredProfile("1.11.6", files{"all.yaml": operations})},
	})

	judge(t, diagnosis.PatchUnknownKey, map[string]trial{
		"misspelt": {files: declaredProfile("1.13.9", files{"all.yaml": "machine:\n  sysctl: {a: b}\n"}),
			at: "configs/patches/all.yaml", line: "sysctl: (masked)", cause: "did you mean sysctls?"},
		"right": {files: declaredProfile("1.13.9", files{"all.yaml": "machine:\n  sysctls: {a: b}\n"})},
	})
}

// A run that takes the machine configs as they are is not stopped by what only making them again fails for.
func TestPatchesThatAreNotNeeded(t *testing.T) {
	t.Parallel()

	for name, made := range map[string]files{
		"patch":   withList("patches: ['@patches/a.yaml']"),
		"version": lab(config{}).replaced("talconfig.yaml", "v1.13.9", "v1.13"),
	} {
		folder := made.write(t)
		options := check.Options{TalosDir: folder, Root: folder, AsTheyAre: true}

		severity := func() diagnosis.Severity {
			result := table.Run(context.Background(), check.Read(options))
			found := append(findingsOf(result, diagnosis.PatchMissing), findingsOf(result, diagnosis.VersionIncomplete)...)
			require.Len(t, found, 1, name)

			return found[0].Severity
		}

		require.Equal(t, diagnosis.Warning, severity(), name)
		require.NoError(t, os.Remove(filepath.Join(folder, "clusterconfig", "lab-n1.yaml")))
		require.Equal(t, diagnosis.Failure, severity(), "%s: a machine config has to be made", name)
	}
}

// What the first document of troubles says about its own repository: the list of patches is made always, the patch only
// under a condition.
func TestAPatchThatATemplateDidNotWrite(t *testing.T) {
	t.Parallel()

	folder := withList("patches:\n\t- '@./patches/machine-logging.yaml'").write(t)
	repository := filepath.Dir(folder)
	talos := filepath.Join(repository, "talos")
	require.NoError(t, os.Rename(folder, talos))

	for name, text := range map[string]string{
		"cluster.yaml": "loki_enabled: true\n",
		"templates/config/talos/patches/machine-logging.yaml.j2": "#% if system_logs %#\nmachine:\n  logging: {}\n#% " +
			"endif %#\n",
	} {
		path := filepath.Join(repository, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}

	found := findingsOf(table.Run(context.Background(), check.Read(check.Options{TalosDir: talos, Root: repository})),
		diagnosis.PatchMissing)
	require.Len(t, found, 1)
	require.Equal(t, "talos/talconfig.yaml:15:5", found[0].At.String())
	require.Contains(t, found[0].Cause,
		`only if "system_logs" holds (templates/config/talos/patches/machine-logging.yaml.j2:1), and system_logs stands in none of cluster.yaml`)
	require.Contains(t, found[0].Next, "condition")
	require.Equal(t, diagnosis.ExitBadInput, found[0].ExitCode())
}
