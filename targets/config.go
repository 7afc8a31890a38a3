package targets

import (
	"context"

	"github.com/magefile/mage/mg"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Config are the targets that make the cluster's files. None of them changes a node.
type Config mg.Namespace

// Secrets makes the cluster's secrets, encrypted by the rules of .sops.yaml, and never replaces any.
//
// -from takes them out of a control plane's machine config instead. New ones are refused while a machine config or a
// talosconfig exists, or a node answers that is configured already.
func (Config) Secrets(ctx context.Context, from *string, dryRun *bool) error {
	return execute(ctx, "config:secrets", overrides{"from": from, "dryRun": dryRun},
		func(s *settings.Settings) []steps.Step {
			return []steps.Step{steps.Secrets{Asked: true, From: s.SecretsFrom}}
		})
}

// Generate renders the machine configs and the talosconfig into clusterconfig/, and replaces those that changed.
//
// -dryRun shows what would change, with secrets masked, and exits 8 if anything would.
func (Config) Generate(ctx context.Context, dryRun *bool) error {
	return execute(ctx, "config:generate", overrides{"dryRun": dryRun},
		only(steps.Secrets{ByName: true}, steps.Configs{Replace: true}))
}

// Migrate rewrites talconfig.yaml or cluster.yaml, and their patches, to the documents of Talos 1.14; the nodes'
// configs stay equal.
//
// Both forms are rendered and compared in everything that Talos reads. If they differ, or a person has to decide
// something, nothing is changed and it is said what. What Talos 1.14 does otherwise by default is written out as it
// was; -newDefaults takes it. -dryRun shows the diff. Files are replaced only if git has them as they are, or with
// -dirty. No node is changed.
func (Config) Migrate(ctx context.Context, to *string, newDefaults, dryRun, dirty *bool) error {
	return execute(ctx, "config:migrate",
		overrides{"to": to, "newDefaults": newDefaults, "dryRun": dryRun, "dirty": dirty}, only(steps.Migrate{}))
}

// Rotate renews the talosconfig's client certificate from the cluster's secrets, if it has expired or soon will.
//
// No node is asked. The context keeps its name, endpoints, nodes and roles; other contexts of the file stay as they
// are. It is refused if the secrets are another cluster's.
func (Config) Rotate(ctx context.Context, dryRun *bool) error {
	return execute(ctx, "config:rotate", overrides{"dryRun": dryRun}, only(steps.Rotate{}))
}

// Schema prints the JSON schema of talconfig.yaml, or of -of=cluster.yaml, for editors that complete and check as you
// type.
func (Config) Schema(of *string) error {
	return exit(invocation.FromProcess("config:schema").Schema(overrides{"of": of}.set()))
}

// Schematic shows each node's Image Factory schematic, its installer image, and the image to boot it with. No node and
// no factory is asked.
func (Config) Schematic(ctx context.Context) error {
	return exit(invocation.FromProcess("config:schematic").Images(ctx, overrides{}.set()))
}
