package check

import (
	"net"
	"net/netip"
)

// CallsFrom is the address that the operating system would call another from, by its table of routes; invalid if it has
// no way there. Nothing is sent: a UDP socket is bound and closed again.
func CallsFrom(addr netip.Addr) netip.Addr {
	socket, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 9)))
	if err != nil {
		return netip.Addr{}
	}

	defer func() { _ = socket.Close() }() // nothing was written

	local, ok := socket.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}
	}

	return local.AddrPort().Addr().Unmap().WithZone("")
}
