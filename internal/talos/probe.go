package talos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// State is what answers at a node's address. Booting, installing and running are stages of a configured node, not
// states.
type State int

// States.
const (
	// Unreachable: nothing answers; Probed.Silence says how.
	Unreachable State = iota
	// NotTalos: something answers that is no Talos node.
	NotTalos
	// Maintenance: a node without a machine config.
	Maintenance
	// Ours: a configured node with a certificate of our machine CA.
	Ours
	// Foreign: a configured node with a certificate of another CA.
	Foreign
	// UnknownCA: a configured node, and no talosconfig to tell whose.
	UnknownCA
)

func (s State) String() string {
	switch s {
	case Unreachable:
		return "unreachable"
	case NotTalos:
		return "not Talos"
	case Maintenance:
		return "maintenance"
	case Ours:
		return "configured"
	case Foreign:
		return "configured (another cluster)"
	case UnknownCA:
		return "configured (CA unknown)"
	default:
		return fmt.Sprintf("state %d", int(s))
	}
}

// Silence is the way in which an unreachable node is silent.
type Silence int

// Silences.
const (
	// Answered: the node is not unreachable.
	Answered Silence = iota
	// Refused: the machine is up and its API port closed: it installs, boots or restarts its API.
	Refused
	// NoAnswer: nothing came back: the machine is off, reboots, or its firmware tests itself.
	NoAnswer
	// Broken: the way to the node failed here: a name that doesn't resolve, a proxy, no route. Probed.Err says which.
	// The node itself was not asked; take it as no answer.
	Broken
)

func (s Silence) String() string {
	switch s {
	case Answered:
		return "answered"
	case Refused:
		return "refused"
	case NoAnswer:
		return "no answer"
	case Broken:
		return "not reachable from here"
	default:
		return fmt.Sprintf("silence %d", int(s))
	}
}

// Probed is what one probe found.
type Probed struct {
	State   State
	Silence Silence
	// Address is the address as it was given to Probe.
	Address string
	// Fingerprint of the node's certificate: base64 SHA-256 of its public key, as a node's console shows it.
	// Empty if no certificate was seen.
	Fingerprint string
	// Leaf is the node's certificate, nil if none was seen.
	Leaf *x509.Certificate
	// ClockSkew is 0 when the certificate is valid now; positive: it will be valid only after that time (the node's clock
	// is ahead, or ours behind); negative: it expired that long ago.
	ClockSkew time.Duration
	// NameMismatch is set on a node of ours whose certificate doesn't name the address: its API refuses to be called
	// there.
	NameMismatch bool
	// Err says why a node is unreachable, not Talos or foreign; Explain puts it into words.
	Err error
	// Took is how long the probe lasted.
	Took time.Duration
}

// Configured reports whether the node has a machine config, whosever.
func (p Probed) Configured() bool {
	return p.State == Ours || p.State == Foreign || p.State == UnknownCA
}

// Probe finds out what answers at an address, by the TLS handshake alone: a server that asks for a client certificate
// is a configured node, one that doesn't and presents the maintenance certificate is in maintenance. No call is made,
// so that it works with every version, and error texts (a race, in TLS 1.3) play no part.
func (d *Dialer) Probe(ctx context.Context, address string) Probed {
	started := time.Now()

	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout(), errNoAnswer)
	defer cancel()

	probed := d.probe(ctx, address)
	probed.Address = address
	probed.Took = time.Since(started)
	if probed.Err != nil {
		probed.Err = &Error{Op: OpDial, Address: address, Err: probed.Err}
	}

	return probed
}

func (d *Dialer) probe(ctx context.Context, address string) Probed {
	host, port, err := splitAddress(address)
	if err != nil {
		return Probed{Silence: Broken, Err: err}
	}

	raw, err := d.open(ctx, net.JoinHostPort(host, port))
	if err != nil {
		silence, err := d.silence(address, err)
		return Probed{Silence: silence, Err: err}
	}

	defer raw.Close() //nolint:errcheck // nothing was written that could be lost

	seen := handshake(ctx, raw)

	// A server that never got as far as its certificate has told only how it broke off.
	if seen.leaf == nil || (seen.err != nil && !seen.asked) {
		return broken(ctx, seen.err)
	}

	return d.judge(host, seen)
}

// Knock finds out by a connection alone whether an address can be asked at all, and else in which way it is silent.
// Nothing is sent.
func (d *Dialer) Knock(ctx context.Context, address string) (Silence, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout(), errNoAnswer)
	defer cancel()

	host, port, err := splitAddress(address)
	if err != nil {
		return Broken, err
	}

	raw, err := d.open(ctx, net.JoinHostPort(host, port))
	if err != nil {
		return d.silence(address, err)
	}

	raw.Close() //nolint:errcheck // nothing was written that could be lost

	return Answered, nil
}

// seen is what a handshake showed, whether it was completed or not.
type seen struct {
	leaf  *x509.Certificate
	h2    bool // HTTP/2 was agreed on
	asked bool // a client certificate was asked for
	err   error
}

func handshake(ctx context.Context, raw net.Conn) seen {
	var s seen

	conn := tls.Client(raw, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // nothing is sent; the certificate is judged afterwards
		NextProtos:         []string{"h2"},
		// Without the exchange that withstands quantum computers: it takes most of a handshake's time, and there is nothing
		// to protect.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
		VerifyConnection: func(state tls.ConnectionState) error {
			s.leaf = state.PeerCertificates[0]
			s.h2 = state.NegotiatedProtocol == "h2"

			return nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			s.asked = true
			return new(tls.Certificate), nil // none
		},
	})

	s.err = conn.HandshakeContext(ctx)
	return s
}

func (d *Dialer) judge(host string, s seen) Probed {
	probed := Probed{Leaf: s.leaf, Fingerprint: fingerprintOf(s.leaf), ClockSkew: clockSkew(s.leaf, d.now())}
	switch {
	case !s.h2:
		probed.State, probed.Err = NotTalos, notTalos("a TLS server that doesn't speak HTTP/2")
	case !s.asked && s.leaf.Subject.CommonName == constants.MaintenanceServiceCommonName:
		probed.State = Maintenance
	case !s.asked:
		probed.State, probed.Err = NotTalos, notTalos("an HTTPS server that asks for no client certificate")
	case d.Credentials == nil:
		probed.State = UnknownCA
	case d.Credentials.signed(s.leaf):
		probed.State = Ours
		probed.NameMismatch = s.leaf.VerifyHostname(host) != nil
	default:
		probed.State, probed.Err = Foreign, ErrForeignCA
	}

	return probed
}

// silence tells from a failed connect how the node is silent.
func (d *Dialer) silence(address string, err error) (Silence, error) {
	if proxy := ProxyFor(address); proxy != nil {
		return proxy.silence(err), fmt.Errorf("%w %s: %w", ErrProxy, proxy, err)
	}

	var (
		lookup  *net.DNSError
		timeout net.Error
	)

	switch {
	case errors.As(err, &lookup):
		return Broken, err
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused, err
	case errors.Is(err, errNoAnswer), errors.As(err, &timeout) && timeout.Timeout(),
		// The neighbour didn't answer our own address resolution: on the local network a machine that is off.
		errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.EHOSTDOWN),
		errors.Is(err, syscall.ECONNRESET):
		return NoAnswer, err
	default:
		return Broken, err
	}
}

// broken judges a handshake that failed before a certificate was seen.
func broken(ctx context.Context, err error) Probed {
	var (
		record  tls.RecordHeaderError
		timeout net.Error
	)

	switch {
	case errors.As(err, &record):
		return Probed{State: NotTalos, Err: notTalos(protocolOf(record.RecordHeader))}
	case ctx.Err() != nil:
		return Probed{Silence: NoAnswer, Err: fmt.Errorf("TLS handshake: %w", context.Cause(ctx))}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		// A listener that is closing, or a forwarder with nothing behind it.
		return Probed{Silence: Refused, Err: fmt.Errorf("TLS handshake: %w", errHungUp)}
	case errors.As(err, &timeout) && timeout.Timeout():
		return Probed{Silence: NoAnswer, Err: fmt.Errorf("TLS handshake: %w", errNoAnswer)}
	default:
		return Probed{State: NotTalos, Err: notTalos(fmt.Sprintf("a TLS server that broke off the handshake (%v)", err))}
	}
}

func notTalos(what string) error {
	return fmt.Errorf("%w: %s", ErrNotTalos, scrub(what))
}

// protocolOf names the protocol that answers with these first five bytes instead of TLS.
func protocolOf(header [5]byte) string {
	switch text := string(header[:]); {
	case text == "HTTP/":
		return "a plain HTTP server"
	case strings.HasPrefix(text, "SSH-"):
		return "an SSH server"
	default:
		return "something that doesn't speak TLS"
	}
}
