package talos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"syscall"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
)

// Explain says in plain words what an error means: no secrets, no gRPC noise, one line. The address isn't repeated.
func Explain(err error) string {
	if err == nil {
		return ""
	}

	var rejected *RejectedError
	if errors.As(err, &rejected) {
		return rejected.Error()
	}

	failure := asError(OpRead, err)
	if text := explainConnection(failure, err); text != "" {
		return text + inForce(failure.Address, err) + localNetworkHint(runtime.GOOS, failure.Address, err)
	}

	if status := client.Status(failure.Err); status != nil {
		return explainStatus(failure, status.Code(), status.Message())
	}

	return oneLine(scrub(failure.Err.Error()))
}

// explained are the errors whose own text is for people.
var explained = []error{
	ErrNotTalos, ErrForeignCA, ErrInMaintenance, ErrNotMaintenance, ErrFingerprint, ErrCertificateName, ErrNoCredentials,
	ErrCredentialsExpired, ErrConnectionLost, ErrNoConfig,
}

func explainConnection(failure *Error, err error) string {
	cause := failure.Cause
	if cause == nil {
		cause = failure.Err
	}

	for _, known := range explained {
		if errors.Is(cause, known) {
			return oneLine(scrubKeepingFingerprint(cause.Error()))
		}
	}

	var (
		clock  *ClockError
		still  *StandstillError
		lookup *net.DNSError
		dial   *net.OpError
	)

	switch {
	case errors.As(err, &clock):
		return clock.Error() + ": its clock or this computer's is wrong"
	case errors.As(err, &still):
		return still.Error()
	case errors.As(err, &lookup):
		return fmt.Sprintf("the name %s does not resolve", lookup.Name)
	case errors.Is(err, ErrProxy):
		return "the connection through the proxy failed"
	case errors.Is(err, context.Canceled):
		return "stopped before the node answered"
	case errors.Is(err, syscall.ECONNREFUSED), strings.Contains(cause.Error(), "connection refused"):
		return "connection refused: its API is closed (installing, booting or restarting)"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EHOSTDOWN):
		return "no route to host: nothing answers at this address on the local network"
	case errors.Is(err, syscall.ENETUNREACH):
		return "network unreachable: this computer has no route to that network"
	case errors.As(err, &dial) && dial.Timeout():
		return errNoAnswer.Error()
	case errors.Is(err, errHungUp), errors.Is(err, errNoAnswer):
		return oneLine(scrub(cause.Error()))
	case errors.Is(err, errRejected):
		return errRejected.Error() + ": it doesn't accept this client certificate, or its API is restarting"
	default:
		return ""
	}
}

func explainStatus(failure *Error, code codes.Code, message string) string {
	message = oneLine(scrub(message))

	switch code {
	case codes.PermissionDenied, codes.Unimplemented:
		return fmt.Sprintf("%v (%s)", ErrNotAllowed, message)
	case codes.DeadlineExceeded:
		if strings.Contains(message, pullFailed) {
			return message // the deadline was the registry's
		}

		if failure.Op == OpEtcd {
			return "etcd did not answer in time: it is not up yet"
		}

		return "no answer in time"
	case codes.Canceled:
		return "the call was cut off: the node's API is restarting"
	case codes.Unavailable:
		return "the connection broke: " + transportText(message)
	default:
		return message
	}
}

// transportText is the core of gRPC's text of a broken connection.
func transportText(message string) string {
	for _, noise := range []string{`connection error: desc = `, `transport: `, `Error while dialing: `,
		`error reading from server: `} {
		message = strings.ReplaceAll(message, noise, "")
	}

	return strings.Trim(message, `" `)
}

// inForce names the proxy variable when a connection through a proxy failed.
func inForce(address string, err error) string {
	if address == "" || errors.Is(err, ErrNoCredentials) || errors.Is(err, ErrCredentialsExpired) {
		return ""
	}

	if proxy := ProxyFor(address); proxy != nil {
		return fmt.Sprintf(" (%s is in force; NO_PROXY takes addresses and CIDRs that need none)", proxy)
	}

	return ""
}

// localNetworkHint tells of the macOS permission without which a program's connections to the local network fail like
// this.
func localNetworkHint(goos, address string, err error) string {
	host, _, splitErr := splitAddress(address)
	if goos != "darwin" || splitErr != nil || !errors.Is(err, syscall.EHOSTUNREACH) || !isPrivate(host) {
		return ""
	}

	return "; if other programs reach it: System Settings, Privacy & Security, Local Network: allow it for your terminal"
}

// scrubKeepingFingerprint leaves the fingerprint in: it is public, and needed to decide.
func scrubKeepingFingerprint(text string) string {
	before, fingerprint, found := strings.Cut(text, "the node presents ")
	if !found {
		return scrub(text)
	}

	return scrub(before) + " the node presents " + fingerprint
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
