//go:build mage

// Package main is the whole magefile of a repository that imports talos-mage.
package main

import (
	//mage:import
	_ "github.com/talos-mage/talos-mage/targets"
)
