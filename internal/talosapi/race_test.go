package talosapi_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	machinery "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/emulator"
	"github.com/talos-mage/talos-mage/internal/talosapi"
)

// The ways in which a TLS 1.3 client learns that its certificate was refused: by chance, as it has begun to write by then.
var refusals = []string{"remote error: tls:", "broken pipe", "connection reset by peer"}

func wayOfRefusal(t *testing.T, err error) string {
	t.Helper()

	for _, way := range refusals {
		if strings.Contains(err.Error(), way) {
			return way
		}
	}

	return "other: " + err.Error()
}

// anonymous is machinery's own client, as talosctl --insecure has it.
func anonymous(t *testing.T, address string) error {
	t.Helper()

	raw, err := machinery.New(t.Context(),
		machinery.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}), //nolint:gosec // as in maintenance
		machinery.WithEndpoints(address))
	require.NoError(t, err)

	defer raw.Close() //nolint:errcheck // it never connected

	_, err = raw.Version(t.Context())
	require.Error(t, err)

	return err
}

// A node that is configured refuses anonymous clients, and certificates of another cluster, in one of three ways by chance.
// The class must not depend on which.
func TestARefusedCertificateHasOneClassHoweverItIsTold(t *testing.T) {
	t.Parallel()

	l := newLab(t, 0)
	node := l.configured(t, "cp1", emulator.NodeOptions{})

	ca := authorityOf(t, l.Generated.Options.Secrets.Certs.OS)
	stranger := &talosapi.Dialer{Credentials: ca.credentialsSignedBy(t, newAuthority(t)), Timeout: timeout}

	for range 20 {
		err := anonymous(t, node.Endpoint())
		require.Equal(t, talosapi.Retry, talosapi.Classify(talosapi.OpRead, err), "%v", err)

		_, err = stranger.Secure(t.Context(), node.Endpoint())
		require.Equal(t, talosapi.Retry, talosapi.Classify(talosapi.OpBootstrap, err), "%v", err)
	}

	require.Empty(t, mutating(node))
}

// Each text on purpose: a listener that lets the client read the alert, one that closes and one that resets the connection at once.
func TestEveryTextOfARefusedCertificateHasOneClass(t *testing.T) {
	t.Parallel()

	ours := newAuthority(t)
	config := h2(ours.certificate(t), tls.RequireAndVerifyClientCert, ours)

	patient := listen(t, func(conn net.Conn) {
		tls.Server(conn, config).HandshakeContext(context.Background()) //nolint:errcheck // it refuses, that is the point
		write("")(conn)                                                 // stays open until the client hangs up
	})

	hasty := listen(t, func(conn net.Conn) {
		tls.Server(conn, config).HandshakeContext(context.Background()) //nolint:errcheck // it refuses, that is the point

		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0) //nolint:errcheck // a reset instead of a proper end
		}
	})

	polite := listen(t, func(conn net.Conn) {
		tls.Server(conn, config).HandshakeContext(context.Background()) //nolint:errcheck // it refuses, and closes as a node does
	})

	seen := map[string]bool{}

	require.Eventually(t, func() bool {
		for _, address := range []string{patient, polite, hasty} {
			err := anonymous(t, address)
			require.Equal(t, talosapi.Retry, talosapi.Classify(talosapi.OpRead, err), "%v", err)
			require.Equal(t, talosapi.Retry, talosapi.Classify(talosapi.OpDial, err), "%v", err)

			seen[wayOfRefusal(t, err)] = true
		}

		return seen[refusals[0]] && seen[refusals[1]] && seen[refusals[2]]
	}, 30*time.Second, time.Millisecond, "seen: %v", seen)
}
