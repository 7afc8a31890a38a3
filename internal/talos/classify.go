package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
)

// Operation is the kind of call an error came from; the same code means different things to different calls.
type Operation int

// Operations.
const (
	// OpDial is the way to the node: connect and TLS handshake.
	OpDial Operation = iota
	// OpRead reads a resource, a version, a list of services.
	OpRead
	// OpList lists a directory.
	OpList
	// OpWatch follows a resource or the events.
	OpWatch
	// OpApply sends a machine config.
	OpApply
	// OpDryRun has a machine config checked without sending it for good.
	OpDryRun
	// OpBootstrap starts a new etcd cluster on the node.
	OpBootstrap
	// OpEtcd asks the node's etcd.
	OpEtcd
	// OpKubeconfig has the node make a kubeconfig.
	OpKubeconfig
	// OpReboot reboots the node.
	OpReboot
	// OpHealth has the node check its cluster.
	OpHealth
	// OpReset wipes the node.
	OpReset
	// OpRemoveMember takes a member out of etcd.
	OpRemoveMember
	// OpEtcdUpload sends a snapshot for a later bootstrap.
	OpEtcdUpload
	// OpPull has the node fetch an image.
	OpPull
	// OpUpgrade has the node install another release.
	OpUpgrade
)

var changing = []Operation{OpApply, OpBootstrap, OpReboot, OpReset, OpRemoveMember, OpUpgrade}

// changes reports whether a call may change the node, so that a lost reply leaves its outcome unknown.
func (o Operation) changes() bool { return slices.Contains(changing, o) }

func (o Operation) verb() string {
	switch o {
	case OpDial:
		return "connect to"
	case OpRead:
		return "read from"
	case OpList:
		return "list files of"
	case OpWatch:
		return "watch"
	case OpApply:
		return "apply the machine config to"
	case OpDryRun:
		return "check the machine config on"
	case OpBootstrap:
		return "bootstrap etcd on"
	case OpEtcd:
		return "ask etcd of"
	case OpKubeconfig:
		return "get the kubeconfig from"
	case OpReboot:
		return "reboot"
	case OpHealth:
		return "have the cluster checked by"
	case OpRemoveMember:
		return "remove an etcd member through"
	case OpEtcdUpload:
		return "upload etcd's snapshot to"
	case OpReset:
		return "reset"
	case OpPull:
		return "pull an image on"
	case OpUpgrade:
		return "upgrade"
	default:
		return fmt.Sprintf("do operation %d on", int(o))
	}
}

// Class is what to do about an error.
type Class int

// Classes.
const (
	// Final: trying again can't help. The default.
	Final Class = iota
	// Retry: probe the node, and if its state still allows it, try again after a while.
	Retry
	// Done: there was no error, or what was asked for has happened before.
	Done
	// UnknownOutcome: the node may or may not have done it. It is no failure, and must not be sent again blindly:
	// probe the node, then decide.
	UnknownOutcome
)

// Classify says what to do about an error of an operation. Errors of this package carry more than their text, their own
// operation among it, and are classified best; any other error of a gRPC call works too.
func Classify(op Operation, err error) Class {
	if err == nil {
		return Done
	}

	failure := asError(op, err)
	if failure.Op != OpDial {
		op = failure.Op
	}

	for _, known := range connectionClasses {
		if errors.Is(err, known.err) {
			return failure.unlessSent(op, known.class)
		}
	}

	if errors.As(err, new(*ClockError)) || errors.As(err, new(*StandstillError)) {
		return Retry
	}

	code, text := client.StatusCode(failure.Err), failure.Err.Error()
	for _, rule := range rules {
		if rule.matches(op, code, text, failure.Insecure) {
			return rule.class
		}
	}

	if isTransport(failure.Err) {
		return failure.unlessSent(op, Retry)
	}

	return Final
}

// connectionClasses are the classes of what can be wrong with the way to a node; the first match counts.
var connectionClasses = []struct {
	err   error
	class Class
}{
	{ErrFingerprint, Final},
	{ErrForeignCA, Final},
	{ErrCertificateName, Final},
	{ErrNotTalos, Final},
	{ErrNoCredentials, Final},
	{ErrCredentialsExpired, Final},
	{context.Canceled, Final}, // the caller's own
	{ErrInMaintenance, Retry},
	{ErrNotMaintenance, Retry},
	{ErrConnectionLost, Retry},
	{ErrProxy, Retry},
	{errRejected, Retry},
	{errHungUp, Retry},
	{errNoAnswer, Retry},
	{errNoExitCode, UnknownOutcome},
}

// unlessSent is the class of a broken connection: of a call that changes the node and may have reached it, the outcome
// is unknown.
func (e *Error) unlessSent(op Operation, class Class) Class {
	if op.changes() && e.Sent {
		return UnknownOutcome
	}

	return class
}

// rule is one row of what nodes answer. Empty fields match everything; text matches anywhere in the error's text.
type rule struct {
	ops      []Operation
	code     codes.Code
	text     string
	insecure bool // only on a connection without credentials
	class    Class
}

func (r rule) matches(op Operation, code codes.Code, text string, insecure bool) bool {
	return (len(r.ops) == 0 || slices.Contains(r.ops, op)) && code == r.code && strings.Contains(text, r.text) &&
		(insecure || !r.insecure)
}

var (
	apply     = []Operation{OpApply, OpDryRun}
	bootstrap = []Operation{OpBootstrap}
	etcd      = []Operation{OpEtcd, OpRemoveMember}
	pull      = []Operation{OpPull, OpUpgrade}
)

// rules are the answers of nodes, 1.12 to 1.14, that need more than the default; the first match counts.
// docs/node-behaviour.md has them with their sources.
var rules = []rule{
	// Refusals of a client's own making, when the connection isn't a Conn: these texts are no race.
	// another cluster
	{code: codes.Unavailable, text: "while trying to verify candidate authority certificate", class: Final},
	{code: codes.Unavailable, text: "x509: certificate is valid for", class: Final},
	{code: codes.Unavailable, text: "doesn't match the provided fingerprints", class: Final},

	// Another client's apply, or an earlier one of ours that the node still works on.
	{ops: apply, code: codes.FailedPrecondition, text: "another apply configuration is already in progress", class: Retry},
	// An apply with mode REBOOT was accepted before; after the reboot the node's config can be compared.
	{ops: apply, code: codes.FailedPrecondition, text: "configuration was already applied and node is rebooting",
		class: Retry},
	// A node that just took a complete config from somebody who may have been us: it is leaving maintenance.
	{ops: []Operation{OpApply}, code: codes.PermissionDenied, text: "not authorized", insecure: true,
		class: UnknownOutcome},
	// A handler that panicked, or a stream that broke, may have got as far as storing the config.
	{ops: changing, code: codes.Internal, class: UnknownOutcome},

	{ops: bootstrap, code: codes.AlreadyExists, class: Done},
	// 1.12 answers a worker like this; every other FailedPrecondition passes with time.
	{ops: bootstrap, code: codes.FailedPrecondition, text: "bootstrap can only be performed on a control plane node",
		class: Final},
	{ops: bootstrap, code: codes.FailedPrecondition, class: Retry},
	{ops: bootstrap, code: codes.Unimplemented, text: "machine type is not set", class: Retry},
	// Talos 1.14, when an install began after it had been looked whether one runs.
	{ops: bootstrap, code: codes.Unknown, text: "bootstrap is not allowed during unattended install", class: Retry},
	// A second Bootstrap found data that a first one had just made, and may have stopped that etcd.
	{ops: bootstrap, code: codes.Unknown, text: "etcd data directory is not empty", class: UnknownOutcome},

	// etcd's certificates are written only after the time is in sync; its peers are found later still.
	{ops: etcd, code: codes.Unknown, text: "error building etcd client TLS config", class: Retry},
	{ops: etcd, code: codes.Unknown, text: "no controlplane endpoints discovered yet", class: Retry},
	// etcd's own errors lose their codes on the way.
	{ops: etcd, code: codes.Unknown, text: "etcdserver: no leader", class: Retry},
	{ops: etcd, code: codes.Unknown, text: "etcdserver: leader changed", class: Retry},
	{ops: etcd, code: codes.Unknown, text: "etcdserver: request timed out", class: Retry},
	{ops: etcd, code: codes.Unknown, text: "etcdserver: server stopped", class: Retry},
	{ops: etcd, code: codes.Unknown, text: "context deadline exceeded", class: Retry},

	// It has gone already.
	{ops: []Operation{OpRemoveMember}, code: codes.NotFound, class: Done},
	// etcd looks back over five seconds, in which a member may have come or gone.
	{ops: []Operation{OpRemoveMember}, code: codes.Unknown, text: "etcdserver: unhealthy cluster", class: Retry},

	// The volume that the upload goes to is not mounted yet.
	{ops: []Operation{OpEtcdUpload}, code: codes.FailedPrecondition, class: Retry},

	// An earlier upgrade, maybe ours, whose installer still runs.
	{ops: []Operation{OpUpgrade}, code: codes.FailedPrecondition, text: installerBusy, class: Retry},
	// A registry that is slow or busy, as the image factory is while it makes an image: the node itself pulls once. What
	// it does not find is final.
	{ops: pull, code: codes.DeadlineExceeded, text: pullFailed, class: Retry},
	{ops: pull, code: codes.Unknown, text: "context deadline exceeded", class: Retry},
	{ops: pull, code: codes.Unknown, text: "i/o timeout", class: Retry},
	{ops: pull, code: codes.Unknown, text: "TLS handshake timeout", class: Retry},
	{ops: pull, code: codes.Unknown, text: "connection reset by peer", class: Retry},
	{ops: pull, code: codes.Unknown, text: "unexpected EOF", class: Retry},
	{ops: pull, code: codes.Unknown, text: "429 Too Many Requests", class: Retry},
	{ops: pull, code: codes.Unknown, text: "502 Bad Gateway", class: Retry},
	{ops: pull, code: codes.Unknown, text: "503 Service Unavailable", class: Retry},
	{ops: pull, code: codes.Unknown, text: "504 Gateway Time", class: Retry},

	// The node's resources started afresh: list again, watch again.
	{ops: []Operation{OpWatch}, code: codes.FailedPrecondition, class: Retry},
}

// IsTimeNotSynced reports whether a Bootstrap was refused because the node's clock is not synchronised yet.
func IsTimeNotSynced(err error) bool {
	return client.StatusCode(err) == codes.FailedPrecondition &&
		strings.Contains(client.Status(err).Message(), "time is not in sync yet")
}

// IsEtcdNotConfigured reports whether a Bootstrap was refused for good, as Talos 1.14 does when the node's machine
// config has no CA for etcd.
func IsEtcdNotConfigured(err error) bool {
	return client.StatusCode(err) == codes.InvalidArgument &&
		strings.Contains(client.Status(err).Message(), "etcd is not configured")
}

// isTransport reports whether an error is the connection's, not the node's answer.
func isTransport(err error) bool {
	switch client.StatusCode(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return true
	case codes.Unknown:
		// What the operating system says of a dial comes as it is, before gRPC has a code for it.
		return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) ||
			errors.As(err, new(net.Error))
	default:
		return false
	}
}

// asError finds this package's error in a chain, or makes one of a gRPC call's own.
func asError(op Operation, err error) *Error {
	var failure *Error
	if errors.As(err, &failure) {
		return failure
	}

	return &Error{Op: op, Sent: !neverSent(err.Error()), Err: err}
}

// neverSent tells from gRPC's text that the connection never stood, so that nothing can have been sent.
func neverSent(text string) bool {
	for _, sign := range []string{
		"Error while dialing", "authentication handshake failed", "error reading server preface", "name resolver error",
		"waiting for connections to become ready",
	} {
		if strings.Contains(text, sign) {
			return true
		}
	}

	return false
}
