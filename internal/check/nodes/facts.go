package nodes

import (
	"context"
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// checkProxy shows that a proxy stands between this computer and the node: the first suspect when something else goes
// wrong.
func checkProxy(_ context.Context, s subject) {
	if s.Facts.Proxy != nil {
		s.ok(diagnosis.ThroughProxy, "reached through the proxy of %s", s.Facts.Proxy)
	}
}

// checkUnread tells which checks were left out for want of an answer, in one warning for each reason. Identity is the
// exception: it fails by itself.
func checkUnread(_ context.Context, s subject) {
	var reasons []string

	lost := map[string][]string{}

	for _, unread := range s.Facts.Unread {
		reason := talos.Explain(unread.Err)
		if lost[reason] == nil {
			reasons = append(reasons, reason)
		}

		lost[reason] = append(lost[reason], unread.What)
	}

	for _, reason := range reasons {
		s.warn(diagnosis.FactUnread, s.rerun(),
			"not read, so that what depends on it was not checked: the node's %s (%s)", strings.Join(lost[reason], ", "),
			reason)
	}
}
