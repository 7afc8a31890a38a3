package kills_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/e2e/program"
)

// process is a command in a process group of its own.
type process struct {
	command *exec.Cmd
	stdout  bytes.Buffer
	stderr  *lines
}

// lines collects a text and tells of each line of it.
type lines struct {
	tell func(line string)

	mu   sync.Mutex
	text strings.Builder
	part string
}

func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	l.text.Write(data)
	complete := strings.Split(l.part+string(data), "\n")
	l.part = complete[len(complete)-1]
	l.mu.Unlock()

	for _, line := range complete[:len(complete)-1] {
		l.tell(line)
	}

	return len(data), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.text.String()
}

// start starts a command line; tell is told of each line on its stderr.
func start(t *testing.T, dir string, env []string, tell func(line string), args ...string) *process {
	t.Helper()

	p := &process{command: exec.Command(args[0], args[1:]...), stderr: &lines{tell: tell}}
	p.command.Dir, p.command.Env = dir, program.Environment(env...)
	p.command.Stdout, p.command.Stderr = &p.stdout, p.stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	require.NoError(t, p.command.Start())
	t.Cleanup(func() {
		if len(p.members()) > 0 {
			_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
		}
	})

	return p
}

// wait waits for the end of the process, and of everything that it has started.
func (p *process) wait(t *testing.T) {
	t.Helper()

	var left []member

	err := p.command.Wait()

	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}

	require.Eventually(t, func() bool {
		left = p.members()

		return len(left) == 0
	}, labcluster.Deadline, 5*time.Millisecond, "left behind: %v", &left)
}

// code is the exit code; that of a process which a signal ended is negative.
func (p *process) code() int { return p.command.ProcessState.ExitCode() }

// endedBy is the signal that ended the process, without it having a say; 0 if none did.
func (p *process) endedBy() syscall.Signal {
	status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0
	}

	return status.Signal()
}

func (p *process) output() string { return p.stdout.String() + p.stderr.String() }

// member is a living process of the group.
type member struct {
	pid  int
	name string // the first 15 bytes of its program's
}

func (m member) String() string { return fmt.Sprintf("%d (%s)", m.pid, m.name) }

// members are the living processes of the group; zombies only wait for somebody who takes notice.
func (p *process) members() []member {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}

	var found []member

	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}

		if name, group, alive := stat(pid); alive && group == p.command.Process.Pid {
			found = append(found, member{pid, name})
		}
	}

	return found
}

// stat reads what proc_pid_stat(5) describes: "pid (name) state parent group …".
func stat(pid int) (name string, group int, alive bool) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", 0, false
	}

	text := string(data)
	open, shut := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')

	if open < 0 || shut < open {
		return "", 0, false
	}

	fields := strings.Fields(text[shut+1:])
	if len(fields) < 3 {
		return "", 0, false
	}

	group, err = strconv.Atoi(fields[2])

	return text[open+1 : shut], group, err == nil && fields[0] != "Z" && fields[0] != "X"
}

// send sends the signal to whom it is for. The program below mage may not have been started yet.
func (p *process) send(w way) {
	switch w.victim {
	case aloneTool, itsLauncher:
		_ = p.command.Process.Signal(w.signal)
	case wholeGroup:
		_ = syscall.Kill(-p.command.Process.Pid, w.signal)
	case launchedTool:
		// Not until the process has ended: that waits for its output, which may wait for this.
		for len(p.members()) > 0 {
			if pid := p.launched(); pid != 0 {
				_ = syscall.Kill(pid, w.signal)

				return
			}

			time.Sleep(time.Millisecond) //nolint:forbidigo // of wall time
		}
	}
}

// launched is the process that mage started the program in; 0 if there is none.
func (p *process) launched() int {
	cached := filepath.Base(launcher.Program)

	for _, member := range p.members() {
		if strings.HasPrefix(cached, member.name) && member.pid != p.command.Process.Pid {
			return member.pid
		}
	}

	return 0
}
