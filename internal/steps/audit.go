package steps

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/talos"
)

const auditName = "audit"

// AuditOptions are the settings as an audit of the files takes them. Machine configs that are not written yet are
// judged as they would be, where this program makes them. No node and no network is asked.
func AuditOptions(ctx context.Context, loaded *settings.Settings, environ []string) check.Options {
	run := &Run{Subject: observe.Subject{Settings: loaded}, Environ: environ}
	run.files = run.newFiles(ctx)

	checks := check.Settings{AllowAmbiguousDisk: loaded.AllowAmbiguousDisk, SkipChecks: run.skipChecks()}

	if err := run.load(); err != nil {
		run.made.WhyNot = errors.New("the inventory has mistakes")
	} else {
		run.pretend(ctx, auditName)
	}

	options := run.auditOptions(checks)
	options.Source = run.inventoryOptions().Source

	return options
}

// auditOptions are the files that an audit and a preflight look at alike, and how they check them.
func (r *Run) auditOptions(checks check.Settings) check.Options {
	return check.Options{
		Cluster: r.Cluster, TalosDir: r.Settings.TalosDir, ConfigDir: r.Settings.ClusterConfigDir, Root: r.Settings.RootDir,
		Talosconfig: r.Settings.Talosconfig, Kubeconfig: r.Settings.Kubeconfig,
		Files: r.files, Made: r.made,
		Environ: r.Environ, Checks: checks,
	}
}

// errByTalhelper is why files that talhelper makes are not made in memory.
var errByTalhelper = errors.New("CONFIG_GENERATOR=talhelper: mage config:generate makes them")

// pretend has files that the configs step would write taken for written, so that they can be judged; nothing is
// written. Where they can't be made, r.made says why.
func (r *Run) pretend(ctx context.Context, step string) {
	if r.Settings.ConfigGenerator == noGenerator || r.complete() {
		return
	}

	// New secrets would belong to another cluster than the files that are there, so nothing would be made.
	if r.secretsPath() == "" && len(r.generatedFiles()) > 0 {
		return
	}

	if r.Settings.ConfigGenerator == talhelperGenerator {
		r.made.WhyNot = errByTalhelper

		return
	}

	rendered, standIn, err := r.rehearse(ctx, step)
	if err == nil {
		missing := slices.DeleteFunc(rendered, func(file renderedFile) bool {
			return !r.files.Open(r.pathOf(file)).Missing()
		})
		err = r.pretendFiles(missing, standIn)
	}

	switch problem, _ := diagnosis.AsProblem(err); {
	case err == nil:
	case len(inventory.FileErrors(err)) > 0:
		r.made.WhyNot = err
	case problem != nil:
		scrubbed := *problem
		scrubbed.Cause = report.Scrub(problem.Cause)
		r.made.WhyNot = &scrubbed
	default:
		r.made.WhyNot = errors.New(report.Scrub(err.Error()))
	}
}

// pretendFiles has these files taken for written. Made with throwaway secrets, they tell nothing about a node: there
// are no credentials, and no config that one of a node could be compared with.
func (r *Run) pretendFiles(files []renderedFile, standIn string) error {
	if len(files) == 0 {
		return nil
	}

	for _, file := range files {
		r.files.Pretend(r.pathOf(file), file.data)
	}

	r.made.StandIn = standIn

	return r.reload()
}

func (r *Run) pathOf(file renderedFile) string {
	return filepath.Join(r.Settings.ClusterConfigDir, file.name)
}

// unjudged reports whether what answers can't be told to be ours or to be as declared, since throwaway secrets stand
// in for the cluster's own.
func (r *Run) unjudged(seen observe.Observation) bool {
	config := r.Configs[seen.Node.Name]

	return seen.Wrong == nil && (seen.State == talos.UnknownCA && r.made.StandIn != "" ||
		seen.State == talos.Ours && config != nil && throwaway.Made(config.Bytes))
}

// notJudged is what is said of such a node.
const notJudged = "configured: whose it is and whether it has drifted is not judged with throwaway secrets"
