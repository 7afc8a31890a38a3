package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// Wiring maps the addresses that nodes believe they have to sockets on this machine.
type Wiring struct {
	mu     sync.Mutex
	routes map[netip.Addr]netip.Addr
	// single is set when all nodes share one address and differ by port only.
	single netip.Addr
	ports  map[netip.AddrPort]uint16
}

// NewWiring maps nothing yet.
func NewWiring() *Wiring {
	return &Wiring{routes: map[netip.Addr]netip.Addr{}, ports: map[netip.AddrPort]uint16{}}
}

// Socket is where a declared address is found here. The second result is false when it is nowhere: outside of loopback,
// where no lab ever reaches, or, with a single address, while nothing ever listened there.
func (n *Wiring) Socket(declared netip.AddrPort) (netip.AddrPort, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.single.IsValid() {
		number, ok := n.ports[declared]

		return netip.AddrPortFrom(n.single, number), ok
	}

	if to, ok := n.routes[declared.Addr()]; ok {
		return netip.AddrPortFrom(to, declared.Port()), true
	}

	return declared, declared.Addr().IsLoopback()
}

// ShareAddress makes all nodes share one address and differ by port only.
func (n *Wiring) ShareAddress(address netip.Addr) { n.single = address }

// Leads reports whether a declared address was given a place here.
func (n *Wiring) Leads(declared netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	_, mapped := n.routes[declared]

	return mapped || n.single.IsValid()
}

// Route makes a declared address lead to an actual one.
func (n *Wiring) Route(declared, actual netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.routes[declared] = actual
}

// Listen listens where a declared address is found here.
func (n *Wiring) Listen(declared netip.AddrPort) (net.Listener, error) {
	at, known := n.Socket(declared)
	if !known && !at.Addr().IsLoopback() {
		return nil, fmt.Errorf("open %s: it is neither a loopback address nor mapped to one", at)
	}

	listener, err := net.Listen("tcp", at.String())
	if err != nil {
		return nil, OpenError(at, err)
	}

	n.remember(declared, listener.Addr())

	return listener, nil
}

// Reserve proves that nobody else listens where a declared address is found here, and settles its port.
func (n *Wiring) Reserve(declared netip.AddrPort) error {
	listener, err := onceFree(func() (net.Listener, error) { return n.Listen(declared) })
	if err != nil {
		return err
	}

	return listener.Close() //nolint:wrapcheck // it names the address
}

// leaving is how long an address may be in use that was let go of, of the wall's time.
const leaving = 2 * time.Second

// onceFree listens where somebody may still be leaving: a child process that this one is just starting has a copy of
// each socket until it executes its program.
func onceFree[T any](listen func() (T, error)) (T, error) {
	for until := time.Now().Add(leaving); ; time.Sleep(rebind) { //nolint:forbidigo // of the wall's time, as a process starts
		opened, err := listen()
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(until) {
			return opened, err
		}
	}
}

// OpenError says what is in the way of a listener.
func OpenError(at netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("open %s: the port is in use on that address: %w", at, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("open %s: this system does not have the address (where 127.0.0.1 is the only one of loopback, "+
			"machines have to share it): %w", at, err)
	default:
		return fmt.Errorf("open %s: %w", at, err)
	}
}

// remember keeps the port that a single-address node was given, so that it finds the same one after a reboot.
func (n *Wiring) remember(declared netip.AddrPort, actual net.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if tcp, ok := actual.(*net.TCPAddr); ok && n.single.IsValid() {
		n.ports[declared] = uint16(tcp.Port) //nolint:gosec // a port fits
	}
}

// Dial connects to a declared address.
func (n *Wiring) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	at, known := n.Socket(to)
	if !known {
		return nil, fmt.Errorf("dial tcp %s: connect: connection refused", to)
	}

	dialer := net.Dialer{Timeout: 10 * time.Second}

	return dialer.DialContext(ctx, "tcp", at.String())
}

func (n *Wiring) blackHole(declared netip.AddrPort) (*blackHole, error) {
	at, known := n.Socket(declared)
	if !known {
		return nil, nil //nolint:nilnil // where nothing ever listened nothing needs to fall silent
	}

	hole, err := newBlackHole(at)
	if err != nil {
		return nil, fmt.Errorf("silence %s: %w", at, err)
	}

	return hole, nil
}
