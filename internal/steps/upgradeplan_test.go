package steps_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// replaceIn replaces texts in a file, before and after in turn.
func replaceIn(t *testing.T, path string, texts ...string) {
	t.Helper()

	data, err := os.ReadFile(path)
	require.NoError(t, err)

	for i := 0; i < len(texts); i += 2 {
		require.Contains(t, string(data), texts[i])
		data = []byte(strings.ReplaceAll(string(data), texts[i], texts[i+1]))
	}

	require.NoError(t, os.WriteFile(path, data, 0o600))
}

// declare changes the versions that the files declare, as a person does: the machine configs stay as they were.
func (l *lab) declare(t *testing.T, texts ...string) {
	t.Helper()
	replaceIn(t, filepath.Join(l.Dir, "talenv.yaml"), texts...)
}

// running has the machines run a release of Talos, with a single control plane's address as the endpoint.
func running(version string) func(*labcluster.Options) {
	return func(options *labcluster.Options) {
		options.TalosVersion, options.Endpoint = version, labcluster.FirstControlPlane
	}
}

// upWithFiles brings the cluster up with the machine configs that are there.
func (l *lab) upWithFiles(t *testing.T, except ...string) {
	t.Helper()

	l.untilMaintenance(t, except...)
	s := l.session(t, asTheyAre, "MAX_PARALLEL=100%", "APPLY_MODE=parallel", "SKIP_CHECKS=TM053")
	s.succeeds(t, s.recipe()...)
}

const plainInstaller = "factory.talos.dev/metal-installer/" +
	"376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// Whatever would fail or lose data is refused with its cause, and no node is sent anything.
func TestAnUpgradeIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	t.Parallel()

	const preflight, badInput = diagnosis.ExitPreflight, diagnosis.ExitBadInput

	for name, test := range map[string]struct {
		runs     string
		contract string
		node     func(*emulator.NodeOptions) // of worker1
		config   []string                    // texts of worker1's machine config, replaced before the bring-up
		talenv   []string                    // texts of the files, replaced after it
		files    []string
		environ  []string

		code  diagnosis.ExitCode
		id    diagnosis.ID
		cause string
	}{
		"a skipped minor": {runs: "v1.12.1", talenv: []string{"v1.12.1", "v1.14.1"},
			code: preflight, id: diagnosis.NodeUpgradePath, cause: "it is 2 minor versions"},
		"a downgrade": {runs: "v1.13.9", talenv: []string{"v1.13.9", "v1.12.1", "v1.36.3", "v1.35.0"},
			code: preflight, id: diagnosis.DowngradeNotAllowed, cause: "from Talos v1.13.9 to v1.12.1 is a downgrade"},
		"a downgrade of etcd, though allowed": {runs: "v1.14.1",
			talenv: []string{"v1.14.1", "v1.13.9", "v1.37.0", "v1.36.3"}, environ: []string{"-allowDowngrade=true"},
			code: preflight, id: diagnosis.DowngradeAcrossEtcd, cause: "a downgrade of etcd by a minor version"},
		"an ordinary installer where SecureBoot is on": {runs: "v1.13.9", talenv: []string{"v1.13.9", "v1.14.1"},
			node: func(node *emulator.NodeOptions) { node.SecureBoot = true },
			code: preflight, id: diagnosis.InstallerSecureBoot, cause: "is not for SecureBoot"},
		"a SecureBoot installer where it is off": {runs: "v1.13.9", talenv: []string{"v1.13.9", "v1.14.1"},
			files: []string{"metal-installer", "metal-installer-secureboot"},
			code:  preflight, id: diagnosis.InstallerSecureBoot, cause: "is for SecureBoot only"},
		"an installer for another platform": {runs: "v1.13.9", talenv: []string{"v1.13.9", "v1.14.1"},
			files: []string{"metal-installer", "nocloud-installer"},
			code:  preflight, id: diagnosis.UpgradePlatform, cause: "the node runs on platform metal, and the installer"},
		"an installer that the release no longer publishes": {runs: "v1.13.9", talenv: []string{"v1.13.9", "v1.14.1"},
			files: []string{plainInstaller, "ghcr.io/siderolabs/installer"},
			code:  badInput, id: diagnosis.InstallerReference, cause: "it is published up to v1.13 only"},
		"a declared Kubernetes that the release does not run": {runs: "v1.13.9",
			talenv: []string{"v1.13.9", "v1.14.1", "v1.36.3", "v1.31.0"},
			code:   badInput, id: "TM007", cause: "Kubernetes v1.31.0 is too old for Talos v1.14.1, which runs 1.32 to 1.37"},
		"a Kubernetes that the release does not run": {runs: "v1.13.9", config: []string{"v1.36.3", "v1.31.0"},
			talenv: []string{"v1.13.9", "v1.14.1"},
			code:   preflight, id: diagnosis.KubernetesUnsupported, cause: "kubelet:v1.31.0: Kubernetes v1.31.0 is too old"},
		"a config that the release does not know": {runs: "v1.14.1", contract: "v1.14", environ: []string{
			"-allowDowngrade=true", "NODE=worker1"},
			talenv: []string{"v1.14.1", "v1.13.9", "v1.37.0", "v1.36.3", "talosContract: v1.14", ""},
			code:   preflight, id: diagnosis.UpgradeConfigRefused, cause: "for these documents: "},
		"a declared config that the release refuses": {runs: "v1.12.1", talenv: []string{"v1.12.1", "v1.13.9"},
			files: []string{"nodes:", "patches:\n  - |-\n    machine:\n      kubelet: {nodeIP: {validSubnets: [nothing]}}\nnodes:"},
			code:  badInput, id: "TM007", cause: "Talos refuses what the patch makes of a node"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 1, running(test.runs), func(options *labcluster.Options) { options.Contract = test.contract },
				edit("worker1", func(node *emulator.NodeOptions) {
					if test.node != nil {
						test.node(node)
					}
				}))

			replaceIn(t, l.ConfigFile("worker1"), test.config...)
			l.upWithFiles(t)

			before := len(changesOf(l.Node("cp1"))) + len(changesOf(l.Node("worker1")))

			l.declare(t, test.talenv...)
			replaceIn(t, filepath.Join(l.Dir, "talconfig.yaml"), test.files...)

			for _, dryRun := range []string{"DRY_RUN=true", "DRY_RUN=false"} {
				s := l.session(t, append(test.environ, dryRun)...)
				problem := s.fails(t, test.code, test.id, steps.Upgrade{})
				require.Contains(t, problem.Cause, test.cause)
			}

			require.Len(t, append(changesOf(l.Node("cp1")), changesOf(l.Node("worker1"))...), before)
		})
	}
}

// Nodes that can't be upgraded are named, whatever answers there, and so is an etcd that is not whole.
func TestAnUpgradeNamesTheNodesThatDoNotRun(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 3, running("v1.13.9"))
	l.Node("worker3").PowerOff()
	l.untilMaintenance(t, "worker3")
	s := l.session(t, asTheyAre, "MAX_PARALLEL=100%", "APPLY_MODE=parallel", "NODE=cp1,cp2,cp3,worker1")
	s.succeeds(t, s.recipe()...)
	l.declare(t, "v1.13.9", "v1.14.1")

	s = l.session(t, "NO_WAIT=true", "NODE=worker1,worker2,worker3")
	problem := s.fails(t, diagnosis.ExitPreflight, diagnosis.UpgradeNodeAway, steps.Upgrade{})
	require.Equal(t, "worker2", problem.Node)
	require.Contains(t, problem.Cause, "it is in maintenance")
	require.Contains(t, problem.Next, "mage applySequential -node=worker2")
	require.Equal(t, report.Refused, s.status("upgrade", "worker3"))

	l.Node("cp3").PowerOff()

	s = l.session(t, "NODE=worker1")
	problem = s.fails(t, diagnosis.ExitPreflight, diagnosis.UpgradeEtcdUnhealthy, steps.Upgrade{})
	require.Contains(t, problem.Cause, "cp3: no answer")
}

var anyAddress = regexp.MustCompile(`\b127(\.\d+){3}\b`)

// A dry run tells node by node what would be done, and of a node that runs all that already that it is done.
func TestAnUpgradesDryRunTellsThePlanNodeByNode(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		controlPlanes int
		talenv, files []string
		code          diagnosis.ExitCode
	}{
		"three": {controlPlanes: 3, talenv: []string{"v1.13.9", "v1.14.1", "v1.36.3", "v1.37.0"}, code: diagnosis.ExitDryRun},
		"two":   {controlPlanes: 2, talenv: []string{"v1.13.9", "v1.14.1"}, code: diagnosis.ExitDryRun},
		"done":  {controlPlanes: 1, code: diagnosis.ExitOK},
		"schematic": {controlPlanes: 1, files: []string{plainInstaller,
			"factory.talos.dev/metal-installer/ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"},
			code: diagnosis.ExitDryRun},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, test.controlPlanes, 1, running("v1.13.9"), edit("worker1", func(node *emulator.NodeOptions) {
				node.TalosVersion = "v1.14.1"
			}))
			l.upWithFiles(t)
			l.declare(t, test.talenv...)
			replaceIn(t, filepath.Join(l.Dir, "talconfig.yaml"), test.files...)

			environ := []string{"DRY_RUN=true", "LOG_LEVEL=error"}
			if test.controlPlanes == 1 {
				environ = append(environ, "NODE=cp1")
			}

			s := l.session(t, environ...)
			s.do(t, steps.Upgrade{})
			require.Equal(t, test.code, steps.CodeOf(s.err), s.out)

			var told strings.Builder

			for _, finding := range s.Findings() {
				told.WriteString(string(finding.ID) + " " + finding.Cause + "\n")
			}

			for _, result := range s.Results() {
				told.WriteString(result.Node + ": " + string(result.Status) + ": " + result.Detail + "\n")
			}

			if s.err != nil {
				told.WriteString(s.err.Error() + "\n")
			}

			golden.Assert(t, filepath.Join("testdata", "upgrade", name+".txt"),
				anyAddress.ReplaceAllString(told.String(), "127.0.0.1"))
		})
	}
}
