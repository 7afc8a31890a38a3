package faults_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// gateway is the proxy that this process's HTTPS_PROXY names. Connections to loopback addresses never use one, so it
// concerns only those worlds whose machines are said to be elsewhere.
type gateway struct {
	mu    sync.Mutex
	leads map[string]string // where a host and port lead; those that it doesn't have can't be reached
}

var proxy = &gateway{leads: map[string]string{}} //nolint:gochecknoglobals // as the environment is

// start listens, and puts the proxy in force.
func (g *gateway) start() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // as long as the process lives
	if err != nil {
		return fmt.Errorf("start proxy: %w", err)
	}

	go http.Serve(listener, g) //nolint:errcheck,gosec // as above

	for name, value := range map[string]string{"HTTPS_PROXY": "http://" + listener.Addr().String(), "https_proxy": "",
		"NO_PROXY": "", "no_proxy": ""} {
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("put proxy in force: %w", err)
		}
	}

	return nil
}

// lead makes an address that is not there lead to a machine, through the proxy alone.
func (g *gateway) lead(address string, node *emulator.Node) {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.leads[address] = node.Endpoint()
}

// ServeHTTP tunnels a connection, if it leads anywhere.
func (g *gateway) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	g.mu.Lock()
	to, known := g.leads[request.Host]
	g.mu.Unlock()

	if request.Method != http.MethodConnect || !known {
		http.Error(w, "no way there", http.StatusBadGateway)

		return
	}

	node, err := (&net.Dialer{}).DialContext(request.Context(), "tcp", to)
	if err != nil {
		http.Error(w, "no way there", http.StatusBadGateway)

		return
	}
	defer node.Close()

	client, buffered, err := w.(http.Hijacker).Hijack() //nolint:forcetypeassert // net/http's own always is one
	if err != nil {
		return
	}
	defer client.Close()

	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}

	ended := make(chan struct{}, 2)

	go func() { io.Copy(node, buffered); ended <- struct{}{} }() //nolint:errcheck // either end may hang up
	go func() { io.Copy(client, node); ended <- struct{}{} }()   //nolint:errcheck // as above

	<-ended
}

// proxyFaults are those of a proxy variable that is in force.
func proxyFaults() []fault {
	// Addresses with ports are ways in of their own: nothing else is tried.
	at := func(address string) func(*testing.T, *world, *emulator.NodeOptions) {
		return func(_ *testing.T, w *world, _ *emulator.NodeOptions) {
			w.settings = append(w.settings, "NODE_ADDRESSES=cp1="+address)
		}
	}

	directly := func(_ *testing.T, w *world) { w.settings = append(w.settings, "NODE_ADDRESSES=") }

	return []fault{
		{
			title: "HTTPS_PROXY is in force, and the proxy leads to the nodes", class: "as without one", knob: "HTTPS_PROXY",
			edit: at("192.0.2.11:50000"),
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1)
				proxy.lead("192.0.2.11:50000", w.Node(cp1))
			},
			run: "preflight", settings: []string{"LOG_LEVEL=debug"},
			seen: "reached through the proxy of HTTPS_PROXY", node: cp1,
			heal: directly,
		},
		{
			title: "HTTPS_PROXY is in force, and the proxy does not lead to the nodes", class: "the proxy answers, not the node",
			knob:     "HTTPS_PROXY",
			edit:     at("192.0.2.12:50000"),
			settings: soon,
			code:     diagnosis.ExitApply, id: diagnosis.ProxyInTheWay, node: cp1,
			seen: "the connection through the proxy failed",
			also: func(t *testing.T, _ *world, got outcome) {
				t.Helper()
				require.Contains(t, got.message, "NO_PROXY")
			},
			heal: directly,
		},
	}
}
