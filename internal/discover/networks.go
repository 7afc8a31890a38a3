package discover

import (
	"cmp"
	"fmt"
	"iter"
	"math/big"
	"net/netip"
	"slices"
	"strings"
)

// Networks are runs of addresses, in order and apart.
type Networks []Range

// Range is a run of addresses, the first and the last included.
type Range struct{ First, Last netip.Addr }

// Bounds of one network.
const (
	// narrowBits is the largest IPv4 network that is asked without a word: 4,094 addresses.
	narrowBits = 20
	// mostIPv6 are so many addresses of IPv6: what is larger can't be asked one by one.
	mostIPv6 = 4096
)

// ParseNetworks reads "192.0.2.0/24", "192.0.2.10-192.0.2.99", "192.0.2.7" and the same of IPv6. Public networks and
// large ones are refused unless wide is given. An error says of which of them, and why.
func ParseNetworks(texts []string, wide bool) (Networks, error) {
	var ranges []Range

	for _, text := range texts {
		parsed, err := parseRange(text)

		switch {
		case err != nil:
			return nil, err
		case parsed.First.Is4In6():
			return nil, fmt.Errorf("%q is IPv4 in the form of IPv6: write it as 192.168.1.0/24", text)
		}

		if err := parsed.refuse(text, wide); err != nil {
			return nil, err
		}

		ranges = append(ranges, parsed)
	}

	return joined(ranges), nil
}

func parseRange(text string) (Range, error) {
	first, last, isRange := strings.Cut(text, "-")

	switch {
	case isRange:
		from, errFirst := netip.ParseAddr(strings.TrimSpace(first))
		to, errLast := netip.ParseAddr(strings.TrimSpace(last))

		switch {
		case errFirst != nil || errLast != nil:
			return Range{}, fmt.Errorf("%q is no range of addresses, as 192.168.1.10-192.168.1.99", text)
		case from.Is4() != to.Is4() || from.Zone() != to.Zone():
			return Range{}, fmt.Errorf("%q mixes two kinds of addresses", text)
		case to.Less(from):
			return Range{}, fmt.Errorf("%q ends before it begins", text)
		}

		return Range{from, to}, nil
	case strings.Contains(text, "/"):
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return Range{}, fmt.Errorf("%q is no network, as 192.168.1.0/24", text)
		}

		return rangeOf(prefix), nil
	default:
		address, err := netip.ParseAddr(text)
		if err != nil {
			return Range{}, fmt.Errorf("%q is neither a network, as 192.168.1.0/24, nor an address", text)
		}

		return Range{address, address}, nil
	}
}

// rangeOf are the addresses of a network that machines can have: of IPv4 not the first and the last.
func rangeOf(prefix netip.Prefix) Range {
	first := prefix.Masked().Addr()
	bytes := first.AsSlice()

	for i := range bytes {
		if host := (i+1)*8 - prefix.Bits(); host > 0 {
			bytes[i] |= byte(1<<min(host, 8) - 1)
		}
	}

	last, _ := netip.AddrFromSlice(bytes)

	if first.Is4() && prefix.Bits() < 31 {
		return Range{first.Next(), last.Prev()}
	}

	return Range{first, last}
}

// size is how many addresses a range has.
func (r Range) size() *big.Int {
	first, last := new(big.Int).SetBytes(r.First.AsSlice()), new(big.Int).SetBytes(r.Last.AsSlice())
	return last.Sub(last, first).Add(last, big.NewInt(1))
}

// refuse says why a range is not asked.
func (r Range) refuse(text string, wide bool) error {
	size := r.size()

	switch {
	case r.First.Is6() && size.Cmp(big.NewInt(mostIPv6)) > 0:
		return fmt.Errorf("%s has more than %d addresses, which nobody can ask one by one: name a part, such as a /116", text,
			mostIPv6)
	case r.First.Is6() || wide:
		return nil
	case size.Cmp(big.NewInt(1<<(32-narrowBits))) > 0:
		return fmt.Errorf("%s has %d addresses, more than a /%d: -wide asks them all the same", text, size, narrowBits)
	case !isLocal(r.First) || !isLocal(r.Last):
		return fmt.Errorf("%s is a public network: if it is yours to scan, -wide asks it all the same", text)
	default:
		return nil
	}
}

// local are the IPv4 networks whose addresses nobody else can have: private, loopback, link-local, carriers' own, and
// those of documentation and benchmarks.
var local = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
}

func isLocal(address netip.Addr) bool {
	return slices.ContainsFunc(local, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// joined are ranges in order, those that overlap as one.
func joined(ranges []Range) Networks {
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Or(a.First.Compare(b.First), a.Last.Compare(b.Last)) })

	var networks Networks
	for _, next := range ranges {
		if end := len(networks) - 1; end >= 0 && !networks[end].Last.Less(next.First) {
			if networks[end].Last.Less(next.Last) {
				networks[end].Last = next.Last
			}

			continue
		}

		networks = append(networks, next)
	}

	return networks
}

// String names them, the first few of many.
func (n Networks) String() string {
	const most = 3

	var names []string
	for _, one := range n[:min(len(n), most)] {
		names = append(names, one.String())
	}

	if len(n) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), len(n)-most)
	}

	return strings.Join(names, ", ")
}

// String is the range as people write it: a network if it is one.
func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}

	for bits := range r.First.BitLen() {
		if network := netip.PrefixFrom(r.First, bits); rangeOf(network) == r {
			return network.Masked().String()
		}
	}

	return r.First.String() + "-" + r.Last.String()
}

// Size is how many addresses there are.
func (n Networks) Size() int {
	total := 0
	for _, one := range n {
		total += int(one.size().Int64())
	}

	return total
}

// Addresses are all of them, in order.
func (n Networks) Addresses() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, one := range n {
			for address := one.First; ; address = address.Next() {
				if !yield(address) {
					return
				}

				if address == one.Last {
					break
				}
			}
		}
	}
}
