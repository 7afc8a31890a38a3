package generate_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	talosbundle "github.com/siderolabs/talos/pkg/machinery/config/bundle"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	talosgenerate "github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

var profileSecrets = sync.OnceValues(clusterfiles.NewSecrets)

const testSchematic = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"

// testProfile has one control plane and one worker, whose interface is the default.
func testProfile(talosVersion, kubernetesVersion string) string {
	return `
name: demo
network:
  api_endpoint: 192.0.2.10
  pod_cidr: 10.20.0.0/16
  service_cidr: 10.21.0.0/16
talos:
  version: ` + talosVersion + `
  kubernetes_version: ` + kubernetesVersion + `
  factory:
    schematic_id: ` + testSchematic + `
  vip: {interface: ens18, ip: 192.0.2.10}
  config_dir: out
  patches_dir: patches
  secrets_file: secrets.yaml
nodes:
  controlplane:
    count: 1
    assignments:
      - {name: cp1, ip: 192.0.2.11, vmid: 101, mac: "02:00:5E:10:00:01"}
  workers:
    assignments:
      - {name: w1, ip: 192.0.2.21, vmid: 111}
regenerate_secrets: false
`
}

// fromProfile makes the configs of a profile whose folder has these further files.
func fromProfile(t *testing.T, text string, files map[string]string) (*generate.Output, error) {
	t.Helper()

	dir := t.TempDir()
	all := map[string]string{"cluster.yaml": text}

	for name, content := range files {
		all["out/patches/"+name] = content
	}

	for name, content := range all {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}

	shared, err := profileSecrets()
	require.NoError(t, err)

	return configsIn(dir, shared)
}

// stepPatch is the patch of a node as people write it for `talosctl apply-config --config-patch`.
func stepPatch(name, link, address, vip string) string {
	patch := `machine:
  network:
    hostname: ` + name + `
    interfaces:
      - interface: ` + link + `
        dhcp: false
        addresses: [` + address + `/24]
        routes:
          - {network: 0.0.0.0/0, gateway: 192.0.2.1}
`
	if vip != "" {
		patch += "        vip: {ip: " + vip + "}\n"
	}

	return patch + "    nameservers: [1.1.1.1, 8.8.8.8]\n"
}

const subnetPatch = `[
  {"op": "add", "path": "/cluster/network/podSubnets", "value": ["10.20.0.0/16"]},
  {"op": "add", "path": "/cluster/network/serviceSubnets", "value": ["10.21.0.0/16"]}
]`

// talosctlSteps does what `talosctl gen config` does and gives the two machine configs.
func talosctlSteps(t *testing.T, talosVersion, kubernetesVersion string, patches ...string) (*talosbundle.Bundle,
	error) {
	t.Helper()

	return talosctlStepsAt(t, "https://192.0.2.10:6443", talosVersion, kubernetesVersion, patches...)
}

func talosctlStepsAt(t *testing.T, endpoint, talosVersion, kubernetesVersion string,
	patches ...string) (*talosbundle.Bundle, error) {
	t.Helper()

	shared, err := profileSecrets()
	require.NoError(t, err)

	contract, err := talosconfig.ParseContractFromVersion(talosVersion)
	require.NoError(t, err)

	loaded, err := configpatcher.LoadPatches(patches)
	require.NoError(t, err)

	return talosbundle.NewBundle(talosbundle.WithInputOptions(&talosbundle.InputOptions{
		ClusterName: "demo",
		Endpoint:    endpoint,
		KubeVersion: kubernetesVersion,
		GenOptions: []talosgenerate.Option{
			talosgenerate.WithVersionContract(contract),
			talosgenerate.WithSecretsBundle(shared),
			talosgenerate.WithInstallDisk("/dev/sda"),
			talosgenerate.WithInstallImage("factory.talos.dev/installer/" + testSchematic + ":v" + talosVersion),
			talosgenerate.WithDNSDomain(constants.DefaultDNSDomain),
			talosgenerate.WithClusterDiscovery(false),
		},
	}), talosbundle.WithPatch(loaded), talosbundle.WithVerbose(false))
}

func applied(t *testing.T, config talosconfig.Provider, patch string) (talosconfig.Provider, error) {
	t.Helper()

	loaded, err := configpatcher.LoadPatch([]byte(patch))
	require.NoError(t, err)

	result, err := configpatcher.Apply(configpatcher.WithConfig(config), []configpatcher.Patch{loaded})
	if err != nil {
		return nil, err
	}

	return result.Config()
}

// meaning is a config as a tree.
func meaning(t *testing.T, text []byte) any {
	t.Helper()

	provider, err := configloader.NewFromBytes(text)
	require.NoError(t, err)

	encoded, err := provider.EncodeBytes()
	require.NoError(t, err)

	var tree any
	require.NoError(t, yaml.Unmarshal(encoded, &tree))

	return withoutEmptyLists(tree)
}

// withoutEmptyLists leaves out what machinery writes or not, depending on whether a config was decoded before.
func withoutEmptyLists(tree any) any {
	if mapping, ok := tree.(map[string]any); ok {
		for key, value := range mapping {
			if list, isList := value.([]any); isList && len(list) == 0 {
				delete(mapping, key)
			} else {
				withoutEmptyLists(value)
			}
		}
	}

	return tree
}

var oldReleases = map[string]string{"1.2.8": "1.25.3", "1.5.5": "1.28.3", "1.7.7": "1.30.3", "1.8.4": "1.31.5",
	"1.9.6": "1.32.4", "1.10.9": "1.33.6", "1.11.6": "1.34.3"}

// talosctlMakes are the two machine configs of the commands that the page names, by the program itself.
func talosctlMakes(t *testing.T, talosVersion, kubernetesVersion string) [][]byte {
	t.Helper()

	program, dir := tool.Find(t, "talosctl"), t.TempDir()

	shared, err := profileSecrets()
	require.NoError(t, err)

	bundle, err := clustersecrets.Encode(shared)
	require.NoError(t, err)

	for name, text := range map[string]string{
		"secrets.yaml": string(bundle), "subnets.json": subnetPatch,
		"controlplane.patch": stepPatch("cp1", "ens18", "192.0.2.11", "192.0.2.10"),
		"worker.patch":       stepPatch("w1", "eth0", "192.0.2.21", ""),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}

	run := func(arguments ...string) {
		command := exec.CommandContext(t.Context(), program, arguments...)
		command.Dir, command.Env = dir, []string{"HOME=" + dir}
		output, err := command.CombinedOutput()
		require.NoError(t, err, "%v: %s", arguments, output)
	}

	run("gen", "config", "demo", "https://192.0.2.10:6443", "--with-secrets", "secrets.yaml", "--install-disk", "/dev/sda",
		"--install-image", "factory.talos.dev/installer/"+testSchematic+":v"+talosVersion,
		"--talos-version", "v"+talosVersion,
		"--kubernetes-version", kubernetesVersion, "--with-cluster-discovery=false", "--config-patch", "@subnets.json",
		"--output", "made", "--output-types", "controlplane,worker")

	var made [][]byte

	for _, role := range []string{"controlplane", "worker"} {
		run("machineconfig", "patch", "made/"+role+".yaml", "--patch", "@"+role+".patch", "--output", role+".yaml")

		text, err := os.ReadFile(filepath.Join(dir, role+".yaml"))
		require.NoError(t, err)

		made = append(made, text)
	}

	return made
}

func TestProfileEqualsTheStepsOfTalosctlUpToTalos111(t *testing.T) {
	t.Parallel()

	for talosVersion, kubernetesVersion := range oldReleases {
		t.Run(talosVersion, func(t *testing.T) {
			t.Parallel()

			wanted := talosctlMakes(t, talosVersion, kubernetesVersion)

			for name, patches := range map[string]map[string]string{
				"generated": nil,
				"with the patches of those steps": {
					"cp1.yaml": stepPatch("cp1", "ens18", "192.0.2.11", "192.0.2.10"),
					"w1.yaml":  stepPatch("w1", "eth0", "192.0.2.21", ""),
				},
			} {
				output, err := fromProfile(t, testProfile(talosVersion, kubernetesVersion), patches)
				require.NoError(t, err)
				require.Len(t, output.Configs, len(wanted))

				for i, want := range wanted {
					require.Equal(t, meaning(t, want), meaning(t, output.Configs[i].Bytes), name)
				}
			}
		})
	}
}

func TestOtherShapesOfAProfileEqualTheStepsToo(t *testing.T) {
	t.Parallel()

	subnets := "  pod_cidr: 10.20.0.0/16\n  service_cidr: 10.21.0.0/16\n"
	vip := "  vip: {interface: ens18, ip: 192.0.2.10}\n"

	tests := map[string]struct {
		replace  []string // in the profile
		endpoint string
		patches  []string // of talosctl gen config
		cp1      string   // in the node's patch: what follows `interface:`
	}{
		"no VIP": {
			[]string{vip, ""}, "https://192.0.2.10:6443", []string{subnetPatch},
			"eth0, dhcp: false, addresses: [192.0.2.11/24], routes: [{network: 0.0.0.0/0, gateway: 192.0.2.1}]",
		},
		"DNS name": {
			[]string{"api_endpoint: 192.0.2.10", "api_endpoint: k8s.example.net"}, "https://k8s.example.net:6443",
			[]string{subnetPatch},
			"ens18, dhcp: false, addresses: [192.0.2.11/24], routes: [{network: 0.0.0.0/0, gateway: 192.0.2.1}], vip: {ip: " +
				"192.0.2.10}",
		},
		"Talos' own subnets": {
			[]string{subnets, ""}, "https://192.0.2.10:6443", nil,
			"ens18, dhcp: false, addresses: [192.0.2.11/24], routes: [{network: 0.0.0.0/0, gateway: 192.0.2.1}], vip: {ip: " +
				"192.0.2.10}",
		},
		"the profile's prefix and gateway": {
			[]string{subnets, subnets + "  prefix: 23\n  gateway: 192.0.3.254\n"}, "https://192.0.2.10:6443",
			[]string{subnetPatch},
			"ens18, dhcp: false, addresses: [192.0.2.11/23], routes: [{network: 0.0.0.0/0, gateway: 192.0.3.254}], vip: {ip: " +
				"192.0.2.10}",
		},
		"the assignment's": {
			[]string{"ip: 192.0.2.11,", "ip: 192.0.2.11, prefix: 28, gateway: 192.0.2.14, interface: bond0,"},
			"https://192.0.2.10:6443", []string{subnetPatch},
			"bond0, dhcp: false, addresses: [192.0.2.11/28], routes: [{network: 0.0.0.0/0, gateway: 192.0.2.14}], vip: {ip: " +
				"192.0.2.10}",
		},
		"IPv6": {
			[]string{"api_endpoint: 192.0.2.10", "api_endpoint: 2001:db8::10", "ip: 192.0.2.10}", "ip: '2001:db8::10'}",
				"192.0.2.11", "2001:db8::11", "192.0.2.21", "2001:db8::21"},
			"https://[2001:db8::10]:6443", []string{subnetPatch},
			"ens18, dhcp: false, addresses: ['2001:db8::11/64'], routes: [{network: '::/0', gateway: '2001:db8::1'}], vip: " +
				"{ip: '2001:db8::10'}",
		},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			text := testProfile("1.11.6", "1.34.3")
			for i := 0; i < len(test.replace); i += 2 {
				require.Contains(t, text, test.replace[i])
				text = strings.Replace(text, test.replace[i], test.replace[i+1], 1)
			}

			output, err := fromProfile(t, text, nil)
			require.NoError(t, err)

			steps, err := talosctlStepsAt(t, test.endpoint, "1.11.6", "1.34.3", test.patches...)
			require.NoError(t, err)

			want, err := applied(t, steps.ControlPlane(),
				"machine: {network: {hostname: cp1, nameservers: [1.1.1.1, 8.8.8.8], interfaces: [{interface: "+test.cp1+"}]}}")
			require.NoError(t, err)

			encoded, err := want.EncodeBytes()
			require.NoError(t, err)
			require.Equal(t, meaning(t, encoded), meaning(t, output.Configs[0].Bytes))
		})
	}
}

var newReleases = map[string]string{"1.12.4": "1.35.0", "1.13.9": "1.36.3"}

func TestTalosFrom112OnRefusesTheSubnetPatchOfTheSteps(t *testing.T) {
	t.Parallel()

	for talosVersion, kubernetesVersion := range newReleases {
		_, err := talosctlSteps(t, talosVersion, kubernetesVersion, subnetPatch)
		require.ErrorContains(t, err, "JSON6902 patches are not supported for multi-document machine configuration")
	}
}

func TestTalosFrom112OnRefusesTheNodePatchOfTheSteps(t *testing.T) {
	t.Parallel()

	for talosVersion, kubernetesVersion := range newReleases {
		steps, err := talosctlSteps(t, talosVersion, kubernetesVersion)
		require.NoError(t, err)

		cp1, err := applied(t, steps.ControlPlane(), stepPatch("cp1", "ens18", "192.0.2.11", "192.0.2.10"))
		require.NoError(t, err)

		_, err = cp1.Validate(machineconfig.Mode{Metal: true})
		require.ErrorContains(t, err, "static hostname is already set in v1alpha1 config")
	}
}

func TestProfileMeansTheSameFromTalos112On(t *testing.T) {
	t.Parallel()

	for talosVersion, kubernetesVersion := range newReleases {
		for name, patches := range map[string]map[string]string{
			"generated":                       nil,
			"with the patches of those steps": {"cp1.yaml": stepPatch("cp1", "ens18", "192.0.2.11", "192.0.2.10")},
		} {
			t.Run(talosVersion+" "+name, func(t *testing.T) {
				t.Parallel()

				output, err := fromProfile(t, testProfile(talosVersion, kubernetesVersion), patches)
				require.NoError(t, err)

				config, err := machineconfig.FromBytes("cp1", output.Configs[0].Bytes)
				require.NoError(t, err)

				_, err = config.Validate(machineconfig.Mode{Metal: true})
				require.NoError(t, err)

				raw := config.Provider.RawV1Alpha1()
				require.Equal(t, []string{"10.20.0.0/16"}, raw.ClusterConfig.ClusterNetwork.PodSubnet)
				require.Equal(t, []string{"10.21.0.0/16"}, raw.ClusterConfig.ClusterNetwork.ServiceSubnet)
				require.False(t, config.Provider.Cluster().Discovery().Enabled())
				require.True(t, strings.HasSuffix(string(output.Configs[0].Bytes),
					"kind: HostnameConfig\nauto: 'off'\nhostname: cp1\n"))
				require.Empty(t, raw.MachineConfig.MachineNetwork.NetworkHostname)
				require.Equal(t, "factory.talos.dev/installer/"+testSchematic+":v"+talosVersion,
					raw.MachineConfig.MachineInstall.InstallImage)

				devices := raw.MachineConfig.MachineNetwork.NetworkInterfaces
				require.Len(t, devices, 1)
				require.Equal(t, []string{"192.0.2.11/24"}, devices[0].DeviceAddresses)
				require.Equal(t, "192.0.2.1", devices[0].DeviceRoutes[0].RouteGateway)
				require.Len(t, devices[0].DeviceRoutes, 1)
				require.Equal(t, "192.0.2.10", devices[0].DeviceVIPConfig.SharedIP)
				require.Equal(t, []string{"1.1.1.1", "8.8.8.8"}, raw.MachineConfig.MachineNetwork.NameServers)
			})
		}
	}
}

func TestOnlyControlPlanesOfAProfileHaveTheVIP(t *testing.T) {
	t.Parallel()

	output, err := fromProfile(t, testProfile("1.13.9", "1.36.3"), nil)
	require.NoError(t, err)

	for i, want := range []struct {
		role machine.Type
		vips int
	}{{machine.TypeControlPlane, 1}, {machine.TypeWorker, 0}} {
		config, err := machineconfig.FromBytes("node", output.Configs[i].Bytes)
		require.NoError(t, err)
		require.Equal(t, want.role, config.Role())
		require.Len(t, config.VIPs(), want.vips)
	}
}

func TestPrefixGatewayAndNameServersComeFromTheProfile(t *testing.T) {
	t.Parallel()

	text := strings.Replace(testProfile("1.11.6", "1.34.3"), "network:\n",
		"network:\n  prefix: 26\n  gateway: 192.0.2.62\n  nameservers: [192.0.2.53]\n  interface: enp1s0\n", 1)
	text = strings.Replace(text, "ip: 192.0.2.21,", "ip: 192.0.2.21, gateway: 192.0.2.1, prefix: 24,", 1)

	output, err := fromProfile(t, text, nil)
	require.NoError(t, err)

	for i, want := range []struct{ link, address, gateway string }{{"ens18", "192.0.2.11/26", "192.0.2.62"},
		{"enp1s0", "192.0.2.21/24", "192.0.2.1"}} {
		provider, err := configloader.NewFromBytes(output.Configs[i].Bytes)
		require.NoError(t, err)

		network := provider.RawV1Alpha1().MachineConfig.MachineNetwork
		require.Equal(t, want.link, network.NetworkInterfaces[0].DeviceInterface)
		require.Equal(t, []string{want.address}, network.NetworkInterfaces[0].DeviceAddresses)
		require.Equal(t, want.gateway, network.NetworkInterfaces[0].DeviceRoutes[0].RouteGateway)
		require.Equal(t, []string{"192.0.2.53"}, network.NameServers)
	}
}

func TestPatchesOfAProfileApplyFromAllToOne(t *testing.T) {
	t.Parallel()

	label := func(value string) string { return "machine: {nodeLabels: {from: " + value + ", " + value + ": yes}}\n" }

	for talosVersion, kubernetesVersion := range map[string]string{"1.11.6": "1.34.3", "1.13.9": "1.36.3"} {
		output, err := fromProfile(t, testProfile(talosVersion, kubernetesVersion), map[string]string{
			"all.yaml": label("all"), "worker.yml": label("worker"), "w1.yaml": label("own"), "empty.txt": "x",
			"cp1.yaml": "# nothing yet\n---\n",
		})
		require.NoError(t, err)

		for i, want := range []map[string]string{{"from": "all", "all": "yes"},
			{"from": "own", "all": "yes", "worker": "yes", "own": "yes"}} {
			provider, err := configloader.NewFromBytes(output.Configs[i].Bytes)
			require.NoError(t, err)

			labels := provider.RawV1Alpha1().MachineConfig.MachineNodeLabels
			for key, value := range want {
				require.Equal(t, value, labels[key], key)
			}
		}
	}
}

func TestAPatchWinsOverWhatTheProfileDerives(t *testing.T) {
	t.Parallel()

	patch := `machine:
  network:
    nameservers: [192.0.2.53]
    interfaces:
      - interface: enp7s0
        addresses: [192.0.2.21/27]
        routes: [{network: 0.0.0.0/0, gateway: 192.0.2.30}]
`
	output, err := fromProfile(t, testProfile("1.13.9", "1.36.3"), map[string]string{"w1.yaml": patch})
	require.NoError(t, err)

	provider, err := configloader.NewFromBytes(output.Configs[1].Bytes)
	require.NoError(t, err)

	network := provider.RawV1Alpha1().MachineConfig.MachineNetwork
	require.Equal(t, []string{"192.0.2.53"}, network.NameServers)
	require.Len(t, network.NetworkInterfaces, 1)
	require.Equal(t, "enp7s0", network.NetworkInterfaces[0].DeviceInterface)
}

func TestTheVIPFollowsTheLinkThatAPatchGivesTheAddressTo(t *testing.T) {
	t.Parallel()

	tests := map[string]struct{ version, patch, link string }{
		"interface": {
			"1.11.6", "machine: {network: {interfaces: [{interface: bond0, addresses: [192.0.2.11/24], routes: [{gateway: " +
				"192.0.2.1}]}]}}\n", "bond0",
		},
		"selector": {
			"1.13.9", "machine: {network: {interfaces: [{deviceSelector: {hardwareAddr: '02:00:5e:10:00:01'}, addresses: " +
				"[192.0.2.11/24]}]}}\n", "",
		},
		"document": {
			"1.13.9", "apiVersion: v1alpha1\nkind: LinkConfig\nname: bond0\naddresses: [{address: 192.0.2.11/24}]\nroutes: " +
				"[{gateway: 192.0.2.1}]\n", "bond0",
		},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			output, err := fromProfile(t, testProfile(test.version, oldReleases[test.version]+newReleases[test.version]),
				map[string]string{"cp1.yaml": test.patch})
			require.NoError(t, err)

			config, err := machineconfig.FromBytes("cp1", output.Configs[0].Bytes)
			require.NoError(t, err)
			require.Equal(t, []netip.Prefix{netip.MustParsePrefix("192.0.2.11/24")}, config.Addresses())

			devices := config.Provider.RawV1Alpha1().MachineConfig.MachineNetwork.NetworkInterfaces
			require.Len(t, devices, 1)
			require.Equal(t, test.link, devices[0].DeviceInterface)
			require.Equal(t, "192.0.2.10", devices[0].DeviceVIPConfig.SharedIP)
		})
	}
}

func TestNameServersStandWhereAPatchHasTheRestOfThem(t *testing.T) {
	t.Parallel()

	const resolver = "apiVersion: v1alpha1\nkind: ResolverConfig\n"

	for patch, want := range map[string][]string{
		resolver + "nameservers: [{address: 192.0.2.53}]\n":             {"192.0.2.53"},
		resolver + "searchDomains: {domains: [example.net]}\n":          {"1.1.1.1", "8.8.8.8"},
		"machine: {network: {nameservers: [192.0.2.53]}}\n":             {"192.0.2.53"},
		"machine: {network: {extraHostEntries: [{ip: 192.0.2.9}]}}\n":   {"1.1.1.1", "8.8.8.8"},
		"machine: {network: {interfaces: [{interface: eth9, mtu: 9}]}}": {"1.1.1.1", "8.8.8.8"},
	} {
		output, err := fromProfile(t, testProfile("1.13.9", "1.36.3"), map[string]string{"all.yaml": patch})
		require.NoError(t, err, patch)

		provider, err := configloader.NewFromBytes(output.Configs[1].Bytes)
		require.NoError(t, err)

		var servers []string
		for _, server := range provider.NetworkResolverConfig().Resolvers() {
			servers = append(servers, server.Addr.String())
		}

		require.Equal(t, want, servers, patch)
	}
}

func TestBadPatchesOfAProfileAreNamed(t *testing.T) {
	t.Parallel()

	tests := map[string]struct{ version, file, text, message, next string }{
		"list of operations": {
			"1.13.9", "cp1.yaml", "- {op: add, path: /machine/nodeLabels, value: {a: b}}\n",
			"out/patches/cp1.yaml: is a JSON patch (RFC 6902), which Talos takes for a config of one document only",
			"{machine: {nodeLabels: '...'}}",
		},
		"no such path": {"1.11.6", "w1.yaml", "- {op: remove, path: /machine/nothing}\n",
			"out/patches/w1.yaml: can't be applied to w1: ", ""},
		"unknown key": {"1.13.9", "w1.yaml", "machine: {netwrk: {}}\n", "out/patches/w1.yaml", ""},
		"unknown node": {"1.13.9", "wl1.yaml", "machine: {}\n",
			`out/patches/wl1.yaml: no node has this name, so nothing would read the patch, did you mean "w1"?`, "all.yaml"},
		"invalid result": {"1.13.9", "all.yaml",
			"cluster: {network: {dnsDomain: x}}\nmachine: {install: {image: ''}}\nx: 1\n", "out/patches/all.yaml", ""},
		"newer documents": {
			"1.11.6", "w1.yaml", "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth1\nmtu: 9000\n",
			"out/patches/w1.yaml: can't be applied to w1: the machine config of w1 needs Talos v1.12 or newer, and " +
				"talos.version is v1.11.6", "",
		},
		"encrypted": {"1.13.9", "w1.yaml", "machine: ENC[AES256_GCM,data:x]\n",
			"out/patches/w1.yaml is encrypted by sops, and can't be decrypted here", ""},
		"refused hostname": {"1.13.9", "w1.yaml", "apiVersion: v1alpha1\nkind: HostnameConfig\nauto: stable\n",
			"out/patches/w1.yaml: can't be applied to w1: ", ""},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			kubernetes := oldReleases[test.version] + newReleases[test.version]
			_, err := fromProfile(t, testProfile(test.version, kubernetes), map[string]string{test.file: test.text})

			require.ErrorContains(t, err, test.message)

			mistakes := yamlfile.Errors(err)
			require.Len(t, mistakes, 1)
			require.Contains(t, mistakes[0].Next, test.next)
		})
	}
}

func TestImagesOfAProfileNeedNoSecrets(t *testing.T) {
	t.Parallel()

	dir := folderOf(t, map[string]string{"cluster.yaml": testProfile("1.13.9", "1.36.3")})

	cluster, err := inventory.Load(inventory.Options{TalosDir: dir})
	require.NoError(t, err)

	images, err := generate.NameImages(cluster)
	require.NoError(t, err)
	require.Len(t, images, 2)
	require.Equal(t, generate.Images{
		Node: "w1", Schematic: testSchematic, Installer: "factory.talos.dev/installer/" + testSchematic + ":v1.13.9",
		BootSchematic: testSchematic, Boot: "https://factory.talos.dev/image/" + testSchematic + "/v1.13.9/metal-amd64.iso",
	}, images[1])

	_, err = generate.Configs(generate.Source{Cluster: cluster})
	require.ErrorContains(t, err, "secrets are needed")
}

func TestTheSameProfileGivesTheSameBytes(t *testing.T) {
	t.Parallel()

	first, err := fromProfile(t, testProfile("1.13.9", "1.36.3"), nil)
	require.NoError(t, err)

	second, err := fromProfile(t, testProfile("1.13.9", "1.36.3"), nil)
	require.NoError(t, err)

	require.True(t, reflect.DeepEqual(first, second))
}

func TestTheBrokenOneOfSeveralPatchesIsNamed(t *testing.T) {
	t.Parallel()

	_, err := fromProfile(t, testProfile("1.13.9", "1.36.3"), map[string]string{
		"all.yaml":    "machine: {nodeLabels: {a: b}}\n",
		"worker.yaml": "machine: {sysctls: {a: b}, nodeLabels: {'not a label': x}}\n",
		"w1.yaml":     "machine: {nodeLabels: {c: d}}\n",
	})
	require.ErrorContains(t, err, "out/patches/worker.yaml: can't be applied to w1: ")
}

// What a run checks before it sends anything finds nothing to say about files that were made of a profile.
func TestFilesMadeOfAProfileFitTheirInventory(t *testing.T) {
	t.Parallel()

	for talosVersion, kubernetesVersion := range map[string]string{"1.11.6": "1.34.3", "1.13.9": "1.36.3"} {
		output, err := fromProfile(t, testProfile(talosVersion, kubernetesVersion), nil)
		require.NoError(t, err)

		dir := t.TempDir()
		configs := filepath.Join(dir, "out")
		require.NoError(t, os.Mkdir(configs, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cluster.yaml"),
			[]byte(testProfile(talosVersion, kubernetesVersion)), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(configs, "talosconfig"), output.Talosconfig, 0o600))

		for _, config := range output.Configs {
			require.NoError(t, os.WriteFile(filepath.Join(configs, config.File), config.Bytes, 0o600))
		}

		cluster, err := inventory.Load(inventory.Options{TalosDir: dir})
		require.NoError(t, err)
		require.Equal(t, configs, cluster.ConfigDir)

		for _, finding := range table.Run(t.Context(), check.Read(check.Options{TalosDir: dir, Root: dir})).Findings {
			if finding.ID < diagnosis.ConfigInvalid {
				require.Equal(t, diagnosis.OK, finding.Severity, "%s %s", finding.ID, finding.Cause)
			}
		}
	}
}

func TestTalosconfigOfAProfileNamesItsNodes(t *testing.T) {
	t.Parallel()

	output, err := fromProfile(t, testProfile("1.13.9", "1.36.3"), nil)
	require.NoError(t, err)

	config, err := clientconfig.FromBytes(output.Talosconfig)
	require.NoError(t, err)

	require.Equal(t, "demo", config.Context)
	require.Equal(t, []string{"192.0.2.11"}, config.Contexts["demo"].Endpoints)
	require.Equal(t, []string{"192.0.2.11", "192.0.2.21"}, config.Contexts["demo"].Nodes)
	require.Equal(t, "demo-cp1.yaml\ndemo-w1.yaml\ntalosconfig\n", string(output.GitIgnore))
	require.Equal(t, "demo", output.Cluster)
	require.Equal(t, "demo-w1.yaml w1", fmt.Sprint(output.Configs[1].File, " ", output.Configs[1].Node))
}
