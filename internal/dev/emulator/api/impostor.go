package api

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/siderolabs/crypto/x509"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/certs"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
)

// serveHTTPS is a web server with a certificate that nobody knows.
func serveHTTPS(listener net.Listener) {
	now := time.Now()

	ca, err := x509.NewSelfSignedCertificateAuthority(x509.NotBefore(now), x509.NotAfter(now.Add(time.Hour)))
	if err != nil {
		return
	}

	pair, err := x509.NewKeyPair(ca, certs.ServerCertificate("appliance.example", nil, "appliance.example", nil, now)...)
	if err != nil {
		return
	}

	serveHTTP(tls.NewListener(listener, &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{*pair.Certificate},
	}))
}

func serveHTTP(listener net.Listener) {
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // probes hang up in the middle
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusNotFound)
			w.Write([]byte("<html><body>not found</body></html>")) //nolint:errcheck // the client may be gone
		}),
	}
	defer server.Close() //nolint:errcheck // ends the connections

	server.Serve(listener) //nolint:errcheck // ends when the listener closes
}

// serveText greets, or does not, and ignores what it is told; or it hangs up at once.
func serveText(listener net.Listener, kind faults.Impostor) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}

		if kind == faults.HangUpImpostor {
			conn.Close() //nolint:errcheck // nothing was said

			continue
		}

		if kind == faults.SSHImpostor {
			conn.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n")) //nolint:errcheck // the client may be gone
		}

		go func() {
			defer conn.Close() //nolint:errcheck // nothing to lose

			buffer := make([]byte, 4096)

			for {
				if _, err := conn.Read(buffer); err != nil {
					return
				}
			}
		}()
	}
}
