package talos_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/talos"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

// FuzzProbe answers probes on a socket with any bytes.
func FuzzProbe(f *testing.F) {
	for _, seed := range []string{
		"", "SSH-2.0-OpenSSH_9.9\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "\x15\x03\x01\x00\x02\x02\x28",
		"\x16\x03\x03\x00\x00",
		"\x16\x03\x03\x40\x00\x02\xff\xff\xff", "\x17\x03\x03\xff\xff",
	} {
		f.Add([]byte(seed))
	}

	f.Add(recordedHandshake(f))

	for _, data := range fuzztest.Seeds(f, ".yaml") {
		f.Add(data)
	}

	answer, address := answering(f, func(conn net.Conn) (net.Conn, error) { return conn, nil })
	dialer := &talos.Dialer{Credentials: newAuthority(f).credentials(f), Timeout: timeout}

	f.Fuzz(func(t *testing.T, data []byte) {
		answer.Store(&data)

		fuzztest.Bounded(t, func() {
			probed := dialer.Probe(t.Context(), address)

			require.Contains(t, []talos.State{talos.Unreachable, talos.NotTalos}, probed.State)
			require.Error(t, probed.Err)
			require.NotEmpty(t, talos.Explain(probed.Err))
		})
	})
}

// FuzzSession answers in a TLS session that was agreed upon, in maintenance and with our CA, with any bytes.
func FuzzSession(f *testing.F) {
	const settings, acknowledged = "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x00\x04\x01\x00\x00\x00\x00"

	for _, seed := range []string{
		"", "HTTP/1.1 400 Bad Request\r\n\r\n", settings, settings + acknowledged,
		// go away
		settings + "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0b",
		// headers that end a stream
		settings + acknowledged + "\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88",
		// a message of 4 GB
		settings + acknowledged + "\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88\x00\x00\x05\x00\x01\x00\x00\x00\x01\x00\xff\xff\xff\xff",
		// endless headers
		settings + acknowledged + "\x00\x40\x00\x01\x04\x00\x00\x00\x01" + strings.Repeat("\x00\x01a\x7f\x81\x7fa", 2000),
		// a window too large, half a ping
		"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\xff\xff\xff\xff" + acknowledged +
			"\x00\x00\x08\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}

	ours := newAuthority(f)
	dialer := &talos.Dialer{Credentials: ours.credentials(f), Timeout: timeout}

	answers, addresses := map[bool]*atomic.Pointer[[]byte]{}, map[bool]string{}

	for insecure, config := range map[bool]*tls.Config{
		true:  h2(ours.certificate(f, maintenance), tls.NoClientCert, nil),
		false: h2(ours.certificate(f), tls.RequireAndVerifyClientCert, ours),
	} {
		answers[insecure], addresses[insecure] = answering(f, func(conn net.Conn) (net.Conn, error) {
			session := tls.Server(conn, config)

			return session, session.HandshakeContext(context.Background())
		})
	}

	f.Fuzz(func(t *testing.T, data []byte, insecure bool) {
		answers[insecure].Store(&data)

		dial := dialer.Secure
		if insecure {
			dial = dialer.Maintenance
		}

		fuzztest.Bounded(t, func() {
			conn, err := dial(t.Context(), addresses[insecure])
			if err == nil {
				_, err = conn.Links(t.Context())
				conn.Close()
			}

			require.Error(t, err)
			require.NotEmpty(t, talos.Explain(err))
		})
	})
}

// FuzzTalosconfig reads any text as a talosconfig.
func FuzzTalosconfig(f *testing.F) {
	ours := newAuthority(f)
	f.Add(ours.talosconfig(f, ours))
	f.Add(ours.talosconfig(f, newAuthority(f)))
	f.Add([]byte("context: a\ncontexts: {a: null}\n"))

	for _, data := range fuzztest.Seeds(f, ".yaml", ".yml") {
		f.Add(data)
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		fuzztest.Bounded(t, func() {
			credentials, err := talos.ParseCredentials(data)
			if err != nil {
				require.NotContains(t, err.Error(), "PRIVATE KEY")

				return
			}

			require.NotEmpty(t, credentials.ClusterHash())
			require.False(t, credentials.NotAfter().IsZero())
		})
	})
}

// FuzzNodeTexts makes any text of a node fit for people.
func FuzzNodeTexts(f *testing.F) {
	for _, data := range fuzztest.Seeds(f, ".yaml", ".golden") {
		f.Add(string(data))
		f.Add("error decoding document /v1alpha1/ (line 1): unknown keys found during decoding:\n" + string(data))
	}

	f.Fuzz(func(t *testing.T, text string) {
		const key = "\n-----BEGIN EC PRIVATE " +
			"KEY-----\nMHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY/PuoAoGCCqGSM49\n-----END EC PRIVATE KEY-----\n"

		fuzztest.Bounded(t, func() {
			shown := talos.Scrub(text+key) + strings.Join(talos.Problems(text+key), "\n")
			require.NotContains(t, shown, "MHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY")
			require.LessOrEqual(t, len(talos.Scrub(text)), 4*2001+len("…"))
		})
	})
}

// FuzzUnpackKubeconfig unpacks anything that a node may send for its kubeconfig.
func FuzzUnpackKubeconfig(f *testing.F) {
	f.Add(archive(f, "kubeconfig", "apiVersion: v1\nkind: Config\n", true))
	f.Add(archive(f, "other", "apiVersion: v1\nkind: Config\n", false))

	f.Fuzz(func(t *testing.T, data []byte) {
		fuzztest.Bounded(t, func() {
			kubeconfig, err := talos.UnpackKubeconfig(data)
			require.True(t, err != nil || kubeconfig != nil)
		})
	})
}

// answering listens on a socket. Whoever connects is sent the answer, and then the end of it, through what wrap makes
// of the connection.
func answering(f *testing.F, wrap func(net.Conn) (net.Conn, error)) (*atomic.Pointer[[]byte], string) {
	f.Helper()

	answer := &atomic.Pointer[[]byte]{}

	return answer, listen(f, func(conn net.Conn) {
		wrapped, err := wrap(conn)
		if err != nil {
			return
		}

		wrapped.Write(*answer.Load()) //nolint:errcheck // the client may have had enough

		if end, ok := wrapped.(interface{ CloseWrite() error }); ok {
			end.CloseWrite() //nolint:errcheck // as above
		}

		io.Copy(io.Discard, wrapped) //nolint:errcheck // until the client hangs up
	})
}

// recordedHandshake is what a node in maintenance answers to another client's greeting.
func recordedHandshake(f *testing.F) []byte {
	f.Helper()

	config := h2(newAuthority(f).certificate(f, maintenance), tls.NoClientCert, nil)
	config.MaxVersion = tls.VersionTLS12

	address := listen(f, shakeHands(config))

	raw, err := (&net.Dialer{}).DialContext(f.Context(), "tcp", address)
	require.NoError(f, err)

	recorder := &recordingConn{Conn: raw}

	conn := tls.Client(recorder, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // a recording
	require.NoError(f, conn.HandshakeContext(f.Context()))
	require.NoError(f, conn.Close())

	return recorder.read
}

type recordingConn struct {
	net.Conn

	read []byte
}

func (c *recordingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read = append(c.read, p[:n]...)

	return n, err
}
