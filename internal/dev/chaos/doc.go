// Package chaos brings random clusters of emulated machines up while random things go wrong, and then checks, from the
// machines' own records, that nothing was lost and nothing was done twice, and that what the program said was true.
//
// A run is made from a seed alone. What differs between two runs of one seed is how their goroutines were scheduled.
package chaos
