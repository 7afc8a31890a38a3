package emulator

import (
	"bytes"
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/trustd"
)

// trustdRetry is how long a worker waits between two requests for its certificate, in node time.
const (
	trustdRetry   = time.Second
	trustdTimeout = 5 * time.Second // of the wall clock: a handshake takes what it takes
)

// renewAfter is when the API's certificate is renewed, at half of its life, in node time.
const renewAfter = x509.DefaultCertificateValidityDuration / 2

// certificates are what the API shows who it is with.
type certificates struct {
	boot *boot

	trust maintenanceTrust

	// What follows is guarded by boot.mu.

	// toldFingerprint is the maintenance certificate's that the console told last.
	toldFingerprint string
	own             *apiCertificate // nil until the secure API has one
}

// keepMaintenance renews the maintenance API's certificate as long as the machine is in maintenance mode.
func (c *certificates) keepMaintenance(ctx context.Context) {
	for c.boot.sleep(ctx, renewAfter) == nil {
		c.renewMaintenance()
	}
}

// maintenanceTrust holds the CA of the maintenance API, made anew at each boot, and its certificate. Both are made for
// the first client that needs them: most boots see none.
type maintenanceTrust struct {
	mu   sync.Mutex
	ca   *x509.CertificateAuthority
	leaf *tls.Certificate
	due  maintenanceLeaf
}

// maintenanceLeaf is what a certificate of the maintenance API says.
type maintenanceLeaf struct {
	addresses []netip.Addr
	hostname  string
	from      time.Time
}

// apiCertificate is what the secure API serves and dials with.
type apiCertificate struct {
	// server is replaced when it is renewed; connections stay.
	server atomic.Pointer[tls.Certificate]
	// client is for forwarding calls to other nodes; only control planes have one.
	client *tls.Certificate
	// roots are the CAs whose client certificates are accepted.
	roots *stdx509.CertPool
}

// renewMaintenance makes a new leaf, as a node does at boot, after a time sync and when its addresses
// change.
func (c *certificates) renewMaintenance() {
	c.trust.renew(maintenanceLeaf{c.boot.addresses(), c.boot.config.hostname(), c.boot.wallNow()})
	c.inform()
}

func (t *maintenanceTrust) renew(due maintenanceLeaf) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.leaf, t.due = nil, due
}

// current is the certificate of the last renewal.
func (t *maintenanceTrust) current() (*tls.Certificate, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.leaf != nil {
		return t.leaf, nil
	}

	from := t.due.from

	if t.ca == nil {
		ca, err := x509.NewSelfSignedCertificateAuthority(x509.NotBefore(from), x509.NotAfter(from.Add(24*time.Hour)))
		if err != nil {
			return nil, fmt.Errorf("make maintenance CA: %w", err)
		}

		t.ca = ca
	}

	pair, err := x509.NewKeyPair(t.ca,
		serverCertificate(constants.MaintenanceServiceCommonName, t.due.addresses, t.due.hostname, nil, from)...)
	if err != nil {
		return nil, fmt.Errorf("sign maintenance certificate: %w", err)
	}

	t.leaf = leafOnly(pair)

	return t.leaf, nil
}

// maintenanceTLS is that of the maintenance API: no client certificate is even asked for.
func (c *certificates) maintenanceTLS() *tls.Config {
	return &tls.Config{
		MinVersion:             c.boot.release.oldestTLS,
		NextProtos:             []string{"h2"},
		SessionTicketsDisabled: true,
		ClientAuth:             tls.NoClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if c.boot.node.Faults().NewCertificates {
				c.renewMaintenance()
			}

			return c.trust.current()
		},
	}
}

// tlsConfig is that of the secure API.
func (c *apiCertificate) tlsConfig(oldestTLS uint16, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion:             oldestTLS,
		NextProtos:             []string{"h2"},
		SessionTicketsDisabled: true,
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              c.roots,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.server.Load(), nil },
		Time:                   now,
		VerifyPeerCertificate:  verifyKeyUsage,
	}
}

// verifyKeyUsage lets in only client certificates that are for client authentication and nothing else.
func verifyKeyUsage(_ [][]byte, chains [][]*stdx509.Certificate) error {
	for _, chain := range chains {
		for _, certificate := range chain {
			if certificate.IsCA {
				continue
			}

			if !slices.Equal(certificate.ExtKeyUsage, []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}) {
				return fmt.Errorf("certificate %q must have client authentication as its only extended key usage",
					certificate.Subject)
			}
		}
	}

	return nil
}

func serverCertificate(commonName string, addresses []netip.Addr, hostname string, names []string,
	now time.Time) []x509.Option {
	named, dns := splitNames(names)

	all := slices.Concat([]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, addresses, named)
	slices.SortFunc(all, netip.Addr.Compare)

	var ips []net.IP
	for _, address := range slices.Compact(all) {
		ips = append(ips, address.AsSlice())
	}

	if hostname != "" {
		dns = append([]string{hostname}, dns...)
	}

	return []x509.Option{
		x509.CommonName(commonName),
		x509.IPAddresses(ips),
		x509.DNSNames(dns),
		x509.NotBefore(now),
		x509.NotAfter(now.Add(x509.DefaultCertificateValidityDuration)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
	}
}

// splitNames parts the additional names of a machine config into addresses and DNS names.
func splitNames(names []string) (addresses []netip.Addr, dns []string) {
	for _, name := range names {
		if address, err := netip.ParseAddr(name); err == nil {
			addresses = append(addresses, address)
		} else {
			dns = append(dns, name)
		}
	}

	return addresses, dns
}

// leafOnly drops the CA from the chain, which nodes do not send.
func leafOnly(pair *x509.KeyPair) *tls.Certificate {
	certificate := *pair.Certificate
	certificate.Certificate = certificate.Certificate[:1]

	return &certificate
}

// keep gets the secure API its certificate once the machine config and the hostname are known: a control plane
// signs its own, a worker asks trustd until it gets one.
func (c *certificates) keep() {
	config := c.boot.config.active()

	if c.boot.changed.until(c.boot.ctx, func() bool {
		config = c.boot.config.active()

		return config != nil && c.boot.config.hostname() != ""
	}) != nil {
		return
	}

	obtain := c.signOwn
	if !config.Machine().Type().IsControlPlane() {
		obtain = c.askTrustd
	}

	for c.boot.ctx.Err() == nil {
		wait, offset := trustdRetry, c.boot.node.Faults().ClockOffset

		if certificate, err := obtain(); err == nil {
			c.serveWith(certificate)

			wait = renewAfter
		} else {
			c.boot.printLine("user: warning",
				`[talos] controller failed {"component": "controller-runtime", "controller": "secrets.APIController", "error": "`+
					err.Error()+`"}`)
		}

		// A clock that was set has the certificate made anew.
		waiting, cancel := c.boot.node.lab.clock.WithTimeout(c.boot.ctx, wait)
		c.boot.node.changed.until(waiting, func() bool { return c.boot.node.Faults().ClockOffset != offset }) //nolint:errcheck // either way it is time
		cancel()
	}
}

// serveWith makes a certificate that of the secure API, without a break if there was one before.
func (c *certificates) serveWith(certificate *apiCertificate) {
	c.boot.mu.Lock()
	current := c.own

	if current == nil && c.boot.config.withdrawn == nil {
		c.own = certificate
	}
	c.boot.mu.Unlock()

	if current != nil {
		current.server.Store(certificate.server.Load())
	}

	c.boot.status.notify()
}

// signOwn makes the certificates of a control plane from the machine CA in its config.
func (c *certificates) signOwn() (*apiCertificate, error) {
	security := c.boot.config.settings().Machine().Security()

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(security.IssuingCA())
	if err != nil {
		return nil, fmt.Errorf("failed to parse CA certificate: %w", err)
	}

	now := c.boot.wallNow()

	server, err := x509.NewKeyPair(ca,
		serverCertificate(c.boot.config.hostname(), c.addresses(), c.boot.config.hostname(), security.CertSANs(), now)...)
	if err != nil {
		return nil, fmt.Errorf("failed to generate API server cert: %w", err)
	}

	client, err := x509.NewKeyPair(ca,
		x509.CommonName(c.boot.config.hostname()),
		x509.Organization(string(role.Impersonator)),
		x509.NotBefore(now),
		x509.NotAfter(now.Add(x509.DefaultCertificateValidityDuration)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	if err != nil {
		return nil, fmt.Errorf("failed to generate API client cert: %w", err)
	}

	roots, err := c.acceptedCAs()
	if err != nil {
		return nil, err
	}

	certificate := &apiCertificate{client: leafOnly(client), roots: roots}
	certificate.server.Store(leafOnly(server))

	return certificate, nil
}

// askTrustd asks the control planes that this worker knows of to sign its certificate.
func (c *certificates) askTrustd() (*apiCertificate, error) {
	config := c.boot.config.settings()
	security := config.Machine().Security()

	var endpoints []string

	for _, endpoint := range c.boot.members.controlPlaneEndpoints() {
		if at, known := c.boot.node.lab.network.socket(netip.AddrPortFrom(endpoint, TrustdPort)); known {
			endpoints = append(endpoints, at.String())
		}
	}

	if len(endpoints) == 0 {
		return nil, errors.New("failed to sign API server CSR: no control plane endpoint is reachable")
	}

	roots, err := c.acceptedCAs()
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(c.boot.ctx, trustdTimeout)
	defer cancel()

	named, dns := splitNames(security.CertSANs())

	request := trustd.Request{
		Endpoints:   endpoints,
		Token:       security.Token(),
		AcceptedCAs: c.acceptedPEM(),
		Addresses:   append(c.addresses(), named...),
		Names:       append([]string{c.boot.config.hostname()}, dns...),
		Now:         c.boot.wallNow,
	}

	server, err := request.Send(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to sign API server CSR: %w", err)
	}

	certificate := &apiCertificate{roots: roots}
	certificate.server.Store(&server)

	return certificate, nil
}

// addresses are what the API's certificate is valid for: the node's addresses, by their declared and their
// real names.
func (c *certificates) addresses() []netip.Addr {
	addresses := append([]netip.Addr{netip.IPv6Loopback(), netip.AddrFrom4([4]byte{127, 0, 0, 1})}, c.boot.addresses()...)

	for _, address := range c.boot.addresses() {
		if at, known := c.boot.node.lab.network.socket(netip.AddrPortFrom(address, APIPort)); known && at.Addr() != address {
			addresses = append(addresses, at.Addr())
		}
	}

	return addresses
}

// acceptedPEM are the machine CAs of the config, issuing and accepted, in PEM form.
func (c *certificates) acceptedPEM() []byte {
	security := c.boot.config.settings().Machine().Security()

	var pems [][]byte

	if ca := security.IssuingCA(); ca != nil {
		pems = append(pems, ca.Crt)
	}

	for _, ca := range security.AcceptedCAs() {
		pems = append(pems, ca.Crt)
	}

	return bytes.Join(pems, []byte("\n"))
}

func (c *certificates) acceptedCAs() (*stdx509.CertPool, error) {
	pool := stdx509.NewCertPool()

	if !pool.AppendCertsFromPEM(c.acceptedPEM()) {
		return nil, errors.New("no accepted CAs")
	}

	return pool, nil
}
