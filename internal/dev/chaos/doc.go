// Package chaos brings random clusters of emulated machines up while random things go wrong, and then checks, from the
// machines' own records, that nothing was lost and nothing was done twice, and that what the program said was true.
//
// A third of them are looked after once they are up: etcd is copied, defragmented and restored, members are removed,
// machines reset, replaced and upgraded, talosconfigs renewed, applications installed and Kubernetes upgraded, while
// something else goes wrong, and once more when all is healed. Half of these are looked at both times, by health,
// diagnose or what shows tables.
//
// The programs that apps and upgradeK8s run are doubles that are played in this process, so that a seed alone makes the
// plan: kubectl, helmfile and sops keep what they are given themselves, and ask the emulated Kubernetes whether it
// answers; talosctl changes the emulated nodes over their API, and a test holds it against the real one. Recordings of
// the others, and the real talosctl, are what tests of these steps and the matrix of faults have.
//
// A run is made from a seed alone. What differs between two runs of one seed is how their goroutines were scheduled.
package chaos
