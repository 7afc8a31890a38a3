package invocation

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/profile"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Schema prints the JSON schema of one of the files that a cluster is declared in.
func (i Invocation) Schema(flags settings.Overrides) *Failure {
	loaded, err := settings.Load(nil, flags, i.Workdir)
	if err != nil {
		return badInput(err)
	}

	schema := talconfig.JSONSchema
	if loaded.SchemaOf == profile.FileName {
		schema = profile.JSONSchema
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
