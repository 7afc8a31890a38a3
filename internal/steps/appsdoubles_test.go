package steps_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/tool"
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
		require.NoError(t, tool.WriteProgram(filepath.Join(l.folder, "bin", name),
			[]byte("#!/bin/bash\nSTATE="+state+"\necho \""+name+" $*\" >>\"$STATE/calls\"\n"+killsCaller+text+"\n")))
	}

	return state
}
