package report

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// Ask shows a question on Err and reads a line from in. Meanwhile nothing else is shown: live lines are taken away, log
// lines wait. It gives up when the context is done.
func (c *Console) Ask(ctx context.Context, in io.Reader, question string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.settle()

	if _, err := io.WriteString(c.options.Err, question); err != nil {
		return "", fmt.Errorf("ask: %w", err)
	}

	type line struct {
		text string
		err  error
	}

	answered := make(chan line, 1)

	go func() {
		text, err := bufio.NewReader(in).ReadString('\n')
		answered <- line{text, err}
	}()

	select {
	case answer := <-answered:
		if answer.err != nil {
			return "", fmt.Errorf("read the answer: %w", answer.err)
		}

		return strings.TrimSpace(answer.text), nil
	case <-ctx.Done():
		fmt.Fprintln(c.options.Err)
		return "", context.Cause(ctx)
	}
}
