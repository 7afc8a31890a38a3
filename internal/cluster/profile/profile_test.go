package profile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/profile"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
)

const valid = `name: demo
type: talos
network:
  api_endpoint: 192.0.2.10
  pod_cidr: 10.20.0.0/16
  service_cidr: 10.21.0.0/16
talos:
  version: "1.11.6"
  kubernetes_version: v1.34.3
  factory:
    schematic_id: ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515
    extensions: [siderolabs/qemu-guest-agent]
  vip: {interface: ens18, ip: 192.0.2.10}
  config_dir: out
  patches_dir: patches/
  secrets_file: bundle.yaml
nodes:
  controlplane:
    count: 1
    name_prefix: cp
    cores: 4
    placement: spread
    assignments:
      - {name: cp1, node: pve1, vmid: 101, ip: 192.0.2.11, mac: "02:00:5E:10:00:01", uuid: 4C4C4544-0042-4B10-8053-B3C04F4D3532}
  workers:
    count: 1
    assignments:
      - {name: w1, vmid: 111, ip: 192.0.2.21}
template: 101
tags: [talos, demo]
flux: {repo: "ssh://git@git.example.net/fleet.git"}
hypervisor: {owned: by another program}
regenerate_secrets: true
`

func read(t *testing.T, text string) (*profile.Profile, string, error) {
	t.Helper()

	dir := t.TempDir()
	path := filepath.Join(dir, "cluster.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))

	declared, err := profile.Read(reading.New(dir, nil).Open(path), "")

	return declared, dir, err
}

func TestProfileIsReadWithItsDefaults(t *testing.T) {
	t.Parallel()

	declared, dir, err := read(t, valid)
	require.NoError(t, err)

	require.Equal(t, "demo", declared.Name)
	require.Equal(t, "https://192.0.2.10:6443", declared.Endpoint.String())
	require.Equal(t, "v1.11.6", declared.TalosVersion)
	require.Equal(t, "v1.34.3", declared.KubernetesVersion)
	require.Equal(t, "factory.talos.dev/installer/ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515:v1.11.6", declared.Installer())
	require.Equal(t, filepath.Join(dir, "out"), declared.ConfigDir)
	require.Equal(t, filepath.Join(dir, "out", "patches"), declared.PatchesDir)
	require.Equal(t, filepath.Join(dir, "out", "bundle.yaml"), declared.SecretsFile)
	require.Equal(t, "/dev/sda", declared.InstallDisk)
	require.True(t, declared.RegenerateSecrets)
	require.Len(t, declared.Machines, 2)

	cp1, w1 := declared.Machines[0], declared.Machines[1]
	require.Equal(t, "cp1 192.0.2.11/24 192.0.2.1 ens18",
		fmt.Sprint(cp1.Name, " ", cp1.Address, " ", cp1.Gateway, " ", cp1.Interface))
	require.Equal(t, "02:00:5e:10:00:01 4c4c4544-0042-4b10-8053-b3c04f4d3532 101",
		fmt.Sprint(cp1.MAC, " ", cp1.UUID, " ", cp1.VMID))
	require.Equal(t, machine.TypeControlPlane, cp1.Role)
	require.Equal(t, "w1 192.0.2.21/24 192.0.2.1 eth0",
		fmt.Sprint(w1.Name, " ", w1.Address, " ", w1.Gateway, " ", w1.Interface))
	require.Equal(t, machine.TypeWorker, w1.Role)
	require.Equal(t, "demo-w1.yaml", declared.ConfigFile(w1))
}

// change replaces one part of the valid profile.
func change(t *testing.T, from, to string) string {
	t.Helper()
	require.Contains(t, valid, from)

	return strings.Replace(valid, from, to, 1)
}

func TestInstallerFollowsTheFactorySettings(t *testing.T) {
	t.Parallel()

	const id = "    schematic_id: ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515\n    extensions: " +
		"[siderolabs/qemu-guest-agent]\n"

	tests := map[string]struct{ to, image string }{
		"extensions": {
			"    extensions: [siderolabs/qemu-guest-agent]\n",
			"factory.talos.dev/installer/ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515:v1.11.6",
		},
		"no extensions": {
			"    extensions: []\n",
			"factory.talos.dev/installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.11.6",
		},
		"schematic": {
			"    schematic:\n      customization:\n        extraKernelArgs: [\"talos.logging.kernel=udp://127.0.0.1:6050\"]\n" +
				"        systemExtensions: {officialExtensions: [siderolabs/qemu-guest-agent]}\n",
			"factory.talos.dev/installer/a7f294c4436e874167652f711750f9bc607c89f12f7c27f183584a25763a2bca:v1.11.6",
		},
		"registry, platform and secure boot": {
			"    extensions: []\n    registry: images.example.net\n    platform: nocloud\n    secureboot: true\n",
			"images.example.net/nocloud-installer-secureboot/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.11.6",
		},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			declared, _, err := read(t, change(t, id, test.to))
			require.NoError(t, err)
			require.Equal(t, test.image, declared.Installer())
		})
	}
}

func TestIPv6ProfileHasAWiderNetwork(t *testing.T) {
	t.Parallel()

	text := strings.NewReplacer("192.0.2.10", "2001:db8::10", "192.0.2.11", "2001:db8::11", "192.0.2.21",
		"2001:db8::21").Replace(valid)
	text = strings.NewReplacer("10.20.0.0/16", "2001:db8:1::/64", "10.21.0.0/16", "2001:db8:2::/112", "ip: 2001:db8::10}",
		`ip: "2001:db8::10"}`).Replace(text)

	declared, _, err := read(t, text)
	require.NoError(t, err)
	require.Equal(t, "https://[2001:db8::10]:6443", declared.Endpoint.String())
	require.Equal(t, "2001:db8::11/64 2001:db8::1",
		fmt.Sprint(declared.Machines[0].Address, " ", declared.Machines[0].Gateway))
}

func TestMistakesOfAProfileHaveAPlaceAndAField(t *testing.T) {
	t.Parallel()

	tests := map[string]struct{ from, to, want string }{
		"misspelt key": {"pod_cidr", "pod_cdir",
			`cluster.yaml:5:3: unknown key "pod_cdir" (network.pod_cdir), did you mean "pod_cidr"?`},
		"unknown key": {"  config_dir: out", "  output: out",
			`cluster.yaml:14:3: unknown key "output" (talos.output)`},
		"misspelt assignment": {"vmid: 111", "vm_id: 111",
			`cluster.yaml:28:20: unknown key "vm_id" (nodes.workers.assignments[0].vm_id), did you mean "vmid"?`},
		"misspelt section": {"nodes:", "node:", `cluster.yaml:17:1: unknown key "node" (node), did you mean "nodes"?`},
		"missing key":      {"name: w1, ", "", `cluster.yaml:28:9: "name" is needed (nodes.workers.assignments[0].name)`},
		"missing section": {"network:\n  api_endpoint: 192.0.2.10\n  pod_cidr: 10.20.0.0/16\n  service_cidr: " +
			"10.21.0.0/16\n", "", `cluster.yaml:1:1: "network" is needed (network)`},
		"wrong type": {"vmid: 101", "vmid: one",
			`cluster.yaml:24:39: "vmid" must be a number (nodes.controlplane.assignments[0].vmid)`},
		"list for a value": {"192.0.2.10\n", "[192.0.2.10]\n",
			`cluster.yaml:4:17: "api_endpoint" must be a single value, not a list (network.api_endpoint)`},
		"type of cluster": {"type: talos", "type: taols",
			`cluster.yaml:2:7: "taols" is not allowed: it takes talos (type), did you mean "talos"?`},
		"name": {"name: demo", "name: de/mo",
			`cluster.yaml:1:7: "de/mo" is no name of a cluster: letters, digits and dashes (name)`},
		"no release": {`"1.11.6"`, `"1.11"`,
			`cluster.yaml:8:12: "1.11" is no release: it takes all three numbers, as 1.13.9 (talos.version)`},
		"contract of a newer release": {`"1.11.6"`, "\"1.11.6\"\n  contract: v1.14",
			`cluster.yaml:9:13: Talos v1.11 does not know the contract v1.14 (talos.contract), did you mean "v1.11"?`},
		"contract of no release": {`"1.11.6"`, "\"1.11.6\"\n  contract: newest",
			`cluster.yaml:9:13: "newest" is no contract, as v1.14 (talos.contract), did you mean "v1.11"?`},
		"too old": {`"1.11.6"`, `"1.1.0"`,
			`cluster.yaml:8:12: Talos v1.1 is older than what configs can be made for: v1.2 to v1.14 (talos.version)`},
		"Kubernetes too new": {"v1.34.3", "v1.36.0",
			"cluster.yaml:9:23: Kubernetes v1.36.0 is too new for Talos v1.11.6, which runs 1.29 to 1.34 " +
				"(talos.kubernetes_version)"},
		"schematic id": {"ce4c98", "ce4c9",
			`cluster.yaml:11:19: "ce4c90550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515" is no id of a schematic: 64 hexadecimal digits (talos.factory.schematic_id)`},
		"subnet": {"10.20.0.0/16", "10.20.0.0",
			`cluster.yaml:5:13: "10.20.0.0" is not a subnet, as 10.244.0.0/16 (network.pod_cidr)`},
		"subnet's address": {"10.20.0.0/16", "10.20.0.1/16",
			`cluster.yaml:5:13: 10.20.0.1/16 is an address in a subnet (network.pod_cidr), did you mean "10.20.0.0/16"?`},
		"overlap": {"10.21.0.0/16", "10.20.8.0/24",
			`cluster.yaml:6:17: 10.20.8.0/24 overlaps with pod_cidr, 10.20.0.0/16 (network.service_cidr)`},
		"endpoint with port": {"192.0.2.10\n", "192.0.2.10:6443\n",
			`cluster.yaml:4:17: "192.0.2.10:6443" is neither an IP address nor a DNS name: give the host alone, the port is 6443 (network.api_endpoint)`},
		"endpoint is no VIP": {"192.0.2.10\n", "192.0.2.11\n",
			`cluster.yaml:4:17: 192.0.2.11 is not the VIP, 192.0.2.10: the Kubernetes API would be asked for where no VIP is (network.api_endpoint)`},
		"VIP": {"ip: 192.0.2.10}", "ip: vip.example.net}",
			`cluster.yaml:13:31: "vip.example.net" is no IP address (talos.vip.ip)`},
		"address with prefix": {"ip: 192.0.2.21", "ip: 192.0.2.21/24",
			`cluster.yaml:28:35: address "192.0.2.21/24" of w1 has a prefix length: give the address alone, and the length as "prefix" (nodes.workers.assignments[0].ip)`},
		"address": {"ip: 192.0.2.21", "ip: w1.example.net",
			`cluster.yaml:28:35: address "w1.example.net" of w1 is no IP address (nodes.workers.assignments[0].ip)`},
		"address twice": {"ip: 192.0.2.21", "ip: 192.0.2.11",
			`cluster.yaml:28:35: address 192.0.2.11 is another node's already, in line 24 (nodes.workers.assignments[0].ip)`},
		"address of the VIP": {"ip: 192.0.2.21", "ip: 192.0.2.10",
			`cluster.yaml:28:35: address 192.0.2.10 is the VIP, which the control planes share (nodes.workers.assignments[0].ip)`},
		"address of a router": {"ip: 192.0.2.21", "ip: 192.0.2.1",
			`cluster.yaml:28:35: address 192.0.2.1 is the first of its network, which is taken for the gateway (nodes.workers.assignments[0].ip)`},
		"name twice": {"name: w1", "name: CP1",
			`cluster.yaml:28:16: name cp1 is another node's already, in line 24 (nodes.workers.assignments[0].name)`},
		"hostname": {"name: w1", "name: w_1",
			`cluster.yaml:28:16: "w_1" is no hostname: letters, digits and dashes, up to 63 (nodes.workers.assignments[0].name)`},
		"vmid twice": {"vmid: 111", "vmid: 101",
			`cluster.yaml:28:26: vmid 101 is another node's already, in line 24 (nodes.workers.assignments[0].vmid)`},
		"MAC": {"02:00:5E:10:00:01", "02:00:5E:10:00",
			`cluster.yaml:24:65: "02:00:5E:10:00" is no MAC address, as 02:00:5e:10:00:01 or 0200.5e10.0001 (nodes.controlplane.assignments[0].mac)`},
		"UUID": {"4C4C4544-", "4C4C4544",
			`cluster.yaml:24:92: "4C4C45440042-4B10-8053-B3C04F4D3532" is no UUID, as 4c4c4544-0042-4b10-8053-b3c04f4d3532 (nodes.controlplane.assignments[0].uuid)`},
		"count": {"count: 1", "count: 3",
			`cluster.yaml:19:12: "count" is 3, and there are 1 assignments (nodes.controlplane.count)`},
		"prefix": {"network:\n", "network:\n  prefix: 33\n",
			`cluster.yaml:4:11: 33 is no prefix length of 192.0.2.11: 1 to 32 (network.prefix)`},
		"gateway": {"network:\n", "network:\n  gateway: 198.51.100.1\n",
			`cluster.yaml:4:12: gateway 198.51.100.1 is not in the network of cp1, 192.0.2.0/24 (network.gateway)`},
		"own gateway": {"ip: 192.0.2.21", "ip: 192.0.2.21, gateway: 192.0.2.21",
			`cluster.yaml:28:56: gateway 192.0.2.21 is the address of w1 itself (nodes.workers.assignments[0].gateway)`},
		"name server": {"network:\n", "network:\n  nameservers: [192.0.2.53, dns]\n",
			`cluster.yaml:4:29: "dns" is no IP address (network.nameservers[1])`},
		"registry": {"  factory:\n", "  factory:\n    registry: https://images.example.net\n",
			`cluster.yaml:11:15: "https://images.example.net" has a scheme: give the host alone (talos.factory.registry)`},
		"two schematics": {"  factory:\n", "  factory:\n    schematic: {}\n",
			`cluster.yaml:11:16: "schematic" and "schematic_id" are both set: one of them is enough (talos.factory.schematic)`},
		"bootloader": {"schematic_id: ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515",
			"schematic: {customization: {bootloader: lilo}}", `cluster.yaml:11:45: "bootloader": `},
		"YAML": {"type: talos", "type: [talos", "cluster.yaml:"},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, _, err := read(t, change(t, test.from, test.to))
			require.Error(t, err)
			require.Contains(t, yamlfile.Errors(err)[0].Error(), test.want)
		})
	}
}

func TestAllMistakesOfAProfileAreToldAtOnce(t *testing.T) {
	t.Parallel()

	_, _, err := read(t, strings.NewReplacer("10.20.0.0/16", "10.20.0.0", "name: w1", "name: w_1", `"1.11.6"`,
		"newest").Replace(valid))
	require.Len(t, yamlfile.Errors(err), 3)
}

func TestAProfileWithoutControlPlanesSaysSo(t *testing.T) {
	t.Parallel()

	text, _, _ := strings.Cut(valid, "  controlplane:")

	_, _, err := read(t, text+"  controlplane: {assignments: []}\n")
	require.ErrorContains(t, err, "no control planes are declared (nodes.controlplane.assignments)")
}

func TestMissingAndEmptyProfilesSaySo(t *testing.T) {
	t.Parallel()

	_, err := profile.Read(reading.New("", nil).Open(filepath.Join(t.TempDir(), "cluster.yaml")), "")
	require.ErrorContains(t, err, "the profile does not exist")
	require.True(t, errors.Is(yamlfile.Errors(err)[0], fs.ErrNotExist))

	_, _, err = read(t, "# later\n")
	require.ErrorContains(t, err, "the profile is empty")

	_, _, err = read(t, "- a\n")
	require.ErrorContains(t, err, "must be a mapping, not a list")
}

func FuzzProfile(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte("name: *a\n"))
	f.Add([]byte("talos: {factory: {schematic: {overlay: {options: {a: [1]}}}}}\n"))

	f.Fuzz(func(t *testing.T, text []byte) {
		declared, _, err := read(t, string(text))
		if err != nil {
			require.NotEmpty(t, yamlfile.Errors(err))

			return
		}

		require.NotEmpty(t, declared.Machines)
		require.NotEmpty(t, declared.Installer())
	})
}
