package steps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/textdiff"

	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/cluster/sops"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/machineconfig/migrate"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Migrate rewrites the files that declare the cluster from the older form of machine configs to the documents of Talos
// 1.14, if every node's config then says the same. No node is changed.
type Migrate struct{}

// Name is the step's name.
func (Migrate) Name() string { return "migrate" }

// Exit is the code for files that could not be rewritten.
func (Migrate) Exit() diagnosis.ExitCode { return diagnosis.ExitUnexpected }

// Mutates marks the step as one that needs the cluster's lock.
func (Migrate) Mutates() {}

// Run plans in memory, and writes what is proven.
func (s Migrate) Run(ctx context.Context, run *Run) error {
	migrator := &migrator{work: begin(run, s)}

	plan, standIn, err := migrator.workspace.Migration(ctx, run.Settings.NewDefaults)
	if err != nil {
		return migrator.failed(ctx, migrator.unchanged(err))
	}

	migrator.plan = plan
	if standIn != "" {
		migrator.judged = "; compared with throwaway secrets, made up since " + standIn
	}

	if err := migrator.refused(); err != nil {
		return migrator.failed(ctx, err)
	}

	return migrator.write(ctx)
}

// migrator is one run of the migrate step.
type migrator struct {
	*work

	plan   *migrate.Plan
	judged string
}

// unchanged says of an error that nothing was written.
func (m *migrator) unchanged(err error) error {
	return fmt.Errorf("nothing was changed: %w", workspace.BadInput(err))
}

// refused is why nothing is migrated: what a person has to decide, or what would differ.
func (m *migrator) refused() error {
	var problems []error

	for _, note := range m.plan.Decisions {
		problem := diagnosis.NewProblem(diagnosis.MigrationUndecided, note.Text, "decide, and run the same command again")
		problem.At = diagnosis.Location{Path: note.Path, Line: note.Line, Column: note.Column}
		problems = append(problems, problem)
	}

	for _, one := range m.plan.Differences {
		problems = append(problems, diagnosis.NewProblem(diagnosis.MigrationUnequal,
			fmt.Sprintf("the configs of %s would differ in %s: now %s, then %s", text.List(one.Nodes), one.Accessor,
				m.shownAnswer(one.Accessor, one.Before), m.shownAnswer(one.Accessor, one.After)), one.Next))
	}

	return diagnosis.Join(problems...)
}

// shownAnswer is what an accessor says, if no secret can be in it.
func (m *migrator) shownAnswer(accessor, said string) string {
	const longest = 200

	if m.plan.Sealed {
		return machineconfig.Masked
	}

	for _, secretive := range []string{"Key", "Secret", "Token", "CA", "Encryption", "Auth", "Password", "Content", "Env",
		"Wireguard", "Static", "Config.Config"} {
		if strings.Contains(accessor, secretive) {
			return machineconfig.Masked
		}
	}

	if runes := []rune(said); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}

	return said
}

// write shows what was rewritten, and replaces the files: in a dry run it shows how they would change.
func (m *migrator) write(ctx context.Context) error {
	for _, note := range m.plan.Kept {
		m.Log.Info().Msg(place(note) + ": stays: " + note.Text)
	}

	if !m.plan.Changes() {
		return m.done(report.Skipped, "nothing to do: the files are in the form of "+migrate.NewContract+" already")
	}

	m.tellOlderNodes(ctx)

	if named := m.Settings.TalosContract; named != "" && named != migrate.NewContract {
		m.Log.Warn().Msg("TALOS_CONTRACT=" + named + " goes over what the files say: unset it, or " + migrate.NewContract +
			" is not what configs are made in")
	}

	for _, note := range m.plan.Moves {
		m.Log.Info().Msg(place(note) + ": " + note.Text)
	}

	paths := slices.Sorted(maps.Keys(m.plan.Files))
	names := text.List(m.shown(paths))

	if m.Settings.DryRun {
		for _, path := range paths {
			m.showDiff(path)
		}

		return m.wouldWrite(names, m.summary("would rewrite "+names))
	}

	if err := m.checkClean(ctx); err != nil {
		return m.failed(ctx, err)
	}

	for _, path := range paths {
		mode := m.workspace.Files.Open(path).Mode
		if mode == 0 {
			mode = 0o644
		}

		if err := m.gate.WriteFile(path, m.plan.Files[path], mode); err != nil {
			return m.failed(ctx, unwritable(path, err))
		}
	}

	return m.done(report.Applied, m.summary("rewrote "+names))
}

func place(note migrate.Note) string { return diagnosis.Place(note.Path, note.Line, note.Column) }

// summary is what was done, and what became of the defaults of Talos 1.14.
func (m *migrator) summary(what string) string {
	what += fmt.Sprintf(": %d fields are in documents, and the nodes get equal configs", len(m.plan.Moves))

	if len(m.plan.Defaults) > 0 {
		how := "; written out as before: "
		if m.Settings.NewDefaults {
			how = "; taken as Talos 1.14 has them: "
		}

		what += how + text.List(m.plan.Defaults)
	}

	return what + m.judged
}

func (m *migrator) shown(paths []string) []string {
	shown := make([]string, len(paths))
	for i, path := range paths {
		shown[i] = m.workspace.Files.Shown(path)
	}

	return shown
}

// showDiff shows how a file would change, with secrets masked.
func (m *migrator) showDiff(path string) {
	shown := m.workspace.Files.Shown(path)

	if sops.Encrypted(m.plan.Files[path]) {
		m.Report.Finding(m.step.Name(), diagnosis.Finding{
			ID: diagnosis.MigrationPlanned, Severity: diagnosis.Warning, Next: "the same command without -dryRun",
			Cause: shown + " would be rewritten, and encrypted for the recipients that it has; its lines are secret",
		})

		return
	}

	before, after := maskedText(m.workspace.Files.Open(path).Data), maskedText(m.plan.Files[path])

	diff, err := textdiff.DiffWithCustomPaths(before, after, shown, shown)
	if err != nil {
		return
	}

	m.Report.Finding(m.step.Name(), diagnosis.Finding{
		ID: diagnosis.MigrationPlanned, Severity: diagnosis.Warning, Cause: shown + " would change:\n" + diff,
		Next: "the same command without -dryRun",
	})
}

func maskedText(data []byte) string {
	places := machineconfig.NewPlaces(data)

	var out strings.Builder

	for i := range strings.Count(string(data), "\n") {
		out.WriteString(places.Line(i+1) + "\n")
	}

	return out.String()
}

// checkClean refuses to replace files that can't be brought back: git has to know them as they are.
func (m *migrator) checkClean(ctx context.Context) error {
	if m.Settings.Dirty {
		return nil
	}

	folder := filepath.Dir(m.Cluster.Source)
	listed, err := program.Git(m.workspace.Environ, folder).Run(ctx, nil, "git", "-c", "core.fsmonitor=false", "status",
		"--porcelain", "--untracked-files=all", "--", ".")

	var why string

	switch changed := strings.Fields(string(listed)); {
	case errors.Is(err, program.ErrMissing):
		why = "there is no git"
	case err != nil:
		why = m.workspace.Files.Shown(folder) + " is in no git repository"
	case len(changed) > 0:
		why = "not everything in " + m.workspace.Files.Shown(folder) + " is committed: " + changed[1]
	default:
		return nil
	}

	return diagnosis.NewProblem(diagnosis.MigrationDirty, why+": what is replaced could not be brought back; nothing was "+
		"changed", "git commit, then the same command; or add -dirty")
}

// tellOlderNodes names the nodes that run a release which does not know the documents. One that does not answer is no
// matter here.
func (m *migrator) tellOlderNodes(ctx context.Context) {
	var older []string

	for _, seen := range m.observer.All(ctx, m.Nodes()) {
		if seen.State != talos.Ours && seen.State != talos.Maintenance {
			continue
		}

		running := m.observer.Version(ctx, seen)
		if minor, err := release.Minor(running); err == nil && minor.String() != migrate.NewContract &&
			!release.IsNewer(running) {
			older = append(older, seen.Node.Name+" ("+running+")")
		}
	}

	if len(older) > 0 {
		m.Report.Finding(m.step.Name(), diagnosis.Finding{
			ID: diagnosis.MigrationOlderNodes, Severity: diagnosis.Warning,
			Cause: "these nodes run a release that refuses the new documents: " + text.List(older),
			Next:  "upgrade them to Talos " + migrate.NewContract + " before you apply their configs again",
		})
	}
}
