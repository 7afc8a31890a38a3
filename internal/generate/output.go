// Package generate makes machine configs from the files that people write: in memory, without a network, the same each time.
package generate

import (
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
)

// Source is what machine configs are made from.
type Source struct {
	// File is the path of the talconfig or profile; paths in it are relative to its folder.
	File string
	// Lookup finds variables: talenv.yaml, talenv.sops.yaml (already decrypted) and the environment.
	Lookup func(name string) (string, bool)
	// Secrets are the cluster's.
	Secrets *secrets.Bundle
	// Now is what the talosconfig's client certificate is valid from.
	Now time.Time
}

// Output is everything that a folder clusterconfig/ holds.
type Output struct {
	// Cluster is its name.
	Cluster string
	// Configs are in the inventory's order.
	Configs     []Config
	Talosconfig []byte
	GitIgnore   []byte
}

// Config is one node's machine config.
type Config struct {
	// Node is its name; File the file's name inside the folder.
	Node, File string
	// Bytes hold secrets.
	Bytes []byte
}
