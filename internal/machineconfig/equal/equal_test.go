package equal_test

import (
	"strings"
	"sync"
	"testing"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/machineconfig/equal"
)

// made is a config as Talos' own generator makes it by a contract, with a patch.
func made(t *testing.T, contract *talosconfig.VersionContract, role machine.Type, patch string) talosconfig.Provider {
	t.Helper()

	bundle := sameSecrets()
	input, err := generate.NewInput("lab", "https://192.0.2.10:6443", "1.36.3",
		generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle),
		generate.WithInstallDisk("/dev/sda"), generate.WithInstallImage("factory.example/installer:v1.14.1"))
	require.NoError(t, err)

	config, err := input.Config(role)
	require.NoError(t, err)

	if patch == "" {
		return config
	}

	loaded, err := configpatcher.LoadPatch([]byte(patch))
	require.NoError(t, err)

	output, err := configpatcher.Apply(configpatcher.WithConfig(config), []configpatcher.Patch{loaded})
	require.NoError(t, err)

	config, err = output.Config()
	require.NoError(t, err)

	return config
}

// sameSecrets are those of all configs.
var sameSecrets = sync.OnceValue(func() *secrets.Bundle {
	bundle, err := throwaway.Secrets()
	if err != nil {
		panic(err)
	}

	return bundle
})

func accessorsOf(differences []equal.Difference) []string {
	var names []string
	for _, one := range differences {
		names = append(names, one.Accessor)
	}

	return names
}

// What Talos' own generator makes in the new form differs from the older one in the defaults alone.
func TestTheFormsDifferInDefaults(t *testing.T) {
	common := []string{"FilesystemTrimConfig", "SecurityProfileConfig", "Volumes.ByName.EPHEMERAL.value.Mount.Secure"}

	for role, expected := range map[machine.Type][]string{
		machine.TypeWorker: common,
		machine.TypeControlPlane: {"FilesystemTrimConfig", "K8sAPIServerConfig.StartupProbesEnabled",
			"K8sAuthenticationConfig.Configuration.anonymous.conditions",
			"K8sAuthenticationConfig.Configuration.anonymous.enabled", "SecurityProfileConfig",
			"Volumes.ByName.EPHEMERAL.value.Mount.Secure"},
	} {
		found, err := equal.Configs(made(t, talosconfig.TalosVersion1_13, role, ""),
			made(t, talosconfig.TalosVersion1_14, role, ""))
		require.NoError(t, err)
		require.Equal(t, expected, accessorsOf(found))
	}
}

// A change in either form is found, whatever the accessor.
func TestDifferences(t *testing.T) {
	for _, test := range []struct{ older, newer, accessor string }{
		{"machine: {kubelet: {extraArgs: {v: '4'}}}", "", "K8sKubeletConfig.ExtraArgs"},
		{"", "apiVersion: v1alpha1\nkind: KubeletConfig\nextraArgs: {v: '4'}", "K8sKubeletConfig.ExtraArgs"},
		{"machine: {nodeLabels: {a: b}}", "", "K8sNodeConfig.Labels.a"},
		{"machine: {install: {wipe: true}}", "", "Machine.Install.Zero"},
		{"machine: {install: {extraKernelArgs: [quiet]}}", "", "Machine.Install.ExtraKernelArgs"},
		{"cluster: {proxy: {extraArgs: {metrics-bind-address: '0.0.0.0:10249'}}}", "",
			"K8sProxyConfig.Config"},
		{"cluster: {apiServer: {extraArgs: {anonymous-auth: 'true'}}}", "",
			"K8sAuthenticationConfig.Configuration.anonymous.conditions"},
		{"cluster: {network: {cni: {name: none}}}", "", "K8sFlannelCNIConfig"},
		{"", "apiVersion: v1alpha1\nkind: KubeEtcdEncryptionConfig\n$patch: delete\n---\n" +
			"apiVersion: v1alpha1\nkind: KubeEtcdEncryptionConfig\nconfig: {resources: [{resources: [secrets], providers: " +
			"[{identity: {}}, {aescbc: {keys: []}}]}]}", "K8sEtcdEncryptionConfig.EtcdEncryptionConfig.resources[0].providers"},
		{"machine: {files: [{path: /etc/nfsmount.conf, op: overwrite, permissions: 0o600, content: a}]}", "",
			"EtcFileConfigs"},
		{"machine: {files: [{path: /var/x, op: create, permissions: 0o600, content: a}]}", "", "Machine.Files"},
		{"", "apiVersion: v1alpha1\nkind: BondConfig\nname: bond0\nlinks: [eth0]\nbondMode: 802.3ad", "NetworkCommonLinkConfigs"},
	} {
		found, err := equal.Configs(made(t, talosconfig.TalosVersion1_13, machine.TypeControlPlane, test.older),
			made(t, talosconfig.TalosVersion1_14, machine.TypeControlPlane, test.newer))
		require.NoError(t, err)
		require.Contains(t, accessorsOf(found), test.accessor, test.older+test.newer)
	}
}

// Pairs of patches that say the same in the two forms.
func TestEquivalences(t *testing.T) {
	for older, newer := range map[string]string{
		"machine: {files: [{path: /etc/nfsmount.conf, op: overwrite, permissions: 0o600, content: a}]}":                 "apiVersion: v1alpha1\nkind: EtcFileConfig\nname: nfsmount.conf\nmode: 0o600\ncontents: a",
		"machine: {files: [{path: /etc/cri/conf.d/20-customization.part, op: create, permissions: 0o600, content: a}]}": "apiVersion: v1alpha1\nkind: CRICustomizationConfig\nname: other\ncontent: a",
		"cluster: {proxy: {extraArgs: {metrics-bind-address: '0.0.0.0:10249', ipvs-strict-arp: 'true'}}}":               "apiVersion: v1alpha1\nkind: KubeProxyConfig\nconfig: {metricsBindAddress: '0.0.0.0:10249', ipvs: {strictARP: true}}",
		"cluster: {apiServer: {certSANs: [192.0.2.10]}}":                                                                "apiVersion: v1alpha1\nkind: KubeAPIServerConfig\ncertExtraSANs: [192.0.2.10]",
		"cluster: {apiServer: {certSANs: [192.0.2.10, 192.0.2.9]}}":                                                     "apiVersion: v1alpha1\nkind: KubeAPIServerConfig\ncertExtraSANs: [192.0.2.9]",
		"cluster: {extraManifests: [https://example.com/a.yaml]}":                                                       "apiVersion: v1alpha1\nkind: KubeExternalManifestConfig\nname: a\nurl: https://example.com/a.yaml",
		"cluster: {apiServer: {authorizationConfig: [{type: Webhook, name: w, webhook: {timeout: 3s}}]}}":               "apiVersion: v1alpha1\nkind: KubeAuthorizerConfig\nname: w\ntype: Webhook\nwebhook: {timeout: 3s}",
		"machine: {install: {disk: /dev/disk/by-id/x}}":                                                                 "apiVersion: v1alpha1\nkind: UnattendedInstallConfig\nprovisioning: {diskSelector: {match: '\"/dev/disk/by-id/x\" in disk.symlinks'}}",
	} {
		found, err := equal.Configs(made(t, talosconfig.TalosVersion1_13, machine.TypeControlPlane, older),
			made(t, talosconfig.TalosVersion1_14, machine.TypeControlPlane, newer))
		require.NoError(t, err)
		require.Len(t, found, 6, "more than the defaults differs with\n%s\nand\n%s:\n%v", older, newer, found)
	}
}

func TestEquivalencesHaveSources(t *testing.T) {
	for _, one := range equal.Equivalences {
		require.NotEmpty(t, one.Accessors)
		require.NotEmpty(t, one.Why)
		require.True(t, strings.Contains(one.Source, ".go"), "%v: a source is a file of Talos", one.Accessors)
	}
}
