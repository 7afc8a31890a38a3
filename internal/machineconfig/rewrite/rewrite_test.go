package rewrite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/machineconfig/rewrite"
	"github.com/talos-mage/talos-mage/internal/machineconfig/successor"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// samples are values of replaced fields, as they stand in patches; other fields get a text.
var samples = map[string]string{
	"machine.controlPlane.controllerManager.disabled": "true", "machine.controlPlane.scheduler.disabled": "false",
	"machine.kubelet.clusterDNS": "[10.96.0.10]", "machine.kubelet.extraArgs": "{v: '4'}",
	"machine.kubelet.extraMounts":                         "[{source: /a, destination: /a, type: bind}]",
	"machine.kubelet.extraConfig":                         "{maxPods: 200}",
	"machine.kubelet.credentialProviderConfig":            "{kind: CredentialProviderConfig}",
	"machine.kubelet.defaultRuntimeSeccompProfileEnabled": "true", "machine.kubelet.registerWithFQDN": "true",
	"machine.kubelet.nodeIP": "{validSubnets: [192.0.2.0/24]}", "machine.kubelet.skipNodeRegistration": "true",
	"machine.kubelet.disableManifestsDirectory": "false",
	"machine.pods":               "[{apiVersion: v1, kind: Pod, metadata: {name: a}}]",
	"machine.network.interfaces": "[{interface: eth0, dhcp: true}]", "machine.network.nameservers": "[192.0.2.53]",
	"machine.network.searchDomains": "[lan]", "machine.network.disableSearchDomain": "true",
	"machine.network.extraHostEntries": "[{ip: 192.0.2.1, aliases: [a]}]", "machine.network.kubespan.enabled": "true",
	"machine.network.kubespan.advertiseKubernetesNetworks": "true",
	"machine.network.kubespan.allowDownPeerBypass":         "true",
	"machine.network.kubespan.harvestExtraEndpoints":       "true", "machine.network.kubespan.mtu": "1400",
	"machine.network.kubespan.filters": "{endpoints: [0.0.0.0/0]}",
	"machine.disks":                    "[{device: /dev/sdb, partitions: [{mountpoint: /var/mnt/a}]}]",
	"machine.install.diskSelector":     "{size: '>= 100GB', type: ssd}", "machine.install.extraKernelArgs": "[quiet]",
	"machine.install.extensions": "[{image: a}]", "machine.install.wipe": "true", "machine.install.bootloader": "true",
	"machine.install.legacyBIOSSupport": "true", "machine.install.grubUseUKICmdline": "true",
	"machine.files": "[{path: /etc/nfsmount.conf, op: overwrite, permissions: 0o644, content: a}]",
	"machine.env":   "{GRPC_GO_LOG_VERBOSITY_LEVEL: '99'}", "machine.time.disabled": "true",
	"machine.time.servers": "[time.example]", "machine.time.bootTimeout": "2m0s",
	"machine.sysctls": "{a.b: '1'}", "machine.sysfs": "{a.b: '1'}",
	"machine.registries.mirrors":             "{docker.io: {endpoints: [https://mirror.example]}}",
	"machine.registries.config.*.tls":        "{insecureSkipVerify: true}",
	"machine.registries.config.*.auth":       "{username: a}",
	"machine.systemDiskEncryption.state":     "{provider: luks2, keys: [{slot: 0, nodeID: {}}]}",
	"machine.systemDiskEncryption.ephemeral": "{provider: luks2, keys: [{slot: 0, nodeID: {}}]}",
	"machine.features.stableHostname":        "true", "machine.features.kubernetesTalosAPIAccess.enabled": "true",
	"machine.features.kubernetesTalosAPIAccess.allowedRoles":                "[os:reader]",
	"machine.features.kubernetesTalosAPIAccess.allowedKubernetesNamespaces": "[kube-system]",
	"machine.features.kubePrism.enabled":                                    "false",
	"machine.features.kubePrism.port":                                       "7446",
	"machine.features.hostDNS.enabled":                                      "true",
	"machine.features.hostDNS.forwardKubeDNSToHost":                         "true",
	"machine.features.hostDNS.resolveMemberNames":                           "true",
	"machine.features.imageCache.localEnabled":                              "true",
	"machine.udev.rules":                                                    "['a']",
	"machine.kernel.modules":                                                "[{name: nbd, parameters: [nbds_max=4]}]",
	"machine.baseRuntimeSpecOverrides":                                      "{process: {}}",
	"machine.nodeLabels":                                                    "{a: b}",
	"machine.nodeAnnotations":                                               "{a: b}",
	"machine.nodeTaints":                                                    "{a: 'b:NoSchedule'}",
	"cluster.controlPlane.endpoint":                                         "https://192.0.2.10:6443",
	"cluster.controlPlane.localAPIServerPort":                               "6444", "cluster.network.cni.name": "custom",
	"cluster.network.cni.urls":                               "[https://cni.example/cni.yaml]",
	"cluster.network.cni.flannel.extraArgs":                  "[--iface=eth0]",
	"cluster.network.cni.flannel.kubeNetworkPoliciesEnabled": "true",
	"cluster.network.podSubnets":                             "[10.244.0.0/16]",
	"cluster.network.serviceSubnets":                         "[10.96.0.0/12]", "cluster.ca": "{crt: '', key: ''}",
	"cluster.acceptedCAs": "[]", "cluster.serviceAccount.key": "''", "cluster.aggregatorCA": "{crt: '', key: ''}",
	"cluster.apiServer.extraArgs":    "{v: '4', anonymous-auth: 'true'}",
	"cluster.apiServer.extraVolumes": "[{hostPath: /a, mountPath: /a}]", "cluster.apiServer.env": "{A: b}",
	"cluster.apiServer.certSANs":                 "[api.example]",
	"cluster.apiServer.disablePodSecurityPolicy": "true",
	"cluster.apiServer.admissionControl":         "[{name: PodSecurity, configuration: {kind: Config}}]",
	"cluster.apiServer.auditPolicy":              "{apiVersion: audit.k8s.io/v1, kind: Policy}",
	"cluster.apiServer.resources":                "{requests: {cpu: 100m}}",
	"cluster.apiServer.authorizationConfig":      "[{type: Webhook, name: hook, webhook: {timeout: 3s}}]",
	"cluster.controllerManager.extraArgs":        "{v: '4'}",
	"cluster.controllerManager.extraVolumes":     "[]", "cluster.controllerManager.env": "{A: b}",
	"cluster.controllerManager.resources": "{requests: {cpu: 100m}}", "cluster.proxy.disabled": "true",
	"cluster.proxy.extraArgs":        "{metrics-bind-address: '0.0.0.0:10249'}",
	"cluster.scheduler.extraArgs":    "{v: '4'}",
	"cluster.scheduler.extraVolumes": "[]", "cluster.scheduler.env": "{A: b}",
	"cluster.scheduler.resources": "{requests: {cpu: 100m}}",
	"cluster.scheduler.config":    "{profiles: []}", "cluster.discovery.enabled": "false",
	"cluster.discovery.registries.kubernetes.disabled": "true",
	"cluster.discovery.registries.service.disabled":    "true",
	"cluster.discovery.registries.service.endpoint":    "https://discovery.example/",
	"cluster.coreDNS.disabled":                         "true",
	"cluster.extraManifests":                           "[https://manifests.example/a.yaml]",
	"cluster.extraManifestHeaders":                     "{a: b}",
	"cluster.inlineManifests":                          "[{name: a, contents: 'kind: Namespace'}]",
	"cluster.allowSchedulingOnMasters":                 "true", "cluster.allowSchedulingOnControlPlanes": "false",
}

// patchOf is a patch that sets one field.
func patchOf(path, value string) string {
	var lines []string

	keys := strings.Split(strings.ReplaceAll(path, "*", "registry.example"), ".")
	if strings.Contains(path, "*") {
		keys = []string{"machine", "registries", "config", "registry.example", keys[len(keys)-1]}
	}

	for depth, key := range keys {
		lines = append(lines, strings.Repeat("  ", depth)+key+":")
	}

	lines[len(lines)-1] += " " + value

	return strings.Join(lines, "\n") + "\n"
}

// Every field that a document replaces is moved, or it is said what is to be decided, or that it stays; and Talos reads
// what is made. What becomes of each is in the golden file.
func TestEveryField(t *testing.T) {
	var all strings.Builder

	for _, field := range successor.All() {
		value := samples[field.Path]
		if value == "" {
			value = "example"
		}

		patch := patchOf(field.Path, value)

		done, err := rewrite.Strategic(patch, rewrite.Options{Disk: `disk.dev_path == "/dev/sda"`, Discovers: true})
		require.NoError(t, err, field.Path)
		require.Equal(t, 1, len(done.Moved)+len(done.Decisions)+len(done.Kept), field.Path)

		all.WriteString(patch)

		for _, one := range append(done.Decisions, done.Kept...) {
			all.WriteString("# " + one.Why + "\n")
		}

		for _, one := range done.Moved {
			all.WriteString("# " + one.String() + "\n")
		}

		if done.Changed() {
			all.WriteString(done.Text)
		}

		all.WriteString("\n")

		if strings.TrimSpace(done.Text) == "" {
			continue
		}

		_, err = configpatcher.LoadPatch([]byte(done.Text))
		require.NoError(t, err, "%s\n%s", field.Path, done.Text)

		again, err := rewrite.Strategic(done.Text, rewrite.Options{})
		require.NoError(t, err)
		require.False(t, again.Changed(), "%s: rewritten again\n%s", field.Path, done.Text)
	}

	golden.Assert(t, "testdata/fields.txt", all.String())
}

// Comments, quotes, the order of keys, variables, and what no document replaces stay as they are written.
func TestText(t *testing.T) {
	for name, options := range map[string]rewrite.Options{
		"comments":  {SplitRoles: true},
		"anchors":   {},
		"braces":    {SplitRoles: true},
		"documents": {Disk: `disk.dev_path == "/dev/sda"`},
	} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
		require.NoError(t, err)

		done, err := rewrite.Strategic(string(data), options)
		require.NoError(t, err)

		var text strings.Builder

		text.WriteString(done.Text + "=== for control planes\n" + done.ControlPlane)

		for _, one := range done.Moved {
			fmt.Fprintf(&text, "=== %d:%d %s\n", one.Line, one.Column, one)
		}

		for _, one := range append(done.Decisions, done.Kept...) {
			fmt.Fprintf(&text, "=== %d:%d %s: %s\n", one.Line, one.Column, one.Field, one.Why)
		}

		golden.Assert(t, filepath.Join("testdata", name+".golden"), text.String())
	}
}

func TestUndecided(t *testing.T) {
	for patch, field := range map[string]string{
		"machine:\n  kubelet:\n    $patch: delete\n":                                            "machine.kubelet",
		"cluster:\n  apiServer:\n    $$patch: delete\n":                                         "cluster.apiServer",
		"cluster:\n  apiServer:\n    extraArgs:\n      oidc-issuer-url: https://id.example\n":   "cluster.apiServer.extraArgs",
		"cluster:\n  apiServer:\n    extraArgs:\n      authorization-mode: Webhook\n":           "cluster.apiServer.extraArgs",
		"cluster:\n  apiServer:\n    extraArgs:\n      authorization-webhook-config-file: /a\n": "cluster.apiServer.extraArgs",
		"cluster:\n  acceptedCAs:\n    - crt: ${CA}\n":                                          "cluster.acceptedCAs",
		"cluster:\n  proxy:\n    extraArgs:\n      masquerade-all: 'true'\n":                    "cluster.proxy.extraArgs",
		"machine:\n  install:\n    grubUseUKICmdline: false\n":                                  "machine.install.grubUseUKICmdline",
		"machine:\n  install:\n    diskSelector:\n      model: ${MODEL}\n":                      "machine.install.diskSelector",
		"machine:\n  kubelet:\n    extraMounts:\n      - source: /var/a\n":                      "machine.kubelet.extraMounts",
		"cluster:\n  network:\n    cni:\n      name: calico\n":                                  "cluster.network.cni.name",
		"cluster:\n  discovery:\n    registries:\n      kubernetes:\n        disabled: false\n": "cluster.discovery.registries.kubernetes.disabled",
		"cluster:\n  allowSchedulingOnControlPlanes: ${SCHEDULE}\n":                             "cluster.allowSchedulingOnControlPlanes",
	} {
		done, err := rewrite.Strategic(patch, rewrite.Options{})
		require.NoError(t, err)
		require.Len(t, done.Decisions, 1, patch)
		require.Equal(t, field, done.Decisions[0].Field)
		require.Positive(t, done.Decisions[0].Line)
	}
}

// Where discovery is off without the patch, as in a profile, the document switches it on.
func TestDiscoveryThatIsOff(t *testing.T) {
	for section, expected := range map[string]string{
		"{enabled: true}": "endpoint: https://discovery.talos.dev/\n",
		"{enabled: true, registries: {service: {endpoint: https://own.example/}}}": "endpoint: https://own.example/\n",
		"{enabled: true, registries: {service: {disabled: true}}}":                 "$patch: delete\n",
		"{enabled: false}": "$patch: delete\n",
	} {
		done, err := rewrite.Strategic("cluster:\n  discovery: "+section+"\n", rewrite.Options{})
		require.NoError(t, err)
		require.Equal(t, "apiVersion: v1alpha1\nkind: DiscoveryServiceConfig\nname: default\n"+expected, done.Text)
	}
}

// Arguments that other documents own, certificates, and sections that are taken out, as the golden file has them.
func TestWhatWasUndecided(t *testing.T) {
	var all strings.Builder

	for _, patch := range []string{
		`cluster:
  apiServer:
    extraArgs:
      v: "4"
      oidc-issuer-url: https://id.example # ours
      oidc-client-id: kubernetes
`, `cluster:
  apiServer:
    extraArgs:
      # who may log in
      oidc-issuer-url: ${ISSUER}
      oidc-client-id: "kubernetes" # the app
      oidc-username-claim: email
      oidc-groups-claim: groups # of the IdP
      oidc-groups-prefix: "oidc:"
      oidc-required-claim: [hd=example.org, aud=a=b]
      anonymous-auth: "true"
`, `cluster:
  apiServer:
    extraArgs: {oidc-issuer-url: https://id.example, oidc-client-id: a, oidc-username-claim: name, oidc-username-prefix: "-"}
`, `cluster:
  apiServer:
    extraArgs:
      authorization-mode: Node,RBAC
`, `cluster:
  acceptedCAs:
    - crt: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=
`, `cluster:
  proxy:
    extraArgs:
      nodeport-addresses: 192.0.2.0/24,2001:db8::/64
      profiling: "true" # for now
      v: "4"
`, `cluster:
  # nobody is to know of us
  discovery:
    $patch: delete
machine:
  registries:
    $patch: delete
  systemDiskEncryption:
    $$patch: delete
`,
	} {
		done, err := rewrite.Strategic(patch, rewrite.Options{})
		require.NoError(t, err)
		require.Empty(t, done.Decisions, patch)

		_, err = configpatcher.LoadPatch([]byte(strings.ReplaceAll(done.Text, "$$", "$")))
		require.NoError(t, err, done.Text)

		all.WriteString(patch + "=>\n" + done.Text)

		for _, one := range done.Moved {
			fmt.Fprintf(&all, "# %d:%d %s\n", one.Line, one.Column, one)
		}

		all.WriteString("\n")
	}

	golden.Assert(t, "testdata/arguments.txt", all.String())
}

// With the defaults of Talos 1.14 the API server is probed, which needs anonymous calls.
func TestAnonymousCallsWithNewDefaults(t *testing.T) {
	for arguments, expected := range map[string]string{
		`{anonymous-auth: "false"}`:                                "startupProbes: false",
		`{oidc-issuer-url: https://id.example, oidc-client-id: a}`: "- path: /livez",
	} {
		done, err := rewrite.Strategic("cluster:\n  apiServer:\n    extraArgs: "+arguments+"\n",
			rewrite.Options{NewDefaults: true})
		require.NoError(t, err)
		require.Contains(t, done.Text, expected)
	}
}

func TestBrokenPatch(t *testing.T) {
	_, err := rewrite.Strategic("machine:\n  sysctls: {a: 1\n", rewrite.Options{})
	require.Error(t, err)
}

func TestOperations(t *testing.T) {
	for patch, expected := range map[string]string{
		`[{"op": "add", "path": "/machine/kubelet/extraArgs/v", "value": "4"}]`: "machine:\n  kubelet:\n    extraArgs:\n      v: \"4\"\n",
		"- op: remove\n  path: /cluster/apiServer/admissionControl\n":           "cluster:\n  apiServer:\n    admissionControl:\n      $patch: delete\n",
		"- op: add\n  path: /machine/certSANs/-\n  value: a.example\n":          "machine:\n  certSANs:\n    - a.example\n",
		"- op: replace\n  path: /machine/sysctls/net~1a~0b\n  value: '1'\n":     "machine:\n  sysctls:\n    net/a~b: '1'\n",
	} {
		require.True(t, rewrite.IsOperations(patch))

		text, err := rewrite.Operations(patch)
		require.NoError(t, err)
		require.Equal(t, expected, text)
	}

	for _, patch := range []string{
		`[{"op": "test", "path": "/machine/type", "value": "worker"}]`,
		`[{"op": "remove", "path": "/machine/disks/0"}]`,
		`[{"op": "add", "path": "/machine/disks/-/device", "value": "/dev/sda"}]`,
		`[{"op": "replace", "path": "", "value": {}}]`,
		`[{"op": "add", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"}]`,
		`[{"op": "move", "from": "/a", "path": "/b"}]`,
	} {
		_, err := rewrite.Operations(patch)
		require.Error(t, err, patch)
	}

	require.False(t, rewrite.IsOperations("machine: {}\n"))
}
