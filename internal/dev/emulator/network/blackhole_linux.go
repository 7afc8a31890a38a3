package network

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// blackHole is an address that drops every SYN: a listening socket with no room for a connection, filled by one of its
// own.
type blackHole struct {
	fd   int
	plug net.Conn
}

func newBlackHole(at netip.AddrPort) (*blackHole, error) {
	domain, address := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(at.Port()), Addr: addr4(at)})
	if at.Addr().Is6() {
		domain, address = unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}

	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}

	hole := &blackHole{fd: fd}

	if err := hole.fill(at, address); err != nil {
		hole.Close()

		return nil, err
	}

	return hole, nil
}

func (h *blackHole) fill(at netip.AddrPort, address unix.Sockaddr) error {
	if err := unix.SetsockoptInt(h.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("reuse address: %w", err)
	}

	if err := unix.Bind(h.fd, address); err != nil {
		return fmt.Errorf("bind: %w", err)
	}

	if err := unix.Listen(h.fd, 0); err != nil {
		return fmt.Errorf("listen: %w", err)
	}

	if at.Port() == 0 {
		return nil
	}

	plug, err := net.DialTimeout("tcp", at.String(), time.Second)
	if err != nil {
		return fmt.Errorf("fill the queue: %w", err)
	}

	h.plug = plug

	return nil
}

// Close makes the address refuse again.
func (h *blackHole) Close() {
	if h.plug != nil {
		h.plug.Close() //nolint:errcheck // nothing was ever sent on it
	}

	unix.Close(h.fd) //nolint:errcheck // nothing to lose
}

func addr4(at netip.AddrPort) [4]byte {
	if at.Addr().Is4() {
		return at.Addr().As4()
	}

	return [4]byte{}
}
