package talos_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"
	"testing"

	cryptox509 "github.com/siderolabs/crypto/x509"
	machinery "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// How a TLS 1.3 client learns that its certificate was refused is a race: it has begun to write by then.
const (
	brokenPipe = "broken pipe"
	reset      = "connection reset by peer"
)

// brokenOff is how the refusal reads to a client that was too early to read it, or too late.
var brokenOff = []string{brokenPipe, reset}

// tries bounds the repetitions in which both ends of a race must be seen; each has at least one chance in five.
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

// Every way in which the certificates of a client and of a node do not fit has one class, however it is told, and never
// reaches the node's API.
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

		return &tls.Config{RootCAs: trusted.pool(), Certificates: []tls.Certificate{signer.certificate(t, change...)},
			MinVersion: tls.VersionTLS13}
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
		text    string
		// orElse is what is read instead where it is a race.
		orElse []string
		class  talos.Class
	}{
		{"no certificate", node.Endpoint(), anonymous(), "tls: certificate required", brokenOff, talos.Retry},
		{"certificate of another cluster", node.Endpoint(), with(ours, theirs), "tls: unknown certificate authority",
			brokenOff, talos.Retry},
		{"expired certificate", node.Endpoint(), with(ours, ours, expired), "tls: expired certificate", brokenOff,
			talos.Retry},
		{"certificate for both sides", node.Endpoint(), with(ours, ours, bothUsages), "tls: bad certificate", brokenOff,
			talos.Retry},
		{
			"talosconfig on a node in maintenance", spare.Endpoint(), with(ours, ours),
			"authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority",
			nil, talos.Retry,
		},
		{
			"another cluster's talosconfig", node.Endpoint(), with(theirs, theirs),
			`(possibly because of "x509: Ed25519 verification failure" while trying to verify candidate authority certificate "talos")`, nil, talos.Final,
		},
		{
			"an address that the certificate does not name", netip.AddrPortFrom(elsewhere, emulator.APIPort).String(),
			with(ours, ours),
			"x509: certificate is valid for", nil, talos.Final,
		},
		{"another fingerprint", spare.Endpoint(), pinned, "leaf peer certificate doesn't match the provided fingerprints",
			nil, talos.Final},
		{"a closed port", netip.AddrPortFrom(elsewhere, 6443).String(), anonymous(), "connect: connection refused", nil,
			talos.Retry},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := len(node.Calls()) + len(spare.Calls())

			var told, broken bool // what was seen so far

			for i := 0; i < tries && (!told || !broken && test.orElse != nil); i++ {
				// A connection that is reset before the alert can be read is the rarer: every second time the node is made to do
				// that.
				node.Set(func(f *emulator.Faults) { f.ResetRefused = i%2 == 1 })

				err := raw(t, test.address, test.config)
				require.Equal(t, codes.Unavailable, machinery.StatusCode(err))

				switch {
				case contains(err, test.text):
					told = true
				case contains(err, test.orElse...):
					broken = true
				default:
					require.Fail(t, "another text", "%v", err)
				}

				for _, op := range []talos.Operation{talos.OpDial, talos.OpRead, talos.OpEtcd} {
					require.Equal(t, test.class, talos.Classify(op, err), "%v", err)
				}
			}

			require.True(t, told, "never seen: %s", test.text)
			require.Equal(t, test.orElse != nil, broken, "never seen: %s", test.orElse)
			require.Len(t, append(node.Calls(), spare.Calls()...), before, "no call gets through")

			node.Set(func(f *emulator.Faults) { f.ResetRefused = false })
		})
	}
}

// contains reports whether an error has one of the texts.
func contains(err error, texts ...string) bool {
	said := strings.ReplaceAll(err.Error(), `\`, "")

	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(said, text) })
}

// A Conn has one error for every text of the race, and it is worth another try: the node's API may be restarting.
func TestARefusedTalosconfigHasOneErrorHoweverItIsTold(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{})
	ours := authorityOf(t, l.Generated.Options.Secrets.Certs.OS)
	stranger := &talos.Dialer{Credentials: ours.credentialsSignedBy(t, newAuthority(t)), Timeout: timeout}

	for i := range 20 {
		node.Set(func(f *emulator.Faults) { f.ResetRefused = i%2 == 0 })

		_, err := stranger.Secure(t.Context(), node.Endpoint())
		require.Equal(t, talos.Retry, talos.Classify(talos.OpBootstrap, err), "%v", err)
		require.Contains(t, talos.Explain(err), "doesn't accept this client certificate")
	}

	require.Empty(t, node.Calls())
}
