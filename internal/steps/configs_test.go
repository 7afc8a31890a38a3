package steps_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"

	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// workshop is a lab whose configs are still to be rendered, by stand-ins for the user's programs.
type workshop struct {
	*lab
	rendered string // what talhelper renders
	log      string // how the programs were called
}

func newWorkshop(t *testing.T, controlPlanes, workers int, change ...func(*labcluster.Options)) *workshop {
	t.Helper()

	l := newLab(t, controlPlanes, workers, change...)
	w := &workshop{lab: l, rendered: filepath.Join(l.folder, "rendered"), log: filepath.Join(l.folder, "calls.log")}

	require.NoError(t, os.Rename(l.ConfigDir(), w.rendered))
	require.NoError(t, os.Mkdir(filepath.Join(l.folder, "bin"), 0o755))
	w.program(t, "talhelper", `
while [ "$1" != --out-dir ]; do shift; done
cp `+w.rendered+`/* "$2"`)
	w.program(t, "sops", standInSops)
	require.NoError(t, os.WriteFile(filepath.Join(l.folder, ".sops.yaml"), []byte("creation_rules: []\n"), 0o600))

	return w
}

// standInSops hides a text from whoever does not look closely.
const standInSops = `
case $1 in
encrypt) echo "sealed: $(base64 -w 0)"; echo "sops: {age: [{recipient: age1example}]}" ;;
decrypt) sed -n 's/^sealed: //p' | base64 -d ;;
esac`

// byTalhelper is the setting with which the stand-in for talhelper renders.
const byTalhelper = "CONFIG_GENERATOR=talhelper"

// program puts a shell script on the run's PATH.
func (w *workshop) program(t *testing.T, name, script string) {
	t.Helper()

	text := fmt.Sprintf("#!/bin/sh\nPATH=/usr/bin:/bin\necho %s \"$*\" >> %s\n%s\n", name, w.log, script)
	require.NoError(t, tool.WriteProgram(filepath.Join(w.folder, "bin", name), []byte(text)))
}

// called tells how the programs were called so far.
func (w *workshop) called(t *testing.T) string {
	t.Helper()

	data, err := os.ReadFile(w.log)
	if os.IsNotExist(err) {
		return ""
	}

	require.NoError(t, err)

	return string(data)
}

func (w *workshop) secrets() string { return filepath.Join(w.Dir, "talsecret.sops.yaml") }

// seal makes the secrets file, so that only configs are left to be made.
func (w *workshop) seal(t *testing.T) {
	t.Helper()

	plain, err := clustersecrets.Encode(w.Generated.Options.Secrets)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.secrets(),
		[]byte("sealed: "+base64.StdEncoding.EncodeToString(plain)+"\nsops: {age: [{recipient: age1example}]}\n"), 0o600))
}

// unseal reads the secrets file.
func (w *workshop) unseal(t *testing.T) *secrets.Bundle {
	t.Helper()

	data, err := os.ReadFile(w.secrets())
	require.NoError(t, err)

	sealed, _, _ := strings.Cut(strings.TrimPrefix(string(data), "sealed: "), "\n")
	plain, err := base64.StdEncoding.DecodeString(sealed)
	require.NoError(t, err)

	bundle, err := clustersecrets.Decode("secrets", plain, talconfig.Variables{}, time.Now())
	require.NoError(t, err)

	return bundle
}

func TestARecipeMakesSecretsAndConfigsFromNothing(t *testing.T) {
	t.Parallel()

	w := newWorkshop(t, 1, 1)
	w.untilMaintenance(t)

	s := w.session(t, byTalhelper)
	s.succeeds(t, s.recipe()...)

	made := w.unseal(t)

	require.NoError(t, filepath.WalkDir(w.folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasPrefix(path, filepath.Join(w.folder, "bin")) {
			return err
		}

		data, err := os.ReadFile(path)
		require.NotContains(t, string(data), made.Cluster.Secret, "%s holds the secrets in the clear", path)
		require.NotContains(t, path, "talos-mage-configs-", "rendered configs are left behind")

		return err
	}))

	for _, path := range []string{w.secrets(), w.ConfigFile("cp1"), w.ConfigFile("worker1"), w.Talosconfig()} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), path)
	}

	ignored, err := os.ReadFile(filepath.Join(w.ConfigDir(), ".gitignore"))
	require.NoError(t, err)
	require.Equal(t, "lab-cp1.yaml\nlab-worker1.yaml\ntalosconfig\n", string(ignored))

	again := w.session(t, byTalhelper)
	again.succeeds(t, again.recipe()...)
	require.Equal(t, made.Cluster, w.unseal(t).Cluster)
}

// What talhelper makes for Talos 1.14 names the key of encrypted Secrets otherwise than nodes do.
func TestTalhelperMakesNoConfigsForTalos114(t *testing.T) {
	t.Parallel()

	w := newWorkshop(t, 1, 0, on114)
	w.untilMaintenance(t)

	s := w.session(t, byTalhelper)
	problem := s.fails(t, diagnosis.ExitBadInput, diagnosis.BadSetting, s.recipe()...)
	require.Contains(t, problem.Cause, "can't read its Secrets")
	require.NotContains(t, w.called(t), "talhelper")
}

func TestADryRunMakesNeitherSecretsNorConfigs(t *testing.T) {
	t.Parallel()

	for name, sealed := range map[string]bool{"without secrets": false, "with secrets": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorkshop(t, 1, 0)
			w.untilMaintenance(t)

			if sealed {
				w.seal(t)
			}

			s := w.session(t, "DRY_RUN=true", byTalhelper)
			s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, s.recipe()...)
			require.NoDirExists(t, w.ConfigDir())
			require.NotContains(t, w.called(t), "encrypt")
		})
	}
}

func TestSecretsAreMadeOnlyForAClusterThatCanNotExistYet(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		prepare  func(*workshop, *testing.T)
		settings []string
		made     bool
		code     diagnosis.ExitCode
	}{
		"all in maintenance": {func(*workshop, *testing.T) {}, nil, true, 0},
		"one is silent": {func(w *workshop, _ *testing.T) { w.Node("worker1").PowerOff() }, nil, false,
			diagnosis.ExitPreflight},
		"one is silent, but new": {func(w *workshop, _ *testing.T) { w.Node("worker1").PowerOff() },
			[]string{"-newSecrets=true"}, true, 0},
		"one is configured":           {(*workshop).configure, nil, false, diagnosis.ExitPreflight},
		"one is configured, but new":  {(*workshop).configure, []string{"-newSecrets=true"}, false, diagnosis.ExitPreflight},
		"a machine config is there":   {(*workshop).keepConfig, nil, false, 0},
		"there are some under a name": {(*workshop).keepOtherSecrets, nil, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorkshop(t, 1, 1)
			w.untilMaintenance(t)
			tt.prepare(w, t)

			s := w.session(t, tt.settings...)
			if tt.code == 0 {
				s.succeeds(t, steps.Secrets{})
			} else {
				problem := s.fails(t, tt.code, diagnosis.SecretsMissing, steps.Secrets{})
				require.NotEmpty(t, problem.Node)
			}

			require.Equal(t, tt.made, strings.Contains(w.called(t), "encrypt"))

			if tt.made {
				require.FileExists(t, w.secrets())
			} else {
				require.NoFileExists(t, w.secrets())
			}
		})
	}
}

func TestARunCleansUpAfterOneThatWasKilled(t *testing.T) {
	t.Parallel()

	w := newWorkshop(t, 1, 0)
	w.untilMaintenance(t)
	w.seal(t)

	s := w.session(t, byTalhelper)
	sum := sha256.Sum256([]byte(w.Talosconfig()))
	rendered := filepath.Join(w.folder, "talos-mage-configs-"+hex.EncodeToString(sum[:8])) // its TMPDIR
	left := []string{filepath.Join(w.Dir, ".talsecret.sops.yaml.talos-mage-tmp"),
		filepath.Join(w.ConfigDir(), ".lab-cp1.yaml.talos-mage-tmp")}

	require.NoError(t, os.MkdirAll(rendered, 0o700))
	require.NoError(t, os.MkdirAll(w.ConfigDir(), 0o700))

	for _, path := range append(left, filepath.Join(rendered, "lab-cp1.yaml")) {
		require.NoError(t, os.WriteFile(path, []byte("part of a secret"), 0o600))
	}

	s.succeeds(t, steps.Configs{})
	require.NoDirExists(t, rendered)

	for _, path := range left {
		require.NoFileExists(t, path)
	}
}

// Git must know of files with secrets before they are there: a run can end in between.
func TestFilesWithSecretsAreIgnoredBeforeTheyAreWritten(t *testing.T) {
	t.Parallel()

	w := newWorkshop(t, 1, 0)
	w.untilMaintenance(t)
	w.seal(t)

	// A list that can't be replaced ends the step where a kill could.
	require.NoError(t, os.MkdirAll(filepath.Join(w.ConfigDir(), ".gitignore"), 0o700))

	require.Error(t, w.session(t, byTalhelper).do(t, steps.Configs{}).err)
	require.NoFileExists(t, w.ConfigFile("cp1"))
	require.NoFileExists(t, w.Talosconfig())
}

// configure gives a machine its config by other means.
func (w *workshop) configure(t *testing.T) {
	t.Helper()

	data, err := os.ReadFile(filepath.Join(w.rendered, "lab-cp1.yaml"))
	require.NoError(t, err)
	w.applyInsecurely(t, "cp1", data)
	wait(t, w.Node("cp1"), func(node *emulator.Node) bool { return node.Boots() > 1 && node.Stage() == "booting" })
}

func (w *workshop) keepConfig(t *testing.T) {
	t.Helper()

	w.copyRendered(t, "lab-cp1.yaml")
}

func (w *workshop) keepOtherSecrets(t *testing.T) {
	t.Helper()

	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "talsecret.yaml"), []byte("secret: x\n"), 0o600))
}

func (w *workshop) copyRendered(t *testing.T, names ...string) {
	t.Helper()

	require.NoError(t, os.MkdirAll(w.ConfigDir(), 0o700))

	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(w.rendered, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(w.ConfigDir(), name), data, 0o600))
	}
}

func TestRenderedConfigsReplaceExistingOnesOnlyWhenThatIsSafeOrAskedFor(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		silent   bool
		step     steps.Configs
		replaced bool
	}{
		"all in maintenance":        {false, steps.Configs{}, true},
		"one silent":                {true, steps.Configs{}, false},
		"one silent, but asked for": {true, steps.Configs{Replace: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorkshop(t, 1, 1)
			w.untilMaintenance(t)
			w.seal(t)
			w.copyRendered(t, "lab-cp1.yaml", "talosconfig")
			w.tuned(t, "cp1")

			before, err := os.ReadFile(w.Talosconfig())
			require.NoError(t, err)

			if tt.silent {
				w.Node("worker1").PowerOff()
			}

			s := w.session(t, byTalhelper).succeeds(t, tt.step)

			data, err := w.Config("cp1")
			require.NoError(t, err)
			require.Equal(t, tt.replaced, !strings.Contains(string(data), tunedSetting))
			require.FileExists(t, w.ConfigFile("worker1"), "a file of a node that has none is always added")

			if !tt.replaced {
				require.Contains(t, s.out.String(), string(diagnosis.RenderedDiffers))
				require.Contains(t, s.out.String(), "lab-cp1.yaml")
			}

			after, err := os.ReadFile(w.Talosconfig())
			require.NoError(t, err)
			require.Equal(t, before, after, "a talosconfig of the same CA stays")
		})
	}
}

func TestConfigsThatMeanTheSameAreLeftAlone(t *testing.T) {
	t.Parallel()

	w := newWorkshop(t, 1, 0)
	w.untilMaintenance(t)
	w.seal(t)
	w.copyRendered(t, "lab-cp1.yaml", "talosconfig")
	w.changeFile(t, "cp1", "version: v1alpha1\n", "# a comment\nversion: v1alpha1\n")

	s := w.session(t, byTalhelper).succeeds(t, steps.Configs{})
	require.Equal(t, report.Skipped, s.status("configs", ""))

	data, err := w.Config("cp1")
	require.NoError(t, err)
	require.Contains(t, string(data), "# a comment")
}

func TestAMissingProgramIsNamed(t *testing.T) {
	t.Parallel()

	for _, program := range []string{"talhelper", "sops"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()

			w := newWorkshop(t, 1, 0)
			w.untilMaintenance(t)
			require.NoError(t, os.Remove(filepath.Join(w.folder, "bin", program)))

			s := w.session(t, byTalhelper)
			problem := s.fails(t, diagnosis.ExitBadInput, diagnosis.ProgramMissing, s.recipe()...)
			require.Contains(t, problem.Cause, program)
			require.Equal(t, program == "talhelper", fileExists(w.secrets()),
				"secrets are made without talhelper, and not without sops")
		})
	}

	t.Run("and not missed when all files are there", func(t *testing.T) {
		t.Parallel()

		w := newWorkshop(t, 1, 0)
		w.untilMaintenance(t)
		w.seal(t)
		w.copyRendered(t, "lab-cp1.yaml", "talosconfig")
		require.NoError(t, os.Remove(filepath.Join(w.folder, "bin", "talhelper")))

		s := w.session(t, byTalhelper)
		s.succeeds(t, s.recipe()...)
	})
}

func TestAFailingProgramIsQuotedWithoutSecrets(t *testing.T) {
	t.Parallel()

	const token = "abc123.0123456789abcdef" // of the form of a bootstrap token

	for program, id := range map[string]diagnosis.ID{"talhelper": diagnosis.ProgramFailed,
		"sops": diagnosis.SecretsNotEncryptable} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()

			w := newWorkshop(t, 1, 0)
			w.untilMaintenance(t)
			w.program(t, program, "echo 'no way with token: "+token+"' >&2; exit 3")

			s := w.session(t, byTalhelper)
			problem := s.fails(t, diagnosis.ExitBadInput, id, s.recipe()...)
			require.Contains(t, problem.Cause, "no way with token")
			require.NotContains(t, s.err.Error()+s.out.String(), token)
			require.NoFileExists(t, w.Talosconfig())
			require.Zero(t, applied(w.Node("cp1")))
		})
	}
}

// A dry run judges what talhelper would render without running it, and so waits for nobody who changes the cluster.
func TestADryRunNeedsNoTalhelper(t *testing.T) {
	t.Parallel()

	w := newWorkshop(t, 1, 0)
	w.untilMaintenance(t)
	w.seal(t)

	s := w.session(t, byTalhelper, "DRY_RUN=true")
	s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.Configs{})
	require.NotContains(t, w.called(t), "genconfig")

	for _, kind := range []string{"*.lock", "talos-mage-configs-*"} {
		left, err := filepath.Glob(filepath.Join(w.folder, kind)) // its TMPDIR
		require.NoError(t, err)
		require.Empty(t, left)
	}
}
