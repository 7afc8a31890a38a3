package machine

import (
	"fmt"
	"slices"
	"sync"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/signal"
)

// LogBuffer is a growing log that readers can follow.
type LogBuffer struct {
	Changed signal.Signal

	mu    sync.Mutex
	texts []string
}

func (l *LogBuffer) add(line string) {
	l.mu.Lock()
	l.texts = append(l.texts, line)
	l.mu.Unlock()

	l.Changed.Raise()
}

func (l *LogBuffer) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return slices.Clone(l.texts)
}

// Log writes a line to the kernel log, as everything that machined says.
func (b *Boot) Log(format string, values ...any) {
	b.printLine("user: warning", "[talos] "+fmt.Sprintf(format, values...))
}

func (b *Boot) printLine(facility, text string) {
	now := b.Now()
	line := fmt.Sprintf("%s: [%s]: %s", facility, now.UTC().Format("2006-01-02T15:04:05.000000000Z"), text)

	b.KernelLog.add(line)
	b.Node.Lab.options.Logger.Debug().Str("node", b.Node.options.Name).Msg(text)
}

// LogOf is the log of a service, made when it is first needed.
func (s *services) LogOf(id string) *LogBuffer {
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()

	if s.logs[id] == nil {
		s.logs[id] = &LogBuffer{}
	}

	return s.logs[id]
}
