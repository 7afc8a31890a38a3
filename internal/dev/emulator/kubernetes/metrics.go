package kubernetes

import (
	"fmt"
	"net/http"
)

// DeprecatedAPI is one that clients have used although a later release of Kubernetes does not serve it.
type DeprecatedAPI struct {
	// Group is empty for the core; Removed is like "1.38", or empty while that is not decided.
	Group, Version, Resource, Removed string
}

// RequestDeprecated notes that somebody has used a deprecated API.
func (c *Cluster) RequestDeprecated(api DeprecatedAPI) {
	c.change(func(uint64) { c.deprecated = append(c.deprecated[:len(c.deprecated):len(c.deprecated)], api) })
}

// serveMetrics gives those of the API server's metrics that an upgrade looks at.
// Source: kubernetes staging/src/k8s.io/apiserver/pkg/endpoints/metrics/metrics.go.
func serveMetrics(w http.ResponseWriter, state snapshot) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")

	// A client that hangs up has no use for an error.
	_, _ = fmt.Fprint(w, "# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been "+
		"requested, broken out by API group, version, resource, subresource, and removed_release.\n"+
		"# TYPE apiserver_requested_deprecated_apis gauge\n")

	for _, api := range state.deprecated {
		_, _ = fmt.Fprintf(w, "apiserver_requested_deprecated_apis{group=%q,removed_release=%q,resource=%q,"+
			"subresource=\"\",version=%q} 1\n", api.Group, api.Removed, api.Resource, api.Version)
	}
}
