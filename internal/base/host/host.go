// Package host judges the names and addresses that machines have: whoever reads one from a file or a setting asks here.
package host

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// Longest name of a machine with its domain, in characters.
const longest = 253

var (
	label = pattern.New(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`)
	// resolved are labels that name servers take too.
	resolved = pattern.New(`^[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9])?$`)

	numbers      = pattern.New(`^[0-9.]+$`)
	withPort     = pattern.New(`^[^:]*:[0-9]+$|^\[.*\]`)
	threeNumbers = pattern.New(`^\d{1,3}(\.\d{1,3}){0,2}(/\d+)?$`)
	fourNumbers  = pattern.New(`^\d+(\.\d+){3,}(/\d+)?$`)
)

// IsLabel reports whether a text is one part of a machine's name: letters, digits and dashes, up to 63.
func IsLabel(text string) bool { return label.MatchString(text) }

// IsName reports whether a text is a machine's name, with a domain or without.
func IsName(text string) bool { return hasLabels(text, label) }

// IsLowerName reports whether a text is a name as Kubernetes and DNS write it, which is in lower case.
func IsLowerName(text string) bool { return IsName(text) && text == strings.ToLower(text) }

// IsDNSName reports whether a name server may know a text: it can have underscores, and a dot at its end.
func IsDNSName(text string) bool { return hasLabels(strings.TrimSuffix(text, "."), resolved) }

// IsIP reports whether a text is an IP address.
func IsIP(text string) bool {
	_, err := netip.ParseAddr(text)

	return err == nil
}

func hasLabels(text string, label pattern.Pattern) bool {
	return len(text) <= longest && !slices.ContainsFunc(strings.Split(text, "."),
		func(part string) bool { return !label.MatchString(part) })
}

// Fault says what is wrong with a machine's address; empty if it is an IP address or a DNS name, and no address that is
// mistyped, which would be looked up as a name.
func Fault(text string) string {
	switch {
	case IsIP(text):
		return ""
	case text == "":
		return "is empty: there is a comma too many"
	case strings.Contains(text, "://"):
		return "has a scheme: give the address alone"
	case strings.Contains(text, "/"):
		return "has a prefix length: give the address alone"
	case isRange(text):
		return "is a range: list every address, separated by commas"
	case withPort.MatchString(text):
		return "has a port or brackets: give the address alone (NODE_ADDRESSES takes ports)"
	case strings.ContainsAny(text, " \t"):
		return "has a space in it: separate addresses with commas"
	case strings.Contains(text, ":"):
		return "is not a valid IPv6 address"
	case numbers.MatchString(text):
		return "is not a valid IPv4 address: it takes four numbers up to 255"
	case !IsDNSName(text) || !endsInWord(text):
		return "is neither an IP address nor a DNS name"
	default:
		return ""
	}
}

// isRange reports whether a text is two addresses, or parts of them, with a dash between.
func isRange(text string) bool {
	from, to, found := strings.Cut(text, "-")
	isEnd := func(end string) bool { return IsIP(end) || numbers.MatchString(end) }

	return found && isEnd(strings.TrimSpace(from)) && isEnd(strings.TrimSpace(to))
}

// endsInWord reports whether the last part of a name has a letter, as every domain of the Internet has.
func endsInWord(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))

	return strings.ContainsAny(name[strings.LastIndex(name, ".")+1:], "abcdefghijklmnopqrstuvwxyz")
}

// Mistyped says what is wrong with a text that looks like an address and is none; empty for addresses and names.
func Mistyped(text string) string {
	trimmed := strings.TrimSpace(text)
	address, _, hasLength := strings.Cut(trimmed, "/")
	isIP := IsIP(address)

	switch {
	case isIP && !hasLength:
		return ""
	case strings.ContainsAny(trimmed, ", ") && trimmed != "":
		return "several values stand in one"
	case isRange(trimmed):
		return "a range of addresses"
	case threeNumbers.MatchString(trimmed):
		return "an IPv4 address has four numbers"
	case fourNumbers.MatchString(trimmed) && !isIP:
		return "an IPv4 address has four numbers from 0 to 255"
	case strings.Count(trimmed, ":") > 1 && !strings.HasPrefix(trimmed, "[") && !strings.Contains(trimmed, "://") && !isIP:
		return "an IPv6 address, with brackets if a port follows"
	default:
		return ""
	}
}

// Key is equal for two ways to write one address.
func Key(text string) string {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Unmap().String()
	}

	return strings.ToLower(strings.TrimSuffix(text, "."))
}

// bareMAC is a hardware address without anything between its digits.
var bareMAC = pattern.New(`^[0-9A-Fa-f]{12}$`)

// MAC is a hardware address of six octets, in lower case with colons, however it is written: with colons, dashes or
// Cisco's dots, or nothing but digits. Empty for anything else.
func MAC(text string) string {
	if bareMAC.MatchString(text) {
		text = text[:4] + "." + text[4:8] + "." + text[8:]
	}

	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 {
		return ""
	}

	return mac.String()
}
