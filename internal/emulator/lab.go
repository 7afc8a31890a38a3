package emulator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"

	"github.com/talos-mage/talos-mage/internal/clock"
)

// claimPort is bound on the last address of a lab's block for as long as the lab lives, so that no other lab takes the block.
const claimPort = 50009

// firstHost is the host part of the address that the first machine without one of its own gets.
const firstHost = 11

// Lab is a network of emulated machines with a block of loopback addresses of its own.
type Lab struct {
	options LabOptions
	clock   clock.Clock
	prefix  netip.Prefix
	claim   net.Listener
	network *wiring

	ctx    context.Context //nolint:containedctx // the lab's life, which no single call has
	cancel context.CancelFunc

	// changed is raised whenever something that nodes share has changed: etcd, virtual addresses, Kubernetes.
	changed signal

	mu       sync.Mutex
	nodes    []*Node
	clusters []*etcdCluster
	holders  map[netip.Addr]*boot // who has a virtual address
	balanced map[netip.Addr]balanced
}

// NewLab takes a free block of loopback addresses. Close gives it back.
func NewLab(options LabOptions) (*Lab, error) {
	lab := &Lab{
		options:  options,
		clock:    clock.Scaled(options.TimeScale),
		network:  newWiring(),
		holders:  map[netip.Addr]*boot{},
		balanced: map[netip.Addr]balanced{},
	}

	lab.ctx, lab.cancel = context.WithCancel(context.Background())

	if options.SingleAddress {
		lab.network.single = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		lab.prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, 0}), 24)

		return lab, nil
	}

	if err := lab.claimBlock(); err != nil {
		return nil, err
	}

	return lab, nil
}

// claimBlock finds a block 127.a.b.0/24 that nobody uses. It starts at a random one so that labs seldom meet.
func (l *Lab) claimBlock() error {
	var last error

	const attempts = 64

	for range attempts {
		block := [4]byte{127, byte(1 + rand.IntN(253)), byte(rand.IntN(256)), 0} //nolint:gosec // no secret, just a free block
		claim := block
		claim[3] = 254

		listener, err := net.Listen("tcp", netip.AddrPortFrom(netip.AddrFrom4(claim), claimPort).String())
		if err != nil {
			last = err

			continue
		}

		l.claim = listener
		l.prefix = netip.PrefixFrom(netip.AddrFrom4(block), 24)

		return nil
	}

	return fmt.Errorf("take a block of loopback addresses (this system may have 127.0.0.1 alone: use a single address): %w", last)
}

// Prefix is the lab's block of addresses.
func (l *Lab) Prefix() netip.Prefix { return l.prefix }

// Address is the block's address with this host part.
func (l *Lab) Address(host byte) netip.Addr {
	bytes := l.prefix.Addr().As4()
	bytes[3] = host

	return netip.AddrFrom4(bytes)
}

// Clock is the nodes' clock.
func (l *Lab) Clock() clock.Clock { return l.clock }

// Map makes connections and listeners of a declared address use an address of the lab, for clusters that were declared elsewhere.
func (l *Lab) Map(declared, actual netip.Addr) { l.network.route(declared, actual) }

// Endpoint is where a client on this system finds a port of a declared address, as host:port. With a single address it is known once a machine
// has listened there.
func (l *Lab) Endpoint(declared netip.AddrPort) string {
	at, _ := l.network.socket(declared)

	return at.String()
}

// Dial connects to a declared address the way the lab's machines do.
func (l *Lab) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	return l.network.dial(ctx, to)
}

// Start switches a new machine on. It returns when the machine has its address, before it answers.
func (l *Lab) Start(options NodeOptions) (*Node, error) {
	if err := l.ctx.Err(); err != nil {
		return nil, errors.New("start node: the lab is closed")
	}

	if options.Name == "" {
		return nil, errors.New("start node: it needs a name")
	}

	l.mu.Lock()

	for _, other := range l.nodes {
		if other.options.Name == options.Name {
			l.mu.Unlock()

			return nil, fmt.Errorf("start node %s: the name is taken", options.Name)
		}
	}

	if !options.Address.IsValid() {
		options.Address = l.freeAddress()
	}

	node, err := newNode(l, options)
	if err == nil {
		l.nodes = append(l.nodes, node)
	}

	l.mu.Unlock()

	if err != nil {
		return nil, fmt.Errorf("start node %s: %w", options.Name, err)
	}

	if err := node.start(); err != nil {
		return nil, fmt.Errorf("start node %s: %w", options.Name, err)
	}

	return node, nil
}

// freeAddress is the first address that no machine was started with. Needs l.mu.
func (l *Lab) freeAddress() netip.Addr {
	address := l.Address(firstHost)

	for taken := true; taken; {
		taken = false

		for _, node := range l.nodes {
			if node.options.Address == address {
				address, taken = address.Next(), true
			}
		}
	}

	return address
}

// Nodes are the machines in the order they were started.
func (l *Lab) Nodes() []*Node {
	l.mu.Lock()
	defer l.mu.Unlock()

	return append([]*Node(nil), l.nodes...)
}

// Node finds a machine by the name it was started with; nil if there is none.
func (l *Lab) Node(name string) *Node {
	for _, node := range l.Nodes() {
		if node.options.Name == name {
			return node
		}
	}

	return nil
}

// Close switches everything off and gives the block back.
func (l *Lab) Close() error {
	l.cancel()

	for _, node := range l.Nodes() {
		node.stop()
	}

	if l.claim != nil {
		return l.claim.Close()
	}

	return nil
}

// signal wakes everyone who waits for a change.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait is closed at the next raise. Take it before looking at what may change.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.ch == nil {
		s.ch = make(chan struct{})
	}

	return s.ch
}

func (s *signal) raise() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// until waits until done says so; it looks again after every raise. It returns the context's cause if that ends first.
func (s *signal) until(ctx context.Context, done func() bool) error {
	for {
		changed := s.wait()

		if done() {
			return nil
		}

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}
