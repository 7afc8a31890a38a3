package steps_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/golden"
	"github.com/talos-mage/talos-mage/internal/test/recording"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// appsFiles are what applications are installed from, as the cluster template lays it out.
var appsFiles = map[string]string{
	"kubernetes/apps/flux-system/kustomization.yaml": "",
	"kubernetes/apps/network/kustomization.yaml":     "",
	"bootstrap/sops-age.sops.yaml":                   "data: ENC[AES256_GCM,data:x]\nsops: {mac: x}\n",
	"bootstrap/helmfile.d/00-crds.yaml": `helmDefaults:
  args: [--include-crds, --no-hooks]
releases:
- {name: gateway, namespace: network, chart: ../charts/gateway}
`,
	"bootstrap/helmfile.d/01-apps.yaml": `helmDefaults: {cleanupOnFail: true, wait: true, timeout: 5}
releases:
- {name: gateway, namespace: network, chart: ../charts/gateway}
- {name: routes, namespace: network, chart: ../charts/routes, needs: [network/gateway]}
`,
	"bootstrap/charts/gateway/Chart.yaml": "apiVersion: v2\nname: gateway\nversion: 1.2.3\n",
	"bootstrap/charts/gateway/crds/gateways.yaml": `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gateways.example.com}
spec:
  group: example.com
  names: {kind: Gateway, plural: gateways}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`,
	"bootstrap/charts/gateway/templates/settings.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: gateway}
`,
	"bootstrap/charts/routes/Chart.yaml": "apiVersion: v2\nname: routes\nversion: 1.0.0\n",
	"bootstrap/charts/routes/templates/settings.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: routes}
`,
}

// appsSecret is what is encrypted in the lab's repository.
const appsSecret = "metadata: {name: sops-age}\nstringData: {age.agekey: AGE-SECRET-KEY-1XYZ}"

// sops has a stand-in of sops decrypt a Secret. Tests of encryption run the real one.
func (l *lab) sops(t *testing.T, secret string) {
	t.Helper()

	require.NoError(t, tool.WriteProgram(filepath.Join(l.folder, "bin", "sops"), []byte("#!/bin/bash\n"+
		"while read -r; do :; done\necho 'apiVersion: v1\nkind: Secret\n"+secret+"'\n")))
}

// withRecordedApps adds what applications are installed from to the lab's repository, and the programs, which answer
// as the real ones did when testdata/apps/<name>.yaml was recorded.
func (l *lab) withRecordedApps(t *testing.T, recorded string) *recording.Doubles {
	t.Helper()

	for path, content := range appsFiles {
		l.write(t, path, content)
	}

	doubles := recording.Insert(t, filepath.Join(l.folder, "bin"), filepath.Join("testdata", "apps", recorded+".yaml"),
		l.folder)

	l.sops(t, appsSecret)

	return doubles
}

// write makes a file of the lab's repository.
func (l *lab) write(t *testing.T, path, content string) {
	t.Helper()

	path = filepath.Join(l.folder, filepath.FromSlash(path))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func contentOf(t *testing.T, path ...string) string {
	t.Helper()

	data, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)

	return string(data)
}

// told are a run's results, a line each, and its error.
func (s *session) told() string {
	var told strings.Builder

	for _, result := range s.Results() {
		told.WriteString(string(result.Status) + ": " + result.Detail + "\n")
	}

	if s.err != nil {
		told.WriteString(s.err.Error() + "\n")
	}

	return told.String()
}

// rooted is a text without the folder of this run.
func (l *lab) rooted(text string) string { return strings.ReplaceAll(text, l.folder, "ROOT") }

func TestApplicationsAreInstalledPhaseByPhaseAndRunAgainWhatIsMissing(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1)
	l.up(t)

	problem := l.session(t).fails(t, diagnosis.ExitBadInput, diagnosis.AppsFilesMissing, steps.Apps{})
	require.Equal(t, "there is no kubernetes/apps", problem.Cause)

	l.withRecordedApps(t, "installed")

	s := l.session(t, "DRY_RUN=true")
	s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.Apps{})
	told := "dry run\n" + s.told()

	s = l.session(t).succeeds(t, steps.Apps{})
	told += "\nfirst run\n" + s.told()
	require.NotContains(t, s.out.String(), "AGE-SECRET-KEY")

	told += "\nagain\n" + l.session(t).succeeds(t, steps.Apps{}).told()

	golden.Assert(t, filepath.Join("testdata", "apps", "installed.txt"), l.rooted(told))
}

// appsFailure is something that keeps applications from being installed, and its end.
type appsFailure struct {
	name string
	// files differ from appsFiles until it ends.
	files map[string]string
	// begins and ends are with the real programs, when they are recorded.
	begins, ends func(*recording.Real)
	id           diagnosis.ID
	// secret is another than appsSecret, until it ends.
	secret string
}

func as(whom string) func(*recording.Real) {
	return func(cluster *recording.Real) { cluster.Connect(whom) }
}

// owned has Flux own what is applied, with another value.
func owned(cluster *recording.Real) {
	cluster.Run("apiVersion: v1\nkind: Namespace\nmetadata: {name: flux-system}\n", "kubectl", "apply", "--filename", "-")
	cluster.Run("apiVersion: v1\nkind: Secret\nmetadata: {name: sops-age, namespace: flux-system}\ndata: {age.agekey: b3RoZXI=}\n",
		"kubectl", "apply", "--server-side", "--field-manager=kustomize-controller", "--filename", "-")
}

func disowned(cluster *recording.Real) {
	cluster.Run("", "kubectl", "delete", "--namespace", "flux-system", "secret", "sops-age")
}

const (
	appsCRDs     = "bootstrap/helmfile.d/00-crds.yaml"
	appsReleases = "bootstrap/helmfile.d/01-apps.yaml"
)

var appsFailures = []appsFailure{
	{name: "api-off", begins: as(recording.Off), ends: as(""), id: diagnosis.AppsApplyRefused},
	{name: "unauthorized", begins: as(recording.Stranger), ends: as(""), id: diagnosis.AppsApplyRefused},
	{name: "forbidden", begins: as(recording.Guest), ends: as(""), id: diagnosis.AppsApplyRefused},
	{name: "conflict", begins: owned, ends: disowned, id: diagnosis.AppsApplyRefused,
		secret: "metadata: {name: sops-age}\ndata: {age.agekey: QUdFLVNFQ1JFVC1LRVktMVhZWg==}"},
	{name: "no-namespace", id: diagnosis.AppsApplyRefused, secret: "metadata: {name: sops-age, namespace: elsewhere}"},
	{name: "invalid-secret", id: diagnosis.AppsApplyRefused,
		secret: "metadata: {name: sops-age}\ndata: {a key: QUdFLVNFQ1JFVC1LRVktMVhZWg==}"},
	{name: "no-helmfile", id: diagnosis.AppsReleaseFailed, files: map[string]string{appsCRDs: "releases: [\n"}},
	{name: "no-chart", id: diagnosis.AppsReleaseFailed, files: map[string]string{
		appsCRDs: "releases:\n- {name: gateway, namespace: network, chart: ../charts/nowhere}\n"}},
	{name: "no-registry", id: diagnosis.AppsReleaseFailed, files: map[string]string{
		appsReleases: "releases:\n- {name: gateway, namespace: network, chart: oci://charts.example/gateway, version: 1.2.3}\n"}},
	{name: "no-post-renderer", id: diagnosis.AppsReleaseFailed, files: map[string]string{
		appsCRDs: strings.Replace(appsFiles[appsCRDs], "args:", "postRenderer: not-installed\n  args:", 1)}},
	{name: "not-ready", id: diagnosis.AppsReleaseFailed, files: map[string]string{
		"bootstrap/charts/routes/templates/settings.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: routes}
spec:
  selector: {matchLabels: {app: routes}}
  template:
    metadata: {labels: {app: routes}}
    spec: {containers: [{name: routes, image: registry.example/routes}]}
`}},
}

// Whatever ended a run, once it is put right the next one goes on where that stopped.
func TestWhatKeepsApplicationsFromBeingInstalledIsExplained(t *testing.T) {
	t.Parallel()

	if detectsRaces {
		t.Skip("its time goes into other processes")
	}

	for _, failure := range appsFailures {
		t.Run(failure.name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0)
			l.up(t)

			doubles := l.withRecordedApps(t, failure.name)
			for path, content := range failure.files {
				l.write(t, path, content)
			}

			if failure.begins != nil {
				doubles.Prepare(t, failure.begins)
			}

			if failure.secret != "" {
				l.sops(t, failure.secret)
			}

			s := l.session(t)
			s.fails(t, diagnosis.ExitKubernetes, failure.id, steps.Apps{})
			require.NotContains(t, s.out.String()+s.err.Error(), "AGE-SECRET-KEY")
			told := s.told()

			for path := range failure.files {
				l.write(t, path, appsFiles[path])
			}

			l.sops(t, appsSecret)

			if failure.ends != nil {
				doubles.Prepare(t, failure.ends)
			}

			told += "\nput right\n" + l.session(t).succeeds(t, steps.Apps{}).told()
			golden.Assert(t, filepath.Join("testdata", "apps", failure.name+".txt"), l.rooted(told))
		})
	}
}

// Each call is made, and its reply lost with the run. The next run finds what is there.
func TestApplicationsAreInstalledAfterARunWasStoppedAtAnyCall(t *testing.T) {
	t.Parallel()

	if detectsRaces {
		t.Skip("its time goes into other processes")
	}

	const calls = 8

	for number := 1; number <= calls; number++ {
		t.Run(strconv.Itoa(number), func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0)
			l.up(t)

			doubles := l.withRecordedApps(t, "stopped-"+strconv.Itoa(number))
			doubles.Stop(t, number)

			ctx, stop := context.WithCancel(t.Context())
			defer stop()

			go func() {
				doubles.AwaitStop(t)
				stop()
			}()

			require.Error(t, steps.Execute(ctx, l.session(t).Run, steps.Apps{}))
			require.Equal(t, number, doubles.Calls(t))

			doubles.Stop(t, 0)

			s := l.session(t).succeeds(t, steps.Apps{})
			require.Equal(t, report.Applied, s.status("apps", ""))
		})
	}
}

// Which programs are missing, and how each is to be had, is said before anything is begun.
func TestProgramsThatInstallApplicationsAreNamedWhereTheyAreMissing(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.up(t)

	for path, content := range appsFiles {
		l.write(t, path, content)
	}

	s := l.session(t)
	s.fails(t, diagnosis.ExitBadInput, diagnosis.AppsProgramMissing, steps.Apps{})

	for _, missing := range []string{"kubectl is not on the PATH [TM411]. Next: install it: https://kubernetes.io",
		"helmfile is not on the PATH [TM411]. Next: install it: https://github.com/helmfile", "helm is not on the PATH"} {
		require.Contains(t, s.err.Error(), missing)
	}
}

func TestARepositoryWithItsOwnScriptKeepsRunningThat(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	path := filepath.Join(l.folder, "scripts", "bootstrap-apps.sh")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(l.folder, "bin"), 0o700))
	require.NoError(t, os.Symlink("/bin/bash", filepath.Join(l.folder, "bin", "bash")))
	require.NoError(t, os.WriteFile(path, []byte("echo installing; echo \"$ROOT_DIR $KUBECONFIG\" >ran\n[[ -e fine ]]\n"), 0o600))

	l.session(t, "DRY_RUN=true").fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.Apps{})
	require.NoFileExists(t, filepath.Join(l.folder, "ran"))

	l.session(t).fails(t, diagnosis.ExitKubernetes, diagnosis.AppsScriptFailed, steps.Apps{})

	require.NoError(t, os.WriteFile(filepath.Join(l.folder, "fine"), nil, 0o600))

	s := l.session(t)
	s.succeeds(t, steps.Apps{})
	require.Equal(t, l.folder+" "+filepath.Join(l.folder, "kubeconfig")+"\n", contentOf(t, l.folder, "ran"))
	require.Equal(t, report.Applied, s.status("apps", ""))
	require.Contains(t, s.out.String(), "installing")
}
