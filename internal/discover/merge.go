package discover

import (
	"net/netip"
	"slices"
)

// merged are the machines, each once, with all of its addresses; by address.
func merged(answers []Machine) []Machine {
	slices.SortFunc(answers, byAddress)

	var machines []Machine
	for _, answer := range answers {
		at := slices.IndexFunc(machines, func(known Machine) bool { return same(known, answer) })
		if at < 0 {
			machines = append(machines, answer)
			continue
		}

		machines[at] = united(machines[at], answer)
	}

	slices.SortFunc(machines, byAddress)

	return machines
}

func byAddress(a, b Machine) int { return a.Address().Compare(b.Address()) }

// united is a machine with the addresses of both answers, and what the more telling one says.
func united(a, b Machine) Machine {
	addresses := append(slices.Clone(a.Addresses), b.Addresses...)
	slices.SortFunc(addresses, netip.Addr.Compare)

	if a.Err != nil && b.Err == nil {
		a = b
	}

	a.Addresses = addresses

	return a
}

// same reports whether two answers came from one machine: its certificate, UUID and MACs tell. Machines without a UUID
// of their own share a made-up one, and clones their MACs, so neither goes against the other.
func same(a, b Machine) bool {
	switch {
	case a.UUID != "" && b.UUID != "" && a.UUID != b.UUID:
		return false
	case a.Fingerprint != "" && a.Fingerprint == b.Fingerprint:
		return true
	case len(a.MACs) > 0 && len(b.MACs) > 0:
		return slices.ContainsFunc(a.MACs, func(mac string) bool { return slices.Contains(b.MACs, mac) })
	default:
		return a.UUID != "" && a.UUID == b.UUID
	}
}
