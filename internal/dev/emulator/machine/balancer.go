package machine

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"
)

// balancerDial is how long a balancer waits for a machine, of the wall clock.
const balancerDial = time.Second

// Balance makes an address of the lab a TCP load balancer for these ports of these machines: a connection goes to the
// first that accepts it. It lives as long as the lab.
func (l *Lab) Balance(address netip.Addr, ports []uint16, nodes ...*Node) error {
	for _, number := range ports {
		listener, err := l.network.Listen(netip.AddrPortFrom(address, number))
		if err != nil {
			return fmt.Errorf("balance port %d: %w", number, err)
		}

		context.AfterFunc(l.ctx, func() { listener.Close() }) //nolint:errcheck // it is going away

		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}

				go l.relay(conn, number, nodes)
			}
		}()
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.balanced[address] = balanced{ports: ports, nodes: nodes}

	return nil
}

// balanced is what stands behind a balancer's address.
type balanced struct {
	ports []uint16
	nodes []*Node
}

// leadsTo reports whether a machine with this address stands behind the balancer: it may have taken the place of one
// that was removed.
func (g balanced) leadsTo(address netip.Addr) bool {
	return slices.ContainsFunc(g.nodes, func(node *Node) bool { return node.Address() == address })
}

// relay connects a client with the first machine that accepts.
func (l *Lab) relay(client net.Conn, number uint16, nodes []*Node) {
	defer client.Close() //nolint:errcheck // nothing to lose

	for _, node := range nodes {
		ctx, cancel := context.WithTimeout(l.ctx, balancerDial)
		conn, err := l.network.Dial(ctx, netip.AddrPortFrom(node.Address(), number))

		cancel()

		if err != nil {
			continue
		}

		defer conn.Close() //nolint:errcheck // nothing to lose

		stop := context.AfterFunc(l.ctx, func() { client.Close(); conn.Close() }) //nolint:errcheck // the lab ends
		defer stop()

		go func() {
			io.Copy(conn, client) //nolint:errcheck // either end may hang up
			conn.Close()          //nolint:errcheck // as above
		}()

		io.Copy(client, conn) //nolint:errcheck // either end may hang up

		return
	}
}

// leads reports whether an address leads to a machine for a port: as its own, as a virtual one that it holds, or as
// that of a balancer before it.
func (l *Lab) leads(address netip.Addr, number uint16, b *Boot) bool {
	l.mu.Lock()
	holder, group := l.holders[address], l.balanced[address]
	l.mu.Unlock()

	own := b.Node.Address()

	return b == holder || own == address || (slices.Contains(group.ports, number) && group.leadsTo(own))
}
