package record

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/talos-mage/talos-mage/internal/report"
)

// Each hands the events of a run's folder over, in order. Lines that are none are left out, and told by their number;
// so is the beginning of a line that a killed run left at the end.
func Each(folder string, handle func(report.Line)) (mistakes []error, err error) {
	path := filepath.Join(folder, eventsFile)

	file, err := os.Open(path) //nolint:gosec // it is a run's
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	defer file.Close() //nolint:errcheck // it is only read

	lines := bufio.NewReader(file)
	for number := 1; ; number++ {
		text, err := lines.ReadBytes('\n')
		if len(text) > 0 {
			if line, mistake := report.ReadLine(text); mistake == nil {
				handle(line)
			} else {
				mistakes = append(mistakes, fmt.Errorf("%s:%d: %w", path, number, mistake))
			}
		}

		switch {
		case errors.Is(err, io.EOF):
			return mistakes, nil
		case err != nil:
			return mistakes, err //nolint:wrapcheck // it names the file
		}
	}
}

// Read is the run of a folder, as far as its events can be read.
func Read(folder string) (run *Run, mistakes []error, err error) {
	run = newRun(filepath.Base(folder))
	mistakes, err = Each(folder, run.add)

	return run, mistakes, err
}
