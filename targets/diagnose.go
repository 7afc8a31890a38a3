package targets

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
)

// Diagnose says why nodes are stuck: the likely causes of each, best first, with what points to them.
//
// It looks once at every node, in whatever state that is, with or without a talosconfig, and changes nothing. -discover
// looks for machines that are not where they should be. -format is table or json. It ends with 5 if anything is wrong.
// -bundle writes all that was read, without secrets, into an archive for a bug report, at -file or beside the cluster.
func Diagnose(ctx context.Context, node, format, file *string, discover, bundle *bool) error {
	return exit(invocation.FromProcess("diagnose").Diagnose(ctx,
		overrides{"node": node, "format": format, "file": file, "discover": discover,
			"bundle": bundle}.set()))
}
