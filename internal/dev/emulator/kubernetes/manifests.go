package kubernetes

import (
	"cmp"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	appsv1 "k8s.io/api/apps/v1"
)

// Manifest is a group of objects that Talos makes for its cluster. Clients must not change them.
type Manifest struct {
	Name    string
	Objects []map[string]any
}

// ManifestOptions are what the manifests of a cluster are made from.
type ManifestOptions struct {
	// ProxyImage and DNSImage are empty where the cluster has no kube-proxy or no CoreDNS.
	ProxyImage, DNSImage string
	Flannel              bool
	// Server is the API server's address for pods.
	Server string
}

// Manifests are the part of a cluster's own objects that the emulator plays, in the order in which Talos applies them.
// Source: Talos internal/app/machined/pkg/controllers/k8s/manifest.go.
func Manifests(options ManifestOptions) []Manifest {
	manifests := []Manifest{{"11-kube-config-in-cluster", []map[string]any{
		configMap("kubeconfig-in-cluster", map[string]any{"kubeconfig": "server: " + options.Server}),
	}}}

	if options.ProxyImage != "" {
		manifests = append(manifests, Manifest{"10-kube-proxy",
			[]map[string]any{workloadObject("DaemonSet", kubeSystem, "kube-proxy", "kube-proxy", options.ProxyImage)}})
	}

	if options.DNSImage != "" {
		deployment := workloadObject("Deployment", kubeSystem, "coredns", "kube-dns", options.DNSImage)
		deployment["spec"].(map[string]any)["replicas"] = int64(coreDNS.Replicas) //nolint:forcetypeassert,errcheck // made so

		manifests = append(manifests, Manifest{"11-core-dns",
			[]map[string]any{configMap("coredns", map[string]any{"Corefile": ".:53 {}"}), deployment}})
	}

	if options.Flannel {
		image := "ghcr.io/siderolabs/flannel:v" + constants.FlannelVersion
		manifests = append(manifests, Manifest{"05-flannel",
			[]map[string]any{workloadObject("DaemonSet", kubeSystem, "kube-flannel", "flannel", image)}})
	}

	return manifests
}

// manifestOptions are those of the cluster's first control plane.
func (o Options) manifestOptions() ManifestOptions {
	made := ManifestOptions{Flannel: o.CNI == constants.FlannelCNI, Server: o.Server}

	if !o.NoProxy {
		made.ProxyImage = cmp.Or(o.ProxyImage, constants.KubeProxyImage+":"+o.Version)
	}

	if !o.NoDNS {
		made.DNSImage = cmp.Or(o.DNSImage, constants.CoreDNSImage+":"+constants.DefaultCoreDNSVersion)
	}

	return made
}

// ConfigMap is one that is not Talos' own.
type ConfigMap struct {
	// Namespace is where it is. Default "kube-system".
	Namespace string
	// Name is its name.
	Name string
	// Data is what it holds, by its keys.
	Data map[string]string
}

func (m ConfigMap) object() map[string]any {
	data := map[string]any{}
	for key, value := range m.Data {
		data[key] = value
	}

	made := configMap(m.Name, data)
	made["metadata"] = metadata(cmp.Or(m.Namespace, kubeSystem), m.Name, nil)

	return made
}

func configMap(name string, data map[string]any) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(kubeSystem, name, nil),
		"data": data}
}

func metadata(namespace, name string, labels map[string]any) map[string]any {
	made := map[string]any{"name": name, "namespace": namespace}
	if labels != nil {
		made["labels"] = labels
	}

	return made
}

// workloadObject runs pods with one container, whose name is that of the app.
func workloadObject(kind, namespace, name, app, image string) map[string]any {
	return map[string]any{
		"apiVersion": appsv1.SchemeGroupVersion.String(), "kind": kind,
		"metadata": metadata(namespace, name, map[string]any{appLabel: app}),
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{appLabel: app}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{appLabel: app}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": app, "image": image}}},
			},
		},
	}
}
