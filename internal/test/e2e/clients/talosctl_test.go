package clients_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// command is one command line of talosctl. The fields that the named command does not take stay empty.
type command struct {
	// words are the command and its arguments, as in "get", "machinestatus".
	words []string
	// nodes and endpoints are --nodes and --endpoints; without them those of the talosconfig are meant.
	nodes, endpoints []string
	// talosconfig is the path of the TALOSCONFIG.
	talosconfig string
	insecure    bool

	// mode is that of apply-config, reboot or reset.
	mode string
	// Of apply-config.
	file         string
	dryRun       bool
	fingerprints []string

	// Of get.
	output string
	watch  bool

	// tail is how many past events to show; -1 means all.
	tail int
	// noWait lets reboot and reset return at once.
	noWait bool
	// force and noMerge are about a kubeconfig that exists; shutdown and upgrade can be forced as well.
	force, noMerge bool
	// limit is how long the command may wait for a cluster's health, or for the end of a reboot, a shutdown, a reset or an
	// upgrade.
	limit time.Duration

	// Of reset.
	ungraceful, reboots bool
	labels, disks       []string

	// Of upgrade.
	image         string
	stage, legacy bool

	// local makes health check by itself instead of having a control plane do it.
	local bool

	// enough interrupts the command once it is true of what it printed, for commands that do not end by themselves.
	enough func(stdout string) bool
}

// result is what a command left behind for whoever called it.
type result struct {
	code           int
	stdout, stderr string
}

// text is everything that a person sees.
func (r result) text() string { return r.stdout + r.stderr }

// talosctl runs command lines of talosctl.
type talosctl interface {
	run(t *testing.T, c command) result
}

// Releases of talosctl whose calls are made here.
var (
	fanningOut = calls{release: "v1.13", fansOut: true}
	oneByOne   = calls{release: "v1.14"}
)

// withEach runs a test with the real talosctl, where there is one, and with the calls that its releases make.
func withEach(t *testing.T, test func(t *testing.T, ctl talosctl)) {
	t.Helper()
	with(t, test, fanningOut, oneByOne)
}

// withAny is withEach for commands for which all releases make the same calls.
func withAny(t *testing.T, test func(t *testing.T, ctl talosctl)) {
	t.Helper()
	with(t, test, oneByOne)
}

func with(t *testing.T, test func(t *testing.T, ctl talosctl), releases ...calls) {
	t.Helper()

	t.Run("talosctl", func(t *testing.T) {
		t.Parallel()
		test(t, realTalosctl(t))
	})

	for _, release := range releases {
		t.Run("calls of "+release.release, func(t *testing.T) {
			t.Parallel()
			test(t, release)
		})
	}
}

// program is the real talosctl.
type program struct {
	path string
	home string
}

// realTalosctl finds talosctl on the PATH; without one the test is skipped.
func realTalosctl(t *testing.T) program {
	t.Helper()

	path, err := exec.LookPath("talosctl")
	if err != nil {
		t.Skip("SKIP: no talosctl")
	}

	return program{path, t.TempDir()}
}

func (p program) run(t *testing.T, c command) result {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	var stderr bytes.Buffer

	process := exec.CommandContext(ctx, p.path, c.arguments()...)
	stdout := &screen{enough: c.enough, interrupt: cancel}
	process.Stdout, process.Stderr = stdout, &stderr
	process.Dir = p.home
	process.Env = []string{
		"HOME=" + p.home, "TALOS_HOME=" + filepath.Join(p.home, ".talos"), "TALOSCONFIG=" + c.talosconfig,
		"PATH=" + os.Getenv("PATH"),
	}
	process.Cancel = func() error { return process.Process.Signal(os.Interrupt) }
	process.WaitDelay = limit

	err := process.Run()

	if stdout.hadEnough() {
		return result{0, stdout.String(), stderr.String()}
	}

	require.NoError(t, ctx.Err(), "%s did not end:\n%s%s", c, stdout, &stderr)

	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}

	return result{process.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// arguments is the command line.
func (c command) arguments() []string {
	line := append([]string(nil), c.words...)

	flag := func(given bool, texts ...string) {
		if given {
			line = append(line, texts...)
		}
	}

	flag(len(c.nodes) > 0, "--nodes", strings.Join(c.nodes, ","))
	flag(len(c.endpoints) > 0, "--endpoints", strings.Join(c.endpoints, ","))
	flag(c.insecure, "--insecure")
	flag(c.file != "", "--file", c.file)
	flag(c.mode != "" && c.words[0] != "reset", "--mode", c.mode)
	flag(c.mode != "" && c.words[0] == "reset", "--wipe-mode", c.mode)
	flag(c.dryRun, "--dry-run")
	flag(len(c.fingerprints) > 0, "--cert-fingerprint", strings.Join(c.fingerprints, ","))
	flag(c.output != "", "--output", c.output)
	flag(c.watch, "--watch")
	flag(c.tail != 0, "--tail="+strconv.Itoa(c.tail))
	flag(c.noWait, "--wait=false")
	flag(c.force, "--force")
	flag(c.noMerge, "--merge=false")
	flag(c.limit != 0 && c.words[0] == "health", "--wait-timeout", c.limit.String())
	flag(c.limit != 0 && c.words[0] != "health", "--timeout", c.limit.String())
	flag(c.local, "--server=false")
	flag(c.ungraceful, "--graceful=false")
	flag(c.reboots, "--reboot")
	flag(len(c.labels) > 0, "--system-labels-to-wipe", strings.Join(c.labels, ","))
	flag(len(c.disks) > 0, "--user-disks-to-wipe", strings.Join(c.disks, ","))
	flag(c.image != "", "--image", c.image)
	flag(c.stage, "--stage")
	flag(c.legacy, "--legacy")

	return line
}

// String is the command line as one would type it.
func (c command) String() string { return "talosctl " + strings.Join(c.arguments(), " ") }

// screen collects what a command prints, and interrupts it when that is enough.
type screen struct {
	enough    func(string) bool
	interrupt func()

	mu   sync.Mutex
	text strings.Builder
	done bool
}

// Write implements io.Writer.
func (s *screen) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.text.Write(data)

	if s.enough != nil && !s.done && s.enough(s.text.String()) {
		s.done = true
		s.interrupt()
	}

	return len(data), nil
}

func (s *screen) hadEnough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.done
}

// String is what was printed so far.
func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.text.String()
}

// works runs a command that must succeed.
func works(t *testing.T, ctl talosctl, c command) result {
	t.Helper()

	r := ctl.run(t, c)
	require.Zero(t, r.code, "%s:\n%s", c, r.text())

	return r
}

// fails runs a command that must fail, with a text among what it prints on standard error.
func fails(t *testing.T, ctl talosctl, c command, why string) result {
	t.Helper()

	r := ctl.run(t, c)
	require.Equal(t, 1, r.code, "%s:\n%s", c, r.text())
	require.Contains(t, r.stderr, why, "%s", c)

	return r
}
