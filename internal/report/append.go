package report

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// longestLine is how much of a report's end is looked at for the beginning of its last line, in bytes.
const longestLine = 1 << 16

// AppendJSONLines adds the events of a run to the file at path, which is made with mode 0600 if there is none. An event
// that a killed run left half-written at its end is taken away first.
func AppendJSONLines(path string) (*JSONLines, error) {
	if err := finishLastLine(path); err != nil {
		return nil, fmt.Errorf("finish the last line: %w", err)
	}

	// A pipe that nobody reads from is refused, instead of waited for.
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o600) //nolint:gosec // the user names it
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}

	return NewJSONLines(file), nil
}

// finishLastLine cuts off the beginning of an event, and ends any other line.
func finishLastLine(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err //nolint:wrapcheck // it names the file
	case !info.Mode().IsRegular() || info.Size() == 0:
		return nil
	}

	file, err := os.OpenFile(path, os.O_RDWR, 0) //nolint:gosec // the user names it
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}

	return errors.Join(finishLine(file, info.Size()), file.Close())
}

func finishLine(file *os.File, size int64) error {
	end := make([]byte, min(size, longestLine))
	if _, err := file.ReadAt(end, size-int64(len(end))); err != nil {
		return err //nolint:wrapcheck // it names the file
	}

	last := end[bytes.LastIndexByte(end, '\n')+1:]
	switch {
	case len(last) == 0:
		return nil
	case bytes.HasPrefix([]byte(eventStart), last[:min(len(last), len(eventStart))]):
		return file.Truncate(size - int64(len(last)))
	default:
		_, err := file.WriteAt([]byte{'\n'}, size)
		return err //nolint:wrapcheck // it names the file
	}
}
