package inventory

import (
	"net/netip"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

var (
	label        = pattern.New(`^[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9])?$`)
	rangeAddress = pattern.New(`^[0-9.]+-[0-9.]+$`)
	numbersOnly  = pattern.New(`^[0-9.]+$`)
	withPort     = pattern.New(`^[^:]*:[0-9]+$|^\[.*\]`)
)

// badAddress says what is wrong with a node's address; empty if it is an IP address or a DNS name.
func badAddress(text string) string {
	if _, err := netip.ParseAddr(text); err == nil {
		return ""
	}

	name := strings.TrimSuffix(text, ".")
	labels := strings.Split(name, ".")

	switch {
	case text == "":
		return "is empty: there is a comma too many"
	case strings.Contains(text, "://"):
		return "has a scheme: give the address alone"
	case strings.Contains(text, "/"):
		return "has a prefix length: give the address alone"
	case rangeAddress.MatchString(text):
		return "is a range: list every address, separated by commas"
	case withPort.MatchString(text):
		return "has a port or brackets: give the address alone (NODE_ADDRESSES takes ports)"
	case strings.ContainsAny(text, " \t"):
		return "has a space in it: separate addresses with commas"
	case strings.Contains(text, ":"):
		return "is not a valid IPv6 address"
	case numbersOnly.MatchString(text):
		return "is not a valid IPv4 address: it takes four numbers up to 255"
	case len(name) > 253 || !validLabels(labels):
		return "is neither an IP address nor a DNS name"
	case !strings.ContainsAny(strings.ToLower(labels[len(labels)-1]), "abcdefghijklmnopqrstuvwxyz"):
		return "is neither an IP address nor a DNS name"
	default:
		return ""
	}
}

func validLabels(labels []string) bool {
	for _, text := range labels {
		if !label.MatchString(text) {
			return false
		}
	}

	return true
}

// addressKey is equal for two ways to write one address.
func addressKey(text string) string {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Unmap().String()
	}

	return strings.ToLower(strings.TrimSuffix(text, "."))
}
