package machineconfig_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// labDisks are the disks of a machine with everything that a selector can fall over.
func labDisks(t *testing.T) state.State {
	t.Helper()

	disks := state.WrapCore(namespaced.NewState(inmem.Build))

	for name, spec := range map[string]block.DiskSpec{
		"sda": {Model: "QEMU HARDDISK", Serial: "S1", Transport: "sata", Rotational: true, Size: 40_000_000_000},
		"sdb": {Model: "Kingston DT", Transport: "usb", Size: 16_000_000_000, Readonly: true},
		"sr0": {Model: "DVD", Transport: "sata", CDROM: true},
		"vda": {Transport: "virtio", Size: 100_000_000_000, WWID: "w-1", Symlinks: []string{"/dev/disk/by-id/virtio-1"}},
		"nvme0n1": {Model: "Samsung 990", Serial: "S73", Transport: "nvme", Size: 1_000_000_000_000,
			BusPath: "/pci0000:00/0000:00:1b.0/nvme"},
		"xvda": {Size: 200_000_000_000, UUID: "u-1", Modalias: "m:x"},
	} {
		disk := block.NewDisk(block.NamespaceName, name)
		*disk.TypedSpec() = spec
		disk.TypedSpec().DevPath = "/dev/" + name
		disk.TypedSpec().SetSize(spec.Size)

		require.NoError(t, disks.Create(t.Context(), disk))
	}

	return disks
}

// configWith is a control plane's config with another way to pick the install disk.
func configWith(t *testing.T, install string) *machineconfig.Config {
	t.Helper()

	generated, err := clusterfiles.Make(demoOptions())
	require.NoError(t, err)

	return mustConfig(t, []byte(strings.Replace(string(generated.Configs[0].Bytes), "disk: /dev/vda", install, 1)))
}

func TestMatchDisksAgreesWithMachinery(t *testing.T) {
	t.Parallel()

	disks := labDisks(t)

	var report strings.Builder

	for _, install := range []string{
		"disk: /dev/vda", "disk: /dev/disk/by-id/virtio-1", "disk: /dev/sdz",
		"diskSelector: {type: ssd}", "diskSelector: {type: hdd}", "diskSelector: {type: nvme}", "diskSelector: {type: sd}",
		`diskSelector: {size: ">= 100GB"}`, `diskSelector: {size: "< 1TB", type: ssd}`, `diskSelector: {size: 40GB}`,
		`diskSelector: {model: "Samsung*"}`, "diskSelector: {serial: S7}", "diskSelector: {wwid: w-1}",
		"diskSelector: {uuid: u-1}",
		`diskSelector: {modalias: "m:*"}`, `diskSelector: {busPath: "/pci0000:00/0000:00:1b.0/*"}`,
	} {
		config := configWith(t, install)

		matches, err := config.MatchDisks(t.Context(), disks)
		require.NoError(t, err)
		require.Len(t, matches, 6)

		matched := 0

		fmt.Fprintf(&report, "%s\n    expression: %s\n", install, config.DiskSelector())

		for _, match := range matches {
			outcome := strings.Join(match.RuledOut, "; ")

			if match.Matches() {
				matched++
				outcome = "matches"
			}

			if match.Chosen {
				require.Equal(t, 1, matched, "the first match is the one that Talos wipes")

				outcome += ", Talos would wipe it"
			}

			fmt.Fprintf(&report, "    %-7s %s\n", match.Disk.Metadata().ID(), outcome)
		}

		if config.DiskSelector() != "" {
			err = config.RuntimeValidate(t.Context(), disks, machineconfig.Mode{Metal: true})
			require.Equal(t, matched == 0, err != nil, "machinery's own check of %s: %v", install, err)
		}
	}

	golden.Assert(t, "testdata/match-disks.txt", report.String())
}

func TestMatchDisksRefusesInvalidSelector(t *testing.T) {
	t.Parallel()

	config := configWith(t, "diskSelector: {type: floppy}")

	_, err := config.MatchDisks(t.Context(), labDisks(t))
	require.ErrorContains(t, err, `unsupported disk type "floppy"`)
	require.Empty(t, config.DiskSelector())
}

func TestRuntimeValidateNamesTheExpression(t *testing.T) {
	t.Parallel()

	config := configWith(t, "diskSelector: {serial: S7}")
	disks := labDisks(t)

	err := config.RuntimeValidate(t.Context(), disks, machineconfig.Mode{Metal: true})

	validationError, ok := errors.AsType[*machineconfig.ValidationError](err)
	require.True(t, ok)
	require.Equal(t, []string{
		`no disks matched the expression: glob("S7", disk.serial) && disk.transport != "" && !disk.readonly && !disk.cdrom`,
	}, validationError.Problems)

	require.NoError(t, config.RuntimeValidate(t.Context(), disks, machineconfig.Mode{Metal: true, Installed: true}))
}
