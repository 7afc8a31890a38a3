package generate

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"

	"github.com/siderolabs/crypto/x509"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// talosconfig has the control planes as endpoints and all machines as nodes.
func (c *cluster) talosconfig() ([]byte, error) {
	var endpoints, nodes []string

	for _, entry := range c.entries {
		nodes = append(nodes, entry.addresses()...)

		if entry.ControlPlane {
			endpoints = append(endpoints, entry.addresses()...)
		}
	}

	return c.source.talosconfig(c.config.ClusterName, endpoints, nodes)
}

// talosconfig has one context, which has the cluster's name.
func (s Source) talosconfig(cluster string, endpoints, nodes []string) ([]byte, error) {
	certificate, err := s.ClientCertificate(cluster, role.MakeSet(role.Admin))
	if err != nil {
		return nil, fmt.Errorf("make client certificate: %w", err)
	}

	client := clientconfig.NewConfig(cluster, endpoints, s.Secrets.Certs.OS.Crt, certificate)
	client.Contexts[client.Context].Nodes = nodes

	data, err := client.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encode talosconfig: %w", err)
	}

	return data, nil
}

// ClientCertificate is one of these roles, as machinery makes them, but that key and serial number follow from the
// cluster's CA and the time: the same source gives the same talosconfig. Who knows the CA's key can sign any
// certificate anyway.
func (s Source) ClientCertificate(cluster string, roles role.Set) (*x509.PEMEncodedCertificateAndKey, error) {
	authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(s.Secrets.Certs.OS)
	if err != nil {
		return nil, err
	}

	from := s.Now.UTC()

	derived, err := hkdf.Key(sha256.New, s.Secrets.Certs.OS.Key, nil, "talosconfig of "+cluster+from.String(),
		ed25519.SeedSize+16)
	if err != nil {
		return nil, err
	}

	key := ed25519.NewKeyFromSeed(derived[:ed25519.SeedSize])

	template := &stdx509.Certificate{
		SerialNumber:          new(big.Int).SetBytes(derived[ed25519.SeedSize:]),
		Subject:               pkix.Name{Organization: roles.Strings()},
		NotBefore:             from,
		NotAfter:              from.Add(constants.TalosAPIDefaultCertificateValidityDuration),
		KeyUsage:              stdx509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}

	certificate, err := stdx509.CreateCertificate(rand.Reader, template, authority.Crt, key.Public(), authority.Key)
	if err != nil {
		return nil, err
	}

	private, err := stdx509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}

	return &x509.PEMEncodedCertificateAndKey{
		Crt: pem.EncodeToMemory(&pem.Block{Type: x509.PEMTypeCertificate, Bytes: certificate}),
		Key: pem.EncodeToMemory(&pem.Block{Type: x509.PEMTypeEd25519Private, Bytes: private}),
	}, nil
}
