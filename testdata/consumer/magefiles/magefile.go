// Package main is another repository's magefile: it imports the targets, and has one of its own.
package main

import (
	"context"
	"errors"

	//mage:import
	_ "github.com/talos-mage/talos-mage/targets"
)

// Backup snapshots etcd; it stands for a target that the repository had before.
func Backup(context.Context) error {
	return errors.New("this repository only lists its targets")
}
