package steps_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// olderForm is what a lab's talconfig gets to have something to migrate.
const olderForm = `patches:
  - |-
    machine:
      kubelet:
        # metrics need it
        extraArgs:
          rotate-server-certificates: "true"
    cluster:
      proxy:
        disabled: true
`

// toMigrate is a lab for Talos 1.14 whose talconfig has patches in the older form.
func toMigrate(t *testing.T, patches string) *lab {
	t.Helper()

	l := newLab(t, 1, 1)
	path := filepath.Join(l.Dir, "talconfig.yaml")

	data, err := os.ReadFile(path)
	require.NoError(t, err)

	var lines []string

	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "talosVersion:") {
			line = "talosVersion: v1.14.1\n"
		}

		lines = append(lines, line)
	}

	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "")+patches), 0o600))

	return l
}

// contents are the files of the talos folder.
func (l *lab) contents(t *testing.T) map[string]string {
	t.Helper()

	entries, err := os.ReadDir(l.Dir)
	require.NoError(t, err)

	files := map[string]string{}

	for _, entry := range entries {
		if data, err := os.ReadFile(filepath.Join(l.Dir, entry.Name())); err == nil {
			files[entry.Name()] = string(data)
		}
	}

	return files
}

// git runs git in the lab's folder.
func (l *lab) git(t *testing.T, arguments ...string) {
	t.Helper()

	command := exec.Command(tool.Find(t, "git"), append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"},
		arguments...)...)
	command.Dir = l.folder
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

func withGit() string { return "PATH=" + os.Getenv("PATH") }

func TestMigrateRewritesOnce(t *testing.T) {
	t.Parallel()

	l := toMigrate(t, olderForm)
	before := l.contents(t)

	problem := l.session(t, withGit()).fails(t, diagnosis.ExitBadInput, diagnosis.MigrationDirty, steps.Migrate{})
	require.Contains(t, problem.Cause, "is in no git repository")
	require.Equal(t, before, l.contents(t))

	l.git(t, "init", "-q")

	problem = l.session(t, withGit()).fails(t, diagnosis.ExitBadInput, diagnosis.MigrationDirty, steps.Migrate{})
	require.Contains(t, problem.Cause, "not everything in talos is committed")
	require.Equal(t, before, l.contents(t))

	l.git(t, "add", "-A")
	l.git(t, "commit", "-qm", "as it was")

	dry := l.session(t, withGit(), "DRY_RUN=true")
	dry.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.Migrate{})
	require.Contains(t, dry.out.String(), "+    kind: KubeletConfig")
	require.Equal(t, before, l.contents(t))

	s := l.session(t, withGit()).succeeds(t, steps.Migrate{})
	require.Contains(t, s.detail("migrate", ""), "rewrote talos/talconfig.yaml and talos/talenv.yaml")
	require.Contains(t, s.detail("migrate", ""), "written out as before: workload isolation")
	require.Contains(t, s.out.String(), "machine.kubelet.extraArgs → extraArgs of KubeletConfig")

	after := l.contents(t)
	require.Contains(t, after["talconfig.yaml"], "    # metrics need it\n    extraArgs:\n      rotate-server-certificates: \"true\"\n")
	require.Contains(t, after["talenv.yaml"], "talosContract: v1.14\n")

	again := l.session(t, withGit()).succeeds(t, steps.Migrate{})
	require.Contains(t, again.detail("migrate", ""), "nothing to do")
	require.Equal(t, after, l.contents(t))
}

func TestMigrateChangesNothingThatIsNotProven(t *testing.T) {
	t.Parallel()

	const dirty = "-dirty=true"

	for _, test := range []struct {
		name, patches string
		id            diagnosis.ID
		told          string
	}{
		{"a field without a successor", "patches:\n  - |-\n    machine:\n      kubelet:\n        extraMounts:\n" +
			"          - source: /var/data\n            destination: /var/data\n            type: bind\n",
			diagnosis.MigrationUndecided, "machine.kubelet.extraMounts: put the data into a UserVolumeConfig"},
		{"a JSON patch that addresses an item", "patches:\n  - |-\n    - op: remove\n      path: /machine/certSANs/0\n",
			diagnosis.MigrationUndecided, "items of a list have no number"},
		{"a patch that is no YAML", "patches:\n  - |-\n    machine: {\n", diagnosis.FileSyntax, "not valid YAML"},
		{"labels that the section adds and the document does not", "controlPlane:\n  patches:\n    - |-\n" +
			"      machine:\n        nodeLabels:\n          $patch: delete\n", diagnosis.MigrationUnequal,
			"the configs of cp1 would differ in K8sNodeConfig.Labels"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			l := toMigrate(t, test.patches)
			before := l.contents(t)
			s := l.session(t, withGit(), dirty)

			problem := s.fails(t, diagnosis.ExitBadInput, test.id, steps.Migrate{})
			require.Contains(t, problem.Cause, test.told)

			if test.id != diagnosis.MigrationUnequal {
				require.Contains(t, problem.At.Path, "talconfig.yaml")
				require.Positive(t, problem.At.Line)
			}

			require.Equal(t, before, l.contents(t))
		})
	}
}

func TestMigrateNamesOlderNodes(t *testing.T) {
	t.Parallel()

	l := toMigrate(t, olderForm)
	l.untilMaintenance(t)

	s := l.session(t, withGit(), "-dirty=true").succeeds(t, steps.Migrate{})

	var told []string

	for _, finding := range s.Findings() {
		if finding.ID == diagnosis.MigrationOlderNodes {
			told = append(told, finding.Cause)
		}
	}

	require.Len(t, told, 1)
	require.Contains(t, told[0], "cp1 (v1.13.9) and worker1 (v1.13.9)")
}
