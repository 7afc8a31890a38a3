package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// usage is what a program has used, with those that it started.
type usage struct {
	processor time.Duration
	resident  int64 // bytes
}

// measure runs a program to its end.
func measure(command *exec.Cmd) (usage, error) {
	// It ends with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	contain(command)

	if err := command.Start(); err != nil {
		return usage{}, fmt.Errorf("start %s: %w", filepath.Base(command.Path), err)
	}

	stop, peak := make(chan struct{}), make(chan int64, 1)
	go func() { peak <- peakResident(command.Process.Pid, stop) }()

	err := command.Wait()

	close(stop)

	used := usage{resident: <-peak}
	if err != nil {
		return used, fmt.Errorf("run %s: %w", filepath.Base(command.Path), err)
	}

	// What it waited for is in there.
	used.processor = command.ProcessState.UserTime() + command.ProcessState.SystemTime()

	return used, nil
}

// peakResident is the most memory that a process and those below it had at a time. The system's own count of a process
// that has ended begins with what the one had that started it, and here that one plays the nodes.
func peakResident(pid int, stop <-chan struct{}) int64 {
	const often = 20 * time.Millisecond // a talosctl takes some 100

	ticker := time.NewTicker(often)
	defer ticker.Stop()

	for peak := int64(0); ; {
		peak = max(peak, residentBelow(pid))

		select {
		case <-stop:
			return peak
		case <-ticker.C:
		}
	}
}

// residentBelow adds up the peaks of the processes that there are.
func residentBelow(pid int) int64 {
	process := filepath.Join("/proc", strconv.Itoa(pid))
	sum := resident(filepath.Join(process, "status"))

	children, err := os.ReadFile(filepath.Join(process, "task", strconv.Itoa(pid), "children")) //nolint:gosec // of the system
	if err != nil {
		return sum // it has ended
	}

	for _, child := range strings.Fields(string(children)) {
		if number, err := strconv.Atoi(child); err == nil {
			sum += residentBelow(number)
		}
	}

	return sum
}

// resident is the peak of a process so far; 0 if it has ended.
func resident(status string) int64 {
	data, err := os.ReadFile(status) //nolint:gosec // of the system
	if err != nil {
		return 0
	}

	for line := range strings.Lines(string(data)) {
		var kilobytes int64

		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); err == nil {
			return kilobytes * 1024
		}
	}

	return 0
}

// load is this computer's in the last minute, as the system says it.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}

	minute, _, _ := strings.Cut(string(text), " ")

	return minute
}
