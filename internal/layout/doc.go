// Package layout holds one test: imports between this repository's packages go one way.
package layout
