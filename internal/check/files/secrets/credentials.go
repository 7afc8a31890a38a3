package secrets

import (
	"bytes"
	"cmp"
	"crypto"
	"encoding/base64"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/secrettext"
	"github.com/talos-mage/talos-mage/internal/check"

	pki "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// sharedKey is a secret that all control planes have in common, besides those that all nodes have.
type sharedKey struct {
	path     string
	of       func(*check.Rendered) string
	severity diagnosis.Severity
}

var sharedKeys = []sharedKey{
	{"cluster.etcd.ca", authorityKey("cluster.etcd.ca"), diagnosis.Failure},
	{"cluster.aggregatorCA", authorityKey("cluster.aggregatorCA"), diagnosis.Warning},
	{"cluster.serviceAccount", func(c *check.Rendered) string {
		return string(bytes.TrimSpace(c.ServiceAccountKey()))
	}, diagnosis.Failure},
	{"cluster.secretboxEncryptionSecret", func(c *check.Rendered) string { return c.SecretboxSecret() },
		diagnosis.Failure},
	{"cluster.aescbcEncryptionSecret", func(c *check.Rendered) string { return c.AESCBCSecret() }, diagnosis.Failure},
}

// authorityKey gives the public key of an authority: its certificate may be renewed. It is empty where there is none
// that can be read.
func authorityKey(path string) func(*check.Rendered) string {
	return func(c *check.Rendered) string {
		for _, authority := range c.Authorities() {
			if certificate, err := authority.GetCert(); authority.Field == path && err == nil {
				return string(certificate.RawSubjectPublicKeyInfo)
			}
		}

		return ""
	}
}

// checkSharedKeys compares the control planes' keys with those of most.
func checkSharedKeys(r *check.Report, in *check.Input) {
	controlPlanes := slices.DeleteFunc(slices.Clone(in.Configs), check.IsWorker)

	for _, key := range sharedKeys {
		votes := map[string]int{}
		common := ""

		for _, config := range controlPlanes {
			if value := key.of(config); value != "" {
				if votes[value]++; votes[value] > votes[common] {
					common = value
				}
			}
		}

		for _, config := range controlPlanes {
			if value := key.of(config); value != "" && value != common {
				r.Config = config
				r.Add(key.severity, config.At(key.path), machineconfig.HowToGenerate,
					"%s of %s is another one than the other control planes'", key.path, config.Name)
			}
		}
	}
}

// checkAuthorityDates looks at each authority once, however many files have it.
func checkAuthorityDates(r *check.Report, in *check.Input) {
	seen := map[string]bool{}

	judge := func(config *check.Rendered, path string, crt []byte, accepted bool) {
		certificate, err := (&pki.PEMEncodedCertificateAndKey{Crt: crt}).GetCert()
		if err != nil || seen[string(certificate.Raw)] {
			return
		}

		seen[string(certificate.Raw)] = true
		r.Config = config
		place := config.At(path)

		severity := diagnosis.Failure
		if accepted {
			severity = diagnosis.Warning
		}

		switch when, text := judgeDates(in, certificate.NotBefore, certificate.NotAfter); when {
		case ended:
			r.Add(severity, place, "talosctl rotate-ca, or new secrets before the cluster exists", "%s %s", path, text)
		case notYet:
			r.Warn(place, "set this computer's clock", "%s %s", path, text)
		case endsSoon:
			r.Warn(place, "talosctl rotate-ca", "%s %s", path, text)
		}
	}

	for _, config := range in.Configs {
		for _, authority := range config.Authorities() {
			judge(config, authority.Field+".crt", authority.Crt, false)
		}

		for i, accepted := range config.AcceptedCAs() {
			judge(config, fmt.Sprintf("machine.acceptedCAs[%d].crt", i), accepted, true)
		}
	}
}

func day(moment time.Time) string { return moment.UTC().Format(time.DateOnly) }

// checkAuthorityKeys looks at each pair of certificate and key once, however many files have it.
func checkAuthorityKeys(r *check.Report, in *check.Input) {
	judged := map[string]bool{}

	for _, config := range in.Configs {
		for _, authority := range config.Authorities() {
			pair := string(authority.Crt) + "\x00" + string(authority.Key)
			foreign, known := judged[pair]

			if !known {
				foreign = isForeignKey(authority.PEMEncodedCertificateAndKey)
				judged[pair] = foreign
			}

			if foreign {
				r.Config = config
				r.Found(config.At(authority.Field+".key"), machineconfig.HowToGenerate,
					"the key of %s does not belong to its certificate", authority.Field)
			}
		}
	}
}

// isForeignKey reports whether a certificate has another key than the one that is with it. What can't be read is
// another check's.
func isForeignKey(pair *pki.PEMEncodedCertificateAndKey) bool {
	certificate, err := pair.GetCert()
	if err != nil {
		return false
	}

	key, err := pair.GetKey()
	if err != nil {
		return false
	}

	private, signs := key.(crypto.Signer)
	public, compares := certificate.PublicKey.(interface{ Equal(crypto.PublicKey) bool })

	return signs && compares && !public.Equal(private.Public())
}

// secretForm is what a secret must be.
type secretForm struct {
	path, value string
	is          func(string) bool
	want        string
	severity    diagnosis.Severity
}

// checkSecretForms looks for words where secrets must be. Another check tells of references and ciphertext.
func checkSecretForms(r *check.Report, config *check.Rendered) {
	for _, form := range secretForms(config) {
		if form.value == "" || form.is(form.value) {
			continue
		}

		refers := slices.ContainsFunc(machineconfig.Placeholders(config.Bytes),
			func(found machineconfig.Placeholder) bool { return found.Field == form.path })
		if !refers {
			r.Add(form.severity, config.At(form.path),
				"take it from the cluster's secrets file, or "+machineconfig.HowToGenerate, "%s is not %s", form.path, form.want)
		}
	}
}

// secretForms are the secrets that a node uses.
func secretForms(c *check.Rendered) []secretForm {
	forms := []secretForm{
		{"machine.token", c.MachineToken(), secrettext.IsBootstrapToken,
			"a token of 6 and 16 letters and digits, as abcdef.0123456789abcdef", diagnosis.Warning},
		{"cluster.token", c.BootstrapToken(), secrettext.IsBootstrapToken,
			"a token of 6 and 16 letters and digits, as abcdef.0123456789abcdef", diagnosis.Failure},
		{"cluster.secret", c.ClusterSecret(), base64Of(16, 24, 32), "32 bytes in base64", diagnosis.Warning},
	}

	if check.IsControlPlane(c) {
		forms = append(forms,
			secretForm{"cluster.secretboxEncryptionSecret", c.SecretboxSecret(), base64Of(32),
				"32 bytes in base64", diagnosis.Failure},
			secretForm{"cluster.aescbcEncryptionSecret", c.AESCBCSecret(), base64Of(16, 24, 32),
				"32 bytes in base64", diagnosis.Failure},
		)

		forms = append(forms, secretForm{"cluster.serviceAccount.key", string(c.ServiceAccountKey()), isKey, "a private key",
			diagnosis.Failure})
	}

	for _, authority := range c.Authorities() {
		forms = append(forms, secretForm{authority.Field + ".crt", string(authority.Crt), isCertificate, "a certificate",
			diagnosis.Failure})

		if check.IsControlPlane(c) {
			forms = append(forms, secretForm{authority.Field + ".key", string(authority.Key), isKey, "a private key",
				diagnosis.Failure})
		}
	}

	return forms
}

func base64Of(lengths ...int) func(string) bool {
	return func(text string) bool {
		data, err := base64.StdEncoding.DecodeString(text)

		return err == nil && slices.Contains(lengths, len(data))
	}
}

func isKey(text string) bool {
	_, err := (&pki.PEMEncodedCertificateAndKey{Key: []byte(text)}).GetKey()

	return err == nil
}

func isCertificate(text string) bool {
	_, err := (&pki.PEMEncodedCertificateAndKey{Crt: []byte(text)}).GetCert()

	return err == nil
}

// checkClientRole looks for certificates of operators and readers.
func checkClientRole(r *check.Report, in *check.Input) {
	roles := in.Credentials.Roles()
	if slices.Contains(roles, string(role.Admin)) {
		return
	}

	severity := diagnosis.Failure
	if slices.ContainsFunc(in.Configs, ignoresRoles) {
		severity = diagnosis.Warning
	}

	r.Add(severity, in.OfContext("crt"), "use a talosconfig with the role os:admin",
		"the talosconfig's certificate has the role %s, and not os:admin",
		cmp.Or(strings.Join(roles, ", "), "of nobody"))
}

// ignoresRoles reports whether a node's config asks for what older versions of Talos do: to let every client do
// everything.
func ignoresRoles(c *check.Rendered) bool {
	return c.RBAC() != nil && !*c.RBAC()
}

// checkClientIssuer looks for a client certificate that no node would believe.
func checkClientIssuer(r *check.Report, in *check.Input) {
	trusted := [][]byte{in.Credentials.CA()}

	for _, config := range in.Configs {
		trusted = append(append(trusted, config.CA()), config.AcceptedCAs()...)
	}

	seen := map[string]bool{}

	for _, ca := range trusted {
		if !seen[string(ca)] && in.Credentials.SignedBy(ca) {
			return
		}

		seen[string(ca)] = true
	}

	r.Found(in.OfContext("crt"), "generate the talosconfig again: `"+machineconfig.HowToGenerate+"`",
		"the talosconfig's certificate is signed by no certificate authority of these files")
}

// checkModes looks for files with keys that others can read. Windows has no such modes.
func checkModes(r *check.Report, in *check.Input) {
	if runtime.GOOS == "windows" {
		return
	}

	var (
		open  []string
		first *check.File
	)

	look := func(file *check.File) {
		if file == nil || file.Mode&0o077 == 0 {
			return
		}

		first = cmp.Or(first, file)
		open = append(open, fmt.Sprintf("%s (%04o)", file.Shown, file.Mode))
	}

	for _, config := range in.Configs {
		look(config.File)
	}

	look(in.TalosconfigFile)

	if len(open) > 0 {
		r.Found(first.Itself(), "chmod 600 "+first.Shown, "other users can read %s", check.Some(open))
	}
}
