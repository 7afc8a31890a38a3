// Package certs makes the certificates of the Talos API: those of maintenance mode, and those of configured nodes.
package certs

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// Maintenance holds the CA of the maintenance API, made anew at each boot, and its certificate. Both are made for
// the first client that needs them: most boots see none.
type Maintenance struct {
	mu   sync.Mutex
	ca   *x509.CertificateAuthority
	leaf *tls.Certificate
	due  Leaf
}

// Leaf is what a certificate of the maintenance API says.
type Leaf struct {
	Addresses []netip.Addr
	Hostname  string
	From      time.Time
}

// API is what the secure API serves and dials with.
type API struct {
	// Server is replaced when it is renewed; connections stay.
	Server atomic.Pointer[tls.Certificate]
	// Client is for forwarding calls to other nodes; only control planes have one.
	Client *tls.Certificate
	// Roots are the CAs whose client certificates are accepted.
	Roots *stdx509.CertPool
}

// Renew makes the next certificate one that says this.
func (t *Maintenance) Renew(due Leaf) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.leaf, t.due = nil, due
}

// Current is the certificate of the last renewal.
func (t *Maintenance) Current() (*tls.Certificate, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.leaf != nil {
		return t.leaf, nil
	}

	from := t.due.From

	if t.ca == nil {
		ca, err := x509.NewSelfSignedCertificateAuthority(x509.NotBefore(from), x509.NotAfter(from.Add(24*time.Hour)))
		if err != nil {
			return nil, fmt.Errorf("make maintenance CA: %w", err)
		}

		t.ca = ca
	}

	pair, err := x509.NewKeyPair(t.ca,
		ServerCertificate(constants.MaintenanceServiceCommonName, t.due.Addresses, t.due.Hostname, nil, from)...)
	if err != nil {
		return nil, fmt.Errorf("sign maintenance certificate: %w", err)
	}

	t.leaf = LeafOnly(pair)

	return t.leaf, nil
}

// TLSConfig is that of the secure API.
func (c *API) TLSConfig(oldestTLS uint16, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion:             oldestTLS,
		NextProtos:             []string{"h2"},
		SessionTicketsDisabled: true,
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              c.Roots,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.Server.Load(), nil },
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

// ServerCertificate is what the certificate of a node's API is to say, valid from now on.
func ServerCertificate(commonName string, addresses []netip.Addr, hostname string, names []string,
	now time.Time) []x509.Option {
	named, dns := SplitNames(names)

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

// SplitNames parts the additional names of a machine config into addresses and DNS names.
func SplitNames(names []string) (addresses []netip.Addr, dns []string) {
	for _, name := range names {
		if address, err := netip.ParseAddr(name); err == nil {
			addresses = append(addresses, address)
		} else {
			dns = append(dns, name)
		}
	}

	return addresses, dns
}

// LeafOnly drops the CA from the chain, which nodes do not send.
func LeafOnly(pair *x509.KeyPair) *tls.Certificate {
	certificate := *pair.Certificate
	certificate.Certificate = certificate.Certificate[:1]

	return &certificate
}
