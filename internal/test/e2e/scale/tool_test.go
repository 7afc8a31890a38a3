//go:build linux

package scale_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/e2e/program"
)

// outcome is what became of the program's call.
type outcome struct {
	usage

	Wall time.Duration
}

// tool applies and verifies in another process, to so many nodes at once.
func (n *nodes) tool(tb testing.TB, parallel int) outcome {
	tb.Helper()

	command := exec.CommandContext(tb.Context(), os.Args[0]) //nolint:gosec // this program
	command.Env = program.Environment(role+"=tool", "GOGC=100", "LOG_LEVEL=error", "TMPDIR="+n.folder,
		"ROOT_DIR="+n.folder, "TALOS_DIR="+filepath.Join(n.folder, "talos"),
		"KUBECONFIG="+filepath.Join(n.folder, "kubeconfig"), "MAX_PARALLEL="+strconv.Itoa(parallel))

	var out, errs bytes.Buffer

	command.Stdout, command.Stderr = &out, &errs
	require.NoError(tb, command.Run(), errs.String())

	var result outcome

	require.NoError(tb, json.Unmarshal(out.Bytes(), &result), out.String())

	return result
}

// runTool is the process of the program: what a person would see goes to stderr, the outcome to stdout.
func runTool() error {
	call := invocation.Invocation{Environ: os.Environ(), Workdir: os.TempDir(), Out: os.Stderr, Err: os.Stderr}

	if err := warmUp(); err != nil {
		return err
	}

	meter := startMeter()
	began := time.Now()

	if failure := call.Execute(context.Background(), "talos", nil, applyAndVerify); failure != nil {
		return fmt.Errorf("it ended with code %d: %s", failure.Code, failure.Message)
	}

	wall := time.Since(began)

	used, err := meter.read()
	if err != nil {
		return err
	}

	return json.NewEncoder(os.Stdout).Encode(outcome{used, wall})
}

// warmUp makes the runtime open what stays until the process ends: with its first connection, and with the first signal
// that it is told to watch.
func warmUp() error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	signal.Stop(signals)

	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	if err != nil {
		return fmt.Errorf("open the first connection: %w", err)
	}

	return listener.Close()
}

// applyAndVerify is the part of the recipe whose work grows with the number of nodes.
func applyAndVerify(*settings.Settings) []steps.Step {
	return []steps.Step{steps.Apply{Parallel: true}, steps.Verify{}}
}
