package steps

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/talos-mage/talos-mage/internal/base/plainfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
	"github.com/talos-mage/talos-mage/internal/talos/talosconfig"
)

// endsSoon is how long before its end a certificate is called to attention, and renewed by who is asked to.
const endsSoon = 30 * 24 * time.Hour

// rotateName is what people type.
const rotateName = "config:rotate"

// Rotate renews the client certificate of the talosconfig from the cluster's secrets. It asks no node.
type Rotate struct{}

// Name is the step's name.
func (Rotate) Name() string { return rotateName }

// Exit is the code for a talosconfig that could not be renewed.
func (Rotate) Exit() diagnosis.ExitCode { return diagnosis.ExitBadInput }

// Mutates marks the step as one that needs the cluster's lock.
func (Rotate) Mutates() {}

// Run renews a certificate that has ended or soon will, with the roles that it had.
func (s Rotate) Run(ctx context.Context, run *Run) error {
	rotator := &rotator{begin(run, s)}

	bundle, ca, err := rotator.secrets()
	if err != nil {
		return rotator.failed(ctx, err)
	}

	file, err := rotator.read()
	if err != nil {
		return rotator.failed(ctx, err)
	}

	name, err := rotator.contextOf(file, ca)
	if err != nil {
		return rotator.failed(ctx, err)
	}

	return rotator.renew(ctx, file, name, ca,
		generate.Source{Cluster: run.Cluster, Secrets: bundle, Now: workspace.CertificateTime()})
}

// rotator is one run of the step.
type rotator struct{ *work }

// talosconfigFile is a talosconfig as it is on the disk, and what it says.
type talosconfigFile struct {
	path   string
	data   []byte
	parsed *config.Config
}

// secrets are the cluster's own, with a CA that nodes still trust.
func (r *rotator) secrets() (bundle *secrets.Bundle, ca *x509.Certificate, err error) {
	bundle, whyNot, err := r.workspace.Secrets()
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it names the file
	}

	if bundle == nil {
		return nil, nil, r.refused("the cluster's secrets are needed to sign it: "+whyNot,
			"bring the secrets file back, and the key that decrypts it; then "+r.command(nil))
	}

	if ca, err = bundle.Certs.OS.GetCert(); err != nil {
		return nil, nil, fmt.Errorf("read the machine CA of the secrets: %w", err)
	}

	if now := workspace.CertificateTime(); now.After(ca.NotAfter) {
		return nil, nil, r.refused("the machine CA in the secrets file expired on "+day(ca.NotAfter)+
			": nodes trust nothing that it signs", "make the cluster a new CA: talosctl rotate-ca")
	}

	return bundle, ca, nil
}

func (r *rotator) refused(cause, next string) error {
	return r.clusterProblem(diagnosis.RotateRefused, cause, next)
}

func (r *rotator) read() (talosconfigFile, error) {
	file := talosconfigFile{path: r.Settings.Talosconfig}

	var err error

	file.data, _, err = plainfile.Read(file.path)
	if errors.Is(err, fs.ErrNotExist) {
		return file, r.refused("there is no "+r.workspace.Files.Shown(file.path)+" to renew",
			"make one: mage config:generate")
	}

	if err == nil {
		file.parsed, err = talosconfig.Parse(file.data)
	}

	if err != nil {
		return file, workspace.BadInput(fmt.Errorf("read talosconfig %s: %w", file.path, err))
	}

	return file, nil
}

// contextOf is the context of this cluster, which is known by its CA: the current one if it is of this cluster, else
// that which has the cluster's name, else the only one.
func (r *rotator) contextOf(file talosconfigFile, ca *x509.Certificate) (string, error) {
	ours := filtered(slices.Sorted(maps.Keys(file.parsed.Contexts)), func(name string) bool {
		return talosconfig.Trusts(file.parsed.Contexts[name], ca)
	})

	for _, name := range []string{file.parsed.Context, r.Cluster.Name} {
		if slices.Contains(ours, name) {
			return name, nil
		}
	}

	switch shown := r.workspace.Files.Shown(file.path); len(ours) {
	case 1:
		return ours[0], nil
	case 0:
		return "", r.refused(fmt.Sprintf("no context of %s has the machine CA of the secrets file: one of them is another "+
			"cluster's", shown), "check TALOSCONFIG and "+r.workspace.Files.Shown(r.Cluster.SecretsPath()))
	default:
		return "", r.refused(fmt.Sprintf("several contexts of %s are of this cluster (%s), and none of them is the current "+
			"one", shown, text.List(ours)), "choose one: talosctl config context <name>")
	}
}

// renew writes the file with another certificate and key in one context; every other byte of it stays.
func (r *rotator) renew(ctx context.Context, file talosconfigFile, name string, ca *x509.Certificate,
	source generate.Source) error {
	present := talosconfig.ClientCertificate(file.parsed.Contexts[name])
	if present != nil && present.CheckSignatureFrom(ca) == nil && source.Now.Add(endsSoon).Before(present.NotAfter) {
		return r.done(report.Skipped, fmt.Sprintf("the certificate of context %s is good until %s", name,
			day(present.NotAfter)))
	}

	roles := rolesOf(present)

	signed, err := source.ClientCertificate(r.Cluster.Name, roles)
	if err != nil {
		return r.failed(ctx, fmt.Errorf("sign client certificate: %w", err))
	}

	data, err := talosconfig.ReplaceClient(file.data, name, signed.Crt, signed.Key)
	if err != nil {
		return r.failed(ctx, workspace.BadInput(fmt.Errorf("change talosconfig %s: %w", file.path, err)))
	}

	detail := fmt.Sprintf("%s, context %s, %s; roles: %s", file.path, name, endText(present, source.Now),
		text.List(roles.Strings()))
	if r.Settings.DryRun {
		return r.wouldWrite(file.path, detail)
	}

	if err := unwritable(file.path, r.gate.WriteFile(file.path, data, configMode)); err != nil {
		return r.failed(ctx, err)
	}

	return r.done(report.Applied, detail)
}

// rolesOf are those of a certificate, which the next one has too; an administrator's where there are none.
func rolesOf(present *x509.Certificate) role.Set {
	if present != nil {
		if roles, _ := role.Parse(present.Subject.Organization); !roles.Empty() {
			return roles
		}
	}

	return role.MakeSet(role.Admin)
}

func endText(present *x509.Certificate, now time.Time) string {
	switch {
	case present == nil:
		return "which had none that can be read"
	case now.After(present.NotAfter):
		return "expired on " + day(present.NotAfter)
	default:
		return "good until " + day(present.NotAfter) + " before"
	}
}

func day(moment time.Time) string { return moment.UTC().Format(time.DateOnly) }
