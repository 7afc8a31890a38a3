package preflight

import (
	"context"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// soon is how long before its end a client certificate is called to attention.
const soon = 30 * 24 * time.Hour

// checkClientCertificate judges the dates of the talosconfig's client certificate.
func checkClientCertificate(_ context.Context, w whole) []diagnosis.Finding {
	if w.credentials == nil {
		return nil
	}

	now, begins, ends := w.options.Now, w.credentials.NotBefore(), w.credentials.NotAfter()
	renew := "make a new talosconfig from the secrets file (`" + generateCommand + "`)"

	switch {
	case now.After(ends):
		return w.about(nil, diagnosis.ClientCertificate, diagnosis.Failure, renew,
			"the talosconfig's client certificate expired on %s: no configured node would answer",
			ends.UTC().Format(time.DateOnly))
	case now.Before(begins):
		return w.about(nil, diagnosis.ClientCertificate, diagnosis.Failure, "set this machine's clock, or "+renew,
			"the talosconfig's client certificate is valid from %s on, and this machine's clock says %s",
			begins.UTC().Format(time.DateTime), now.UTC().Format(time.DateTime))
	case now.Add(soon).After(ends):
		return w.about(nil, diagnosis.ClientCertificate, diagnosis.Warning, renew,
			"the talosconfig's client certificate expires on %s", ends.UTC().Format(time.DateOnly))
	default:
		return w.ok(diagnosis.ClientCertificate, "the client certificate is good until %s", ends.UTC().Format(time.DateOnly))
	}
}
