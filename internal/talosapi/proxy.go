package talosapi

import (
	"fmt"
	"net"
	"net/url"
	"os"

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
// NO_PROXY with names, addresses and CIDRs; loopback addresses never use one.
func ProxyFor(address string) (*Proxy, error) {
	host, port, err := splitAddress(address)
	if err != nil {
		return nil, err
	}

	variable := "HTTPS_PROXY"
	if os.Getenv(variable) == "" {
		variable = "https_proxy"
	}

	proxy, err := httpproxy.FromEnvironment().ProxyFunc()(&url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)})
	if err != nil {
		// The error would quote the value, which may hold a password.
		return nil, fmt.Errorf("%w: %s is not a proxy URL", ErrProxy, variable)
	}

	if proxy == nil {
		return nil, nil //nolint:nilnil // no proxy is no error
	}

	return &Proxy{Variable: variable, Host: proxy.Host}, nil
}
