package targets

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
)

// Health checks a cluster that is up: its nodes, etcd and Kubernetes, images against the files, and certificates.
//
// A control plane makes the check of the cluster, another one if it can't. It ends with code 7 if anything fails.
// -profile=interop also asks the nodes and Kubernetes what docs/interop.md says. -format is table or json. -node names
// the nodes to look at. -noWait gives a check that does not pass at once no time to do so. It changes nothing.
func Health(ctx context.Context, node, format, profile *string, noWait *bool) error {
	return exit(invocation.FromProcess("health").Health(ctx,
		overrides{"node": node, "format": format, "profile": profile, "noWait": noWait}.set()))
}
