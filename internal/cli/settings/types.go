package settings

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/base/secrettext"
)

// errShape refuses a value that isn't of its type at all: what the setting takes says everything about it.
var errShape = errors.New("not a value of this type")

// parsers read the types whose usual form isn't the one that people type here.
var parsers = map[reflect.Type]env.ParserFunc{
	reflect.TypeFor[time.Duration](): func(text string) (any, error) { return parseDuration(text) },
	reflect.TypeFor[bool]():          func(text string) (any, error) { return parseBool(text) },
	reflect.TypeFor[int]():           func(text string) (any, error) { return parseInt(text) },
	reflect.TypeFor[float64]():       func(text string) (any, error) { return parseFloat(text) },
	reflect.TypeFor[string]():        func(text string) (any, error) { return strings.TrimSpace(text), nil },
	reflect.TypeFor[[]string]():      func(text string) (any, error) { return parseList(text), nil },
}

// parseDuration reads a Go duration, or a bare number as seconds.
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		seconds, err := parseFloat(text)
		if err != nil {
			return 0, err
		}

		if math.Abs(seconds) >= math.MaxInt64/float64(time.Second) {
			return 0, errors.New("longer than 292 years")
		}

		d = time.Duration(seconds * float64(time.Second))
	}

	if d < 0 {
		return 0, errors.New("a duration can't be negative")
	}

	return d, nil
}

// parseBool reads the words people use for a switch.
func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "1", "t", "true", "yes", "y", "on":
		return true, nil
	case "0", "f", "false", "no", "n", "off":
		return false, nil
	default:
		return false, errShape
	}
}

func parseInt(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, errShape
	}

	return n, nil
}

// parseFloat reads a finite number.
func parseFloat(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, errShape
	}

	return f, nil
}

// parseList reads comma separated words; spaces around them and empty ones don't count.
func parseList(text string) []string {
	var list []string
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			list = append(list, word)
		}
	}

	return list
}

// Parallel bounds how many nodes are worked on at once: a number of nodes, or a share of them.
type Parallel struct {
	number  int
	percent bool
}

// UnmarshalText reads "2" or "50%".
func (p *Parallel) UnmarshalText(text []byte) error {
	digits, percent := strings.CutSuffix(strings.TrimSpace(string(text)), "%")

	number, err := parseInt(strings.TrimSpace(digits))
	if err != nil {
		return err
	}

	switch {
	case number < 1:
		return errors.New("at least one node must be worked on")
	case percent && number > 100:
		return errors.New("more than all nodes")
	}

	*p = Parallel{number: number, percent: percent}

	return nil
}

// Of is the bound for so many nodes: a share is rounded up, and it is never below 1.
func (p Parallel) Of(total int) int {
	if p.percent {
		return max(1, (total*p.number+99)/100)
	}

	return max(1, p.number)
}

// String is the form that UnmarshalText reads.
func (p Parallel) String() string {
	if p.percent {
		return fmt.Sprintf("%d%%", p.number)
	}

	return strconv.Itoa(p.number)
}

// Addresses maps names of nodes to where they answer now: "host", or "host:port" with IPv6 in brackets.
type Addresses map[string]string

// UnmarshalText reads "cp1=192.0.2.73,cp2=[2001:db8::5]:50000". The name of a node may have an address in brackets
// ("cp[192.0.2.11]").
func (a *Addresses) UnmarshalText(text []byte) error {
	addresses := Addresses{}
	for _, entry := range parseList(string(text)) {
		name, address, found := strings.Cut(entry, "=")
		name, address = strings.TrimSpace(name), strings.TrimSpace(address)
		if !found || name == "" || address == "" {
			return fmt.Errorf("%q is not name=address", secrettext.Shown(entry))
		}

		if _, twice := addresses[name]; twice {
			return fmt.Errorf("node %q has two addresses", secrettext.Shown(name))
		}

		host, err := parseAddress(address)
		if err != nil {
			return fmt.Errorf("address %q of node %q: %w", secrettext.Shown(address), secrettext.Shown(name), err)
		}

		addresses[name] = host
	}

	*a = addresses

	return nil
}

// parseAddress checks an IP address or DNS name with an optional port and gives it in its plain form.
func parseAddress(text string) (string, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		return ip.String(), nil
	}

	if inner, bracketed := strings.CutPrefix(text, "["); bracketed && strings.HasSuffix(inner, "]") {
		ip, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		if err != nil {
			return "", errors.New("no IP address in the brackets")
		}

		return ip.String(), nil
	}

	host, port := text, ""

	if strings.Contains(text, ":") {
		var err error
		if host, port, err = net.SplitHostPort(text); err != nil {
			return "", errors.New("not host:port (IPv6 with a port needs brackets)")
		}

		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", errors.New("the port is not a number from 1 to 65535")
		}
	}

	if ip, err := netip.ParseAddr(host); err == nil {
		return net.JoinHostPort(ip.String(), port), nil
	}

	if err := checkHostName(host); err != nil {
		return "", err
	}

	if port == "" {
		return host, nil
	}

	return net.JoinHostPort(host, port), nil
}

// checkHostName refuses what DNS could not resolve, and above all a mistyped IPv4 address, which would otherwise be
// looked up as a name.
func checkHostName(name string) error {
	if strings.Trim(name, "0123456789.") == "" {
		return errors.New("not an IP address")
	}

	if host.Fault(name) != "" {
		return errors.New("neither an IP address nor a DNS name")
	}

	return nil
}
