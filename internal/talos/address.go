package talos

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// splitAddress takes "host", "host:port", "2001:db8::1", "[2001:db8::1]" or "[2001:db8::1]:port" apart.
// The port defaults to DefaultPort.
func splitAddress(address string) (host, port string, err error) {
	port = strconv.Itoa(DefaultPort)
	switch _, notIP := netip.ParseAddr(address); {
	case address == "":
		return "", "", fmt.Errorf("the address is empty")
	case notIP == nil:
		return address, port, nil
	case strings.HasPrefix(address, "[") && strings.HasSuffix(address, "]"):
		address += ":" + port
	case !strings.Contains(address, ":"):
		return address, port, nil
	}

	if host, port, err = net.SplitHostPort(address); err != nil {
		return "", "", fmt.Errorf("read address %q: %w", address, err)
	}

	if number, convErr := strconv.Atoi(port); host == "" || convErr != nil || number < 1 || number > 65535 {
		return "", "", fmt.Errorf("read address %q: it takes host or host:port, with a port from 1 to 65535", address)
	}

	return host, port, nil
}

// isPrivate reports whether a host is an address of a local network.
func isPrivate(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && (address.IsPrivate() || address.IsLinkLocalUnicast())
}
