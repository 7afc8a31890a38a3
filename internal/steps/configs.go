package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/plainfile"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/gate"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
)

// configMode are the permission bits of files with secrets: they are for their owner alone.
const configMode = 0o600

// Configs renders the machine configs. Files of nodes that have none are added; others are replaced only while every
// node is in maintenance, or when asked.
type Configs struct {
	// Replace is set when the user asked for the files to be rendered anew.
	Replace bool
}

// Name is the step's name.
func (Configs) Name() string { return "configs" }

// Exit is the code for configs that could not be made.
func (Configs) Exit() diagnosis.ExitCode { return diagnosis.ExitUnexpected }

// Mutates marks the step as one that needs the cluster's lock.
func (Configs) Mutates() {}

// EndsRecipe stops a recipe: without configs the steps that follow make no sense. A dry run has them in memory.
func (Configs) EndsRecipe(err error) bool { return CodeOf(err) != diagnosis.ExitDryRun }

// Run renders in memory, or in a temporary folder, and compares.
func (s Configs) Run(ctx context.Context, run *Run) error {
	maker := &configsMaker{begin(run, s), s.Replace}
	if run.Settings.ConfigGenerator == workspace.NoGenerator {
		return maker.asTheyAre(ctx, "CONFIG_GENERATOR=none", "leave CONFIG_GENERATOR at native, or make them your way")
	}

	path := run.Cluster.SecretsPath()
	if path == "" && (!run.Settings.DryRun || len(run.workspace.Written()) > 0) {
		return maker.withoutSecrets(ctx)
	}

	if s.Replace { // in a recipe it is preflight that says it
		for _, finding := range slices.Concat(run.Cluster.AmbiguousSecrets(), run.Cluster.UnknownRelease()) {
			run.Report.Finding(s.Name(), finding)
		}
	}

	if program, missing := run.workspace.MissingProgram(path); missing && !s.Replace && run.workspace.Complete() {
		return maker.asTheyAre(ctx, program+" is not installed", "")
	}

	return maker.render(ctx, path)
}

// configsMaker is one run of the configs step.
type configsMaker struct {
	*work
	replace bool
}

// render makes the files, and takes them over. A dry run only judges them.
func (m *configsMaker) render(ctx context.Context, secretsPath string) error {
	var (
		rendered []workspace.File
		standIn  string
		err      error
	)

	if m.Settings.DryRun {
		rendered, standIn, err = m.workspace.Rehearse()
	} else {
		rendered, err = m.workspace.Render(ctx, secretsPath)
	}

	if err != nil {
		return m.failed(ctx, err)
	}

	return m.install(ctx, rendered, standIn)
}

// asTheyAre renders nothing, for a reason; where files are missing that is a failure.
func (m *configsMaker) asTheyAre(ctx context.Context, reason, next string) error {
	folder := m.shown(m.Settings.ClusterConfigDir)
	if m.workspace.Complete() {
		return m.done(report.Skipped, reason+": the files in "+folder+" are used as they are")
	}

	return m.failed(ctx, diagnosis.NewProblem(diagnosis.ConfigMissing,
		reason+": nothing renders machine configs, and not every node has one in "+folder, next))
}

// withoutSecrets uses the files that are there; there is no way to make any.
func (m *configsMaker) withoutSecrets(ctx context.Context) error {
	if m.workspace.Complete() && !m.replace {
		return m.asTheyAre(ctx, "there are no secrets", "")
	}

	if problem := misnamed(m.Run); problem != nil {
		return m.failed(ctx, problem)
	}

	path, _ := m.workspace.NewSecretsPath()
	return m.failed(ctx, diagnosis.NewProblem(diagnosis.SecretsMissing,
		fmt.Sprintf("there is no %s, so machine configs can't be rendered", m.shown(path)),
		"restore the file, or recover it from a control plane's config: mage config:secrets -from=<file>"))
}

// install takes over what was rendered, file by file. With throwaway secrets standing in, files that are there can't be
// compared.
func (m *configsMaker) install(ctx context.Context, rendered []workspace.File, standIn string) error {
	added, changed := m.workspace.Difference(rendered)
	judged := ""
	if standIn != "" {
		changed, judged = nil, "; judged with throwaway secrets, made up since "+standIn
	}

	m.workspace.Made.Compared = standIn == "" // told here
	m.nameStale(rendered)

	writing := added
	switch {
	case len(changed) == 0:
	case m.replace || m.observer.AllInMaintenance(ctx):
		writing = slices.Concat(added, changed)
	default:
		m.Outdated = outdated(m.Run, workspace.Names(changed))
		m.Report.Finding(m.step.Name(), *m.Outdated)
	}

	names := text.List(workspace.Names(writing))
	switch {
	case len(writing) == 0:
		return m.done(report.Skipped, "nothing to write"+judged)
	case m.Settings.DryRun:
		m.showDiffs(writing)
		if err := m.workspace.PretendFiles(writing, standIn); err != nil {
			return err
		}

		return m.wouldWrite(names, "would write "+names+judged)
	}

	if err := m.write(ctx, writing); err != nil {
		return m.failed(ctx, err)
	}

	return m.done(report.Applied, "wrote "+names)
}

// outdated tells of machine configs that are left alone though they would be rendered otherwise by now.
func outdated(run *Run, names []string) *diagnosis.Finding {
	return &diagnosis.Finding{
		ID:       diagnosis.RenderedDiffers,
		Severity: diagnosis.Warning,
		Cause: fmt.Sprintf("machine configs in %s no longer fit what is declared, and are left alone while nodes are "+
			"configured: %s", run.Cluster.Files.Shown(run.Settings.ClusterConfigDir), text.List(names)),
		Next: "mage config:generate, then mage applySequential -update",
	}
}

// write writes the files and takes them up. The cluster has a CA from now on, and so another lock.
func (m *configsMaker) write(ctx context.Context, files []workspace.File) error {
	if err := writeConfigs(m.gate, m.Settings.ClusterConfigDir, files); err != nil {
		return err
	}

	for _, file := range files {
		m.workspace.Files.Wrote(m.workspace.PathOf(file), file.Data, configMode)
	}

	if err := m.workspace.Reload(); err != nil {
		return err
	}

	return m.lock.take(ctx)
}

// nameStale names the machine configs that no node has any more. They are never removed: a machine may still run one.
func (m *configsMaker) nameStale(rendered []workspace.File) {
	present, err := filepath.Glob(filepath.Join(m.Settings.ClusterConfigDir, "*.y*ml"))
	if err != nil {
		return
	}

	made := workspace.Names(rendered)
	for _, path := range present {
		if slices.Contains(made, filepath.Base(path)) {
			continue
		}

		if config, err := m.workspace.Files.Open(path).Config(); err == nil && config.ClusterName() == m.Cluster.Name {
			m.Report.Finding(m.step.Name(), diagnosis.Finding{
				ID:       diagnosis.ConfigsStale,
				Severity: diagnosis.Warning,
				Cause:    "no node uses " + path,
				Next:     "remove it, once you are sure that no machine needs it",
			})
		}
	}
}

// showDiffs shows how files that are there would change, with secrets masked.
func (m *configsMaker) showDiffs(writing []workspace.File) {
	for _, file := range writing {
		path := m.workspace.PathOf(file)

		present, err := m.workspace.Files.Open(path).Config()
		if err != nil || file.Name == workspace.TalosconfigName {
			continue
		}

		wanted, err := machineconfig.FromBytes(file.Name, file.Data)
		if err != nil {
			continue
		}

		m.Report.Finding(m.step.Name(), diagnosis.Finding{
			ID:       diagnosis.RenderedDiffers,
			Severity: diagnosis.Warning,
			Cause:    path + " would change:\n" + machineconfig.Diff(present, wanted),
			Next:     "the same command without -dryRun",
		})
	}
}

// writeConfigs puts rendered files into a folder. Git is told of them first: a run that ends in between must not leave
// secrets for the next commit.
func writeConfigs(gate gate.Gate, folder string, files []workspace.File) error {
	for _, file := range files {
		if file.Throwaway || throwaway.Made(file.Data) {
			return fmt.Errorf("write %s: %w", file.Name, throwaway.ErrMarked)
		}
	}

	if err := ignoreInGit(gate, folder, workspace.Names(files)); err != nil {
		return err
	}

	for _, file := range files {
		path := filepath.Join(folder, file.Name)
		if err := gate.WriteFile(path, file.Data, configMode); err != nil {
			return unwritable(path, err)
		}
	}

	return nil
}

// ignoreInGit keeps files with secrets out of commits, and what else the .gitignore says in it.
func ignoreInGit(gate gate.Gate, folder string, names []string) error {
	path := filepath.Join(folder, ".gitignore")

	present, _, err := plainfile.Read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
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

	return unwritable(path, gate.WriteFile(path, []byte(text), 0o644))
}
