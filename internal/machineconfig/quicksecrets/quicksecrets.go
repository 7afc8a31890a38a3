// Package quicksecrets makes the secrets of emulated clusters and of tests.
package quicksecrets

import (
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// lastWithoutRSA is a release whose clusters sign service accounts with an elliptic curve; since then it is an RSA key
// of 4096 bits, which takes a processor seconds to find (siderolabs/talos, pkg/machinery/config/contract.go).
const lastWithoutRSA = "v1.6.0"

// New is the bundle of a cluster that was born with that release. Nothing else in it differs from a new cluster's.
func New() (*secrets.Bundle, error) { return machineconfig.NewSecrets(lastWithoutRSA) }
