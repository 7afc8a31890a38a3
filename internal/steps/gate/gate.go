// Package gate is the one way in which steps change a node or one of the user's files. A dry run finds it shut:
// whatever a step tries, nothing arrives.
package gate

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// ErrShut is what becomes of a change in a dry run: it was not made.
var ErrShut = errors.New("dry run: nothing is changed")

// Gate lets changes through, unless it is shut.
type Gate struct{ shut bool }

// New is the gate of a run; that of a dry run is shut.
func New(dryRun bool) Gate { return Gate{shut: dryRun} }

// pass makes a change, or none.
func (g Gate) pass(change func() error) error {
	if g.shut {
		return ErrShut
	}

	return change()
}

// Apply sends a node its config, in one of Talos' modes.
func (g Gate) Apply(ctx context.Context, conn *talos.Conn, config []byte, mode string) (applied talos.Applied,
	err error) {
	return applied, g.pass(func() error {
		applied, err = conn.Apply(ctx, config, talos.ApplyOptions{Mode: mode})
		return err //nolint:wrapcheck // its class is the caller's to judge
	})
}

// Rehearse has a node tell what an Apply would do. That changes nothing, and so passes a shut gate too.
func (g Gate) Rehearse(ctx context.Context, conn *talos.Conn, config []byte, mode string) (talos.Applied, error) {
	//nolint:wrapcheck // its class is the caller's to judge
	return conn.Apply(ctx, config, talos.ApplyOptions{Mode: mode, DryRun: true})
}

// Bootstrap starts etcd on a node.
func (g Gate) Bootstrap(ctx context.Context, conn *talos.Conn) error {
	return g.pass(func() error { return conn.Bootstrap(ctx) })
}

// Defragment has a node's etcd give back the space that it no longer needs.
func (g Gate) Defragment(ctx context.Context, conn *talos.Conn) error {
	return g.pass(func() error { return conn.EtcdDefragment(ctx) })
}

// Reboot reboots a node.
func (g Gate) Reboot(ctx context.Context, conn *talos.Conn) error {
	return g.pass(func() error { return conn.Reboot(ctx) })
}

// MergeKubeconfig merges a kubeconfig into the user's; through a shut gate it tells what would change.
func (g Gate) MergeKubeconfig(path string, fetched []byte, options kube.MergeOptions) (kube.MergeResult, error) {
	options.DryRun = options.DryRun || g.shut
	return kube.Merge(path, fetched, options) //nolint:wrapcheck // it names the file
}

// KeepOutOfGit makes a folder, unless there is one, and has git ignore all that is in it.
func (g Gate) KeepOutOfGit(folder string) error {
	return g.pass(func() error { return atomicfile.KeepOutOfGit(folder) })
}

// CreateFile makes a file that does not exist yet, for the owner alone, and has it written; it is whole or not there.
func (g Gate) CreateFile(path string, write func(*os.File) error) error {
	return g.pass(func() error {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err //nolint:wrapcheck // it names the folder
		}

		return atomicfile.Create(path, 0o600, write) //nolint:wrapcheck // it names the file
	})
}

// WriteFile replaces a file whole, and makes its folder, for the owner alone, if there is none.
func (g Gate) WriteFile(path string, data []byte, mode os.FileMode) error {
	return g.pass(func() error {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err //nolint:wrapcheck // it names the folder
		}

		return atomicfile.WriteFile(path, data, mode) //nolint:wrapcheck // it names the file
	})
}
