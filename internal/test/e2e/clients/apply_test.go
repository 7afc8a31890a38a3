package clients_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// fingerprint is what a node's console tells its operator to expect: the hash of the public key in its certificate.
func fingerprint(t *testing.T, node *emulator.Node) string {
	t.Helper()

	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}

	conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(address(node), "50000"))
	require.NoError(t, err)

	defer conn.Close()

	sum := sha256.Sum256(conn.(*tls.Conn).ConnectionState().PeerCertificates[0].RawSubjectPublicKeyInfo) //nolint:forcetypeassert // a TLS dialer's

	return base64.StdEncoding.EncodeToString(sum[:])
}

// has reports whether a node's active config has a text in it.
func has(node *emulator.Node, text string) bool { return bytes.Contains(node.Config(), []byte(text)) }

// applyInsecurely is a command that sends a file to a node in maintenance mode.
func (c *cluster) applyInsecurely(name, file, mode string) command {
	made := c.insecurely(name, "apply-config")
	made.file, made.mode = file, mode

	return made
}

// edited is a machine's config with a text replaced.
func (c *cluster) edited(t *testing.T, name, old, replacement string) string {
	t.Helper()

	data, err := c.Config(name)
	require.NoError(t, err)
	require.True(t, bytes.Contains(data, []byte(old)), old)

	path := filepath.Join(t.TempDir(), "edited.yaml")
	require.NoError(t, os.WriteFile(path, bytes.Replace(data, []byte(old), []byte(replacement), 1), 0o600))

	return path
}

// Every mode but staged makes a node in maintenance mode take its config at once, whatever the mode promises.
func TestApplyConfigInMaintenanceMode(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		for _, mode := range []string{"", "auto", "no-reboot", "reboot", "try"} {
			t.Run("mode "+mode, func(t *testing.T) {
				t.Parallel()

				if mode == "reboot" && !knowsRebootMode(t, ctl) {
					t.Skip("SKIP: this talosctl has no mode reboot")
				}

				c := newCluster(t, 1, 0, nil)

				r := works(t, ctl, c.applyInsecurely("cp1", c.ConfigFile("cp1"), mode))
				require.Contains(t, r.stderr, "Applied configuration without a reboot")

				if mode == "try" {
					require.Contains(t, r.stderr, "automatically reverted back in 1m0s")
				} else {
					c.await(t, "cp1", configured)
				}

				require.Equal(t, 1, taken(c.Node("cp1"), "ApplyConfiguration"))
			})
		}

		t.Run("mode staged", func(t *testing.T) {
			t.Parallel()

			c := newCluster(t, 1, 0, nil)

			r := works(t, ctl, c.applyInsecurely("cp1", c.ConfigFile("cp1"), "staged"))
			require.Contains(t, r.stderr, "Staged configuration to be applied after the next reboot")
			require.Equal(t, "maintenance", c.Node("cp1").Stage())
			require.False(t, c.Node("cp1").Installed())
		})
	})
}

// knowsRebootMode reports whether a talosctl can ask for a reboot with an apply; since v1.14 none can.
func knowsRebootMode(t *testing.T, ctl talosctl) bool {
	t.Helper()

	if _, found := ctl.(program); !found {
		return true
	}

	r := works(t, ctl, command{words: []string{"apply-config", "--help"}})

	return strings.Contains(r.stdout, "no-reboot, reboot")
}

func TestApplyConfigThatChangesNothing(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		// A node takes one apply at a time, so that clients can't share it.
		c := newCluster(t, 1, 1, nil)
		node, own := c.Node("cp1"), c.ConfigFile("cp1")

		dryRun := c.applyInsecurely("cp1", own, "auto")
		dryRun.dryRun = true
		require.Contains(t, works(t, ctl, dryRun).stderr, "Dry run summary:")

		foreign := c.applyInsecurely("cp1", own, "auto")
		foreign.fingerprints = []string{fingerprint(t, c.Node("worker1"))}
		fails(t, ctl, foreign, "leaf peer certificate doesn't match the provided fingerprints")

		garbled := c.applyInsecurely("cp1", own, "auto")
		garbled.fingerprints = []string{"nonsense!"}
		fails(t, ctl, garbled, "error parsing certificate fingerprint")

		fails(t, ctl, c.applyInsecurely("cp1", c.edited(t, "cp1", "machine:\n", "machine:\n    gadget: 1\n"), "auto"),
			"unknown keys found during decoding")
		fails(t, ctl, c.applyInsecurely("cp1", c.edited(t, "cp1", "type: controlplane", "type: worker"), "auto"),
			"etcd config is only allowed on control plane machines")
		fails(t, ctl, c.applyInsecurely("cp1", filepath.Join(c.Dir, "nowhere.yaml"), "auto"), "no such file or directory")

		secure := c.on("cp1", "apply-config")
		secure.file = own
		fails(t, ctl, secure, "certificate signed by unknown authority")

		require.Equal(t, "maintenance", node.Stage())
		require.Zero(t, taken(node, "ApplyConfiguration"))
	})
}

func TestApplyConfigToTheNodeWithTheFingerprint(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := newCluster(t, 1, 1, nil)

		apply := c.applyInsecurely("cp1", c.ConfigFile("cp1"), "auto")
		apply.fingerprints = []string{fingerprint(t, c.Node("worker1")), fingerprint(t, c.Node("cp1"))}

		works(t, ctl, apply)
		c.await(t, "cp1", configured)

		fails(t, ctl, c.applyInsecurely("cp1", c.ConfigFile("cp1"), "auto"), "Unavailable")
	})
}

func TestApplyConfigToAConfiguredNode(t *testing.T) {
	t.Parallel()

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := newConfigured(t, 1, 0)
		node := c.Node("cp1")

		const before, after = "debug: false", "debug: true"

		live := c.edited(t, "cp1", before, after)
		afterReboot := c.edited(t, "cp1", "machine:\n", "machine:\n    env:\n        GADGET: \"1\"\n")

		apply := func(file, mode string) command {
			made := c.on("cp1", "apply-config")
			made.file, made.mode = file, mode

			return made
		}

		dryRun := apply(live, "auto")
		dryRun.dryRun = true
		require.Regexp(t, `(?s)Dry run summary:\n.*without a reboot.*\+ *`+after, works(t, ctl, dryRun).stderr)
		require.True(t, has(node, before))

		fails(t, ctl, apply(afterReboot, "no-reboot"), "can't be applied in immediate mode")
		require.False(t, has(node, "GADGET"))

		require.Contains(t, works(t, ctl, apply(live, "try")).stderr, "automatically reverted back in 1m0s")
		c.await(t, "cp1", func(n *emulator.Node) bool { return has(n, before) })

		require.Contains(t, works(t, ctl, apply(live, "no-reboot")).stderr, "Applied configuration without a reboot")
		require.True(t, has(node, after))

		require.Contains(t, works(t, ctl, apply(c.ConfigFile("cp1"), "auto")).stderr,
			"Applied configuration without a reboot")
		require.True(t, has(node, before))

		boots := node.Boots()

		require.Contains(t, works(t, ctl, apply(afterReboot, "staged")).stderr,
			"Staged configuration to be applied after the next reboot")
		require.Equal(t, boots, node.Boots())

		require.Contains(t, works(t, ctl, apply(afterReboot, "auto")).stderr, "Applied configuration with a reboot")
		c.await(t, "cp1", func(n *emulator.Node) bool { return n.Boots() == boots+1 && configured(n) })
		require.True(t, has(node, "GADGET"))
	})
}
