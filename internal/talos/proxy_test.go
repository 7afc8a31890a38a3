package talos_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/talos"
)

// The environment is the process's: none of these tests is parallel.

// behindProxy is an address that is reached through a proxy only.
const behindProxy = "192.0.2.11"

func clearProxies(t *testing.T) {
	t.Helper()

	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy",
		"REQUEST_METHOD"} {
		t.Setenv(name, "")
	}
}

// tunnel joins both ends until one of them hangs up.
func tunnel(client net.Conn, buffered io.Reader, to string) {
	node, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
	if err != nil {
		return
	}
	defer node.Close() //nolint:errcheck // the test is over

	go func() {
		io.Copy(node, buffered) //nolint:errcheck // until the client hangs up
		node.Close()            //nolint:errcheck // ends the other direction
	}()

	io.Copy(client, node) //nolint:errcheck // until the node hangs up
}

// httpProxy tunnels every CONNECT to one node, and counts them.
func httpProxy(t *testing.T, node string, asked *atomic.Int32) string {
	t.Helper()

	return listen(t, func(conn net.Conn) {
		reader := bufio.NewReader(conn)

		request, err := http.ReadRequest(reader)
		if err != nil || request.Method != http.MethodConnect || request.Host != behindProxy+":50000" {
			return
		}

		asked.Add(1)
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n") //nolint:errcheck // the client may be gone
		tunnel(conn, reader, node)
	})
}

// socksProxy does the same for SOCKS5; code is its reply.
func socksProxy(t *testing.T, node string, code byte, asked *atomic.Int32) string {
	t.Helper()

	return listen(t, func(conn net.Conn) {
		greeting := make([]byte, 3) // version, one method: no authentication
		if _, err := io.ReadFull(conn, greeting); err != nil {
			return
		}

		conn.Write([]byte{5, 0}) //nolint:errcheck // the client may be gone

		request := make([]byte, 10) // version, connect, reserved, IPv4, address, port
		if _, err := io.ReadFull(conn, request); err != nil || binary.BigEndian.Uint16(request[8:]) != talos.DefaultPort {
			return
		}

		asked.Add(1)
		conn.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0}) //nolint:errcheck // the client may be gone

		if code == 0 {
			tunnel(conn, conn, node)
		}
	})
}

func TestBothModesGoThroughTheProxyInForce(t *testing.T) {
	ours, boot := newAuthority(t), newAuthority(t)
	dialer := &talos.Dialer{Credentials: ours.credentials(t), Timeout: timeout}

	inMaintenance := serveStub(t, h2(boot.certificate(t, maintenance), tls.NoClientCert, nil))
	configured := serveStub(t, h2(ours.certificate(t, named(behindProxy)), tls.RequireAndVerifyClientCert, ours))

	for _, test := range []struct {
		name  string
		proxy func(node string, asked *atomic.Int32) string
	}{
		{"HTTP", func(node string, asked *atomic.Int32) string {
			return "http://user:hunter2@" + httpProxy(t, node, asked)
		}},
		{"SOCKS5", func(node string, asked *atomic.Int32) string { return "socks5://" + socksProxy(t, node, 0, asked) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			clearProxies(t)

			var asked atomic.Int32

			t.Setenv("HTTPS_PROXY", test.proxy(inMaintenance.address, &asked))
			require.Equal(t, talos.Maintenance, dialer.Probe(t.Context(), behindProxy).State)

			conn, err := dialer.Maintenance(t.Context(), behindProxy)
			require.NoError(t, err)

			_, err = conn.Version(t.Context())
			require.NoError(t, err)
			conn.Close()

			t.Setenv("HTTPS_PROXY", test.proxy(configured.address, &asked))
			require.Equal(t, talos.Ours, dialer.Probe(t.Context(), behindProxy).State)

			conn, err = dialer.Secure(t.Context(), behindProxy)
			require.NoError(t, err)
			conn.Close()

			require.EqualValues(t, 4, asked.Load(), "the variable is read anew each time")
		})
	}
}

func TestAFailingProxyIsNamed(t *testing.T) {
	for _, test := range []struct {
		name    string
		proxy   func(t *testing.T) string
		silence talos.Silence
	}{
		{"closed", func(t *testing.T) string { t.Helper(); return "http://user:hunter2@" + closedPort(t) }, talos.Broken},
		{
			"refuses", func(t *testing.T) string {
				t.Helper()
				return "http://" + listen(t, write("HTTP/1.1 502 Bad Gateway\r\n\r\n"))
			},
			talos.Broken,
		},
		{"mute", func(t *testing.T) string { t.Helper(); return "http://" + listen(t, write("")) }, talos.Broken},
		{"speaks no SOCKS", func(t *testing.T) string {
			t.Helper()
			return "socks5://" + listen(t, write("HTTP/1.1 400 Bad Request\r\n\r\n"))
		}, talos.Broken},
		{
			"SOCKS5 that was refused by the node",
			func(t *testing.T) string { t.Helper(); return "socks5://" + socksProxy(t, "", 5, new(atomic.Int32)) },
			talos.Refused,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			clearProxies(t)
			t.Setenv("https_proxy", test.proxy(t))

			dialer := &talos.Dialer{Timeout: time.Second}
			probed := dialer.Probe(t.Context(), behindProxy)

			require.Equal(t, talos.Unreachable, probed.State)
			require.Equal(t, test.silence, probed.Silence, "%v", probed.Err)

			_, err := dialer.Maintenance(t.Context(), behindProxy)

			for _, err := range []error{probed.Err, err} {
				require.Error(t, err)
				require.Contains(t, talos.Explain(err), "https_proxy=127.0.0.1:", "the variable in force")
				require.NotContains(t, talos.Explain(err), "hunter2")
				require.Equal(t, talos.Retry, talos.Classify(talos.OpApply, err))
			}
		})
	}
}

func TestProxyFor(t *testing.T) {
	clearProxies(t)

	require.Nil(t, talos.ProxyFor(behindProxy))

	t.Setenv("HTTPS_PROXY", "http://user:hunter2@203.0.113.9:3128")
	require.Equal(t, "HTTPS_PROXY=203.0.113.9:3128", talos.ProxyFor(behindProxy).String())
	require.Nil(t, talos.ProxyFor("127.0.0.1"), "loopback")
	require.Nil(t, talos.ProxyFor(""))

	t.Setenv("NO_PROXY", "192.0.2.0/24,.example")

	for _, address := range []string{behindProxy, behindProxy + ":50001", "cp1.example"} {
		require.Nil(t, talos.ProxyFor(address), address)
	}
}
