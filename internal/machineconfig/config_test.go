package machineconfig_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

func TestLoadSaysHowToMakeAMissingConfig(t *testing.T) {
	t.Parallel()

	_, err := machineconfig.Load(filepath.Join(t.TempDir(), "demo-cp1.yaml"))
	require.ErrorIs(t, err, fs.ErrNotExist)

	var loadError *machineconfig.LoadError

	require.ErrorAs(t, err, &loadError)
	require.Equal(t, "mage config:generate", loadError.Next)
	require.Contains(t, err.Error(), "demo-cp1.yaml: the machine config does not exist")
}

func TestLoadReadsWhatWasGenerated(t *testing.T) {
	t.Parallel()

	generated, err := clusterfiles.Make(demoOptions())
	require.NoError(t, err)

	path := filepath.Join(t.TempDir(), "cp1.yaml")
	require.NoError(t, os.WriteFile(path, generated.Configs[0].Bytes, 0o600))

	config, err := machineconfig.Load(path)
	require.NoError(t, err)
	require.Equal(t, generated.Configs[0].Bytes, config.Bytes)

	warnings, err := config.Validate(machineconfig.Mode{Metal: true})
	require.NoError(t, err)
	require.Empty(t, warnings)
}

// TestLoadErrors keeps the text of each way in which a config can't be read.
func TestLoadErrors(t *testing.T) {
	t.Parallel()

	generated, err := clusterfiles.Make(demoOptions())
	require.NoError(t, err)

	good := string(generated.Configs[0].Bytes)

	cases := []struct{ name, text string }{
		{"empty", ""},
		{"only a comment", "# nothing\n"},
		{"a scalar", "s3cr3t"},
		{"not YAML", "machine: [s3cr3t"},
		{"tab", "machine:\n\ttoken: s3cr3t\n"},
		{"unknown key", strings.Replace(good, "  token:", "  tokne:", 1)},
		{"unknown key in a list", strings.Replace(good, "- address: 192", "- adress: 192", 1)},
		{"unknown kind", good + "---\napiVersion: v1alpha1\nkind: FooConfig\nname: s3cr3t\n"},
		{"unknown key of a document",
			good + "---\napiVersion: v1alpha1\nkind: SideroLinkConfig\napiUlr: https://192.0.2.1/?jointoken=s3cr3t\n"},
		{"URL with a token", good + "---\napiVersion: v1alpha1\nkind: SideroLinkConfig\napiUrl: " +
			"https://[2001:db8::1?jointoken=s3cr3t\n"},
		{"second document without a kind", good + "---\nmachine: {}\n"},
		{"wrong type", strings.Replace(good, "wipe: false", "wipe: [s3cr3t]", 1)},
		{"secret of the wrong type", strings.Replace(good, "wipe: false", "wipe: s3cr3t", 1)},
		{"key that is not base64", strings.Replace(good, "    key: ", "    key: s3cr3t*", 1)},
		{"endpoint without a scheme",
			strings.Replace(good, "endpoint: https://192.0.2.10:6443", "endpoint: 192.0.2.10:6443", 1)},
		{"no cluster", "version: v1alpha1\nmachine: {}\n"},
		{"a document alone", "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: cp1\n"},
	}

	var messages strings.Builder

	for _, tt := range cases {
		_, err := machineconfig.FromBytes("demo-cp1.yaml", []byte(tt.text))
		require.Error(t, err, tt.name)
		require.NotContains(t, err.Error(), "s3cr3t", tt.name)

		messages.WriteString(tt.name + "\n    " + err.Error() + "\n")

		if loadError, ok := errors.AsType[*machineconfig.LoadError](err); ok && loadError.Next != "" {
			messages.WriteString("    next: " + loadError.Next + "\n")
		}
	}

	golden.Assert(t, "testdata/load-errors.txt", messages.String())
}

// TestValidationErrors keeps the text of what machinery refuses, one problem a line.
func TestValidationErrors(t *testing.T) {
	t.Parallel()

	generated, err := clusterfiles.Make(demoOptions())
	require.NoError(t, err)

	good := string(generated.Configs[0].Bytes)
	metal := machineconfig.Mode{Metal: true}

	cases := []struct {
		name string
		text string
		mode machineconfig.Mode
		bad  bool
	}{
		{"unknown role", strings.Replace(good, "type: controlplane", "type: master", 1), metal, true},
		{"control plane secrets in a worker", strings.Replace(good, "type: controlplane", "type: worker", 1), metal, true},
		{"no install disk", strings.Replace(good, "disk: /dev/vda", `disk: ""`, 1), metal, true},
		{"no install disk on an installed machine", strings.Replace(good, "disk: /dev/vda", `disk: ""`, 1),
			machineconfig.Mode{Metal: true, Installed: true}, false},
		{"no install disk in a cloud", strings.Replace(good, "disk: /dev/vda", `disk: ""`, 1), machineconfig.Mode{}, false},
		{"disk type unknown", strings.Replace(good, "disk: /dev/vda", "diskSelector: {type: floppy}", 1), metal, true},
		{"disk selected by name", strings.Replace(good, "disk: /dev/vda", "diskSelector: {name: vda}", 1), metal, true},
		{"extra kernel arguments with UKI",
			strings.Replace(good, "disk: /dev/vda", "disk: /dev/vda\n    extraKernelArgs: [a=b]", 1), metal, true},
		{"hostname in two places", strings.Replace(good, "certSANs: []", "certSANs: []\n  network: {hostname: cp1}", 1),
			metal, true},
		{"hostname and auto", strings.Replace(good, "auto: 'off'", "auto: stable", 1), metal, true},
	}

	var messages strings.Builder

	for _, tt := range cases {
		config := mustConfig(t, []byte(tt.text))

		_, err := config.Validate(tt.mode)
		require.Equal(t, tt.bad, err != nil, tt.name)

		messages.WriteString(tt.name + "\n")

		if validationError, ok := errors.AsType[*machineconfig.ValidationError](err); ok {
			for _, problem := range validationError.Problems {
				messages.WriteString("    " + problem + "\n")
			}
		}
	}

	golden.Assert(t, "testdata/validation-errors.txt", messages.String())
}
