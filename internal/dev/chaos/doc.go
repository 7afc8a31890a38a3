// Package chaos brings random clusters of emulated machines up while random things go wrong, and then checks, from the
// machines' own records, that nothing was lost and nothing was done twice, and that what the program said was true.
//
// A third of them are looked after once they are up: etcd is copied, defragmented and restored, members are removed,
// machines reset, replaced and upgraded, talosconfigs renewed, while something else goes wrong, and once more when all
// is healed. Half of these are looked at both times, by health, diagnose or what shows tables. Left out is upgradeK8s:
// it runs the real talosctl, which is not everywhere, so that a seed alone would not make the plan. The matrix of
// faults plays that.
//
// A run is made from a seed alone. What differs between two runs of one seed is how their goroutines were scheduled.
package chaos
