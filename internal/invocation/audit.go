package invocation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/audit"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/nearest"
	"github.com/talos-mage/talos-mage/internal/preflight"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/settings"
)

// Audit judges the cluster's files, without a node and without the network.
func (i Invocation) Audit(ctx context.Context, flags settings.Overrides) *Failure {
	loaded, err := settings.Load(i.Environ, flags, i.Workdir)
	if err != nil {
		return badInput(err)
	}

	skipped := make([]diagnosis.ID, 0, len(loaded.SkipChecks))
	for _, id := range loaded.SkipChecks {
		skipped = append(skipped, diagnosis.ID(id))
	}

	in := audit.Read(audit.Options{
		TalosDir: loaded.TalosDir, ConfigDir: loaded.ClusterConfigDir, Talosconfig: loaded.Talosconfig, Kubeconfig: loaded.Kubeconfig, Root: loaded.RootDir, Environ: i.Environ,
		CallsFrom: audit.CallsFrom,
		Checks:    preflight.Options{AllowAmbiguousDisk: loaded.AllowAmbiguousDisk, SkipChecks: skipped, Now: time.Now()},
	})

	result := audit.Run(ctx, in)

	if err := result.Write(i.Out, loaded.AuditFormat); err != nil {
		return badInput(diagnosis.Unwritable("the output", err))
	}

	if code := result.ExitCode(); code != diagnosis.ExitOK {
		return &Failure{Code: code, Message: report.Scrub("audit: the files can't work as they are. Next: correct what is listed, then mage audit")}
	}

	return nil
}

// Explain tells about one kind of trouble.
func (i Invocation) Explain(id string) *Failure {
	entry, known := diagnosis.Lookup(diagnosis.ID(strings.ToUpper(strings.TrimSpace(id))))
	if known {
		fmt.Fprint(i.Out, audit.Explain(entry))

		return nil
	}

	var ids []string
	for _, entry := range diagnosis.Catalogue() {
		ids = append(ids, string(entry.ID))
	}

	message := fmt.Sprintf("no finding has the id %q; docs/diagnoses.md lists them", id)
	if near := nearest.Word(strings.ToUpper(id), ids); near != "" {
		message += fmt.Sprintf(", did you mean %s?", near)
	}

	return &Failure{Code: diagnosis.ExitBadInput, Message: message}
}
