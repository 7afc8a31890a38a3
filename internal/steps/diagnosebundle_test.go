package steps_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// unpacked are the files of a bundle.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()

	data, err := os.ReadFile(path)
	require.NoError(t, err)

	zipped, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)

	files := map[string]string{}

	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}

		require.NoError(t, err)
		require.Equal(t, int64(0o600), header.Mode, header.Name)

		text, err := io.ReadAll(archive)
		require.NoError(t, err)

		files[header.Name] = string(text)
	}
}

// What people plant: what is in the first line has a form that is known, the others are only known to be secrets since
// a file or the environment says so.
const (
	plantedKey     = "AGE-SECRET-KEY-1PLANTEDPLANTEDPLANTEDPLANTED"
	plantedToken   = "abcdef.planted0planted0"
	plantedPEM     = "-----BEGIN EC PRIVATE KEY----- UExBTlRFRFBMQU5URUQ= -----END EC PRIVATE KEY-----"
	plantedEnv     = "planted-in-the-environment"
	plantedConfig  = "planted-in-a-machine-config"
	plantedPatch   = "planted-in-a-patch"
	plantedDeclare = "planted-in-the-talconfig"
)

func TestABundleHoldsNoSecretWhereverOneStands(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.changeFile(t, "cp1", "machine:\n", "machine:\n  env:\n    EXAMPLE: "+plantedConfig+"\n")
	l.up(t)

	talconfig := filepath.Join(l.Dir, "talconfig.yaml")
	declared, err := os.ReadFile(talconfig)
	require.NoError(t, err)

	declared = append(declared, []byte("patches:\n  - \"@./patch.yaml\"\n  - |-\n    machine:\n      env:\n        OTHER: "+
		plantedDeclare+"\n")...)
	require.NoError(t, os.WriteFile(talconfig, declared, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(l.Dir, "patch.yaml"),
		[]byte("machine:\n  env:\n    THIRD: "+plantedPatch+"\n"), 0o600))

	config, err := l.Config("cp1")
	require.NoError(t, err)

	// All of them turn up in all that the node says.
	secrets := append(machineconfig.Secrets(config), plantedKey, plantedToken, plantedPEM, plantedEnv)
	l.Node("cp1").Set(func(f *emulator.Faults) {
		f.FailedVolumes = []emulator.FailedVolume{{ID: "u-data", Message: plantedToken}}

		for i, secret := range secrets {
			line := "something failed: " + strings.ReplaceAll(secret, "\n", " ") + " was not expected"
			f.Says = append(f.Says, emulator.Saying{Line: line}, emulator.Saying{Service: "kubelet", Line: line},
				emulator.Saying{Service: "etcd", History: true, Line: line})
			f.Diagnostics = append(f.Diagnostics, emulator.Diagnostic{ID: "planted-" + string(rune('a'+i%26)), Message: line,
				Details: []string{secret}})
		}
	})
	require.Eventually(t, func() bool {
		return strings.Contains(strings.Join(l.Node("cp1").Console(), "\n"), plantedEnv)
	}, labcluster.Deadline, labcluster.Deadline/1000)

	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	found, code := l.diagnose(t, "-bundle=true", "-file="+bundle, "SOPS_AGE_KEY="+plantedKey, "MY_TOKEN="+plantedEnv,
		"PROXMOX_VE_API_TOKEN=root@pam!lab=00000000-0000-0000-0000-000000000000")
	require.Equal(t, diagnosis.ExitVerify, code, "the node warns of itself")
	require.Equal(t, bundle, found.Bundle)

	info, err := os.Stat(bundle)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	files := unpacked(t, bundle)
	for _, name := range []string{
		"diagnosis.txt", "diagnosis.json", "computer.txt", "nodes/cp1/status.txt", "nodes/cp1/dmesg.txt",
		"nodes/cp1/events.txt", "nodes/cp1/services.txt", "nodes/cp1/facts.txt", "nodes/cp1/logs/kubelet.txt",
		"nodes/cp1/running.yaml", "nodes/cp1/declared.yaml",
	} {
		require.NotEmpty(t, files[name], "%s; what was read: %s", name, files["nodes/cp1/status.txt"])
	}

	// Each source is in it.
	for name, source := range map[string][]string{
		"nodes/cp1/status.txt": {`^cp1 \S+ configured, running, Talos v1\.13\.9`, `(?m)^diagnostic: planted-a: `,
			`(?m)^volume: u-data failed: `, `(?m)^time: node 20\S+Z, its time server time\.example 20\S+Z, this computer 20`,
			`(?m)^certificate: the node's is good from 20\S+Z to 20`, `(?m)^certificate: the talosconfig's is good until 20`,
			`(?m)^way: this computer asks 127\S+ from 127\S+ \(lo\), in the same network`},
		"nodes/cp1/services.txt": {`(?m)^kubelet Running healthy=true `, `(?m)^  20\S+Z Running: Started task kubelet`},
		"nodes/cp1/events.txt":   {`(?m)^ServiceStateEvent kubelet running$`},
		"nodes/cp1/facts.txt":    {`(?m)^disk vda 50 GB virtio`, `(?m)^volume vda\d on /dev/vda: \S+ EPHEMERAL `},
		"computer.txt":           {`(?m)^now 20\S+Z$`},
	} {
		for _, line := range source {
			require.Regexp(t, line, files[name], name)
		}
	}

	for _, name := range []string{"nodes/cp1/dmesg.txt", "nodes/cp1/services.txt", "nodes/cp1/logs/kubelet.txt"} {
		require.Contains(t, files[name], "something failed: ", "what was planted has to get there: %s", name)
	}

	for _, path := range []string{l.Talosconfig(), filepath.Join(l.folder, "kubeconfig")} {
		secrets = append(secrets, keysIn(t, path)...)
	}

	secrets = append(secrets, plantedConfig, plantedPatch, plantedDeclare, "00000000-0000-0000-0000-000000000000",
		"UExBTlRFRF", "PLANTEDPLANTED", "planted0")

	for name, text := range files {
		for _, secret := range secrets {
			require.NotContains(t, text, secret, name)
		}
	}

	// A file that exists stays as it is.
	before, err := os.ReadFile(bundle)
	require.NoError(t, err)

	step := &steps.Diagnose{}
	l.session(t, "-bundle=true", "-file="+bundle).fails(t, diagnosis.ExitBadInput, diagnosis.FileUnwritable, step)

	after, err := os.ReadFile(bundle)
	require.NoError(t, err)
	require.True(t, slices.Equal(before, after))
}

// keysIn are the private keys of a talosconfig or a kubeconfig.
func keysIn(t *testing.T, path string) []string {
	t.Helper()

	data, err := os.ReadFile(path)
	require.NoError(t, err)

	var keys []string
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name == "key" || name == "client-key-data" {
			keys = append(keys, value)
		}
	}

	require.NotEmpty(t, keys, path)

	return keys
}
