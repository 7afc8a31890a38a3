package invocation

import (
	"cmp"
	"context"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/profile"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
)

// Schema prints the JSON schema of one of the files that a cluster is declared in.
func (i Invocation) Schema(flags settings.Overrides) *Failure {
	loaded, err := settings.Load(nil, flags, i.Workdir)
	if err != nil {
		return i.badInput(err)
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
		return i.fail(diagnosis.ExitUnexpected, err.Error())
	}

	return nil
}

// Images shows every node's schematic, installer image and boot image. No node is asked.
func (i Invocation) Images(ctx context.Context, flags settings.Overrides) *Failure {
	ctx, stop := withSignals(ctx)
	defer stop()

	loaded, err := i.load(ctx, flags)
	if err != nil {
		return i.badInput(err)
	}

	files := workspace.New(ctx, loaded, i.Environ)
	if err := files.Load(); err != nil {
		return i.failure(ctx, "config:schematic", err)
	}

	images, err := files.Images()
	if err != nil {
		return i.failure(ctx, "config:schematic", err)
	}

	rows := [][]string{{"node", "schematic", "installer", "boot image"}}
	for _, image := range images {
		rows = append(rows, []string{image.Node, cmp.Or(image.Schematic, "-"), image.Installer, image.Boot})
	}

	i.columns(rows)

	return nil
}
