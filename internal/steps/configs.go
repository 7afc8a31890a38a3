package steps

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/gate"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const configsName = "configs"

// configMode are the permission bits of files with secrets: they are for their owner alone.
const configMode = 0o600

// unwritable is the problem of a step that could not write a file.
func unwritable(step, path string, err error) error {
	problem := diagnosis.Unwritable(path, err)
	problem.Step = step

	return problem
}

// Configs renders the machine configs. Files of nodes that have none are added; others are replaced only while every
// node is in maintenance, or when asked.
type Configs struct {
	// Replace is set when the user asked for the files to be rendered anew.
	Replace bool
}

// Name is the step's name.
func (Configs) Name() string { return configsName }

// Exit is the code for configs that could not be made.
func (Configs) Exit() diagnosis.ExitCode { return diagnosis.ExitUnexpected }

// Mutates marks the step as one that needs the cluster's lock.
func (Configs) Mutates() {}

// EndsRecipe stops a recipe: without configs the steps that follow make no sense. A dry run has them in memory.
func (Configs) EndsRecipe(err error) bool { return CodeOf(err) != diagnosis.ExitDryRun }

// Run renders in memory, or in a temporary folder, and compares.
func (s Configs) Run(ctx context.Context, run *Run) error {
	if run.Settings.ConfigGenerator == noGenerator {
		return s.asTheyAre(run, "CONFIG_GENERATOR=none", "leave CONFIG_GENERATOR at native, or make them your way")
	}

	path := run.secretsPath()
	if path == "" && (!run.Settings.DryRun || len(run.generatedFiles()) > 0) {
		return s.withoutSecrets(run)
	}

	if s.Replace { // in a recipe it is preflight that says it
		for _, finding := range run.Cluster.AmbiguousSecrets() {
			run.Report.Finding(s.Name(), finding)
		}
	}

	if program, missing := run.missingProgram(path); missing && !s.Replace && run.complete() {
		return s.asTheyAre(run, program+" is not installed", "")
	}

	var (
		rendered []renderedFile
		standIn  string
		err      error
	)

	switch native := run.Settings.ConfigGenerator != talhelperGenerator; {
	case run.Settings.DryRun && native:
		rendered, standIn, err = run.rehearse(ctx, s.Name())
	case path == "": // talhelper reads secrets from a file, where none that are made up may be
		run.made.WhyNot = errByTalhelper
		run.plan(s.Name(), "talhelper would render")

		return wouldMake(s.Name(), "the machine configs")
	default:
		rendered, err = run.render(ctx, s.Name(), path)
	}

	if err != nil {
		return run.done(s.Name(), report.Failed, "", err)
	}

	return s.install(ctx, run, rendered, standIn)
}

// asTheyAre renders nothing, for a reason; where files are missing that is a failure.
func (s Configs) asTheyAre(run *Run, reason, next string) error {
	if run.complete() {
		return run.done(s.Name(), report.Skipped,
			reason+": the files in "+run.Settings.ClusterConfigDir+" are used as they are", nil)
	}

	return run.done(s.Name(), report.Failed, "", &diagnosis.Problem{Step: s.Name(), Finding: diagnosis.Finding{
		ID:       diagnosis.ConfigMissing,
		Severity: diagnosis.Failure,
		Cause: reason + ": nothing renders machine configs, and not every node has one in " +
			run.Settings.ClusterConfigDir,
		Next: next,
		Exit: diagnosis.ExitBadInput,
	}})
}

// withoutSecrets uses the files that are there; there is no way to make any.
func (s Configs) withoutSecrets(run *Run) error {
	if run.complete() && !s.Replace {
		return s.asTheyAre(run, "there are no secrets", "")
	}

	if problem := misnamed(run); problem != nil {
		return run.done(s.Name(), report.Failed, "", problem)
	}

	return run.done(s.Name(), report.Failed, "", &diagnosis.Problem{Step: s.Name(), Finding: diagnosis.Finding{
		ID:       diagnosis.SecretsMissing,
		Severity: diagnosis.Failure,
		Cause: fmt.Sprintf("there is no %s, so machine configs can't be rendered",
			run.Cluster.NewSecretsPath(run.sops().Rules() != "")),
		Next: "restore the file, or recover it from a control plane's config: mage config:secrets -from=<file>",
		Exit: diagnosis.ExitBadInput,
	}})
}

// install takes over what was rendered, file by file. With throwaway secrets standing in, files that are there can't be
// compared.
func (s Configs) install(ctx context.Context, run *Run, rendered []renderedFile, standIn string) error {
	added, changed := s.difference(run, rendered)
	judged := ""

	if standIn != "" {
		changed, judged = nil, "; judged with throwaway secrets, made up since "+standIn
	}
	s.nameStale(run, rendered)

	writing := added

	switch {
	case len(changed) == 0:
	case s.Replace || run.allInMaintenance(ctx):
		writing = slices.Concat(added, changed)
	default:
		run.Report.Finding(s.Name(), diagnosis.Finding{
			ID:       diagnosis.RenderedDiffers,
			Severity: diagnosis.Warning,
			Cause: fmt.Sprintf("%s would change, and are left alone since nodes are configured: %s",
				run.Settings.ClusterConfigDir, text.List(namesOf(changed))),
			Next: "task talos:generate-config",
		})
	}

	if len(writing) == 0 {
		return run.done(s.Name(), report.Skipped, "nothing to write"+judged, nil)
	}

	names := text.List(namesOf(writing))

	if run.Settings.DryRun {
		s.showDiffs(run, writing)
		run.plan(s.Name(), "would write "+names+judged)

		if err := run.pretendFiles(writing, standIn); err != nil {
			return err
		}

		return wouldMake(s.Name(), names)
	}

	if err := writeConfigs(run.gate(), run.Settings.ClusterConfigDir, writing); err != nil {
		return run.done(s.Name(), report.Failed, "", err)
	}

	for _, file := range writing {
		run.files.Wrote(run.pathOf(file), file.data, configMode)
	}

	if err := run.reload(); err != nil {
		return err
	}

	return run.done(s.Name(), report.Applied, "wrote "+names, run.acquireLock(ctx))
}

// difference compares what was rendered with what is there. A talosconfig is new each time it is rendered, so an
// existing one of the same CA stays, as long as its certificate is valid; so does every config with the same meaning.
func (s Configs) difference(run *Run, rendered []renderedFile) (added, changed []renderedFile) {
	for _, file := range rendered {
		present := run.files.Open(run.pathOf(file))

		switch {
		case present.Missing() || present.Unwritten:
			added = append(added, file)
		case present.Err == nil && file.name == talosconfigName && run.sameAccess(present.Data, file.data):
		case present.Err == nil && file.name != talosconfigName && sameConfig(present.Data, file.data):
		default:
			changed = append(changed, file)
		}
	}

	return added, changed
}

// nameStale names the machine configs that no node has any more. They are never removed: a machine may still run one.
func (s Configs) nameStale(run *Run, rendered []renderedFile) {
	present, err := filepath.Glob(filepath.Join(run.Settings.ClusterConfigDir, "*.y*ml"))
	if err != nil {
		return
	}

	made := namesOf(rendered)

	for _, path := range present {
		if slices.Contains(made, filepath.Base(path)) {
			continue
		}

		if config, err := run.files.Open(path).Config(); err == nil && config.ClusterName() == run.Cluster.Name {
			run.Report.Finding(s.Name(), diagnosis.Finding{
				ID:       diagnosis.ConfigsStale,
				Severity: diagnosis.Warning,
				Cause:    path + " is the machine config of no node",
				Next:     "remove it, once you have seen that no machine is in need of it",
			})
		}
	}
}

// showDiffs shows how files that are there would change, with secrets masked.
func (s Configs) showDiffs(run *Run, writing []renderedFile) {
	for _, file := range writing {
		path := run.pathOf(file)

		present, err := run.files.Open(path).Config()
		if err != nil || file.name == talosconfigName {
			continue
		}

		wanted, err := machineconfig.FromBytes(file.name, file.data)
		if err != nil {
			continue
		}

		run.Report.Finding(s.Name(), diagnosis.Finding{
			ID:       diagnosis.RenderedDiffers,
			Severity: diagnosis.Warning,
			Cause:    path + " would change:\n" + machineconfig.Diff(present, wanted),
			Next:     "the same command without -dryRun",
		})
	}
}

// sameAccess reports whether a talosconfig that is there gives what a new one would: of the same certificate authority,
// and not expired.
func (r *Run) sameAccess(present, rendered []byte) bool {
	first, err := talos.ParseCredentials(present)
	if err != nil {
		return false
	}

	second, err := talos.ParseCredentials(rendered)

	return err == nil && bytes.Equal(first.CA(), second.CA()) && certificateTime().Before(first.NotAfter())
}

func sameConfig(present, rendered []byte) bool {
	first, err := machineconfig.FromBytes("", present)
	if err != nil {
		return false
	}

	second, err := machineconfig.FromBytes("", rendered)

	return err == nil && machineconfig.Same(first, second)
}

// writeConfigs puts rendered files into a folder. Git is told of them first: a run that ends in between must not leave
// secrets for the next commit.
func writeConfigs(gate gate.Gate, folder string, files []renderedFile) error {
	for _, file := range files {
		if file.throwaway || throwaway.Made(file.data) {
			return fmt.Errorf("write %s: %w", file.name, throwaway.ErrMarked)
		}
	}

	if err := ignoreInGit(gate, configsName, folder, namesOf(files)); err != nil {
		return err
	}

	for _, file := range files {
		path := filepath.Join(folder, file.name)

		if err := gate.WriteFile(path, file.data, configMode); err != nil {
			return unwritable(configsName, path, err)
		}
	}

	return nil
}

// ignoreInGit keeps files with secrets out of commits, and what else the .gitignore says in it.
func ignoreInGit(gate gate.Gate, step, folder string, names []string) error {
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

	if err := gate.WriteFile(path, []byte(text), 0o644); err != nil {
		return unwritable(step, path, err)
	}

	return nil
}

func wouldMake(step, what string) error {
	return wouldChange(step, what+" would be written", "the same command without -dryRun")
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

// complete reports whether every node has a machine config, and there is a talosconfig.
func (r *Run) complete() bool {
	return !r.files.Open(r.Settings.Talosconfig).Missing() &&
		!slices.ContainsFunc(r.Cluster.Nodes, func(node *inventory.Node) bool {
			return r.files.Open(node.ConfigFile).Missing()
		})
}

func (r *Run) allInMaintenance(ctx context.Context) bool {
	return !slices.ContainsFunc(r.observer.All(ctx, r.Cluster.Nodes),
		func(seen observe.Observation) bool { return seen.State != talos.Maintenance })
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
