package recipe_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/emulatortest"
	"github.com/talos-mage/talos-mage/recipe"
)

func TestMain(m *testing.M) { os.Exit(emulatortest.Run(m, 4)) }

// lab is a cluster of emulated machines, one a role, and a folder with its files.
type lab struct {
	*labcluster.Cluster
	folder string
}

func startLab() *lab {
	made, err := newLab(labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: labcluster.DemoScale}})
	if err != nil {
		panic(err)
	}

	return made
}

func newLab(options labcluster.Options) (*lab, error) {
	folder, err := os.MkdirTemp("", "recipe")
	if err != nil {
		return nil, err
	}

	options.ControlPlanes, options.Workers = 1, 1

	cluster, err := labcluster.New(filepath.Join(folder, "talos"), options)
	if err != nil {
		return nil, err
	}

	for _, node := range cluster.Nodes {
		err = errors.Join(err, node.WaitFor(context.Background(), func(node *emulator.Node) bool {
			return node.Stage() == "maintenance"
		}))
	}

	return &lab{cluster, folder}, err
}

func (l *lab) Close() {
	_ = l.Cluster.Close()
	_ = os.RemoveAll(l.folder)
}

// options lead a run to the machines.
func (l *lab) options() recipe.Options {
	return recipe.Options{Dir: l.folder, Environ: append(l.Environ(), "ROOT_DIR="+l.folder, "TMPDIR="+l.folder),
		Settings: map[string]string{"NODE_REACHABILITY_RETRIES": "1"}}
}
