package report

import "io"

// Table is the final table of nodes in the order of their first results.
func Table(w io.Writer, results []Result, color bool) error {
	return writeTable(w, results, nil, color)
}
