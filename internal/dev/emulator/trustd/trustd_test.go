package trustd_test

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	securityapi "github.com/siderolabs/talos/pkg/machinery/api/security"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/trustd"
)

const machineToken = "abcdef.0123456789abcdef"

var loopback = netip.MustParseAddr("127.0.0.1")

func TestWorkerGetsServingCertificate(t *testing.T) {
	t.Parallel()

	ca := newCA(t)
	address := serve(t, trustd.ServerOptions{IssuingCA: ca, Token: machineToken, Addresses: []netip.Addr{loopback}})

	// A control plane that is down does not matter as long as another one answers.
	request := worker(ca, closedPort(t), address)

	certificate, err := request.Send(t.Context())
	require.NoError(t, err)

	leaf := certificate.Leaf
	require.Equal(t, "worker1", leaf.Subject.CommonName)
	require.Equal(t, []string{"worker1"}, leaf.DNSNames)
	require.True(t, leaf.IPAddresses[0].Equal(net.IPv4(192, 0, 2, 21)))
	require.Equal(t, []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}, leaf.ExtKeyUsage)

	_, err = leaf.Verify(stdx509.VerifyOptions{Roots: pool(t, ca.Crt),
		KeyUsages: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}})
	require.NoError(t, err)
}

func TestWorkerIsRefused(t *testing.T) {
	t.Parallel()

	ours, foreign := newCA(t), newCA(t)
	address := serve(t, trustd.ServerOptions{IssuingCA: ours, Token: machineToken, Addresses: []netip.Addr{loopback}})
	elsewhere := serve(t, trustd.ServerOptions{IssuingCA: ours, Token: machineToken,
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.11")}})

	for _, test := range []struct {
		name   string
		change func(*trustd.Request)
		code   codes.Code
		text   string
	}{
		{
			name:   "closed port",
			change: func(r *trustd.Request) { r.Endpoints = []string{closedPort(t)} },
			code:   codes.Unavailable,
			text:   "connect: connection refused",
		},
		{
			name:   "wrong token",
			change: func(r *trustd.Request) { r.Token = "abcdef.fedcba9876543210" },
			code:   codes.Unauthenticated,
			text:   "invalid token",
		},
		{
			name:   "clock far behind",
			change: func(r *trustd.Request) { r.Now = func() time.Time { return time.Unix(0, 0) } },
			code:   codes.Unavailable,
			text:   "x509: certificate has expired or is not yet valid: current time 1970-01-01T00:00:00Z is before",
		},
		{
			name:   "clock far ahead",
			change: func(r *trustd.Request) { r.Now = func() time.Time { return time.Now().AddDate(1, 0, 0) } },
			code:   codes.Unavailable,
			text:   "x509: certificate has expired or is not yet valid",
		},
		{
			name:   "control plane of another cluster",
			change: func(r *trustd.Request) { r.AcceptedCAs = foreign.Crt },
			code:   codes.Unavailable,
			text:   "x509: certificate signed by unknown authority",
		},
		{
			name:   "address that trustd's certificate lacks",
			change: func(r *trustd.Request) { r.Endpoints = []string{elsewhere} },
			code:   codes.Unavailable,
			text:   "x509: certificate is valid for 192.0.2.11, not 127.0.0.1",
		},
		{
			name:   "no endpoint",
			change: func(r *trustd.Request) { r.Endpoints = nil },
			code:   codes.Unknown,
			text:   "at least one root of trust endpoint is required",
		},
		{
			name:   "no CA",
			change: func(r *trustd.Request) { r.AcceptedCAs = nil },
			code:   codes.Unknown,
			text:   "no certificate in PEM form",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			request := worker(ours, address)
			test.change(&request)

			_, err := request.Send(t.Context())
			require.ErrorContains(t, err, test.text)
			require.Equal(t, test.code, status.Code(err))
		})
	}
}

func TestRequestEndsWithItsContext(t *testing.T) {
	t.Parallel()

	ca := newCA(t)

	// Accepts, and never says a word.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	_, err = worker(ca, listener.Addr().String()).Send(ctx)
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
}

func TestServerChecksRequests(t *testing.T) {
	t.Parallel()

	ca := newCA(t)
	address := serve(t, trustd.ServerOptions{IssuingCA: ca, Token: machineToken, Addresses: []netip.Addr{loopback}})
	client := rawClient(t, address, ca.Crt)

	roleRequest, _, err := x509.NewEd25519CSRAndIdentity(x509.CommonName("worker1"), x509.Organization("os:impersonator"))
	require.NoError(t, err)

	for _, test := range []struct {
		name     string
		metadata []string
		csr      []byte
		code     codes.Code
		text     string
	}{
		{name: "no token", csr: roleRequest.X509CertificateRequestPEM, code: codes.Unauthenticated, text: "missing token"},
		{name: "no PEM", metadata: []string{"token", machineToken}, csr: []byte("x"), code: codes.InvalidArgument,
			text: "failed to decode CSR"},
		{
			name: "no request in the PEM", metadata: []string{"token", machineToken}, csr: ca.Crt,
			code: codes.InvalidArgument, text: "failed to parse CSR",
		},
		{name: "role asked for", metadata: []string{"token", machineToken}, csr: roleRequest.X509CertificateRequestPEM},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			ctx := metadata.AppendToOutgoingContext(t.Context(), test.metadata...)

			response, err := client.Certificate(ctx, &securityapi.CertificateRequest{Csr: test.csr})
			require.Equal(t, test.code, status.Code(err), "%v", err)

			if test.text != "" {
				require.ErrorContains(t, err, test.text)

				return
			}

			signed, err := (&x509.PEMEncodedCertificate{Crt: response.GetCrt()}).GetCert()
			require.NoError(t, err)
			require.Empty(t, signed.Subject.Organization, "a worker must not get a role")
			require.Equal(t, ca.Crt, response.GetCa())
		})
	}
}

// Not parallel: it looks at the goroutines of the whole process.
func TestCloseEndsServingAndLeavesNoGoroutine(t *testing.T) {
	ca := newCA(t)
	before := goleak.IgnoreCurrent()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	server, err := trustd.Serve(listener,
		trustd.ServerOptions{IssuingCA: ca, Token: machineToken, Addresses: []netip.Addr{loopback}})
	require.NoError(t, err)

	_, err = worker(ca, listener.Addr().String()).Send(t.Context())
	require.NoError(t, err)

	server.Close()

	_, err = worker(ca, listener.Addr().String()).Send(t.Context())
	require.ErrorContains(t, err, "connection refused")
	goleak.VerifyNone(t, before)
}

func TestServeNeedsTheIssuingCA(t *testing.T) {
	t.Parallel()

	_, err := trustd.Serve(nil, trustd.ServerOptions{})
	require.ErrorContains(t, err, "no issuing CA")

	_, err = trustd.Serve(nil,
		trustd.ServerOptions{IssuingCA: &x509.PEMEncodedCertificateAndKey{Crt: []byte("x"), Key: []byte("y")}})
	require.ErrorContains(t, err, "read issuing CA")
}

func newCA(t *testing.T) *x509.PEMEncodedCertificateAndKey {
	t.Helper()

	ca, err := secrets.NewTalosCA(time.Now())
	require.NoError(t, err)

	return x509.NewCertificateAndKeyFromCertificateAuthority(ca)
}

func serve(t *testing.T, options trustd.ServerOptions) (address string) {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	server, err := trustd.Serve(listener, options)
	require.NoError(t, err)
	t.Cleanup(server.Close)

	return listener.Addr().String()
}

func worker(ca *x509.PEMEncodedCertificateAndKey, endpoints ...string) trustd.Request {
	return trustd.Request{
		Endpoints:   endpoints,
		Token:       machineToken,
		AcceptedCAs: ca.Crt,
		Addresses:   []netip.Addr{netip.MustParseAddr("192.0.2.21")},
		Names:       []string{"worker1"},
	}
}

func rawClient(t *testing.T, address string, ca []byte) securityapi.SecurityServiceClient {
	t.Helper()

	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool(t, ca)})))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })

	return securityapi.NewSecurityServiceClient(conn)
}

func pool(t *testing.T, pem []byte) *stdx509.CertPool {
	t.Helper()

	roots := stdx509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))

	return roots
}

// closedPort is an address where nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())

	return listener.Addr().String()
}
