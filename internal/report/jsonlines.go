package report

import (
	"errors"
	"fmt"
	"io"
)

// JSONLines writes every event as one JSON object a line. The names of the fields are stable; secrets are masked.
type JSONLines struct {
	out io.Writer
	err error
}

// NewJSONLines writes to out. The first error of writing is kept for Close.
func NewJSONLines(out io.Writer) *JSONLines { return &JSONLines{out: out} }

// Handle writes the event.
func (j *JSONLines) Handle(event Event) {
	line, told := LineOf(event)
	if !told {
		return
	}

	if err := line.Write(j.out); err != nil && j.err == nil {
		j.err = fmt.Errorf("write event: %w", err)
	}
}

// Close closes what is written to, if it can be closed, and gives the first error of writing.
func (j *JSONLines) Close() error {
	if closer, ok := j.out.(io.Closer); ok {
		return errors.Join(j.err, closer.Close())
	}

	return j.err
}
