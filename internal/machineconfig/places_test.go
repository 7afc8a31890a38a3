package machineconfig_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

const placesText = `version: v1alpha1
machine:
  type: worker
  token: abcdef.0123456789abcdef
  network:
    interfaces:
      - interface: eth0
        addresses:
          - 192.0.2.11/24
  files:
    - content: geheim
      path: /var/x
  previous: kHyhYrvxcl3oGZ42Rxg1l73DqPMgIDwQBqgAAfByWxY=
---
apiVersion: v1alpha1
kind: LinkConfig
name: eth1
mtu: 9000
`

func TestPlaces(t *testing.T) {
	t.Parallel()

	places := machineconfig.NewPlaces([]byte(placesText))

	for name, test := range map[string]struct {
		document, path string
		line, column   int
	}{
		"item":              {"", "machine.network.interfaces[0].addresses[0]", 9, 13},
		"key":               {"", "machine.type", 3, 3},
		"nearest above":     {"", "machine.network.interfaces[0].vip.ip", 7, 9},
		"index out of list": {"", "machine.network.interfaces[4]", 6, 5},
		"document":          {"LinkConfig/eth1", "mtu", 18, 1},
		"no such document":  {"LinkConfig/eth2", "mtu", 0, 0},
	} {
		line, column := places.Find(test.document, test.path)
		require.Equal(t, []int{test.line, test.column}, []int{line, column}, name)
	}
}

func TestShownLinesHoldNoSecret(t *testing.T) {
	t.Parallel()

	places := machineconfig.NewPlaces([]byte(placesText))

	for line, want := range map[int]string{
		0: "", 3: "  type: worker", 4: "  token: (masked)", 9: "          - 192.0.2.11/24", 11: "    - content: (masked)",
		12: "      path: /var/x",
		13: "  previous: (masked)", 99: "",
	} {
		require.Equal(t, want, places.Line(line))
	}

	require.Equal(t, "  type: (masked)", places.Key(3))
	require.Equal(t, "machine:", places.Key(2))
}

// Where a key is misspelt, nobody knows whether its value is a secret: some values are none under any name.
func TestHarmlessValuesAreShownWhateverTheirKeyMeans(t *testing.T) {
	t.Parallel()

	shown := []string{
		"      listen-metric-urls: http://0.0.0.0:2381", `    endpiont: "https://192.0.2.10:6443"`,
		"endpiont: https://192.0.2.10:6443", "listen-metric-urls: http://0.0.0.0:2381", "ipAdress: 192.0.2.11",
		"addres: 2001:db8::1/64 # of the node", "alowScheduling: true", `talosVersoin: "v1.13.9"`,
		"adresses: [192.0.2.11/24, 2001:db8::1/64]", `ptches: ["@patches/a.yaml", b.yml]`,
	}
	masked := map[string]string{
		"pasword: hunter2":                                   "pasword: (masked)",
		"pasword: 123456":                                    "pasword: (masked)",
		"webhok: https://u:p@example.org":                    "webhok: (masked)",
		"webhok: https://example.org/?token=x":               "webhok: (masked)",
		"webhok: https://example.org/T0/B0/abcdef0123456789": "webhok: (masked)",
		"secret: true":                                       "secret: (masked)",
		"boottoken: abcdef.0123456789abcdef":                 "boottoken: (masked)",
		"adresses: [192.0.2.11/24, hunter2]":                 "adresses: (masked)",
		"{pasword: hunter2, user:":                           "",
	}

	for _, line := range shown {
		require.Equal(t, line, machineconfig.NewPlaces([]byte(line)).Harmless(1))
	}

	for line, want := range masked {
		require.Equal(t, want, machineconfig.NewPlaces([]byte(line)).Harmless(1), line)
	}
}

// What Talos has a field for is shown, and what stands beside it only if it has one for that as well.
func TestHarmlessLinesAreThoseOfKeysThatTalosKnows(t *testing.T) {
	t.Parallel()

	for line, want := range map[string]string{
		"  nodeLabels: {a: b}":                              "  nodeLabels: {a: b}",
		"  certSANs: [a.example.net]":                       "  certSANs: [a.example.net]",
		"  sysctls: {$patch: delete}":                       "  sysctls: {$patch: delete}",
		"  install: {disk: /dev/vda, pasword: hunter2}":     "  install: (masked)",
		"  certSANs: {pasword: hunter2}":                    "  certSANs: (masked)",
		"  kubelet: {extraConfig: {a: {pasword: hunter2}}}": "  kubelet: (masked)",
		"  token: hunter2":                                  "  token: (masked)",
		"  kernl: {a: b}":                                   "  kernl: (masked)",
	} {
		require.Equal(t, want, machineconfig.NewPlaces([]byte("machine:\n"+line+"\n")).Harmless(2))
	}

	unknown := machineconfig.NewPlaces([]byte("apiVersion: v1\nkind: Secret\nmetadata: {pasword: hunter2}\n"))
	for line, want := range []string{"", "apiVersion: v1", "kind: Secret", "metadata: (masked)"} {
		require.Equal(t, want, unknown.Harmless(line))
	}
}

// A talconfig's patch on a line of its own, or of the list, has keys that may be misspelt; a file's name has none.
func TestPatchesInOneLineAreMasked(t *testing.T) {
	t.Parallel()

	places := machineconfig.NewPlaces([]byte("patches: ['machine: {pasword: hunter2}']\nworker:\n  patches:\n" +
		"    - '@patches/a.yaml'\n    - \"machine: {pasword: hunter2}\"\n    - |-\n      machine: {}\n"))

	for line, want := range map[int]string{
		1: "patches: (masked)", 4: "    - '@patches/a.yaml'", 5: `    - "machine: (masked)`, 6: "    - |-",
	} {
		require.Equal(t, want, places.Line(line))
	}

	require.Equal(t, "    - '@patches/a.yaml'", places.Harmless(4))
}

// A line with a URL keeps what is no secret, however deep it stands.
func TestLinesWithURLsKeepWhatIsNoSecret(t *testing.T) {
	t.Parallel()

	for line, want := range map[string]string{
		"    listen-metrics-urls: http://0.0.0.0:2381":        "    listen-metrics-urls: http://0.0.0.0:2381",
		"  mirrors: [https://a.example.org, \"https://b\"]":   "  mirrors: [https://a.example.org, \"https://b\"]",
		"  url: https://u:p@example.org/x":                    "  url: https://(masked)@example.org/x",
		"  url: https://example.org/?token=x # comment":       "  url: https://example.org/?(masked) # comment",
		"  url: https://user:12 34@example.org":               "  url: (masked)",
		"  url: https://user:pa ss@example.org":               "  url: (masked)",
		"  args: [siderolink.api=https://192.0.2.1/?token=x]": "  args: [siderolink.api=https://192.0.2.1/?(masked)]",
	} {
		text := "machine:\n" + line + "\n"
		require.Equal(t, want, machineconfig.NewPlaces([]byte(text)).Line(2), line)
	}
}
