package generate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
)

// hundredNodes are 100 nodes with ten patches each: of the cluster, of the group and their own, in files and in place,
// with and without templates and variables.
func hundredNodes() map[string]string {
	files := map[string]string{
		"patches/time.yaml": "machine:\n  time:\n    servers: [\"${NTP:-192.0.2.123}\"]\n",
		"patches/kubelet.yaml": "machine:\n  kubelet:\n    extraArgs:\n      # rotate\n      rotate-server-certificates: " +
			"\"true\"\n",
		"patches/sysctls.yaml": "machine:\n  sysctls:\n    net.core.somaxconn: \"65535\"\n    " +
			"net.core.netdev_max_backlog: \"4096\"\n",
		"patches/name.yaml": "machine:\n  nodeLabels:\n    installer: '{{ .MachineConfig.MachineInstall.InstallDisk | " +
			"base }}'\n",
		"patches/delete.yaml": "cluster:\n  discovery:\n    $patch: delete\n",
		"patches/kmsg.yaml":   "apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: remote\nurl: tcp://192.0.2.5:3478/\n",
	}

	var text strings.Builder

	text.WriteString(`clusterName: lab
talosVersion: v1.13.9
kubernetesVersion: v1.36.3
endpoint: https://192.0.2.10:6443
patches: ["@patches/time.yaml", "@patches/kubelet.yaml", "machine: {env: {A: b}}"]
controlPlane: {patches: ["@patches/delete.yaml", "cluster: {allowSchedulingOnControlPlanes: true}"]}
worker: {patches: ["@patches/sysctls.yaml", "@patches/kmsg.yaml"]}
nodes:
`)

	for i := range 100 {
		fmt.Fprintf(&text, `  - hostname: node%[1]d
    ipAddress: 192.0.2.%[2]d
    controlPlane: %[3]t
    installDisk: /dev/vda
    nameservers: [192.0.2.53]
    networkInterfaces: [{interface: eth0, addresses: [198.51.100.%[2]d/24], routes: [{network: 0.0.0.0/0, gateway: 198.51.100.1}]}]
    patches:
      - "@patches/name.yaml"
      - "machine: {nodeAnnotations: {number: \"%[1]d\"}}"
      - "machine: {sysfs: {a: \"%[1]d\"}}"
      - "machine: {network: {extraHostEntries: [{ip: 198.51.100.%[2]d, aliases: [node%[1]d.example]}]}}"
      - "machine: {logging: {destinations: [{endpoint: 'udp://192.0.2.5:12345', format: json_lines}]}}"
`, i, i+1, i < 3)
	}

	files["talconfig.yaml"] = text.String()

	return files
}

// BenchmarkHundredNodesTenPatches is what a hundred nodes with ten patches each cost; talhelper needs seconds for them.
func BenchmarkHundredNodesTenPatches(b *testing.B) {
	source := sourceOf(b, hundredNodes())

	for b.Loop() {
		output, err := generate.Configs(source)
		require.NoError(b, err)
		require.Len(b, output.Configs, 100)
	}
}
