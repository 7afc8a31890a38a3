package nodes_test

import (
	"testing"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// The Talos that a node runs now reads its config, whichever the installer brings: one of 1.13 refuses documents of
// 1.14.
func TestDocumentsThatTheRunningTalosDoesNotKnow(t *testing.T) {
	t.Parallel()

	config, err := machineconfig.FromBytes("cp1.yaml", []byte(`version: v1alpha1
machine: {type: worker, token: a.b}
cluster: {token: a.b}
---
apiVersion: v1alpha1
kind: UnattendedInstallConfig
installer: {image: factory.talos.dev/metal-installer/a:v1.14.1}
provisioning: {diskSelector: {match: 'disk.dev_path == "/dev/vda"'}}
---
apiVersion: v1alpha1
kind: SysctlConfig
params: {a: b}
---
apiVersion: v1alpha1
kind: KubePrismConfig
port: 7445
---
apiVersion: v1alpha1
kind: FilesystemTrimConfig
interval: 168h
---
apiVersion: v1alpha1
kind: HostnameConfig
auto: stable
`))
	require.NoError(t, err)

	cluster := &inventory.Cluster{Source: "talconfig.yaml", TalosVersion: "v1.14.1",
		Contract: talosconfig.TalosVersion1_14}

	cause, next := nodes.UnknownForm(cluster, config, "v1.13.9", "mage preflight")
	require.Equal(t, "the node runs Talos v1.13.9, which does not know these documents of its machine config and would "+
		"refuse all of it: FilesystemTrimConfig, KubePrismConfig, SysctlConfig and 1 more", cause)
	require.Equal(t, "boot the node from a v1.14 image, or make the configs in its form: `TALOS_CONTRACT=v1.13 mage "+
		"config:generate`, then `mage preflight`", next)

	cluster.Contract = talosconfig.TalosVersion1_13
	_, next = nodes.UnknownForm(cluster, config, "v1.13.9", "mage preflight")
	require.Equal(t, "boot the node from a v1.14 image, or in talconfig.yaml, set talosVersion to v1.13; then `mage "+
		"config:generate` and `mage preflight`", next)

	for _, known := range []string{"v1.14.0", "v1.15.0", "", "dev"} {
		cause, _ := nodes.UnknownForm(cluster, config, known, "mage preflight")
		require.Empty(t, cause, known)
	}
}
