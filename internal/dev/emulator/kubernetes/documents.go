package kubernetes

import (
	"net/http"
	"runtime"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

const (
	versionPath = "/version"
	apiPath     = "/api"
	apisPath    = "/apis"
	corePath    = "/api/v1"
)

// documents are the paths that any authenticated client may read: the version, and what kinds of objects there are.
func documents() []string {
	paths := []string{versionPath, apiPath, apisPath, corePath}

	for _, group := range groups() {
		paths = append(paths, apisPath+"/"+group.Name, apisPath+"/"+group.PreferredVersion.GroupVersion)
	}

	return paths
}

func serveDocument(w http.ResponseWriter, path string, state snapshot) {
	path = strings.TrimSuffix(path, "/")

	switch path {
	case versionPath:
		writeJSON(w, http.StatusOK, versionInfo(state.version))
	case apiPath:
		writeJSON(w, http.StatusOK, metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
		})
	case apisPath:
		writeJSON(w, http.StatusOK,
			metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}, Groups: groups()})
	case corePath:
		writeJSON(w, http.StatusOK, resourceList("v1"))
	default:
		for _, group := range groups() {
			if path == apisPath+"/"+group.Name {
				writeJSON(w, http.StatusOK, group)

				return
			}
		}

		writeJSON(w, http.StatusOK, resourceList(strings.TrimPrefix(path, apisPath+"/")))
	}
}

// versionInfo is the answer of /version; state holds "v1.36.3".
func versionInfo(text string) version.Info {
	major, rest, _ := strings.Cut(strings.TrimPrefix(text, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")

	return version.Info{
		Major: major, Minor: minor, GitVersion: text, GitTreeState: "clean",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: "linux/amd64",
	}
}

// groups are the API groups beside the core.
func groups() []metav1.APIGroup {
	var list []metav1.APIGroup

	for _, r := range resources {
		if r.group() == "" || slices.ContainsFunc(list, func(known metav1.APIGroup) bool { return known.Name == r.group() }) {
			continue
		}

		_, name, _ := strings.Cut(r.groupVersion, "/")
		preferred := metav1.GroupVersionForDiscovery{GroupVersion: r.groupVersion, Version: name}

		list = append(list, metav1.APIGroup{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"},
			Name:     r.group(), Versions: []metav1.GroupVersionForDiscovery{preferred}, PreferredVersion: preferred,
		})
	}

	return list
}

// verbs are what can be done to objects of a kind.
func (r served) verbs() []string {
	reading := []string{"get", "list", "watch"}
	if r.written {
		return append(reading, "create", "update", "patch", "delete")
	}

	switch r.name {
	case "nodes":
		return append(reading, "patch")
	case "pods":
		return append(reading, "delete")
	default:
		return reading
	}
}

func resourceList(groupVersion string) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
		GroupVersion: groupVersion}

	for _, r := range resources {
		if r.groupVersion == groupVersion {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: r.name, SingularName: r.singular, Kind: r.kind, ShortNames: r.short, Namespaced: r.namespaced,
				Verbs: r.verbs(),
			})
		}
	}

	if groupVersion == "v1" {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: "pods/" + evictionName, Group: "policy", Version: "v1", Kind: "Eviction", Namespaced: true,
			Verbs: []string{"create"},
		})
	}

	return list
}
