//go:build linux

package scale_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// usage is what a process has used.
type usage struct {
	// Processor is the time on processors since the process started.
	Processor time.Duration
	// Resident is the most memory it ever had, in MB.
	Resident float64
	// Goroutines and Descriptors are how many there were at most, and how many are left beyond those that it started with.
	Goroutines, Descriptors         int
	GoroutinesLeft, DescriptorsLeft int
}

// meter follows the usage of this process.
type meter struct {
	stop chan struct{}
	done sync.WaitGroup

	goroutines, descriptors         int // at the start
	mostGoroutines, mostDescriptors int
}

// startMeter looks often enough to see what a second's work takes, and seldom enough to cost next to nothing.
func startMeter() *meter {
	const often = 100 * time.Millisecond

	m := &meter{stop: make(chan struct{}), goroutines: runtime.NumGoroutine(), descriptors: descriptors()}

	m.done.Go(func() {
		for {
			select {
			case <-m.stop:
				return
			case <-time.After(often):
				m.mostGoroutines = max(m.mostGoroutines, runtime.NumGoroutine())
				m.mostDescriptors = max(m.mostDescriptors, descriptors())
			}
		}
	})

	return m
}

// read ends the meter. What was closed a moment ago may take another to end, on a busy machine a long one.
func (m *meter) read() (usage, error) {
	const patience = time.Minute

	close(m.stop)
	m.done.Wait()

	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if runtime.NumGoroutine() <= m.goroutines && descriptors() <= m.descriptors {
			break
		}
	}

	used, err := used()
	used.Goroutines, used.GoroutinesLeft = m.mostGoroutines, runtime.NumGoroutine()-m.goroutines
	used.Descriptors, used.DescriptorsLeft = m.mostDescriptors, descriptors()-m.descriptors

	return used, err
}

// used is the usage of this process as far as the system counts it.
func used() (usage, error) {
	var times syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &times); err != nil {
		return usage{}, fmt.Errorf("read processor time: %w", err)
	}

	resident, err := resident()

	return usage{Processor: time.Duration(times.Utime.Nano() + times.Stime.Nano()), Resident: resident}, err
}

// descriptors counts the open ones, the one for counting aside.
func descriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}

	return len(entries) - 1
}

// resident is the peak of this process's resident memory in MB. The resource usage would tell that of the process which
// started this one, if that had more.
func resident() (float64, error) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read resident memory: %w", err)
	}

	for line := range strings.Lines(string(data)) {
		var kilobytes float64

		if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kilobytes); err == nil {
			return kilobytes / 1024, nil
		}
	}

	return 0, errors.New("read resident memory: /proc/self/status tells no peak")
}
