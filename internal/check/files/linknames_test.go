package files_test

import (
	"strings"
	"testing"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// numbered is a control plane whose kernel numbers its links, with these interfaces in the old style or as documents.
func numbered(interfaces string, texts ...string) config {
	return config{
		machine:   "install:\n\tdisk: /dev/vda\n\textraKernelArgs: [net.ifnames=0]\n" + interfaces,
		documents: texts,
	}
}

func TestNamesThatKernelArgumentsTakeAway(t *testing.T) {
	t.Parallel()

	old := func(name string) string {
		return "network:\n\tinterfaces:\n\t\t- interface: " + name + "\n\t\t\tdhcp: true"
	}

	schematic := func(args string) files {
		made := lab(config{machine: old("enp1s0")})
		made["talconfig.yaml"] += "    schematic:\n      customization:\n        extraKernelArgs: [" + args + "]\n"

		return made
	}

	unused := schematic("net.ifnames=0")
	unused["talconfig.yaml"] = strings.Replace(unused["talconfig.yaml"], "    schematic:",
		"    talosImageURL: ghcr.io/siderolabs/installer\n    schematic:", 1)

	judge(t, diagnosis.LinkNameTakenAway, map[string]trial{
		"old": {files: lab(numbered(old("enp1s0"))), line: "- interface: enp1s0",
			cause: "enp1s0 is a name that net.ifnames=0 in install.extraKernelArgs takes away"},
		"document": {files: lab(numbered("", "kind: LinkConfig\nname: eno1")), line: "name: eno1", cause: "eno1"},
		"VLAN's parent": {files: lab(numbered("", "kind: VLANConfig\nname: eno1.7\nvlanID: 7\nparent: eno1")),
			line: "parent: eno1", cause: "eno1"},
		"bond's member": {files: lab(numbered("",
			"kind: BondConfig\nname: bond0\nbondMode: active-backup\nlinks: [ens1, ens2]")), line: "links: [ens1, ens2]",
			cause: "ens1"},
		"schematic": {files: schematic("console=ttyS0, net.ifnames=0"), line: "- interface: enp1s0",
			cause: "in its schematic"},
		"numbered":         {files: lab(numbered(old("eth0")))},
		"made by a config": {files: lab(numbered("", "kind: DummyLinkConfig\nname: eno1"))},
		"not the last one": {files: schematic("net.ifnames=0, net.ifnames=1")},
		"another image":    {files: unused},
		"no argument":      {files: lab(config{machine: old("enp1s0")})},
		"ignored argument": {files: lab(config{machine: "install:\n\tdisk: /dev/vda\n\tgrubUseUKICmdline: " +
			"true\n\textraKernelArgs: [net.ifnames=0]\n" + old("enp1s0")})},
	})
}
