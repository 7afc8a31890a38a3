package steps

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
)

const auditName = "audit"

// AuditOptions are the settings as an audit of the files takes them. Machine configs that are not written yet are
// judged as they would be, where this program makes them and can read the cluster's secrets. No node and no network is
// asked.
func AuditOptions(ctx context.Context, loaded *settings.Settings, environ []string) check.Options {
	run := &Run{Subject: observe.Subject{Settings: loaded}, Environ: environ}
	run.files = run.newFiles(ctx)

	options := run.auditOptions(check.Settings{AllowAmbiguousDisk: loaded.AllowAmbiguousDisk,
		SkipChecks: run.skipChecks()})
	options.Source = run.inventoryOptions().Source

	if loaded.ConfigGenerator != noGenerator {
		options.Generate = func() (map[string][]byte, error) { return run.inMemory(ctx) }
	}

	return options
}

// auditOptions are the files that an audit and a preflight look at alike, and how they check them.
func (r *Run) auditOptions(checks check.Settings) check.Options {
	return check.Options{
		TalosDir: r.Settings.TalosDir, ConfigDir: r.Settings.ClusterConfigDir, Root: r.Settings.RootDir,
		Talosconfig: r.Settings.Talosconfig, Kubeconfig: r.Settings.Kubeconfig,
		Files:   r.files,
		Environ: r.Environ, CallsFrom: check.CallsFrom, Checks: checks,
	}
}

// inMemory makes what the configs step would write, by the names of the files, and writes nothing. An error is one line
// that says why that can't be, or holds the mistakes in the user's files.
func (r *Run) inMemory(ctx context.Context) (map[string][]byte, error) {
	if r.Settings.ConfigGenerator == talhelperGenerator {
		return nil, errors.New("CONFIG_GENERATOR=talhelper: mage config:generate makes it")
	}

	var err error
	if r.Cluster, err = inventory.Load(r.inventoryOptions()); err != nil {
		return nil, errors.New("the inventory has mistakes")
	}

	path := r.secretsPath()
	if path == "" {
		return nil, fmt.Errorf("there is no %s to make it from (mage config:secrets)",
			filepath.Base(r.Cluster.NewSecretsPath(r.sops().Rules() != "")))
	}

	files, err := r.renderNatively(ctx, auditName, path)

	switch problem, _ := diagnosis.AsProblem(err); {
	case err == nil:
	case len(inventory.FileErrors(err)) > 0:
		return nil, err
	case problem != nil:
		return nil, errors.New(report.Scrub(problem.Headline()))
	default:
		return nil, errors.New(report.Scrub(err.Error()))
	}

	made := make(map[string][]byte, len(files))
	for _, file := range files {
		made[file.name] = file.data
	}

	return made, nil
}
