package certs

import (
	"crypto/tls"
	"sync"
	"time"
)

// Kept is the certificate of a server that runs on. It is made anew when half of its time is over, and when the
// node's clock was set: Talos' controllers do it at those times (secrets/trustd.go, secrets/kubernetes_dynamic_certs.go
// in its internal/app/machined/pkg/controllers).
type Kept struct {
	issue func() (tls.Certificate, error)
	now   func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
}

// Keep makes a certificate, and again whenever it is due by the clock.
func Keep(now func() time.Time, issue func() (tls.Certificate, error)) (*Kept, error) {
	kept := &Kept{issue: issue, now: now}
	_, err := kept.Current(nil)

	return kept, err
}

// Current is the certificate for a connection that begins now; it is tls.Config's GetCertificate.
func (k *Kept) Current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.current != nil {
		from, until := k.current.Leaf.NotBefore, k.current.Leaf.NotAfter
		if now := k.now(); !now.Before(from) && now.Before(from.Add(until.Sub(from)/2)) {
			return k.current, nil
		}
	}

	certificate, err := k.issue()
	if err != nil {
		return nil, err
	}

	k.current = &certificate

	return k.current, nil
}
