package talos

import (
	"crypto/x509"
	"strings"
)

// certificateNames are the addresses and names that a certificate is valid for, joined by commas.
func certificateNames(leaf *x509.Certificate) string {
	var names []string
	for _, address := range leaf.IPAddresses {
		names = append(names, address.String())
	}

	names = append(names, leaf.DNSNames...)
	if len(names) == 0 {
		return "nothing"
	}

	return strings.Join(names, ", ")
}
