package steps_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// appsDoubles stand in for the programs that mage apps calls: they say what the real ones say, keep what they are given
// in STATE, and write down how they were called.
var appsDoubles = map[string]string{
	"kubectl": `
case "$*" in *"--filename -"*) input=$(/bin/cat);; esac
case "$*" in
*"get namespaces"*) /bin/cat "$STATE/namespaces";;
*" diff "*) [[ "$(<"$STATE/applied")" == *"$input"* ]];;
*" apply "*)
	if [[ -e "$STATE/refuse" ]]; then
		echo 'Error from server (Invalid): Secret "sops-age" is invalid: data: Invalid value: "AGE-SECRET-KEY-1XYZ"' >&2
		exit 1
	fi
	echo "$input" >>"$STATE/applied"
	while read -r key name; do
		[[ "$input" == *"kind: Namespace"* && $key == name: ]] && echo "namespace/${name//\"/}" >>"$STATE/namespaces"
	done <<<"$input"
	exit 0;;
esac`,
	"helmfile": `
case "$*" in
*template*) /bin/cat "$STATE/rendered.yaml";;
*sync*)
	if [[ -e "$STATE/unready" ]]; then
		echo 'Error: release cilium failed: context deadline exceeded' >&2
		exit 1
	fi;;
esac`,
	"helm": ``,
	"sops": `/bin/cat >/dev/null
printf 'apiVersion: v1\nkind: Secret\nmetadata: {name: sops-age}\nstringData: {age.agekey: AGE-SECRET-KEY-1XYZ}\n'`,
}

// killsCaller has a double kill who calls it, once, with what is in killBefore or killAfter on its command line.
const killsCaller = `
dies() { [[ -e "$STATE/$1" && " $2 " == *"$(<"$STATE/$1")"* ]] && /bin/rm "$STATE/$1"; }
dies killBefore "$*" && kill -KILL $PPID
dies killAfter "$*" && trap 'kill -KILL $PPID' EXIT
`

// withApps adds what applications are installed from to the lab's repository, and the programs.
func (l *lab) withApps(t *testing.T) (state string) {
	t.Helper()

	state = filepath.Join(l.folder, "state")
	require.NoError(t, os.Mkdir(state, 0o700))

	files := map[string]string{
		"kubernetes/apps/flux-system/kustomization.yaml": "",
		"kubernetes/apps/network/kustomization.yaml":     "",
		"bootstrap/helmfile.d/00-crds.yaml":              "releases: []\n",
		"bootstrap/helmfile.d/01-apps.yaml":              "releases: []\n",
		"bootstrap/sops-age.sops.yaml":                   "data: ENC[AES256_GCM,data:x]\nsops: {mac: x}\n",
	}
	for path, content := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(l.folder, path)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(l.folder, path), []byte(content), 0o600))
	}

	for path, content := range map[string]string{
		"namespaces": "namespace/default\nnamespace/network\n", "applied": "",
		"rendered.yaml": "---\n# Source: a chart\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n" +
			"metadata: {name: gateways.gateway.networking.k8s.io}\n" +
			"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: left-out}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(state, path), []byte(content), 0o600))
	}

	require.NoError(t, os.MkdirAll(filepath.Join(l.folder, "bin"), 0o700))

	for name, text := range appsDoubles {
		require.NoError(t, os.WriteFile(filepath.Join(l.folder, "bin", name),
			[]byte("#!/bin/bash\nSTATE="+state+"\necho \""+name+" $*\" >>\"$STATE/calls\"\n"+killsCaller+text+"\n"), 0o700))
	}

	return state
}

func contentOf(t *testing.T, path ...string) string {
	t.Helper()

	data, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)

	return string(data)
}

func TestApplicationsAreInstalledPhaseByPhaseAndRunAgainWhatIsMissing(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1)
	l.up(t)

	problem := l.session(t).fails(t, diagnosis.ExitBadInput, diagnosis.AppsFilesMissing, steps.Apps{})
	require.Equal(t, "there is no kubernetes/apps", problem.Cause)

	state := l.withApps(t)

	s := l.session(t, "DRY_RUN=true")
	problem = s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.Apps{})
	require.Equal(t, "dry run: namespaces flux-system, bootstrap/sops-age.sops.yaml, 1 CRD and the releases of "+
		"bootstrap/helmfile.d/01-apps.yaml would be applied", problem.Cause)
	require.Empty(t, contentOf(t, state, "applied"))

	// A secret that is refused is not told.
	require.NoError(t, os.WriteFile(filepath.Join(state, "unready"), nil, 0o600))
	s = l.session(t)
	problem = s.fails(t, diagnosis.ExitKubernetes, diagnosis.AppsReleaseFailed, steps.Apps{})
	require.Contains(t, problem.Cause, "helmfile says: Error: release cilium failed: context deadline exceeded")

	require.NoError(t, os.Remove(filepath.Join(state, "unready")))
	s = l.session(t)
	s.succeeds(t, steps.Apps{})

	var told strings.Builder
	for _, result := range s.Results() {
		told.WriteString(string(result.Status) + ": " + result.Detail + "\n")
	}

	golden.Assert(t, filepath.Join("testdata", "apps", "again.txt"), told.String())
	golden.Assert(t, filepath.Join("testdata", "apps", "calls.txt"),
		strings.ReplaceAll(contentOf(t, state, "calls"), l.folder, "ROOT"))
	require.NotContains(t, contentOf(t, state, "applied"), "left-out")
}

func TestAnApplicationsSecretThatIsRefusedIsNotTold(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.up(t)

	state := l.withApps(t)
	require.NoError(t, os.WriteFile(filepath.Join(state, "namespaces"), []byte("namespace/flux-system\nnamespace/network\n"),
		0o600))
	require.NoError(t, os.WriteFile(filepath.Join(state, "refuse"), nil, 0o600))

	s := l.session(t)
	problem := s.fails(t, diagnosis.ExitKubernetes, diagnosis.AppsApplyRefused, steps.Apps{})
	require.Contains(t, problem.Cause,
		"bootstrap/sops-age.sops.yaml: not applied: kubectl says: Error from server (Invalid)")
	require.NotContains(t, s.out.String(), "AGE-SECRET-KEY")
	require.NotContains(t, contentOf(t, state, "calls"), "AGE-SECRET-KEY")
}

// Which programs are missing, and how each is to be had, is said before anything is begun.
func TestProgramsThatInstallApplicationsAreNamedWhereTheyAreMissing(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.up(t)

	state := l.withApps(t)
	for _, name := range []string{"kubectl", "helmfile", "helm"} {
		require.NoError(t, os.Remove(filepath.Join(l.folder, "bin", name)))
	}

	s := l.session(t)
	s.fails(t, diagnosis.ExitBadInput, diagnosis.AppsProgramMissing, steps.Apps{})

	for _, missing := range []string{"kubectl is not on the PATH [TM411]. Next: install it: https://kubernetes.io",
		"helmfile is not on the PATH [TM411]. Next: install it: https://github.com/helmfile", "helm is not on the PATH"} {
		require.Contains(t, s.err.Error(), missing)
	}

	require.NoFileExists(t, filepath.Join(state, "calls"))
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
