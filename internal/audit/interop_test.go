package audit_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/audit"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/golden"
	"github.com/talos-mage/talos-mage/internal/preflight"
	"github.com/talos-mage/talos-mage/internal/proxmox"
)

// interop reads a repository for the profile: machine configs in talos, OpenTofu files in tofu.
func interop(root, talos, tofu string) *audit.Input {
	return audit.Read(audit.Options{
		Profile: audit.InteropProfile, TalosDir: talos, Root: root, Checks: preflight.Options{Now: time.Now()},
		VMs: func(func(string) bool) ([]proxmox.VM, error) {
			machines, err := proxmox.FromTofu(tofu, filepath.Base)
			if err == nil && len(machines) == 0 {
				return nil, proxmox.ErrNone
			}

			return machines, err
		},
	})
}

// profiled reads files with the profile: talconfig.yaml and machine configs as lab has them, the rest by its path in the repository.
func (f files) profiled(t testing.TB) *audit.Input {
	t.Helper()

	folder := f.write(t)

	return interop(folder, folder, filepath.Join(folder, "tofu"))
}

func TestTheInteroperabilityProfileOfAWholeRepository(t *testing.T) {
	t.Parallel()

	root, err := filepath.Abs(filepath.Join("testdata", "interop"))
	require.NoError(t, err)

	result := audit.Run(context.Background(), interop(root, filepath.Join(root, "talos"), filepath.Join(root, "infrastructure", "tofu")))

	golden.Assert(t, filepath.Join("testdata", "interop", "table.golden"), write(t, result, "table"))
	require.Equal(t, diagnosis.ExitOK, result.ExitCode())
}
