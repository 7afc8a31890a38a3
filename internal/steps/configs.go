package steps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/atomicfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/inventory"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/talosapi"
)

const (
	secretsName = "secrets"
	configsName = "configs"
	secretsFile = "talsecret.sops.yaml"
)

// secretsFiles are the names that talhelper looks for, encrypted or not.
var secretsFiles = []string{secretsFile, "talsecret.sops.yml", "talsecret.yaml", "talsecret.yml"}

// Secrets makes the cluster's secrets, encrypted, if there are none. It never makes them for a cluster that may exist already.
type Secrets struct{}

// Name is the step's name.
func (Secrets) Name() string { return secretsName }

// Mutates marks the step as one that needs the cluster's lock.
func (Secrets) Mutates() {}

// EndsRecipe stops a recipe: without this step the ones that follow make no sense.
func (Secrets) EndsRecipe(error) bool { return true }

// Run asks the nodes before it makes anything.
func (s Secrets) Run(ctx context.Context, run *Run) error {
	if path := run.secretsPath(); path != "" {
		return run.done(s.Name(), report.Skipped, path+" exists", nil)
	}

	if made := run.generatedFiles(); len(made) > 0 {
		// Without its secrets this cluster's configs can't be rendered anew, but they can be used.
		return run.done(s.Name(), report.Skipped, fmt.Sprintf("none, and %s exists: new ones would belong to another cluster", made[0]), nil)
	}

	if problem := s.mayBelongToCluster(ctx, run); problem != nil {
		return run.done(s.Name(), report.Failed, "", problem)
	}

	if run.Settings.DryRun {
		return errors.Join(run.done(s.Name(), report.Planned, "would be made", nil), wouldMake(s.Name(), secretsFile))
	}

	return run.done(s.Name(), report.Applied, secretsFile, s.make(ctx, run))
}

// mayBelongToCluster refuses new secrets while a node is configured, or silent and so perhaps configured.
func (Secrets) mayBelongToCluster(ctx context.Context, run *Run) error {
	for _, seen := range run.lookAll(ctx, run.Cluster.Nodes) {
		cause := ""

		switch {
		case seen.State == talosapi.Maintenance, seen.State == talosapi.NotTalos:
			continue
		case seen.silent() && run.Settings.NewSecrets:
			continue
		case seen.silent():
			cause = "it does not answer, so it may belong to a cluster whose secrets these files lack"
		default:
			cause = "it is configured already, and the cluster's secrets are not here"
		}

		problem := run.problem(secretsName, seen, diagnosis.SecretsMissing, cause,
			fmt.Sprintf("restore %s; or, if this is to be a new cluster, boot the node into maintenance (all nodes off: -newSecrets)", filepath.Join(run.Settings.TalosDir, secretsFile)))
		problem.Exit = diagnosis.ExitPreflight

		return problem
	}

	return nil
}

// make pipes talhelper's secrets through sops, so that plaintext never touches the disk.
func (Secrets) make(ctx context.Context, run *Run) error {
	plain, err := run.program(ctx, nil, "talhelper", "gensecret")
	if err != nil {
		return err
	}

	path := filepath.Join(run.Settings.TalosDir, secretsFile)

	encrypted, err := run.program(ctx, plain, "sops", "--encrypt", "--filename-override", path, "--input-type", "yaml", "--output-type", "yaml", "/dev/stdin")
	if err != nil {
		return err
	}

	if err := atomicfile.WriteFile(path, encrypted, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}

	return nil
}

// Configs renders the machine configs. Files of nodes that have none are added; others are replaced only while every node is in maintenance, or when asked.
type Configs struct {
	// Replace is set when the user asked for the files to be rendered anew.
	Replace bool
}

// Name is the step's name.
func (Configs) Name() string { return configsName }

// Mutates marks the step as one that needs the cluster's lock.
func (Configs) Mutates() {}

// EndsRecipe stops a recipe: without this step the ones that follow make no sense.
func (Configs) EndsRecipe(error) bool { return true }

// Run renders into a temporary folder and compares.
func (s Configs) Run(ctx context.Context, run *Run) error {
	if run.secretsPath() == "" && !run.Settings.DryRun {
		return s.withoutSecrets(run)
	}

	if run.Settings.DryRun && run.secretsPath() == "" {
		return nil
	}

	if _, err := exec.LookPath("talhelper"); err != nil && !s.Replace && run.complete() {
		return run.done(s.Name(), report.Skipped, "talhelper is not installed: the files in "+run.Settings.ClusterConfigDir+" are used as they are", nil)
	}

	rendered, err := s.render(ctx, run)
	if err != nil {
		return run.done(s.Name(), report.Failed, "", err)
	}
	defer os.RemoveAll(rendered)

	return s.install(ctx, run, rendered)
}

// withoutSecrets uses the files that are there; there is no way to make any.
func (s Configs) withoutSecrets(run *Run) error {
	if run.complete() && !s.Replace {
		return run.done(s.Name(), report.Skipped, "the files in "+run.Settings.ClusterConfigDir+" are used as they are", nil)
	}

	return run.done(s.Name(), report.Failed, "", &diagnosis.Problem{Step: s.Name(), Finding: diagnosis.Finding{
		ID:       diagnosis.SecretsMissing,
		Severity: diagnosis.Failure,
		Cause:    fmt.Sprintf("%s holds no %s, so machine configs can't be rendered", run.Settings.TalosDir, secretsFile),
		Next:     "restore the file, or recover it from a control plane's config: talosctl gen secrets --from-controlplane-config",
		Exit:     diagnosis.ExitBadInput,
	}})
}

// render runs talhelper into a temporary folder beside the real one. The caller removes it.
func (s Configs) render(ctx context.Context, run *Run) (string, error) {
	folder, err := os.MkdirTemp("", "talos-mage-configs-")
	if err != nil {
		return "", fmt.Errorf("make folder for rendered configs: %w", err)
	}

	_, err = run.program(ctx, nil, "talhelper", "genconfig", "--no-gitignore", "--config-file", run.Cluster.Source, "--secret-file", run.secretsPath(), "--out-dir", folder)
	if err != nil {
		os.RemoveAll(folder)

		return "", err
	}

	return folder, nil
}

// install takes over what was rendered, file by file.
func (s Configs) install(ctx context.Context, run *Run, rendered string) error {
	added, changed, err := s.difference(run, rendered)
	if err != nil {
		return run.done(s.Name(), report.Failed, "", err)
	}

	writing := added

	switch {
	case len(changed) == 0:
	case s.Replace || run.allInMaintenance(ctx):
		writing = slices.Concat(added, changed)
	default:
		run.Report.Finding(s.Name(), diagnosis.Finding{
			ID:       diagnosis.RenderedDiffers,
			Severity: diagnosis.Warning,
			Cause:    fmt.Sprintf("%s would change, and are left alone since nodes are configured: %s", run.Settings.ClusterConfigDir, list(changed)),
			Next:     "task talos:generate-config",
		})
	}

	if len(writing) == 0 {
		return run.done(s.Name(), report.Skipped, "nothing to write", nil)
	}

	if run.Settings.DryRun {
		return errors.Join(run.done(s.Name(), report.Planned, "would write "+list(writing), nil), wouldMake(s.Name(), list(writing)))
	}

	for _, name := range writing {
		if err := installFile(filepath.Join(rendered, name), filepath.Join(run.Settings.ClusterConfigDir, name)); err != nil {
			return run.done(s.Name(), report.Failed, "", err)
		}
	}

	ignored := filepath.Join(run.Settings.ClusterConfigDir, ".gitignore")
	if !fileExists(ignored) {
		if err := atomicfile.WriteFile(ignored, []byte(strings.Join(writing, "\n")+"\n"), 0o644); err != nil {
			return run.done(s.Name(), report.Failed, "", fmt.Errorf("write %s: %w", ignored, err))
		}
	}

	if err := run.loadFiles(); err != nil {
		return err
	}

	return run.done(s.Name(), report.Applied, "wrote "+list(writing), run.acquireLock(ctx))
}

// difference compares what was rendered with what is there. A talosconfig is new each time it is rendered, so an existing one of the same
// CA stays; so does every config with the same meaning.
func (s Configs) difference(run *Run, rendered string) (added, changed []string, err error) {
	entries, err := os.ReadDir(rendered)
	if err != nil {
		return nil, nil, fmt.Errorf("read rendered configs: %w", err)
	}

	for _, entry := range entries {
		name := entry.Name()
		present := filepath.Join(run.Settings.ClusterConfigDir, name)

		switch {
		case entry.IsDir() || name == ".gitignore":
		case !fileExists(present):
			added = append(added, name)
		case name == "talosconfig":
			if !sameCA(present, filepath.Join(rendered, name)) {
				changed = append(changed, name)
			}
		case !sameConfig(present, filepath.Join(rendered, name)):
			changed = append(changed, name)
		}
	}

	return added, changed, nil
}

func sameCA(a, b string) bool {
	first, err := talosapi.LoadCredentials(a)
	if err != nil {
		return false
	}

	second, err := talosapi.LoadCredentials(b)

	return err == nil && bytes.Equal(first.CA(), second.CA())
}

func sameConfig(a, b string) bool {
	first, err := machineconfig.Load(a)
	if err != nil {
		return false
	}

	second, err := machineconfig.Load(b)

	return err == nil && machineconfig.Same(first, second)
}

func installFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read rendered config: %w", err)
	}

	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}

	if err := atomicfile.WriteFile(to, data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}

	return nil
}

func wouldMake(step, what string) error {
	return &diagnosis.Problem{Step: step, Finding: diagnosis.Finding{
		ID: diagnosis.WouldChange, Severity: diagnosis.Warning, Cause: "dry run: " + what + " would be written", Next: "the same command without -dryRun", Exit: diagnosis.ExitDryRun,
	}}
}

// secretsPath is the cluster's secrets file; empty if there is none.
func (r *Run) secretsPath() string {
	for _, name := range secretsFiles {
		if path := filepath.Join(r.Settings.TalosDir, name); fileExists(path) {
			return path
		}
	}

	return ""
}

// generatedFiles are the machine configs and the talosconfig that exist.
func (r *Run) generatedFiles() []string {
	var made []string

	for _, node := range r.Cluster.Nodes {
		if fileExists(node.ConfigFile) {
			made = append(made, node.ConfigFile)
		}
	}

	if fileExists(r.Settings.Talosconfig) {
		made = append(made, r.Settings.Talosconfig)
	}

	return made
}

// complete tells whether every node has a machine config, and there is a talosconfig.
func (r *Run) complete() bool {
	return fileExists(r.Settings.Talosconfig) && !slices.ContainsFunc(r.Cluster.Nodes, func(node *inventory.Node) bool {
		return !fileExists(node.ConfigFile)
	})
}

func (r *Run) allInMaintenance(ctx context.Context) bool {
	return !slices.ContainsFunc(r.lookAll(ctx, r.Cluster.Nodes), func(seen sight) bool { return seen.State != talosapi.Maintenance })
}

// program runs one of the user's programs in the talos folder. What it printed on its error stream becomes part of the error, scrubbed.
func (r *Run) program(ctx context.Context, input []byte, name string, arguments ...string) ([]byte, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, &diagnosis.Problem{Step: configsName, Err: err, Finding: diagnosis.Finding{
			ID: diagnosis.ProgramMissing, Severity: diagnosis.Failure, Exit: diagnosis.ExitBadInput,
			Cause: name + " is not on the PATH: it makes the cluster's secrets and machine configs",
			Next:  "install " + name + ", or put the machine configs into " + r.Settings.ClusterConfigDir,
		}}
	}

	command := exec.CommandContext(ctx, path, arguments...)
	command.Dir = r.Settings.TalosDir
	command.Env = append(os.Environ(), r.Settings.Environ()...)
	command.Stdin = bytes.NewReader(input)
	command.WaitDelay = time.Second

	var complaint bytes.Buffer

	command.Stderr = &complaint

	output, err := command.Output()
	if err == nil {
		return output, nil
	}

	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}

	return nil, &diagnosis.Problem{Step: configsName, Err: err, Finding: diagnosis.Finding{
		ID: diagnosis.ProgramFailed, Severity: diagnosis.Failure, Exit: diagnosis.ExitBadInput,
		Cause: fmt.Sprintf("%s %s failed: %s", name, arguments[0], report.Scrub(strings.TrimSpace(complaint.String()))),
		Next:  "correct what it complains about, then run the same command again",
	}}
}

// done records the result of a step that concerns the cluster as a whole.
func (r *Run) done(step string, status report.Status, detail string, err error) error {
	if err != nil {
		status = report.Failed
	}

	r.Report.Result(report.Result{Step: step, Status: status, Detail: detail, Err: err})

	return err
}

func fileExists(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}
