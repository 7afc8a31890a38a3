//go:build mage

// Package main is the magefile of a repository whose own targets have names that talos-mage uses too: it imports
// talos-mage's under an alias, as up:health and so on.
package main

import (
	"fmt"

	//mage:import up
	_ "github.com/talos-mage/talos-mage/targets"
)

// Health asks the repository's own services.
func Health() { fmt.Println("our services are healthy") }

// Report writes the repository's own report.
func Report() { fmt.Println("our report is written") }

// Reset empties the repository's own database.
func Reset() { fmt.Println("our database is empty") }

// Runs lists the repository's own pipelines.
func Runs() { fmt.Println("our pipelines: none") }

// Upgrade upgrades the repository's own charts.
func Upgrade() { fmt.Println("our charts are upgraded") }
