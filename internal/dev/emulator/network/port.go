package network

import (
	"net"
	"net/netip"
	"sync"
)

// Port is one open port of a node, on all of its addresses. It is a net.Listener that outlives its sockets.
type Port struct {
	nic      *NIC
	number   uint16
	accepted chan net.Conn
	done     chan struct{}

	// guarded by nic.mu
	closed    bool
	listeners map[netip.Addr]net.Listener

	mu    sync.Mutex
	conns map[*Wire]struct{}
	over  bool // nobody may wait for a connection any more
}

// open listens on one address. Needs nic.mu.
func (p *Port) open(address netip.Addr) {
	listener, err := p.nic.network.Listen(netip.AddrPortFrom(address, p.number))
	if err != nil {
		p.nic.err = err

		return
	}

	p.listeners[address] = listener

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			w := p.wrap(conn)

			select {
			case p.accepted <- w:
			case <-p.done:
				w.Close() //nolint:errcheck // nobody will read it
			}
		}
	}()
}

// Accept implements net.Listener.
func (p *Port) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: new connections are refused, live ones stay.
func (p *Port) Close() error {
	p.nic.mu.Lock()
	defer p.nic.mu.Unlock()

	if p.closed {
		return nil
	}

	p.closed = true
	close(p.done)
	p.nic.reconcile()

	if p.nic.ports[p.number] == p {
		delete(p.nic.ports, p.number)
	}

	return nil
}

// Addr implements net.Listener.
func (p *Port) Addr() net.Addr {
	p.nic.mu.Lock()
	defer p.nic.mu.Unlock()

	if len(p.nic.addresses) == 0 {
		return &net.TCPAddr{Port: int(p.number)}
	}

	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.nic.addresses[0], p.number))
}

func (p *Port) wrap(conn net.Conn) *Wire {
	p.nic.mu.Lock()
	stall := p.nic.stall
	p.nic.mu.Unlock()

	w := &Wire{Conn: conn, port: p, stalled: stall, thawed: make(chan struct{})}

	p.mu.Lock()
	p.conns[w] = struct{}{}
	over := p.over
	p.mu.Unlock()

	if over {
		w.letGo()
	}

	return w
}

func (p *Port) live() []*Wire {
	p.mu.Lock()
	defer p.mu.Unlock()

	live := make([]*Wire, 0, len(p.conns))
	for w := range p.conns {
		live = append(live, w)
	}

	return live
}

func (p *Port) cutAll() {
	for _, w := range p.live() {
		w.Cut()
	}
}

func (p *Port) freezeAll() []*Wire {
	live := p.live()
	for _, w := range live {
		w.Freeze()
	}

	return live
}

// DropHandshakes cuts the connections whose TLS handshake is not over: gRPC's server would wait for them when it is
// stopped.
func (p *Port) DropHandshakes() {
	for _, w := range p.live() {
		if w.isShaking() && !w.isFrozen() {
			w.Cut()
		}
	}
}

// LetGo lets go of those who wait for frozen connections or in a handshake, also in one that is about to begin. Frozen
// connections stay as they are for the other side.
func (p *Port) LetGo() {
	for _, w := range p.last() {
		if w.isFrozen() || w.isShaking() {
			w.letGo()
		}
	}
}

// Abandon closes the port and lets go of every connection at once.
func (p *Port) Abandon() {
	p.Close() //nolint:errcheck // never fails
	p.Reset()
}

// Reset cuts what is left after the listener closed; a frozen connection sends nothing, not even its end.
func (p *Port) Reset() {
	for _, w := range p.last() {
		w.letGo()
	}
}

// last are the live connections. Those that come later, or begin a handshake later, are let go at once.
func (p *Port) last() []*Wire {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()

	return p.live()
}

func (p *Port) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.over
}

// Find is the live connection from a peer, nil if it is gone.
func (p *Port) Find(peer string) *Wire {
	for _, w := range p.live() {
		if w.RemoteAddr().String() == peer {
			return w
		}
	}

	return nil
}
