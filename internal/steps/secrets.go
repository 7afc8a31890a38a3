package steps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/cluster/sops"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const secretsName = "secrets"

// losingThem is said to whoever gets a new secrets file.
const losingThem = "keep a copy: if it is lost, no node can be added to the cluster and no config changed, ever again"

// Secrets makes the cluster's secrets, encrypted by the user's rules, if there are none. It never makes them for a
// cluster that may exist already.
type Secrets struct {
	// Asked is set when the user asked for a new file: one that exists is then a mistake, and none can be made while
	// configs exist.
	Asked bool
	// ByName is set when the user asked for files by name: then a node that does not answer is no reason to make none.
	ByName bool
	// From is the machine config of a control plane that the secrets are taken out of, instead of making new ones.
	From string
}

// Name is the step's name.
func (Secrets) Name() string { return secretsName }

// Exit is the code for secrets that could not be made.
func (Secrets) Exit() diagnosis.ExitCode { return diagnosis.ExitUnexpected }

// Mutates marks the step as one that needs the cluster's lock.
func (Secrets) Mutates() {}

// EndsRecipe stops a recipe: without secrets the steps that follow make no sense. In a dry run others stand in.
func (Secrets) EndsRecipe(err error) bool { return CodeOf(err) != diagnosis.ExitDryRun }

// Run asks the nodes before it makes anything.
func (s Secrets) Run(ctx context.Context, run *Run) error {
	if path := run.secretsPath(); path != "" {
		return s.exist(run, path)
	}

	if problem := misnamed(run); problem != nil {
		return run.done(s.Name(), report.Failed, "", problem)
	}

	if s.From != "" {
		return s.recover(ctx, run)
	}

	if made := run.generatedFiles(); len(made) > 0 {
		return s.belongElsewhere(run, made[0])
	}

	if profile := run.Cluster.Profile; profile != nil && !profile.RegenerateSecrets && !s.Asked {
		return run.done(s.Name(), report.Failed, "", notAllowed(run))
	}

	if run.Settings.ConfigGenerator == noGenerator && !s.Asked {
		return run.done(s.Name(), report.Skipped, "none, and CONFIG_GENERATOR=none makes none", nil)
	}

	problem := s.mayBelongToCluster(ctx, run)

	switch {
	case ctx.Err() != nil:
		return interrupted(ctx, s.Name())
	case problem != nil:
		return run.done(s.Name(), report.Failed, "", problem)
	}

	if run.Settings.DryRun {
		return s.write(ctx, run, nil, "made")
	}

	bundle, err := run.newSecrets(ctx)

	switch {
	case ctx.Err() != nil:
		return interrupted(ctx, s.Name())
	case err != nil:
		return run.done(s.Name(), report.Failed, "", badInput(err))
	}

	return s.write(ctx, run, bundle, "made")
}

// newSecrets makes new secrets. One of the keys has 4096 bits, for which a slow computer needs many seconds, and
// nothing stops that: a run that is interrupted leaves it to the end of the process.
func (r *Run) newSecrets(ctx context.Context) (*secrets.Bundle, error) {
	type outcome struct {
		bundle *secrets.Bundle
		err    error
	}

	r.Report.Progress(secretsName, report.Progress{Text: "making keys", Since: r.Clock.Now()})

	made := make(chan outcome, 1)

	go func() {
		bundle, err := r.NewSecrets(r.talosVersion())
		made <- outcome{bundle, err}
	}()

	select {
	case done := <-made:
		return done.bundle, done.err
	case <-ctx.Done():
		return nil, fmt.Errorf("make secrets: %w", context.Cause(ctx))
	}
}

// exist is the outcome where there is a secrets file.
func (s Secrets) exist(run *Run, path string) error {
	if !s.Asked && s.From == "" {
		return run.done(s.Name(), report.Skipped, path+" exists", nil)
	}

	return run.done(s.Name(), report.Failed, "", &diagnosis.Problem{Step: s.Name(), Finding: diagnosis.Finding{
		ID:       diagnosis.SecretsExist,
		Severity: diagnosis.Failure,
		Cause:    path + " exists and is never replaced: with other secrets the nodes of its cluster would be lost",
		Next:     "go on with it; or, if its cluster is gone for good, move the file away yourself",
		Exit:     diagnosis.ExitBadInput,
	}})
}

// misnamed stops before new secrets are made beside old ones that nothing finds.
func misnamed(run *Run) error {
	near := run.Cluster.MisnamedSecrets()
	if len(near) == 0 {
		return nil
	}

	return &diagnosis.Problem{Step: secretsName, Finding: diagnosis.Finding{
		ID:       diagnosis.SecretsFileMisnamed,
		Severity: diagnosis.Failure,
		Cause: fmt.Sprintf("%s holds %s, which may be the cluster's secrets and is a name that nothing reads; no new ones "+
			"are made beside it",
			filepath.Dir(run.Cluster.NewSecretsPath(true)), text.List(near)),
		Next: fmt.Sprintf("rename it to %s; or, if it is something else, move it out of the folder",
			run.Cluster.ProperSecretsName(near[0])),
		Exit: diagnosis.ExitBadInput,
	}}
}

// belongElsewhere is the outcome where configs exist without their secrets. They can't be rendered anew, but they can
// be used.
func (s Secrets) belongElsewhere(run *Run, made string) error {
	if !s.Asked {
		return run.done(s.Name(), report.Skipped,
			fmt.Sprintf("none, and %s exists: new ones would belong to another cluster", made), nil)
	}

	return run.done(s.Name(), report.Failed, "", &diagnosis.Problem{Step: s.Name(), Finding: diagnosis.Finding{
		ID:       diagnosis.SecretsMissing,
		Severity: diagnosis.Failure,
		Cause: made + " exists, and the secrets that it was made from are not here: new ones would belong to another " +
			"cluster",
		Next: "restore the file, or recover it: mage config:secrets -from=<machine config of a control plane>",
		Exit: diagnosis.ExitBadInput,
	}})
}

// notAllowed is the problem of a profile that neither has secrets nor allows to make some.
func notAllowed(run *Run) error {
	return &diagnosis.Problem{Step: secretsName, Finding: diagnosis.Finding{
		ID:       diagnosis.SecretsMissing,
		Severity: diagnosis.Failure,
		Cause: fmt.Sprintf("there is no %s, and %s does not say `regenerate_secrets: true`",
			run.Cluster.Profile.SecretsFile, run.Cluster.Source),
		Next: "restore the file; or, for a new cluster, mage config:secrets",
		Exit: diagnosis.ExitBadInput,
	}}
}

// mayBelongToCluster refuses new secrets while a node is configured. In a recipe a silent node counts as one that
// perhaps is; asked for by name, secrets are often made before there is any machine.
func (s Secrets) mayBelongToCluster(ctx context.Context, run *Run) error {
	nodes := run.Cluster.Nodes

	for _, seen := range fanout.Collect(ctx, len(nodes), nodes, run.observer.Contact, observe.Unobserved) {
		var cause string

		switch {
		case seen.State == talos.Maintenance, seen.State == talos.NotTalos, seen.Silent() && (s.Asked || s.ByName):
			continue
		case seen.Silence == talos.Refused:
			cause = "'s port is closed: it is on, and may be installing or booting with a cluster's config"
		case seen.Silent() && run.Settings.NewSecrets:
			continue
		case seen.Silent():
			cause = " does not answer, so it may belong to a cluster whose secrets these files lack"
		default:
			cause = " is configured already, and the cluster's secrets are not here"
		}

		problem := (&work{run, s}).problem(seen, diagnosis.SecretsMissing, seen.Node.Name+cause, fmt.Sprintf(
			"restore %s; or, if this is to be a new cluster, boot the node into maintenance (all nodes off: -newSecrets)",
			run.Cluster.NewSecretsPath(run.sops().Rules() != "")))
		problem.Exit = diagnosis.ExitPreflight

		return problem
	}

	return nil
}

// recover takes the secrets of an existing cluster out of a control plane's config. No node is asked: they are not new.
func (s Secrets) recover(ctx context.Context, run *Run) error {
	config, err := machineconfig.Load(s.From)
	if err != nil {
		return run.done(s.Name(), report.Failed, "", badInput(err))
	}

	bundle, err := clustersecrets.Recover(config, certificateTime())
	if err != nil {
		return run.done(s.Name(), report.Failed, "", &diagnosis.Problem{Step: s.Name(), Err: err, Finding: diagnosis.Finding{
			ID:       diagnosis.SecretsMissing,
			Severity: diagnosis.Failure,
			Cause:    fmt.Sprintf("%s has no secrets to recover: %s", s.From, err),
			Next: "name a control plane's config, as it was applied, or as talosctl -n <control plane> get machineconfig " +
				"v1alpha1 -o jsonpath='{.spec}' prints it",
			Exit: diagnosis.ExitBadInput,
		}})
	}

	if problem := s.foreign(run, bundle); problem != nil {
		return run.done(s.Name(), report.Failed, "", problem)
	}

	return s.write(ctx, run, bundle, "recovered from "+s.From)
}

// foreign refuses secrets of another cluster than the files here are of.
func (s Secrets) foreign(run *Run, bundle *secrets.Bundle) error {
	var other string

	if run.Credentials != nil && !bytes.Equal(bytes.TrimSpace(run.Credentials.CA()),
		bytes.TrimSpace(bundle.Certs.OS.Crt)) {
		other = run.Settings.Talosconfig
	}

	for _, node := range run.Cluster.Nodes {
		if config := run.Configs[node.Name]; other == "" && config != nil && !config.Trusts(bundle.Certs.OS.Crt) {
			other = node.ConfigFile
		}
	}

	if other == "" {
		return nil
	}

	return &diagnosis.Problem{Step: s.Name(), Finding: diagnosis.Finding{
		ID:       diagnosis.ConfigCA,
		Severity: diagnosis.Failure,
		Cause:    fmt.Sprintf("%s trusts another certificate authority than %s: they are of two clusters", other, s.From),
		Next:     "name a config of this cluster, or move the other cluster's files away",
		Exit:     diagnosis.ExitBadInput,
	}}
}

// write puts the bundle where it belongs; a dry run only says so, and is in need of none.
func (s Secrets) write(ctx context.Context, run *Run, bundle *secrets.Bundle, how string) error {
	encrypted := run.sops().Rules() != ""
	path := run.Cluster.NewSecretsPath(encrypted)
	name := filepath.Base(path)

	if run.Settings.DryRun {
		run.plan(s.Name(), name+" would be "+how)

		return wouldMake(s.Name(), name)
	}

	return run.done(s.Name(), report.Applied, fmt.Sprintf("%s %s; %s", name, how, losingThem),
		s.writeFile(ctx, run, bundle, path, encrypted))
}

// writeFile pipes the text through sops, so that plaintext never touches the disk where there are rules to encrypt it
// by.
func (s Secrets) writeFile(ctx context.Context, run *Run, bundle *secrets.Bundle, path string, encrypted bool) error {
	text, err := clustersecrets.Encode(bundle)

	switch {
	case err != nil:
		return err
	case throwaway.Made(text):
		return fmt.Errorf("write %s: %w", path, throwaway.ErrMarked)
	}

	if encrypted {
		if text, err = run.sops().Encrypt(ctx, path, text); err != nil {
			return run.fromSops(ctx, s.Name(), err)
		}
	}

	if !encrypted {
		if err := s.keepOutOfGit(run, path); err != nil {
			return err
		}
	}

	if err := run.gate().WriteFile(path, text, configMode); err != nil {
		return unwritable(s.Name(), path, err)
	}

	run.files.Wrote(path, text, configMode)

	return nil
}

// keepOutOfGit has git ignore a file in the clear, and warns of it.
func (s Secrets) keepOutOfGit(run *Run, path string) error {
	run.Report.Finding(s.Name(), diagnosis.Finding{
		ID:       diagnosis.SecretsPlain,
		Severity: diagnosis.Warning,
		Cause:    path + " is not encrypted: there is no .sops.yaml. git is told to ignore it",
		Next:     "make a .sops.yaml" + encryptBy(path, run.Cluster.NewSecretsPath(true)),
	})

	return ignoreInGit(run.gate(), s.Name(), filepath.Dir(path), []string{filepath.Base(path)})
}

// encryptBy says how a file in the clear becomes the encrypted one: in place, or under the name of encrypted ones.
func encryptBy(plain, encrypted string) string {
	if plain == encrypted {
		return ", then sops encrypt --in-place " + plain
	}

	return fmt.Sprintf(", then sops encrypt %s > %s, and remove the former", plain, encrypted)
}

// sops is the user's, beginning to look for rules in the talos folder.
func (r *Run) sops() sops.Sops {
	return sops.Sops{Programs: r.programs(), KeyFile: r.Settings.SopsAgeKeyFile}
}

// fromSops is an error of sops as this step's, or the end of the run that stopped it.
func (r *Run) fromSops(ctx context.Context, step string, err error) error {
	if ctx.Err() != nil {
		return interrupted(ctx, step)
	}

	var problem *diagnosis.Problem
	if errors.As(err, &problem) {
		problem.Step = step
	}

	return err
}

// talosVersion is the one that the inventory declares, or the newest that is known here.
func (r *Run) talosVersion() string {
	if r.Cluster.TalosVersion != "" {
		return r.Cluster.TalosVersion
	}

	return machineconfig.DefaultTalosVersion
}

// secretsPath is the cluster's secrets file; empty if there is none.
func (r *Run) secretsPath() string { return r.Cluster.SecretsPath() }
