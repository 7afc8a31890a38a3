package talos_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	cryptox509 "github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

func TestProbeTellsStatesByTheHandshake(t *testing.T) {
	t.Parallel()

	ours, theirs, boot := newAuthority(t), newAuthority(t), newAuthority(t)
	credentials := ours.credentials(t)

	tls12 := func(config *tls.Config) *tls.Config {
		config.MaxVersion = tls.VersionTLS12

		return config
	}

	noH2 := h2(boot.certificate(t, maintenance), tls.NoClientCert, nil)
	noH2.NextProtos = nil

	otherProtocol := h2(boot.certificate(t), tls.NoClientCert, nil)
	otherProtocol.NextProtos = []string{"http/1.1"}

	for _, test := range []struct {
		name        string
		serve       func(net.Conn)
		credentials *talos.Credentials
		state       talos.State
		err         error
		says        string
	}{
		{
			name: "maintenance", credentials: credentials, state: talos.Maintenance,
			serve: shakeHands(h2(boot.certificate(t, maintenance), tls.NoClientCert, nil)),
		},
		{
			name: "maintenance over TLS 1.2", credentials: credentials, state: talos.Maintenance,
			serve: shakeHands(tls12(h2(boot.certificate(t, maintenance), tls.NoClientCert, nil))),
		},
		{
			name: "maintenance without a talosconfig", state: talos.Maintenance,
			serve: shakeHands(h2(boot.certificate(t, maintenance), tls.NoClientCert, nil)),
		},
		{
			name: "ours", credentials: credentials, state: talos.Ours,
			serve: shakeHands(h2(ours.certificate(t), tls.RequireAndVerifyClientCert, ours)),
		},
		{
			name: "ours over TLS 1.2, which refuses us during the handshake", credentials: credentials, state: talos.Ours,
			serve: shakeHands(tls12(h2(ours.certificate(t), tls.RequireAndVerifyClientCert, ours))),
		},
		{
			name: "another cluster's, of the same CA name", credentials: credentials, state: talos.Foreign,
			err:   talos.ErrForeignCA,
			serve: shakeHands(h2(theirs.certificate(t), tls.RequireAndVerifyClientCert, theirs)), says: "another cluster's CA",
		},
		{
			name: "configured, without a talosconfig", state: talos.UnknownCA,
			serve: shakeHands(h2(ours.certificate(t), tls.RequireAndVerifyClientCert, ours)),
		},
		{
			name: "maintenance's name on a node that asks for a certificate", credentials: credentials, state: talos.Foreign,
			err:   talos.ErrForeignCA,
			serve: shakeHands(h2(boot.certificate(t, maintenance), tls.RequireAndVerifyClientCert, boot)),
		},
		{
			name: "plain HTTP", credentials: credentials, state: talos.NotTalos, err: talos.ErrNotTalos,
			serve: write("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"), says: "a plain HTTP server",
		},
		{
			name: "HTTPS", credentials: credentials, state: talos.NotTalos, err: talos.ErrNotTalos,
			serve: shakeHands(h2(boot.certificate(t), tls.NoClientCert, nil)), says: "HTTPS",
		},
		{
			name: "TLS without HTTP/2", credentials: credentials, state: talos.NotTalos, err: talos.ErrNotTalos,
			serve: shakeHands(noH2), says: "HTTP/2",
		},
		{
			name: "TLS for another protocol only", credentials: credentials, state: talos.NotTalos, err: talos.ErrNotTalos,
			serve: shakeHands(otherProtocol), says: "broke off the handshake",
		},
		{
			name: "SSH", credentials: credentials, state: talos.NotTalos, err: talos.ErrNotTalos,
			serve: write("SSH-2.0-OpenSSH_9.9\r\n"), says: "an SSH server",
		},
		{
			name: "garbage", credentials: credentials, state: talos.NotTalos, err: talos.ErrNotTalos,
			serve: write("\x00\x01\x02\x03\x04\x05\x06"), says: "doesn't speak TLS",
		},
		{
			name: "a listener that hangs up at once", credentials: credentials, state: talos.Unreachable,
			serve: func(net.Conn) {}, says: "closed without an answer",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			dialer := &talos.Dialer{Credentials: test.credentials, Timeout: timeout}

			probed := dialer.Probe(t.Context(), listen(t, test.serve))

			require.Equal(t, test.state, probed.State, "%v", probed.Err)
			require.Contains(t, talos.Explain(probed.Err), test.says)

			if test.err != nil {
				require.ErrorIs(t, probed.Err, test.err)

				_, known := talos.Diagnose(probed.Err)
				require.True(t, known)
			}

			require.Equal(t, test.state == talos.Unreachable, probed.Silence != talos.Answered)
			require.Equal(t, probed.Configured(), test.state == talos.Ours || test.state == talos.Foreign ||
				test.state == talos.UnknownCA)
		})
	}
}

func TestProbeReportsTheFingerprintThatTheConsoleShows(t *testing.T) {
	t.Parallel()

	certificate := newAuthority(t).certificate(t, maintenance)
	want, err := cryptox509.SPKIFingerprintFromDER(certificate.Certificate[0])
	require.NoError(t, err)

	dialer := &talos.Dialer{Timeout: timeout}
	address := listen(t, shakeHands(h2(certificate, tls.NoClientCert, nil)))
	probed := dialer.Probe(t.Context(), address)

	require.Equal(t, want.String(), probed.Fingerprint)
	require.Equal(t, certificate.Certificate[0], probed.Leaf.Raw)
	require.Equal(t, address, probed.Address)
	require.Positive(t, probed.Took)
}

func TestProbeTakesAWrongClockForNoForeignCluster(t *testing.T) {
	t.Parallel()

	ours := newAuthority(t)
	dialer := &talos.Dialer{Credentials: ours.credentials(t), Timeout: timeout}

	for _, test := range []struct {
		name string
		cert tls.Certificate
		skew time.Duration
	}{
		{"valid", ours.certificate(t), 0},
		{"expired two hours ago", ours.certificate(t, expired), -2 * time.Hour},
		{"valid in two hours", ours.certificate(t, notYetValid), 2 * time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			probed := dialer.Probe(t.Context(), listen(t, shakeHands(h2(test.cert, tls.RequireAnyClientCert, nil))))

			require.Equal(t, talos.Ours, probed.State)
			require.InDelta(t, test.skew.Hours(), probed.ClockSkew.Hours(), 0.1)
		})
	}
}

func TestProbeNotesACertificateForOtherAddresses(t *testing.T) {
	t.Parallel()

	ours := newAuthority(t)
	dialer := &talos.Dialer{Credentials: ours.credentials(t), Timeout: timeout}

	probed := dialer.Probe(t.Context(),
		listen(t, shakeHands(h2(ours.certificate(t, elsewhere), tls.RequireAnyClientCert, nil))))

	require.Equal(t, talos.Ours, probed.State)
	require.True(t, probed.NameMismatch)
}

func TestProbeTellsHowANodeIsSilent(t *testing.T) {
	t.Parallel()

	fail := func(err error) func(context.Context, string) (net.Conn, error) {
		return func(context.Context, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
		}
	}

	for _, test := range []struct {
		name    string
		address string
		dial    func(context.Context, string) (net.Conn, error)
		timeout time.Duration
		silence talos.Silence
		says    string
	}{
		{name: "closed port", address: closedPort(t), silence: talos.Refused, says: "connection refused"},
		{name: "mute", address: listen(t, write("")), timeout: 50 * time.Millisecond, silence: talos.NoAnswer,
			says: "no answer in time"},
		{name: "no SYN is answered", address: "192.0.2.1", timeout: 50 * time.Millisecond, silence: talos.NoAnswer,
			says: "no answer in time",
			dial: func(ctx context.Context, _ string) (net.Conn, error) {
				<-ctx.Done()

				return nil, ctx.Err()
			}},
		{name: "a dialer that ignores its context", address: "192.0.2.1", timeout: 50 * time.Millisecond,
			silence: talos.NoAnswer, says: "no answer in time",
			dial: func(context.Context, string) (net.Conn, error) { select {} }},
		{name: "no route to host", address: "192.0.2.1", dial: fail(syscall.EHOSTUNREACH), silence: talos.NoAnswer,
			says: "no route to host"},
		{name: "network unreachable", address: "192.0.2.1", dial: fail(syscall.ENETUNREACH), silence: talos.Broken,
			says: "network unreachable"},
		{name: "reset", address: "192.0.2.1", dial: fail(syscall.ECONNRESET), silence: talos.NoAnswer, says: "reset"},
		{name: "unknown name", address: "cp1.example", silence: talos.Broken, says: "the name cp1.example does not resolve",
			dial: func(context.Context, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "cp1.example", IsNotFound: true}}
			}},
		{name: "empty address", silence: talos.Broken, says: "empty"},
		{name: "impossible port", address: "192.0.2.1:99999", silence: talos.Broken, says: "port from 1 to 65535"},
		{name: "not an address", address: "192.0.2.1:50000:1", silence: talos.Broken, says: "192.0.2.1:50000:1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			if test.timeout == 0 {
				test.timeout = timeout
			}

			dialer := &talos.Dialer{Timeout: test.timeout, Dial: test.dial}
			probed := dialer.Probe(t.Context(), test.address)

			require.Equal(t, talos.Unreachable, probed.State)
			require.Equal(t, test.silence, probed.Silence, "%v", probed.Err)
			require.Contains(t, talos.Explain(probed.Err), test.says)
			require.Nil(t, probed.Leaf)
		})
	}
}

func TestProbeDialsThePortOfTheAddressOrTheDefault(t *testing.T) {
	t.Parallel()

	for address, want := range map[string]string{
		"192.0.2.1":           "192.0.2.1:50000",
		"192.0.2.1:50007":     "192.0.2.1:50007",
		"cp1":                 "cp1:50000",
		"cp1:50007":           "cp1:50007",
		"2001:db8::1":         "[2001:db8::1]:50000",
		"[2001:db8::1]":       "[2001:db8::1]:50000",
		"[2001:db8::1]:50007": "[2001:db8::1]:50007",
		"fe80::1%eth0":        "[fe80::1%eth0]:50000",
	} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()

			var dialled string

			dialer := &talos.Dialer{Timeout: timeout, Dial: func(_ context.Context, to string) (net.Conn, error) {
				dialled = to

				return nil, errors.New("not now")
			}}

			dialer.Probe(t.Context(), address)
			require.Equal(t, want, dialled)

			_, err := dialer.Maintenance(t.Context(), address)
			require.ErrorContains(t, err, "not now")
			require.Equal(t, want, dialled)
		})
	}
}

func TestProbeStopsWithItsContext(t *testing.T) {
	t.Parallel()

	ctx, stop := context.WithCancel(t.Context())

	dialer := &talos.Dialer{Timeout: time.Hour}
	address := listen(t, func(conn net.Conn) {
		stop()
		io.Copy(io.Discard, conn) //nolint:errcheck // until the client hangs up
	})

	require.Equal(t, talos.Unreachable, dialer.Probe(ctx, address).State)
}

func TestEveryDiagnosisIsInTheCatalogue(t *testing.T) {
	t.Parallel()

	for _, err := range []error{
		talos.ErrNotTalos, talos.ErrForeignCA, talos.ErrNoCredentials, talos.ErrCredentialsExpired, talos.ErrFingerprint,
		talos.ErrCertificateName, talos.ErrProxy, talos.ErrNotAllowed, &talos.ClockError{Skew: time.Hour},
	} {
		id, known := talos.Diagnose(err)
		require.True(t, known, "%v", err)

		_, found := diagnosis.Lookup(id)
		require.True(t, found, "%v", id)
	}

	_, known := talos.Diagnose(errors.New("something else"))
	require.False(t, known)
}
