package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Ports that a Talos node listens on.
const (
	APIPort        = 50000 // the Talos API
	TrustdPort     = 50001 // trustd, on control planes
	KubernetesPort = 6443  // kube-apiserver, on control planes
)

// NIC is a node's network card. Every port of the node is opened through it, so that the network faults act on all of
// them: a refused port answers RST, a silent machine answers nothing at all.
type NIC struct {
	network *Wiring

	mu        sync.Mutex
	addresses []netip.Addr
	own       []netip.Addr // the addresses that are no virtual ones
	ports     map[uint16]*Port
	refused   map[uint16]bool
	silent    bool
	holes     map[netip.AddrPort]*blackHole
	stall     int64   // how many bytes a new connection lets in before it goes dead; 0 means all
	frozen    []*Wire // connections that hang until the machine is heard of again
	err       error   // why an address could not be bound, if so
	rebinding bool    // a try to bind it again is due
	closed    bool    // the machine is gone for good
}

// NewNIC makes a card without addresses.
func NewNIC(network *Wiring) *NIC {
	return &NIC{
		network: network,
		ports:   map[uint16]*Port{},
		refused: map[uint16]bool{},
		holes:   map[netip.AddrPort]*blackHole{},
	}
}

// SetAddresses makes the card answer on exactly these addresses. Connections to an address that went away are cut.
func (n *NIC) SetAddresses(addresses ...netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.addresses, n.own = slices.Clone(addresses), slices.Clone(addresses)
	n.reconcile()

	return n.err
}

// OwnAddresses are the card's addresses but the virtual ones.
func (n *NIC) OwnAddresses() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()

	return slices.Clone(n.own)
}

// Address is the first of the card's addresses; the zero value if it has none.
func (n *NIC) Address() netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()

	if len(n.addresses) == 0 {
		return netip.Addr{}
	}

	return n.addresses[0]
}

// AddAddress gives the card a virtual address.
func (n *NIC) AddAddress(address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if !slices.Contains(n.addresses, address) {
		n.addresses = append(n.addresses, address)
	}

	n.reconcile()
}

// RemoveAddress takes an address away; its connections are cut.
func (n *NIC) RemoveAddress(address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.addresses = slices.DeleteFunc(n.addresses, func(a netip.Addr) bool { return a == address })
	n.reconcile()
}

// Listen opens a port on all of the card's addresses, present and future.
func (n *NIC) Listen(number uint16) (*Port, error) {
	return onceFree(func() (*Port, error) { return n.listen(number) })
}

func (n *NIC) listen(number uint16) (*Port, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.ports[number] != nil {
		return nil, fmt.Errorf("listen on port %d: the node already does", number)
	}

	p := &Port{
		nic:       n,
		number:    number,
		accepted:  make(chan net.Conn),
		done:      make(chan struct{}),
		listeners: map[netip.Addr]net.Listener{},
		conns:     map[*Wire]struct{}{},
	}
	n.ports[number] = p
	n.reconcile()

	if n.err != nil && len(p.listeners) == 0 {
		p.closed = true

		delete(n.ports, number)

		return nil, fmt.Errorf("listen on port %d: %w", number, n.err)
	}

	return p, nil
}

// Abandon closes a port, if it is open, and lets go of its connections.
func (n *NIC) Abandon(number uint16) {
	n.mu.Lock()
	p := n.ports[number]
	n.mu.Unlock()

	if p != nil {
		p.Abandon()
	}
}

// Refuse closes or opens a port against the node's will; live connections are reset.
func (n *NIC) Refuse(number uint16, refused bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.refused[number] == refused {
		return
	}

	n.refused[number] = refused
	if p := n.ports[number]; refused && p != nil {
		p.cutAll()
	}

	n.reconcile()
}

// SetSilent makes the machine vanish from the network, or come back. Live connections hang while it is gone and are
// reset on return.
func (n *NIC) SetSilent(silent bool) {
	n.turnSilent(silent)

	// Until it is dark everywhere an address refuses connections instead. What is in the way is tried again later.
	onceFree(func() (struct{}, error) { return struct{}{}, n.reconciled() }) //nolint:errcheck // as said
}

// reconciled tries again what could not be opened, and says what still can't be.
func (n *NIC) reconciled() error {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.err != nil {
		n.reconcile()
	}

	return n.err
}

func (n *NIC) turnSilent(silent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.silent == silent {
		return
	}

	n.silent = silent

	if silent {
		for _, p := range n.ports {
			n.frozen = append(n.frozen, p.freezeAll()...)
		}
	} else {
		n.thaw()
	}

	n.reconcile()
}

// SetStall makes new connections go dead after so many bytes.
func (n *NIC) SetStall(bytes int64) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.stall = bytes
}

// thaw resets the connections that hung. Needs n.mu.
func (n *NIC) thaw() {
	for _, w := range n.frozen {
		w.Cut()
	}

	n.frozen = nil
}

// Hold keeps a frozen connection until the machine is heard of again.
func (n *NIC) Hold(w *Wire) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.closed {
		w.Cut()

		return
	}

	n.frozen = append(n.frozen, w)
}

// reconcile opens and closes sockets until they are what the card's settings ask for. Needs n.mu.
func (n *NIC) reconcile() {
	n.err = nil

	for hole, closer := range n.holes {
		if !n.silent || !slices.Contains(n.addresses, hole.Addr()) {
			closer.Close()
			delete(n.holes, hole)
		}
	}

	for _, p := range n.ports {
		for address, listener := range p.listeners {
			if n.silent || n.refused[p.number] || p.closed || !slices.Contains(n.addresses, address) {
				listener.Close() //nolint:errcheck // it is going away
				delete(p.listeners, address)
			}
		}
	}

	for _, address := range n.addresses {
		if n.silent {
			n.darken(address)

			continue
		}

		for _, p := range n.ports {
			if !n.refused[p.number] && !p.closed && p.listeners[address] == nil {
				p.open(address)
			}
		}
	}

	// A child process that this one is just starting has a copy of each socket until it executes its program: an address
	// that was let go of can be in use for a moment more.
	if errors.Is(n.err, syscall.EADDRINUSE) && !n.rebinding {
		n.rebinding = true

		time.AfterFunc(rebind, func() {
			n.mu.Lock()
			defer n.mu.Unlock()

			n.rebinding = false
			n.reconcile()
		})
	}
}

// rebind is when an address that was in use is tried again, of the wall's time.
const rebind = 5 * time.Millisecond

func (n *NIC) darken(address netip.Addr) {
	for _, number := range []uint16{APIPort, TrustdPort, KubernetesPort} {
		at := netip.AddrPortFrom(address, number)
		if n.holes[at] != nil {
			continue
		}

		hole, err := n.network.blackHole(at)
		if err != nil {
			n.err = err

			continue
		}

		if hole != nil {
			n.holes[at] = hole
		}
	}
}

// Close ends every port and connection.
func (n *NIC) Close() {
	n.mu.Lock()
	ports := make([]*Port, 0, len(n.ports))

	for _, p := range n.ports {
		ports = append(ports, p)
	}

	n.addresses, n.silent, n.closed = nil, false, true
	n.thaw()
	n.reconcile()
	n.mu.Unlock()

	for _, p := range ports {
		p.Abandon()
	}
}

// Dial connects from this node to a declared address, as far as both machines are on the network.
func (n *NIC) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	silent := n.silent
	n.mu.Unlock()

	if silent {
		<-ctx.Done()

		return nil, fmt.Errorf("dial tcp %s: %w", to, context.Cause(ctx))
	}

	return n.network.Dial(ctx, to)
}
