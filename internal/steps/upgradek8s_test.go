//go:build !race

// Below the race detector the matrix of faults plays the same.

package steps_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

const (
	talosOfTalosctl  = "v1.14.1"
	kubernetesBefore = "v1.36.3"
	kubernetesAfter  = "v1.37.0"
)

// upgradable is a running cluster of Talos 1.14, whose Kubernetes is a minor behind what the files declare.
func upgradable(t *testing.T, controlPlanes, workers int, change ...func(*labcluster.Options)) *lab {
	t.Helper()

	l := upWithKubernetes(t, kubernetesBefore, controlPlanes, workers, change...)
	l.declareKubernetes(t, kubernetesBefore, kubernetesAfter)

	return l
}

// upWithKubernetes is a running cluster of Talos 1.14 with a version of Kubernetes.
func upWithKubernetes(t *testing.T, version string, controlPlanes, workers int,
	change ...func(*labcluster.Options)) *lab {
	t.Helper()

	l := newLab(t, controlPlanes, workers, append(change, withTalosctls)...)
	l.declareKubernetes(t, kubernetesAfter, version)
	l.up(t)

	return l
}

// withTalosctls has the machines run the release of the talosctl that there is.
func withTalosctls(options *labcluster.Options) {
	options.TalosVersion, options.CNI = talosOfTalosctl, "flannel"
}

// declareKubernetes writes another version of Kubernetes into all files of the cluster.
func (l *lab) declareKubernetes(t *testing.T, before, after string) {
	t.Helper()

	files := []string{filepath.Join(l.Dir, "talenv.yaml")}
	for _, node := range l.Nodes {
		files = append(files, l.ConfigFile(node.Name()))
	}

	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(data), strings.TrimPrefix(before, "v"), file)

		data = []byte(strings.ReplaceAll(string(data), strings.TrimPrefix(before, "v"), strings.TrimPrefix(after, "v")))
		require.NoError(t, os.WriteFile(file, data, 0o600))
	}
}

// hasTalosctl puts the real talosctl on the PATH of the lab's sessions.
func (l *lab) hasTalosctl(t *testing.T) {
	t.Helper()

	require.NoError(t, os.MkdirAll(filepath.Join(l.folder, "bin"), 0o700))
	require.NoError(t, os.Symlink(tool.Find(t, "talosctl"), filepath.Join(l.folder, "bin", "talosctl")))
}

// pretends puts a program in the place of talosctl that is a shell script.
func (l *lab) pretends(t *testing.T, script string) {
	t.Helper()

	require.NoError(t, os.MkdirAll(filepath.Join(l.folder, "bin"), 0o700))
	require.NoError(t, tool.WriteProgram(filepath.Join(l.folder, "bin", "talosctl"), []byte("#!/bin/sh\n"+script)))
}

func TestKubernetesIsUpgradedByTheRealTalosctl(t *testing.T) {
	t.Parallel()

	l := upgradable(t, 2, 1)
	l.hasTalosctl(t)

	s := l.session(t, "DRY_RUN=true")
	s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.UpgradeK8s{})
	require.Contains(t, s.detail("upgradeK8s", "cp1"), "to v1.37.0: kube-apiserver v1.36.3, ")
	require.Equal(t, "to v1.37.0: kube-proxy v1.36.3, kubelet v1.36.3", s.detail("upgradeK8s", "worker1"))
	require.Equal(t, 1, applied(l.Node("cp1")), "that of the bring-up")

	// An image that can't be had, and then a node that does not take its config: the others before it have theirs.
	fault(l.Node("cp2"),
		emulator.CallFault{Method: "ImagePull", Do: emulator.Fail, Code: codes.NotFound, Text: "no such image", Times: 1})

	problem := l.session(t).fails(t, diagnosis.ExitKubernetes, diagnosis.K8sUpgradeFailed, steps.UpgradeK8s{})
	require.Equal(t, "cp2", problem.Node)
	require.Contains(t, problem.Cause, "no such image")

	fault(l.Node("cp2"), emulator.CallFault{Method: "ApplyConfiguration", Do: emulator.Fail, Code: codes.Unavailable,
		Text: "out of order", Times: 1, After: 1})

	problem = l.session(t).fails(t, diagnosis.ExitKubernetes, diagnosis.K8sUpgradeFailed, steps.UpgradeK8s{})
	require.Equal(t, "cp2", problem.Node)
	require.Contains(t, problem.Cause, "talosctl stopped at kube-apiserver: ")
	require.Contains(t, problem.Cause, "out of order")

	s = l.session(t)
	s.succeeds(t, steps.UpgradeK8s{})
	require.Equal(t, report.Applied, s.status("upgradeK8s", "worker1"))
	require.Empty(t, s.Findings())

	s = l.session(t)
	s.succeeds(t, steps.UpgradeK8s{})
	require.Equal(t, report.Skipped, s.status("upgradeK8s", "cp1"))
	require.Contains(t, s.out.String(), "runs Kubernetes v1.37.0")

	// What somebody else has changed in the files is named.
	l.tuned(t, "worker1")

	s = l.session(t)
	s.succeeds(t, steps.UpgradeK8s{})
	require.Len(t, s.Findings(), 1)
	require.Equal(t, diagnosis.K8sConfigsDifferent, s.Findings()[0].ID)
	require.Equal(t, "worker1", s.Findings()[0].Node)
}

// talosctl ends with the run that started it.
func TestAKilledUpgradeOfKubernetesIsContinuedByTheNextRun(t *testing.T) {
	t.Parallel()

	killing{
		target: "upgradeK8s", controlPlanes: 1, workers: 1,
		furnish: func(t *testing.T, l *lab) { t.Helper(); l.declareKubernetes(t, kubernetesAfter, kubernetesBefore) },
		prepare: func(t *testing.T, l *lab) []string {
			t.Helper()
			l.declareKubernetes(t, kubernetesBefore, kubernetesAfter)
			l.hasTalosctl(t)

			return nil
		},
		moments: []moment{
			{node: "cp1", call: "ApplyConfiguration"}, {node: "cp1", call: "ImagePull"},
			{node: "cp1", call: "ApplyConfiguration", number: 1},
			{node: "worker1", call: "ApplyConfiguration", after: true},
		},
		ends: func(t *testing.T, l *lab) {
			t.Helper()

			s := l.session(t)
			s.succeeds(t, steps.UpgradeK8s{})
			require.Equal(t, report.Skipped, s.status("upgradeK8s", "worker1"))
			require.Empty(t, s.Findings(), "the nodes' configs are those of their files")
		},
	}.play(t, withTalosctls)
}

func TestWithoutTheRightTalosctlNothingIsBegun(t *testing.T) {
	t.Parallel()

	l := upgradable(t, 1, 0)

	problem := l.session(t).fails(t, diagnosis.ExitBadInput, diagnosis.TalosctlUnfit, steps.UpgradeK8s{})
	require.Contains(t, problem.Cause, "talosctl is not on the PATH")
	require.Contains(t, problem.Next, "https://github.com/siderolabs/talos/releases/download/v1.14.1/talosctl-")

	l.pretends(t, "echo Client:; echo Talos v1.13.9")

	problem = l.session(t).fails(t, diagnosis.ExitBadInput, diagnosis.TalosctlUnfit, steps.UpgradeK8s{})
	require.Contains(t, problem.Cause, "talosctl is v1.13.9, and the node runs Talos v1.14.1")

	l.pretends(t, "echo no version")
	l.session(t).fails(t, diagnosis.ExitBadInput, diagnosis.TalosctlUnfit, steps.UpgradeK8s{})
}

func TestAWayThatKubernetesDoesNotSupportIsRefused(t *testing.T) {
	t.Parallel()

	l := upgradable(t, 1, 1)
	l.pretends(t, "echo Talos v1.14.1")

	for version, want := range map[string]string{
		"v1.36.2": "runs v1.36.3, and the files declare the older v1.36.2: Kubernetes can't be downgraded",
		"v1.38.0": "Kubernetes v1.38.0 is too new for Talos v1.14.1, which runs 1.32 to 1.37",
	} {
		l.declareKubernetes(t, kubernetesAfter, version)

		problem := l.session(t).fails(t, diagnosis.ExitBadInput, diagnosis.K8sUpgradeRefused, steps.UpgradeK8s{})
		require.Contains(t, problem.Cause, want)
		l.declareKubernetes(t, version, kubernetesAfter)
	}

	require.Equal(t, 1, applied(l.Node("cp1")), "that of the bring-up")

	fault(l.Node("worker1"), emulator.CallFault{Method: "/cosi.resource.State/Get",
		Resource: "Versions.runtime.talos.dev", Do: emulator.Fail, Code: codes.Unavailable, Text: "out of order"})

	problem := l.session(t).fails(t, diagnosis.ExitKubernetes, diagnosis.K8sUpgradeHeldBack, steps.UpgradeK8s{})
	require.Equal(t, "worker1", problem.Node)
	require.Equal(t, "it does not say which Talos it runs", problem.Cause)

	l.Node("worker1").PowerOff()

	problem = l.session(t).fails(t, diagnosis.ExitKubernetes, diagnosis.K8sUpgradeHeldBack, steps.UpgradeK8s{})
	require.Equal(t, "worker1", problem.Node)
}

func TestASkippedMinorOfKubernetesIsRefused(t *testing.T) {
	t.Parallel()

	l := upWithKubernetes(t, "v1.35.0", 1, 0)
	l.pretends(t, "echo Talos v1.14.1")
	l.declareKubernetes(t, "v1.35.0", kubernetesAfter)

	problem := l.session(t).fails(t, diagnosis.ExitBadInput, diagnosis.K8sUpgradeRefused, steps.UpgradeK8s{})
	require.Contains(t, problem.Cause, "kube-apiserver of cp1 runs v1.35.0, and v1.37.0 skips a minor")
	require.Contains(t, problem.Next, "set kubernetesVersion to a release of v1.36 first")
	require.Equal(t, 1, applied(l.Node("cp1")), "that of the bring-up")
}

// A kubelet may be three minors behind the API servers. One that would be left further behind is named.
func TestAKubeletThatIsTooFarBehindIsNamed(t *testing.T) {
	t.Parallel()

	for version, allowed := range map[string]bool{"v1.33.0": false, "v1.34.0": true} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 1, func(o *labcluster.Options) { o.TalosVersion, o.CNI = talosOfTalosctl, "flannel" })
			l.declareKubernetes(t, kubernetesAfter, kubernetesBefore)
			replaceIn(t, l.ConfigFile("worker1"), "kubelet:"+kubernetesBefore, "kubelet:"+version)
			l.upWithFiles(t)
			l.declare(t, kubernetesBefore, kubernetesAfter)
			l.pretends(t, "echo Talos v1.14.1")

			s := l.session(t, asTheyAre, "DRY_RUN=true")
			if allowed {
				s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.UpgradeK8s{})
				require.Contains(t, s.detail("upgradeK8s", "worker1"), "kubelet "+version)

				return
			}

			problem := s.fails(t, diagnosis.ExitBadInput, diagnosis.K8sUpgradeRefused, steps.UpgradeK8s{})
			require.Contains(t, problem.Cause, "kubelet of worker1 runs v1.33.0, and a kubelet may be 3 minors behind")
			require.Contains(t, problem.Next, "set kubernetesVersion to v1.36.3, which the API servers run")
		})
	}
}

// talosctl upgrades every node that Kubernetes lists, and stops at one that it can't ask.
func TestANodeOfKubernetesThatTheFilesDoNotDeclareIsNamed(t *testing.T) {
	t.Parallel()

	l := upgradable(t, 1, 2)
	l.pretends(t, "echo Talos v1.14.1")

	path := filepath.Join(l.Dir, "talconfig.yaml")
	talconfig, err := os.ReadFile(path)
	require.NoError(t, err)

	before, _, found := strings.Cut(string(talconfig), "  - hostname: worker2\n")
	require.True(t, found)
	require.NoError(t, os.WriteFile(path, []byte(before), 0o600))
	require.NoError(t, os.Remove(l.ConfigFile("worker2")))

	problem := l.session(t).fails(t, diagnosis.ExitKubernetes, diagnosis.K8sUpgradeHeldBack, steps.UpgradeK8s{})
	require.Contains(t, problem.Cause, "Kubernetes lists the node worker2, which is not in the files")
	require.Contains(t, problem.Next, "kubectl delete node worker2 if the machine is gone")
	require.Equal(t, 1, applied(l.Node("cp1")), "that of the bring-up")
}

// What talosctl says is not believed: each component's version is asked for.
func TestAnUpgradeOfKubernetesIsBelievedOnlyOnceItIsSeen(t *testing.T) {
	t.Parallel()

	l := upgradable(t, 1, 1)
	l.pretends(t, "echo Talos v1.14.1")

	problem := l.session(t, seconds("API_TIMEOUT", 20)).fails(t, diagnosis.ExitKubernetes, diagnosis.K8sUpgradeNotSeen,
		steps.UpgradeK8s{})
	require.Contains(t, problem.Cause, "kube-apiserver of cp1 runs v1.36.3")
	require.Contains(t, problem.Cause, "kubelet of worker1 runs v1.36.3")
}

func TestDeprecatedAPIsInUseAreNamed(t *testing.T) {
	t.Parallel()

	l := upgradable(t, 1, 0)
	l.pretends(t, "echo Talos v1.14.1")
	l.Lab.RequestDeprecated(emulator.DeprecatedAPI{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta3",
		Resource: "flowschemas", Removed: "1.38"})

	s := l.session(t, "DRY_RUN=true")
	s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.UpgradeK8s{})
	require.Len(t, s.Findings(), 1)
	require.Equal(t, diagnosis.DeprecatedAPIsUsed, s.Findings()[0].ID)
	require.Equal(t, "flowschemas.v1beta3.flowcontrol.apiserver.k8s.io is in use (removed in 1.38)",
		s.Findings()[0].Cause)

	l.Lab.RequestDeprecated(emulator.DeprecatedAPI{Version: "v1beta1", Resource: "things", Removed: "1.37"})

	problem := l.session(t, "DRY_RUN=true").fails(t, diagnosis.ExitKubernetes, diagnosis.DeprecatedAPIsUsed,
		steps.UpgradeK8s{})
	require.Contains(t, problem.Cause, "v1.37.0 would take away an API that is in use: things.v1beta1, which 1.37 removed")

	s = l.session(t, "DRY_RUN=true", "SKIP_CHECKS=TM165")
	s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.UpgradeK8s{})
	require.Len(t, s.Findings(), 2)
}

func TestAnUpgradeOfKubernetesThatIsStoppedGoesOn(t *testing.T) {
	t.Parallel()

	l := upgradable(t, 1, 1)
	l.hasTalosctl(t)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	go func() {
		// The first is that of the bring-up, the second that of talosctl's dry run.
		for applied(l.Node("cp1")) < 3 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}

		stop()
	}()

	err := steps.Execute(ctx, l.session(t).Run, steps.UpgradeK8s{})
	problem, ok := diagnosis.AsProblem(err)
	require.True(t, ok, err)
	require.Equal(t, diagnosis.Interrupted, problem.ID)

	s := l.session(t)
	s.succeeds(t, steps.UpgradeK8s{})
	require.Equal(t, report.Applied, s.status("upgradeK8s", "worker1"))
	require.Empty(t, s.Findings())
}
