package invocation_test

import (
	"bytes"
	"context"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// What an audit says of a mistake, it says once, where the mistake is, with what to do about it.
func TestRemediesFitTheMistakes(t *testing.T) {
	t.Parallel()

	talconfig := func(old, replacement string) map[string]string {
		return map[string]string{"talconfig.yaml": strings.Replace(soundTalconfig, old, replacement, 1)}
	}
	with := func(files map[string]string, name, text string) map[string]string {
		files = maps.Clone(files)
		files[name] = text

		return files
	}
	patched := func(text string) map[string]string {
		return with(talconfig("nodes:", "patches: ['@patch.yaml']\nnodes:"), "patch.yaml", text)
	}
	twoWorkers := "  - {hostname: w1, ipAddress: 192.0.2.21, installDisk: /dev/vda}\n" +
		"  - {hostname: w2, ipAddress: 192.0.2.22, installDisk: /dev/vda}\n"

	for name, test := range map[string]struct {
		files map[string]string
		says  []string
		// once is said only once.
		once string
		not  []string
	}{
		"an undecryptable patch": {files: patched("a: ENC[AES256_GCM,data:x]\nsops: {age: [{recipient: age1example}]}\n"),
			says: []string{"TM018", "talos/patch.yaml", "age1example"}, not: []string{"right to read"}},
		"a key of an older talhelper": {files: talconfig("nodes:", "inlinePatch: {machine: {}}\nnodes:"),
			says: []string{`unknown key "inlinePatch"`, "write it as an item of patches: the same text behind `- |-`"}},
		"another": {files: talconfig("    controlPlane: true", "    controlPlane: true\n    configPatches: []"),
			says: []string{"write it as an item of patches: values under their keys"}},
		"a key of another place": {files: talconfig("    controlPlane: true", "    controlPlane: true\n    networkInterfaces:\n"+
			"      - {interface: eth0, dhcp: true, nameservers: [192.0.2.53]}"), says: []string{"nodes[].nameservers"}},
		"a key of patches": {files: talconfig("    controlPlane: true", "    controlPlane: true\n    kubespan: {enabled: true}"),
			says: []string{"move it to where it is known: a patch, as machine.network.kubespan"}},
		"a misspelt key": {files: talconfig("kubernetesVersion", "kubernetesVersoin"),
			says: []string{`did you mean "kubernetesVersion"?`}, not: []string{"where it is known:"}},
		"a patch's key at another depth": {files: patched("machine:\n  kubespan: {enabled: true}\n"),
			says: []string{"machine.kubespan (it belongs to machine.network.kubespan)"}},
		"what only control planes have, for all": {
			files: map[string]string{"talconfig.yaml": strings.Replace(soundTalconfig, "nodes:",
				"patches:\n  - |-\n    cluster: {etcd: {extraArgs: {log-level: info}}}\nnodes:", 1) + twoWorkers},
			says: []string{"talos/talconfig.yaml:7:5", "move it to controlPlane.patches: workers get this one too"},
			once: "only allowed on control plane machines"},
		"several variables": {files: talconfig("nodes:", "patches:\n  - |-\n    machine: {certSANs: [\"${ONE}\", \"${TWO}\"]}\n"+
			"nodes:"), says: []string{"variable ONE is not set", "variable TWO is not set"}},
		"variables in a patch and beside it": {files: map[string]string{"talconfig.yaml": strings.NewReplacer("nodes:",
			"patches:\n  - |-\n    machine: {certSANs: [\"${ONE}\"]}\nnodes:", "/dev/vda", "${DISK}").Replace(soundTalconfig)},
			says: []string{"variable ONE is not set", "variable DISK is not set"}},
		"a variable in brackets": {files: patched("machine:\n  certSANs: [${ONE}, ${TWO}]\n"),
			says: []string{"put the variable in quotes"}, once: "did not find expected", not: []string{"TM007"}},
		"a variable in a profile's patch": {files: map[string]string{"cluster.yaml": soundProfile,
			"clusterconfig/patches/all.yaml": "machine: {network: {interfaces: [{interface: ens18, addresses: " +
				"[\"${ADDRESS}\"]}]}}"},
			says: []string{"TM006", "${ADDRESS}", "write the values themselves"}},
		"several in a profile's patch": {files: map[string]string{"cluster.yaml": soundProfile,
			"clusterconfig/patches/all.yaml": "machine: {network: {interfaces: [{interface: ens18, addresses: " +
				"[\"${TWO}\", \"${ONE}\"]}]}}"},
			says: []string{"here ${ONE}, ${TWO}"}},
		"what only control planes have, in a profile's patch for all": {files: map[string]string{
			"cluster.yaml": strings.Replace(soundProfile, "regenerate", "  workers:\n    assignments:\n"+
				"      - {name: w1, ip: 192.0.2.21, interface: ens18}\nregenerate", 1),
			"clusterconfig/patches/all.yaml": "cluster: {etcd: {extraArgs: {log-level: info}}}\n"},
			says: []string{"clusterconfig/patches/all.yaml", "move it to controlplane.yaml: workers get this one too"}},
		"a hostname beside auto in a profile's patch": {files: map[string]string{"cluster.yaml": soundProfile,
			"clusterconfig/patches/cp1.yaml": "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other\nauto: stable\n"},
			says: []string{"write `auto: off` beside hostname"}},
		"a hostname beside auto": {files: patched(
			"apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other\nauto: stable\n"),
			says: []string{"write `auto: off` beside hostname"}},
		"a hostname in both styles": {files: patched("machine: {network: {hostname: other}}\n"),
			says: []string{"keep one of the two", "`auto: off`"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			out, failure := newRepository(t, test.files).audit("PATH=" + fakeSops(t))
			require.NotNil(t, failure, out)

			for _, text := range test.says {
				require.Contains(t, out, text)
			}

			if test.once != "" {
				require.Equal(t, 1, strings.Count(out, test.once), out)
			}

			for _, text := range append(test.not, "in the form that the message names") {
				require.NotContains(t, out, text)
			}
		})
	}
}

// fakeSops is a folder with a sops that has no key.
func fakeSops(t *testing.T) string {
	t.Helper()

	folder := t.TempDir()
	require.NoError(t, tool.WriteProgram(filepath.Join(folder, "sops"), []byte("#!/bin/sh\nexit 128\n")))

	return folder
}

// The boot image is of the platform that the installer is for.
func TestTheBootImageIsOfTheInstallersPlatform(t *testing.T) {
	t.Parallel()

	for installer, boot := range map[string]string{
		"factory.talos.dev/hcloud-installer/" + strings.Repeat("ab", 32):  "hcloud-amd64.raw.xz",
		"factory.talos.dev/nocloud-installer/" + strings.Repeat("ab", 32): "nocloud-amd64.iso",
		"factory.talos.dev/metal-installer/" + strings.Repeat("ab", 32):   "metal-amd64.iso",
		"ghcr.io/siderolabs/installer":                                    "metal-amd64.iso",
	} {
		out, failure := newRepository(t, map[string]string{"talconfig.yaml": strings.Replace(soundTalconfig,
			"    installDisk", "    talosImageURL: "+installer+"\n    installDisk", 1)}).images()
		require.Nil(t, failure, out)
		require.Contains(t, out, boot)
	}
}

func (r repository) images() (string, *invocation.Failure) {
	var out bytes.Buffer

	failure := r.call(&out).Images(context.Background(), nil)

	return out.String(), failure
}
