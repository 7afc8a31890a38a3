package discover

import (
	"fmt"
	"net/netip"
	"slices"
)

// Prefix lengths of a network of which only one address is known, as cluster profiles have them.
const (
	usualIPv4Bits = 24
	usualIPv6Bits = 64
)

// Around are the addresses where machines may be that belong to nodes with these addresses; an address with the length
// of its network's prefix if that is known, else as a whole one. Of IPv6 they are the neighbours that this computer
// knows. Unless wide is given, a larger network than a /20 counts as the /24 around the address, and of a public
// network the address alone is asked.
func Around(known []netip.Prefix, wide bool) (Networks, error) {
	var (
		ranges []Range
		ipv6   []netip.Prefix
	)

	for _, prefix := range known {
		address := prefix.Addr()
		ranges = append(ranges, Range{address, address})

		if address.Is6() {
			ipv6 = append(ipv6, netip.PrefixFrom(address, min(orElse(prefix, usualIPv6Bits), usualIPv6Bits)).Masked())
			continue
		}

		network := netip.PrefixFrom(address, orElse(prefix, usualIPv4Bits))

		switch {
		case wide:
		case !isLocal(address):
			continue
		case network.Bits() < narrowBits:
			network = netip.PrefixFrom(address, usualIPv4Bits)
		}

		ranges = append(ranges, rangeOf(network))
	}

	if len(ipv6) > 0 {
		neighbours, err := neighbours()
		if err != nil {
			return nil, fmt.Errorf("read the neighbour table: %w", err)
		}

		for _, address := range neighbours {
			if isIn(address, ipv6) {
				ranges = append(ranges, Range{address, address})
			}
		}
	}

	return joined(ranges), nil
}

// orElse is a prefix' length, or the usual one where it is a whole address.
func orElse(prefix netip.Prefix, usual int) int {
	if prefix.IsSingleIP() {
		return usual
	}

	return prefix.Bits()
}

// isIn reports whether an address can be that of a machine in the networks: one of theirs, or a link-local one, which
// machines have before they get another.
func isIn(address netip.Addr, networks []netip.Prefix) bool {
	return address.IsLinkLocalUnicast() ||
		slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(address) })
}
