package talhelper_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// BenchmarkHundredNodesWithTenPatchesEach also reports how many times as long the real talhelper takes for the same
// talconfig, where there is one.
func BenchmarkHundredNodesWithTenPatchesEach(b *testing.B) {
	example := hundredNodes()
	dir := write(b, example.files)

	for b.Loop() {
		_, err := native(b, dir)
		require.NoError(b, err)
	}

	program := tool.Look(b, "talhelper")
	if program == "" {
		b.Log("SKIP: no talhelper")

		return
	}

	ours := b.Elapsed() / time.Duration(b.N)

	started := time.Now()

	require.NoError(b, genconfig(program, dir))
	b.ReportMetric(float64(time.Since(started))/float64(ours), "talhelper/native")
}

// hundredNodes have ten patches each: of the cluster, of their group and their own; in the file and in files beside it;
// with templates and without.
func hundredNodes() example {
	const (
		nodes, controlPlanes = 100, 3
		ownPatches           = 6
	)

	files := map[string]string{
		"talenv.yaml":       "NTP: ntp.example.org\n",
		"patches/time.yaml": "machine:\n  time:\n    servers:\n      - ${NTP}\n",
		"patches/kubelet.yaml": "machine:\n  kubelet:\n    extraConfig:\n      maxPods: {{ if eq " +
			".MachineConfig.MachineType \"worker\" }}200{{ else }}100{{ end }}\n",
		"patches/firewall.yaml": "apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: apid\nportSelector:\n  ports: " +
			"[50000]\n  protocol: tcp\ningress:\n  - subnet: 192.0.2.0/24\n",
	}

	group := "\n  patches:\n    - \"@./patches/kubelet.yaml\"\n    - \"@./patches/firewall.yaml\"\n"

	var text strings.Builder

	text.WriteString("clusterName: big\ntalosVersion: v1.13.4\nkubernetesVersion: v1.35.2\nendpoint: " +
		"https://192.0.2.254:6443\n" +
		"patches:\n  - \"@./patches/time.yaml\"\n  - \"machine: {sysctls: {vm.nr_hugepages: '1024'}}\"\n" +
		"controlPlane:" + group + "worker:" + group + "nodes:\n")

	for node := range nodes {
		fmt.Fprintf(&text, "  - hostname: node%d\n    ipAddress: 192.0.2.%d\n    controlPlane: %t\n    installDisk: "+
			"/dev/sda\n"+
			"    networkInterfaces:\n      - interface: eth0\n        addresses: [192.0.2.%d/24]\n    patches:\n", node, node+1,
			node < controlPlanes, node+1)

		for patch := range ownPatches {
			fmt.Fprintf(&text, "      - \"machine: {env: {PATCH_%d: of node %d}}\"\n", patch, node)
		}
	}

	files["talconfig.yaml"] = text.String()

	return example{name: "big", files: files}
}
