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

// ServesCA tells who is behind an address ("192.0.2.10:6443"): answered, whether anything accepts a connection there;
// ours, whether it then proves in a TLS handshake to hold a certificate that one of the PEM certificates signed.
// Without certificates nothing is ours.
//
// Neither the certificate's names nor its dates matter: the question is whose API it is, not whether it is in order.
// The context bounds the call, and nothing that answers before its deadline is an answer of no. The error is about the
// arguments and the context alone: certificates that can't be read, an address without a port, a cancelled context.
func ServesCA(ctx context.Context, address string, caPEM []byte) (answered, ours bool, err error) {
	authorities, err := parseCertificates(caPEM)
	if err != nil {
		return false, false, err
	}

	if _, _, err := net.SplitHostPort(address); err != nil {
		return false, false, fmt.Errorf("read address: %w", err)
	}

	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return false, false, cancellation(ctx)
	}

	// Nothing was written that could get lost.
	defer func() { _ = conn.Close() }()

	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is verified below, against one CA and nothing else
	if client.HandshakeContext(ctx) != nil {
		return true, false, cancellation(ctx)
	}

	leaf := client.ConnectionState().PeerCertificates[0]

	return true, signedBy(leaf, authorities), nil
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
