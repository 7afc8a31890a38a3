// Package tmux runs programs on a terminal that tests can look at.
package tmux

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is a limit that no screen comes near, however busy the machine.
const patience = 2 * time.Minute

// Terminal is a terminal on which a program runs.
type Terminal struct {
	tb      testing.TB
	program string
	socket  string
}

// Start runs a command of the shell on a terminal of the given size. The test is skipped, and says so, where there is
// no tmux. Of the environment the command gets PATH and HOME, and what is given.
func Start(tb testing.TB, width, height int, command string, environ ...string) *Terminal {
	tb.Helper()

	program, err := exec.LookPath("tmux")
	if err != nil {
		tb.Skip("NOT RUN: there is no tmux here (apt-get install tmux)")
	}

	terminal := &Terminal{tb: tb, program: program, socket: filepath.Join(folder(tb), "tmux")}
	script := filepath.Join(folder(tb), "run")
	require.NoError(tb, os.WriteFile(script, []byte("stty -echo\n"+command+"\necho end $?\nexec sleep 600\n"), 0o600))

	arguments := []string{"-f", os.DevNull, "-u", "new-session", "-d",
		"-x", strconv.Itoa(width), "-y", strconv.Itoa(height), "sh", script,
		";", "set-option", "-g", "status", "off", ";", "set-option", "-g", "history-limit", "10000"}
	starting := terminal.tmux(arguments...)
	starting.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + tb.TempDir(), "LC_ALL=C.UTF-8",
		"TERM=screen-256color"}, environ...)

	output, err := starting.CombinedOutput()
	require.NoError(tb, err, string(output))
	tb.Cleanup(func() { _ = terminal.tmux("kill-server").Run() })

	return terminal
}

// folder is a new one whose path is short enough for a socket.
func folder(tb testing.TB) string {
	tb.Helper()

	made, err := os.MkdirTemp("", "tmux-") //nolint:usetesting // the path of that is too long
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(made) })

	return made
}

func (t *Terminal) tmux(arguments ...string) *exec.Cmd {
	return exec.CommandContext(context.WithoutCancel(t.tb.Context()), t.program, append([]string{"-S", t.socket}, arguments...)...) //nolint:gosec // a test's own
}

func (t *Terminal) run(arguments ...string) string {
	t.tb.Helper()

	output, err := t.tmux(arguments...).CombinedOutput()
	require.NoError(t.tb, err, string(output))

	return string(output)
}

// Screen is what stands on the terminal now, without the space at its end.
func (t *Terminal) Screen() string {
	return strings.TrimRight(t.run("capture-pane", "-p"), "\n ") + "\n"
}

// Painted is the screen with its colours.
func (t *Terminal) Painted() string {
	return strings.TrimRight(t.run("capture-pane", "-p", "-e"), "\n ") + "\n"
}

// All is what was ever shown and has not been taken back, lines that the terminal broke in one.
func (t *Terminal) All() string { return t.run("capture-pane", "-p", "-J", "-S", "-") }

// Shows waits until the screen holds a text and no longer changes, and gives it.
func (t *Terminal) Shows(text string) string {
	t.tb.Helper()

	var last string

	require.Eventually(t.tb, func() bool {
		before := last
		last = t.Screen()

		return last == before && strings.Contains(last, text)
	}, patience, 250*time.Millisecond, text+" is never shown")

	return last
}

// Resize gives the terminal another size.
func (t *Terminal) Resize(width, height int) {
	t.run("resize-window", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height))
}

// Press presses keys, by the names that tmux has for them.
func (t *Terminal) Press(keys ...string) { t.run(append([]string{"send-keys"}, keys...)...) }
