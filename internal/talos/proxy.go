package talos

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// Proxy is the proxy that the environment prescribes for connections to a node.
type Proxy struct {
	// Variable is the environment variable in force: "HTTPS_PROXY" or "https_proxy".
	Variable string
	// Host is the proxy's host and port, without credentials.
	Host string
}

func (p *Proxy) String() string { return fmt.Sprintf("%s=%s", p.Variable, p.Host) }

// ProxyFor tells which proxy connections to a node's address go through, nil for none. Go's rules apply: HTTPS_PROXY,
// NO_PROXY with names, addresses and CIDRs; loopback addresses never use one; a value that is no URL is ignored.
func ProxyFor(address string) *Proxy {
	host, port, err := splitAddress(address)
	if err != nil {
		return nil
	}

	// The error concerns plain HTTP only.
	proxy, err := httpproxy.FromEnvironment().ProxyFunc()(&url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)})
	if err != nil || proxy == nil {
		return nil
	}

	variable := "HTTPS_PROXY"
	if os.Getenv(variable) == "" {
		variable = "https_proxy"
	}

	return &Proxy{Variable: variable, Host: proxy.Host}
}

// silence tells from a failed connection through the proxy how the node is silent. Errors of an HTTP proxy say nothing
// about the node; a SOCKS proxy reports what happened there.
func (p *Proxy) silence(err error) Silence {
	reply, fromSocks := strings.CutPrefix(err.Error(), "socks connect ")
	switch {
	case fromSocks && strings.HasSuffix(reply, "connection refused"):
		return Refused
	case fromSocks && (strings.HasSuffix(reply, "host unreachable") || strings.HasSuffix(reply, "TTL expired")):
		return NoAnswer
	default:
		return Broken
	}
}
