package steps_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"

	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/talos"
)

func fileExists(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}

// desk is a workshop without machines: only files count.
func desk(t *testing.T) *workshop {
	t.Helper()

	return newWorkshop(t, 1, 1, func(options *labcluster.Options) { options.Off = true })
}

func TestSecretsThatExistAreNeverReplaced(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		asked steps.Secrets
		has   string // the secrets step, if that is enough
	}{
		"made": {steps.Secrets{Asked: true}, "talos/talsecret.sops.yaml exists"},
		"recovered from them": {steps.Secrets{Asked: true, From: "lab-cp1.yaml"},
			"talos/talsecret.sops.yaml holds those of "},
		"recovered from another cluster": {steps.Secrets{Asked: true, From: "other.yaml"}, ""},
		"recovered from nothing":         {steps.Secrets{Asked: true, From: "none.yaml"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := desk(t)
			w.seal(t)

			before, err := os.ReadFile(w.secrets())
			require.NoError(t, err)

			if test.asked.From != "" {
				test.asked.From = filepath.Join(w.rendered, test.asked.From)
			}

			s := w.session(t, "-newSecrets=true")

			if test.has == "" {
				problem := s.fails(t, diagnosis.ExitBadInput, diagnosis.SecretsExist, test.asked)
				require.Contains(t, problem.Cause, "talos/talsecret.sops.yaml exists")
			} else {
				s.succeeds(t, test.asked)
				require.Equal(t, report.Skipped, s.status("secrets", ""))
				require.Contains(t, s.detail("secrets", ""), test.has)
			}

			after, err := os.ReadFile(w.secrets())
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	}
}

func TestWhoMakesSecretsIsToldWhatLosingThemMeans(t *testing.T) {
	t.Parallel()

	w := newWorkshop(t, 1, 0)
	w.untilMaintenance(t)

	s := w.session(t)
	s.NewSecrets = clustersecrets.New
	s.succeeds(t, steps.Secrets{Asked: true})
	require.Equal(t, report.Applied, s.status("secrets", ""))
	require.Contains(t, s.out.String(), "without it no node can ever be added to the cluster")
	require.NoError(t, w.unseal(t).Validate(talosconfig.TalosVersion1_13))
}

// Files are often made before there is any machine: only one that answers as configured speaks against new secrets.
func TestSecretsAskedForByNameAreMadeBeforeAnyMachineExists(t *testing.T) {
	t.Parallel()

	for name, step := range map[string]steps.Secrets{"secrets": {Asked: true}, "with configs": {ByName: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := desk(t)
			s := w.session(t).succeeds(t, step, steps.Configs{Replace: true})
			require.Equal(t, report.Applied, s.status("secrets", ""))
			require.FileExists(t, w.secrets())
			require.FileExists(t, w.ConfigFile("worker1"))
		})

		t.Run(name+", and a node is configured", func(t *testing.T) {
			t.Parallel()

			w := newWorkshop(t, 1, 1)
			w.untilMaintenance(t)
			w.Node("worker1").PowerOff()
			w.configure(t)
			require.Eventually(t, func() bool {
				return (&talos.Dialer{Timeout: time.Minute}).Probe(t.Context(), w.Node("cp1").Endpoint()).Configured()
			}, patience, time.Millisecond)

			problem := w.session(t).fails(t, diagnosis.ExitPreflight, diagnosis.SecretsMissing, step)
			require.Equal(t, "cp1", problem.Node)
			require.NoFileExists(t, w.secrets())
		})
	}
}

func TestAnInterruptedRunDoesNotWaitForKeysThatAreBeingMade(t *testing.T) {
	t.Parallel()

	w := newWorkshop(t, 1, 0)
	w.untilMaintenance(t)

	ctx, interrupt := context.WithCancel(t.Context())
	s := w.session(t)
	s.NewSecrets = func(string) (*secrets.Bundle, error) {
		interrupt()
		<-t.Context().Done() // at the end of the test

		return nil, t.Context().Err()
	}

	require.Equal(t, diagnosis.ExitInterrupt, steps.CodeOf(steps.Execute(ctx, s.Run, steps.Secrets{Asked: true})), s.out)
	require.NoFileExists(t, w.secrets())
}

func TestNewSecretsAreNotMadeBesideOldOnes(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		prepare func(*testing.T, *workshop)
		id      diagnosis.ID
		cause   string
	}{
		"of another name": {func(t *testing.T, w *workshop) {
			t.Helper()
			require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "talsecrets.sops.yaml"), []byte("sops: {}\n"), 0o600))
		}, diagnosis.SecretsFileMisnamed, "talsecrets.sops.yaml"},
		"that a config was made from": {func(t *testing.T, w *workshop) {
			t.Helper()
			w.copyRendered(t, "lab-cp1.yaml")
		}, diagnosis.SecretsMissing, "lab-cp1.yaml"},
		"that a talosconfig was made from": {func(t *testing.T, w *workshop) {
			t.Helper()
			w.copyRendered(t, "talosconfig")
		}, diagnosis.SecretsMissing, "talosconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := desk(t)
			tt.prepare(t, w)

			problem := w.session(t, "-newSecrets=true").fails(t, diagnosis.ExitBadInput, tt.id, steps.Secrets{Asked: true})
			require.Contains(t, problem.Cause, tt.cause)
			require.NoFileExists(t, w.secrets())
		})
	}
}

func TestWithoutRulesSecretsStayPlainAndOutOfGit(t *testing.T) {
	t.Parallel()

	w := newWorkshop(t, 1, 0)
	w.untilMaintenance(t)
	require.NoError(t, os.Remove(filepath.Join(w.folder, ".sops.yaml")))
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, ".gitignore"), []byte("/clusterconfig"), 0o644)) //nolint:gosec // everybody may read it

	s := w.session(t).succeeds(t, steps.Secrets{Asked: true})
	require.Contains(t, s.out.String(), string(diagnosis.SecretsPlain))
	require.NoFileExists(t, w.secrets())

	path := filepath.Join(w.Dir, "talsecret.yaml")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = clustersecrets.Decode(path, data, talconfig.Variables{}, time.Now())
	require.NoError(t, err)

	ignored, err := os.ReadFile(filepath.Join(w.Dir, ".gitignore"))
	require.NoError(t, err)
	require.Equal(t, "/clusterconfig\ntalsecret.yaml\n", string(ignored))
}

func TestSecretsAreRecoveredFromAConfigOfTheCluster(t *testing.T) {
	t.Parallel()

	w := desk(t)
	w.copyRendered(t, "lab-cp1.yaml", "lab-worker1.yaml", "talosconfig")

	from := filepath.Join(w.rendered, "lab-cp1.yaml")
	w.session(t, "DRY_RUN=true").fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange,
		steps.Secrets{Asked: true, From: from})
	require.NoFileExists(t, w.secrets())

	w.session(t).succeeds(t, steps.Secrets{Asked: true, From: from})

	want, got := w.Generated.Options.Secrets, w.unseal(t)
	require.Equal(t, want.Cluster.ID, got.Cluster.ID)
	require.True(t, bytes.Equal(want.Certs.OS.Key, got.Certs.OS.Key))
	require.True(t, bytes.Equal(want.Certs.Etcd.Key, got.Certs.Etcd.Key))
}

func TestWhatIsNoConfigOfTheClusterIsNotRecoveredFrom(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		from func(*testing.T, *workshop) string
		id   diagnosis.ID
	}{
		"a missing file": {func(*testing.T, *workshop) string { return "missing.yaml" }, diagnosis.BadInput},
		"a worker's": {func(_ *testing.T, w *workshop) string { return filepath.Join(w.rendered, "lab-worker1.yaml") },
			diagnosis.SecretsMissing},
		"another cluster's": {func(t *testing.T, _ *workshop) string {
			t.Helper()

			foreign, err := clusterfiles.ForeignSecrets()
			require.NoError(t, err)

			return filepath.Join(newWorkshop(t, 1, 0,
				func(options *labcluster.Options) { options.Off, options.Secrets = true, foreign }).rendered, "lab-cp1.yaml")
		}, diagnosis.ConfigCA},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := desk(t)
			w.copyRendered(t, "lab-cp1.yaml", "talosconfig")
			w.session(t).fails(t, diagnosis.ExitBadInput, tt.id, steps.Secrets{Asked: true, From: tt.from(t, w)})
			require.NoFileExists(t, w.secrets())
		})
	}
}

func TestNewSecretsAreNotMadeBesideAMisspeltFileOfAProfile(t *testing.T) {
	t.Parallel()

	w := desk(t)
	w.declare(t, "regenerate_secrets: true")
	require.NoError(t, os.MkdirAll(w.ConfigDir(), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(w.ConfigDir(), "secrets.yml"), []byte("sops: {}\n"), 0o600))

	problem := w.session(t, "CLUSTER_SOURCE=profile", "-newSecrets=true").
		fails(t, diagnosis.ExitBadInput, diagnosis.SecretsFileMisnamed, steps.Secrets{})
	require.Contains(t, problem.Cause, "secrets.yml")
	require.Contains(t, problem.Next, "rename it to secrets.yaml")
	require.NoFileExists(t, filepath.Join(w.ConfigDir(), "secrets.yaml"))
}

func TestOfTwoSecretsFilesItIsSaidWhichIsRead(t *testing.T) {
	t.Parallel()

	w := withoutTalhelper(t, desk(t))
	w.seal(t)

	plain, err := clustersecrets.Encode(w.Generated.Options.Secrets)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "talsecret.yaml"), plain, 0o600))

	s := w.session(t).succeeds(t, steps.Secrets{}, steps.Configs{Replace: true})
	require.Contains(t, s.out.String(),
		"talos/talsecret.yaml and talos/talsecret.sops.yaml are both there: talos/talsecret.yaml is read")
}
