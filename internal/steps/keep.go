package steps

import (
	"errors"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/discover/leases"
	"github.com/talos-mage/talos-mage/internal/discover/match"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/gate"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
)

// keep writes down where the nodes' machines were found, for runs to come. What is kept of other nodes stays.
func (r *Run) keep(pairs []match.Pair) error {
	found := make([]leases.Entry, 0, len(pairs))
	for _, pair := range pairs {
		found = append(found, observe.LeaseOf(pair.Node, pair.Machine))
	}

	text, err := r.Leases.With(found...).Encode()
	if err != nil {
		return err //nolint:wrapcheck // it names what
	}

	path := leases.Path(r.Settings.TalosDir)

	err = r.gate.KeepOutOfGit(leases.Folder(r.Settings.TalosDir))
	if err == nil {
		err = r.gate.WriteFile(path, text, 0o600)
	}

	if err != nil && !errors.Is(err, gate.ErrShut) {
		return unwritable(path, err)
	}

	kept := report.Result{Step: discoverName, Status: report.Applied, Detail: fmt.Sprintf("kept %d in %s", len(found),
		r.Cluster.Files.Shown(path))}
	if r.Settings.DryRun {
		kept.Status, kept.Detail = report.Planned, r.Cluster.Files.Shown(path)+" would be written"
	}

	r.Report.Result(kept)

	return nil
}
