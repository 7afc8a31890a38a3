// Package layout holds tests about the repository itself: imports between its packages go one way, and it speaks of
// nothing outside of it.
package layout
