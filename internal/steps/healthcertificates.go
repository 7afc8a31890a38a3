package steps

import (
	"crypto/x509"
	"fmt"
	"time"

	pki "github.com/siderolabs/crypto/x509"

	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
)

// Certificate is one of those that the cluster lives by.
type Certificate struct {
	Name string
	Ends time.Time
	// RenewedBy is the command that renews it, or who does so unasked.
	RenewedBy string
}

// talosItself renews the certificates of its API, of etcd and of Kubernetes' components by itself.
const talosItself = "Talos itself, at half of its life"

// kubernetesCA is the field of the authority that signs kubeconfigs.
const kubernetesCA = "cluster.ca"

// authorities are the cluster's, by the fields that machine configs have them in, and who renews them.
var authorities = []struct{ field, name, renewedBy string }{
	{"machine.ca", "CA of Talos", "talosctl rotate-ca"},
	{kubernetesCA, "CA of Kubernetes", "talosctl rotate-ca"},
	{"cluster.aggregatorCA", "CA of Kubernetes' aggregator", "nobody: talosctl rotate-ca leaves it as it is"},
	{"cluster.etcd.ca", "CA of etcd", "nobody: talosctl rotate-ca leaves it as it is"},
}

// ofFiles looks at the certificates that are in files: no node is asked.
func (h *healthChecker) ofFiles() {
	if credentials := h.Credentials; credentials != nil {
		h.expired = h.judgeEnd(Certificate{Name: "talosconfig, context " + credentials.ContextName(),
			Ends: credentials.NotAfter(), RenewedBy: "mage " + rotateName}, ", so that no node can be asked")
	}

	declared := h.declaredAuthorities()

	if certificate, context := h.kubeconfigCertificate(declared[kubernetesCA]); certificate != nil {
		h.judgeEnd(Certificate{Name: "kubeconfig, context " + context, Ends: certificate.NotAfter,
			RenewedBy: "mage " + kubeconfigName}, "")
	}

	for _, authority := range authorities {
		if pair := declared[authority.field]; pair != nil {
			if certificate, err := pair.GetCert(); err == nil {
				h.judgeEnd(Certificate{Name: authority.name, Ends: certificate.NotAfter, RenewedBy: authority.renewedBy},
					": nothing that it signed is trusted any more")
			}
		}
	}
}

// declaredAuthorities are those of the secrets file, or of a machine config where the secrets can't be read here, by
// their fields.
func (h *healthChecker) declaredAuthorities() map[string]*pki.PEMEncodedCertificateAndKey {
	if bundle, _, err := h.workspace.Secrets(); err == nil && bundle != nil {
		certs := bundle.Certs

		return map[string]*pki.PEMEncodedCertificateAndKey{"machine.ca": certs.OS, kubernetesCA: certs.K8s,
			"cluster.aggregatorCA": certs.K8sAggregator, "cluster.etcd.ca": certs.Etcd}
	}

	found := map[string]*pki.PEMEncodedCertificateAndKey{}

	for _, node := range h.Cluster.ControlPlanes() {
		if config := h.Configs[node.Name]; config != nil && !throwaway.Made(config.Bytes) {
			for _, authority := range config.Authorities() {
				found[authority.Field] = authority.PEMEncodedCertificateAndKey
			}
		}
	}

	return found
}

// kubeconfigCertificate is the one in the user's kubeconfig for the cluster with this CA; nil if there is none.
func (h *healthChecker) kubeconfigCertificate(ca *pki.PEMEncodedCertificateAndKey) (*x509.Certificate, string) {
	if ca == nil {
		return nil, ""
	}

	return kube.ClientCertificate(h.workspace.Files.Open(h.Settings.Kubeconfig).Data, ca.Crt)
}

// judgeEnd notes a certificate, and reports whether it has ended; so is what that means said then.
func (h *healthChecker) judgeEnd(certificate Certificate, means string) (ended bool) {
	h.found.Certificates = append(h.found.Certificates, certificate)

	now := workspace.CertificateTime()
	finding := diagnosis.Finding{ID: diagnosis.CertificateEnds, Severity: diagnosis.Warning, Next: certificate.RenewedBy,
		Cause: fmt.Sprintf("the certificate of %s %s", certificate.Name, endsText(certificate.Ends, now))}

	switch ended = now.After(certificate.Ends); {
	case ended:
		finding.Severity = diagnosis.Failure
		finding.Cause += means
	case now.Add(endsSoon).Before(certificate.Ends):
		return false
	}

	h.say(finding)

	return ended
}

// endsText says when a certificate ends, or ended.
func endsText(ends, now time.Time) string {
	if now.After(ends) {
		return "expired on " + day(ends)
	}

	return fmt.Sprintf("ends on %s, in %s", day(ends), leftText(ends.Sub(now)))
}

// leftText is how long a certificate is still good, in the unit that matters.
func leftText(left time.Duration) string {
	const twoDays = 48 * time.Hour

	switch {
	case left <= 0:
		return "0 days"
	case left < twoDays:
		return fmt.Sprintf("%d hours", int(left.Hours()))
	default:
		return fmt.Sprintf("%d days", int(left.Hours()/24))
	}
}
