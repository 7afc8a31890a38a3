// Package trustd is the emulated nodes' trustd: the service on a control plane that signs the certificate with which a
// worker serves its Talos API, and the worker's request for it. Both talk the real gRPC service over real TLS.
package trustd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/siderolabs/crypto/x509"
	securityapi "github.com/siderolabs/talos/pkg/machinery/api/security"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/certs"
)

// tokenKey is the metadata key that carries the machine token.
const tokenKey = "token"

// ServerOptions is what a control plane's trustd takes from its machine config and its addresses.
type ServerOptions struct {
	// IssuingCA is the machine CA with its key: it signs trustd's own certificate and the workers'.
	IssuingCA *x509.PEMEncodedCertificateAndKey
	// AcceptedCAs are the PEM certificates that a worker is told to trust; nil for the issuing CA alone.
	AcceptedCAs []byte
	// Token is machine.token; a request with another one is refused.
	Token string
	// Addresses and Names go into trustd's own certificate: the node's addresses (a VIP that it holds among them), its
	// host name, its certSANs.
	Addresses []netip.Addr
	Names     []string
	// Now is the control plane's clock, which dates the certificates; nil for the real one.
	Now func() time.Time
}

// Server is a running trustd.
type Server struct {
	grpc   *grpc.Server
	served sync.WaitGroup
}

// Serve answers on the listener until Close. A control plane that holds a VIP serves once for each address.
func Serve(listener net.Listener, options ServerOptions) (*Server, error) {
	if options.IssuingCA == nil {
		return nil, errors.New("serve trustd: no issuing CA in the machine config")
	}

	if options.AcceptedCAs == nil {
		options.AcceptedCAs = options.IssuingCA.Crt
	}

	if options.Now == nil {
		options.Now = time.Now
	}

	certificate, err := certs.Keep(options.Now, options.certificate)
	if err != nil {
		return nil, fmt.Errorf("make trustd's certificate: %w", err)
	}

	server := &Server{grpc: grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{GetCertificate: certificate.Current,
			MinVersion: tls.VersionTLS13})),
		grpc.UnaryInterceptor(options.authenticate),
	)}

	securityapi.RegisterSecurityServiceServer(server.grpc, &service{options: options})

	// Serve ends with Close, or when the listener's owner closes it; both are the end that was asked for.
	server.served.Go(func() { _ = server.grpc.Serve(listener) })

	return server, nil
}

// Close stops answering, closes the listener and every connection, and waits for both.
func (s *Server) Close() {
	s.grpc.Stop()
	s.served.Wait()
}

// certificate makes the one that trustd serves with: a day long, like the node's own API certificate.
func (o ServerOptions) certificate() (tls.Certificate, error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(o.IssuingCA)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read issuing CA: %w", err)
	}

	var commonName string
	if len(o.Names) > 0 {
		commonName = o.Names[0]
	}

	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(commonName),
		x509.IPAddresses(stdAddresses(o.Addresses)),
		x509.DNSNames(o.Names),
		x509.NotBefore(o.Now()),
		x509.NotAfter(o.Now().Add(x509.DefaultCertificateValidityDuration)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
	)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign: %w", err)
	}

	return *pair.Certificate, nil
}

// authenticate demands the machine token. Hashes are compared, so that neither length nor content leaks through timing.
func (o ServerOptions) authenticate(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	values := metadata.ValueFromIncomingContext(ctx, tokenKey)
	if len(values) == 0 {
		return nil, status.Error(codes.Unauthenticated, "missing token")
	}

	got, want := sha256.Sum256([]byte(values[0])), sha256.Sum256([]byte(o.Token))
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return nil, status.Error(codes.Unauthenticated, "invalid token")
	}

	return handler(ctx, request)
}

type service struct {
	securityapi.UnimplementedSecurityServiceServer

	options ServerOptions
}

// Certificate signs a request for a serving certificate. What could authenticate a client is taken out rather than
// refused, as Talos does for old workers: an organization, which would be a role, and every key usage but serving.
func (s *service) Certificate(_ context.Context,
	request *securityapi.CertificateRequest) (*securityapi.CertificateResponse, error) {
	block, _ := pem.Decode(request.GetCsr())
	if block == nil {
		return nil, status.Error(codes.InvalidArgument, "failed to decode CSR")
	}

	if _, err := stdx509.ParseCertificateRequest(block.Bytes); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "failed to parse CSR: %s", err)
	}

	signed, err := x509.NewCertificateFromCSRBytes(s.options.IssuingCA.Crt, s.options.IssuingCA.Key, request.GetCsr(),
		x509.NotBefore(s.options.Now()),
		x509.NotAfter(s.options.Now().Add(x509.DefaultCertificateValidityDuration)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
		x509.OverrideSubject(func(subject *pkix.Name) { subject.Organization = nil }),
	)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "failed to sign CSR: %s", err)
	}

	return &securityapi.CertificateResponse{Ca: bytes.Clone(s.options.AcceptedCAs), Crt: signed.X509CertificatePEM}, nil
}

func stdAddresses(addresses []netip.Addr) []net.IP {
	ips := make([]net.IP, 0, len(addresses))
	for _, address := range addresses {
		ips = append(ips, address.AsSlice())
	}

	return ips
}
