// Package discover finds the machines of some networks that answer on Talos' API port, and reads what each of them
// tells anybody: in maintenance almost everything, configured what its certificate says.
package discover

import (
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"github.com/talos-mage/talos-mage/internal/talos"
)

// Machine is one machine that answers, at whatever number of addresses.
type Machine struct {
	// Addresses are where it answers, sorted.
	Addresses []netip.Addr
	// State is what answers. Unreachable is something that took the connection and then said nothing; Err says how.
	State talos.State
	// MACs are those of its physical links: lower case, with colons.
	MACs []string
	// UUID and Serial are what its firmware says; empty if it does not tell.
	UUID, Serial string
	// Version is its Talos release ("v1.13.9"), Hostname the name that it goes by.
	Version, Hostname string
	// Disks and Links are in the order in which Talos lists them.
	Disks []*block.Disk
	Links []talos.Link
	// SecureBoot and UKI say how it was booted.
	SecureBoot, UKI bool
	// Fingerprint is that of its certificate: base64 of the SHA-256 of the public key, as a node's screen shows it.
	Fingerprint string
	// CertificateNames are the names and addresses that its certificate is for.
	CertificateNames []string
	// Err is why it tells nothing more.
	Err error
}

// Address is the first of the machine's addresses.
func (m Machine) Address() netip.Addr { return m.Addresses[0] }
