package kubernetes

import (
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AdminOptions are what a control plane makes a kubeconfig of.
type AdminOptions struct {
	// ClusterName and Endpoint ("https://192.0.2.10:6443") are the machine config's.
	ClusterName, Endpoint string
	// IssuingCA signs the client certificate.
	IssuingCA *x509.PEMEncodedCertificateAndKey
	// AcceptedCAs are the PEM certificates that the client is to trust; nil for the issuing CA alone.
	AcceptedCAs []byte
	// CommonName and Organization of the client; "admin" and "system:masters" by default.
	CommonName, Organization string
	// Lifetime of the client certificate; a year by default.
	Lifetime time.Duration
	// Now is the node's clock; nil for the real one.
	Now func() time.Time
}

// AdminKubeconfig is the file that the Kubeconfig call returns, with the names that Talos gives: cluster <name>, user
// and context admin@<name>, namespace default. It needs no running cluster, only the machine config, and signs a new
// certificate each time.
func AdminKubeconfig(options AdminOptions) ([]byte, error) {
	if options.IssuingCA == nil {
		return nil, errors.New("issuing CA is not set")
	}

	now := time.Now()
	if options.Now != nil {
		now = options.Now()
	}

	if options.AcceptedCAs == nil {
		options.AcceptedCAs = options.IssuingCA.Crt
	}

	if options.CommonName == "" {
		options.CommonName = "admin"
	}

	if options.Organization == "" {
		options.Organization = superusers
	}

	if options.Lifetime == 0 {
		options.Lifetime = certificateLifetime
	}

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(options.IssuingCA)
	if err != nil {
		return nil, fmt.Errorf("error getting Kubernetes CA: %w", err)
	}

	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(options.CommonName),
		x509.Organization(options.Organization),
		x509.NotBefore(now.Add(-allowedSkew)),
		x509.NotAfter(now.Add(options.Lifetime)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	if err != nil {
		return nil, fmt.Errorf("error generating Kubernetes client certificate: %w", err)
	}

	client := x509.NewCertificateAndKeyFromKeyPair(pair)
	name := "admin@" + options.ClusterName

	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{options.ClusterName: {Server: options.Endpoint,
			CertificateAuthorityData: options.AcceptedCAs}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: client.Crt,
			ClientKeyData: client.Key}},
		Contexts: map[string]*clientcmdapi.Context{name: {Cluster: options.ClusterName, AuthInfo: name,
			Namespace: "default"}},
		CurrentContext: name,
	})
}
