package invocation

import (
	"context"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/profile"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Schema prints the JSON schema of one of the files that a cluster is declared in; of talconfig.yaml if none is named.
func (i Invocation) Schema(file string) *Failure {
	schemas := map[string]func() ([]byte, error){
		"":                      talconfig.JSONSchema,
		inventory.TalconfigName: talconfig.JSONSchema,
		profile.FileName:        profile.JSONSchema,
	}

	schema, known := schemas[file]
	if !known {
		names := []string{inventory.TalconfigName, profile.FileName}
		problem := &diagnosis.Problem{Step: "schema", Finding: diagnosis.Finding{
			ID: diagnosis.BadSetting, Severity: diagnosis.Failure,
			Cause: fmt.Sprintf("-of=%q: -of takes %s or %s", file, names[0], names[1]),
			Next:  "correct -of",
		}}

		if guess := suggest.Word(file, names); guess != "" {
			problem.Next = "-of=" + guess
		}

		return badInput(problem)
	}

	text, err := schema()
	if err == nil {
		_, err = i.Out.Write(text)
	}

	if err != nil {
		return &Failure{Code: diagnosis.ExitUnexpected, Message: err.Error()}
	}

	return nil
}

// Images shows every node's schematic, installer image and boot image. No node is asked.
func (i Invocation) Images(ctx context.Context, flags settings.Overrides) *Failure {
	ctx, stop := withSignals(ctx)
	defer stop()

	run, _, failure := i.start(ctx, "config:schematic", flags, func(*settings.Settings) []steps.Step { return nil })
	if failure != nil {
		return failure
	}

	images, err := steps.Images(run)
	closing := run.Report.Close()

	if err != nil {
		return i.failure(ctx, "config:schematic", err).and(unwrittenReport(run, closing))
	}

	rows := [][]string{{"node", "schematic", "installer", "boot image"}}

	for _, image := range images {
		schematic := image.Schematic
		if schematic == "" {
			schematic = "-"
		}

		rows = append(rows, []string{image.Node, schematic, image.Installer, image.Boot})
	}

	i.columns(rows)

	return unwrittenReport(run, closing)
}
