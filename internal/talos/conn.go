package talos

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/stats"
)

// Conn is one connection to one node. Close it after use. It is safe for concurrent use.
type Conn struct {
	address string
	timeout time.Duration
	dialled time.Time
	api     *client.Client

	mu          sync.Mutex
	insecure    bool
	fingerprint string
	leaf        *x509.Certificate
	opened      bool  // something accepted it
	up          bool  // the connection once stood
	cause       error // the last thing that went wrong with the connection
}

// connect dials and waits until the connection stands, or says why it doesn't.
func (d *Dialer) connect(ctx context.Context, address string, door door) (*Conn, error) {
	conn := &Conn{address: address, insecure: door == maintenanceDoor, timeout: d.timeout(), dialled: d.now()}

	host, port, err := splitAddress(address)
	if err != nil {
		return nil, conn.failure(OpDial, nil, err)
	}

	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout(), errNoAnswer)
	defer cancel()

	conn.api, err = client.New(ctx,
		client.WithDefaultGRPCDialOptions(),
		client.WithTLSConfig(d.tlsConfig(host, door, conn.admit)),
		// A zone's percent sign is escaped because the target is parsed as a URL.
		client.WithEndpoints(net.JoinHostPort(strings.ReplaceAll(host, "%", "%25"), port)),
		client.WithGRPCDialOptions(
			grpc.WithContextDialer(conn.dialOnce(d)),
			grpc.WithResolvers(plainResolver{}),
			grpc.WithStatsHandler(sentRecorder{}),
			grpc.WithDisableServiceConfig(),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1,
					MaxDelay: 100 * time.Millisecond},
				// Later than our own limit, which says why it is over.
				MinConnectTimeout: 2 * d.timeout(), //nolint:mnd // as above
			}),
		),
	)
	if err != nil {
		return nil, conn.failure(OpDial, nil, fmt.Errorf("make client: %w", err))
	}

	if err := conn.await(ctx); err != nil {
		conn.Close()

		if conn.Leaf() == nil && errors.Is(err, errNoAnswer) {
			err = conn.unanswered(d, err)
		}

		// gRPC doesn't tell what broke a handshake before the certificate came; the probe does.
		if errors.Is(err, errRejected) && conn.Leaf() == nil && door != eitherDoor {
			if probed := d.Probe(ctx, address); probed.Err != nil {
				return nil, probed.Err
			}
		}

		return nil, conn.failure(OpDial, nil, err)
	}

	return conn, nil
}

// await waits until gRPC has the node's first HTTP/2 frame, which comes only after the node accepted our certificate.
func (c *Conn) await(ctx context.Context) error {
	transport := c.api.Conn()
	transport.Connect()

	for {
		shaken := c.Leaf() != nil

		current := transport.GetState()
		switch current {
		case connectivity.Ready:
			c.mu.Lock()
			c.up = true
			c.mu.Unlock()

			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			if c.lastCause() == nil {
				return errRejected
			}

			return c.lastCause()
		case connectivity.Idle:
			// It stood, and was lost before anybody saw that: gRPC would not try again by itself.
			if shaken {
				return ErrConnectionLost
			}
		case connectivity.Connecting:
		}

		if !transport.WaitForStateChange(ctx, current) {
			if cause := c.lastCause(); cause != nil {
				return cause
			}

			return context.Cause(ctx)
		}
	}
}

// admit notes the node's certificate and whether it is that of maintenance mode, or why it is refused. Only one
// handshake may succeed in a Conn's life: a second one would be with a machine that nobody identified.
func (c *Conn) admit(leaf *x509.Certificate, insecure bool, refusal error) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch {
	case c.leaf != nil:
		return c.lost()
	case refusal != nil:
		c.cause = refusal
		return refusal
	default:
		c.leaf, c.fingerprint, c.insecure = leaf, fingerprintOf(leaf), insecure
		return nil
	}
}

// lost is what gRPC's own attempts to reconnect are refused with.
func (c *Conn) lost() error {
	if c.up {
		c.cause = ErrConnectionLost
	}

	return ErrConnectionLost
}

// dialOnce opens the connection unless there was one already, and notes why it failed.
func (c *Conn) dialOnce(d *Dialer) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		if err := c.refuseSecond(); err != nil {
			return nil, err
		}

		raw, err := d.open(ctx, address)
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()

			c.cause = d.unreached(c.address, err)

			return nil, c.cause
		}

		c.mu.Lock()
		defer c.mu.Unlock()

		c.opened = true

		return raw, nil
	}
}

// unanswered says where a connection was not answered in time.
func (c *Conn) unanswered(d *Dialer, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.opened {
		return &unreachedError{fmt.Errorf("TLS handshake: %w", err), NoAnswer}
	}

	return d.unreached(c.address, err)
}

// unreachedError is of an address at which nothing answered.
type unreachedError struct {
	error
	silence Silence
}

func (e *unreachedError) Unwrap() error { return e.error }

func (d *Dialer) unreached(address string, err error) error {
	if errors.As(err, new(*unreachedError)) {
		return err
	}

	silence, err := d.silence(address, err)

	return &unreachedError{err, silence}
}

func (c *Conn) refuseSecond() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.leaf != nil {
		return c.lost()
	}

	return nil
}

func (c *Conn) lastCause() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.cause
}

// Close ends the connection.
func (c *Conn) Close() {
	// Closing a gRPC connection only fails when it was closed before.
	_ = c.api.Close()
}

// Address is the address that was dialled.
func (c *Conn) Address() string { return c.address }

// Insecure reports whether the node is in maintenance mode.
func (c *Conn) Insecure() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.insecure
}

// Fingerprint is that of the certificate the node presented on this very connection.
func (c *Conn) Fingerprint() string {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.fingerprint
}

// Leaf is the certificate the node presented on this very connection.
func (c *Conn) Leaf() *x509.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.leaf
}

// Probed is what a probe would have found when the connection was made.
func (c *Conn) Probed() Probed {
	leaf := c.Leaf()
	probed := Probed{State: Ours, Address: c.address, Fingerprint: c.Fingerprint(), Leaf: leaf,
		ClockSkew: clockSkew(leaf, c.dialled)}

	if c.Insecure() {
		probed.State = Maintenance
	}

	return probed
}

// Stands reports whether nobody is known to have ended the connection.
func (c *Conn) Stands() bool { return c.api.Conn().GetState() == connectivity.Ready }

// call makes one call with the given limit (the context's own, if shorter) and turns its error into an *Error.
func (c *Conn) call(ctx context.Context, op Operation, limit time.Duration, do func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()

	limited, request := trace(limited)

	err := do(limited)
	if err == nil {
		return nil
	}

	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		err = fmt.Errorf("%w: %w", context.Canceled, err) // the caller stopped it, not the node
	}

	return c.failure(op, request, err)
}

// read is call for what changes nothing.
func (c *Conn) read(ctx context.Context, op Operation, do func(context.Context) error) error {
	return c.call(ctx, op, c.timeout, do)
}

func (c *Conn) failure(op Operation, request *request, err error) error {
	failure := &Error{Op: op, Address: c.address, Insecure: c.Insecure(), Err: err}

	if request != nil {
		failure.Sent = request.sent.Load()
	}

	if cause := c.lastCause(); cause != nil && !errors.Is(err, cause) && isTransport(err) {
		failure.Cause = cause
	}

	return failure
}

// request notes whether a call's message was handed to the connection.
type request struct{ sent atomic.Bool }

type requestKey struct{}

func trace(ctx context.Context) (context.Context, *request) {
	r := new(request)
	return context.WithValue(ctx, requestKey{}, r), r
}

// sentRecorder marks a request as sent as soon as its message is on its way. What was not handed to a connection can't
// have reached the node; gRPC's error texts tell that less surely.
type sentRecorder struct{}

func (sentRecorder) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (sentRecorder) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, ok := event.(*stats.OutPayload); !ok {
		return
	}

	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		r.sent.Store(true)
	}
}

func (sentRecorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (sentRecorder) HandleConn(context.Context, stats.ConnStats) {}
