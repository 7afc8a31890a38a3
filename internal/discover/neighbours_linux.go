package discover

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"
)

// heard are the states of a neighbour that answered at some time.
const heard = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT

// neighbours are the machines with IPv6 addresses that this computer has heard of on its own networks, routers
// included.
func neighbours() ([]netip.Addr, error) {
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}

	defer conn.Close() //nolint:errcheck // nothing was written

	entries, err := conn.Neigh.List()
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}

	var found []netip.Addr
	for _, entry := range entries {
		if entry.Family != unix.AF_INET6 || entry.State&heard == 0 || entry.Attributes == nil {
			continue
		}

		address, ok := netip.AddrFromSlice(entry.Attributes.Address)
		if !ok || address.IsMulticast() {
			continue
		}

		if address.IsLinkLocalUnicast() {
			link, err := net.InterfaceByIndex(int(entry.Index))
			if err != nil {
				continue // it went away
			}

			address = address.WithZone(link.Name)
		}

		found = append(found, address)
	}

	slices.SortFunc(found, netip.Addr.Compare)

	return slices.Compact(found), nil
}
