package machine

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/talos-mage/talos-mage/internal/base/clock"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/etcd"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/network"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/signal"
)

// claimPort is bound on the last usable address of each of a lab's blocks for as long as the lab lives, so that no
// other lab takes the block.
const claimPort = 50009

// Addresses in a block of 256: machines have host parts from firstHost on, and a block holds this many of them.
const (
	firstHost = 11
	perBlock  = 240
	claimHost = 254
	blockBits = 24
)

// Lab is a network of emulated machines with blocks of loopback addresses of its own.
type Lab struct {
	options LabOptions
	clock   clock.Clock
	prefix  netip.Prefix
	claims  []net.Listener
	network *network.Wiring
	etcd    *etcd.Clusters
	serve   ServeAPI

	ctx    context.Context //nolint:containedctx // the lab's life, which no single call has
	cancel context.CancelFunc

	// changed is raised whenever something that nodes share has changed: etcd, virtual addresses, Kubernetes.
	changed signal.Signal

	mu    sync.Mutex
	nodes []*Node
	// kubernetes are the nodes whose kube-apiserver answers, with the cluster that they serve.
	kubernetes map[*Boot]*etcd.Cluster
	holders    map[netip.Addr]*Boot // who has a virtual address
	balanced   map[netip.Addr]balanced
}

// NewLab takes as many free blocks of loopback addresses as its machines need, whose API is served as told. Close gives
// the addresses back.
func NewLab(options LabOptions, serve ServeAPI) (*Lab, error) {
	lab := &Lab{
		options:    options,
		clock:      clock.Scaled(options.TimeScale),
		network:    network.NewWiring(),
		etcd:       etcd.NewClusters(),
		serve:      serve,
		kubernetes: map[*Boot]*etcd.Cluster{},
		holders:    map[netip.Addr]*Boot{},
		balanced:   map[netip.Addr]balanced{},
	}

	lab.ctx, lab.cancel = context.WithCancel(context.Background())

	blocks := 1
	for blocks*perBlock < options.Machines {
		blocks *= 2
	}

	if blocks > mostBlocks {
		return nil, fmt.Errorf("make lab: it has room for %d machines, not for %d", mostBlocks*perBlock, options.Machines)
	}

	if options.SingleAddress {
		lab.network.ShareAddress(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
		lab.prefix = declaredPrefix(blocks)

		return lab, nil
	}

	if err := lab.claimBlocks(blocks); err != nil {
		return nil, err
	}

	return lab, nil
}

// mostBlocks is how many neighbouring blocks a lab can have: those that share the second byte of their addresses.
const mostBlocks = 256

// prefixBits is the length of a prefix of so many neighbouring blocks, a power of two.
func prefixBits(blocks int) int { return blockBits - bits.TrailingZeros(uint(blocks)) } //nolint:gosec // never negative

// declaredPrefix has the addresses that machines believe they have when all of them share one: a documentation network,
// or, where that is too small, the one for benchmarks (RFC 2544).
func declaredPrefix(blocks int) netip.Prefix {
	if blocks == 1 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, 0}), blockBits)
	}

	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, 0}), prefixBits(blocks))
}

// claimBlocks finds neighbouring blocks 127.a.b.0/24 that nobody uses. It starts at random ones so that labs seldom
// meet.
func (l *Lab) claimBlocks(blocks int) error {
	var last error

	const attempts = 64

	for range attempts {
		second, third := byte(1+rand.IntN(253)), byte(blocks*rand.IntN(mostBlocks/blocks)) //nolint:gosec // no secret, just free blocks; a byte holds it

		l.prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{127, second, third, 0}), prefixBits(blocks))
		if last = l.claim(blocks); last == nil {
			return nil
		}
	}

	return fmt.Errorf("take a block of loopback addresses: %w", last)
}

// claim binds an address in each block of the prefix; all or none.
func (l *Lab) claim(blocks int) error {
	for block := range blocks {
		at := netip.AddrPortFrom(l.address(block, claimHost), claimPort)

		listener, err := net.Listen("tcp", at.String())
		if err != nil {
			l.release()

			return network.OpenError(at, err)
		}

		l.claims = append(l.claims, listener)
	}

	return nil
}

// release gives the blocks back.
func (l *Lab) release() {
	for _, claim := range l.claims {
		claim.Close() //nolint:errcheck // a listener that is closed once never fails
	}

	l.claims = nil
}

// Prefix has all of the lab's addresses.
func (l *Lab) Prefix() netip.Prefix { return l.prefix }

// Address is the address with this host part in the first block.
func (l *Lab) Address(host byte) netip.Addr { return l.address(0, host) }

// MachineAddress is the address of the machine with this number, counted from 0, when machines are started one after
// another without addresses of their own.
func (l *Lab) MachineAddress(number int) netip.Addr {
	return l.address(number/perBlock, byte(firstHost+number%perBlock)) //nolint:gosec // a byte holds it
}

func (l *Lab) address(block int, host byte) netip.Addr {
	bytes := l.prefix.Addr().As4()
	bytes[2] += byte(block) //nolint:gosec // the blocks of a lab share the second byte
	bytes[3] = host

	return netip.AddrFrom4(bytes)
}

// Clock is the nodes' clock.
func (l *Lab) Clock() clock.Clock { return l.clock }

// Map makes connections and listeners of a declared address use an address of the lab, for clusters that were declared
// elsewhere.
func (l *Lab) Map(declared, actual netip.Addr) { l.network.Route(declared, actual) }

// Endpoint is where a client on this system finds a port of a declared address, as host:port. With a single address it
// is known once a machine has listened there.
func (l *Lab) Endpoint(declared netip.AddrPort) string {
	at, _ := l.network.Socket(declared)

	return at.String()
}

// Dial connects to a declared address the way the lab's machines do.
func (l *Lab) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	return l.network.Dial(ctx, to)
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
	taken := map[netip.Addr]bool{}
	for _, node := range l.nodes {
		taken[node.options.Address] = true
	}

	number := 0
	for taken[l.MachineAddress(number)] {
		number++
	}

	return l.MachineAddress(number)
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

// Remove takes a machine out of the lab, with its addresses free for another. What it recorded can still be read.
func (l *Lab) Remove(node *Node) {
	node.stop()

	l.mu.Lock()
	l.nodes = slices.DeleteFunc(l.nodes, func(other *Node) bool { return other == node })
	l.mu.Unlock()

	l.changed.Raise()
}

// Close switches everything off and gives the addresses back.
func (l *Lab) Close() error {
	l.cancel()

	for _, node := range l.Nodes() {
		node.stop()
	}

	l.release()

	return nil
}
