//go:build !race

// Below the race detector keys of 4096 bits take their time, and the steps are tested by their own package.

package recipe_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/tool"
	"github.com/talos-mage/talos-mage/recipe"
)

// A program takes a cluster from its declaration to newer releases, and each of its calls can be made again.
func TestAProgramDoesAllThatAClustersLifeNeeds(t *testing.T) {
	t.Parallel()

	l, err := newLab(labcluster.Options{TalosVersion: "v1.13.9", CNI: "flannel",
		LabOptions: emulator.LabOptions{TimeScale: labcluster.DemoScale}})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	require.NoError(t, os.RemoveAll(l.ConfigDir()))
	l.furnish(t)

	all := func(options *recipe.Options) { options.Cluster, options.LoseDataOf = "lab", []string{"lab"} }

	for _, call := range []struct {
		recipe recipe.Recipe
		// declares are texts of the files, and what is declared in their place before the call.
		declares []string
		options  func(*recipe.Options)
		// first and again are the outcomes that tell: of the call, and of the same call once more.
		first, again string
	}{
		{recipe: alone(recipe.GenerateSecrets()), first: "secrets applied", again: "secrets skipped"},
		{recipe: alone(recipe.GenerateConfigs()), first: "configs applied", again: "configs skipped"},
		{recipe: alone(recipe.RotateTalosconfig()), first: "config:rotate skipped", again: "config:rotate skipped"},
		{recipe: recipe.Talos(), first: "verifyWorkers worker1 ok", again: "applySequential worker1 skipped"},
		{recipe: alone(recipe.InstallApps()), first: "apps applied", again: "apps applied"},
		{recipe: alone(recipe.Upgrade()), declares: []string{"v1.13.9", "v1.14.1"}, options: all,
			first: "upgrade worker1 applied", again: "upgrade worker1 ok"},
		{recipe: alone(recipe.UpgradeKubernetes()), declares: []string{"v1.36.3", "v1.37.0"},
			first: "upgradeK8s worker1 applied", again: "upgradeK8s worker1 skipped"},
	} {
		l.declare(t, call.declares...)

		options := l.options()
		options.Environ = append(options.Environ, "PATH="+filepath.Join(l.folder, "bin")+":"+os.Getenv("PATH"))

		if call.options != nil {
			call.options(&options)
		}

		for _, want := range []string{call.first, call.again} {
			result, err := call.recipe.Run(t.Context(), options)
			require.NoError(t, err, call.recipe.Name)
			require.Equal(t, recipe.ExitOK, result.ExitCode)
			require.Contains(t, outcomes(result), want)
		}
	}

	require.Equal(t, "v1.14.1", l.Node("worker1").TalosVersion())
}

func alone(step recipe.Step) recipe.Recipe {
	return recipe.Recipe{Name: step.Name(), Steps: []recipe.Step{step}}
}

// outcomes are a result's, each as its step, its node and its status.
func outcomes(result recipe.Result) []string {
	told := make([]string, 0, len(result.Outcomes))
	for _, one := range result.Outcomes {
		told = append(told, strings.Join(strings.Fields(one.Step+" "+one.Node+" "+string(one.Status)), " "))
	}

	return slices.Compact(told)
}

// furnish adds applications to the lab's repository, and the programs that steps call: talosctl itself, and stand-ins
// that say yes.
func (l *lab) furnish(t *testing.T) {
	t.Helper()

	for _, path := range []string{"kubernetes/apps/network/kustomization.yaml", "bootstrap/helmfile.d/00-crds.yaml",
		"bootstrap/helmfile.d/01-apps.yaml"} {
		path = filepath.Join(l.folder, filepath.FromSlash(path))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}

	bin := filepath.Join(l.folder, "bin")
	require.NoError(t, os.Mkdir(bin, 0o700))
	require.NoError(t, os.Symlink(tool.Find(t, "talosctl"), filepath.Join(bin, "talosctl")))

	for _, name := range []string{"kubectl", "helmfile", "helm"} {
		require.NoError(t, tool.WriteProgram(filepath.Join(bin, name), []byte("#!/bin/sh\ncat >/dev/null\n")))
	}
}

// declare replaces texts of the file with the cluster's versions.
func (l *lab) declare(t *testing.T, texts ...string) {
	t.Helper()

	path := filepath.Join(l.Dir, "talenv.yaml")
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.NewReplacer(texts...).Replace(string(before))), 0o600))
}
