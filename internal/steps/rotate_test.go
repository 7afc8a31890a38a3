package steps_test

import (
	"crypto/x509"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"

	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/talos/talosconfig"
)

// filesOnly is a cluster whose machines are off.
func filesOnly(options *labcluster.Options) { options.Off = true }

// withSecrets writes the secrets file that the cluster's configs were made from.
func (l *lab) withSecrets(t *testing.T, bundle *secrets.Bundle) {
	t.Helper()

	text, err := clustersecrets.Encode(bundle)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(l.Dir, "talsecret.yaml"), text, 0o600))
}

// signClient gives a context of the talosconfig a client certificate that the lab's CA signed some time ago.
func (l *lab) signClient(t *testing.T, roles role.Set, ago, lifetime time.Duration) {
	t.Helper()

	bundle := *l.Generated.Options.Secrets
	bundle.Clock = secrets.NewFixedClock(time.Now().Add(-ago))

	signed, err := bundle.GenerateTalosAPIClientCertificateWithTTL(roles, lifetime)
	require.NoError(t, err)

	file, err := config.Open(l.Talosconfig())
	require.NoError(t, err)

	current := file.Contexts[file.Context]
	current.Crt, current.Key = base64.StdEncoding.EncodeToString(signed.Crt), base64.StdEncoding.EncodeToString(signed.Key)
	require.NoError(t, file.Save(l.Talosconfig()))
}

func (l *lab) clientCertificate(t *testing.T) *x509.Certificate {
	t.Helper()

	file, err := talosconfig.Parse([]byte(readFile(t, l.Talosconfig())))
	require.NoError(t, err)

	return talosconfig.ClientCertificate(file.Contexts[file.Context])
}

const year = 365 * 24 * time.Hour

func TestAnEndedTalosconfigIsRenewedFromTheSecretsWithoutANode(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		ago, lifetime time.Duration
		roles         role.Set
		renewed       bool
	}{
		"expired":            {48 * time.Hour, time.Hour, role.MakeSet(role.Admin), true},
		"ends within a week": {year - 7*24*time.Hour, year, role.MakeSet(role.Admin), true},
		"good for months":    {0, year, role.MakeSet(role.Admin), false},
		"a reader's":         {48 * time.Hour, time.Hour, role.MakeSet(role.Reader), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0, filesOnly)
			l.withSecrets(t, l.Generated.Options.Secrets)
			l.signClient(t, test.roles, test.ago, test.lifetime)

			// Another cluster's context, and what people write beside it.
			path := l.Talosconfig()
			other := "# mine\n    elsewhere:\n        endpoints: [192.0.2.99] # far away\n        ca: aGVsbG8=\n" +
				"        crt: aGVsbG8=\n        key: aGVsbG8=\n"
			before := readFile(t, path) + other
			require.NoError(t, os.WriteFile(path, []byte(before), 0o644)) //nolint:gosec // as somebody may have left it
			old := l.clientCertificate(t)

			if !test.renewed {
				s := l.session(t).succeeds(t, steps.Rotate{})
				require.Equal(t, report.Skipped, s.status("config:rotate", ""))
				require.Equal(t, before, readFile(t, path))

				return
			}

			l.session(t, "DRY_RUN=true").fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.Rotate{})
			require.Equal(t, before, readFile(t, path))

			l.session(t).succeeds(t, steps.Rotate{})

			after := readFile(t, path)
			made := l.clientCertificate(t)
			require.Greater(t, time.Until(made.NotAfter), year-time.Hour)
			require.Equal(t, old.Subject.Organization, made.Subject.Organization)
			require.True(t, strings.HasSuffix(after, other))
			require.Equal(t, withoutClient(before), withoutClient(after))

			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

			again := l.session(t).succeeds(t, steps.Rotate{})
			require.Equal(t, report.Skipped, again.status("config:rotate", ""))
			require.Equal(t, after, readFile(t, path))
		})
	}
}

// withoutClient is a talosconfig's text without what a renewal changes.
func withoutClient(text string) string {
	var kept []string

	for line := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(line); !strings.HasPrefix(trimmed, "crt:") && !strings.HasPrefix(trimmed, "key:") {
			kept = append(kept, line)
		}
	}

	return strings.Join(kept, "")
}

func TestATalosconfigIsRenewedFromItsOwnClustersSecretsOnly(t *testing.T) {
	t.Parallel()

	others, err := clustersecrets.New("v1.13.9")
	require.NoError(t, err)

	for name, test := range map[string]struct {
		make func(t *testing.T, l *lab)
		says string
	}{
		"no secrets": {func(*testing.T, *lab) {}, "the cluster's secrets are needed to sign it: there is no"},
		"another cluster's secrets": {func(t *testing.T, l *lab) { t.Helper(); l.withSecrets(t, others) },
			"no context of talos/clusterconfig/talosconfig has the machine CA of the secrets file"},
		"no talosconfig": {func(t *testing.T, l *lab) {
			t.Helper()
			l.withSecrets(t, l.Generated.Options.Secrets)
			require.NoError(t, os.Remove(l.Talosconfig()))
		}, "there is no talos/clusterconfig/talosconfig to renew"},
		"a CA that has ended": {func(t *testing.T, l *lab) {
			t.Helper()

			ended, err := clusterfiles.NewSecrets()
			require.NoError(t, err)

			bundle := *ended
			certs := *ended.Certs
			past, err := secrets.NewTalosCA(time.Now().Add(-20 * year))
			require.NoError(t, err)

			certs.OS.Crt, certs.OS.Key = past.CrtPEM, past.KeyPEM
			bundle.Certs = &certs
			l.withSecrets(t, &bundle)
		}, "the machine CA in the secrets file expired on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0, filesOnly)
			l.signClient(t, role.MakeSet(role.Admin), 48*time.Hour, time.Hour)
			test.make(t, l)

			problem := l.session(t).fails(t, diagnosis.ExitBadInput, diagnosis.RotateRefused, steps.Rotate{})
			require.Contains(t, problem.Cause, test.says)
			require.NotEmpty(t, problem.Next)
		})
	}
}
