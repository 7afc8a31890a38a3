package talosapi_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"strings"
	"testing"

	cryptox509 "github.com/siderolabs/crypto/x509"
	machinery "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/emulator"
	"github.com/talos-mage/talos-mage/internal/talosapi"
)

// How a TLS 1.3 client learns that its certificate was refused is a race: it has begun to write by then.
const (
	brokenPipe = "broken pipe"
	reset      = "connection reset by peer"
)

// tries bounds the repetitions in which each text of a race must be seen; each has at least one chance in five.
const tries = 500

// raw makes one call with machinery's own client, as talosctl does.
func raw(t *testing.T, address string, config *tls.Config) error {
	t.Helper()

	conn, err := machinery.New(t.Context(), machinery.WithTLSConfig(config), machinery.WithEndpoints(address))
	require.NoError(t, err)

	defer conn.Close() //nolint:errcheck // it never connected

	_, err = conn.Version(t.Context())
	require.Error(t, err)

	return err
}

// anonymous is a client without credentials, for maintenance mode.
func anonymous() *tls.Config { return &tls.Config{InsecureSkipVerify: true} } //nolint:gosec // as in maintenance

// Every way in which the certificates of a client and of a node do not fit has one class, however it is told, and never reaches the node's API.
func TestEveryMismatchOfCertificatesHasOneClassHoweverItIsTold(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{})
	spare := l.inMaintenance(t, "worker1", emulator.NodeOptions{})

	elsewhere := l.Lab.Address(200)
	require.NoError(t, l.Lab.Balance(elsewhere, []uint16{emulator.APIPort}, node))

	ours, theirs := authorityOf(t, l.Generated.Options.Secrets.Certs.OS), newAuthority(t)

	// with is a client that trusts a CA and has a certificate of another, or the same.
	with := func(trusted, signer *authority, change ...func(*x509.Certificate)) *tls.Config {
		change = append([]func(*x509.Certificate){client(string(role.Admin))}, change...)

		return &tls.Config{RootCAs: trusted.pool(), Certificates: []tls.Certificate{signer.certificate(t, change...)}, MinVersion: tls.VersionTLS13}
	}

	pinned := anonymous()
	pinned.VerifyConnection = cryptox509.MatchSPKIFingerprints(make(cryptox509.Fingerprint, 32))

	bothUsages := func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	}

	for _, test := range []struct {
		name    string
		address string
		config  *tls.Config
		// texts must all be seen; more than one are a race.
		texts []string
		class talosapi.Class
	}{
		{"no certificate", node.Endpoint(), anonymous(), []string{"tls: certificate required", brokenPipe, reset}, talosapi.Retry},
		{
			"certificate of another cluster", node.Endpoint(), with(ours, theirs),
			[]string{"tls: unknown certificate authority", brokenPipe, reset}, talosapi.Retry,
		},
		{"expired certificate", node.Endpoint(), with(ours, ours, expired), []string{"tls: expired certificate", brokenPipe, reset}, talosapi.Retry},
		{"certificate for both sides", node.Endpoint(), with(ours, ours, bothUsages), []string{"tls: bad certificate", brokenPipe, reset}, talosapi.Retry},
		{
			"talosconfig on a node in maintenance", spare.Endpoint(), with(ours, ours),
			[]string{"authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"}, talosapi.Retry,
		},
		{
			"another cluster's talosconfig", node.Endpoint(), with(theirs, theirs),
			[]string{`(possibly because of "x509: Ed25519 verification failure" while trying to verify candidate authority certificate "talos")`}, talosapi.Final,
		},
		{
			"an address that the certificate does not name", netip.AddrPortFrom(elsewhere, emulator.APIPort).String(), with(ours, ours),
			[]string{"x509: certificate is valid for"}, talosapi.Final,
		},
		{"another fingerprint", spare.Endpoint(), pinned, []string{"leaf peer certificate doesn't match the provided fingerprints"}, talosapi.Final},
		{"a closed port", netip.AddrPortFrom(elsewhere, 6443).String(), anonymous(), []string{"connect: connection refused"}, talosapi.Retry},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := len(node.Calls()) + len(spare.Calls())
			missing := map[string]bool{}

			for _, text := range test.texts {
				missing[text] = true
			}

			for range tries {
				if len(missing) == 0 {
					break
				}

				// A connection that is reset before the alert can be read is the rarest: the node is made to do that once it is the only one missing.
				node.Set(func(f *emulator.Faults) { f.ResetRefused = len(missing) == 1 && missing[reset] })

				err := raw(t, test.address, test.config)
				require.Equal(t, codes.Unavailable, machinery.StatusCode(err))
				require.True(t, among(err, test.texts, missing), "%v", err)

				for _, op := range []talosapi.Operation{talosapi.OpDial, talosapi.OpRead, talosapi.OpEtcd} {
					require.Equal(t, test.class, talosapi.Classify(op, err), "%v", err)
				}
			}

			require.Empty(t, missing, "never seen")
			require.Len(t, append(node.Calls(), spare.Calls()...), before, "no call gets through")

			node.Set(func(f *emulator.Faults) { f.ResetRefused = false })
		})
	}
}

// among finds which of the texts an error has, and takes it off the missing ones.
func among(err error, texts []string, missing map[string]bool) bool {
	for _, text := range texts {
		if strings.Contains(strings.ReplaceAll(err.Error(), `\`, ""), text) {
			delete(missing, text)

			return true
		}
	}

	return false
}

// A Conn has one error for every text of the race, and it is worth another try: the node's API may be restarting.
func TestARefusedTalosconfigHasOneErrorHoweverItIsTold(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{})
	ours := authorityOf(t, l.Generated.Options.Secrets.Certs.OS)
	stranger := &talosapi.Dialer{Credentials: ours.credentialsSignedBy(t, newAuthority(t)), Timeout: timeout}

	for i := range 20 {
		node.Set(func(f *emulator.Faults) { f.ResetRefused = i%2 == 0 })

		_, err := stranger.Secure(t.Context(), node.Endpoint())
		require.Equal(t, talosapi.Retry, talosapi.Classify(talosapi.OpBootstrap, err), "%v", err)
		require.Contains(t, talosapi.Explain(err), "doesn't accept this client certificate")
	}

	require.Empty(t, node.Calls())
}
