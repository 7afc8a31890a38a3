package talos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
)

// What can be wrong with the way to a node, or with the node at its end.
var (
	// ErrNotTalos: something answers at the address that is no Talos node.
	ErrNotTalos = errors.New("not a Talos node")
	// ErrForeignCA: the node belongs to another cluster.
	ErrForeignCA = errors.New("the node's certificate comes from another cluster's CA")
	// ErrInMaintenance: a configured node was expected, and the node is in maintenance mode.
	ErrInMaintenance = errors.New("the node is in maintenance mode")
	// ErrNotMaintenance: a node in maintenance was expected, and it isn't any more (or never was).
	ErrNotMaintenance = errors.New("the node is not in maintenance mode")
	// ErrFingerprint: the maintenance certificate is none of the given fingerprints.
	ErrFingerprint = errors.New("the node's certificate has none of the given fingerprints")
	// ErrCertificateName: the node's certificate doesn't name the address it was called at.
	ErrCertificateName = errors.New("the node's certificate doesn't name this address")
	// ErrNoCredentials: a configured node can't be called without a talosconfig.
	ErrNoCredentials = errors.New("there is no talosconfig")
	// ErrCredentialsExpired: the talosconfig's client certificate has expired.
	ErrCredentialsExpired = errors.New("the talosconfig's client certificate expired")
	// ErrProxy: the proxy that the environment prescribes is in the way.
	ErrProxy = errors.New("the connection goes through the proxy")
	// ErrConnectionLost: the one connection of a Conn is gone; dial again.
	ErrConnectionLost = errors.New("the connection to the node was lost")
)

// What a node can answer.
var (
	// ErrNotAllowed: the node refuses this call here: its role, its mode (maintenance) or our role don't allow it.
	// Talos 1.12 says so with Unimplemented, 1.13 with PermissionDenied.
	ErrNotAllowed = errors.New("the node doesn't allow this here")
	// ErrNotFound: the node has no such resource, file or directory.
	ErrNotFound = errors.New("not found")
	// ErrNoConfig: the node has no complete machine config.
	ErrNoConfig = errors.New("the node has no machine config")
)

var (
	errNoAnswer = errors.New("no answer in time")
	errHungUp   = errors.New("the connection was closed without an answer")
	// errRejected: TLS was agreed on, and then the node hung up: that is how a TLS 1.3 server refuses a client
	// certificate.
	errRejected = errors.New("the node closed the connection right after the TLS handshake")
)

// ClockError says that a node's certificate isn't valid now: its clock or ours is wrong.
type ClockError struct {
	// Skew is positive when the certificate becomes valid only after that time, negative when it expired that long ago.
	Skew time.Duration
}

func (e *ClockError) Error() string {
	if e.Skew > 0 {
		return fmt.Sprintf("the node's certificate becomes valid only in %s", e.Skew.Round(time.Second))
	}

	return fmt.Sprintf("the node's certificate expired %s ago", (-e.Skew).Round(time.Second))
}

// Error is how every call of this package fails.
type Error struct {
	Op      Operation
	Address string
	// Insecure is set when the call went to a node in maintenance mode, without credentials.
	Insecure bool
	// Sent reports whether the request was handed to the connection, so that the node may have acted on it.
	Sent bool
	// Cause is what happened to the connection, if anything did.
	Cause error
	// Err is what the call returned. Its text may hold what people must not see.
	Err error
}

// Error says in plain words what happened, without secrets.
func (e *Error) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Op.verb(), e.Address, Explain(e))
}

// Unwrap gives the connection's and the call's errors.
func (e *Error) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Cause, e.Err} {
		if err != nil {
			errs = append(errs, err)
		}
	}

	return errs
}

// Is matches the sentinels that stand for gRPC codes.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotAllowed:
		code := client.StatusCode(e.Err)
		return code == codes.PermissionDenied || code == codes.Unimplemented
	case ErrNotFound:
		return isNotFound(e.Err)
	case context.DeadlineExceeded:
		return client.StatusCode(e.Err) == codes.DeadlineExceeded
	default:
		return false
	}
}

func isNotFound(err error) bool {
	return err != nil && (state.IsNotFoundError(err) || client.StatusCode(err) == codes.NotFound)
}
