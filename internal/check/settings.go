package check

import (
	"context"
	"net/netip"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Settings are those of the checks, and their ways out of the process.
type Settings struct {
	// AllowAmbiguousDisk turns a disk selector that matches several disks into a warning.
	AllowAmbiguousDisk bool
	// SkipChecks are shown as warnings where they would be failures.
	SkipChecks []diagnosis.ID
	// Now is the time that certificates are judged at.
	Now time.Time
	// LookupHost resolves a DNS name; an error or no address means that it does not resolve. Nil leaves names unresolved
	// and unjudged.
	LookupHost func(ctx context.Context, host string) ([]netip.Addr, error)
	// VIPAnswers asks the Kubernetes API's port of an address who answers there, and whether with a certificate of this
	// cluster's Kubernetes CA. Nil leaves the VIP unasked.
	VIPAnswers func(ctx context.Context, address netip.Addr) (answered, ours bool, err error)
}
