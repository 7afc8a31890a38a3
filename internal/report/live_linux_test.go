package report_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/test/fakeclock"
	"github.com/talos-mage/talos-mage/internal/test/pty"
)

// columns is the width of the terminal.
const columns = 80

// screen is a terminal: what was written to it, and what stands on it now.
type screen struct {
	// keyboard is where keys are pressed.
	keyboard io.Writer

	mu       sync.Mutex
	lines    []string
	row, col int
	past     strings.Builder
}

// openTerminal opens a pseudo terminal and gives the program's end of it and the screen at the other end.
func openTerminal(t *testing.T) (*os.File, *screen) {
	t.Helper()

	controller, terminal := pty.Open(t)
	require.NoError(t, unix.IoctlSetWinsize(int(controller.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))

	shown := &screen{lines: []string{""}, keyboard: controller}
	done := make(chan struct{})

	go func() {
		defer close(done)

		buffer := make([]byte, 4096)

		for {
			n, err := controller.Read(buffer)
			shown.write(string(buffer[:n]))

			if err != nil {
				return
			}
		}
	}()

	t.Cleanup(func() {
		_ = terminal.Close()
		<-done
		_ = controller.Close()
	})

	return terminal, shown
}

// write does what a terminal does with the few codes that live lines need.
func (s *screen) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.past.WriteString(text)

	for text != "" {
		var up int

		switch {
		case text[0] == '\r':
			text, s.col = text[1:], 0
		case text[0] == '\n':
			text = text[1:]
			s.down()
		case strings.HasPrefix(text, "\x1b[J"):
			text = text[3:]
			s.lines = s.lines[:s.row+1]

			left := []rune(s.lines[s.row])
			s.lines[s.row] = string(left[:min(s.col, len(left))])
		case strings.HasPrefix(text, "\x1b["):
			if _, err := fmt.Sscanf(text, "\x1b[%dA", &up); err == nil {
				s.row -= up
			}

			text = text[strings.IndexAny(text, "Am")+1:]
		default:
			if s.col == columns {
				s.col = 0
				s.down()
			}

			shown, size := utf8.DecodeRuneInString(text)
			line := []rune(fmt.Sprintf("%-*s", s.col+1, s.lines[s.row]))
			line[s.col] = shown
			s.lines[s.row] = string(line)
			text, s.col = text[size:], s.col+1
		}
	}
}

func (s *screen) down() {
	if s.row++; s.row == len(s.lines) {
		s.lines = append(s.lines, "")
	}
}

// now is what stands on the screen.
func (s *screen) now() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return strings.Join(s.lines, "\n")
}

// written is all that was ever written to it.
func (s *screen) written() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.past.String()
}

// patience is a limit that no terminal comes near, however busy the machine.
const patience = time.Minute

func TestLiveLinesOnATerminal(t *testing.T) {
	t.Parallel()

	terminal, shown := openTerminal(t)
	clk := fakeclock.New(start)
	options := report.Terminals(terminal, terminal, true)
	options.Now, options.Out, options.Story = clk.Now, io.Discard, false
	require.True(t, options.Terminal)
	require.False(t, options.Color, "no colours were asked for")

	console := report.NewConsole(options)
	recorder := report.NewRecorder(clk.Now, console)
	log := console.Logger()
	shows := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(shown.now(), text) }, patience, 5*time.Millisecond,
			"%s\n%s", text, shown.now())
	}

	recorder.Start("verify", "cp1", "worker1")
	recorder.Progress("verify",
		report.Progress{Node: "worker1", Text: "no answer", Since: clk.Now(), Left: 15 * time.Minute})
	recorder.Progress("verify",
		report.Progress{Node: "cp1", Text: "installing\nabcdef.0123456789abcdef", Since: clk.Now()})
	shows("▸ verify  0 of 2 nodes done  0.0s\n")
	shows("    cp1      installing (masked)  0.0s\n") // the longest name sets the column
	shows("    worker1  no answer  0.0s of 15m00s\n")
	require.Less(t, strings.Index(shown.now(), "cp1 "), strings.Index(shown.now(), "worker1 "),
		"the nodes stand in their order")

	clk.Advance(90 * time.Second)
	shows("worker1  no answer  1m30s of 15m00s\n")

	log.Info().Msg("a line above the live ones")
	shows("INFO a line above the live ones\n")

	recorder.Progress("verify", report.Progress{Node: "cp1", Text: strings.Repeat("very ", 30) + "long"})
	shows("…\n") // cut to the terminal's width

	recorder.Result(report.Result{Node: "cp1", Step: "verify", Status: report.Failed,
		Err: errors.New("bad token abcdef.0123456789abcdef")})
	shows("▸ verify  1 of 2 nodes done, 1 failed  1m30s\n")
	shows("  ✗ cp1      bad token (masked)\n")
	log.Info().Msg("the last line")
	recorder.Finish("verify", time.Minute, nil)
	require.NoError(t, recorder.Close())

	// The terminal is clean: only the log lines are left, and none is lost.
	require.Eventually(t, func() bool {
		left := shown.now()

		return strings.Contains(left, "INFO a line above the live ones\n") &&
			strings.Contains(left, "INFO the last line\n") &&
			!strings.Contains(left, "worker1") && !strings.Contains(left, "nodes done")
	}, patience, 5*time.Millisecond, "live lines are left, or log lines missing")
}

// The terminal shows ^C where the cursor stands, so that the next line does not begin at its left.
func TestNoLiveLineStaysBehindAfterAnInterruption(t *testing.T) {
	t.Parallel()

	terminal, shown := openTerminal(t)
	options := report.Terminals(terminal, terminal, true)
	options.Out = io.Discard

	recorder := report.NewRecorder(time.Now, report.NewConsole(options))
	shows := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(shown.now(), text) }, patience, time.Millisecond,
			"%s\n%s", text, shown.now())
	}

	recorder.Start("verify", "cp1")
	recorder.Progress("verify", report.Progress{Node: "cp1", Text: strings.Repeat("very", 30)})
	shows("…\n")

	_, err := shown.keyboard.Write([]byte{3})
	require.NoError(t, err)
	shows("^C")
	recorder.Finish("verify", time.Second, nil)
	require.NoError(t, recorder.Close())
	require.Eventually(t, func() bool { return strings.TrimSpace(shown.now()) == "" }, patience, time.Millisecond,
		"%q is left", shown.now())
}

func TestNoLiveLinesBetweenJSONLines(t *testing.T) {
	t.Parallel()

	terminal, shown := openTerminal(t)
	clk := fakeclock.New(start)
	options := report.Terminals(terminal, terminal, false)
	options.Now, options.Out, options.LogFormat = clk.Now, io.Discard, "json"

	console := report.NewConsole(options)
	recorder := report.NewRecorder(clk.Now, console, report.NewLogSink(console.Logger()))

	recorder.Start("verify", "cp1")
	recorder.Progress("verify", report.Progress{Node: "cp1", Text: "installing"})
	recorder.Finish("verify", time.Second, nil)
	require.NoError(t, recorder.Close())

	require.Eventually(t, func() bool { return strings.Contains(shown.written(), `"message":"verify finished"`) }, patience,
		5*time.Millisecond)
	require.NotContains(t, shown.written(), "installing")
	require.NotContains(t, shown.written(), "\x1b")
}

func TestTheLastTableFitsTheTerminal(t *testing.T) {
	t.Parallel()

	terminal, shown := openTerminal(t)
	options := report.Terminals(terminal, terminal, true)
	options.Err, options.Story = io.Discard, false

	recorder := report.NewRecorder(time.Now, report.NewConsole(options))

	for _, step := range []string{"secrets", "configs", "preflight", "applySequential", "verify", "bootstrap",
		"kubeconfig", "verifyWorkers"} {
		recorder.Start(step, "a-control-plane")
		recorder.Result(report.Result{Node: "a-control-plane", Step: step, Status: report.Applied})
		recorder.Finish(step, time.Second, nil)
	}

	require.NoError(t, recorder.Close())
	require.Eventually(t, func() bool { return strings.Contains(shown.now(), "verifyWorkers\n") }, patience,
		5*time.Millisecond)

	_, table, _ := strings.Cut(shown.now(), "\nnode ")
	require.NotEmpty(t, table)

	for line := range strings.Lines(table) {
		require.LessOrEqual(t, len(line), 81, line)
	}
}

// A question stands alone on the terminal until it is answered.
func TestAQuestionTakesTheLiveLinesAway(t *testing.T) {
	t.Parallel()

	terminal, shown := openTerminal(t)
	options := report.Terminals(terminal, terminal, true)
	options.Terminal, options.LogFormat = true, "text"

	console := report.NewConsole(options)
	recorder := report.NewRecorder(time.Now, console)
	recorder.Start("reset", "cp1")
	recorder.Progress("reset", report.Progress{Node: "cp1", Text: "looked at"})

	answered := make(chan string)

	go func() {
		answer, err := console.Ask(t.Context(), terminal, "Type cp1 to go on: ")
		if err != nil {
			answer = err.Error()
		}

		answered <- answer
	}()

	require.Eventually(t, func() bool { return strings.Contains(shown.now(), "Type cp1 to go on: ") },
		10*time.Second, time.Millisecond)
	require.NotContains(t, shown.now(), "looked at")

	_, err := io.WriteString(shown.keyboard, " cp1\n")
	require.NoError(t, err)
	require.Equal(t, "cp1", <-answered)
	require.NoError(t, console.Close())

	ctx, stop := context.WithCancel(t.Context())
	stop()

	silent, hangUp := io.Pipe()
	defer hangUp.Close() //nolint:errcheck // nothing was written

	_, err = report.NewConsole(report.ConsoleOptions{Out: io.Discard, Err: io.Discard}).Ask(ctx, silent, "Type cp1: ")
	require.ErrorIs(t, err, context.Canceled)
}
