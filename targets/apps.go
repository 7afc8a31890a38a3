package targets

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/steps"
)

// Apps installs the cluster's first applications: it waits for the nodes, then applies namespaces, secrets, CRDs and
// releases.
//
// Namespaces are the folders of kubernetes/apps/. Secrets are decrypted with sops and applied from memory. CRDs and
// releases come from bootstrap/helmfile.d/00-crds.yaml and 01-apps.yaml, with helmfile. Run again, it does what is
// missing. A repository with a scripts/bootstrap-apps.sh of its own keeps running that.
func Apps(ctx context.Context, dryRun *bool) error {
	return execute(ctx, "apps", overrides{"dryRun": dryRun}, only(steps.Apps{}))
}
