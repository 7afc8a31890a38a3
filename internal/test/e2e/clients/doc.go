// Package clients tests emulated nodes with other people's clients: talosctl, the calls that talosctl makes, and
// kubectl.
package clients
