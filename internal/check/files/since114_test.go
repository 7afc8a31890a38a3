package files_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
)

// on declares another Talos for a cluster, with a Kubernetes that it runs.
func on(talos string, made files) files {
	kubernetes := map[string]string{"v1.12.1": "v1.35.0", "v1.13.9": "v1.36.0", "v1.14.1": "v1.37.0"}[talos]

	return made.replaced("talconfig.yaml", "talosVersion: v1.13.9", "talosVersion: "+talos).
		replaced("talconfig.yaml", "v1.36.0", kubernetes)
}

// trusting is a fragment with which a node is part of a Kubernetes cluster.
const trusting = "ca: {crt: QUJD}"

func TestConfigsWithoutAClusterNetwork(t *testing.T) {
	t.Parallel()

	given := "kind: KubeNetworkConfig\ndnsDomain: cluster.local\npodSubnets: [10.244.0.0/16]\nserviceSubnets: [10.96.0.0/12]"
	image := func(tag string) string {
		return "install:\n\tdisk: /dev/vda\n\timage: factory.talos.dev/metal-installer/" + strings.Repeat("a", 64) + ":" + tag
	}

	judge(t, diagnosis.NoClusterNetwork, map[string]trial{
		"declared": {files: on("v1.14.1", lab(config{cluster: trusting})), line: "cluster:",
			cause: "without that Talos 1.14 starts no kubelet on n1"},
		"installed": {files: lab(config{machine: image("v1.14.1"), cluster: trusting}), line: "cluster:",
			cause: "says nothing of the cluster's network"},
		"documents": {files: on("v1.14.1", lab(config{cluster: trusting, documents: []string{
			"kind: KubeletConfig\nimage: ghcr.io/siderolabs/kubelet:v1.37.0"}})), cause: "starts no kubelet"},
		"a field":       {files: on("v1.14.1", lab(config{cluster: trusting + "\nnetwork: {dnsDomain: cluster.local}"}))},
		"a document":    {files: on("v1.14.1", lab(config{cluster: trusting, documents: []string{given}}))},
		"older Talos":   {files: lab(config{cluster: trusting})},
		"no Kubernetes": {files: on("v1.14.1", lab(config{}))},
	})
}

func TestDocumentsThatOnlyControlPlanesMayHave(t *testing.T) {
	t.Parallel()

	const flannel = "kind: KubeFlannelCNIConfig\nbackendType: vxlan"

	patched := func(list string) files {
		return on("v1.14.1", withList(list)).with("patches/a.yaml", "apiVersion: v1alpha1\n"+flannel+"\n")
	}

	judge(t, diagnosis.ControlPlaneKind, map[string]trial{
		"a worker's config": {files: on("v1.14.1", lab(config{}, config{role: "worker", documents: []string{flannel}})),
			line: "kind: KubeFlannelCNIConfig", cause: "n2 is a worker, and KubeFlannelCNIConfig is for control planes alone"},
		"a patch for all": {files: patched("patches: ['@patches/a.yaml']"), at: "patches/a.yaml",
			cause: "the patch patches/a.yaml has a KubeFlannelCNIConfig, which only control planes may have, and it is for n2"},
		"a patch for workers": {files: patched("worker:\n\tpatches: ['@patches/a.yaml']"), at: "patches/a.yaml",
			cause: "for n2"},
		"a control plane's config":   {files: on("v1.14.1", lab(config{documents: []string{flannel}}))},
		"a patch for control planes": {files: patched("controlPlane:\n\tpatches: ['@patches/a.yaml']")},
		"a document for all": {files: on("v1.14.1", withList("patches: ['@patches/a.yaml']")).with("patches/a.yaml",
			"apiVersion: v1alpha1\nkind: KubeNodeConfig\nlabels: {a: b}\n")},
		"taken out": {files: on("v1.14.1", withList("patches: ['@patches/a.yaml']")).with("patches/a.yaml",
			"apiVersion: v1alpha1\nkind: KubeFlannelCNIConfig\n$patch: delete\n")},
	})
}

func TestJSONPatchesOfConfigsInDocuments(t *testing.T) {
	t.Parallel()

	const operations = "- op: remove\n  path: /machine/kubelet\n"

	for contract, next := range map[string]string{"v1.14": "mage config:migrate", "v1.13": "strategic merge patch"} {
		made := on("v1.14.1", inFile(operations)).with("talenv.yaml", "talosContract: "+contract+"\n")
		found := findingsOf(table.Run(t.Context(), made.read(t)), diagnosis.JSONPatchRefused)
		require.Len(t, found, 1, contract)
		require.Contains(t, found[0].Next, next, contract)
	}
}

// rendered reads files after machine configs were made of them.
func rendered(made files, t testing.TB) *check.Input { //nolint:thelper // as read is called
	t.Helper()

	folder := made.write(t)
	read := reading.New(folder, nil)

	cluster, err := inventory.Load(inventory.Options{TalosDir: folder, Files: read})
	require.NoError(t, err)

	bundle, err := ourSecrets()
	require.NoError(t, err)

	_, err = generate.Configs(generate.Source{Cluster: cluster, Secrets: bundle, Now: time.Now()})

	return check.Read(check.Options{TalosDir: folder, Root: folder, Files: read, Made: check.Made{WhyNot: err}})
}

func TestPatchesWithFieldsThatDocumentsReplaced(t *testing.T) {
	t.Parallel()

	patched := func(contract, patch string) files {
		return on("v1.14.1", inFile(patch)).with("talenv.yaml", "talosContract: "+contract+"\n")
	}

	judgeRead(t, diagnosis.FieldReplaced, map[string]trial{
		"refused": {files: patched("v1.14", "machine:\n\tkubelet:\n\t\tclusterDNS: [192.0.2.53]\n"),
			at: "patches/a.yaml", line: "clusterDNS: [192.0.2.53]",
			cause: "sets machine.kubelet.clusterDNS, which clusterDNS of KubeletConfig replaces with contract v1.14"},
		"without a successor": {files: patched("v1.14", "machine:\n\tkubelet:\n\t\tdisableManifestsDirectory: true\n"),
			at: "patches/a.yaml", cause: "machine.kubelet.disableManifestsDirectory, which nothing replaces"},
		"both are taken": {files: patched("v1.14", "machine:\n\tsysctls: {a.b: c}\n")},
		"a document": {files: patched("v1.14",
			"apiVersion: v1alpha1\nkind: KubeletConfig\nclusterDNS: [192.0.2.53]\n")},
		"the older form": {files: patched("v1.13", "machine:\n\tkubelet:\n\t\tclusterDNS: [192.0.2.53]\n")},
	}, rendered)
}

func TestDocumentsThatAnOlderTalosDoesNotKnow(t *testing.T) {
	t.Parallel()

	kubelet := "kind: KubeletConfig\nimage: ghcr.io/siderolabs/kubelet:v1.36.0"
	image := "ghcr.io/siderolabs/installer:"

	documents := func(tag string, listed ...string) config {
		made := imaged(image + tag)
		made.documents = listed

		return made
	}

	judge(t, diagnosis.ConfigNewer, map[string]trial{
		"1.13": {files: lab(documents("v1.13.9", kubelet)), line: "kind: KubeletConfig",
			cause:    "the config is made for Talos v1.14 (kind: KubeletConfig), and its installer is v1.13.9",
			severity: diagnosis.Failure},
		"a key": {files: lab(documents("v1.13.9", "kind: ResolverConfig\nhostDNS: {enabled: true}")),
			line: "hostDNS: {enabled: true}", cause: "made for Talos v1.14 (hostDNS)"},
		"1.14": {files: on("v1.14.1", lab(documents("v1.14.1", kubelet)))},
	})
}

func TestInstallersThatAreNoLongerPublished(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.InstallerReference, map[string]trial{
		"at its place": {files: on("v1.14.1", lab(imaged("ghcr.io/siderolabs/installer:v1.14.1"))),
			cause: "it is published up to v1.13 only"},
		"a mirror's": {files: on("v1.14.1", lab(imaged("harbor.example.net/ghcr.io/siderolabs/installer:v1.14.1"))),
			line:  "image: harbor.example.net/ghcr.io/siderolabs/installer:v1.14.1",
			cause: "if it is a copy of ghcr.io/siderolabs/installer, there is nothing to copy", severity: diagnosis.Warning},
		"declared": {files: on("v1.14.1", declaring("talosImageURL: ghcr.io/siderolabs/installer", config{})).without(
			"clusterconfig/lab-n1.yaml"), at: "talconfig.yaml", cause: "published up to v1.13"},
		"of before": {files: lab(imaged("harbor.example.net/ghcr.io/siderolabs/installer:v1.13.9"))},
		"one's own": {files: on("v1.14.1", lab(imaged("registry.example.net/talos/installer:v1.14.1")))},
		"a factory's": {files: on("v1.14.1", lab(imaged("factory.talos.dev/metal-installer/"+strings.Repeat("a", 64)+
			":v1.14.1")))},
	})

	const comment = "# renovate: datasource=docker depName=ghcr.io/siderolabs/installer\n"

	watched := func(talos, comment string) files {
		return on(talos, lab(config{}).replaced("talconfig.yaml", "talosVersion:", comment+"talosVersion:"))
	}

	judge(t, diagnosis.RenovateInstaller, map[string]trial{
		"1.14": {files: watched("v1.14.1", comment), at: "talconfig.yaml", line: strings.TrimSpace(comment),
			cause: "published up to v1.13 only: it proposes nothing any more"},
		"variables": {files: on("v1.14.1", lab(config{})).with("talenv.yaml", comment+"talosVersion: v1.14.1\n"),
			at: "talenv.yaml", cause: "up to v1.13 only"},
		"1.13": {files: watched("v1.13.9", comment), at: "talconfig.yaml", line: strings.TrimSpace(comment),
			cause:    "it proposes releases of up to v1.13, and never a newer one",
			severity: diagnosis.Warning},
		"releases": {files: watched("v1.14.1",
			"# renovate: datasource=github-releases depName=siderolabs/talos\n")},
		"the kubelet": {files: watched("v1.14.1", "# renovate: datasource=docker depName=ghcr.io/siderolabs/kubelet\n")},
	})
}

func TestKernelArgumentsThatAreDefaultNow(t *testing.T) {
	t.Parallel()

	made := func(talos, argument, spec string) files {
		return on(talos, declaring("machineSpec: "+spec+"\nschematic:\n\tcustomization:\n\t\textraKernelArgs: ["+argument+
			"]", config{}))
	}

	judge(t, diagnosis.KernelArgsIdle, map[string]trial{
		"taken out": {files: made("v1.14.1", "-lockdown", "{secureboot: true}"), at: "talconfig.yaml",
			cause: "-lockdown takes out an argument that images of Talos 1.14 do not have"},
		"init_on_alloc": {files: made("v1.14.1", "-init_on_alloc=1", "{mode: metal}"), at: "talconfig.yaml",
			cause: "-init_on_alloc=1 takes out"},
		"integrity": {files: made("v1.14.1", "lockdown=integrity", "{secureboot: true}"), at: "talconfig.yaml",
			cause: "lockdown=integrity is what SecureBoot brings by itself"},
		"without SecureBoot": {files: made("v1.14.1", "lockdown=integrity", "{mode: metal}")},
		"confidentiality":    {files: made("v1.14.1", "lockdown=confidentiality", "{secureboot: true}")},
		"on AWS":             {files: made("v1.14.1", "-nvme_core.io_timeout", "{mode: aws}")},
		"older Talos":        {files: made("v1.13.9", "-lockdown", "{secureboot: true}")},
	})
}

func TestThePortThatEtcdsMetricsMovedTo(t *testing.T) {
	t.Parallel()

	metrics := func(url string) config {
		return config{cluster: "etcd:\n\textraArgs:\n\t\tlisten-metrics-urls: " + url}
	}

	judge(t, diagnosis.EtcdMetricsURL, map[string]trial{
		"1.14": {files: on("v1.14.1", lab(metrics("http://0.0.0.0:2383"))), cause: "port 2383 is etcd's own"},
		"1.13": {files: lab(metrics("http://0.0.0.0:2383"))},
		"2381": {files: on("v1.14.1", lab(metrics("http://0.0.0.0:2381")))},
	})

	own := config{cluster: "etcd:\n\textraArgs: {tls-min-version: TLS1.2}"}

	judge(t, diagnosis.ArgumentRefused, map[string]trial{
		"1.14": {files: on("v1.14.1", lab(own)), cause: "Talos sets --tls-min-version of etcd itself"},
		"1.13": {files: lab(own)},
	})

	walled := func(talos string, documents ...string) files {
		made := onLink("addresses: [192.0.2.11/24]")
		made.documents = documents

		return on(talos, lab(made))
	}
	monitored := opens("etcd", "2379", "tcp", "192.0.2.0/24", "203.0.113.0/24")

	judge(t, diagnosis.FirewallEtcdHTTP, map[string]trial{
		"monitoring": {files: walled("v1.14.1", blocking, monitored), line: "ingress:",
			cause: "lets others than control planes in at etcd's port 2379, whose metrics moved to 2383"},
		"open by default": {files: walled("v1.14.1", opens("etcd", "2379-2380", "tcp", "192.0.2.0/24")),
			cause: "Talos 1.14 opens port 2383 beside it, to everybody"},
		"members alone": {files: walled("v1.14.1", blocking, opens("etcd", "2379-2380", "tcp", "192.0.2.0/24"))},
		"moved":         {files: walled("v1.14.1", blocking, monitored, opens("http", "2383", "tcp", "203.0.113.0/24"))},
		"a span":        {files: walled("v1.14.1", blocking, opens("etcd", "2379-2383", "tcp", "203.0.113.0/24"))},
		"1.13":          {files: walled("v1.13.9", blocking, monitored)},
	})
}
