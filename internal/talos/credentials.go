package talos

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"

	"github.com/talos-mage/talos-mage/internal/base/plainfile"
	"github.com/talos-mage/talos-mage/internal/talos/talosconfig"
)

// Credentials are what a talosconfig's current context holds: the cluster's machine CA and a client certificate.
// They never change after loading and are safe for concurrent use.
type Credentials struct {
	contextName string
	endpoints   []string
	nodes       []string
	caPEM       []byte
	cas         []*x509.Certificate
	pool        *x509.CertPool
	client      tls.Certificate
	leaf        *x509.Certificate
}

// LoadCredentials reads the current context of a talosconfig. A missing file is an fs.ErrNotExist; the file is never
// created. Errors never quote the file's content.
func LoadCredentials(path string) (*Credentials, error) {
	data, _, err := plainfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("read talosconfig: %w", err)
	}

	credentials, err := ParseCredentials(data)
	if err != nil {
		return nil, fmt.Errorf("read talosconfig %s: %w", path, err)
	}

	return credentials, nil
}

// ParseCredentials is LoadCredentials for a talosconfig in memory.
func ParseCredentials(data []byte) (*Credentials, error) {
	config, err := talosconfig.Parse(data)
	if err != nil {
		return nil, err
	}

	current, ok := config.Contexts[config.Context]
	switch {
	case len(config.Contexts) == 0:
		return nil, errors.New("it has no contexts")
	case !ok:
		return nil, fmt.Errorf("its current context %q is not among its contexts", config.Context)
	case current == nil || current.CA == "" || current.Crt == "" || current.Key == "":
		return nil, fmt.Errorf("its context %q lacks ca, crt or key", config.Context)
	}

	credentials := &Credentials{
		contextName: config.Context,
		endpoints:   slices.Clone(current.Endpoints),
		nodes:       slices.Clone(current.Nodes),
		pool:        x509.NewCertPool(),
	}
	if credentials.caPEM, err = base64.StdEncoding.DecodeString(current.CA); err != nil {
		return nil, fmt.Errorf("ca of context %q is not base64", config.Context)
	}

	if credentials.cas, err = parseCertificates(credentials.caPEM); err != nil {
		return nil, fmt.Errorf("read ca of context %q: %w", config.Context, err)
	}

	for _, ca := range credentials.cas {
		credentials.pool.AddCert(ca)
	}

	if err := credentials.loadClient(current); err != nil {
		return nil, fmt.Errorf("read client certificate of context %q: %w", config.Context, err)
	}

	return credentials, nil
}

func (c *Credentials) loadClient(current *clientconfig.Context) error {
	certificate, err := base64.StdEncoding.DecodeString(current.Crt)
	if err != nil {
		return errors.New("crt is not base64")
	}

	key, err := base64.StdEncoding.DecodeString(current.Key)
	if err != nil {
		return errors.New("key is not base64")
	}

	if c.client, err = tls.X509KeyPair(certificate, key); err != nil {
		return errors.New("crt and key are not a certificate and its private key")
	}

	if c.leaf, err = x509.ParseCertificate(c.client.Certificate[0]); err != nil {
		return fmt.Errorf("parse crt: %w", err)
	}

	return nil
}

func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate: %w", err)
		}

		certificates = append(certificates, certificate)
	}

	if len(certificates) == 0 {
		return nil, errors.New("no certificate found")
	}

	return certificates, nil
}

// CA is the machine CA in PEM, as the talosconfig has it.
func (c *Credentials) CA() []byte { return slices.Clone(c.caPEM) }

// NotBefore is when the client certificate becomes valid.
func (c *Credentials) NotBefore() time.Time { return c.leaf.NotBefore }

// NotAfter is when the client certificate expires.
func (c *Credentials) NotAfter() time.Time { return c.leaf.NotAfter }

// SignedBy reports whether one of the certificate authorities in a PEM text signed the client certificate, whatever the
// dates.
func (c *Credentials) SignedBy(ca []byte) bool {
	authorities, err := parseCertificates(ca)
	return err == nil && slices.ContainsFunc(authorities,
		func(authority *x509.Certificate) bool { return c.leaf.CheckSignatureFrom(authority) == nil })
}

// Roles are the Talos roles that the client certificate grants, such as "os:admin".
func (c *Credentials) Roles() []string { return slices.Clone(c.leaf.Subject.Organization) }

// Endpoints are the endpoints of the context; machinery writes none by default.
func (c *Credentials) Endpoints() []string { return slices.Clone(c.endpoints) }

// Nodes are the default nodes of the context.
func (c *Credentials) Nodes() []string { return slices.Clone(c.nodes) }

// ContextName is the name of the current context: usually the cluster's name.
func (c *Credentials) ContextName() string { return c.contextName }

// ClusterHash identifies the cluster: the hex SHA-256 of its (first) machine CA certificate.
func (c *Credentials) ClusterHash() string {
	sum := sha256.Sum256(c.cas[0].Raw)
	return hex.EncodeToString(sum[:])
}

// signed reports whether one of the cluster's CAs signed a certificate. Validity dates play no part: a node with a
// wrong clock is still ours.
func (c *Credentials) signed(leaf *x509.Certificate) bool {
	return slices.ContainsFunc(c.cas, func(ca *x509.Certificate) bool {
		return leaf.CheckSignatureFrom(ca) == nil
	})
}
