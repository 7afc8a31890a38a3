package machineconfig_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

func addresses(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}

	return list
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}

	return list
}

// Both ways to write network settings say the same about the generated nodes.
func TestFactsOfGeneratedConfigs(t *testing.T) {
	t.Parallel()

	for _, version := range []string{"v1.13.9", "v1.12.1", "v1.11.6"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			options := demoOptions()
			options.TalosVersion = version

			generated, err := clusterfiles.Make(options)
			require.NoError(t, err)

			bundle := generated.Options.Secrets
			cp1, cp2, w1 := mustConfig(t, generated.Configs[0].Bytes), mustConfig(t, generated.Configs[1].Bytes),
				mustConfig(t, generated.Configs[2].Bytes)

			require.Equal(t, machine.TypeControlPlane, cp1.Role())
			require.Equal(t, machine.TypeWorker, w1.Role())
			require.Equal(t, "cp1", cp1.Hostname())
			require.Equal(t, bundle.Certs.OS.Crt, cp1.CA())
			require.Equal(t, bundle.Certs.K8s.Crt, w1.KubernetesCA())
			require.Empty(t, cp1.AcceptedCAs())
			require.Equal(t, bundle.Cluster.ID, w1.ClusterID())
			require.Equal(t, "demo", w1.ClusterName())
			require.Equal(t, "https://192.0.2.10:6443", w1.Endpoint().String())
			require.Equal(t, "none", cp1.CNI())
			require.Equal(t, prefixes("10.244.0.0/16"), cp1.PodSubnets())
			require.Equal(t, prefixes("10.96.0.0/12"), cp1.ServiceSubnets())
			require.Equal(t, clusterfiles.DefaultImage+":"+version, cp1.InstallImage())
			require.Equal(t, version, cp1.InstallerVersion())
			require.Equal(t, "/dev/vda", cp1.InstallDisk())
			require.False(t, cp1.SecureBootImage())
			require.False(t, cp1.HasTPMKeys())
			require.Empty(t, cp1.ExtraKernelArgs())
			require.Empty(t, cp1.SharedSecrets().Differing(w1.SharedSecrets()))

			require.Equal(t, prefixes("192.0.2.11/24"), cp1.Addresses())
			require.Equal(t, addresses("192.0.2.1"), cp1.Gateways())
			require.Equal(t, addresses("192.0.2.10"), cp1.VIPs())
			require.Equal(t, []string{"02:00:00:00:00:11"}, cp1.MACs())
			require.Empty(t, cp1.Links(), "the link is selected by its MAC")
			require.True(t, cp1.LinkSelectors())

			require.Empty(t, cp2.Addresses())
			require.Equal(t, []string{"eth0"}, cp2.Links())
			require.True(t, cp2.UsesDHCP())

			require.Equal(t, []string{"ens3"}, w1.Links())
			require.Empty(t, w1.VIPs())
			require.Empty(t, w1.MACs())
			require.False(t, w1.LinkSelectors())

			minor := map[string]int{"v1.13.9": 12, "v1.12.1": 12, "v1.11.6": 5}[version]
			require.Equal(t, minor, cp1.TalosContract().Minor)
		})
	}
}

// base is a small config to which a test adds.
func base(machine, cluster, documents string) []byte {
	return []byte("version: v1alpha1\nmachine:\n  type: controlplane\n" + machine + "cluster:\n  id: x\n" +
		cluster + documents)
}

func TestFactsOfOldNetworkSettings(t *testing.T) {
	t.Parallel()

	config := mustConfig(t, base(`  network:
    hostname: old
    interfaces:
      - interface: eth0
        addresses: [192.0.2.11/24, 2001:db8::11/64, 192.0.2.12]
        routes: [{network: 0.0.0.0/0, gateway: 192.0.2.1}, {network: 198.51.100.0/24}]
        vip: {ip: 192.0.2.10}
        vlans:
          - {vlanId: 5, addresses: [203.0.113.11/24], routes: [{gateway: 203.0.113.1}], vip: {ip: 203.0.113.10}}
          - {vlanId: 6, cidr: 198.51.100.11/24}
      - interface: bond0
        cidr: 198.51.100.12/24
        bond:
          interfaces: [eth1, eth2]
          deviceSelectors: [{hardwareAddr: "02:00:00:00:00:0B"}, {permanentAddr: "02-00-00-00-00-0c"}]
      - interface: br0
        bridge: {interfaces: [eth3]}
      - interface: wg0
        wireguard: {privateKey: x}
      - interface: dummy0
        dummy: true
      - deviceSelector: {hardwareAddr: "02:00:00:*", driver: virtio_net}
      - deviceSelector: {hardwareAddr: "02:00:00:00:00:0a"}
`, "", ""))

	require.Equal(t, "old", config.Hostname())
	require.Equal(t, prefixes("192.0.2.11/24", "2001:db8::11/64", "192.0.2.12/32", "203.0.113.11/24", "198.51.100.11/24",
		"198.51.100.12/24"), config.Addresses())
	require.Equal(t, addresses("192.0.2.1", "203.0.113.1"), config.Gateways())
	require.Equal(t, addresses("192.0.2.10", "203.0.113.10"), config.VIPs())
	require.Equal(t, []string{"eth0", "eth1", "eth2", "eth3"}, config.Links())
	require.Equal(t, []string{"02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"}, config.MACs())
	require.True(t, config.LinkSelectors())
}

func TestFactsOfNetworkDocuments(t *testing.T) {
	t.Parallel()

	config := mustConfig(t, base("", "", `---
apiVersion: v1alpha1
kind: HostnameConfig
hostname: new.example.com
auto: off
---
apiVersion: v1alpha1
kind: LinkAliasConfig
name: net%d
selector: {match: 'link.driver == "virtio_net"'}
---
apiVersion: v1alpha1
kind: LinkAliasConfig
name: storage
selector: {match: 'glob("02:00:00:00:00:0A", mac(link.hardware_addr))'}
---
apiVersion: v1alpha1
kind: LinkAliasConfig
name: either
selector: {match: 'mac(link.permanent_addr) == "02:00:00:00:00:01" || mac(link.permanent_addr) == "02:00:00:00:00:02"'}
---
apiVersion: v1alpha1
kind: LinkAliasConfig
name: prefixed
selector: {match: 'glob("02:00:*", mac(link.permanent_addr))'}
---
apiVersion: v1alpha1
kind: LinkConfig
name: net0
addresses: [{address: 192.0.2.11/24}]
routes: [{gateway: 192.0.2.1}, {destination: 198.51.100.0/24}]
---
apiVersion: v1alpha1
kind: LinkConfig
name: netx
---
apiVersion: v1alpha1
kind: BondConfig
name: bond0
links: [eth1, storage]
bondMode: 802.3ad
addresses: [{address: 2001:db8::11/64}]
---
apiVersion: v1alpha1
kind: BridgeConfig
name: br0
links: [eth2, bond0]
---
apiVersion: v1alpha1
kind: VLANConfig
name: bond0.5
vlanID: 5
parent: bond0
addresses: [{address: 203.0.113.11/24}]
---
apiVersion: v1alpha1
kind: VLANConfig
name: eth9.5
vlanID: 5
parent: eth9
---
apiVersion: v1alpha1
kind: DummyLinkConfig
name: dummy0
---
apiVersion: v1alpha1
kind: Layer2VIPConfig
name: 192.0.2.10
link: net0
---
apiVersion: v1alpha1
kind: DHCPv4Config
name: eth8
---
apiVersion: v1alpha1
kind: EthernetConfig
name: eth7
`))

	require.Equal(t, "new.example.com", config.Hostname())
	require.Equal(t, prefixes("192.0.2.11/24", "2001:db8::11/64", "203.0.113.11/24"), config.Addresses())
	require.Equal(t, addresses("192.0.2.1"), config.Gateways())
	require.Equal(t, addresses("192.0.2.10"), config.VIPs())
	require.Equal(t, []string{"eth1", "eth2", "eth7", "eth8", "eth9", "netx"}, config.Links())
	require.Equal(t, []string{"02:00:00:00:00:0a"}, config.MACs(), "globs and alternatives name no machine")
	require.True(t, config.UsesDHCP())
}

func TestOldestTalosThatDecodes(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		machine, cluster, documents string
		minor                       int
	}{
		"plain":                {"", "", "", 5},
		"trusted roots":        {"", "", "---\napiVersion: v1alpha1\nkind: TrustedRootsConfig\nname: x\n", 8},
		"image cache":          {"  features: {imageCache: {localEnabled: true}}\n", "", "", 9},
		"user volume":          {"", "", "---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: x\n", 10},
		"swap":                 {"", "", "---\napiVersion: v1alpha1\nkind: SwapVolumeConfig\nname: x\n", 11},
		"GRUB takes the UKI's": {"  install: {grubUseUKICmdline: false}\n", "", "", 12},
		"hostname document":    {"", "", "---\napiVersion: v1alpha1\nkind: HostnameConfig\nauto: stable\n", 12},
		"flannel policies": {"", "  network: {cni: {name: flannel, flannel: {kubeNetworkPoliciesEnabled: true}}}\n", "",
			13},
		"environment": {"", "", "---\napiVersion: v1alpha1\nkind: EnvironmentConfig\nvariables: {A: b}\n", 13},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			config := mustConfig(t, base(tt.machine, tt.cluster, tt.documents))
			require.Equal(t, tt.minor, config.TalosContract().Minor)
		})
	}
}

func TestTPMKeysInBothPlaces(t *testing.T) {
	t.Parallel()

	for name, data := range map[string][]byte{
		"old section": base("  systemDiskEncryption: {state: {provider: luks2, keys: [{slot: 0, tpm: {}}]}}\n", "", ""),
		"document": base("", "",
			"---\napiVersion: v1alpha1\nkind: VolumeConfig\nname: STATE\nencryption: {provider: luks2, keys: [{slot: 0, tpm: "+
				"{}}]}\n"),
	} {
		require.True(t, mustConfig(t, data).HasTPMKeys(), name)
	}

	require.False(t, mustConfig(t,
		base("  systemDiskEncryption: {state: {provider: luks2, keys: [{slot: 0, nodeID: {}}]}, ephemeral: null}\n", "",
			"")).HasTPMKeys())
}

func TestInstallerImages(t *testing.T) {
	t.Parallel()

	for image, tt := range map[string]struct {
		secureBoot bool
		version    string
	}{
		"": {false, ""},
		"factory.talos.dev/metal-installer/0123:v1.13.9":            {false, "v1.13.9"},
		"factory.talos.dev/metal-installer-secureboot/0123:v1.13.9": {true, "v1.13.9"},
		"factory.talos.dev/installer-secureboot/0123":               {true, ""},
		"registry.example.com:5000/installer-secureboot:v1.12.0":    {true, "v1.12.0"},
		"registry.example.com:5000/installer@sha256:00":             {false, ""},
		"registry.example.com/secureboot-tests/installer:v1.13.9":   {false, "v1.13.9"},
	} {
		config := mustConfig(t, base("  install: {image: \""+image+"\"}\n", "", ""))
		require.Equal(t, tt.secureBoot, config.SecureBootImage(), image)
		require.Equal(t, tt.version, config.InstallerVersion(), image)
	}
}

func TestNoInstallSection(t *testing.T) {
	t.Parallel()

	config := mustConfig(t, base("", "", ""))
	require.Empty(t, config.InstallImage())
	require.Empty(t, config.InstallDisk())
	require.Empty(t, config.DiskSelector())
	require.Empty(t, config.ExtraKernelArgs())
	require.Nil(t, config.CA())
	require.Nil(t, config.KubernetesCA())
	require.Nil(t, config.Endpoint())

	matches, err := config.MatchDisks(t.Context(), labDisks(t))
	require.NoError(t, err)
	require.False(t, matches[0].Matches())
}

func TestDifferentSecretsNamesTheFields(t *testing.T) {
	t.Parallel()

	generated, err := clusterfiles.Make(demoOptions())
	require.NoError(t, err)

	text := string(generated.Configs[0].Bytes)
	config := mustConfig(t, []byte(text))
	other := mustConfig(t, []byte(strings.Replace(text, "  token: ", "  token: x", 1)))

	require.Equal(t, []string{"machine.token"}, config.SharedSecrets().Differing(other.SharedSecrets()))
}

func TestPlaceholdersAreNamedNotShown(t *testing.T) {
	t.Parallel()

	for value, kind := range map[string]string{
		"op://vault/item/field":         "a 1Password reference (op://)",
		"ref+sops://secrets.yaml#/key":  "a vals reference (ref+…://)",
		"ENC[AES256_GCM,data:x,type:x]": "SOPS ciphertext",
		"${MACHINE_TOKEN}":              "an unresolved variable",
		"$MACHINE_TOKEN":                "an unresolved variable",
		"'{{ .Token }}'":                "an unrendered template",
		"<token>":                       "a placeholder in angle brackets",
		"vault:secret/data/talos#token": "a reference to a secret store",
	} {
		found := machineconfig.Placeholders(base("  token: "+value+"\n", "", ""))
		require.Equal(t, []machineconfig.Placeholder{{Field: "machine.token", Line: 4, Column: 10, Kind: kind}}, found, value)
	}

	require.Empty(t, machineconfig.Placeholders(
		base("  token: abcdef.0123456789abcdef\n  nodeLabels: {a: op://x}\n  registries: {config: {r: {auth: {password: "+
			"$ecret-word, auth: x$Y}}}}\n", "", "")))
	require.Empty(t, machineconfig.Placeholders([]byte("[")))
	require.Len(t, machineconfig.Placeholders(base("  nodeLabels: {a: 'ENC[AES256_GCM,data:x]'}\n", "", "")), 1,
		"SOPS encrypts everything")
}

// However an alias is written, its machine is known by the address in it.
func TestAnAliasNamesAMachineInAnySpelling(t *testing.T) {
	t.Parallel()

	for _, match := range []string{
		`mac(link.permanent_addr) == "02:00:00:00:00:0A"`, `mac(link.hardware_addr)=='02:00:00:00:00:0a'`,
		`"02:00:00:00:00:0a" == mac(link.permanent_addr)`, `glob('02:00:00:00:00:0a',mac(link.permanent_addr))`,
		"link.type == 1 &&\n  mac( link.permanent_addr ) ==\n  \"02:00:00:00:00:0a\"",
	} {
		config := mustConfig(t, base("", "", "---\napiVersion: v1alpha1\nkind: LinkAliasConfig\nname: net0\nselector:\n"+
			"  match: |-\n    "+strings.ReplaceAll(match, "\n", "\n    ")+"\n"))
		require.Equal(t, []string{"02:00:00:00:00:0a"}, config.MACs(), match)
	}
}
