// Package clients tests emulated nodes with other people's clients: machinery's, client-go and kubectl.
package clients
