package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
)

// Server is what is behind an address.
type Server int

// Servers, the more like a cluster's own API the later.
const (
	// NoServer accepts no connection.
	NoServer Server = iota
	// NotTLS accepts connections and hangs up, or speaks something else, as a balancer does with nothing behind it.
	NotTLS
	// MuteServer accepts connections, and says nothing in time.
	MuteServer
	// OtherServer shows a certificate of another authority.
	OtherServer
	// OwnServer shows one that an authority asked for has signed.
	OwnServer
)

// ServesCA tells who is behind an address ("192.0.2.10:6443"), by the certificate that it shows in a TLS handshake and
// proves to hold. Without PEM certificates of authorities nothing is the cluster's own.
//
// Neither the certificate's names nor its dates matter: the question is whose API it is, not whether it is in order.
// The context bounds the call. The error is about the arguments and the context alone: certificates that can't be read,
// an address without a port, a cancelled context.
func ServesCA(ctx context.Context, address string, caPEM []byte) (Server, error) {
	authorities, err := parseCertificates(caPEM)
	if err != nil {
		return NoServer, err
	}

	if _, _, err := net.SplitHostPort(address); err != nil {
		return NoServer, fmt.Errorf("read address: %w", err)
	}

	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return NoServer, cancellation(ctx)
	}

	// Nothing was written that could get lost.
	defer func() { _ = conn.Close() }()

	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is verified below, against one CA and nothing else
	if err := client.HandshakeContext(ctx); err != nil {
		return unproven(ctx), cancellation(ctx)
	}

	if signedBy(client.ConnectionState().PeerCertificates[0], authorities) {
		return OwnServer, nil
	}

	return OtherServer, nil
}

// unproven is a server with which no handshake came about.
func unproven(ctx context.Context) Server {
	if ctx.Err() != nil {
		return MuteServer
	}

	return NotTLS
}

// cancellation is the error of a caller who lost interest; a deadline that passed is none.
func cancellation(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}

	return nil
}

// signedBy reports whether one of the authorities signed the certificate, whatever the date.
func signedBy(certificate *x509.Certificate, authorities []*x509.Certificate) bool {
	for _, authority := range authorities {
		if certificate.CheckSignatureFrom(authority) == nil {
			return true
		}
	}

	return false
}

// parseCertificates reads every certificate of a PEM bundle; what else is in it is passed over.
func parseCertificates(bundle []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate

	for {
		var block *pem.Block

		block, bundle = pem.Decode(bundle)
		if block == nil {
			return certificates, nil
		}

		if block.Type != "CERTIFICATE" {
			continue
		}

		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse CA certificate: %w", err)
		}

		certificates = append(certificates, certificate)
	}
}
