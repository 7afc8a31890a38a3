package machineconfig_test

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// everySecret is a config with a secret in each place that can hold one. Each is made of "s3cr3t" and a number, so that
// a test sees any that gets through.
func everySecret(t *testing.T, prefix string) []byte {
	t.Helper()

	number := 0
	next := func() string {
		number++

		return fmt.Sprintf("%ss3cr3t%04d", prefix, number)
	}
	encoded := func() string { return base64.StdEncoding.EncodeToString([]byte(next() + "-with-some-length")) }
	privateKey := func() string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "ED25519 PRIVATE KEY", Bytes: []byte(next())}))
	}
	indent := func(text string, spaces int) string {
		return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", spaces))
	}
	base64Key := func() string { return base64.StdEncoding.EncodeToString([]byte(privateKey())) }

	var text strings.Builder

	fmt.Fprintf(&text, `# a comment with %s
version: v1alpha1
machine:
  type: controlplane
  token: %s # %s
  ca: {crt: %s, key: %s}
  acceptedCAs: [{crt: %s}]
  certSANs: [192.0.2.10]
  network:
    hostname: cp1
    interfaces:
      - interface: wg0
        wireguard:
          privateKey: %s
          peers: [{publicKey: cHVibGljIGtleSBvZiBhIHBlZXIsIHNob3duIGFzIGlzIQ==, endpoint: 192.0.2.1:51820}]
      - interface: eth0
        vip: {ip: 192.0.2.10, equinixMetal: {apiToken: %s}, hcloud: {apiToken: %s}}
        vlans: [{vlanId: 5, vip: {ip: 192.0.2.9, hcloud: {apiToken: %s}}}]
`, next(), next(), next(), encoded(), base64Key(), encoded(), encoded(), next(), next(), next())
	fmt.Fprintf(&text, `  install:
    disk: /dev/vda
    extraKernelArgs: ["siderolink.api=https://192.0.2.1/?jointoken=%s", console=tty0, "oauth.client_secret=%s"]
  env: {HTTPS_PROXY: "http://user:%s@192.0.2.3:3128", PLAIN: "%s"}
  files:
    - {path: /etc/cri/conf.d/20.part, op: create, permissions: 0o600, content: "[plugins]\n  password = %s"}
  pods:
    - {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i, env: [{name: A, value: %s}]}]}}
  registries:
    config:
      registry.example.com:
        auth: {username: puller, password: %s, auth: %s, identityToken: %s}
        tls: {clientIdentity: {crt: %s, key: %s}}
    mirrors: {docker.io: {endpoints: ["https://user:%s@mirror.example.com"]}}
`, next(), next(), next(), next(), next(), next(), next(), next(), next(), encoded(), base64Key(), next())
	fmt.Fprintf(&text, `  systemDiskEncryption:
    state: {provider: luks2, keys: [{slot: 0, static: {passphrase: %s}}]}
    ephemeral: {provider: luks2, keys: [{slot: 0, static: {passphrase: %s}}]}
  logging: {destinations: [{endpoint: "tcp://192.0.2.4:5000", format: json_lines, extraTags: {api-token: %s}}]}
  kubelet:
    extraArgs: {some-token: %s}
    extraConfig: {staticPodURLHeader: {Authorization: [Bearer %s]}}
    credentialProviderConfig: {providers: [{name: p, env: [{name: X, value: %s}]}]}
  nodeAnnotations: {copy.example.com: "copied %s0002"}
`, next(), next(), next(), next(), next(), next(), prefix+"s3cr3t")
	fmt.Fprintf(&text, `cluster:
  id: cHVibGljIGlkIG9mIHRoZSBjbHVzdGVy
  secret: %s
  token: abcdef.%s
  aescbcEncryptionSecret: %s
  secretboxEncryptionSecret: %s
  ca: {crt: %s, key: %s}
  aggregatorCA: {crt: %s, key: %s}
  serviceAccount: {key: %s}
  controlPlane: {endpoint: "https://192.0.2.10:6443"}
  apiServer:
    extraArgs: {oidc-client-secret: %s}
    env: {A: %s}
    admissionControl: [{name: X, configuration: {kubeConfigFile: x, password: %s}}]
    authorizationConfig: [{type: Webhook, name: w, webhook: {connectionInfo: {token: %s}}}]
  controllerManager: {env: {A: %s}}
  scheduler: {env: {A: %s}}
  etcd: {ca: {crt: %s, key: %s}}
  extraManifests: ["https://example.com/m.yaml?token=%s"]
  extraManifestHeaders: {X-Header: %s}
  inlineManifests:
    - {name: secret, contents: "kind: Secret\nstringData: {a: %s}"}
`, encoded(), next(), encoded(), encoded(), encoded(), base64Key(), encoded(), base64Key(), base64Key(), next(), next(),
		next(),
		next(), next(), next(), encoded(), base64Key(), next(), next(), next())
	fmt.Fprintf(&text, `---
apiVersion: v1alpha1
kind: SideroLinkConfig
apiUrl: https://192.0.2.1/?jointoken=%s
uniqueToken: %s
---
apiVersion: v1alpha1
kind: WireguardConfig
name: wg1
privateKey: %s
peers: [{publicKey: cHVibGljIGtleSBvZiBhIHBlZXIsIHNob3duIGFzIGlzIQ==, presharedKey: %s}]
---
apiVersion: v1alpha1
kind: HCloudVIPConfig
name: 192.0.2.8
link: eth0
apiToken: %s
---
apiVersion: v1alpha1
kind: RegistryAuthConfig
name: other.example.com
username: puller
password: %s
auth: %s
identityToken: %s
---
apiVersion: v1alpha1
kind: RegistryTLSConfig
name: other.example.com
clientIdentity:
  cert: |-
    -----BEGIN CERTIFICATE-----
    cHVibGlj
    -----END CERTIFICATE-----
  key: |-
    %s
---
apiVersion: v1alpha1
kind: VolumeConfig
name: EPHEMERAL
encryption: {provider: luks2, keys: [{slot: 0, static: {passphrase: %s}}]}
---
apiVersion: v1alpha1
kind: ExtensionServiceConfig
name: tailscale
configFiles: [{mountPath: /etc/x, content: "key: %s"}]
environment: ["TS_AUTHKEY=%s"]
---
apiVersion: v1alpha1
kind: EnvironmentConfig
variables: {A: %s}
---
apiVersion: v1alpha1
kind: KmsgLogConfig
name: remote
url: "tcp://user:%s@192.0.2.4:5000/"
---
apiVersion: v1alpha1
kind: TrustedRootsConfig
name: mixed
certificates: |-
    %s
`, next(), next(), next(), next(), next(), next(), next(), next(), indent(privateKey(), 4), next(), next(), next(),
		next(), next(),
		indent(privateKey(), 4))
	fmt.Fprintf(&text, `---
apiVersion: v9
kind: SomethingFromTheFuture
name: shown
innocent: %s
nested: [{fields: %s}]
`, next(), next())

	return []byte(text.String())
}

// requireNoSecret fails if a secret of everySecret is in a text, also if base64 hides it there.
func requireNoSecret(t *testing.T, text string) {
	t.Helper()

	require.NotContains(t, text, "s3cr3t")
	require.NotContains(t, text, "PRIVATE KEY")

	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \n\"',:=[]{}", r) }) {
		for range 2 {
			decoded, err := base64.StdEncoding.DecodeString(word)
			if err != nil {
				break
			}

			word = string(decoded)
			require.NotContains(t, word, "s3cr3t")
		}
	}
}

func TestMaskShowsNoSecret(t *testing.T) {
	t.Parallel()

	data := everySecret(t, "")
	require.Contains(t, string(data), "copied s3cr3t0002", "the copied secret is the machine token")

	masked := string(machineconfig.Mask(data))

	requireNoSecret(t, masked)

	for _, kept := range []string{
		"type: controlplane", "hostname: cp1", "disk: /dev/vda", "console=tty0", "username: puller",
		"path: /etc/cri/conf.d/20.part",
		"publicKey: cHVibGlj", `endpoint: "https://192.0.2.10:6443"`, "id: cHVibGlj", "apiUrl: https://192.0.2.1/?(masked)",
		"kind: SomethingFromTheFuture", "name: shown", "format: json_lines",
	} {
		require.Contains(t, masked, kept)
	}
}

func TestMaskOfGeneratedConfigs(t *testing.T) {
	t.Parallel()

	generated, err := clusterfiles.Make(demoOptions())
	require.NoError(t, err)

	bundle := generated.Options.Secrets

	for _, made := range generated.Configs {
		masked := string(machineconfig.Mask(made.Bytes))

		for _, secret := range []string{
			string(bundle.Certs.OS.Key), string(bundle.Certs.K8s.Key), string(bundle.Certs.Etcd.Key),
			string(bundle.Certs.K8sAggregator.Key),
			string(bundle.Certs.K8sServiceAccount.Key), bundle.Secrets.BootstrapToken, bundle.Secrets.SecretboxEncryptionSecret,
			bundle.TrustdInfo.Token, bundle.Cluster.Secret,
		} {
			require.NotContains(t, masked, secret)
			require.NotContains(t, masked, base64.StdEncoding.EncodeToString([]byte(secret)))
		}

		require.Contains(t, masked, "crt: (certificate ")
		require.Contains(t, masked, "hostname: "+made.Node.Name)
	}
}

func TestMaskShowsNothingOfWhatIsNotYAML(t *testing.T) {
	t.Parallel()

	for name, text := range map[string]string{
		"broken": "machine:\n  token: s3cr3t\n bad: [",
		"alias bomb": "a: &a [s3cr3t]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: " +
			"&d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f " +
			"[*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\n",
		"bare scalar":  "s3cr3t",
		"list":         "[s3cr3t, {a: s3cr3t}]",
		"complex keys": "? {a: s3cr3t}\n: s3cr3t\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NotContains(t, string(machineconfig.Mask([]byte(text))), "s3cr3t")
		})
	}
}

func TestMaskFollowsAliases(t *testing.T) {
	t.Parallel()

	masked := string(machineconfig.Mask([]byte("machine:\n  nodeLabels: {x: &t s3cr3ttoken}\n  token: *t\n")))
	require.NotContains(t, masked, "s3cr3t")
}

func TestDiffShowsWhatChangedAndNoSecret(t *testing.T) {
	t.Parallel()

	drop := func(data []byte) []byte { // the unknown kind can't be loaded
		text, _, _ := strings.Cut(string(data), "---\napiVersion: v9")

		return []byte(text)
	}

	running := mustConfig(t, drop(everySecret(t, "")))
	wanted := mustConfig(t, []byte(strings.ReplaceAll(string(drop(everySecret(t, "x"))), "disk: /dev/vda",
		"disk: /dev/vdb")))

	require.Empty(t, machineconfig.Diff(running, running))

	diff := machineconfig.Diff(running, wanted)
	requireNoSecret(t, diff)
	require.Contains(t, diff, "-    disk: /dev/vda\n+    disk: /dev/vdb\n")
	require.Contains(t, diff, "-  token: (masked, changed)\n+  token: (masked, changed)\n")
	require.NotContains(t, diff, "(masked:")
}

func TestDiffOfUnchangedSecretsSaysMasked(t *testing.T) {
	t.Parallel()

	generated, err := clusterfiles.Make(demoOptions())
	require.NoError(t, err)

	running := mustConfig(t, generated.Configs[0].Bytes)
	wanted := mustConfig(t, []byte(strings.Replace(string(generated.Configs[0].Bytes), "certSANs: []",
		"certSANs: [192.0.2.99]", 1)))

	diff := machineconfig.Diff(running, wanted)
	require.Contains(t, diff, "--- now\n+++ wanted\n")
	require.Contains(t, diff, "192.0.2.99")
	require.Contains(t, diff, "     key: (masked)\n")
	require.NotContains(t, diff, machineconfig.MaskedChanged)
}

func TestSameComparesMeaning(t *testing.T) {
	t.Parallel()

	generated, err := clusterfiles.Make(demoOptions())
	require.NoError(t, err)

	text := string(generated.Configs[0].Bytes)
	config := mustConfig(t, []byte(text))

	documents := strings.Split(text, "---\n")
	require.Greater(t, len(documents), 2)
	documents[0], documents[1] = documents[1], documents[0]

	for name, tt := range map[string]struct {
		text string
		same bool
	}{
		"comments":              {"# a comment\n" + text, true},
		"order of documents":    {strings.Join(documents, "---\n"), true},
		"quotes":                {strings.Replace(text, "hostname: cp1", `hostname: "cp1"`, 1), true},
		"another hostname":      {strings.Replace(text, "hostname: cp1", "hostname: cp9", 1), false},
		"a document less":       {strings.Join(documents[:len(documents)-1], "---\n"), false},
		"another disk":          {strings.Replace(text, "/dev/vda", "/dev/vdb", 1), false},
		"the config of a peer":  {string(generated.Configs[1].Bytes), false},
		"windows line endings":  {strings.ReplaceAll(text, "\n", "\r\n"), true},
		"spaces after the text": {text + "\n\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			other := mustConfig(t, []byte(tt.text))
			require.Equal(t, tt.same, machineconfig.Same(config, other))
			require.Equal(t, tt.same, machineconfig.Diff(config, other) == "")
		})
	}
}

func mustConfig(t *testing.T, data []byte) *machineconfig.Config {
	t.Helper()

	config, err := machineconfig.FromBytes("test.yaml", data)
	require.NoError(t, err)

	return config
}
