package workspace

import (
	"context"
	"errors"
	"slices"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

// AuditOptions are the settings as an audit of the files takes them. Machine configs that are not written yet are
// judged as they would be, where this program makes them. No node and no network is asked.
func AuditOptions(ctx context.Context, settings *settings.Settings, environ []string) check.Options {
	w := New(ctx, settings, environ)
	if err := w.Load(); err != nil {
		w.Made.WhyNot = errors.New("the inventory has mistakes")
	} else {
		w.Pretend()
		w.Compare()
		w.tryMaking()
	}

	options := w.CheckOptions(check.Settings{AllowAmbiguousDisk: settings.AllowAmbiguousDisk,
		SkipChecks: w.SkipChecks()})
	options.Source = w.inventoryOptions().Source

	return options
}

// CheckOptions are the files that an audit and a preflight look at alike, and how they check them.
func (w *Workspace) CheckOptions(checks check.Settings) check.Options {
	return check.Options{
		Cluster: w.Cluster, TalosDir: w.Settings.TalosDir, ConfigDir: w.Settings.ClusterConfigDir, Root: w.Settings.RootDir,
		Talosconfig: w.Settings.Talosconfig, Kubeconfig: w.Settings.Kubeconfig,
		Files: w.Files, Made: w.Made,
		Environ: w.Environ, Checks: checks,
	}
}

// SkipChecks are the checks whose failures the user takes for warnings.
func (w *Workspace) SkipChecks() []diagnosis.ID {
	ids := make([]diagnosis.ID, 0, len(w.Settings.SkipChecks))
	for _, id := range w.Settings.SkipChecks {
		ids = append(ids, diagnosis.ID(id))
	}

	return ids
}

// Pretend has files that the configs step would write taken for written, so that they can be judged; nothing is
// written. Where they can't be made, Made says why.
func (w *Workspace) Pretend() {
	if w.Settings.ConfigGenerator == NoGenerator || w.Complete() {
		return
	}

	// New secrets would belong to another cluster than the files that are there, so nothing would be made.
	if w.Cluster.SecretsPath() == "" && len(w.Written()) > 0 {
		return
	}

	rendered, standIn, err := w.Rehearse()
	if err == nil {
		missing := slices.DeleteFunc(rendered, func(file File) bool { return !w.Files.Open(w.PathOf(file)).Missing() })
		err = w.PretendFiles(missing, standIn)
	}

	w.Made.WhyNot = scrubbed(err)
}

// tryMaking has an audit tell what keeps machine configs from being made where those that are there are taken as they
// are: there are no secrets, or talhelper makes them.
func (w *Workspace) tryMaking() {
	if w.Settings.ConfigGenerator == NoGenerator || w.Made.WhyNot != nil || w.Made.Compared || w.Made.StandIn != "" {
		return
	}

	_, _, err := w.Rehearse()
	w.Made.WhyNot = scrubbed(err)
}

// scrubbed is an error of a rehearsal without secrets; mistakes in the files show none.
func scrubbed(err error) error {
	switch problem, _ := diagnosis.AsProblem(err); {
	case err == nil, len(inventory.FileErrors(err)) > 0:
		return err
	case problem != nil:
		scrubbed := *problem
		scrubbed.Cause = report.Scrub(problem.Cause)

		return &scrubbed
	default:
		return errors.New(report.Scrub(err.Error()))
	}
}

// PretendFiles has these files taken for written. Made with throwaway secrets, they tell nothing about a node: there
// are no credentials, and no config that one of a node could be compared with.
func (w *Workspace) PretendFiles(files []File, standIn string) error {
	if len(files) == 0 {
		return nil
	}

	for _, file := range files {
		w.Files.Pretend(w.PathOf(file), file.Data)
	}

	w.Made.StandIn = standIn
	return w.Reload()
}
