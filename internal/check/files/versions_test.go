package files_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// tagged is a control plane with an installer of a version, and Kubernetes of another; an empty one is left out.
func tagged(talos, kubernetes string, documents ...string) config {
	made := config{documents: documents}

	if talos != "" {
		made = imaged("ghcr.io/siderolabs/installer:" + talos)
		made.documents = documents
	}

	if kubernetes != "" {
		made.machine += "\nkubelet:\n\timage: ghcr.io/siderolabs/kubelet:" + kubernetes
		made.cluster = "apiServer:\n\timage: registry.k8s.io/kube-apiserver:" + kubernetes
	}

	return made
}

func declaredVersions(talos, kubernetes string, configs ...config) files {
	return lab(configs...).replaced("talconfig.yaml", "talosVersion: v1.13.9",
		"talosVersion: "+talos).replaced("talconfig.yaml", "v1.36.0", kubernetes)
}

func TestConfigsOfOtherVersionsThanTheirTalos(t *testing.T) {
	t.Parallel()

	const hostname = "kind: HostnameConfig\nhostname: n1"

	newField := imaged("ghcr.io/siderolabs/installer:v1.11.6", "grubUseUKICmdline: true")

	judge(t, diagnosis.ConfigNewer, map[string]trial{
		"document": {files: lab(tagged("v1.11.6", "", hostname)), line: "kind: HostnameConfig",
			cause: "the config is made for Talos v1.12 (kind: HostnameConfig), and its installer is v1.11.6, which would " +
				"refuse it", severity: diagnosis.Failure},
		"field": {files: lab(newField), line: "grubUseUKICmdline: true", cause: "machine.install.grubUseUKICmdline",
			severity: diagnosis.Failure},
		"several": {files: lab(tagged("v1.9.5", "", hostname, "kind: VRFConfig\nname: blue\ntable: 10")),
			cause: "made for Talos v1.13 (kind: HostnameConfig, and 1 more)"},
		"declared": {files: declaredVersions("v1.11.6", "v1.34.0", tagged("", "", hostname)),
			cause: "talosVersion is v1.11.6", severity: diagnosis.Warning},
		"the same": {files: lab(tagged("v1.12.1", "", hostname))},
		"own image": {files: lab(config{machine: "install:\n\timage: registry.example.net/talos:v1.11.6",
			documents: []string{hostname}})},
		"newer yet":  {files: declaredVersions("v1.14.0", "v1.36.0", tagged("v1.14.0", "", hostname))},
		"undeclared": {files: lab(tagged("", "", hostname)).replaced("talconfig.yaml", "talosVersion: v1.13.9\n", "")},
	})

	older := imaged("ghcr.io/siderolabs/installer:v1.11.6")
	older.machine += "\nfeatures: {rbac: true}"
	deleted := imaged("ghcr.io/siderolabs/installer:v1.13.9", "grubUseUKICmdline: true")
	deleted.machine += "\nfeatures: {rbac: true}"

	judge(t, diagnosis.ConfigOlder, map[string]trial{
		"older": {files: lab(older), line: "features: {rbac: true}",
			cause: "made for Talos 1.11 or older, and talosVersion is v1.13.9", severity: diagnosis.Warning},
		"declared":      {files: declaredVersions("v1.11.6", "v1.34.0", older)},
		"with UKI":      {files: lab(deleted)},
		"with document": {files: lab(config{machine: older.machine, documents: []string{hostname}})},
	})
}

func TestVersionsOfNodes(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.InstallerVersionsDiffer, map[string]trial{
		"one behind": {files: lab(tagged("v1.13.9", ""), tagged("v1.13.9", ""), tagged("v1.13.8", "")),
			line:  "image: ghcr.io/siderolabs/installer:v1.13.8",
			cause: "the installer of n3 is v1.13.8, and that of most nodes v1.13.9"},
		"one of each": {files: lab(tagged("v1.13.10", ""), tagged("v1.13.9", "")),
			line: "image: ghcr.io/siderolabs/installer:v1.13.9", cause: "most nodes v1.13.10"},
		"alike":     {files: lab(tagged("v1.13.9", ""), imaged(factory("metal-installer", plainID)))},
		"own image": {files: lab(tagged("v1.13.9", ""), imaged("registry.example.net/talos:v1.2.3"))},
	})

	worker := func(kubernetes string) config {
		return config{role: "worker", machine: "kubelet:\n\timage: ghcr.io/siderolabs/kubelet:" + kubernetes}
	}
	scheduler := tagged("", "v1.35.2")
	scheduler.cluster += "\nscheduler:\n\timage: registry.k8s.io/kube-scheduler:v1.33.2"

	judge(t, diagnosis.KubernetesSkew, map[string]trial{
		"kubelet newer": {files: lab(tagged("", "v1.35.2"), worker("v1.36.0")),
			line:  "image: ghcr.io/siderolabs/kubelet:v1.36.0",
			cause: "the kubelet of n2 is v1.36.0, and newer than an API server, which is v1.35.2"},
		"kubelet older": {files: lab(tagged("", "v1.36.0"), worker("v1.32.1")), cause: "too old for API servers of v1.36.0"},
		"scheduler": {files: lab(scheduler), line: "image: registry.k8s.io/kube-scheduler:v1.33.2",
			cause: "the kube-scheduler of n1 is v1.33.2, and too old"},
		"in between":    {files: lab(tagged("", "v1.36.0"), worker("v1.33.1"))},
		"a patch newer": {files: lab(tagged("", "v1.36.0"), worker("v1.36.3"))},
		"no images":     {files: lab(config{}, config{role: "worker"})},
	})

	judge(t, diagnosis.KubernetesNotDeclared, map[string]trial{
		"older": {files: lab(tagged("", "v1.35.2")), line: "image: ghcr.io/siderolabs/kubelet:v1.35.2",
			cause: "the kubelet of n1 is v1.35.2, and kubernetesVersion is v1.36.0"},
		"newer": {files: lab(tagged("", "v1.36.1")), cause: "v1.36.1"},
		"by a patch of its own": {files: lab(tagged("", "v1.36.1")).with("kubelet.yaml",
			"machine: {kubelet: {image: \"ghcr.io/siderolabs/kubelet:v1.36.1\"}}\n").replaced("talconfig.yaml", "nodes:",
			"patches: ['@kubelet.yaml']\nnodes:")},
		"the same": {files: lab(tagged("", "v1.36.0"), config{})},
	})

	judge(t, diagnosis.ConfigKubernetes, map[string]trial{
		"too new": {files: lab(tagged("v1.12.1", "v1.36.0")), line: "image: ghcr.io/siderolabs/kubelet:v1.36.0",
			cause:    "the kubelet is v1.36.0, and its installer is v1.12.1: Kubernetes v1.36.0 is too new",
			severity: diagnosis.Failure},
		"too old":  {files: lab(tagged("v1.13.9", "v1.30.1")), cause: "too old"},
		"declared": {files: lab(tagged("", "v1.29.0")), cause: "talosVersion is v1.13.9"},
		"together": {files: lab(tagged("v1.12.1", "v1.35.0"), tagged("", "v1.36.0"))},
		"unknown":  {files: lab(tagged("v1.99.0", "v1.29.0"))},
	})
}

func TestWaysFromVersionToVersion(t *testing.T) {
	t.Parallel()

	from := func(installer, declared string) files {
		return declaredVersions(declared, "v1.34.0", tagged(installer, ""))
	}

	judge(t, diagnosis.TalosUpgradePath, map[string]trial{
		"too far": {files: from("v1.9.6", "v1.13.9"), line: "image: ghcr.io/siderolabs/installer:v1.9.6",
			cause: "from the installer v1.9.6 of n1 to talosVersion v1.13.9: the installer refuses that: Talos " +
				"v1.9.6 is too old"},
		"two":       {files: from("v1.11.6", "v1.13.9"), cause: "it is 2 minor versions"},
		"back":      {files: from("v1.13.9", "v1.10.4"), cause: "Talos v1.13.9 is too new for it"},
		"next":      {files: from("v1.12.6", "v1.13.9")},
		"patch":     {files: from("v1.13.2", "v1.13.9")},
		"back once": {files: from("v1.13.9", "v1.12.6")},
		"unknown":   {files: from("v1.9.6", "v1.99.0")},
	})

	judge(t, diagnosis.KubernetesUpgradePath, map[string]trial{
		"skipped": {files: lab(tagged("", "v1.33.4")), line: "image: ghcr.io/siderolabs/kubelet:v1.33.4",
			cause: "it is 3 minor versions, and Kubernetes goes one at a time"},
		"back": {files: declaredVersions("v1.13.9", "v1.34.0", tagged("", "v1.35.2")),
			cause: "kubernetesVersion v1.34.0 is older than the v1.35.2 of n1"},
		"next":  {files: lab(tagged("", "v1.35.2"))},
		"patch": {files: lab(tagged("", "v1.36.1"))},
	})

	found := findingsOf(table.Run(context.Background(), lab(tagged("", "v1.33.4")).read(t)),
		diagnosis.KubernetesUpgradePath)
	require.Equal(t, "upgrade to v1.34 first", found[0].Next)
}

func TestTheInstallerOfANodeThatRunsAnotherTalos(t *testing.T) {
	t.Parallel()

	running := func(version string) check.Facts { return check.Facts{Version: version, Installed: true} }
	judged := func(facts check.Facts, installer string) []diagnosis.Finding {
		return lived(t, tagged(installer, ""), facts, diagnosis.NodeUpgradePath)
	}

	for name, test := range map[string]struct {
		facts            check.Facts
		installer, cause string
	}{
		"too old": {running("v1.9.6"), "v1.13.9",
			"the node runs Talos v1.9.6, and its installer is v1.13.9: the installer refuses that"},
		"skipped":    {running("v1.11.6"), "v1.13.9", "it is 2 minor versions"},
		"too new":    {running("v1.13.9"), "v1.9.6", "too new for it"},
		"back":       {running("v1.13.9"), "v1.12.6", "an upgrade with it goes back"},
		"configured": {check.Facts{Version: "v1.13.9", State: talos.Ours}, "v1.13.2", "goes back"},
		"booted": {check.Facts{Version: "v1.13.2"}, "v1.12.6",
			"was booted from Talos v1.13.2, and its older installer v1.12.6"},
	} {
		found := judged(test.facts, test.installer)
		require.Len(t, found, 1, name)
		require.Contains(t, found[0].Cause, test.cause, name)
		require.Equal(t, diagnosis.Warning, found[0].Severity, name)
	}

	require.Empty(t, judged(running("v1.12.6"), "v1.13.9"))
	require.Empty(t, judged(running("v1.13.9"), "v1.13.9"))
	require.Empty(t, judged(check.Facts{Version: "v1.9.6"}, "v1.13.9"), "it is not installed yet")
	require.Empty(t, judged(check.Facts{}, "v1.13.9"))
	require.Empty(t, judged(running("v1.9.6"), ""))
}

func TestDeclaredVersions(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.TalosVersionUnknown, map[string]trial{
		"newer": {files: declaredVersions("v1.15.0", "v1.36.0", config{}), at: "talconfig.yaml",
			line: "talosVersion: v1.15.0", cause: "talosVersion v1.15.0 is not known here", severity: diagnosis.Warning},
		"older": {files: declaredVersions("v1.4.8", "v1.27.0", config{}), cause: "v1.4.8"},
		"known": {files: declaredVersions("v1.5.0", "v1.27.0", config{})},
		"1.14":  {files: declaredVersions("v1.14.1", "v1.37.0", config{})},
	})

	judge(t, diagnosis.VersionIncomplete, map[string]trial{
		"Talos": {files: declaredVersions("v1.13", "v1.36.0", config{}), at: "talconfig.yaml",
			line: "talosVersion: v1.13", cause: "talosVersion is v1.13, and no image has such a tag"},
		"Kubernetes": {files: declaredVersions("v1.13.9", "v1.36", config{}), line: "kubernetesVersion: v1.36",
			cause: "kubernetesVersion is v1.36"},
		"word":  {files: declaredVersions("latest", "v1.36.0", config{}), cause: "vlatest"},
		"whole": {files: declaredVersions("v1.13.0-beta.1", "1.36.0", config{})},
	})
}
