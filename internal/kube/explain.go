package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Explain says in plain words why a request failed; empty for no error. It holds no credentials: neither requests nor
// certificates are quoted.
func Explain(err error) string {
	var (
		notReady *NotReadyError
		status   apierrors.APIStatus
	)

	switch {
	case err == nil:
		return ""
	case errors.As(err, &notReady):
		return "it answers, but is not ready: failing checks " + strings.Join(notReady.Failing, ", ")
	case errors.As(err, &status):
		return explainStatus(status)
	}

	if text := explainTLS(err); text != "" {
		return text
	}

	return explainNetwork(err)
}

// explainStatus is for an API server that answered with a failure.
func explainStatus(status apierrors.APIStatus) string {
	answer := status.Status()

	switch answer.Code {
	case http.StatusUnauthorized:
		return "it does not accept the kubeconfig's client certificate (401): the certificate is another cluster's or out " +
			"of date, or a clock is wrong"
	case http.StatusForbidden:
		return "it knows the kubeconfig's user, who may not do this (403)"
	case http.StatusNotFound:
		return "it answers, but not like a Kubernetes API (404)"
	}

	message := answer.Message

	// client-go wraps a body that it can't read in a sentence of its own; the cause is the body.
	if details := answer.Details; details != nil {
		for _, cause := range details.Causes {
			if cause.Message != "" && cause.Message != "unknown" {
				message = cause.Message
			}
		}
	}

	message, _, _ = strings.Cut(strings.TrimSpace(message), "\n")

	return fmt.Sprintf("it answers with an error (%d): %s", answer.Code, message)
}

// explainTLS is for a handshake that failed; empty if it is something else.
func explainTLS(err error) string {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		alert     tls.AlertError
		record    tls.RecordHeaderError
	)

	switch {
	case errors.As(err, &authority):
		return "what answers there has a certificate of another CA than the kubeconfig's: another cluster, or not Kubernetes"
	case errors.As(err, &name):
		return fmt.Sprintf("its certificate is not valid for %s: add that to cluster.apiServer.certSANs, or use another "+
			"address", name.Host)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate is not valid at this time: it has expired, or a clock is wrong"
	case errors.As(err, &invalid):
		return "its certificate is not valid"
	case errors.As(err, &alert):
		return "it broke off the TLS handshake"
	case errors.As(err, &record),
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // net/http has no type for it
		return "something answers there, but not with TLS"
	default:
		return ""
	}
}

// explainNetwork is for a connection that did not come about or broke.
func explainNetwork(err error) string {
	var (
		request    *url.Error
		resolution *net.DNSError
		network    net.Error
	)

	where := "it"
	if errors.As(err, &request) {
		if target, parseErr := url.Parse(request.URL); parseErr == nil && target.Host != "" {
			where = target.Host
		}
	}

	switch {
	case errors.As(err, &resolution):
		return fmt.Sprintf("the name %s does not resolve", resolution.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("%s refuses connections: nothing listens there", where)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Sprintf("there is no route to %s", where)
	case errors.Is(err, context.Canceled):
		return "the request was cancelled"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return fmt.Sprintf("%s did not answer in time", where)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Sprintf("%s closed the connection without an answer", where)
	default:
		return strings.Join(strings.Fields(innermost(err).Error()), " ")
	}
}

// innermost is the cause without the sentences around it, of which one is the request's address.
func innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}

		err = inner
	}
}

// Diagnose finds the catalogue's entry for a request that failed.
func Diagnose(err error) diagnosis.ID {
	var authority x509.UnknownAuthorityError

	switch {
	case errors.As(err, &authority):
		return diagnosis.APIForeign
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return diagnosis.APIRefusesClient
	default:
		return diagnosis.APINotReady
	}
}

// MayPass reports whether a request that failed may work later: not one that the API refuses, nor one whose certificate
// is not the right one.
func MayPass(err error) bool {
	var (
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
	)

	return err != nil && Diagnose(err) == diagnosis.APINotReady && !errors.As(err, &name) && !errors.As(err, &invalid)
}
