package generate_test

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	talosgenerate "github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
	"golang.org/x/crypto/nacl/secretbox"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

const plain114 = `clusterName: lab
talosVersion: v1.14.1
kubernetesVersion: v1.37.0
endpoint: https://192.0.2.10:6443
nodes:
  - {hostname: cp1, ipAddress: 192.0.2.11, controlPlane: true, installDisk: /dev/vda}
  - {hostname: w1, ipAddress: 192.0.2.21, installDisk: /dev/vda}
`

// What a talconfig declares least comes out as Talos' own generator has it, but for the host name, which that leaves to
// the machine, and what encrypts Secrets, which it gets wrong.
func TestContract114IsWhatTalosGenerates(t *testing.T) {
	t.Parallel()

	made, err := bundle()
	require.NoError(t, err)

	made.Secrets.AESCBCEncryptionSecret = ""

	output, err := configsIn(folderOf(t, map[string]string{"talconfig.yaml": plain114, "talenv.yaml": "talosContract: v1.14\n"}),
		made)
	require.NoError(t, err)

	for i, role := range []machine.Type{machine.TypeControlPlane, machine.TypeWorker} {
		ours, err := machineconfig.FromBytes("node.yaml", output.Configs[i].Bytes)
		require.NoError(t, err)

		input, err := talosgenerate.NewInput("lab", "https://192.0.2.10:6443", "1.37.0", talosgenerate.WithSecretsBundle(made),
			talosgenerate.WithInstallDisk("/dev/vda"), talosgenerate.WithInstallImage(ours.InstallImage()))
		require.NoError(t, err)

		theirs, err := input.Config(role)
		require.NoError(t, err)

		expected := map[string]string{}
		for _, document := range theirs.Documents() {
			expected[document.Kind()+"/"+nameOf(document)] = encoded(t, document)
		}

		for _, document := range ours.Provider.Documents() {
			id := document.Kind() + "/" + nameOf(document)
			require.Contains(t, expected, id)

			if kind := document.Kind(); kind != network.HostnameKind && kind != "KubeEtcdEncryptionConfig" {
				require.YAMLEq(t, expected[id], encoded(t, document), id)
			}

			delete(expected, id)
		}

		require.Empty(t, expected)
	}
}

func nameOf(document config.Document) string {
	if named, ok := document.(config.NamedDocument); ok {
		return named.Name()
	}

	return ""
}

func encoded(t *testing.T, document config.Document) string {
	t.Helper()

	text, err := encoder.NewEncoder(document, encoder.WithComments(encoder.CommentsDisabled)).Encode()
	require.NoError(t, err)

	return string(text)
}

// A node makes an EncryptionConfiguration of either form. What was encrypted by one is read by the other, whichever
// secrets a bundle has.
func TestSecretsStayReadableInTheNewForm(t *testing.T) {
	t.Parallel()

	const (
		boxSecret = "c2VjcmV0Ym94LXNlY3JldC1vZi0zMi1ieXRlcyEhISE="
		cbcSecret = "YWVzY2JjLXNlY3JldC13aXRoLTMyLWJ5dGVzISEhISE="
	)

	for name, secrets := range map[string][2]string{
		"new cluster": {boxSecret, ""}, "cluster since Talos 1.2": {"", cbcSecret}, "moved cluster": {boxSecret, cbcSecret},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			shared, err := bundle()
			require.NoError(t, err)

			made, own := *shared, *shared.Secrets
			own.SecretboxEncryptionSecret, own.AESCBCEncryptionSecret = secrets[0], secrets[1]
			made.Secrets = &own

			older, newer := encryptionOf(t, &made, "v1.13"), encryptionOf(t, &made, "v1.14")
			require.Equal(t, older, newer)

			for _, provider := range older {
				require.Equal(t, "the password", newer.decrypt(t, provider.encrypt(t, "the password")))
			}

			require.Equal(t, "the password", older.decrypt(t, newer[0].encrypt(t, "the password")))
			require.Equal(t, "from before", newer.decrypt(t, "from before"), "what was never encrypted")
		})
	}
}

// encryptionKeys are the providers of a node's EncryptionConfiguration in their order: the first one encrypts.
type encryptionKeys []encryptionKey

type encryptionKey struct{ cipher, name, secret string }

// encryptionOf is what a node makes of the config of a control plane. Source: siderolabs/talos v1.14.1
// internal/app/machined/pkg/controllers/k8s/internal/k8stemplates/apiserver.go.
func encryptionOf(t *testing.T, made *secrets.Bundle, contract string) encryptionKeys {
	t.Helper()

	output, err := configsIn(folderOf(t, map[string]string{"talconfig.yaml": plain114,
		"talenv.yaml": "talosContract: " + contract + "\n"}), made)
	require.NoError(t, err)

	read, err := machineconfig.FromBytes("cp1.yaml", output.Configs[0].Bytes)
	require.NoError(t, err)

	var keys encryptionKeys

	if document := read.Provider.K8sEtcdEncryptionConfig(); document != nil {
		var said struct {
			Resources []struct {
				Resources []string
				Providers []map[string]struct {
					Keys []struct{ Name, Secret string }
				}
			}
		}

		text, err := yaml.Marshal(document.EtcdEncryptionConfig())
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &said))
		require.Len(t, said.Resources, 1)
		require.Equal(t, []string{"secrets"}, said.Resources[0].Resources)

		for _, provider := range said.Resources[0].Providers {
			for cipher, of := range provider {
				key := encryptionKey{cipher: cipher}
				if len(of.Keys) > 0 {
					key.name, key.secret = of.Keys[0].Name, of.Keys[0].Secret
				}

				keys = append(keys, key)
			}
		}

		return keys
	}

	if secret := read.Provider.Cluster().SecretboxEncryptionSecret(); secret != "" {
		keys = append(keys, encryptionKey{"secretbox", "key2", secret})
	}

	if secret := read.Provider.Cluster().AESCBCEncryptionSecret(); secret != "" {
		keys = append(keys, encryptionKey{"aescbc", "key1", secret})
	}

	return append(keys, encryptionKey{cipher: "identity"})
}

// prefix is what Kubernetes writes before a value, to find the key that reads it.
func (k encryptionKey) prefix() string { return "k8s:enc:" + k.cipher + ":v1:" + k.name + ":" }

// encrypt is what the API server does. Source: k8s.io/apiserver pkg/storage/value/encrypt, secretbox and aes.
func (k encryptionKey) encrypt(t *testing.T, text string) string {
	t.Helper()

	switch k.cipher {
	case "secretbox":
		var nonce [24]byte

		_, err := rand.Read(nonce[:])
		require.NoError(t, err)

		return k.prefix() + string(secretbox.Seal(nonce[:], []byte(text), &nonce, k.key(t)))
	case "aescbc":
		block, err := aes.NewCipher(k.key(t)[:])
		require.NoError(t, err)

		padding := aes.BlockSize - len(text)%aes.BlockSize
		sealed := make([]byte, aes.BlockSize+len(text)+padding)
		_, err = rand.Read(sealed[:aes.BlockSize])
		require.NoError(t, err)

		padded := text + strings.Repeat(string(rune(padding)), padding)
		cipher.NewCBCEncrypter(block, sealed[:aes.BlockSize]).CryptBlocks(sealed[aes.BlockSize:], []byte(padded))

		return k.prefix() + string(sealed)
	default:
		require.Equal(t, "identity", k.cipher)

		return text
	}
}

// open reads what encrypt made.
func (k encryptionKey) open(t *testing.T, sealed []byte) string {
	t.Helper()

	if k.cipher == "secretbox" {
		text, authentic := secretbox.Open(nil, sealed[24:], (*[24]byte)(sealed), k.key(t))
		require.True(t, authentic)

		return string(text)
	}

	block, err := aes.NewCipher(k.key(t)[:])
	require.NoError(t, err)

	text := make([]byte, len(sealed)-aes.BlockSize)
	cipher.NewCBCDecrypter(block, sealed[:aes.BlockSize]).CryptBlocks(text, sealed[aes.BlockSize:])

	return string(text[:len(text)-int(text[len(text)-1])])
}

func (k encryptionKey) key(t *testing.T) *[32]byte {
	t.Helper()

	key, err := base64.StdEncoding.DecodeString(k.secret)
	require.NoError(t, err)
	require.Len(t, key, 32)

	return (*[32]byte)(key)
}

func (k encryptionKeys) decrypt(t *testing.T, stored string) string {
	t.Helper()

	for _, key := range k {
		sealed, isIts := strings.CutPrefix(stored, key.prefix())
		if !isIts {
			continue
		}

		return key.open(t, []byte(sealed))
	}

	require.Contains(t, k, encryptionKey{cipher: "identity"})
	require.False(t, strings.HasPrefix(stored, "k8s:enc:"), "no key reads it")

	return stored
}

func TestAProfileInTheNewFormSaysWhatItSaid(t *testing.T) {
	t.Parallel()

	text := strings.Replace(testProfile("1.14.1", "1.37.0"), "  kubernetes_version", "  contract: v1.14\n  kubernetes_version", 1)
	output, err := fromProfile(t, text, map[string]string{
		"all.yaml": "apiVersion: v1alpha1\nkind: KubeletConfig\nextraArgs: {max-pods: '200'}\n",
		"w1.yaml":  "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\nmtu: 1400\n",
	})
	require.NoError(t, err)

	cp1, err := machineconfig.FromBytes("cp1.yaml", output.Configs[0].Bytes)
	require.NoError(t, err)

	require.Equal(t, "cp1", cp1.Hostname())
	require.Equal(t, "/dev/sda", cp1.InstallDisk())
	require.Equal(t, "factory.talos.dev/installer/"+testSchematic+":v1.14.1", cp1.InstallImage())
	require.Empty(t, cp1.Provider.DiscoveryServiceConfigs())
	require.Nil(t, cp1.Provider.RawV1Alpha1().MachineConfig.MachineNetwork) //nolint:staticcheck // there is none

	links := cp1.Provider.NetworkCommonLinkConfigs()
	require.Len(t, links, 1)
	require.Equal(t, "ens18", links[0].Name())
	require.Equal(t, "192.0.2.11/24", links[0].Addresses()[0].Address().String())
	require.Equal(t, "192.0.2.1", links[0].Routes()[0].Gateway().ValueOrZero().String())

	vips := cp1.Provider.NetworkVirtualIPConfigs()
	require.Len(t, vips, 1)
	require.Equal(t, "ens18", vips[0].Link())

	resolvers := cp1.Provider.NetworkResolverConfig().Resolvers()
	require.Len(t, resolvers, 2)
	require.True(t, cp1.Provider.NetworkHostDNSConfig().HostDNSEnabled())

	w1, err := machineconfig.FromBytes("w1.yaml", output.Configs[1].Bytes)
	require.NoError(t, err)
	require.Len(t, w1.Provider.NetworkCommonLinkConfigs(), 1)
	require.Equal(t, []string{"200"}, w1.Provider.K8sKubeletConfig().ExtraArgs()["max-pods"])
}

func TestAProfilesPatchWithFieldsThatDocumentsReplaced(t *testing.T) {
	t.Parallel()

	text := strings.Replace(testProfile("1.14.1", "1.37.0"), "  kubernetes_version", "  contract: v1.14\n  kubernetes_version", 1)
	_, err := fromProfile(t, text, map[string]string{"cp1.yaml": "machine:\n  kubelet: {clusterDNS: [192.0.2.1]}\n"})

	mistakes := yamlfile.Errors(err)
	require.Len(t, mistakes, 1, err)
	require.Equal(t, "out/patches/cp1.yaml:2:13: as a patch: it sets machine.kubelet.clusterDNS, "+
		"which clusterDNS of KubeletConfig replaces with contract v1.14", mistakes[0].Error())
	require.Contains(t, mistakes[0].Next, "mage config:migrate")
}
