package steps

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// losingThem is said to whoever gets a new secrets file.
const losingThem = "keep a copy: without it no node can ever be added to the cluster, and no config changed"

// Secrets makes the cluster's secrets, encrypted by the user's rules, if there are none. It never makes them for a
// cluster that may exist already.
type Secrets struct {
	// Asked is set when the user asked for them alone: configs that exist without them are then a mistake.
	Asked bool
	// ByName is set when the user asked for files by name: then a node that does not answer is no reason to make none.
	ByName bool
	// From is the machine config of a control plane that the secrets are taken out of, instead of making new ones.
	From string
}

// Name is the step's name.
func (Secrets) Name() string { return "secrets" }

// Exit is the code for secrets that could not be made.
func (Secrets) Exit() diagnosis.ExitCode { return diagnosis.ExitUnexpected }

// Mutates marks the step as one that needs the cluster's lock.
func (Secrets) Mutates() {}

// EndsRecipe stops a recipe: without secrets the steps that follow make no sense. In a dry run others stand in.
func (Secrets) EndsRecipe(err error) bool { return CodeOf(err) != diagnosis.ExitDryRun }

// Run makes secrets, or says why there is no need.
func (s Secrets) Run(ctx context.Context, run *Run) error {
	maker := &secretsMaker{begin(run, s), s}
	if reason := maker.noNeed(); reason != "" {
		return maker.done(report.Skipped, reason)
	}

	bundle, how, err := maker.bundle(ctx)
	if err != nil {
		return maker.failed(ctx, err)
	}

	return maker.write(ctx, bundle, how)
}

// secretsMaker is one run of the secrets step.
type secretsMaker struct {
	*work
	wanted Secrets
}

// noNeed says why there is nothing to make, and nobody asked for it; empty otherwise. Configs without their secrets
// can't be rendered anew, but they can be used.
func (m *secretsMaker) noNeed() string {
	path, written := m.Cluster.SecretsPath(), m.workspace.Written()

	switch {
	case path != "" && m.wanted.From == "":
		return m.shown(path) + " exists"
	case path != "" && m.recoveredBefore():
		return m.shown(path) + " holds those of " + m.wanted.From
	case m.wanted.Asked || m.wanted.From != "":
		return ""
	case len(m.Cluster.MisnamedSecrets()) > 0:
		return ""
	case len(written) > 0:
		return fmt.Sprintf("there are none, but %s exists: new ones would belong to another cluster", m.shown(written[0]))
	case m.Settings.ConfigGenerator == workspace.NoGenerator && !m.unallowed():
		return "there are none, and CONFIG_GENERATOR=none makes none"
	default:
		return ""
	}
}

// unallowed reports whether a profile neither has secrets nor allows to make some.
func (m *secretsMaker) unallowed() bool {
	return m.Cluster.Profile != nil && !m.Cluster.Profile.RegenerateSecrets
}

// bundle gives the secrets to write, and how they came about. It asks the nodes before it makes any; a dry run makes
// none.
func (m *secretsMaker) bundle(ctx context.Context) (bundle *secrets.Bundle, how string, err error) {
	written := m.workspace.Written()

	switch {
	case m.Cluster.SecretsPath() != "":
		return nil, "", diagnosis.NewProblem(diagnosis.SecretsExist,
			m.shown(m.Cluster.SecretsPath())+
				" exists and is never replaced: with other secrets the nodes of its cluster would be lost",
			"use it; or, if its cluster is gone for good, move the file away yourself")
	case len(m.Cluster.MisnamedSecrets()) > 0:
		return nil, "", misnamed(m.Run)
	case m.wanted.From != "":
		bundle, err = m.recovered()
		return bundle, "recovered from " + m.wanted.From, err
	case len(written) > 0:
		return nil, "", diagnosis.NewProblem(diagnosis.SecretsMissing,
			m.shown(written[0])+" exists, but the secrets that it was made from are not here: new ones would belong to "+
				"another cluster",
			"restore the file, or recover it: mage config:secrets -from=<machine config of a control plane>")
	case m.unallowed() && !m.wanted.Asked:
		return nil, "", diagnosis.NewProblem(diagnosis.SecretsMissing,
			fmt.Sprintf("there is no %s, and %s does not say `regenerate_secrets: true`",
				m.Cluster.Profile.SecretsFile, m.Cluster.Source),
			"restore the file; or, for a new cluster, mage config:secrets")
	}

	if err := cmp.Or(m.mayBelongToCluster(ctx), ctx.Err()); err != nil || m.Settings.DryRun {
		return nil, "made", err
	}

	bundle, err = m.newBundle(ctx)
	return bundle, "made", err
}

// newBundle makes new secrets. One of the keys has 4096 bits, for which a slow computer needs many seconds, and nothing
// stops that: a run that is interrupted leaves it to the end of the process.
func (m *secretsMaker) newBundle(ctx context.Context) (*secrets.Bundle, error) {
	type outcome struct {
		bundle *secrets.Bundle
		err    error
	}

	m.Report.Progress(m.step.Name(), report.Progress{Text: "making keys", Since: m.Clock.Now()})

	made := make(chan outcome, 1)
	go func() {
		bundle, err := m.NewSecrets(m.workspace.TalosVersion())
		made <- outcome{bundle, err}
	}()

	select {
	case done := <-made:
		if done.err != nil {
			return nil, workspace.BadInput(done.err)
		}

		return done.bundle, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("make secrets: %w", context.Cause(ctx))
	}
}

// misnamed stops before new secrets are made beside old ones that nothing finds; nil if there are none.
func misnamed(run *Run) error {
	near := run.Cluster.MisnamedSecrets()
	if len(near) == 0 {
		return nil
	}

	return diagnosis.NewProblem(diagnosis.SecretsFileMisnamed,
		fmt.Sprintf("%s holds %s: these may be the cluster's secrets, but nothing reads a file of that name; no new ones "+
			"are made beside it", filepath.Dir(run.Cluster.NewSecretsPath(true)), text.List(near)),
		fmt.Sprintf("rename it to %s; or, if it is something else, move it out of the folder",
			run.Cluster.ProperSecretsName(near[0])))
}

// mayBelongToCluster refuses new secrets while a node is configured. In a recipe a silent node counts as one that
// perhaps is; asked for by name, secrets are often made before there is any machine.
func (m *secretsMaker) mayBelongToCluster(ctx context.Context) error {
	nodes := m.Cluster.Nodes
	for _, seen := range fanout.Collect(ctx, len(nodes), nodes, m.observer.Contact, observe.Unobserved) {
		var cause string

		switch {
		case seen.State == talos.Maintenance, seen.State == talos.NotTalos,
			seen.Silent() && (m.wanted.Asked || m.wanted.ByName):
			continue
		case seen.Silence == talos.Refused:
			cause = "'s port is closed: it is on, and may be installing or booting with a cluster's config"
		case seen.Silent() && m.Settings.NewSecrets:
			continue
		case seen.Silent():
			cause = " does not answer, so it may belong to a cluster whose secrets are not here"
		default:
			cause = " is configured already, and its cluster's secrets are not here"
		}

		path, _ := m.workspace.NewSecretsPath()
		next := "restore " + m.shown(path) + "; or, if this is to be a new cluster, boot the node into maintenance"
		if seen.Silent() && seen.Silence != talos.Refused {
			next += ", or say with -newSecrets that no silent node belongs to one"
		}

		problem := m.problem(seen, diagnosis.SecretsMissing, seen.Node.Name+cause, next)
		problem.Exit = diagnosis.ExitPreflight

		return problem
	}

	return nil
}

// recovered takes the secrets of an existing cluster out of a control plane's config. No node is asked: they are not
// new.
func (m *secretsMaker) recovered() (*secrets.Bundle, error) {
	config, err := machineconfig.Load(m.wanted.From)
	if err != nil {
		return nil, diagnosis.NewProblem(diagnosis.BadInput, "-from: "+err.Error(),
			"correct -from: it takes a control plane's machine config").From(err)
	}

	bundle, err := clustersecrets.Recover(config, workspace.CertificateTime())
	if err != nil {
		return nil, diagnosis.NewProblem(diagnosis.SecretsMissing,
			fmt.Sprintf("%s has no secrets to recover: %s", m.wanted.From, err),
			"name a control plane's config, as it was applied, or as talosctl -n <control plane> get machineconfig "+
				"v1alpha1 -o jsonpath='{.spec}' prints it").From(err)
	}

	return bundle, m.foreign(bundle)
}

// recoveredBefore reports whether the secrets that are here are those of the config.
func (m *secretsMaker) recoveredBefore() bool {
	wanted, err := m.recovered()
	if err != nil {
		return false
	}

	here, _, err := m.workspace.Secrets()
	if err != nil || here == nil {
		return false
	}

	return sameSecrets(wanted, here)
}

func sameSecrets(one, other *secrets.Bundle) bool {
	text, err := clustersecrets.Encode(one)
	otherText, otherErr := clustersecrets.Encode(other)

	return cmp.Or(err, otherErr) == nil && bytes.Equal(text, otherText)
}

// foreign refuses secrets of another cluster than the files here are of.
func (m *secretsMaker) foreign(bundle *secrets.Bundle) error {
	var other string
	if m.Credentials != nil && !bytes.Equal(bytes.TrimSpace(m.Credentials.CA()), bytes.TrimSpace(bundle.Certs.OS.Crt)) {
		other = m.shown(m.Settings.Talosconfig)
	}

	for _, node := range m.Cluster.Nodes {
		if config := m.Configs[node.Name]; other == "" && config != nil && !config.Trusts(bundle.Certs.OS.Crt) {
			other = m.shown(node.ConfigFile)
		}
	}

	if other == "" {
		return nil
	}

	return diagnosis.NewProblem(diagnosis.ConfigCA,
		fmt.Sprintf("%s trusts another certificate authority than %s: they belong to two clusters", other, m.wanted.From),
		"name a config of this cluster, or move the other cluster's files away")
}

// write puts the bundle where it belongs; a dry run only says so, and needs none.
func (m *secretsMaker) write(ctx context.Context, bundle *secrets.Bundle, how string) error {
	path, encrypted := m.workspace.NewSecretsPath()
	name := filepath.Base(path)

	if m.Settings.DryRun {
		return m.wouldWrite(name, name+" would be "+how)
	}

	if err := m.writeFile(ctx, bundle, path, encrypted); err != nil {
		return m.failed(ctx, err)
	}

	return m.done(report.Applied, fmt.Sprintf("%s %s; %s", name, how, losingThem))
}

// writeFile pipes the text through sops, so that plaintext never touches the disk where there are rules to encrypt it
// by.
func (m *secretsMaker) writeFile(ctx context.Context, bundle *secrets.Bundle, path string, encrypted bool) error {
	text, err := clustersecrets.Encode(bundle)

	switch {
	case err != nil:
		return err
	case throwaway.Made(text):
		return fmt.Errorf("write %s: %w", path, throwaway.ErrMarked)
	case encrypted:
		text, err = m.workspace.Sops().Encrypt(ctx, path, text)
	default:
		err = m.keepOutOfGit(path)
	}

	if err != nil {
		return err
	}

	if err := m.gate.WriteFile(path, text, configMode); err != nil {
		return unwritable(path, err)
	}

	m.workspace.Files.Wrote(path, text, configMode)
	return nil
}

// keepOutOfGit has git ignore a file in the clear, and warns of it.
func (m *secretsMaker) keepOutOfGit(path string) error {
	m.Report.Finding(m.step.Name(), diagnosis.Finding{
		ID:       diagnosis.SecretsPlain,
		Severity: diagnosis.Warning,
		Cause:    path + " is not encrypted: there is no .sops.yaml. git is told to ignore it",
		Next:     "make a .sops.yaml" + encryptBy(path, m.Cluster.NewSecretsPath(true)),
	})

	return ignoreInGit(m.gate, filepath.Dir(path), []string{filepath.Base(path)})
}

// encryptBy says how a file in the clear becomes the encrypted one: in place, or under the name of encrypted ones.
func encryptBy(plain, encrypted string) string {
	if plain == encrypted {
		return ", then sops encrypt --in-place " + plain
	}

	return fmt.Sprintf(", then sops encrypt %s > %s, and remove the former", plain, encrypted)
}
