package diagnosis

import (
	"fmt"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// Join makes one error of several, in the given order: nil of none, a single one as it is, else a *multierror.Error
// that prints a line for each. Nil errors are left out.
func Join(errs ...error) error {
	var joined *multierror.Error

	for _, err := range errs {
		if err != nil {
			joined = multierror.Append(joined, err)
		}
	}

	if joined == nil {
		return nil
	}

	if len(joined.Errors) == 1 {
		return joined.Errors[0]
	}

	joined.ErrorFormat = Lines

	return joined
}

// Lines is a multierror's format of one error a line, without the count and bullets of its own.
func Lines(errs []error) string {
	texts := make([]string, 0, len(errs))

	for _, err := range errs {
		texts = append(texts, err.Error())
	}

	return strings.Join(texts, "\n")
}

// Place is where something stands in a file, as path:line:column. What is 0 is unknown, and left out.
func Place(path string, line, column int) string {
	switch {
	case line > 0 && column > 0:
		return fmt.Sprintf("%s:%d:%d", path, line, column)
	case line > 0:
		return fmt.Sprintf("%s:%d", path, line)
	default:
		return path
	}
}
