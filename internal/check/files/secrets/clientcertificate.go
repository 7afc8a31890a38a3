package secrets

import (
	"time"

	"github.com/talos-mage/talos-mage/internal/check"
)

// checkClientCertificate judges the dates of the talosconfig's client certificate.
func checkClientCertificate(r *check.Report, in *check.Input) {
	now, begins, ends := in.Options.Checks.Now, in.Credentials.NotBefore(), in.Credentials.NotAfter()
	place := in.OfContext("crt").Masked()
	renew := "make a new talosconfig from the secrets file (`" + check.GenerateCommand + "`)"

	switch {
	case now.After(ends):
		r.Found(place, renew, "the talosconfig's client certificate expired on %s: no configured node would answer",
			day(ends))
	case now.Before(begins):
		r.Found(place, "set this machine's clock, or "+renew,
			"the talosconfig's client certificate is valid from %s on, and this machine's clock says %s",
			begins.UTC().Format(time.DateTime), now.UTC().Format(time.DateTime))
	case now.Add(soon).After(ends):
		r.Warn(place, renew, "the talosconfig's client certificate expires on %s", day(ends))
	default:
		r.Seen("the client certificate is good until %s", day(ends))
	}
}
