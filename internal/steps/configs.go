package steps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/atomicfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/held"
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

// EndsRecipe stops a recipe, also a dry run that would make secrets: without them the steps that follow make no sense.
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
		run.plan(s.Name(), "would be made")

		return wouldMake(s.Name(), secretsFile)
	}

	return run.done(s.Name(), report.Applied, secretsFile, s.make(ctx, run))
}

// mayBelongToCluster refuses new secrets while a node is configured, or silent and so perhaps configured.
func (Secrets) mayBelongToCluster(ctx context.Context, run *Run) error {
	for _, seen := range run.lookAll(ctx, run.Cluster.Nodes) {
		var cause string

		switch {
		case seen.State == talosapi.Maintenance, seen.State == talosapi.NotTalos:
			continue
		case seen.Silence == talosapi.Refused:
			cause = "its port is closed: it is on, and may be installing or booting with a cluster's config"
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
	plain, err := run.program(ctx, secretsName, nil, "talhelper", "gensecret")
	if err != nil {
		return err
	}

	path := filepath.Join(run.Settings.TalosDir, secretsFile)

	encrypted, err := run.program(ctx, secretsName, plain, "sops", "--encrypt", "--filename-override", path, "--input-type", "yaml", "--output-type", "yaml", "/dev/stdin")
	if err != nil {
		return err
	}

	if err := atomicfile.WriteFile(path, encrypted, 0o600); err != nil {
		return unwritable(secretsName, path, err)
	}

	return nil
}

// unwritable is the problem of a step that could not write a file.
func unwritable(step, path string, err error) error {
	problem := diagnosis.Unwritable(path, err)
	problem.Step = step

	return problem
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

// EndsRecipe stops a recipe, also a dry run that would write configs: without them the steps that follow make no sense.
func (Configs) EndsRecipe(error) bool { return true }

// Run renders into a temporary folder and compares.
func (s Configs) Run(ctx context.Context, run *Run) error {
	if run.secretsPath() == "" {
		return s.withoutSecrets(run)
	}

	if _, found := run.findProgram("talhelper"); !found && !s.Replace && run.complete() {
		return run.done(s.Name(), report.Skipped, "talhelper is not installed: the files in "+run.Settings.ClusterConfigDir+" are used as they are", nil)
	}

	rendered, err := s.render(ctx, run)
	if err != nil {
		return run.done(s.Name(), report.Failed, "", err)
	}
	defer rendered.Remove() //nolint:errcheck // the next run does it then

	return s.install(ctx, run, rendered.Path)
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

// renderedFolders is the pattern of the folders that configs are rendered into.
const renderedFolders = "talos-mage-configs-*"

// render runs talhelper into a temporary folder, which only this user can read. The caller removes it.
func (s Configs) render(ctx context.Context, run *Run) (*held.Folder, error) {
	folder, err := held.NewFolder(run.temporaryFolder(), renderedFolders)
	if err != nil {
		return nil, fmt.Errorf("make folder for rendered configs: %w", err)
	}

	_, err = run.program(ctx, s.Name(), nil, "talhelper", "genconfig", "--no-gitignore", "--config-file", run.Cluster.Source, "--secret-file", run.secretsPath(), "--out-dir", folder.Path)
	if err != nil {
		return nil, errors.Join(err, folder.Remove())
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
		run.plan(s.Name(), "would write "+list(writing))

		return wouldMake(s.Name(), list(writing))
	}

	if err := writeConfigs(rendered, run.Settings.ClusterConfigDir, writing); err != nil {
		return run.done(s.Name(), report.Failed, "", err)
	}

	if err := run.load(); err != nil {
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

// writeConfigs puts rendered files into a folder. Git is told of them first: a run that ends in between must not leave secrets for the next commit.
func writeConfigs(rendered, folder string, names []string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return unwritable(configsName, folder, err)
	}

	if err := ignoreInGit(folder, names); err != nil {
		return err
	}

	for _, name := range names {
		if err := installFile(filepath.Join(rendered, name), filepath.Join(folder, name)); err != nil {
			return err
		}
	}

	return nil
}

func installFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read rendered config: %w", err)
	}

	if err := atomicfile.WriteFile(to, data, 0o600); err != nil {
		return unwritable(configsName, to, err)
	}

	return nil
}

// ignoreInGit keeps files with secrets out of commits, and what else the .gitignore says in it.
func ignoreInGit(folder string, names []string) error {
	path := filepath.Join(folder, ".gitignore")

	present, err := os.ReadFile(path)
	if err != nil && !isNotExist(err) {
		return fmt.Errorf("read list of ignored files: %w", err)
	}

	text := string(present)
	ignored := strings.Fields(text)

	for _, name := range names {
		if slices.Contains(ignored, name) || slices.Contains(ignored, "*") {
			continue
		}

		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}

		text += name + "\n"
	}

	if text == string(present) {
		return nil
	}

	if err := atomicfile.WriteFile(path, []byte(text), 0o644); err != nil {
		return unwritable(configsName, path, err)
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

// done records the result of a step that concerns the cluster as a whole.
func (r *Run) done(step string, status report.Status, detail string, err error) error {
	if err != nil {
		status = report.Failed
	}

	r.Report.Result(report.Result{Step: step, Status: status, Detail: detail, Err: err})

	return err
}

// plan records what a step would do if this were no dry run.
func (r *Run) plan(step, detail string) {
	r.Report.Result(report.Result{Step: step, Status: report.Planned, Detail: detail})
}

func fileExists(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}
