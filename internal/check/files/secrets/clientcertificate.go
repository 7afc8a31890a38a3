package secrets

import (
	"time"

	"github.com/talos-mage/talos-mage/internal/check"
)

// checkClientCertificate judges the dates of the talosconfig's client certificate.
func checkClientCertificate(r *check.Report, in *check.Input) {
	place := in.OfContext("crt").Masked()
	renew := "renew it from the secrets file: mage config:rotate"

	switch when, text := judgeDates(in, in.Credentials.NotBefore(), in.Credentials.NotAfter()); when {
	case ended:
		r.Found(place, renew, "the talosconfig's client certificate %s: no configured node would answer", text)
	case notYet:
		r.Found(place, "set this computer's clock, or "+renew, "the talosconfig's client certificate %s", text)
	case endsSoon:
		r.Warn(place, renew, "the talosconfig's client certificate %s", text)
	default:
		r.Seen("the client certificate %s", text)
	}
}

// validity says how a certificate's dates stand to a time.
type validity int

const (
	good validity = iota
	endsSoon
	ended
	notYet
)

// soon is how long before its end a certificate is called to attention.
const soon = 30 * 24 * time.Hour

// judgeDates compares a certificate's dates with the time of the run, and says so in words.
func judgeDates(in *check.Input, begins, ends time.Time) (validity, string) {
	now := in.Options.Checks.Now

	switch {
	case now.After(ends):
		return ended, "expired on " + day(ends)
	case now.Before(begins):
		return notYet, "is valid from " + begins.UTC().Format(time.DateTime) + " on, and this computer's clock says " +
			now.UTC().Format(time.DateTime)
	case now.Add(soon).After(ends):
		return endsSoon, "expires on " + day(ends)
	default:
		return good, "is good until " + day(ends)
	}
}
