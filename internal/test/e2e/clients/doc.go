// Package clients tests emulated nodes with other people's clients: machinery's, talosctl, client-go and kubectl.
package clients
