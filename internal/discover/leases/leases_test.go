package leases_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/discover/leases"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func entry(node, address string) leases.Entry {
	return leases.Entry{Node: node, Address: address, MAC: "52:54:00:00:00:01",
		UUID: "12345678-1234-1234-1234-123456789abc", Fingerprint: "AAAA=", At: noon}
}

// read has a text read as the leases of a cluster.
func read(t *testing.T, text string) (leases.Leases, error) {
	t.Helper()

	root := t.TempDir()
	path := leases.Path(root)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))

	return leases.Read(reading.New(root, nil), path)
}

func TestLeasesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()

	written := leases.Leases{entry("cp1", "192.0.2.50"), entry("cp[192.0.2.12]", "2001:db8::51"),
		{Node: "worker1", Address: "192.0.2.52", At: noon}}

	text, err := written.Encode()
	require.NoError(t, err)

	got, err := read(t, string(text))
	require.NoError(t, err)
	require.Equal(t, written, got)
}

func TestThereMayBeNoLeases(t *testing.T) {
	t.Parallel()

	root := t.TempDir()
	got, err := leases.Read(reading.New(root, nil), leases.Path(root))
	require.NoError(t, err)
	require.Empty(t, got)

	for _, text := range []string{"", "# nothing\n", "nodes: []\n", "nodes:\n"} {
		got, err := read(t, text)
		require.NoError(t, err, text)
		require.Empty(t, got)
	}
}

func TestMistakesInTheFileHaveAPlace(t *testing.T) {
	t.Parallel()

	const at = ", at: 2026-03-04T12:00:00Z"

	for text, want := range map[string]string{
		"nodes: [{node: a, address: 192.0.2.1": ".talos-mage/leases.yaml:2:1: is not valid YAML",
		"nodes:\n- {node: a, adress: 192.0.2.1" + at + "}\n": ".talos-mage/leases.yaml:2:13: unknown key \"adress\", " +
			"did you mean \"address\"?",
		"nodes: 1\n": ":1:8: \"nodes\" must be a list",
		"nodes:\n- {node: a, address: cp1.example.net" + at + "}\n": ":2:22: \"address\": \"cp1.example.net\" is no IP",
		"nodes:\n- {node: a" + at + "}\n":                           ":2:3: \"address\"",
		"nodes:\n- {address: 192.0.2.1" + at + "}\n":                ":2:3: \"node\" is needed",
		"nodes:\n- {node: a, address: 192.0.2.1}\n":                 ":2:3: \"at\" is needed",
		"nodes:\n- {node: a, address: 192.0.2.1, at: noon}\n":       ":2:37: ",
		"nodes:\n- {node: a, address: 192.0.2.1, mac: 52:54" + at + "}\n": ":2:38: \"mac\": \"52:54\" is no " +
			"hardware address",
		"nodes:\n- {node: a, address: 192.0.2.1" + at + "}\n- {node: a, address: 192.0.2.2" + at + "}\n": ":3:10: " +
			"\"node\": a has an entry already",
		"nodes:\n- {node: a, address: 192.0.2.1" + at + "}\n- {node: b, address: 192.0.2.1" + at + "}\n": ":3:22: " +
			"\"address\": 192.0.2.1 is a's already",
		"\x00": "leases.yaml",
	} {
		_, err := read(t, text)
		require.ErrorContains(t, err, want, text)

		mistakes := yamlfile.Errors(err)
		require.NotEmpty(t, mistakes, text)
		require.Equal(t, diagnosis.ExitBadInput, mistakes[0].ExitCode())
	}
}

func TestNodesThatWereNotFoundKeepTheirEntries(t *testing.T) {
	t.Parallel()

	before := leases.Leases{entry("cp1", "192.0.2.50"), entry("cp2", "192.0.2.51"), entry("cp3", "192.0.2.52")}
	moved, taken := entry("cp1", "192.0.2.77"), entry("worker1", "192.0.2.52")

	require.Equal(t, leases.Leases{before[1], moved, taken}, before.With(moved, taken),
		"no two nodes answer at one address")
	require.Equal(t, before, before.With())

	_, known := before.Of("worker1")
	require.False(t, known)
}

func TestEntriesTellMachinesApart(t *testing.T) {
	t.Parallel()

	known := entry("cp1", "192.0.2.50")
	macs := []string{"52:54:00:00:00:99", known.MAC}

	require.True(t, known.Is(macs, "12345678-1234-1234-1234-123456789ABC"))
	require.False(t, known.Is(macs[:1], known.UUID))
	require.False(t, known.Is(macs, "another"))
	require.True(t, leases.Entry{}.Is(nil, ""), "one that told nothing of itself may be any")
}
