package talos_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/talos"
)

func TestProblemsOfAMachineConfigAreOneLineEach(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"one line", "config not found", []string{"config not found"}},
		{
			"nested counts",
			"1 error occurred:\n\t* v1alpha1.Config: 3 errors occurred:\n\t* etcd config is only allowed on control plane " +
				"machines\n" +
				"\t* cluster CA key is not allowed on non-controlplane nodes (.cluster.ca)\n\t* unknown machine type " +
				"\"master\"\n\n\n\n",
			[]string{
				"etcd config is only allowed on control plane machines",
				"cluster CA key is not allowed on non-controlplane nodes (.cluster.ca)",
				`unknown machine type "master"`,
			},
		},
		{
			"a document's name stays",
			"1 error occurred:\n\t* HostnameConfig: 'auto' and 'hostname' cannot be set at the same time\n\n",
			[]string{"HostnameConfig: 'auto' and 'hostname' cannot be set at the same time"},
		},
		{
			"no disk",
			"1 error occurred:\n\t* v1alpha1.Config: 1 error occurred:\n\t* no disks matched the expression: glob(\"NOPE*\", " +
				"disk.model) && disk.transport != \"\"\n\n\n\n",
			[]string{`no disks matched the expression: glob("NOPE*", disk.model) && disk.transport != ""`},
		},
		{
			"unknown keys lose their values",
			"error decoding document /v1alpha1/ (line 1): unknown keys found during decoding:\nmachine:\n    foo: s3cret\n   " +
				" network:\n        hostnme: cp1\n        list:\n            - a: b\n",
			[]string{"error decoding document /v1alpha1/ (line 1): unknown keys: .machine.foo, .machine.network.hostnme, " +
				".machine.network.list"},
		},
		{
			"unknown keys with Talos 1.12, which does not name the document",
			"unknown keys found during decoding:\nmachine:\n    foo: s3cret\n",
			[]string{"unknown keys: .machine.foo"},
		},
		{
			"a value that the decoder quotes",
			"error decoding document /v1alpha1/ (line 1): yaml: construct errors:\n  line 2: cannot construct !!str " +
				"`hunter2` into bool",
			[]string{"error decoding document /v1alpha1/ (line 1): yaml: construct errors:",
				"line 2: cannot construct !!str (masked) into bool"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			require.Equal(t, test.want, talos.Problems(test.text))
		})
	}
}

func TestScrubKeepsWhatHelps(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"failed to pull image " +
			"\"factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d32b4ba:v1.13.9\": " +
			"not found",
		"lstat /dev/disk/by-id/ata-Samsung_SSD_870_QVO_1TB: no such file or directory",
		"please run `talosctl bootstrap` against one of the following IPs:",
		"open /system/secrets/etcd/admin.crt: no such file or directory",
		`no disks matched the expression: disk.size >= 100000000000u && disk.transport != ""`,
	} {
		require.Equal(t, text, talos.Scrub(text))
	}

	require.Equal(t, "GET https://(masked)@192.0.2.1/", talos.Scrub("GET https://user:pass@192.0.2.1/"))
	require.Len(t, []rune(talos.Scrub(strings.Repeat("word ", 1000))), 2001)
}

// A real config's text, wherever a node quotes it, shows none of its secrets.
func TestScrubHidesEverySecretOfAMachineConfig(t *testing.T) {
	t.Parallel()

	bundle, err := secrets.NewBundle(secrets.NewClock(), nil)
	require.NoError(t, err)

	input, err := generate.NewInput("homelab", "https://192.0.2.10:6443", "v1.36.3", generate.WithSecretsBundle(bundle))
	require.NoError(t, err)

	config, err := input.Config(machine.TypeControlPlane)
	require.NoError(t, err)

	data, err := config.Bytes()
	require.NoError(t, err)

	for _, text := range []string{string(data), strings.Join(talos.Problems(string(data)), "\n")} {
		scrubbed := talos.Scrub(text)

		for name, secret := range map[string]string{
			"machine token":   bundle.TrustdInfo.Token,
			"bootstrap token": bundle.Secrets.BootstrapToken,
			"secretbox":       bundle.Secrets.SecretboxEncryptionSecret,
			"cluster secret":  bundle.Cluster.Secret,
			"OS key":          string(bundle.Certs.OS.Key),
			"etcd key":        string(bundle.Certs.Etcd.Key),
		} {
			require.NotContains(t, scrubbed, secret, name)
		}
	}
}

func TestMacOSPermissionIsSuggestedForPrivateAddressesOnly(t *testing.T) {
	t.Parallel()

	noRoute := fmt.Errorf("dial: %w", os.NewSyscallError("connect", syscall.EHOSTUNREACH))

	require.Contains(t, talos.LocalNetworkHint("darwin", "192.168.1.11", noRoute), "Local Network")
	require.Contains(t, talos.LocalNetworkHint("darwin", "10.0.0.11:50000", noRoute), "Local Network")
	require.Empty(t, talos.LocalNetworkHint("linux", "192.168.1.11", noRoute))
	require.Empty(t, talos.LocalNetworkHint("darwin", "192.0.2.11", noRoute))
	require.Empty(t, talos.LocalNetworkHint("darwin", "192.168.1.11", os.NewSyscallError("connect", syscall.ECONNREFUSED)))
}

func TestATokenInANodesTextIsMaskedWhateverItStandsBeside(t *testing.T) {
	t.Parallel()

	const token = "abcdef.0123456789abcdef"

	for _, text := range []string{token, "x-" + token, "(" + token + ")", "join." + token, token + ".", token + "-x"} {
		require.NotContains(t, talos.Scrub("no way: "+text), token, text)
	}
}
