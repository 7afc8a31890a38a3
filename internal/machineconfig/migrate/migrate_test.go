package migrate_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/machineconfig/migrate"
)

// planned is the plan for a folder.
func planned(t *testing.T, folder string, newDefaults bool) (*migrate.Plan, error) {
	t.Helper()

	bundle, err := throwaway.Secrets()
	require.NoError(t, err)

	return migrate.Make(migrate.Options{Secrets: bundle, Now: time.Now(), NewDefaults: newDefaults,
		Load: func(files map[string][]byte, contract string) (*inventory.Cluster, error) {
			opened := reading.New(folder, nil)
			for path, data := range files {
				opened.Pretend(path, data)
			}

			return inventory.Load(inventory.Options{TalosDir: folder, Files: opened, Contract: contract})
		}})
}

func TestShow(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "talconfig.yaml"), []byte(`# my cluster
clusterName: lab
talosVersion: v1.14.1
kubernetesVersion: v1.36.3
endpoint: https://192.0.2.10:6443
nodes:
  - hostname: cp1
    ipAddress: 192.0.2.11
    controlPlane: true
    installDisk: /dev/sda
    nodeLabels:
      a: b
  - hostname: w1
    ipAddress: 192.0.2.21
    installDisk: /dev/sda
    patches:
      # only here
      - |-
        machine:
          sysctls:
            a.b: "1" # yes
patches:
  - |
    machine:
      kubelet:
        extraArgs:
          rotate-server-certificates: "true"
    cluster:
      apiServer:
        extraArgs:
          v: "2"
      network:
        cni:
          name: none
      proxy:
        disabled: true
`), 0o600))

	plan, err := planned(t, folder, false)
	if err != nil {
		t.Log(err)
	}
	t.Logf("%+v", plan.Moves)
	t.Logf("%+v %+v", plan.Decisions, plan.Kept)
	for _, one := range plan.Differences {
		t.Logf("%+v", one)
	}
	t.Log(plan.Defaults)
	for path, data := range plan.Files {
		t.Logf("%s\n%s", path, data)
	}
}
