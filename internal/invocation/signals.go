package invocation

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

var (
	errInterrupted = errors.New("stopped by SIGINT")
	errTerminated  = errors.New("stopped by SIGTERM")
	errOrphaned    = errors.New("stopped: the mage that started this process died")
)

// parentInterval is how often a child of mage looks whether its parent still lives.
const parentInterval = 250 * time.Millisecond

// withSignals gives a context that ends, with the reason as its cause, on SIGINT, SIGTERM, or the death of the mage launcher: it does not pass
// SIGTERM on, and a child that went on changing nodes would surprise everybody.
func withSignals(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)

	go func() {
		ticker := time.NewTicker(parentInterval)
		defer ticker.Stop()

		launcher := launcherPID()

		for {
			select {
			case <-ctx.Done():
				return
			case received := <-signals:
				// A second signal ends the process at once.
				signal.Stop(signals)

				if received == os.Interrupt {
					cancel(errInterrupted)
				} else {
					cancel(errTerminated)
				}

				return
			case <-ticker.C:
				if launcher != 0 && os.Getppid() != launcher {
					cancel(errOrphaned)

					return
				}
			}
		}
	}()

	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// launcherPID is the parent's process id if it is the mage or go program, else 0: any other parent may end before its child.
func launcherPID() int {
	parent := os.Getppid()
	if !slices.Contains([]string{"mage", "go"}, programName(parent)) {
		return 0
	}

	return parent
}

// programName is the name of a process's program; empty if it can't be had.
func programName(pid int) string {
	// Linux has this file; elsewhere ps knows.
	if name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm")); err == nil {
		return strings.TrimSpace(string(name))
	}

	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()

	name, err := exec.CommandContext(ctx, "ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output() //nolint:gosec // a number
	if err != nil {
		return ""
	}

	return filepath.Base(strings.TrimSpace(string(name)))
}

// interruption is the exit code of a context that a signal ended, and the signal's name; ExitOK if none did.
func interruption(ctx context.Context) (diagnosis.ExitCode, string) {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return diagnosis.ExitOK, ""
	case errors.Is(cause, errTerminated), errors.Is(cause, errOrphaned):
		return diagnosis.ExitTerminated, "SIGTERM"
	default:
		// Mage cancels its own context on SIGINT, and may be faster.
		return diagnosis.ExitInterrupt, "SIGINT"
	}
}
