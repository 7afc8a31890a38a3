package talosctl_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/talos/talosctl"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// pretender is a talosctl that is a shell script.
func pretender(t *testing.T, script string) talosctl.Talosctl {
	t.Helper()

	folder := t.TempDir()
	require.NoError(t, tool.WriteProgram(filepath.Join(folder, "talosctl"), []byte("#!/bin/sh\n"+script)))

	return talosctl.Talosctl{Programs: program.Runner{Environ: []string{"PATH=" + folder + ":/usr/bin:/bin"}, Dir: folder},
		Talosconfig: "/etc/talosconfig"}
}

func TestTheVersionIsThatOfTheProgram(t *testing.T) {
	t.Parallel()

	for output, want := range map[string]string{
		"Client:\nTalos v1.14.1\n":              "v1.14.1",
		"Client:\n\tTag:         v1.13.9\n":     "v1.13.9",
		"Client:\nTalos v1.15.0-beta.1\n":       "v1.15.0-beta.1",
		"usage: talosctl\n":                     "",
		"Client:\nTalos is not what you want\n": "",
	} {
		version, err := pretender(t, "printf '"+strings.ReplaceAll(output, "\n", `\n`)+"'").Version(t.Context())
		require.Equal(t, want, version)
		require.Equal(t, want == "", err != nil)
	}

	_, err := talosctl.Talosctl{Programs: program.Runner{Environ: []string{"PATH=" + t.TempDir()}}}.Version(t.Context())
	require.ErrorIs(t, err, program.ErrMissing)
}

// upgradeOutput is what talosctl v1.14.1 prints, with the parts of each kind.
const upgradeOutput = `automatically detected the lowest Kubernetes version 1.36.3
discovered controlplane nodes ["10.0.0.11"]
> "10.0.0.11": Talos version 1.14.1 is compatible with Kubernetes version 1.37.0
checking for removed Kubernetes component flags
 > "10.0.0.11": pre-pulling registry.k8s.io/kube-apiserver:v1.37.0
updating "kube-apiserver" to version "1.37.0"
 > "10.0.0.11": starting update
 > update kube-apiserver: 1.36.3 -> 1.37.0
 > "10.0.0.11": machine configuration patched
 < "10.0.0.11": successfully updated
updating kube-proxy to version "1.37.0"
 > "10.0.0.11": starting update
updating manifests
 < configured DaemonSet/kube-system/kube-proxy
--- a/v1.Secret/kube-system/token
+++ b/v1.Secret/kube-system/token
-  token: old
+  token: new
 > skipped ConfigMap/kube-system/coredns: no changes
waiting for kubernetes objects to be fully reconciled
done
`

func TestTheOutputIsToldWithoutDiffs(t *testing.T) {
	t.Parallel()

	client := pretender(t, "cat <<'END'\n"+upgradeOutput+"END\nprintf '%s ' \"$@\" > arguments\n")

	var lines []talosctl.Line

	require.NoError(t, client.UpgradeKubernetes(t.Context(),
		talosctl.KubernetesUpgrade{Endpoint: "10.0.0.11:50000", Node: "10.0.0.11", To: "v1.37.0", DryRun: true},
		func(line talosctl.Line) { lines = append(lines, line) }))

	arguments, err := os.ReadFile(filepath.Join(client.Programs.Dir, "arguments"))
	require.NoError(t, err)
	require.Equal(t, "upgrade-k8s --talosconfig /etc/talosconfig --endpoints 10.0.0.11:50000 --nodes 10.0.0.11 "+
		"--to 1.37.0 --with-docs=false --with-examples=false --dry-run --pre-pull-images=false ", string(arguments))

	const node, server, proxy = "10.0.0.11", "kube-apiserver", "kube-proxy"

	require.Equal(t, []talosctl.Line{
		{Text: "automatically detected the lowest Kubernetes version 1.36.3"},
		{Text: `discovered controlplane nodes ["10.0.0.11"]`},
		{Text: "checking for removed Kubernetes component flags"},
		{Node: node, Text: "pre-pulling registry.k8s.io/kube-apiserver:v1.37.0"},
		{Component: server, Text: "updating kube-apiserver"},
		{Component: server, Node: node, Text: "starting update"},
		{Kind: talosctl.Planned, Component: server, Node: node, Text: "v1.36.3 -> v1.37.0"},
		{Component: server, Node: node, Text: "machine configuration patched"},
		{Kind: talosctl.Updated, Component: server, Node: node, Text: "successfully updated"},
		{Component: proxy, Text: "updating kube-proxy"},
		{Component: proxy, Node: node, Text: "starting update"},
		{Component: "manifests", Text: "updating manifests"},
		{Kind: talosctl.Manifest, Component: "manifests", Text: "configured DaemonSet/kube-system/kube-proxy"},
		{Component: "manifests", Text: "waiting for kubernetes objects to be fully reconciled"},
	}, lines)
}

func TestAFailureTellsWhereItIs(t *testing.T) {
	t.Parallel()

	for complaint, want := range map[string][2]string{
		`failed updating service "kube-scheduler": error updating node "10.0.0.12": context deadline exceeded`: {
			"kube-scheduler", "10.0.0.12"},
		`failed upgrading kubelet: error updating node "10.0.0.21": kubelet is not healthy`: {"kubelet", "10.0.0.21"},
		`failed pre-pulling images: error pre-pulling x:v1.37.0 on 10.0.0.13: not found`:    {"", "10.0.0.13"},
		`error fetching controlplane nodes: connection refused`:                             {"", ""},
	} {
		err := pretender(t, "echo '"+complaint+"' >&2; exit 1").UpgradeKubernetes(t.Context(),
			talosctl.KubernetesUpgrade{}, func(talosctl.Line) {})

		var failed *talosctl.Failure

		require.ErrorAs(t, err, &failed)
		require.Equal(t, want, [2]string{failed.Component, failed.Node}, complaint)
		require.Contains(t, failed.Complaint, complaint)
		require.False(t, errors.Is(err, program.ErrMissing))
	}
}
