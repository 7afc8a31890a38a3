package journal

import (
	"slices"
	"sync"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/signal"
)

// Log is a growing log that readers can follow.
type Log struct {
	Changed signal.Signal

	mu    sync.Mutex
	texts []string
}

// Add appends a line.
func (l *Log) Add(line string) {
	l.mu.Lock()
	l.texts = append(l.texts, line)
	l.mu.Unlock()

	l.Changed.Raise()
}

// Lines is what the log holds so far.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return slices.Clone(l.texts)
}
