package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/e2e/program"
	"github.com/talos-mage/talos-mage/internal/test/pty"
)

// silent is a cluster of which nothing answers.
const silent = `clusterName: lab
endpoint: https://127.203.78.11:6443
talosVersion: v1.14.1
kubernetesVersion: v1.37.0
nodes:
  - {hostname: cp1, ipAddress: 127.203.78.11, controlPlane: true, installDisk: /dev/vda}
  - {hostname: worker1, ipAddress: 127.203.78.21, installDisk: /dev/vda}
`

// traced has the spans of a run sent to a collector, which isn't there.
const traced = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.203.78.1:4318"

// BenchmarkStart is how long a person waits, from Enter to the first thing that shows on the terminal. On an idle
// machine the median is to stay below 50 ms, and traces are to cost less than 20 ms of it.
func BenchmarkStart(b *testing.B) {
	path, err := program.Compile(filepath.Join("..", ".."))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, os.RemoveAll(filepath.Dir(path))) })

	folder := b.TempDir()
	require.NoError(b, os.Mkdir(filepath.Join(folder, "talos"), 0o700))
	require.NoError(b, os.WriteFile(filepath.Join(folder, "talos", "talconfig.yaml"), []byte(silent), 0o600))

	for _, words := range []string{"-version", "-l", "-h", "talos -h", "status", "status, traced", "preflight"} {
		b.Run(words, func(b *testing.B) {
			command, traces := strings.CutSuffix(words, ", traced")

			var waited []time.Duration
			for b.Loop() {
				waited = append(waited, untilFirstByte(b, folder, path, command, traces))
			}

			slices.Sort(waited)
			b.ReportMetric(float64(waited[len(waited)/2].Microseconds())/1000, "ms-median")
		})
	}
}

// untilFirstByte runs the program on a terminal until something shows there.
func untilFirstByte(b *testing.B, folder, path, words string, traces bool) time.Duration {
	b.Helper()

	screen, terminal := pty.Open(b)
	defer screen.Close()

	command := exec.CommandContext(b.Context(), path, strings.Fields(words)...)
	command.Dir = folder
	command.Env = program.Environment("ROOT_DIR="+folder, "TERM=xterm", "LC_ALL=C.UTF-8")
	command.Stdin, command.Stdout, command.Stderr = terminal, terminal, terminal

	if traces {
		command.Env = append(command.Env, traced)
	}

	started := time.Now()

	require.NoError(b, command.Start())
	require.NoError(b, terminal.Close())

	_, err := screen.Read(make([]byte, 1))
	waited := time.Since(started)

	require.NoError(b, err)

	_ = command.Process.Kill() // nobody looks at the rest
	_ = command.Wait()

	return waited
}
