package kubernetes

import (
	"cmp"
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // the only logger that http.Server takes; it is told to be quiet
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/crypto/x509"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/certs"
)

const (
	// certificateLifetime is how long Talos makes an API server's certificate valid.
	certificateLifetime = 365 * 24 * time.Hour
	// allowedSkew is how far a certificate is dated back for clocks that are a little behind.
	allowedSkew = 10 * time.Second
	// superusers is the group that may do everything.
	superusers = "system:masters"
)

// ServerOptions are what an API server takes from its node's machine config and addresses.
type ServerOptions struct {
	// IssuingCA is the Kubernetes CA with its key, which signs the API server's certificate.
	IssuingCA *x509.PEMEncodedCertificateAndKey
	// AcceptedCAs are the PEM certificates that sign clients; nil for the issuing CA alone.
	AcceptedCAs []byte
	// Addresses and Names go into the certificate: the endpoint's host, the node's addresses, its host name,
	// cluster.apiServer.certSANs. localhost, 127.0.0.1 and the names of the service "kubernetes" are added.
	Addresses []netip.Addr
	Names     []string
	// Now is the node's clock; nil for the cluster's.
	Now func() time.Time
	// Advertise is the node's address in the EndpointSlice while it is served; leave it out for a VIP, which is nobody's.
	Advertise netip.Addr
	// Version is that of the API server; by default the cluster's first.
	Version string
}

// Server is one running API server on one address.
type Server struct {
	cluster *Cluster
	clients *stdx509.CertPool
	now     func() time.Time
	version string
	http    http.Server
	stop    context.CancelFunc
	served  sync.WaitGroup
}

// Serve answers on the listener until Close. A control plane that holds a VIP serves once for each address.
func (c *Cluster) Serve(listener net.Listener, options ServerOptions) (*Server, error) {
	if options.IssuingCA == nil {
		return nil, errors.New("serve Kubernetes API: no issuing CA in the machine config")
	}

	if options.AcceptedCAs == nil {
		options.AcceptedCAs = options.IssuingCA.Crt
	}

	clients := stdx509.NewCertPool()
	if !clients.AppendCertsFromPEM(options.AcceptedCAs) {
		return nil, errors.New("read accepted Kubernetes CAs: no certificate in PEM form")
	}

	if options.Now == nil {
		options.Now = c.now
	}

	certificate, err := certs.Keep(options.Now, options.certificate)
	if err != nil {
		return nil, fmt.Errorf("make API server's certificate: %w", err)
	}

	ctx, stop := context.WithCancel(context.Background())
	server := &Server{cluster: c, clients: clients, now: options.Now, stop: stop,
		version: cmp.Or(options.Version, c.version)}

	server.http = http.Server{
		Handler: http.HandlerFunc(server.handle),
		// A certificate is asked for, and judged by the handler: a client without a good one gets 401, not a failed
		// handshake.
		TLSConfig: &tls.Config{
			GetCertificate: certificate.Current, ClientAuth: tls.RequestClientCert, ClientCAs: clients,
			MinVersion: tls.VersionTLS13,
		},
		BaseContext: func(net.Listener) context.Context { return ctx },
		// Its log is about clients that hang up during the handshake, as probes do.
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: time.Minute,
	}

	// ServeTLS ends with Close, or when the listener's owner closes it; both are the end that was asked for.
	server.served.Go(func() { _ = server.http.ServeTLS(listener, "", "") })

	if port, err := netip.ParseAddrPort(listener.Addr().String()); err == nil && options.Advertise.IsValid() {
		c.advertise(server, netip.AddrPortFrom(options.Advertise, port.Port()))
	}

	return server, nil
}

// Close stops answering, ends the watches, closes the listener and every connection.
func (s *Server) Close() {
	s.stop()
	// A listener that its owner closed already is closed.
	_ = s.http.Close()
	s.served.Wait()
	s.cluster.advertise(s, netip.AddrPort{})
}

func (o ServerOptions) certificate() (tls.Certificate, error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(o.IssuingCA)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read issuing CA: %w", err)
	}

	now := o.Now()
	names := append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "localhost"}, o.Names...)
	addresses := []net.IP{net.IPv4(127, 0, 0, 1)}

	for _, address := range o.Addresses {
		addresses = append(addresses, address.AsSlice())
	}

	pair, err := x509.NewKeyPair(ca,
		x509.CommonName("kube-apiserver"),
		x509.Organization("kube-master"),
		x509.DNSNames(names),
		x509.IPAddresses(addresses),
		x509.NotBefore(now.Add(-allowedSkew)),
		x509.NotAfter(now.Add(certificateLifetime)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
	)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign: %w", err)
	}

	return *pair.Certificate, nil
}

// user is who a client certificate makes of a client.
type user struct {
	name   string
	groups []string
}

// authenticate finds the client's user. Talos' API servers run with --anonymous-auth=false, so nobody is nobody, even
// at /readyz.
func (s *Server) authenticate(request *http.Request) (user, bool) {
	certificates := request.TLS.PeerCertificates
	if len(certificates) == 0 {
		return user{}, false
	}

	intermediates := stdx509.NewCertPool()
	for _, certificate := range certificates[1:] {
		intermediates.AddCert(certificate)
	}

	if _, err := certificates[0].Verify(stdx509.VerifyOptions{
		Roots: s.clients, Intermediates: intermediates, CurrentTime: s.now(),
		KeyUsages: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth},
	}); err != nil {
		return user{}, false
	}

	return user{name: certificates[0].Subject.CommonName, groups: certificates[0].Subject.Organization}, true
}

// handle is the API server: who asks, may they, and the answer.
func (s *Server) handle(w http.ResponseWriter, request *http.Request) {
	client, ok := s.authenticate(request)
	if !ok {
		writeStatus(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")

		return
	}

	reads := request.Method == http.MethodGet || request.Method == http.MethodHead
	state := s.cluster.snapshot()
	state.version = s.version

	switch call, kind := route(request.URL.Path); {
	case !reads && kind != resourceCall:
		writeStatus(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"the server does not allow this method on the requested resource")
	case kind == healthCall:
		serveHealth(w, request, state)
	case kind == documentCall:
		serveDocument(w, request.URL.Path, state)
	case kind != resourceCall && kind != metricsCall:
		http.NotFound(w, request)
	case !slices.Contains(client.groups, superusers):
		writeStatus(w, http.StatusForbidden, metav1.StatusReasonForbidden, call.forbidden(client.name))
	case kind == metricsCall:
		serveMetrics(w, state)
	case reads:
		s.serveResource(w, request, call, state)
	default:
		s.serveWrite(w, request, call, state)
	}
}
