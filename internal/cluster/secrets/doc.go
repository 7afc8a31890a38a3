// Package secrets reads, makes and recovers the secrets bundle of a cluster: its certificate authorities, keys and
// tokens. All that belongs to the cluster was signed with it, so a bundle that is lost can't be made again.
//
// The file has the form of `talosctl gen secrets`, which `talhelper gensecret` writes too.
package secrets
