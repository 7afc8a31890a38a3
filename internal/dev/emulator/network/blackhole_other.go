//go:build !linux

package network

import (
	"fmt"
	"net"
	"net/netip"
)

// blackHole is an address that answers nothing. Without Linux's listen queue a SYN can't be dropped without privileges,
// so connections open here and then stay silent for ever.
type blackHole struct {
	listener net.Listener
}

func newBlackHole(at netip.AddrPort) (*blackHole, error) {
	listener, err := net.Listen("tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}

	go func() {
		var held []net.Conn

		defer func() {
			for _, conn := range held {
				conn.Close()
			}
		}()

		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			held = append(held, conn)
		}
	}()

	return &blackHole{listener: listener}, nil
}

// Close makes the address refuse again.
func (h *blackHole) Close() { h.listener.Close() }
