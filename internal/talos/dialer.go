package talos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	cryptox509 "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/client/dialer"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// DefaultTimeout bounds connect, handshake and each read when a Dialer has no timeout of its own.
const DefaultTimeout = 5 * time.Second

// Dialer connects to nodes. The zero value works in maintenance mode; Credentials are needed for configured nodes.
// It must not be changed while in use and is then safe for concurrent use.
type Dialer struct {
	// Credentials of the cluster; nil when there is no talosconfig.
	Credentials *Credentials
	// Timeout bounds connect plus handshake, and each read; DefaultTimeout when zero.
	Timeout time.Duration
	// Fingerprints, when given, are the only certificates (base64 SHA-256 of the public key, as a node's console shows it)
	// that a node in maintenance may present.
	Fingerprints []string
	// Dial opens connections; machinery's own dialer, which reads the proxy variables each time, when nil.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Now is the time that certificates are compared with; time.Now when nil.
	Now func() time.Time
}

func (d *Dialer) timeout() time.Duration {
	if d.Timeout > 0 {
		return d.Timeout
	}

	return DefaultTimeout
}

func (d *Dialer) now() time.Time {
	if d.Now != nil {
		return d.Now()
	}

	return time.Now()
}

// Accepts reports whether a maintenance certificate with this fingerprint may be talked to: always, unless Fingerprints
// are given.
func (d *Dialer) Accepts(fingerprint string) bool {
	return len(d.Fingerprints) == 0 || slices.Contains(d.Fingerprints, fingerprint)
}

// Maintenance connects to a node in maintenance mode, without credentials. The connection is the only one that the Conn
// ever uses: when it is lost, every further call fails, so what was read and what is sent concern the same machine.
// A node that presents another certificate than that of maintenance mode is refused with ErrNotMaintenance.
func (d *Dialer) Maintenance(ctx context.Context, address string) (*Conn, error) {
	return d.connect(ctx, address, maintenanceDoor)
}

// Secure connects to a configured node with the credentials, also over exactly one connection.
// Certificates of the node are verified: maintenance mode is ErrInMaintenance, another cluster's CA ErrForeignCA.
func (d *Dialer) Secure(ctx context.Context, address string) (*Conn, error) {
	if err := d.lacksCredentials(); err != nil {
		return nil, &Error{Op: OpDial, Address: address, Err: err}
	}

	return d.connect(ctx, address, secureDoor)
}

// lacksCredentials is why nothing can be asked of a configured node.
func (d *Dialer) lacksCredentials() error {
	switch {
	case d.Credentials == nil:
		return ErrNoCredentials
	case d.now().After(d.Credentials.NotAfter()):
		return fmt.Errorf("%w on %s", ErrCredentialsExpired, d.Credentials.NotAfter().UTC().Format(time.DateOnly))
	default:
		return nil
	}
}

// Open connects to what a probe found, in the way that it takes. What is neither in maintenance nor ours can't be read:
// then there is no connection, and the error is what the probe said of it, if anything.
func (d *Dialer) Open(ctx context.Context, probed Probed) (*Conn, error) {
	switch probed.State {
	case Maintenance:
		return d.Maintenance(ctx, probed.Address)
	case Ours:
		return d.Secure(ctx, probed.Address)
	default:
		return nil, probed.Err
	}
}

// Meet connects to a node in maintenance or of our own, whichever answers, by one handshake: with the credentials, if
// the node's certificate is ours. What it found is what a probe finds; there is no connection to anything else.
func (d *Dialer) Meet(ctx context.Context, address string) (Probed, *Conn) {
	conn, err := d.connect(ctx, address, eitherDoor)
	if err == nil {
		return conn.Probed(), conn
	}

	var unreached *unreachedError
	if errors.As(err, &unreached) { // else the probe says what answers
		return Probed{Silence: unreached.silence, Address: address, Err: err}, nil
	}

	return d.Probe(ctx, address), nil
}

// door is one of a node's two APIs: that of maintenance mode, or that of configured nodes.
type door int

const (
	maintenanceDoor door = iota
	secureDoor
	// eitherDoor is the one that the node's certificate shows.
	eitherDoor
)

// of is the door that a certificate is taken for.
func (r door) of(leaf *x509.Certificate) door {
	switch {
	case r != eitherDoor:
		return r
	case leaf.Subject.CommonName == constants.MaintenanceServiceCommonName:
		return maintenanceDoor
	default:
		return secureDoor
	}
}

// tlsConfig is that of a Conn. The standard verification is replaced by verify, so that each refusal has its own error.
// The credentials are for whoever has passed it.
func (d *Dialer) tlsConfig(host string, door door, admit func(*x509.Certificate, bool, error) error) *tls.Config {
	var insecure bool

	return &tls.Config{
		MinVersion:         tls.VersionTLS12, // Talos 1.12 takes 1.2, 1.13 only 1.3
		InsecureSkipVerify: true,             //nolint:gosec // verified below
		VerifyConnection: func(state tls.ConnectionState) error {
			leaf := state.PeerCertificates[0]
			insecure = door.of(leaf) == maintenanceDoor

			return admit(leaf, insecure, d.verify(leaf, host, insecure))
		},
		GetClientCertificate: func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if !insecure && asked.SupportsCertificate(&d.Credentials.client) == nil {
				return &d.Credentials.client, nil
			}

			return new(tls.Certificate), nil // none
		},
	}
}

func (d *Dialer) verify(leaf *x509.Certificate, host string, insecure bool) error {
	if insecure {
		fingerprint := fingerprintOf(leaf)
		switch {
		case leaf.Subject.CommonName != constants.MaintenanceServiceCommonName:
			return ErrNotMaintenance
		case !d.Accepts(fingerprint):
			return fmt.Errorf("%w: the node presents %s", ErrFingerprint, fingerprint)
		default:
			return nil
		}
	}

	if err := d.lacksCredentials(); err != nil {
		return err
	}

	if !d.Credentials.signed(leaf) {
		if leaf.Subject.CommonName == constants.MaintenanceServiceCommonName {
			return ErrInMaintenance
		}

		return ErrForeignCA
	}

	if skew := clockSkew(leaf, d.now()); skew != 0 {
		return &ClockError{Skew: skew}
	}

	if err := leaf.VerifyHostname(host); err != nil {
		return fmt.Errorf("%w: it names %s", ErrCertificateName, certificateNames(leaf))
	}

	// What is left concerns the CA's own dates and the certificate's usages.
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots:       d.Credentials.pool,
		CurrentTime: d.now(),
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForeignCA, err)
	}

	return nil
}

func fingerprintOf(leaf *x509.Certificate) string {
	return cryptox509.SPKIFingerprint(leaf).String()
}

// clockSkew is 0 for a certificate that is valid now, how far off it still is (positive), or how long it has expired
// (negative).
func clockSkew(leaf *x509.Certificate, now time.Time) time.Duration {
	switch {
	case now.Before(leaf.NotBefore):
		return leaf.NotBefore.Sub(now)
	case now.After(leaf.NotAfter):
		return leaf.NotAfter.Sub(now)
	default:
		return 0
	}
}

// open dials through Dial, and returns as soon as the context is done even where the dialer doesn't:
// machinery's waits for a proxy's answer without looking at the context.
func (d *Dialer) open(ctx context.Context, address string) (net.Conn, error) {
	dial := d.Dial
	if dial == nil {
		dial = dialer.DynamicProxyDialer
	}

	type result struct {
		conn net.Conn
		err  error
	}

	done := make(chan result, 1)

	go func() {
		conn, err := dial(ctx, address)
		done <- result{conn, err}
	}()

	select {
	case r := <-done:
		return r.conn, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.conn != nil {
				r.conn.Close() //nolint:errcheck // nobody waits for it any more
			}
		}()

		return nil, context.Cause(ctx)
	}
}
