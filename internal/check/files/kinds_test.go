package files_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/sourcelinks"
)

// mistake is one form of a kind of mistake, as a small cluster folder has it.
type mistake struct {
	files files
	// id is the finding that tells of it, and at is where: path:line:column.
	id diagnosis.ID
	at string
	// open is set when others can read the files.
	open bool
	// resolves are the names that the network knows; nil asks no network.
	resolves map[string][]string
}

// kinds are the kinds of mistakes in files that people reported, with the forms that each can take. The reports are the
// sources in the catalogue.
func kinds(t *testing.T) map[string]map[string]mistake {
	t.Helper()

	shared := func(config config) files {
		return lab(config).replaced("talconfig.yaml", "ipAddress: 192.0.2.11",
			"ipAddress: '192.0.2.11, 192.0.2.12,192.0.2.13'\n    ignoreHostname: true")
	}

	run := oneRun(t)

	return map[string]map[string]mistake{
		"several addresses in one ipAddress are several machines": {
			"that would have one name": {files: lab(config{}).replaced("talconfig.yaml", "ipAddress: 192.0.2.11",
				"ipAddress: '192.0.2.11, 192.0.2.12,192.0.2.13'"), id: diagnosis.SharedConfig, at: "talconfig.yaml:7:16"},
			"with a hostname in their config": {files: shared(called("n1")), id: diagnosis.SharedConfig,
				at: "clusterconfig/lab-n1.yaml:5:5"},
			"with a hostname in a document": {files: shared(calledDocument("n1")), id: diagnosis.SharedConfig,
				at: "clusterconfig/lab-n1.yaml:10:1"},
			"with an address in their config": {files: shared(onLink("addresses: [192.0.2.11/24]")), id: diagnosis.SharedConfig,
				at: "clusterconfig/lab-n1.yaml:7:21"},
			"with an address in a document": {files: shared(asDocument("addresses:", "  - address: 2001:db8::11/64")),
				id: diagnosis.SharedConfig, at: "clusterconfig/lab-n1.yaml:12:5"},
			"that are an even number": {files: lab(config{}).replaced("talconfig.yaml", "ipAddress: 192.0.2.11",
				"ipAddress: 192.0.2.11,192.0.2.12\n    ignoreHostname: true"), id: diagnosis.EvenControlPlanes,
				at: "talconfig.yaml:5:1"},
			"one of which is declared twice": {files: lab(config{}).replaced("talconfig.yaml", "ipAddress: 192.0.2.11",
				"ipAddress: 192.0.2.11,192.0.2.11\n    ignoreHostname: true"), id: diagnosis.FileDuplicate,
				at: "talconfig.yaml:7:16"},
			"one of which is another entry's": {files: lab(config{}, config{}).replaced("talconfig.yaml",
				"ipAddress: 192.0.2.11", "ipAddress: 192.0.2.11,192.0.2.12\n    ignoreHostname: true"), id: diagnosis.FileDuplicate,
				at: "talconfig.yaml:12:16"},
			"one of which is none": {files: lab(config{}).replaced("talconfig.yaml", "ipAddress: 192.0.2.11",
				"ipAddress: 192.0.2.11,192.0.2\n    ignoreHostname: true"), id: diagnosis.FileAddress, at: "talconfig.yaml:7:16"},
			"written as a range": {files: lab(config{}).replaced("talconfig.yaml", "ipAddress: 192.0.2.11",
				"ipAddress: 192.0.2.11-192.0.2.13\n    ignoreHostname: true"), id: diagnosis.FileAddress,
				at: "talconfig.yaml:7:16"},
		},
		"a node is declared by a name": {
			"that its certificate is not for": {files: named("cp1.example.net", config{}), id: diagnosis.NameNotCertified,
				at: "talconfig.yaml:7:5"},
			"that does not resolve": {files: named("cp1.example.net", certified), id: diagnosis.NameUnresolved,
				at: "talconfig.yaml:7:5", resolves: map[string][]string{"other.example.net": {"192.0.2.11"}}},
			"that has two addresses": {files: named("cp1.example.net", certified), id: diagnosis.NameAmbiguous,
				at: "talconfig.yaml:7:5", resolves: map[string][]string{"cp1.example.net": {"192.0.2.11", "2001:db8::11"}}},
			"that has the endpoint's address": {files: named("cp1.example.net", certified, config{}),
				id: diagnosis.NameAmbiguous, at: "talconfig.yaml:7:5",
				resolves: map[string][]string{"cp1.example.net": {"192.0.2.10"}}},
			"and the talosconfig, uncertified": {files: lab(
				documents("kind: HostnameConfig\nhostname: n1",
					"kind: LinkConfig\nname: eth0\naddresses:\n  - address: 192.0.2.11/24")).talosconfig(t, "talos.example.net"),
				id: diagnosis.EndpointNotCertified, at: "clusterconfig/talosconfig:5:15"},
		},
		"the secrets file has a name that nothing reads": {
			"an s too many": {files: lab(config{}).with("talsecrets.sops.yaml", "cluster: {}\n"),
				id: diagnosis.SecretsFileMisnamed, at: "talsecrets.sops.yaml"},
			"another program's": {files: lab(config{}).with("talhelper.sops.yaml", "cluster: {}\n"),
				id: diagnosis.SecretsFileMisnamed, at: "talhelper.sops.yaml"},
			"talosctl's": {files: lab(config{}).with("secrets.yaml", "cluster: {}\n"), id: diagnosis.SecretsFileMisnamed,
				at: "secrets.yaml"},
		},
		"an even number of control planes": {
			"two": {files: lab(config{}, config{}), id: diagnosis.EvenControlPlanes, at: "talconfig.yaml:5:1"},
			"four": {files: lab(config{}, config{}, config{}, config{role: "worker"}, config{}), id: diagnosis.EvenControlPlanes,
				at: "talconfig.yaml:5:1"},
		},
		"files come from two runs of generation": {
			"one node's CA differs": {files: twoRuns(t, run, "clusterconfig/lab-n2.yaml", `(?s)(machine:.*?crt: )\S+`,
				otherCertificate(t)), id: diagnosis.ConfigCA, at: "clusterconfig/lab-n2.yaml:7:3"},
			"the talosconfig's CA": {files: twoRuns(t, run, "clusterconfig/talosconfig", `(ca: )\S+`,
				otherCertificate(t)), id: diagnosis.TalosconfigForeign, at: "clusterconfig/talosconfig:12:9"},
			"one node's token": {files: twoRuns(t, run, "clusterconfig/lab-n2.yaml", `(?m)(^  token: )\S+`,
				"abcdef.0123456789abcdef"), id: diagnosis.ConfigSecrets, at: "clusterconfig/lab-n2.yaml:6:3"},
			"one node's cluster id": {files: twoRuns(t, run, "clusterconfig/lab-n2.yaml",
				`(?m)(^cluster:\n  id: )\S+`, "YW5vdGhlciBjbHVzdGVyJ3MgaWRlbnRpdHkuLi4uLi4="), id: diagnosis.ConfigSecrets,
				at: "clusterconfig/lab-n2.yaml:31:3"},
			"one node's cluster secret": {files: twoRuns(t, run, "clusterconfig/lab-n3.yaml", `(?m)(^  secret: )\S+`,
				"YW5vdGhlciBjbHVzdGVyJ3Mgc2VjcmV0Li4uLi4uLi4="), id: diagnosis.ConfigSecrets, at: "clusterconfig/lab-n3.yaml:32:3"},
			"the secrets file's CA": {files: twoRuns(t, run, "", "", "").with("talsecret.yaml",
				"certs:\n  os:\n    crt: "+otherCertificate(t)+"\n"), id: diagnosis.ConfigCA, at: "talsecret.yaml:3:10"},
			"one node's name of the cluster": {files: twoRuns(t, run, "clusterconfig/lab-n2.yaml", `(clusterName: )\S+`,
				"other"), id: diagnosis.ConfigCluster, at: "clusterconfig/lab-n2.yaml:35:3"},
			"one node's endpoint": {files: twoRuns(t, run, "clusterconfig/lab-n2.yaml", `(endpoint: )\S+`,
				"https://198.18.0.99:6443"), id: diagnosis.ConfigCluster, at: "clusterconfig/lab-n2.yaml:34:5"},
		},
		"a variable has no value": {
			"unset": {files: lab(config{}).replaced("talconfig.yaml", "clusterName: lab",
				"clusterName: ${CLUSTER_NAME}"), id: diagnosis.FileVariable, at: "talconfig.yaml:1:14"},
			"empty": {files: lab(config{}).replaced("talconfig.yaml", "clusterName: lab",
				"clusterName: ${CLUSTER_NAME}").with("talenv.yaml", "CLUSTER_NAME:\n"), id: diagnosis.FileVariable,
				at: "talconfig.yaml:1:14"},
			"in a node's entry": {files: lab(config{}).replaced("talconfig.yaml", "192.0.2.11", "${NODE1}"),
				id: diagnosis.FileVariable, at: "talconfig.yaml:7:16"},
			"in a nested map": {files: lab(config{}).replaced("talconfig.yaml", "clusterName: lab",
				"clusterName: ${name}").with("talenv.yaml", "cluster:\n  name: lab\n"), id: diagnosis.FileType,
				at: "talenv.yaml:1:1"},
			"in an encrypted file": {files: lab(config{}).replaced("talconfig.yaml", "clusterName: lab",
				"clusterName: ${name}").with("talenv.sops.yaml", "name: ENC[AES256_GCM,data:x]\nsops: {age: []}\n"),
				id: diagnosis.FileVariable, at: "talconfig.yaml:1:14"},
		},
		"a disk selector that picks no disk": {
			"a volume's expression with a field that is none": {files: lab(
				documents(userVolume("data", "diskSelector:\n\t\tmatch: disk.buspath == '/pci0000:00/*'\n\tminSize: 1GB"))),
				id: diagnosis.DiskSelectorNever, at: "clusterconfig/lab-n1.yaml:13:5"},
			"a volume's expression that contradicts itself": {files: lab(
				documents(userVolume("data",
					"diskSelector:\n\t\tmatch: disk.transport == 'nvme' && disk.transport == 'sata'\n\tminSize: 1GB"))),
				id: diagnosis.DiskSelectorNever, at: "clusterconfig/lab-n1.yaml:13:5"},
		},
		"a disk selector that picks more disks than one": {
			"any size": {files: lab(installing("diskSelector:\n\t\tsize: '<= 100TB'")),
				id: diagnosis.DiskSelectorWide, at: "clusterconfig/lab-n1.yaml:5:5"},
			"an empty serial number": {files: lab(installing("diskSelector:\n\t\tserial: '*'")), id: diagnosis.DiskSelectorWide,
				at: "clusterconfig/lab-n1.yaml:5:5"},
			"a volume's": {files: lab(documents(
				userVolume("data", "diskSelector:\n\t\tmatch: disk.size > 1u * GB\n\tminSize: 1GB"))),
				id: diagnosis.DiskSelectorWide, at: "clusterconfig/lab-n1.yaml:13:5"},
		},
		"the install section says nothing of a disk": {
			"nothing": {files: lab(installing("wipe: false")), id: diagnosis.InstallDiskChoice,
				at: "clusterconfig/lab-n1.yaml:4:3"},
			"an empty name": {files: lab(installing("disk: ''")), id: diagnosis.InstallDiskChoice,
				at: "clusterconfig/lab-n1.yaml:4:3"},
			"two ways": {files: lab(installing("disk: /dev/vda\n\tdiskSelector:\n\t\tserial: S1")),
				id: diagnosis.InstallDiskChoice, at: "clusterconfig/lab-n1.yaml:5:5"},
		},
		"a link is configured twice": {
			"a name and a selector": {files: lab(config{machine: "network:\n\tinterfaces:\n\t\t- interface: eth0\n\t\t  " +
				"deviceSelector: {hardwareAddr: '02:00:00:00:00:01'}"}), id: diagnosis.LinkNameAndSelector,
				at: "clusterconfig/lab-n1.yaml:7:9"},
			"in both styles": {files: lab(config{machine: onLink("dhcp: true").machine,
				documents: []string{"kind: LinkConfig\nname: eth0"}}), id: diagnosis.LinkDeclaredTwice,
				at: "clusterconfig/lab-n1.yaml:14:1"},
			"in one list": {files: lab(config{machine: "network:\n\tinterfaces:\n\t\t- interface: eth0\n\t\t- " +
				"interface: eth0"}), id: diagnosis.LinkNamedTwice, at: "clusterconfig/lab-n1.yaml:7:9"},
			"VLANs of one number": {files: lab(documents("kind: VLANConfig\nname: a\nvlanID: 7\nparent: eth0",
				"kind: VLANConfig\nname: b\nvlanID: 7\nparent: eth0")), id: diagnosis.LinkNamedTwice,
				at: "clusterconfig/lab-n1.yaml:17:1"},
			"VLANs of one name": {files: lab(documents("kind: VLANConfig\nname: eth0.7\nvlanID: 7\nparent: eth0",
				"kind: VLANConfig\nname: eth0.7\nvlanID: 8\nparent: eth0")), id: diagnosis.ConfigUnreadable,
				at: "clusterconfig/lab-n1.yaml:14:1"},
			"a VLAN in both styles": {files: lab(config{machine: onLink("vlans:", "\t- vlanId: 7").machine,
				documents: []string{"kind: VLANConfig\nname: eth0.7\nvlanID: 7\nparent: eth0"}}), id: diagnosis.LinkDeclaredTwice,
				at: "clusterconfig/lab-n1.yaml:15:1"},
			"an alias of many links": {files: lab(documents(
				"kind: LinkAliasConfig\nname: net0\nselector:\n\tmatch: link.type == 1")), id: diagnosis.LinkSelectorWide,
				at: "clusterconfig/lab-n1.yaml:12:3"},
			"an alias of no link": {files: lab(documents(
				"kind: LinkAliasConfig\nname: net0\nselector:\n\tmatch: mac(link.permanent_addr) == '02-00-00-00-00-01'")),
				id: diagnosis.LinkSelectorNever, at: "clusterconfig/lab-n1.yaml:12:3"},
		},
		"a node's address lies in the pod or service subnets": {
			"the default service subnet": {files: lab(config{}).replaced("talconfig.yaml", "192.0.2.11", "10.100.0.21"),
				id: diagnosis.AddressInClusterSubnet, at: "talconfig.yaml:7:5"},
			"the default pod subnet": {files: lab(config{}).replaced("talconfig.yaml", "192.0.2.11", "10.244.7.21"),
				id: diagnosis.AddressInClusterSubnet, at: "talconfig.yaml:7:5"},
			"a chosen subnet": {files: lab(inSubnets("192.0.2.0/24", "10.43.0.0/16")),
				id: diagnosis.AddressInClusterSubnet, at: "talconfig.yaml:7:5"},
			"a subnet of IPv6": {files: lab(inSubnets("10.42.0.0/16", "'2001:db8:1::/112'")).replaced("talconfig.yaml",
				"192.0.2.11", "2001:db8:1::11"), id: diagnosis.AddressInClusterSubnet, at: "talconfig.yaml:7:5"},
			"in its config alone": {files: lab(onLink("addresses: [10.96.0.11/24]")),
				id: diagnosis.AddressInClusterSubnet, at: "clusterconfig/lab-n1.yaml:7:21"},
			"in a document alone": {files: lab(asDocument("addresses:", "  - address: 10.244.0.11/24")),
				id: diagnosis.AddressInClusterSubnet, at: "clusterconfig/lab-n1.yaml:12:5"},
			"a filter without them": {files: lab(
				config{machine: "kubelet:\n\tnodeIP:\n\t\tvalidSubnets: [198.51.100.0/24]"}), id: diagnosis.NodeIPExcluded,
				at: "clusterconfig/lab-n1.yaml:6:7"},
			"a filter against them": {files: lab(
				config{machine: "kubelet:\n\tnodeIP:\n\t\tvalidSubnets: ['!192.0.2.0/24']"}), id: diagnosis.NodeIPExcluded,
				at: "clusterconfig/lab-n1.yaml:6:7"},
			"etcd's filter": {files: lab(
				config{documents: []string{addressed}, cluster: "etcd:\n\tadvertisedSubnets: [198.51.100.0/24]"}),
				id: diagnosis.EtcdSubnetsSelectNone, at: "clusterconfig/lab-n1.yaml:8:5"},
		},
		"a hostname that is no node's name": {
			"an underscore": {files: lab(config{}).replaced("talconfig.yaml", "hostname: n1", "hostname: node_1"),
				id: diagnosis.HostnameInvalid, at: "talconfig.yaml:6:5"},
			"capitals": {files: lab(config{}).replaced("talconfig.yaml", "hostname: n1", "hostname: CP1"),
				id: diagnosis.HostnameInvalid, at: "talconfig.yaml:6:5"},
			"other letters": {files: lab(config{}).replaced("talconfig.yaml", "hostname: n1", "hostname: кп-1"),
				id: diagnosis.HostnameInvalid, at: "talconfig.yaml:6:5"},
			"a hyphen at the end": {files: lab(config{}).replaced("talconfig.yaml", "hostname: n1", "hostname: n1-"),
				id: diagnosis.HostnameInvalid, at: "talconfig.yaml:6:5"},
			"64 characters": {files: lab(config{}).replaced("talconfig.yaml", "hostname: n1",
				"hostname: "+strings.Repeat("a", 64)), id: diagnosis.HostnameInvalid, at: "talconfig.yaml:6:5"},
			"in its config alone": {files: lab(called("node_1")).replaced("talconfig.yaml", "ipAddress: 192.0.2.11",
				"ipAddress: 192.0.2.11\n    ignoreHostname: true"), id: diagnosis.HostnameInvalid,
				at: "clusterconfig/lab-n1.yaml:5:5"},
			"in a document alone": {files: lab(calledDocument("Node1")).replaced("talconfig.yaml",
				"ipAddress: 192.0.2.11", "ipAddress: 192.0.2.11\n    ignoreHostname: true"), id: diagnosis.HostnameInvalid,
				at: "clusterconfig/lab-n1.yaml:10:1"},
			"another's in other letters": {files: lab(config{}, config{}).replaced("talconfig.yaml", "hostname: n2",
				"hostname: N1"), id: diagnosis.FileDuplicate, at: "talconfig.yaml:10:15"},
			"another's with a domain": {files: lab(config{}, config{}).replaced("talconfig.yaml", "hostname: n2",
				"hostname: n1.example.net"), id: diagnosis.HostnameNotUnique, at: "talconfig.yaml:10:5"},
		},
		"a machine config for the other role": {
			"a control plane's for a worker": {files: lab(config{}).replaced("talconfig.yaml", "controlPlane: true",
				"controlPlane: false"), id: diagnosis.ConfigRole, at: "clusterconfig/lab-n1.yaml:3:3"},
			"a worker's for a control plane": {files: lab(config{role: "worker"}).replaced("talconfig.yaml",
				"controlPlane: false", "controlPlane: true"), id: diagnosis.ConfigRole, at: "clusterconfig/lab-n1.yaml:3:3"},
			"the role of old": {files: lab(config{role: "init"}).replaced("talconfig.yaml", "controlPlane: true",
				"controlPlane: false"), id: diagnosis.ConfigRole, at: "clusterconfig/lab-n1.yaml:3:3"},
			"a role that is none": {files: lab(config{role: "master"}), id: diagnosis.ConfigRole,
				at: "clusterconfig/lab-n1.yaml:3:3"},
		},
		"the VIP stands where a node's own address must": {
			"as the talosconfig's endpoint": {files: lab(vipOn("192.0.2.10", "addresses: [192.0.2.11/24]"),
				config{}).talosconfig(t, "192.0.2.10"), id: diagnosis.TalosconfigEndpoint, at: "clusterconfig/talosconfig:5:15"},
			"as a name of it": {files: lab(vipOn("192.0.2.10", "addresses: [192.0.2.11/24]"),
				config{}).talosconfig(t, "talos.example.net"), resolves: map[string][]string{"talos.example.net": {"192.0.2.10"}},
				id: diagnosis.TalosconfigEndpoint, at: "clusterconfig/talosconfig:5:15"},
			"as ipAddress": {files: lab(vipOn("192.0.2.11", "addresses: [192.0.2.12/24]")),
				id: diagnosis.ConfigAddress, at: "talconfig.yaml:7:5"},
			"as a static address": {files: lab(vipOn("192.0.2.10", "addresses: [192.0.2.10/24, 192.0.2.11/24]")),
				id: diagnosis.VIPTaken, at: "clusterconfig/lab-n1.yaml:9:11"},
			"as a document's address": {files: lab(
				vipDocument("192.0.2.10", "eth0",
					"kind: LinkConfig\nname: eth0\naddresses:\n  - address: 192.0.2.10/24\n  - address: 192.0.2.11/24")),
				id: diagnosis.VIPTaken, at: "clusterconfig/lab-n1.yaml:17:1"},
		},
		"a secret is not there yet": {
			"a password manager's": {files: lab(config{machine: "token: op://vault/lab/token"}), id: diagnosis.ConfigPlaceholder,
				at: "clusterconfig/lab-n1.yaml:4:10"},
			"vals'": {files: lab(config{cluster: "secret: ref+sops://secrets.yaml#/secret"}),
				id: diagnosis.ConfigPlaceholder, at: "clusterconfig/lab-n1.yaml:7:11"},
			"ciphertext": {files: lab(config{machine: "ca:\n\tcrt: ''\n\tkey: " +
				"ENC[AES256_GCM,data:x,iv:x,tag:x,type:str]"}), id: diagnosis.ConfigPlaceholder,
				at: "clusterconfig/lab-n1.yaml:6:10"},
			"a variable": {files: lab(config{cluster: "token: ${BOOTSTRAP_TOKEN}"}), id: diagnosis.ConfigPlaceholder,
				at: "clusterconfig/lab-n1.yaml:7:10"},
			"a template": {files: lab(config{cluster: "secretboxEncryptionSecret: '{{ secret }}'"}),
				id: diagnosis.ConfigPlaceholder, at: "clusterconfig/lab-n1.yaml:7:30"},
			"in the talosconfig": {files: lab(config{}).with("clusterconfig/talosconfig",
				"context: lab\ncontexts:\n  lab:\n    endpoints: [192.0.2.11]\n    ca: op://vault/lab/ca\n    crt: "+
					"op://vault/lab/crt\n    key: op://vault/lab/key\n"), id: diagnosis.ConfigPlaceholder,
				at: "clusterconfig/talosconfig:6:10"},
		},
		"the address of a node is not the one that its config gives it": {
			"another of the subnet": {files: lab(onLink("addresses: [192.0.2.40/24]")), id: diagnosis.ConfigAddress,
				at: "talconfig.yaml:7:5"},
			"in a document": {files: lab(asDocument("addresses:", "  - address: 198.51.100.11/24")),
				id: diagnosis.ConfigAddress, at: "talconfig.yaml:7:5"},
			"of another family": {files: lab(onLink("addresses: ['2001:db8::11/64']")), id: diagnosis.ConfigAddress,
				at: "talconfig.yaml:7:5"},
			"without its prefix": {files: lab(onLink("addresses: [192.0.2.40]")), id: diagnosis.ConfigAddress,
				at: "talconfig.yaml:7:5"},
		},
		"a Kubernetes version that Talos does not take": {
			"too new": {files: lab(config{}).replaced("talconfig.yaml", "v1.36.0", "v1.37.0"),
				id: diagnosis.KubernetesUnsupported, at: "talconfig.yaml:4:1"},
			"too old": {files: lab(config{}).replaced("talconfig.yaml", "v1.36.0", "v1.26.1"),
				id: diagnosis.KubernetesUnsupported, at: "talconfig.yaml:4:1"},
			"of old Talos": {files: lab(config{}).replaced("talconfig.yaml", "v1.13.9", "v1.6.7"),
				id: diagnosis.KubernetesUnsupported, at: "talconfig.yaml:4:1"},
		},
		"an installer image that can't be had": {
			"an empty schematic": {files: lab(installing("disk: /dev/vda\n\timage: factory.talos.dev/installer/:v1.13.9")),
				id: diagnosis.InstallerReference, at: "clusterconfig/lab-n1.yaml:6:5"},
			"63 digits": {files: lab(installing("disk: /dev/vda\n\timage: factory.talos.dev/installer/" +
				strings.Repeat("a", 63) + ":v1.13.9")), id: diagnosis.InstallerReference, at: "clusterconfig/lab-n1.yaml:6:5"},
			"a tag without its v": {files: lab(installing("disk: /dev/vda\n\timage: factory.talos.dev/metal-installer/" +
				strings.Repeat("a", 64) + ":1.13.9")), id: diagnosis.InstallerReference, at: "clusterconfig/lab-n1.yaml:6:5"},
			"a registry that moved": {files: lab(installing("disk: /dev/vda\n\timage: ghcr.io/siderolabs/installer:v1.14.0")),
				id: diagnosis.InstallerReference, at: "clusterconfig/lab-n1.yaml:6:5"},
		},
		"a list of operations patches a config of several documents": {
			"in the talconfig, for all": {files: patchedBy(
				"patches:\n  - |-\n    - op: remove\n      path: /cluster/apiServer/admissionControl\n"),
				id: diagnosis.JSONPatchRefused, at: "talconfig.yaml:11:5"},
			"in a file, for a role": {files: patchedBy("controlPlane:\n  patches: ['@patches/a.yaml']\n").with(
				"patches/a.yaml", "- op: remove\n  path: /cluster/apiServer/admissionControl\n"), id: diagnosis.JSONPatchRefused,
				at: "talconfig.yaml:11:13"},
			"as JSON, for a node": {files: patchedBy(
				"    patches:\n      - '[{\"op\": \"remove\", \"path\": \"/cluster/apiServer\"}]'\n"),
				id: diagnosis.JSONPatchRefused, at: "talconfig.yaml:11:9"},
			"an empty file": {files: patchedBy("patches: ['@patches/a.yaml']\n").with("patches/a.yaml", ""),
				id: diagnosis.PatchEmpty, at: "talconfig.yaml:10:11"},
			"a file of comments": {files: patchedBy("patches: ['@patches/a.yaml']\n").with("patches/a.yaml", "# later\n"),
				id: diagnosis.PatchEmpty, at: "talconfig.yaml:10:11"},
		},
		"a config for a newer Talos than its own": {
			"a key": {files: lab(installing(
				"disk: /dev/vda\n\tgrubUseUKICmdline: true\n\timage: ghcr.io/siderolabs/installer:v1.11.6")).replaced(
				"talconfig.yaml", "v1.13.9", "v1.11.6"), id: diagnosis.ConfigNewer, at: "clusterconfig/lab-n1.yaml:6:5"},
			"a document": {files: lab(calledDocument("n1")).replaced("talconfig.yaml", "v1.13.9", "v1.11.6"),
				id: diagnosis.ConfigNewer, at: "clusterconfig/lab-n1.yaml:9:1"},
			"a patch with both": {files: patchedBy("patches:\n  - |-\n    machine:\n      install:\n        "+
				"grubUseUKICmdline: true\n").replaced("talconfig.yaml", "v1.13.9", "v1.11.6"), id: diagnosis.PatchNewerKey,
				at: "talconfig.yaml:14:9"},
		},
		"an image that is not for SecureBoot": {
			"for a node": {files: with(imagedBy("metal-installer"), "    machineSpec: {secureboot: true}\n"),
				id: diagnosis.SecureBootDeclared, at: "clusterconfig/lab-n1.yaml:6:5"},
			"for a role": {files: with(imagedBy("installer"), "controlPlane:\n  machineSpec: {secureboot: true}\n"),
				id: diagnosis.SecureBootDeclared, at: "clusterconfig/lab-n1.yaml:6:5"},
			"before it is made": {files: with(imagedBy("installer"),
				"    machineSpec: {secureboot: true}\n    talosImageURL: factory.talos.dev/installer/"+strings.Repeat("a", 64)+
					"\n").without("clusterconfig/lab-n1.yaml"), id: diagnosis.SecureBootDeclared, at: "talconfig.yaml:11:5"},
			"the reverse": {files: with(imagedBy("metal-installer-secureboot"), "    machineSpec: {arch: amd64}\n"),
				id: diagnosis.SecureBootDeclared, at: "clusterconfig/lab-n1.yaml:6:5"},
		},
		"kernel arguments that the image leaves out": {
			"by its command line": {files: lab(installing(
				"disk: /dev/vda\n\tgrubUseUKICmdline: true\n\textraKernelArgs: [net.ifnames=0]")), id: diagnosis.KernelArgsRefused,
				at: "clusterconfig/lab-n1.yaml:7:5"},
			"by SecureBoot": {files: lab(installing(
				"disk: /dev/vda\n\textraKernelArgs: [net.ifnames=0]\n\timage: factory.talos.dev/metal-installer-secureboot/" +
					strings.Repeat("a", 64) + ":v1.13.9")), id: diagnosis.KernelArgsSecureBoot, at: "clusterconfig/lab-n1.yaml:6:5"},
		},
		"a link has a name that no link of the node will have": {
			"in the old style": {files: lab(config{machine: "install:\n\tdisk: /dev/vda\n\textraKernelArgs: [net.ifnames=0]\n" +
				onLinkNamed("ens18")}), id: diagnosis.LinkNameTakenAway, at: "clusterconfig/lab-n1.yaml:9:9"},
			"as a document": {files: lab(config{machine: "install:\n\tdisk: /dev/vda\n\textraKernelArgs: [net.ifnames=0]",
				documents: []string{"kind: LinkConfig\nname: ens18"}}), id: diagnosis.LinkNameTakenAway,
				at: "clusterconfig/lab-n1.yaml:13:1"},
		},
		"secrets in the clear": {
			"that others can read": {files: lab(config{}).with("talsecret.yaml", "cluster: {}\n"), id: diagnosis.SecretsFileOpen,
				at: "talsecret.yaml", open: true},
		},
	}
}

// with adds a text to the talconfig.
func with(made files, text string) files {
	made["talconfig.yaml"] += text

	return made
}

// patchedBy is a cluster of one node with a text added to its talconfig.
func patchedBy(text string) files { return with(lab(config{}), text) }

// imagedBy is a cluster of one node with an image of an installer of the image factory.
func imagedBy(installer string) files {
	return lab(installing("disk: /dev/vda\n\timage: factory.talos.dev/" + installer + "/" + strings.Repeat("a", 64) +
		":v1.13.9"))
}

// onLinkNamed is an interface of this name, in the old style.
func onLinkNamed(name string) string { return "network:\n\tinterfaces:\n\t\t- interface: " + name }

// named is a cluster whose first node is declared by a name.
func named(name string, configs ...config) files {
	return lab(configs...).replaced("talconfig.yaml", "ipAddress: 192.0.2.11", "ipAddress: "+name)
}

// certified is a control plane whose certificate is for the name that it is declared by.
var certified = config{machine: "certSANs: [cp1.example.net]"}

// otherCertificate is another cluster's certificate authority, as files have it.
func otherCertificate(t *testing.T) string {
	t.Helper()

	ca, err := otherAuthority()
	require.NoError(t, err)

	return ca
}

// otherAuthority is made once.
var otherAuthority = sync.OnceValues(func() (string, error) {
	authority, err := x509.NewSelfSignedCertificateAuthority(x509.Organization("talos"))
	if err != nil {
		return "", err
	}

	return base64.StdEncoding.EncodeToString(authority.CrtPEM), nil
})

// oneRun is a generated cluster of three nodes.
func oneRun(t *testing.T) files {
	t.Helper()

	folder := generated(t, 3, nil)
	made := files{}

	for _, name := range []string{"talconfig.yaml", "clusterconfig/lab-n1.yaml", "clusterconfig/lab-n2.yaml",
		"clusterconfig/lab-n3.yaml", "clusterconfig/talosconfig"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)

		made[name] = string(data)
	}

	return made
}

// twoRuns is a generated cluster with one value of another run in a file.
func twoRuns(t *testing.T, run files, name, pattern, value string) files {
	t.Helper()

	made := maps.Clone(run)

	if name != "" {
		changed := false
		made[name] = regexp.MustCompile(pattern).ReplaceAllStringFunc(made[name], func(found string) string {
			if changed {
				return found
			}

			changed = true

			return regexp.MustCompile(pattern).ReplaceAllString(found, "${1}"+value)
		})
		require.True(t, changed, "%s has no %s", name, pattern)
	}

	return made
}

// findings are those with the expected id, and the ids of all.
func (m mistake) findings(t *testing.T) (found []diagnosis.Finding, others []diagnosis.ID) {
	t.Helper()

	folder := m.files.write(t)

	if m.open {
		for name := range m.files {
			require.NoError(t, os.Chmod(filepath.Join(folder, name), 0o644))
		}
	}

	options := check.Settings{Now: time.Now()}

	if m.resolves != nil {
		options.LookupHost = func(_ context.Context, host string) ([]netip.Addr, error) {
			var addresses []netip.Addr
			for _, text := range m.resolves[host] {
				addresses = append(addresses, netip.MustParseAddr(text))
			}

			if len(addresses) == 0 {
				return nil, fmt.Errorf("no such host %s", host)
			}

			return addresses, nil
		}
	}

	result := table.Run(context.Background(), check.Read(check.Options{TalosDir: folder, Root: folder, Checks: options}))
	for _, finding := range result.Trouble() {
		others = append(others, finding.ID)
	}

	return findingsOf(result, m.id), others
}

func TestEveryKindOfMistakeIsFoundInEveryForm(t *testing.T) {
	t.Parallel()

	for kind, forms := range kinds(t) {
		for form, mistake := range forms {
			t.Run(kind+" "+form, func(t *testing.T) {
				t.Parallel()

				entry, known := diagnosis.Lookup(mistake.id)
				require.True(t, known)
				require.Contains(t, sourcelinks.Of(entry.Source), "](https://", "where it was reported")

				found, others := mistake.findings(t)
				require.NotEmpty(t, found, "%s tells nothing, but %s", mistake.id, others)
				require.Equal(t, mistake.at, found[0].At.String(), "%s", found[0].Cause)
				require.NotEmpty(t, found[0].Cause)
				require.NotEmpty(t, found[0].Next)

				if found[0].At.Line > 0 {
					require.NotEmpty(t, strings.TrimSpace(found[0].At.Text))
				}
			})
		}
	}
}

// What looks like one of these mistakes and is none.
func TestRightFormsAreNoMistake(t *testing.T) {
	t.Parallel()

	manifest := "patches:\n  - |-\n    cluster:\n      inlineManifests:\n        - name: proxy\n          contents: " +
		"|\n            proxy_set_header Host $host;\n            price: $$5\n"

	for form, right := range map[string]struct {
		files files
		ids   []diagnosis.ID
	}{
		"machines that share a config without names and addresses": {
			lab(config{}).replaced("talconfig.yaml", "ipAddress: 192.0.2.11",
				"ipAddress: '192.0.2.11, 192.0.2.12,192.0.2.13'\n    ignoreHostname: true"),
			[]diagnosis.ID{diagnosis.SharedConfig, diagnosis.EvenControlPlanes, diagnosis.FileAddress, diagnosis.FileDuplicate},
		},
		"a name that the certificate is for": {named("cp1.example.net", certified),
			[]diagnosis.ID{diagnosis.NameNotCertified, diagnosis.FileAddress}},
		"another ending of the secrets file": {lab(config{}).with("talsecret.sops.yml", "cluster: {}\n"),
			[]diagnosis.ID{diagnosis.SecretsFileMisnamed}},
		"variables with Windows' line ends": {
			lab(config{}).replaced("talconfig.yaml", "clusterName: lab", "clusterName: ${NAME}").with("talenv.yaml",
				"NAME: lab\r\nOTHER: x\r\n"),
			[]diagnosis.ID{diagnosis.FileVariable, diagnosis.FileSyntax, diagnosis.ConfigCluster, diagnosis.ConfigMissing},
		},
		"variables with a byte order mark": {
			lab(config{}).replaced("talconfig.yaml", "clusterName: lab", "clusterName: ${NAME}").with("talenv.yaml",
				"\ufeffNAME: lab\n"),
			[]diagnosis.ID{diagnosis.FileVariable, diagnosis.FileSyntax, diagnosis.ConfigCluster, diagnosis.ConfigMissing},
		},
		"other programs' dollar signs": {lab(config{}).with("talconfig.yaml",
			lab(config{})["talconfig.yaml"]+manifest), []diagnosis.ID{diagnosis.FileVariable}},
		"an install disk by its place": {lab(installing("diskSelector:\n\t\tbusPath: /pci0000:00/0000:00:1b.0/*")),
			[]diagnosis.ID{diagnosis.DiskSelectorNever, diagnosis.DiskSelectorWide}},
		"two VLANs on one parent": {lab(
			documents("kind: VLANConfig\nname: a\nvlanID: 7\nparent: eth0",
				"kind: VLANConfig\nname: b\nvlanID: 8\nparent: eth0")),
			[]diagnosis.ID{diagnosis.LinkNamedTwice, diagnosis.LinkDeclaredTwice}},
		"an address beside the default subnet": {lab(config{}).replaced("talconfig.yaml", "192.0.2.11", "10.95.255.11"),
			[]diagnosis.ID{diagnosis.AddressInClusterSubnet}},
		"a role of old for a control plane": {lab(config{role: "init"}), []diagnosis.ID{diagnosis.ConfigRole}},
		"one control plane": {lab(config{}, config{role: "worker"}),
			[]diagnosis.ID{diagnosis.EvenControlPlanes}},
		"a password with a dollar sign": {lab(config{cluster: "secret: $ecret"}),
			[]diagnosis.ID{diagnosis.ConfigPlaceholder}},
		"an address in a second network": {lab(onLink("dhcp: true", "addresses: [198.51.100.11/24]")),
			[]diagnosis.ID{diagnosis.AddressInClusterSubnet, diagnosis.NodeIPExcluded}},
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()

			result := table.Run(context.Background(), right.files.read(t))
			for _, id := range right.ids {
				require.Empty(t, findingsOf(result, id))
			}
		})
	}
}
