package diagnosis

import (
	"strings"

	"github.com/hashicorp/go-multierror"
)

// Join makes one error of several, in the given order: nil of none, a single one as it is, else a *multierror.Error that prints a line
// for each. Nil errors are left out.
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

	joined.ErrorFormat = lines

	return joined
}

// lines prints one error a line, without the count and bullets of multierror's own format.
func lines(errs []error) string {
	texts := make([]string, 0, len(errs))

	for _, err := range errs {
		texts = append(texts, err.Error())
	}

	return strings.Join(texts, "\n")
}
