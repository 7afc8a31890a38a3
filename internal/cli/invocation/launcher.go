package invocation

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// launchers are the processes through which somebody who waits for it started this one: mage, and the go above it (go
// tool mage). None, if another program is the parent, which may well end before its child.
type launchers struct {
	parent int // 0 without one
	above  int // 0 without one
	// dead is set when mage had ended by the time that this process could look.
	dead bool
}

// cached is the name of a program in Mage's cache: only mage starts it from there.
var cached = pattern.New(`^[0-9a-f]{40,64}(\.exe)?$`)

// findLaunchers looks at the parents as early as possible.
func findLaunchers() launchers {
	parent := os.Getppid()
	above, name := look(parent)
	program, _ := os.Executable() //nolint:errcheck // a program without a name is not known to be mage's

	fromCache := cached.MatchString(filepath.Base(program))
	switch {
	case fromCache && adopted(parent, name):
		return launchers{dead: true}
	case !fromCache && !isLauncher(name):
		return launchers{}
	}

	found := launchers{parent: parent}
	if _, name := look(above); isLauncher(name) {
		found.above = above
	}

	return found
}

// gone reports whether one of them does not live any more.
func (l launchers) gone() bool {
	return l.dead || l.parent != 0 && os.Getppid() != l.parent || l.above != 0 && !lives(l.above)
}

func isLauncher(name string) bool { return slices.Contains([]string{"mage", "go"}, name) }

// adopted reports whether the parent is not the mage that started this process, but took it over when that died: a
// child of mage's is in mage's process group. The first process of a container, which takes over whoever is left, may
// be in it too.
func adopted(parent int, name string) bool {
	return parent == 1 && !isLauncher(name) || !sameGroup(parent)
}

// look gives the parent of a process and the name of its program; 0 and nothing, if they can't be had.
func look(pid int) (parent int, name string) {
	if pid <= 0 {
		return 0, ""
	}

	// Linux has this file, proc_pid_stat(5): "pid (name) state parent …". Elsewhere ps knows.
	if text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat")); err == nil {
		return parseStat(string(text))
	}

	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()

	text, err := exec.CommandContext(ctx, "ps", "-o", "ppid=,comm=", "-p", strconv.Itoa(pid)).Output() //nolint:gosec // a number
	if err != nil {
		return 0, ""
	}

	number, path, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	parent, _ = strconv.Atoi(number) //nolint:errcheck // 0 says that it isn't known
	return parent, filepath.Base(strings.TrimSpace(path))
}

// parseStat reads parent and name; the name may have any character in it.
func parseStat(text string) (parent int, name string) {
	open, shut := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || shut < open {
		return 0, ""
	}

	if fields := strings.Fields(text[shut+1:]); len(fields) > 1 {
		parent, _ = strconv.Atoi(fields[1]) //nolint:errcheck // 0 says that it isn't known
	}

	return parent, text[open+1 : shut]
}
