package kube

import (
	"crypto/x509"
	"maps"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
)

// ClientCertificate is the certificate that a kubeconfig shows a cluster, known by its CA, and the context that has it:
// the current one if that is of this cluster. Nil if there is none.
func ClientCertificate(kubeconfig, ca []byte) (certificate *x509.Certificate, context string) {
	authorities, err := parseCertificates(ca)
	if err != nil || len(authorities) == 0 {
		return nil, ""
	}

	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, ""
	}

	for _, name := range append([]string{config.CurrentContext}, slices.Sorted(maps.Keys(config.Contexts))...) {
		found := lookup(config, name)
		if found.certificate != nil && containsAll(found.authorities, authorities) {
			return found.certificate, name
		}
	}

	return nil, ""
}
