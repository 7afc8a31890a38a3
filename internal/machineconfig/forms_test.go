package machineconfig_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"text/template"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// One control plane and one worker, as fields of the document without a kind and as documents that replace them.
const (
	inFields = `version: v1alpha1
machine:
  type: {{.Role}}
  token: abcdef.0123456789abcdef
  ca: {crt: {{base64 .Certs.OS.Crt}}{{if eq .Role "controlplane"}}, key: {{base64 .Certs.OS.Key}}{{end}}}
  certSANs: [cp.example.com]
  kubelet:
    image: ghcr.io/siderolabs/kubelet:v1.36.2
    clusterDNS: [10.43.0.10]
    extraArgs: {feature-gates: A=true}
    extraConfig: {maxPods: 200}
    registerWithFQDN: true
    nodeIP: {validSubnets: [192.0.2.0/24, "!192.0.2.9/32"]}
  network:
    hostname: node.example.com
  install:
    image: factory.talos.dev/metal-installer-secureboot/376567:v1.14.1
    diskSelector: {serial: S7}
    grubUseUKICmdline: true
  features:
    kubePrism: {enabled: true, port: 7445}
    hostDNS: {enabled: true, forwardKubeDNSToHost: true}
  nodeLabels: {topology.kubernetes.io/zone: a}
  nodeTaints: {dedicated: gpu:NoSchedule}
  nodeAnnotations: {note: x}
cluster:
  id: YWJjZGVmMDEyMzQ1Njc4OTAxMjM0NTY3ODlhYmNkZWY=
  secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=
  token: fedcba.0123456789abcdef
  clusterName: demo
  controlPlane: {endpoint: https://192.0.2.10:6443}
  network:
    dnsDomain: k8s.example.com
    podSubnets: [10.42.0.0/16]
    serviceSubnets: [10.43.0.0/16]
{{- if eq .Role "controlplane"}}
    cni: {name: none}
  ca: {crt: {{base64 .Certs.K8s.Crt}}, key: {{base64 .Certs.K8s.Key}}}
  aggregatorCA: {crt: {{base64 .Certs.K8sAggregator.Crt}}, key: {{base64 .Certs.K8sAggregator.Key}}}
  serviceAccount: {key: {{base64 .Certs.K8sServiceAccount.Key}}}
  secretboxEncryptionSecret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=
  aescbcEncryptionSecret: YWJjZGVmMDEyMzQ1Njc4OTAxMjM0NTY3ODlhYmNkZWY=
  allowSchedulingOnControlPlanes: true
  apiServer:
    image: registry.k8s.io/kube-apiserver:v1.36.2
    certSANs: [api.example.com]
    extraArgs: {audit-log-maxage: "7"}
  controllerManager:
    image: registry.k8s.io/kube-controller-manager:v1.36.2
    extraArgs: {bind-address: 0.0.0.0}
  scheduler:
    image: registry.k8s.io/kube-scheduler:v1.36.2
    extraArgs: {bind-address: 0.0.0.0}
  proxy:
    image: registry.k8s.io/kube-proxy:v1.36.2
    mode: nftables
  etcd: {ca: {crt: {{base64 .Certs.Etcd.Crt}}, key: {{base64 .Certs.Etcd.Key}}}}
  inlineManifests: [{name: a, contents: "kind: A"}]
{{- else}}
  ca: {crt: {{base64 .Certs.K8s.Crt}}}
{{- end}}
`

	inDocuments = `version: v1alpha1
machine:
  type: {{.Role}}
  token: abcdef.0123456789abcdef
  ca: {crt: {{base64 .Certs.OS.Crt}}{{if eq .Role "controlplane"}}, key: {{base64 .Certs.OS.Key}}{{end}}}
  certSANs: [cp.example.com]
cluster:
  token: fedcba.0123456789abcdef
{{- if eq .Role "controlplane"}}
  etcd: {ca: {crt: {{base64 .Certs.Etcd.Crt}}, key: {{base64 .Certs.Etcd.Key}}}}
{{- end}}
---
apiVersion: v1alpha1
kind: HostnameConfig
hostname: node.example.com
auto: off
---
apiVersion: v1alpha1
kind: UnattendedInstallConfig
installer: {image: "factory.talos.dev/metal-installer-secureboot/376567:v1.14.1"}
provisioning:
  diskSelector:
    match: glob("S7", disk.serial) && disk.transport != "" && !disk.readonly && !disk.cdrom
---
apiVersion: v1alpha1
kind: ResolverConfig
hostDNS: {enabled: true, forwardKubeDNSToHost: true}
---
apiVersion: v1alpha1
kind: DiscoveryIdentityConfig
clusterID: YWJjZGVmMDEyMzQ1Njc4OTAxMjM0NTY3ODlhYmNkZWY=
clusterSecret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=
---
apiVersion: v1alpha1
kind: KubeClusterConfig
clusterName: demo
endpoint: https://192.0.2.10:6443
---
apiVersion: v1alpha1
kind: KubeNodeConfig
registerWithFQDN: true
nodeIP: {validSubnets: [192.0.2.0/24, "!192.0.2.9/32"]}
labels:
  topology.kubernetes.io/zone: a
{{- if eq .Role "controlplane"}}
  node-role.kubernetes.io/control-plane: ""
{{- end}}
annotations: {note: x}
taints: {dedicated: gpu:NoSchedule}
---
apiVersion: v1alpha1
kind: KubeletConfig
image: ghcr.io/siderolabs/kubelet:v1.36.2
clusterDNS: [10.43.0.10]
extraArgs: {feature-gates: A=true}
config: {maxPods: 200}
---
apiVersion: v1alpha1
kind: KubeNetworkConfig
dnsDomain: k8s.example.com
podSubnets: [10.42.0.0/16]
serviceSubnets: [10.43.0.0/16]
---
apiVersion: v1alpha1
kind: KubePrismConfig
port: 7445
---
apiVersion: v1alpha1
kind: KubeAPIServerCAConfig
{{- if eq .Role "controlplane"}}
issuingCA:
  cert: {{text .Certs.K8s.Crt}}
  key: {{text .Certs.K8s.Key}}
---
apiVersion: v1alpha1
kind: KubeAggregatorCAConfig
issuingCA:
  cert: {{text .Certs.K8sAggregator.Crt}}
  key: {{text .Certs.K8sAggregator.Key}}
---
apiVersion: v1alpha1
kind: KubeServiceAccountConfig
issuer:
  privateKey: {{text .Certs.K8sServiceAccount.Key}}
  issuerURL: https://192.0.2.10:6443
---
apiVersion: v1alpha1
kind: KubeEtcdEncryptionConfig
config:
  resources:
    - resources: [secrets]
      providers:
        - secretbox: {keys: [{name: key2, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
        - aescbc: {keys: [{name: key1, secret: YWJjZGVmMDEyMzQ1Njc4OTAxMjM0NTY3ODlhYmNkZWY=}]}
        - identity: {}
---
apiVersion: v1alpha1
kind: KubeAPIServerConfig
image: registry.k8s.io/kube-apiserver:v1.36.2
certExtraSANs: [api.example.com]
extraArgs: {audit-log-maxage: "7"}
---
apiVersion: v1alpha1
kind: KubeControllerManagerConfig
image: registry.k8s.io/kube-controller-manager:v1.36.2
extraArgs: {bind-address: 0.0.0.0}
---
apiVersion: v1alpha1
kind: KubeSchedulerConfig
image: registry.k8s.io/kube-scheduler:v1.36.2
extraArgs: {bind-address: 0.0.0.0}
---
apiVersion: v1alpha1
kind: KubeProxyConfig
image: registry.k8s.io/kube-proxy:v1.36.2
mode: nftables
---
apiVersion: v1alpha1
kind: KubeInlineManifestConfig
name: a
manifest: "kind: A"
{{- else}}
acceptedCAs: [{{text .Certs.K8s.Crt}}]
{{- end}}
`
)

// notTheSame are the accessors, or what they give, that tell the forms apart, and why.
var notTheSame = map[string]string{
	"TalosContract":                      "documents are of the release that brought them",
	"InDocuments":                        "it tells the form",
	"IsUnattended":                       "installing by a document is another way",
	"DecidesUKICmdline":                  "it is about a field that no document has",
	"OlderHostname":                      "it is the field's",
	"CNI on a worker":                    "documents say it on control planes alone",
	"InlineManifests[0].Document":        "where it stands",
	"InlineManifests[0].Key":             "where it stands",
	"APIServer.ExtraVolumes":             "a default of documents",
	"APIServer.InjectDefaultAuthorizers": "documents name all authorizers",
	"APIServer.StartupProbesEnabled":     "a default of documents",
	"Kubelet.DisableManifestsDirectory":  "documents always do",
	"APIServer.UseAuthenticationConfig":  "the document for it has no older form",
	"Proxy.UseConfigFile":                "the document is written as a file",
}

func TestAccessorsAnswerAlikeInBothForms(t *testing.T) {
	t.Parallel()

	bundle, err := clusterfiles.Secrets()
	require.NoError(t, err)

	idle := maps.Clone(notTheSame)

	for _, role := range []string{"controlplane", "worker"} {
		older, newer := facts(t, inFields, role, bundle), facts(t, inDocuments, role, bundle)

		var differing []string

		for name, answer := range older {
			if answer == newer[name] {
				continue
			}

			delete(idle, name)
			delete(idle, name+" on a "+role)

			if notTheSame[name] == "" && notTheSame[name+" on a "+role] == "" {
				differing = append(differing, fmt.Sprintf("%s: %s, and in documents %s", name, answer, newer[name]))
			}
		}

		require.Empty(t, differing, role)

		require.Equal(t, "true", older["HasInstall"])
		require.Equal(t, "[192.0.2.0/24 !192.0.2.9/32]", older["Node.NodeIP.ValidSubnets"])
		require.Equal(t, "map[topology.kubernetes.io/zone:a]", newer["NodeLabels"])
		require.Equal(t, "map[dedicated:gpu:NoSchedule]", newer["NodeTaints"])
	}

	require.Empty(t, idle, "they answer alike")
}

// facts are all answers of a config's accessors, as text, by their names. Of an interface all methods are asked.
func facts(t *testing.T, form, role string, bundle *secrets.Bundle) map[string]string {
	t.Helper()

	encode := base64.StdEncoding.EncodeToString
	quote := func(text []byte) string { return fmt.Sprintf("%q", text) }
	parsed := template.Must(template.New("").Funcs(template.FuncMap{"base64": encode, "text": quote}).Parse(form))

	var text bytes.Buffer

	require.NoError(t, parsed.Execute(&text, struct {
		*secrets.Bundle

		Role string
	}{bundle, role}))

	config := mustConfig(t, text.Bytes())

	_, err := config.Validate(machineconfig.Mode{Metal: true})
	require.NoError(t, err)

	found := map[string]string{}
	ask(found, "", reflect.ValueOf(config))

	return found
}

// ask records what the methods of a value give that need no argument, and what the fields of its answers hold.
func ask(found map[string]string, name string, value reflect.Value) {
	for method := range value.Type().Methods() {
		if method.Type.NumIn() > 1 || method.Type.NumOut() == 0 || strings.HasSuffix(method.Name, "Signal") {
			continue
		}

		answers := value.MethodByName(method.Name).Call(nil)
		record(found, strings.TrimPrefix(name+"."+method.Name, "."), answers[0])
	}
}

func record(found map[string]string, name string, answer reflect.Value) {
	switch answer.Kind() {
	case reflect.Interface:
		if answer.IsNil() {
			found[name] = "none"
		} else {
			ask(found, name, answer)
		}
	case reflect.Slice:
		if answer.Type().Elem().Kind() == reflect.Struct && answer.Type().Elem().PkgPath() != "net/netip" {
			for i := range answer.Len() {
				recordFields(found, fmt.Sprintf("%s[%d]", name, i), answer.Index(i))
			}

			return
		}

		found[name] = fmt.Sprint(answer.Interface())
	case reflect.Map:
		found[name] = strings.Replace(fmt.Sprint(answer.Interface()), "map[]", "none", 1)
	default:
		found[name] = fmt.Sprint(answer.Interface())
	}
}

func recordFields(found map[string]string, name string, value reflect.Value) {
	for field := range value.Type().Fields() {
		if field.Anonymous {
			found[name] = fmt.Sprint(value.FieldByIndex(field.Index).Elem().Interface())
		} else {
			found[name+"."+field.Name] = fmt.Sprint(value.FieldByIndex(field.Index).Interface())
		}
	}
}

func TestANamedDiskIsOneInBothForms(t *testing.T) {
	t.Parallel()

	for _, config := range []*machineconfig.Config{
		mustConfig(t, base("  install: {disk: /dev/nvme0n1}\n", "", "")),
		mustConfig(t, base("", "", "---\napiVersion: v1alpha1\nkind: UnattendedInstallConfig\nprovisioning:\n  "+
			"diskSelector: {match: disk.dev_path == \"/dev/nvme0n1\"}\n")),
	} {
		require.Equal(t, "/dev/nvme0n1", config.InstallDisk())
		require.Empty(t, config.DiskSelector())
		require.True(t, config.SaysInstallDisk())
	}

	link := mustConfig(t, base("", "", "---\napiVersion: v1alpha1\nkind: UnattendedInstallConfig\nprovisioning:\n  "+
		"diskSelector: {match: disk.dev_path == \"/dev/disk/by-id/x\"}\n"))
	require.Empty(t, link.InstallDisk(), "Talos compares with the disk's own path")
	require.Equal(t, `disk.dev_path == "/dev/disk/by-id/x"`, link.DiskSelector())

	// What documents leave out is as Talos' defaults have it.
	require.Equal(t, prefixes("10.244.0.0/16"), link.PodSubnets())
	require.Equal(t, "flannel", link.CNI())
	require.False(t, link.HasNetwork())
}
