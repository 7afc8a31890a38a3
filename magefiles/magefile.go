//go:build mage

// The targets of this repository: those that importers get, and those for developing talos-mage itself.
package main

import (
	//mage:import
	_ "github.com/talos-mage/talos-mage/internal/dev/devtargets"
	//mage:import
	_ "github.com/talos-mage/talos-mage/internal/dev/rehearsal"
	//mage:import
	_ "github.com/talos-mage/talos-mage/targets"
)
