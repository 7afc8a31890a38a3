package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile"
	"github.com/talos-mage/talos-mage/internal/report"
)

// Writer records a run: each event at once, so that a killed run leaves what it came to, and the rest at its end.
type Writer struct {
	folder string
	events *os.File
	run    *Run
	warn   func(error)
	err    error
}

// New makes the folder of a run that begins now, and removes the oldest beyond those to keep. What can't be written
// later is warned of: a run goes on without its record.
func New(runs string, keep int, now time.Time, warn func(error)) (*Writer, error) {
	folder, err := create(runs, now)
	if err != nil {
		return nil, err
	}

	if err := prune(runs, keep); err != nil {
		warn(err)
	}

	events, err := os.OpenFile(filepath.Join(folder, eventsFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // its own
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}

	return &Writer{folder: folder, events: events, run: newRun(filepath.Base(folder)), warn: warn}, nil
}

// Handle records the event.
func (w *Writer) Handle(event report.Event) {
	line, told := report.LineOf(event)
	if !told || w.err != nil {
		return
	}

	w.run.add(line)
	w.err = line.Write(w.events)
}

// Close writes what is made of the events. It warns of what went wrong; the run itself did not.
func (w *Writer) Close() error {
	if err := errors.Join(w.err, w.events.Close(), w.run.Write(w.folder)); err != nil {
		w.warn(err)
	}

	return nil
}

// Write makes the documents of a run in its folder.
func (r *Run) Write(folder string) error {
	for _, document := range []struct {
		name  string
		write func(io.Writer) error
	}{{PageFile, r.WriteHTML}, {junitFile, r.WriteJUnit}, {summaryFile, r.WriteSummary}} {
		var text bytes.Buffer
		if err := document.write(&text); err != nil {
			return fmt.Errorf("make %s: %w", document.name, err)
		}

		if err := atomicfile.WriteFile(filepath.Join(folder, document.name), text.Bytes(), 0o600); err != nil {
			return err //nolint:wrapcheck // it names the file
		}
	}

	return nil
}

// Documented reports whether a run's folder holds all of its documents. Each is whole if it is there.
func Documented(folder string) bool {
	return !slices.ContainsFunc([]string{PageFile, junitFile, summaryFile}, func(name string) bool {
		_, err := os.Stat(filepath.Join(folder, name))
		return err != nil
	})
}
