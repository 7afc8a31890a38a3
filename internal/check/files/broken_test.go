package files_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Of a file that can't be parsed there is one finding, with its place, and the other files are judged all the same.
func TestEverySortOfFileThatDoesNotParse(t *testing.T) {
	t.Parallel()

	const unclosed = "a: b\nc: [d\n"

	for sort, test := range map[string]struct {
		name, text string
		talconfig  string // what is added to it
		id         diagnosis.ID
		at         string
	}{
		"talconfig": {name: "talconfig.yaml", text: unclosed, id: diagnosis.FileSyntax,
			at: "talconfig.yaml:3:1"},
		"talconfig with a tab": {name: "talconfig.yaml", text: "clusterName: lab\n\tnodes: []\n",
			id: diagnosis.FileSyntax, at: "talconfig.yaml:2:1"},
		"talconfig that is a list": {name: "talconfig.yaml", text: "- a\n", id: diagnosis.FileType,
			at: "talconfig.yaml:1:1"},
		"talconfig of nothing": {name: "talconfig.yaml", text: "# nothing\n", id: diagnosis.FileMissing,
			at: "talconfig.yaml"},
		"talconfig in another encoding": {name: "talconfig.yaml", text: "clusterName: \xff\xfe\n",
			id: diagnosis.FileSyntax, at: "talconfig.yaml:1:14"},
		"machine config": {name: "clusterconfig/lab-n2.yaml", text: unclosed,
			id: diagnosis.ConfigUnreadable, at: "clusterconfig/lab-n2.yaml:3:1"},
		"machine config of nothing": {name: "clusterconfig/lab-n2.yaml", text: "", id: diagnosis.ConfigUnreadable,
			at: "clusterconfig/lab-n2.yaml"},
		"machine config with a bad key": {name: "clusterconfig/lab-n2.yaml",
			text: "version: v1alpha1\nmachine:\n  typ: worker\ncluster: {}\n", id: diagnosis.ConfigUnreadable,
			at: "clusterconfig/lab-n2.yaml:3:3"},
		"machine config of a bad kind": {name: "clusterconfig/lab-n2.yaml",
			text: mainDocument("worker", "", "") + "---\napiVersion: v1alpha1\nkind: LinkConfg\nname: eth0\n",
			id:   diagnosis.ConfigUnreadable, at: "clusterconfig/lab-n2.yaml:8:1"},
		"machine config of a bad value": {name: "clusterconfig/lab-n2.yaml",
			text: mainDocument("worker", "network: 5", ""), id: diagnosis.ConfigUnreadable, at: "clusterconfig/lab-n2.yaml:4:3"},
		"machine config in another encoding": {name: "clusterconfig/lab-n2.yaml", text: "version: \xff\xfe\n",
			id: diagnosis.ConfigUnreadable, at: "clusterconfig/lab-n2.yaml:1:10"},
		"talosconfig": {name: "clusterconfig/talosconfig", text: unclosed,
			id: diagnosis.TalosconfigBroken, at: "clusterconfig/talosconfig:3:1"},
		"talosconfig without a context": {name: "clusterconfig/talosconfig",
			text: "context: lab\ncontexts:\n  other:\n    endpoints: []\n", id: diagnosis.TalosconfigBroken,
			at: "clusterconfig/talosconfig:2:1"},
		"variables": {name: "talenv.yaml", text: unclosed, id: diagnosis.FileSyntax,
			at: "talenv.yaml:3:1"},
		"secrets": {name: "talsecret.yaml", text: unclosed, id: diagnosis.FileSyntax,
			at: "talsecret.yaml:3:1"},
		"patch": {name: "patches/a.yaml", text: unclosed,
			talconfig: "patches: ['@patches/a.yaml']\n", id: diagnosis.FileSyntax, at: "patches/a.yaml:3:1"},
	} {
		t.Run(sort, func(t *testing.T) {
			t.Parallel()

			made := lab(routed("192.0.2.11/24", "198.51.100.1"), config{role: "worker"}).talosconfig(t, "192.0.2.11")
			made["talconfig.yaml"] += test.talconfig

			if test.name != "" {
				made[test.name] = test.text
			}

			result := table.Run(context.Background(), made.read(t))

			var found []diagnosis.Finding

			for _, finding := range result.Trouble() {
				if finding.ID == test.id {
					found = append(found, finding)
				}
			}

			require.Len(t, found, 1, "%v", found)
			require.Equal(t, test.at, found[0].At.String(), found[0].Cause)
			require.NotEmpty(t, found[0].Next)
			require.Equal(t, diagnosis.Failure, found[0].Severity)
			require.Equal(t, diagnosis.ExitBadInput, result.ExitCode())
			require.Len(t, findingsOf(result, diagnosis.GatewayOutside), 1, "the other files are judged")
		})
	}
}

// A folder in the place of a file is a finding too.
func TestAFolderInThePlaceOfAFile(t *testing.T) {
	t.Parallel()

	for name, id := range map[string]diagnosis.ID{
		"talconfig.yaml": diagnosis.FileUnreadable, "clusterconfig/lab-n2.yaml": diagnosis.ConfigUnreadable,
		"clusterconfig/talosconfig": diagnosis.TalosconfigBroken,
	} {
		made := lab(routed("192.0.2.11/24", "198.51.100.1"), config{role: "worker"}).talosconfig(t, "192.0.2.11")
		folder := made.write(t)
		require.NoError(t, os.Remove(filepath.Join(folder, name)))
		require.NoError(t, os.Mkdir(filepath.Join(folder, name), 0o700))

		result := table.Run(context.Background(), readFolder(folder))
		found := findingsOf(result, id)
		require.Len(t, found, 1, name)
		require.Equal(t, name, found[0].At.Path)
		require.Len(t, findingsOf(result, diagnosis.GatewayOutside), 1, "the other files are judged")
	}
}

// A misspelt key may be that of a secret, whatever else is wrong in its line.
func TestNothingShowsWhatAMisspeltKeyOfATalconfigSets(t *testing.T) {
	t.Parallel()

	const value = "hunter2"

	for name, entry := range map[string]string{
		"beside what is needed":    "  - pasword: " + value + "\n    ipAddress: 192.0.2.13\n",
		"beside what is elsewhere": "  - {hostname: n3, pasword: " + value + ", ipAddress: 192.0.2.11}\n",
		"where a text belongs":     "  - hostname: {pasword: " + value + "}\n    ipAddress: 192.0.2.13\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			made := lab(config{})
			made["talconfig.yaml"] += entry
			result := table.Run(context.Background(), made.read(t))
			require.NotEmpty(t, result.Trouble())
			require.False(t, strings.Contains(write(t, result, "json"), value), write(t, result, "table"))
		})
	}
}

// talhelper passes over a key that it does not know, and many files keep anchors under one. As long as something refers
// to them there is only a warning, and the machine configs are made.
func TestKeysThatHoldAnchors(t *testing.T) {
	t.Parallel()

	const nodes = "clusterName: lab\nendpoint: https://192.0.2.11:6443\ntalosVersion: v1.13.4\nkubernetesVersion: v1.35.2\n" +
		"nodes:\n  - hostname: n1\n    ipAddress: 192.0.2.11\n    controlPlane: true\n    installDisk: /dev/vda\n" +
		"    nameservers: &servers [192.0.2.53]\n"

	for name, test := range map[string]struct {
		keys string
		// severity is that of the finding about the first line; OK for none.
		severity diagnosis.Severity
	}{
		"a value":            {"dns: &dns [192.0.2.53]\nworker: {nameservers: *dns}\n", diagnosis.Warning},
		"a mapping to merge": {"defaults: &defaults {nameservers: [192.0.2.53]}\nworker: {<<: *defaults}\n", diagnosis.Warning},
		"several below it": {"shared: {dns: &dns [192.0.2.53], lists: [&labels {a: b}]}\n" +
			"worker: {nameservers: *dns, nodeLabels: *labels}\n", diagnosis.Warning},
		"like a key that there is": {"node: &node {nameservers: [192.0.2.53]}\nworker: {<<: *node}\n", diagnosis.Warning},
		"known to hold some":       {"x-dns: &dns [192.0.2.53]\nworker: {nameservers: *dns}\n", diagnosis.OK},
		"nothing refers to it":     {"dns: &dns [192.0.2.53]\n", diagnosis.Failure},
		"it refers to others":      {"dns: *servers\n", diagnosis.Failure},
		"no anchor":                {"dns: [192.0.2.53]\n", diagnosis.Failure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			text := test.keys + nodes
			if name == "it refers to others" {
				text = nodes + test.keys
			}

			folder := files{"talconfig.yaml": text}.write(t)
			found := findingsOf(table.Run(context.Background(), readFolder(folder)), diagnosis.FileKey)

			if test.severity == diagnosis.OK {
				require.Empty(t, found)

				return
			}

			require.Len(t, found, 1)
			require.Equal(t, test.severity, found[0].Severity)
			require.Contains(t, found[0].Next, "may start with x-")

			_, err := inventory.Load(inventory.Options{TalosDir: folder})
			require.Equal(t, test.severity == diagnosis.Failure, err != nil)
		})
	}
}
