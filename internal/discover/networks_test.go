package discover_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/discover"
)

func TestNetworksAreReadInEveryForm(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]struct {
		shown string
		size  int
	}{
		"192.168.0.0/22":                  {"192.168.0.0/22", 1022},
		"192.168.1.77/24":                 {"192.168.1.0/24", 254},
		"10.0.0.0/20":                     {"10.0.0.0/20", 4094},
		"10.0.0.4/31":                     {"10.0.0.4/31", 2},
		"10.0.0.4/32":                     {"10.0.0.4", 1},
		"10.0.0.10-10.0.0.99":             {"10.0.0.10-10.0.0.99", 90},
		"127.5.6.7":                       {"127.5.6.7", 1},
		"fd00::/116":                      {"fd00::/116", 4096},
		"2001:db8::10-2001:db8::1f":       {"2001:db8::10/124", 16},
		"10.0.1.0/24,10.0.1.9,10.0.0.7":   {"10.0.0.7, 10.0.1.0/24", 255},
		"10.0.0.1-10.0.0.9,10.0.0.5/29":   {"10.0.0.1-10.0.0.9", 9},
		"10.0.0.1,10.0.0.3,10.0.0.5,fd::": {"10.0.0.1, 10.0.0.3, 10.0.0.5 and 1 more", 4},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()

			networks, err := discover.ParseNetworks(strings.Split(text, ","), false)
			require.NoError(t, err)
			require.Equal(t, want.shown, networks.String())
			require.Equal(t, want.size, networks.Size())

			addresses := slices.Collect(networks.Addresses())
			require.Len(t, addresses, want.size)
			require.True(t, slices.IsSortedFunc(addresses, netip.Addr.Compare))
		})
	}
}

func TestNetworksThatAreRefused(t *testing.T) {
	t.Parallel()

	for text, why := range map[string]string{
		"192.168.1.0/33":          `"192.168.1.0/33" is no network, as 192.168.1.0/24`,
		"192.168.1":               `"192.168.1" is neither a network, as 192.168.1.0/24, nor an address`,
		"lab":                     `"lab" is neither a network`,
		"10.0.0.1-99":             `"10.0.0.1-99" is no range of addresses, as 192.168.1.10-192.168.1.99`,
		"10.0.0.9-10.0.0.1":       `"10.0.0.9-10.0.0.1" ends before it begins`,
		"10.0.0.1-fd00::1":        `"10.0.0.1-fd00::1" mixes two kinds of addresses`,
		"::ffff:10.0.0.1":         `"::ffff:10.0.0.1" is IPv4 in the form of IPv6`,
		"10.0.0.0/19":             "10.0.0.0/19 has 8190 addresses, more than a /20: -wide asks them all the same",
		"10.0.0.0-10.0.255.255":   "has 65536 addresses, more than a /20: -wide",
		"8.8.8.0/24":              "8.8.8.0/24 is a public network: if it is yours to scan, -wide asks it all the same",
		"9.255.255.250-10.0.0.10": "is a public network: if it is yours to scan, -wide asks",
		"fd00::/115":              "fd00::/115 has more than 4096 addresses, which nobody can ask one by one: name a part",
		"::ffff:10.0.0.0/120":     `"::ffff:10.0.0.0/120" is IPv4 in the form of IPv6`,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()

			_, err := discover.ParseNetworks([]string{text}, false)
			require.ErrorContains(t, err, why)

			_, err = discover.ParseNetworks([]string{text}, true)
			require.Equal(t, !strings.Contains(why, "-wide"), err != nil, err)
		})
	}
}

// Where no network is named, it is that of each address; not more than anybody would want to be asked.
func TestTheNetworksOfKnownAddresses(t *testing.T) {
	t.Parallel()

	for known, want := range map[string][2]string{
		"192.168.1.10/26": {"192.168.1.0/26", "192.168.1.0/26"},
		"192.168.1.10/32": {"192.168.1.0/24", "192.168.1.0/24"},
		"10.9.8.7/8":      {"10.9.8.0/24", "10.0.0.0/8"},
		"8.8.8.8/24":      {"8.8.8.8", "8.8.8.0/24"},
	} {
		for i, wide := range []bool{false, true} {
			networks, err := discover.Around([]netip.Prefix{netip.MustParsePrefix(known)}, wide)
			require.NoError(t, err)
			require.Equal(t, want[i], networks.String())
		}
	}
}
