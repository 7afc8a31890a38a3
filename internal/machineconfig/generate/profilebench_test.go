package generate_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkProfileOfHundredNodes is what a hundred nodes with three patches each cost.
func BenchmarkProfileOfHundredNodes(b *testing.B) {
	dir := b.TempDir()
	workers := make([]string, 99)

	for i := range workers {
		workers[i] = fmt.Sprintf("      - {name: w%d, ip: 192.0.2.%d}", i, i+100)
		writePatch(b, dir, fmt.Sprintf("w%d.yaml", i), "machine: {nodeLabels: {own: label}}\n")
	}

	text := strings.Replace(testProfile("1.13.9", "1.36.3"), "      - {name: w1, ip: 192.0.2.21, vmid: 111}",
		strings.Join(workers, "\n"), 1)
	require.NoError(b, os.WriteFile(filepath.Join(dir, "cluster.yaml"), []byte(text), 0o600))
	writePatch(b, dir, "all.yaml", "machine: {sysctls: {net.core.somaxconn: '1024'}}\n")
	writePatch(b, dir, "worker.yaml", "machine: {kubelet: {extraArgs: {max-pods: '200'}}}\n")

	shared, err := profileSecrets()
	require.NoError(b, err)

	for b.Loop() {
		output, err := configsIn(dir, shared)
		require.NoError(b, err)
		require.Len(b, output.Configs, 100)
	}
}

func writePatch(tb testing.TB, dir, name, text string) {
	tb.Helper()

	folder := filepath.Join(dir, "out", "patches")
	require.NoError(tb, os.MkdirAll(folder, 0o755))
	require.NoError(tb, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
}
