// Package talos speaks to one Talos node: it finds out what answers at an address, dials it, reads from it, and sends
// it a machine config or Bootstrap. It also says what an error of a node means, in one place.
//
// A node serves the same API in two ways, told apart by the TLS handshake alone: in maintenance mode anyone may connect
// and nobody is verified; configured, it asks for a client certificate of the cluster's machine CA. What a node answers
// depends on its version (1.12 and 1.13 are known here); errors are classified by gRPC code first and by text only
// where the code says too little.
package talos

import "github.com/siderolabs/talos/pkg/machinery/constants"

// DefaultPort is the port of a node's API.
const DefaultPort = constants.ApidPort

// EtcdDataDir is where a control plane keeps etcd's data; an empty or missing directory means that etcd never ran
// there.
const EtcdDataDir = constants.EtcdDataPath
