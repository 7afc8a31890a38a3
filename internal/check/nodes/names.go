package nodes

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/check/files/names"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// checkLiveHostname judges the hostname that a machine got from DHCP. Talos repairs most of them: a warning.
func checkLiveHostname(_ context.Context, s subject) {
	switch fault := names.HostnameFault(s.Facts.Hostname); {
	case !s.IgnoreHostname || s.Facts.Hostname == "":
	case fault != "":
		s.warn(diagnosis.HostnameInvalid, names.BetterHostname(s.Facts.Hostname)+" in the DHCP server", "%s", fault)
	default:
		s.ok(diagnosis.HostnameInvalid, "hostname %s", s.Facts.Hostname)
	}
}
