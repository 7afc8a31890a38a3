package generate_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
	"github.com/talos-mage/talos-mage/internal/talos/talosconfig"
)

const twoNodes = `clusterName: lab
talosVersion: %s
kubernetesVersion: %s
endpoint: https://192.0.2.10:6443
nodes:
  - {hostname: cp1, ipAddress: 192.0.2.11, controlPlane: true, installDisk: /dev/vda, nameservers: [192.0.2.53]}
  - {hostname: pool, ipAddress: "192.0.2.21,192.0.2.22", installDisk: /dev/vda, ignoreHostname: true}
`

// TestTheSameSourceGivesTheSameBytes includes the talosconfig, though a certificate is made for it.
func TestTheSameSourceGivesTheSameBytes(t *testing.T) {
	t.Parallel()

	source := sourceOf(t, cases(t, "configs")["everything"], environ...)

	first, err := generate.Configs(source)
	require.NoError(t, err)

	second, err := generate.Configs(source)
	require.NoError(t, err)
	require.Equal(t, first, second)

	source.Now = source.Now.Add(time.Second)

	later, err := generate.Configs(source)
	require.NoError(t, err)
	require.Equal(t, first.Configs, later.Configs)
	require.NotEqual(t, first.Talosconfig, later.Talosconfig)
}

func TestTalosconfigIsAnAdministrators(t *testing.T) {
	t.Parallel()

	source := sourceOf(t, map[string]string{"talconfig.yaml": fmt.Sprintf(twoNodes, "v1.13.9", "v1.36.3")})

	output, err := generate.Configs(source)
	require.NoError(t, err)
	require.Equal(t, "lab", output.Cluster)
	require.Equal(t, "lab-cp1.yaml\nlab-pool.yaml\ntalosconfig\n", string(output.GitIgnore))

	client, err := talosconfig.Parse(output.Talosconfig)
	require.NoError(t, err)
	require.Equal(t, "lab", client.Context)

	context := client.Contexts["lab"]
	require.Equal(t, []string{"192.0.2.11"}, context.Endpoints)
	require.Equal(t, []string{"192.0.2.11", "192.0.2.21", "192.0.2.22"}, context.Nodes)

	text, err := base64.StdEncoding.DecodeString(context.Crt)
	require.NoError(t, err)

	block, _ := pem.Decode(text)
	certificate, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)

	authorities := x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM(source.Secrets.Certs.OS.Crt))

	made, err := bundle()
	require.NoError(t, err)

	// The secrets of these tests begin later than the time of the source.
	from := made.Clock.Now().Add(time.Minute)
	_, err = certificate.Verify(x509.VerifyOptions{Roots: authorities, CurrentTime: from,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)
	require.Equal(t, []string{"os:admin"}, certificate.Subject.Organization)
	require.Equal(t, now, certificate.NotBefore)
	require.Equal(t, now.AddDate(1, 0, 0), certificate.NotAfter)
}

// TestEachTalosVersionGetsItsDocuments tells what moved from the one document into others, by version.
func TestEachTalosVersionGetsItsDocuments(t *testing.T) {
	t.Parallel()

	for _, version := range []struct {
		talos, kubernetes string
		kinds             []string
		text, without     string
	}{
		{"v1.4.0", "v1.27.0", []string{"v1alpha1"}, "stableHostname: true", "kubePrism"},
		{"v1.8.0", "v1.31.0", []string{"v1alpha1"}, "stableHostname: true", "grubUseUKICmdline"},
		{"v1.9.0", "v1.32.0", []string{"v1alpha1"}, "stableHostname: true", "grubUseUKICmdline"},
		{"v1.10.0", "v1.33.0", []string{"v1alpha1"}, "stableHostname: true", "grubUseUKICmdline"},
		{"v1.11.0", "v1.34.0", []string{"v1alpha1"}, "apidCheckExtKeyUsage: true", "grubUseUKICmdline"},
		{"1.12.0", "1.35.0", []string{"v1alpha1", "HostnameConfig", "ResolverConfig"}, "grubUseUKICmdline: true",
			"rbac: true"},
		{"v1.13.9", "v1.36.3", []string{"v1alpha1", "HostnameConfig", "ResolverConfig"}, "grubUseUKICmdline: true",
			"rbac: true"},
	} {
		t.Run(version.talos, func(t *testing.T) {
			t.Parallel()

			output, err := generate.Configs(sourceOf(t,
				map[string]string{"talconfig.yaml": fmt.Sprintf(twoNodes, version.talos, version.kubernetes)}))
			require.NoError(t, err)

			provider, err := configloader.NewFromBytes(output.Configs[0].Bytes)
			require.NoError(t, err)

			var kinds []string

			for _, document := range provider.Documents() {
				kinds = append(kinds, document.Kind())
			}

			require.Equal(t, version.kinds, kinds)
			require.Equal(t, "cp1", provider.NetworkHostnameConfig().Hostname())
			require.Contains(t, string(output.Configs[0].Bytes), version.text)
			require.NotContains(t, string(output.Configs[0].Bytes), version.without)
			require.Contains(t, string(output.Configs[0].Bytes),
				"metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v"+
					strings.TrimPrefix(version.talos, "v"))
		})
	}
}

// TestAnOldKeyOfEncryptionIsKept for clusters whose secrets are from before Talos 1.3.
func TestAnOldKeyOfEncryptionIsKept(t *testing.T) {
	t.Parallel()

	source := sourceOf(t, map[string]string{"talconfig.yaml": fmt.Sprintf(twoNodes, "v1.13.9", "v1.36.3")})
	older, keys := *source.Secrets, *source.Secrets.Secrets
	keys.AESCBCEncryptionSecret = "b2xkZXI="
	older.Secrets = &keys
	source.Secrets = &older

	output, err := generate.Configs(source)
	require.NoError(t, err)

	for _, kept := range []string{"aescbcEncryptionSecret: b2xkZXI=\n",
		"secretboxEncryptionSecret: " + keys.SecretboxEncryptionSecret + "\n"} {
		require.True(t, strings.Contains(string(output.Configs[0].Bytes), kept))
	}
}

func TestEncryptedFilesAreDecrypted(t *testing.T) {
	t.Parallel()

	const encrypted = "machine: ENC[AES256_GCM,data:x]\nsops: {mac: x}\n"

	talconfig := fmt.Sprintf(twoNodes, "v1.13.9", "v1.36.3") + "patches: [\"@secret.yaml\"]\n"
	dir := folderOf(t, map[string]string{"talconfig.yaml": talconfig, "secret.yaml": encrypted})

	made, err := bundle()
	require.NoError(t, err)

	configs := func(decrypt func(string, []byte) ([]byte, error)) (*generate.Output, error) {
		cluster, err := inventory.Load(inventory.Options{
			TalosDir: dir, Environ: []string{"VALUE=set"}, Files: reading.New(dir, decrypt),
		})
		require.NoError(t, err)

		return generate.Configs(generate.Source{Cluster: cluster, Secrets: made, Now: now})
	}

	output, err := configs(func(path string, data []byte) ([]byte, error) {
		require.True(t, strings.HasSuffix(path, "secret.yaml"))
		require.Equal(t, encrypted, string(data))

		return []byte("machine: {env: {A: \"${VALUE}\"}}\n"), nil
	})
	require.NoError(t, err)
	require.Contains(t, string(output.Configs[0].Bytes), "A: set")

	broken := errors.New("no key fits")
	_, err = configs(func(string, []byte) ([]byte, error) { return nil, broken })
	require.ErrorContains(t, err, "file secret.yaml can't be decrypted: no key fits")
	require.ErrorIs(t, err, broken)
}

func TestSecretsAreNeeded(t *testing.T) {
	t.Parallel()

	_, err := generate.Configs(generate.Source{})
	require.ErrorContains(t, err, "secrets are needed")

	_, err = generate.Configs(generate.Source{Secrets: &secrets.Bundle{}})
	require.ErrorContains(t, err, "secrets need cluster, secrets, trustdinfo and certs")

	made, err := bundle()
	require.NoError(t, err)

	partial := *made
	partial.Certs = &secrets.Certs{}
	_, err = generate.Configs(generate.Source{Secrets: &partial})
	require.ErrorContains(t, err, "certs need os,")
}

func imagesOf(t *testing.T, talconfig string) ([]generate.Images, error) {
	t.Helper()

	return generate.NameImages(sourceOf(t, map[string]string{"talconfig.yaml": talconfig}).Cluster)
}

func TestImages(t *testing.T) {
	t.Parallel()

	const (
		plain = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba" // the factory's id of an empty schematic
		// that of siderolabs/qemu-guest-agent alone
		agent = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
	)

	talconfig := `clusterName: lab
talosVersion: v1.13.9
kubernetesVersion: v1.36.3
endpoint: https://192.0.2.10:6443
imageFactory: %s
worker: {schematic: {customization: {systemExtensions: {officialExtensions: [siderolabs/qemu-guest-agent]}}}}
nodes:
  - {hostname: a, ipAddress: 192.0.2.11, installDisk: /dev/vda, controlPlane: true}
  - {hostname: b, ipAddress: 192.0.2.12, installDisk: /dev/vda, machineSpec: {arch: arm64, secureboot: true, useUKI: true}}
  - {hostname: c, ipAddress: 192.0.2.13, installDisk: /dev/vda, talosImageURL: other.example/installer/x, imageSchematic: {}, machineSpec: {bootMethod: disk-image, imageSuffix: qcow2, mode: nocloud}}
`

	images, err := imagesOf(t, fmt.Sprintf(talconfig, "{}"))
	require.NoError(t, err)
	require.Equal(t, []generate.Images{
		{
			Node: "a", Schematic: plain, Installer: "factory.talos.dev/metal-installer/" + plain + ":v1.13.9",
			BootSchematic: plain, Boot: "https://factory.talos.dev/image/" + plain + "/v1.13.9/metal-amd64.iso",
		},
		{
			Node: "b", Schematic: agent, Installer: "factory.talos.dev/metal-installer-secureboot/" + agent + ":v1.13.9",
			BootSchematic: agent, Boot: "https://factory.talos.dev/image/" + agent + "/v1.13.9/metal-arm64-secureboot-uki.efi",
		},
		{
			Node: "c", Installer: "other.example/installer/x:v1.13.9",
			BootSchematic: plain, Boot: "https://factory.talos.dev/image/" + plain + "/v1.13.9/nocloud-amd64.qcow2",
		},
	}, images)

	images, err = imagesOf(t, fmt.Sprintf(talconfig,
		`{registryURL: own.example, protocol: http, ISOURLTmpl: "{{.Protocol}}://{{.RegistryURL}}/{{.Arch}}{{.Suffix}}", installerURLTmpl: "{{.RegistryURL}}/{{.Version}}"}`))
	require.NoError(t, err)
	require.Equal(t, []string{"own.example/v1.13.9", "http://own.example/amd64.iso"},
		[]string{images[0].Installer, images[0].Boot})

	_, err = imagesOf(t,
		fmt.Sprintf(talconfig, `{ISOURLTmpl: "{{.Nothing}}"}`))
	require.ErrorContains(t, err, "Nothing")
}
