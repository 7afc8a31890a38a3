package talos_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	cryptox509 "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/talos"
)

// timeout is long enough for a handshake on a busy machine; nothing that answers takes that long.
const timeout = 10 * time.Second

// authority is a machine CA, or the maintenance CA of one boot.
type authority struct {
	cert *x509.Certificate
	key  ed25519.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()

	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)

	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{Organization: []string{"talos"}},
		NotBefore: time.Now().Add(-100 * time.Hour), NotAfter: time.Now().Add(100 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	require.NoError(t, err)

	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)

	return &authority{cert: cert, key: private}
}

// certificate signs a leaf for 127.0.0.1; change adapts it.
func (a *authority) certificate(t testing.TB, change ...func(*x509.Certificate)) tls.Certificate {
	t.Helper()

	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)

	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "cp1"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"cp1", "localhost"},
	}

	for _, apply := range change {
		apply(template)
	}

	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	require.NoError(t, err)

	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

func maintenance(c *x509.Certificate) { c.Subject.CommonName = constants.MaintenanceServiceCommonName }

func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(-20*time.Hour), time.Now().Add(-2*time.Hour)
}

func notYetValid(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(2*time.Hour), time.Now().Add(20*time.Hour)
}

func elsewhere(c *x509.Certificate) {
	c.IPAddresses, c.DNSNames = []net.IP{net.ParseIP("192.0.2.5")}, []string{"cp1"}
}

func client(roles ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject = pkix.Name{Organization: roles}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
}

// talosconfig is the text of a talosconfig with this CA and a client certificate that signer signed.
func (a *authority) talosconfig(t testing.TB, signer *authority, change ...func(*x509.Certificate)) []byte {
	t.Helper()

	pair := signer.certificate(t, append([]func(*x509.Certificate){client(string(role.Admin))}, change...)...)

	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)

	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}

	return fmt.Appendf(nil, "context: homelab\ncontexts:\n  homelab:\n    endpoints: [192.0.2.11]\n    nodes: "+
		"[192.0.2.11, 192.0.2.12]\n    ca: %s\n    crt: %s\n    key: %s\n",
		encode("CERTIFICATE", a.cert.Raw), encode("CERTIFICATE", pair.Certificate[0]), encode("PRIVATE KEY", key))
}

func (a *authority) credentials(t testing.TB, change ...func(*x509.Certificate)) *talos.Credentials {
	t.Helper()

	return a.credentialsSignedBy(t, a, change...)
}

func (a *authority) credentialsSignedBy(t testing.TB, signer *authority,
	change ...func(*x509.Certificate)) *talos.Credentials {
	t.Helper()

	path := filepath.Join(t.TempDir(), "talosconfig")
	require.NoError(t, os.WriteFile(path, a.talosconfig(t, signer, change...), 0o600))

	credentials, err := talos.LoadCredentials(path)
	require.NoError(t, err)

	return credentials
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)

	return pool
}

// h2 is the TLS setup of a node that presents a certificate; ask makes it a configured one.
func h2(certificate tls.Certificate, ask tls.ClientAuthType, accepted *authority) *tls.Config {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{certificate},
		ClientAuth:             ask,
		SessionTicketsDisabled: true,
	}

	if accepted != nil {
		config.ClientCAs = accepted.pool()
	}

	return config
}

// listen serves each connection with handle, until the test ends.
func listen(t testing.TB, handle func(net.Conn)) string {
	t.Helper()

	var config net.ListenConfig

	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)

	t.Cleanup(func() { listener.Close() }) //nolint:errcheck // the test is over

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			go func() {
				defer conn.Close() //nolint:errcheck // the test is over

				handle(conn)
			}()
		}
	}()

	return listener.Addr().String()
}

// shakeHands serves nothing but TLS handshakes.
func shakeHands(config *tls.Config) func(net.Conn) {
	return func(conn net.Conn) {
		server := tls.Server(conn, config)
		if server.HandshakeContext(context.Background()) == nil {
			io.Copy(io.Discard, server) //nolint:errcheck // until the client hangs up
		}
	}
}

func write(text string) func(net.Conn) {
	return func(conn net.Conn) {
		conn.Write([]byte(text))  //nolint:errcheck // the client may be gone
		io.Copy(io.Discard, conn) //nolint:errcheck // until the client hangs up
	}
}

func closedPort(t testing.TB) string {
	t.Helper()

	var config net.ListenConfig

	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())

	return listener.Addr().String()
}

func named(address string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.ParseIP(address)} }
}

// authorityOf is the machine CA of a generated cluster.
func authorityOf(t testing.TB, pair *cryptox509.PEMEncodedCertificateAndKey) *authority {
	t.Helper()

	cert, err := pair.GetCert()
	require.NoError(t, err)

	key, err := pair.GetKey()
	require.NoError(t, err)

	private, ok := key.(ed25519.PrivateKey)
	require.True(t, ok)

	return &authority{cert: cert, key: private}
}
