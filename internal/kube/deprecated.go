package kube

import (
	"context"
	"fmt"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// DeprecatedAPI is one that clients have used since the API server started, although a later release does not serve it.
type DeprecatedAPI struct {
	// Name is like "poddisruptionbudgets.v1beta1.policy".
	Name string
	// Removed is the release without it, as "1.25"; empty while that is not decided.
	Removed string
}

// requestedDeprecated is the metric that tells of them.
// Source: kubernetes, staging/src/k8s.io/apiserver/pkg/endpoints/metrics/metrics.go.
const requestedDeprecated = "apiserver_requested_deprecated_apis{"

var metricLabel = pattern.New(`(\w+)="([^"]*)"`)

// DeprecatedAPIs asks an API server for the deprecated APIs that are in use.
func (c *Client) DeprecatedAPIs(ctx context.Context) ([]DeprecatedAPI, error) {
	metrics, err := c.get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("ask the API server for its metrics: %w", err)
	}

	var found []DeprecatedAPI

	for line := range strings.Lines(string(metrics)) {
		labels, isMetric := strings.CutPrefix(line, requestedDeprecated)
		if !isMetric {
			continue
		}

		values := map[string]string{}
		for _, label := range metricLabel.FindAllStringSubmatch(labels, -1) {
			values[label[1]] = label[2]
		}

		name := strings.TrimSuffix(values["resource"]+"."+values["version"]+"."+values["group"], ".")
		found = append(found, DeprecatedAPI{name, values["removed_release"]})
	}

	return found, nil
}
