// Package table holds the one table of all checks, and runs them.
package table

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/files/addresses"
	"github.com/talos-mage/talos-mage/internal/check/files/belonging"
	"github.com/talos-mage/talos-mage/internal/check/files/disks"
	"github.com/talos-mage/talos-mage/internal/check/files/documents"
	"github.com/talos-mage/talos-mage/internal/check/files/endpoints"
	"github.com/talos-mage/talos-mage/internal/check/files/firewall"
	"github.com/talos-mage/talos-mage/internal/check/files/images"
	"github.com/talos-mage/talos-mage/internal/check/files/interfaces"
	"github.com/talos-mage/talos-mage/internal/check/files/interop"
	"github.com/talos-mage/talos-mage/internal/check/files/names"
	"github.com/talos-mage/talos-mage/internal/check/files/networks"
	"github.com/talos-mage/talos-mage/internal/check/files/roles"
	"github.com/talos-mage/talos-mage/internal/check/files/secrets"
	"github.com/talos-mage/talos-mage/internal/check/files/startup"
	"github.com/talos-mage/talos-mage/internal/check/files/versions"
	"github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks are all checks, by kind and then by id.
func Checks() []check.Check { return slices.Clone(sorted()) }

var sorted = sync.OnceValue(func() []check.Check {
	rows := slices.Concat(
		belonging.Checks(), addresses.Checks(), endpoints.Checks(), networks.Checks(), names.Checks(), interfaces.Checks(),
		disks.Checks(), documents.Checks(), images.Checks(), versions.Checks(), secrets.Checks(), firewall.Checks(),
		roles.Checks(), startup.Checks(), interop.Checks(), nodes.Checks(),
	)

	slices.SortStableFunc(rows, func(a, b check.Check) int {
		return cmp.Or(
			cmp.Compare(slices.Index(check.Kinds(), a.Kind), slices.Index(check.Kinds(), b.Kind)), cmp.Compare(a.ID, b.ID))
	})

	return rows
})

// Run runs the checks of files whose needs are met, in the table's order.
func Run(ctx context.Context, in *check.Input) check.Result { return check.Run(ctx, sorted(), in) }

// Node runs the checks of one node that answered, in the order in which people read their findings.
func Node(ctx context.Context, node *check.Node) []diagnosis.Finding {
	return check.RunNode(ctx, nodes.Checks(), node)
}
