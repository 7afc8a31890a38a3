package emulator

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

// nic is a node's network card. Every port of the node is opened through it, so that the network faults act on all of
// them: a refused port answers RST, a silent machine answers nothing at all.
type nic struct {
	network *wiring

	mu        sync.Mutex
	addresses []netip.Addr
	own       []netip.Addr // the addresses that are no virtual ones
	ports     map[uint16]*port
	refused   map[uint16]bool
	silent    bool
	holes     map[netip.AddrPort]*blackHole
	stall     int64   // how many bytes a new connection lets in before it goes dead; 0 means all
	frozen    []*wire // connections that hang until the machine is heard of again
	err       error   // why an address could not be bound, if so
	rebinding bool    // a try to bind it again is due
}

func newNIC(network *wiring) *nic {
	return &nic{
		network: network,
		ports:   map[uint16]*port{},
		refused: map[uint16]bool{},
		holes:   map[netip.AddrPort]*blackHole{},
	}
}

// setAddresses makes the card answer on exactly these addresses. Connections to an address that went away are cut.
func (n *nic) setAddresses(addresses ...netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.addresses, n.own = slices.Clone(addresses), slices.Clone(addresses)
	n.reconcile()

	return n.err
}

// ownAddresses are the card's addresses but the virtual ones.
func (n *nic) ownAddresses() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()

	return slices.Clone(n.own)
}

// addAddress and removeAddress move a virtual address.
func (n *nic) addAddress(address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if !slices.Contains(n.addresses, address) {
		n.addresses = append(n.addresses, address)
	}

	n.reconcile()
}

func (n *nic) removeAddress(address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.addresses = slices.DeleteFunc(n.addresses, func(a netip.Addr) bool { return a == address })
	n.reconcile()
}

// listen opens a port on all of the card's addresses, present and future.
func (n *nic) listen(number uint16) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.ports[number] != nil {
		return nil, fmt.Errorf("listen on port %d: the node already does", number)
	}

	p := &port{
		nic:       n,
		number:    number,
		accepted:  make(chan net.Conn),
		done:      make(chan struct{}),
		listeners: map[netip.Addr]net.Listener{},
		conns:     map[*wire]struct{}{},
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

// abandon closes a port, if it is open, and lets go of its connections.
func (n *nic) abandon(number uint16) {
	n.mu.Lock()
	p := n.ports[number]
	n.mu.Unlock()

	if p != nil {
		p.abandon()
	}
}

// refuse closes or opens a port against the node's will; live connections are reset.
func (n *nic) refuse(number uint16, refused bool) {
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

// setSilent makes the machine vanish from the network, or come back. Live connections hang while it is gone and are
// reset on return.
func (n *nic) setSilent(silent bool) {
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

// setStall makes new connections go dead after so many bytes.
func (n *nic) setStall(bytes int64) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.stall = bytes
}

// thaw resets the connections that hung. Needs n.mu.
func (n *nic) thaw() {
	for _, w := range n.frozen {
		w.cut()
	}

	n.frozen = nil
}

// hold keeps a frozen connection until the machine is heard of again.
func (n *nic) hold(w *wire) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.frozen = append(n.frozen, w)
}

// reconcile opens and closes sockets until they are what the card's settings ask for. Needs n.mu.
func (n *nic) reconcile() {
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

func (n *nic) darken(address netip.Addr) {
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

// close ends every port and connection.
func (n *nic) close() {
	n.mu.Lock()
	ports := make([]*port, 0, len(n.ports))

	for _, p := range n.ports {
		ports = append(ports, p)
	}

	n.addresses = nil
	n.silent = false
	n.thaw()
	n.reconcile()
	n.mu.Unlock()

	for _, p := range ports {
		p.Close() //nolint:errcheck // never fails
		p.reset()
	}
}

// dial connects from this node to a declared address, as far as both machines are on the network.
func (n *nic) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	silent := n.silent
	n.mu.Unlock()

	if silent {
		<-ctx.Done()

		return nil, fmt.Errorf("dial tcp %s: %w", to, context.Cause(ctx))
	}

	return n.network.dial(ctx, to)
}

// port is one open port of a node, on all of its addresses. It is a net.Listener that outlives its sockets.
type port struct {
	nic      *nic
	number   uint16
	accepted chan net.Conn
	done     chan struct{}

	// guarded by nic.mu
	closed    bool
	listeners map[netip.Addr]net.Listener

	mu    sync.Mutex
	conns map[*wire]struct{}
}

// open listens on one address. Needs nic.mu.
func (p *port) open(address netip.Addr) {
	listener, err := p.nic.network.listen(netip.AddrPortFrom(address, p.number))
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
func (p *port) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: new connections are refused, live ones stay.
func (p *port) Close() error {
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
func (p *port) Addr() net.Addr {
	p.nic.mu.Lock()
	defer p.nic.mu.Unlock()

	if len(p.nic.addresses) == 0 {
		return &net.TCPAddr{Port: int(p.number)}
	}

	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.nic.addresses[0], p.number))
}

func (p *port) wrap(conn net.Conn) *wire {
	p.nic.mu.Lock()
	stall := p.nic.stall
	p.nic.mu.Unlock()

	w := &wire{Conn: conn, port: p, stalled: stall, thawed: make(chan struct{})}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.conns[w] = struct{}{}

	return w
}

func (p *port) live() []*wire {
	p.mu.Lock()
	defer p.mu.Unlock()

	live := make([]*wire, 0, len(p.conns))
	for w := range p.conns {
		live = append(live, w)
	}

	return live
}

func (p *port) cutAll() {
	for _, w := range p.live() {
		w.cut()
	}
}

func (p *port) freezeAll() []*wire {
	live := p.live()
	for _, w := range live {
		w.freeze()
	}

	return live
}

// release lets go of those who wait for frozen connections, which stay as they are for the other side.
func (p *port) release() {
	for _, w := range p.live() {
		if w.isFrozen() {
			w.unblock()
		}
	}
}

// dropHandshakes cuts the connections whose TLS handshake is not over: gRPC's server would wait for them when it is
// stopped.
func (p *port) dropHandshakes() {
	for _, w := range p.live() {
		if w.isShaking() && !w.isFrozen() {
			w.cut()
		}
	}
}

// abandon closes the port and lets go of every connection at once.
func (p *port) abandon() {
	p.Close() //nolint:errcheck // never fails
	p.release()
	p.reset()
}

// reset cuts what is left after the listener closed; a frozen connection sends nothing, not even its end.
func (p *port) reset() {
	for _, w := range p.live() {
		if !w.isFrozen() {
			w.cut()
		}
	}
}

// find is the live connection from a peer, nil if it is gone.
func (p *port) find(peer string) *wire {
	for _, w := range p.live() {
		if w.RemoteAddr().String() == peer {
			return w
		}
	}

	return nil
}

// wire is one accepted connection, which faults can freeze or cut.
type wire struct {
	net.Conn

	port *port

	mu      sync.Mutex
	frozen  bool
	closed  bool
	shaking bool  // the TLS handshake is under way
	rude    bool  // a client that is refused gets a reset instead of an alert
	greeted bool  // the node has sent its part of the handshake
	stalled int64 // bytes still let in before the line goes dead; 0 means no limit
	thawed  chan struct{}
}

// Read implements net.Conn; on a frozen wire it hangs until the wire is cut.
func (w *wire) Read(buf []byte) (int, error) {
	n, err := w.Conn.Read(buf)

	w.mu.Lock()
	frozen := w.frozen

	if w.stalled > 0 {
		w.stalled -= int64(n)
		if w.stalled <= 0 {
			w.frozen, frozen = true, true

			go w.port.nic.hold(w)
		}
	}
	w.mu.Unlock()

	if frozen {
		<-w.thawed

		return 0, net.ErrClosed
	}

	return n, err
}

// Write implements net.Conn; what is written to a frozen wire is lost, and so is the alert of a rude one.
func (w *wire) Write(buf []byte) (int, error) {
	w.mu.Lock()
	lost := w.frozen || (w.shaking && w.rude && w.greeted)
	w.greeted = true
	w.mu.Unlock()

	if lost {
		return len(buf), nil
	}

	return w.Conn.Write(buf)
}

// SetDeadline implements net.Conn. A wire that was let go keeps the deadline that ended its reads.
func (w *wire) SetDeadline(at time.Time) error {
	if w.isReleased() {
		return nil
	}

	return w.Conn.SetDeadline(at)
}

// shake notes the begin of a TLS handshake, shaken its end. A rude wire that is closed in between is reset.
func (w *wire) shake(rude bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.shaking, w.rude = true, rude
}

func (w *wire) shaken() {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.shaking = false
}

func (w *wire) isShaking() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.shaking
}

// Close implements net.Conn. A frozen wire keeps its socket, since a machine that vanished sends no FIN.
func (w *wire) Close() error {
	w.mu.Lock()
	frozen, closed, rude := w.frozen, w.closed, w.shaking && w.rude
	w.closed = true
	w.mu.Unlock()

	if closed {
		return nil
	}

	if rude && !frozen {
		w.cut()

		return nil
	}

	w.unblock()

	if frozen {
		return nil
	}

	w.forget()

	return w.Conn.Close()
}

func (w *wire) isFrozen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.frozen
}

func (w *wire) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.frozen = true
}

// cut resets the connection, frozen or not.
func (w *wire) cut() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()

	if tcp, ok := w.Conn.(*net.TCPConn); ok {
		tcp.SetLinger(0) //nolint:errcheck // then it ends with FIN instead of RST
	}

	w.Conn.Close() //nolint:errcheck // it is gone either way
	w.unblock()
	w.forget()
}

// unblock ends the reads on a wire, those of a frozen one too, without a word to the other side.
func (w *wire) unblock() {
	w.mu.Lock()
	select {
	case <-w.thawed:
	default:
		close(w.thawed)
	}
	w.mu.Unlock()

	w.Conn.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // fails on a closed connection, which reads nothing anyway
}

func (w *wire) isReleased() bool {
	select {
	case <-w.thawed:
		return true
	default:
		return false
	}
}

func (w *wire) forget() {
	w.port.mu.Lock()
	defer w.port.mu.Unlock()

	delete(w.port.conns, w)
}

// wiring maps the addresses that nodes believe they have to sockets on this machine.
type wiring struct {
	mu     sync.Mutex
	routes map[netip.Addr]netip.Addr
	// single is set when all nodes share one address and differ by port only.
	single netip.Addr
	ports  map[netip.AddrPort]uint16
}

func newWiring() *wiring {
	return &wiring{routes: map[netip.Addr]netip.Addr{}, ports: map[netip.AddrPort]uint16{}}
}

// socket is where a declared address is found here. The second result is false when it is nowhere: outside of loopback,
// where no lab ever reaches, or, with a single address, while nothing ever listened there.
func (n *wiring) socket(declared netip.AddrPort) (netip.AddrPort, bool) {
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

func (n *wiring) route(declared, actual netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.routes[declared] = actual
}

func (n *wiring) listen(declared netip.AddrPort) (net.Listener, error) {
	at, known := n.socket(declared)
	if !known && !at.Addr().IsLoopback() {
		return nil, fmt.Errorf("open %s: it is neither a loopback address nor mapped to one", at)
	}

	listener, err := net.Listen("tcp", at.String())
	if err != nil {
		return nil, openError(at, err)
	}

	n.remember(declared, listener.Addr())

	return listener, nil
}

// openError says what is in the way of a listener.
func openError(at netip.AddrPort, err error) error {
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
func (n *wiring) remember(declared netip.AddrPort, actual net.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if tcp, ok := actual.(*net.TCPAddr); ok && n.single.IsValid() {
		n.ports[declared] = uint16(tcp.Port) //nolint:gosec // a port fits
	}
}

func (n *wiring) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	at, known := n.socket(to)
	if !known {
		return nil, fmt.Errorf("dial tcp %s: connect: connection refused", to)
	}

	dialer := net.Dialer{Timeout: 10 * time.Second}

	return dialer.DialContext(ctx, "tcp", at.String())
}

func (n *wiring) blackHole(declared netip.AddrPort) (*blackHole, error) {
	at, known := n.socket(declared)
	if !known {
		return nil, nil //nolint:nilnil // where nothing ever listened nothing needs to fall silent
	}

	hole, err := newBlackHole(at)
	if err != nil {
		return nil, fmt.Errorf("silence %s: %w", at, err)
	}

	return hole, nil
}
