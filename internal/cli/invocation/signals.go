package invocation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

var (
	errInterrupted = errors.New("stopped by SIGINT")
	errTerminated  = errors.New("stopped by SIGTERM")
	errOrphaned    = errors.New("stopped: the mage that started this process died")
)

// launcherInterval is how often a child of mage looks whether its launchers still live.
const launcherInterval = 100 * time.Millisecond

// lastPatience is how long a call that was stopped may take to end by itself, as when it reads from a file system that
// hangs. Mage ends the process after 5 s, with a code that says nothing.
const lastPatience = 4 * time.Second

// withSignals gives a context that ends, with the reason as its cause, on SIGINT, SIGTERM, or the death of a launcher:
// mage does not pass SIGTERM on, and a child that went on changing nodes would surprise everybody.
func withSignals(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)

	ended := make(chan struct{})
	launchers := findLaunchers()
	if launchers.gone() {
		cancel(errOrphaned)
	}

	go func() {
		ticker := time.NewTicker(launcherInterval)
		defer ticker.Stop()

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

				exitUnless(ctx, ended)

				return
			case <-ticker.C:
				if launchers.gone() {
					cancel(errOrphaned)
					return
				}
			}
		}
	}()

	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
		close(ended)
	}
}

// exitUnless ends the process if the call does not end in time.
func exitUnless(stopped context.Context, ended <-chan struct{}) {
	select {
	case <-ended:
	case <-time.After(lastPatience):
		code, reason := interruption(stopped)
		fmt.Fprintf(os.Stderr, "Error: %v, in the middle of something that does not end\n", reason)
		os.Exit(int(code)) //nolint:forbidigo // whoever would return the code hangs
	}
}

// interruption is the exit code of a context that was ended from outside, and how that is told; ExitOK if it was not.
func interruption(ctx context.Context) (diagnosis.ExitCode, error) {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return diagnosis.ExitOK, nil
	case errors.Is(cause, errTerminated), errors.Is(cause, errOrphaned):
		return diagnosis.ExitTerminated, cause
	default:
		// Mage cancels its own context on SIGINT, and may be faster.
		return diagnosis.ExitInterrupt, errInterrupted
	}
}
