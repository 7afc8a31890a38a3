// Package main is the magefile of a repository that imports talos-mage beside a target of its own.
package main

import (
	"context"
	"fmt"

	//mage:import
	_ "github.com/talos-mage/talos-mage/targets"
)

// Backup stands for a target that the repository had before.
func Backup(context.Context) {
	fmt.Println("backed up")
}
