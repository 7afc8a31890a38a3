package kubernetes

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// checks are the API server's health checks in its own order. Those of etcd follow the quorum, the others pass.
// Source: kubernetes staging/src/k8s.io/apiserver/pkg/server/healthz.
var checks = map[string][]string{
	"/healthz": {"ping", "log", "etcd", "poststarthook/start-apiextensions-informers",
		"poststarthook/start-kube-aggregator-informers"},
	"/livez": {"ping", "log", "etcd", "poststarthook/start-apiextensions-informers",
		"poststarthook/start-kube-aggregator-informers"},
	"/readyz": {
		"ping", "log", "etcd", "etcd-readiness", "informer-sync",
		"poststarthook/start-apiextensions-informers", "poststarthook/start-kube-aggregator-informers", "shutdown",
	},
}

// serveHealth answers /readyz and its kin, one check alone (/readyz/etcd), ?verbose and ?exclude=.
func serveHealth(w http.ResponseWriter, request *http.Request, state snapshot) {
	path, only, _ := strings.Cut(strings.TrimPrefix(request.URL.Path, "/"), "/")
	known := checks["/"+path]

	if only != "" && !slices.Contains(known, only) {
		http.NotFound(w, request)

		return
	}

	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")

	var report strings.Builder

	failed := false
	excluded := request.URL.Query()["exclude"]

	for _, check := range known {
		switch {
		case only != "" && check != only:
			continue
		case slices.Contains(excluded, check):
			fmt.Fprintf(&report, "[+]%s excluded: ok\n", check)
		case strings.HasPrefix(check, "etcd") && !state.quorum:
			failed = true

			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", check)
		default:
			fmt.Fprintf(&report, "[+]%s ok\n", check)
		}
	}

	// A client that hangs up has no use for an error.
	switch _, verbose := request.URL.Query()["verbose"]; {
	case failed:
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintf(w, "%s%s check failed\n", report.String(), path)
	case verbose:
		_, _ = fmt.Fprintf(w, "%s%s check passed\n", report.String(), path)
	default:
		_, _ = fmt.Fprint(w, "ok")
	}
}
