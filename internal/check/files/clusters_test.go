package files_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// generated writes a whole cluster, as a user of talhelper has it, with so many nodes, the first three of them control
// planes.
func generated(t testing.TB, nodes int, change func(*clusterfiles.Options)) string {
	t.Helper()

	bundle, err := ourSecrets()
	require.NoError(t, err)

	options := clusterfiles.Options{
		ClusterName: "lab", Endpoint: "https://198.18.0.10:6443", VIP: netip.MustParseAddr("198.18.0.10"), Secrets: bundle,
	}

	for i := range nodes {
		role := machine.TypeWorker
		if i < 3 {
			role = machine.TypeControlPlane
		}

		address := netip.AddrFrom4([4]byte{198, 18, byte((i + 11) / 250), byte((i+11)%250 + 1)})
		options.Nodes = append(options.Nodes, clusterfiles.Node{
			Name: fmt.Sprintf("n%d", i+1), Role: role, MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", i/256, i%256),
			Address: netip.PrefixFrom(address, 16), Gateway: netip.MustParseAddr("198.18.255.254"),
		})
	}

	if change != nil {
		change(&options)
	}

	made, err := clusterfiles.Make(options)
	require.NoError(t, err)

	folder := t.TempDir()
	require.NoError(t, made.Write(folder))

	return folder
}

// readFolder reads a folder that was written.
func readFolder(folder string) *check.Input {
	return check.Read(check.Options{TalosDir: folder, Root: folder, Checks: check.Settings{Now: time.Now()}})
}

func TestAGeneratedClusterIsClean(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*clusterfiles.Options){
		"documents":  nil,
		"old fields": func(options *clusterfiles.Options) { options.TalosVersion = "v1.11.6" },
		"without a VIP": func(options *clusterfiles.Options) {
			options.VIP = netip.Addr{}
			options.Endpoint = "https://198.18.0.13:6443"
		},
		"DHCP": func(options *clusterfiles.Options) {
			for i := range options.Nodes {
				node := &options.Nodes[i]
				node.Declared, node.Address, node.Gateway = node.Address.Addr().String(), netip.Prefix{}, netip.Addr{}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			result := table.Run(context.Background(), readFolder(generated(t, 5, change)))
			require.Empty(t, result.Trouble())
			require.Equal(t, diagnosis.ExitOK, result.ExitCode())
			require.NotEmpty(t, result.Passed)
		})
	}
}

// patched adds ten patches of its own to each node of a talconfig.
func patched(t testing.TB, folder string) {
	t.Helper()

	text := string(readText(t, folder))

	var out strings.Builder

	for line := range strings.Lines(text) {
		out.WriteString(line)

		if strings.HasPrefix(line, "    ipAddress:") {
			out.WriteString("    patches:\n")

			for i := range 10 {
				fmt.Fprintf(&out, "      - |-\n        machine:\n          sysctls:\n            net.core.somaxconn%d: \"%d\"\n", i,
					1024+i)
			}
		}
	}

	writeText(t, folder, out.String())
}

// The cost a node stays flat: compare ns/node of the sizes.
func BenchmarkAudit(b *testing.B) {
	for _, nodes := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			folder := generated(b, nodes, nil)
			patched(b, folder)

			// A thousand nodes don't fit into Talos' default pod subnet, which is not what is measured.
			options := check.Settings{Now: time.Now(), SkipChecks: []diagnosis.ID{diagnosis.PodSubnetSize}}

			for b.Loop() {
				result := table.Run(context.Background(),
					check.Read(check.Options{TalosDir: folder, Root: folder, Checks: options}))
				require.Equal(b, diagnosis.ExitOK, result.ExitCode())
			}

			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(nodes), "ns/node")
		})
	}
}
