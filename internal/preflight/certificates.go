package preflight

import (
	"bytes"
	"context"
	"encoding/pem"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/inventory"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// soon is how long before its end a client certificate is called to attention.
const soon = 30 * 24 * time.Hour

// trust is the certificate authorities that one file holds.
type trust struct {
	node        *inventory.Node // nil for the talosconfig
	file        string
	authorities [][]byte // DER
}

func (t trust) accepts(authority []byte) bool {
	return slices.ContainsFunc(t.authorities, func(own []byte) bool { return bytes.Equal(own, authority) })
}

// checkCertificateAuthority finds files that were made from other secrets than the rest. The talosconfig decides; without one, the majority.
func checkCertificateAuthority(_ context.Context, w whole) []diagnosis.Finding {
	var files []trust

	if w.credentials != nil {
		files = append(files, trust{file: "the talosconfig", authorities: authorities(w.credentials.CA())})
	}

	for node, config := range w.each() {
		held := authorities(config.CA())
		for _, accepted := range config.AcceptedCAs() {
			held = append(held, authorities(accepted)...)
		}

		files = append(files, trust{node: node, file: filepath.Base(config.Path), authorities: held})
	}

	reference := prevailing(files, w.credentials != nil)
	if reference == nil {
		return nil
	}

	var findings []diagnosis.Finding

	for _, file := range files {
		if !file.accepts(reference) {
			findings = append(findings, w.about(file.node, diagnosis.MixedCertificateAuthority, diagnosis.Failure,
				"generate all files again from the one secrets file: `"+generateCommand+"`, then `mage preflight`",
				"%s has another certificate authority than %s: these files come from two different secrets", file.file, namesBut(files, reference))...)
		}
	}

	return w.okUnless(findings, diagnosis.MixedCertificateAuthority, "one certificate authority in %d files", len(files))
}

// prevailing is the certificate authority that the files are measured by: the first file's where it decides, else the one that most files accept.
func prevailing(files []trust, firstDecides bool) []byte {
	var (
		best  []byte
		count int
	)

	for i, file := range files {
		for _, authority := range file.authorities {
			accepting := 0

			for _, other := range files {
				if other.accepts(authority) {
					accepting++
				}
			}

			if accepting > count {
				best, count = authority, accepting
			}
		}

		if i == 0 && firstDecides && best != nil {
			return best
		}
	}

	return best
}

// namesBut names the files that do hold a certificate authority.
func namesBut(files []trust, authority []byte) string {
	var names []string

	for _, file := range files {
		if file.accepts(authority) {
			names = append(names, file.file)
		}
	}

	if len(names) > 3 {
		names = append(names[:3], "others")
	}

	return strings.Join(names, ", ")
}

// authorities decodes PEM certificates; what is none is left out.
func authorities(data []byte) [][]byte {
	var decoded [][]byte

	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			decoded = append(decoded, block.Bytes)
		}
	}

	return decoded
}

// checkClusterSecrets finds a machine config whose shared secrets, such as the join token, are not those of the others: it could not join them.
func checkClusterSecrets(_ context.Context, w whole) []diagnosis.Finding {
	reference := w.usual()

	var findings []diagnosis.Finding

	for node, config := range w.each() {
		different := slices.DeleteFunc(config.DifferentSecrets(reference), func(name string) bool { return name == "machine.ca" })
		if len(different) == 0 {
			continue
		}

		id := diagnosis.MixedSecrets
		if slices.Contains(different, "cluster.ca") {
			id = diagnosis.MixedCertificateAuthority
		}

		findings = append(findings, w.about(node, id, diagnosis.Failure,
			"generate all files again from the one secrets file: `"+generateCommand+"`, then `mage preflight`",
			"%s has another %s than %s", filepath.Base(config.Path), strings.Join(different, ", "), filepath.Base(reference.Path))...)
	}

	return findings
}

// usual is the machine config that most others agree with about the shared secrets, the first of several; nil without any.
func (w whole) usual() *machineconfig.Config {
	var (
		best *machineconfig.Config
		most int
	)

	for _, candidate := range w.each() {
		agreeing := 0

		for _, other := range w.each() {
			if len(candidate.DifferentSecrets(other)) == 0 {
				agreeing++
			}
		}

		if agreeing > most {
			best, most = candidate, agreeing
		}
	}

	return best
}

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
			"the talosconfig's client certificate expired on %s: no configured node would answer", ends.UTC().Format(time.DateOnly))
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
