package machine

import (
	"bytes"
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/certs"
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
	boot *Boot

	trust certs.Maintenance

	// What follows is guarded by boot.mu.

	// toldFingerprint is the maintenance certificate's that the console told last.
	toldFingerprint string
	own             *certs.API // nil until the secure API has one
}

// keepMaintenance renews the maintenance API's certificate as long as the machine is in maintenance mode.
func (c *certificates) keepMaintenance(ctx context.Context) {
	for c.boot.Sleep(ctx, renewAfter) == nil {
		c.renewMaintenance()
	}
}

// renewMaintenance makes a new leaf, as a node does at boot, after a time sync and when its addresses
// change.
func (c *certificates) renewMaintenance() {
	c.trust.Renew(certs.Leaf{
		Addresses: c.boot.Addresses(), Hostname: c.boot.Config.Hostname(), From: c.boot.WallNow(),
	})
	c.inform()
}

// MaintenanceTLS is that of the maintenance API: no client certificate is even asked for.
func (c *certificates) MaintenanceTLS() *tls.Config {
	return &tls.Config{
		MinVersion:             c.boot.Release.OldestTLS,
		NextProtos:             []string{"h2"},
		SessionTicketsDisabled: true,
		ClientAuth:             tls.NoClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if c.boot.Node.Faults().NewCertificates {
				c.renewMaintenance()
			}

			return c.trust.Current()
		},
	}
}

// keep gets the secure API its certificate once the machine config and the hostname are known: a control plane
// signs its own, a worker asks trustd until it gets one.
func (c *certificates) keep() {
	config := c.boot.Config.Active()

	if c.boot.changed.Until(c.boot.Context, func() bool {
		config = c.boot.Config.Active()

		return config != nil && c.boot.Config.Hostname() != ""
	}) != nil {
		return
	}

	obtain := c.signOwn
	if !config.Machine().Type().IsControlPlane() {
		obtain = c.askTrustd
	}

	for c.boot.Context.Err() == nil {
		wait, offset := trustdRetry, c.boot.Node.Faults().ClockOffset

		if certificate, err := obtain(); err == nil {
			c.serveWith(certificate)

			wait = renewAfter
		} else {
			c.boot.printLine("user: warning",
				`[talos] controller failed {"component": "controller-runtime", "controller": "secrets.APIController", "error": "`+
					err.Error()+`"}`)
		}

		// A clock that was set has the certificate made anew.
		waiting, cancel := c.boot.Node.Lab.clock.WithTimeout(c.boot.Context, wait)
		c.boot.Node.changed.Until(waiting, func() bool { return c.boot.Node.Faults().ClockOffset != offset }) //nolint:errcheck // either way it is time
		cancel()
	}
}

// serveWith makes a certificate that of the secure API, without a break if there was one before.
func (c *certificates) serveWith(certificate *certs.API) {
	c.boot.mu.Lock()
	current := c.own

	if current == nil && c.boot.Config.withdrawn == nil {
		c.own = certificate
	}
	c.boot.mu.Unlock()

	if current != nil {
		current.Server.Store(certificate.Server.Load())
	}

	c.boot.status.notify()
}

// signOwn makes the certificates of a control plane from the machine CA in its config.
func (c *certificates) signOwn() (*certs.API, error) {
	security := c.boot.Config.Settings().Machine().Security()

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(security.IssuingCA())
	if err != nil {
		return nil, fmt.Errorf("failed to parse CA certificate: %w", err)
	}

	name, now := c.boot.Config.Hostname(), c.boot.WallNow()

	server, err := x509.NewKeyPair(ca,
		certs.ServerCertificate(name, c.addresses(), name, security.CertSANs(), now)...)
	if err != nil {
		return nil, fmt.Errorf("failed to generate API server cert: %w", err)
	}

	client, err := x509.NewKeyPair(ca,
		x509.CommonName(c.boot.Config.Hostname()),
		x509.Organization(string(role.Impersonator)),
		x509.NotBefore(now),
		x509.NotAfter(now.Add(x509.DefaultCertificateValidityDuration)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	if err != nil {
		return nil, fmt.Errorf("failed to generate API client cert: %w", err)
	}

	roots, err := c.AcceptedCAs()
	if err != nil {
		return nil, err
	}

	certificate := &certs.API{Client: certs.LeafOnly(client), Roots: roots}
	certificate.Server.Store(certs.LeafOnly(server))

	return certificate, nil
}

// askTrustd asks the control planes that this worker knows of to sign its certificate.
func (c *certificates) askTrustd() (*certs.API, error) {
	config := c.boot.Config.Settings()
	security := config.Machine().Security()

	var endpoints []string

	for _, endpoint := range c.boot.Members.controlPlaneEndpoints() {
		if at, known := c.boot.Node.Lab.network.Socket(netip.AddrPortFrom(endpoint, TrustdPort)); known {
			endpoints = append(endpoints, at.String())
		}
	}

	if len(endpoints) == 0 {
		return nil, errors.New("failed to sign API server CSR: no control plane endpoint is reachable")
	}

	roots, err := c.AcceptedCAs()
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(c.boot.Context, trustdTimeout)
	defer cancel()

	named, dns := certs.SplitNames(security.CertSANs())

	request := trustd.Request{
		Endpoints:   endpoints,
		Token:       security.Token(),
		AcceptedCAs: c.acceptedPEM(),
		Addresses:   append(c.addresses(), named...),
		Names:       append([]string{c.boot.Config.Hostname()}, dns...),
		Now:         c.boot.WallNow,
	}

	server, err := request.Send(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to sign API server CSR: %w", err)
	}

	certificate := &certs.API{Roots: roots}
	certificate.Server.Store(&server)

	return certificate, nil
}

// addresses are what the API's certificate is valid for: the node's addresses, by their declared and their
// real names.
func (c *certificates) addresses() []netip.Addr {
	addresses := append([]netip.Addr{netip.IPv6Loopback(), netip.AddrFrom4([4]byte{127, 0, 0, 1})}, c.boot.Addresses()...)

	for _, address := range c.boot.Addresses() {
		if at, known := c.boot.Node.Lab.network.Socket(netip.AddrPortFrom(address, APIPort)); known && at.Addr() != address {
			addresses = append(addresses, at.Addr())
		}
	}

	return addresses
}

// acceptedPEM are the machine CAs of the config, issuing and accepted, in PEM form.
func (c *certificates) acceptedPEM() []byte {
	security := c.boot.Config.Settings().Machine().Security()

	var pems [][]byte

	if ca := security.IssuingCA(); ca != nil {
		pems = append(pems, ca.Crt)
	}

	for _, ca := range security.AcceptedCAs() {
		pems = append(pems, ca.Crt)
	}

	return bytes.Join(pems, []byte("\n"))
}

// AcceptedCAs are whose client certificates the secure API takes.
func (c *certificates) AcceptedCAs() (*stdx509.CertPool, error) {
	pool := stdx509.NewCertPool()

	if !pool.AppendCertsFromPEM(c.acceptedPEM()) {
		return nil, errors.New("no accepted CAs")
	}

	return pool, nil
}
