package steps_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"

	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

const madeUp = "checks need the cluster's own secrets; throwaway ones were made up to judge the rest: " +
	"talos/talsecret.sops.yaml can't be decrypted"

// withoutKey makes the workshop a fresh clone of a public repository: the secrets are encrypted for a key that is not
// here, and git has no clusterconfig/.
func withoutKey(t *testing.T, w *workshop) *workshop {
	t.Helper()

	w.seal(t)
	w.program(t, "sops", "exit 128")
	require.NoError(t, os.RemoveAll(w.ConfigDir()))

	return withoutTalhelper(t, w)
}

// tree is every file below the workshop's folder with its content, but for the record of its programs.
func (w *workshop) tree(t *testing.T) map[string]string {
	t.Helper()

	tree := map[string]string{}

	require.NoError(t, filepath.WalkDir(w.folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == w.log {
			return err
		}

		tree[path] = readFile(t, path)

		return nil
	}))

	return tree
}

func TestAFreshCloneIsJudgedAndNothingIsWrittenOrSent(t *testing.T) {
	t.Parallel()

	w := newWorkshop(t, 1, 1)
	w.untilMaintenance(t)
	withoutKey(t, w)

	before := w.tree(t)

	judged := w.session(t).succeeds(t, steps.Preflight{})
	require.Equal(t, 1, strings.Count(judged.out.String(), madeUp), "it is said in one line")
	require.Equal(t, report.OK, judged.status("preflight", "cp1"), "the machine is held against its config")
	require.NotContains(t, judged.out.String(), "failure  "+string(diagnosis.ConfigMissing))

	dry := w.session(t, "DRY_RUN=true")
	dry.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, dry.recipe()...)
	require.Contains(t, dry.out.String(), "judged with throwaway secrets, made up since talos/talsecret.sops.yaml can't")
	require.Equal(t, report.OK, dry.status("preflight", "worker1"))
	require.Equal(t, report.Planned, dry.status("applySequential", "cp1"))

	require.Equal(t, before, w.tree(t), "no file is made, not even a lock")

	// Were the run to go on as a wet one, it could still not send or write what it has in memory.
	dry.Settings.DryRun = false
	require.Error(t, dry.do(t, steps.Apply{}).err)
	require.Error(t, dry.do(t, steps.Configs{Replace: true}).err)

	// A recipe wants the cluster's own secrets.
	w.session(t).fails(t, diagnosis.ExitBadInput, diagnosis.SecretsUndecryptable, w.session(t).recipe()...)

	after := w.tree(t)
	maps.DeleteFunc(after, func(path, _ string) bool { return filepath.Ext(path) == ".lock" })
	require.Equal(t, before, after)

	for _, node := range w.Nodes {
		require.Empty(t, changesOf(node), node.Name())
	}
}

func TestWithoutAnySecretsADryRunShowsTheWholeRecipe(t *testing.T) {
	t.Parallel()

	w := withoutTalhelper(t, newWorkshop(t, 1, 1))
	w.untilMaintenance(t)

	before := w.tree(t)
	dry := w.session(t, "DRY_RUN=true")
	dry.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, dry.recipe()...)

	for _, step := range []string{"secrets", "configs", "kubeconfig"} {
		require.Equal(t, report.Planned, dry.status(step, ""), step)
	}

	require.Equal(t, report.Planned, dry.status("bootstrap", "cp1"))
	require.Contains(t, dry.out.String(), "made up since there is no talos/talsecret.sops.yaml")
	require.Equal(t, before, w.tree(t))
}

// With other keys than the cluster's nobody can tell whose a node is, or whether it has drifted.
func TestAConfiguredNodeIsNotJudgedWithThrowawaySecrets(t *testing.T) {
	t.Parallel()

	w := newWorkshop(t, 1, 0)
	w.copyRendered(t, "lab-cp1.yaml", "talosconfig")
	w.up(t)
	withoutKey(t, w)

	sent := len(changesOf(w.Node("cp1")))

	judged := w.session(t).succeeds(t, steps.Preflight{})
	require.Equal(t, report.Skipped, judged.status("preflight", "cp1"))
	require.Contains(t, judged.out.String(), "throwaway secrets can't tell whose it is, or whether it has drifted")

	dry := w.session(t, "DRY_RUN=true")
	dry.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, dry.recipe()...)
	require.Equal(t, report.Skipped, dry.status("applySequential", "cp1"))

	for _, id := range []diagnosis.ID{diagnosis.ConfigDrifted, diagnosis.ForeignNode, diagnosis.UnknownNodeCA} {
		require.NotContains(t, judged.out.String()+dry.out.String(), id)
	}

	require.Len(t, changesOf(w.Node("cp1")), sent)
}

// Also files that somebody made with such secrets are sent to nobody, and none are made from a file of them.
func TestWhatHasTheMarkIsNeitherWrittenNorSent(t *testing.T) {
	t.Parallel()

	w := withoutTalhelper(t, newWorkshop(t, 1, 1))
	w.untilMaintenance(t)

	unwanted := w.session(t)
	unwanted.NewSecrets = func(string) (*secrets.Bundle, error) { return throwaway.Secrets() }
	unwanted.do(t, steps.Secrets{Asked: true})
	require.ErrorIs(t, unwanted.err, throwaway.ErrMarked)
	require.NoFileExists(t, w.secrets())

	bundle, err := throwaway.Secrets()
	require.NoError(t, err)

	plain, err := clustersecrets.Encode(bundle)
	require.NoError(t, err)

	path := filepath.Join(w.Dir, "talsecret.yaml")
	require.NoError(t, os.WriteFile(path, plain, 0o600))

	written := w.session(t).do(t, steps.Configs{Replace: true})
	require.ErrorIs(t, written.err, throwaway.ErrMarked)
	require.NoDirExists(t, w.ConfigDir())
	require.NoError(t, os.Remove(path))

	made, err := generate.Configs(generate.Source{Cluster: w.session(t).Cluster, Secrets: bundle,
		Now: time.Now()})
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(w.ConfigDir(), 0o700))
	require.NoError(t, os.WriteFile(w.Talosconfig(), made.Talosconfig, 0o600))

	for _, config := range made.Configs {
		require.NoError(t, os.WriteFile(filepath.Join(w.ConfigDir(), config.File), config.Bytes, 0o600))
	}

	require.Error(t, w.session(t).do(t, steps.Apply{}).err)

	for _, node := range w.Nodes {
		require.Empty(t, changesOf(node), node.Name())
	}
}
