package trustd

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	securityapi "github.com/siderolabs/talos/pkg/machinery/api/security"
	"github.com/siderolabs/talos/pkg/machinery/client/resolver"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Request is a worker's request for the certificate that its Talos API serves with.
type Request struct {
	// Endpoints are the control planes' addresses, or the cluster endpoint's host; "host" or "host:port", 50001 by
	// default. One that works suffices: they are dialled together, as a node does.
	Endpoints []string
	// Token is the worker's machine.token.
	Token string
	// AcceptedCAs are the PEM machine CAs of the worker's config. trustd must serve with a certificate of one of them, and
	// the certificate that it signs must be of one of them too.
	AcceptedCAs []byte
	// Addresses and Names are what the worker's certificate is to be valid for; the first name is its subject.
	Addresses []netip.Addr
	Names     []string
	// Now is the worker's clock, by which trustd's certificate is checked; nil for the real one.
	Now func() time.Time
}

// Send asks once. The error is what the worker's log would show: a gRPC status with the dial's, TLS' or trustd's own
// text. The context bounds it; without a deadline a silent address holds it up for as long as TCP does.
func (r Request) Send(ctx context.Context) (tls.Certificate, error) {
	if len(r.Endpoints) == 0 {
		return tls.Certificate{}, errors.New("at least one root of trust endpoint is required")
	}

	roots := stdx509.NewCertPool()
	if !roots.AppendCertsFromPEM(r.AcceptedCAs) {
		return tls.Certificate{}, errors.New("read accepted CAs: no certificate in PEM form")
	}

	request, key, err := r.sign()
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate request: %w", err)
	}

	conn, err := grpc.NewClient(r.target(),
		grpc.WithTransportCredentials(credentials.NewTLS(
			&tls.Config{RootCAs: roots, Time: r.Now, MinVersion: tls.VersionTLS13})),
		grpc.WithPerRPCCredentials(token(r.Token)),
		// Not through a proxy: nodes are on loopback, and a proxy of this machine is none of theirs.
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}),
	)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("dial trustd: %w", err)
	}

	// Closing has nothing left to fail at.
	defer func() { _ = conn.Close() }()

	response, err := securityapi.NewSecurityServiceClient(conn).Certificate(ctx,
		&securityapi.CertificateRequest{Csr: request.X509CertificateRequestPEM})
	if err != nil {
		return tls.Certificate{}, err
	}

	certificate, err := tls.X509KeyPair(response.GetCrt(), key.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read signed certificate: %w", err)
	}

	return certificate, nil
}

// target lists the endpoints for the Talos client's own resolver, which tries them all.
func (r Request) target() string {
	return fmt.Sprintf("%s:///%s", resolver.RoundRobinResolverScheme,
		strings.Join(resolver.EnsureEndpointsHavePorts(r.Endpoints, constants.TrustdPort), ","))
}

// sign makes a key of the CA's kind and a request for it.
func (r Request) sign() (*x509.CertificateSigningRequest, *x509.PEMEncodedCertificateAndKey, error) {
	ca, err := (&x509.PEMEncodedCertificate{Crt: r.AcceptedCAs}).GetCert()
	if err != nil {
		return nil, nil, fmt.Errorf("read accepted CA: %w", err)
	}

	var commonName string
	if len(r.Names) > 0 {
		commonName = r.Names[0]
	}

	return x509.NewCSRAndIdentityFromCA(ca,
		x509.CommonName(commonName),
		x509.IPAddresses(stdAddresses(r.Addresses)),
		x509.DNSNames(r.Names),
	)
}

// token is a call's credential: the machine token in the call's metadata, over TLS only.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{tokenKey: string(t)}, nil
}

func (token) RequireTransportSecurity() bool { return true }
