package host_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/host"
)

func TestNames(t *testing.T) {
	t.Parallel()

	long := strings.Repeat("x", 63)

	for text, want := range map[string]struct{ label, name, lower, dns bool }{
		"cp1":                                   {true, true, true, true},
		"CP-1":                                  {true, true, false, true},
		"cp1.example.org":                       {false, true, true, true},
		"cp1.example.org.":                      {false, false, false, true},
		"w_1":                                   {false, false, false, true},
		"-cp1":                                  {},
		"cp1-":                                  {},
		"a..b":                                  {},
		"":                                      {},
		long:                                    {true, true, true, true},
		long + "x":                              {},
		strings.Repeat(long+".", 3) + long:      {},
		strings.Repeat(long+".", 3) + long[:61]: {false, true, true, true},
		strings.Repeat(long+".", 3) + long[:62]: {},
		"192.0.2.1":                             {false, true, true, true},
		"knoten-mit-umlaut-\u00e4":              {},
	} {
		require.Equal(t, want.label, host.IsLabel(text), text)
		require.Equal(t, want.name, host.IsName(text), text)
		require.Equal(t, want.lower, host.IsLowerName(text), text)
		require.Equal(t, want.dns, host.IsDNSName(text), text)
	}
}

func TestFaultsOfAddresses(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"192.0.2.11":            "",
		"2001:db8::1":           "",
		"cp1.example.org":       "",
		"under_score.example":   "",
		"cafe-1.de":             "",
		"":                      "is empty",
		"https://192.0.2.11":    "has a scheme",
		"192.0.2.11/24":         "has a prefix length",
		"192.0.2.11-192.0.2.13": "is a range",
		"192.0.2.11:50000":      "has a port or brackets",
		"[2001:db8::1]":         "has a port or brackets",
		"192.0.2.11 192.0.2.12": "has a space in it",
		"2001:db8::g":           "is not a valid IPv6 address",
		"192.0.2.300":           "is not a valid IPv4 address",
		"192.0.2":               "is not a valid IPv4 address",
		"a..b":                  "is neither an IP address nor a DNS name",
		"node.1-2":              "is neither an IP address nor a DNS name",
	} {
		if want == "" {
			require.Empty(t, host.Fault(text), text)
		} else {
			require.Contains(t, host.Fault(text), want, text)
		}
	}
}

func TestMistypedAddressesAreToldFromNames(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"192.0.2.1":               "",
		"cp1.example.org":         "",
		"192.0.2.1, 192.0.2.2":    "several values",
		"192.0.2.1-192.0.2.9":     "a range",
		"2001:db8::1-2001:db8::9": "a range",
		"192.0.2":                 "four numbers",
		"192.0.2.300/24":          "from 0 to 255",
		"2001:db8::g:1":           "an IPv6 address",
	} {
		if want == "" {
			require.Empty(t, host.Mistyped(text), text)
		} else {
			require.Contains(t, host.Mistyped(text), want, text)
		}
	}
}

func TestOneAddressHasOneKey(t *testing.T) {
	t.Parallel()

	require.Equal(t, host.Key("192.0.2.1"), host.Key("::ffff:192.0.2.1"))
	require.Equal(t, host.Key("2001:DB8:0::1"), host.Key("2001:db8::1"))
	require.Equal(t, host.Key("CP1.example."), host.Key("cp1.example"))
	require.NotEqual(t, host.Key("192.0.2.1"), host.Key("192.0.2.2"))
}

func TestMAC(t *testing.T) {
	t.Parallel()

	require.Equal(t, "02:00:5e:10:00:01", host.MAC("02-00-5E-10-00-01"))
	require.Equal(t, "02:00:5e:10:00:01", host.MAC("0200.5E10.0001"))
	require.Equal(t, "02:00:5e:10:00:01", host.MAC("02005E100001"))
	require.Empty(t, host.MAC("02005E10000"))
	require.Empty(t, host.MAC("02005E10000g"))
	require.Empty(t, host.MAC("02:00:5e:*"))
	require.Empty(t, host.MAC("02:00:5e:10:00:01:02:03"))
}
