package api

import (
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/clusterhealth"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// protocol is what the API of one line of Talos does in its own way.
type protocol struct {
	// maintenance and configured are how the API is served without and with a machine config.
	maintenance, configured door
	// refusals are the answers of nodes that are no control plane, by what was asked of them, where they differ from the
	// usual one.
	refusals map[string]error
	// fanOutRefusal is what is said of a method that can't be asked of several nodes at once.
	fanOutRefusal func(method string) string
	// checkLimit is how long a check of the cluster's health may take by itself; 0 for as long as all of them together.
	checkLimit func(check string) time.Duration
	// checksNodesWithoutCNI reports whether the cluster's health needs Ready nodes even when the machine config says that
	// there is no CNI.
	checksNodesWithoutCNI bool
	// tearsDown reports whether resources have calls to tear them down; nobody may make them.
	tearsDown bool
	// keepsMetaKeys reports whether the keys of the META partition that Talos keeps for itself are closed to callers.
	keepsMetaKeys bool
	// forwarded are the keys of a caller's metadata that a node forwards with a call; nil for all.
	forwarded []string
}

// door is how the API port is served in one way.
type door struct {
	// services registers what is served.
	services func(*server, *grpc.Server)
	// unguarded doors leave it to the methods whom they serve; otherwise a table of roles decides.
	unguarded bool
	// messageLimit is the size of the largest message that is read, in bytes.
	messageLimit int
	// drain is how long open calls may go on once the port has closed.
	drain time.Duration
}

// protocolOf is that of the release that a boot runs.
func protocolOf(b *machine.Boot) *protocol {
	switch b.Release.Line {
	case "v1.12.":
		return protocol112()
	case "v1.13.":
		return protocol113()
	default:
		return protocol114()
	}
}

func protocol114() *protocol {
	everything := door{
		services: (*server).serveEverything114, messageLimit: constants.GRPCMaxMessageSize, drain: 10 * time.Second,
	}

	p := protocol113()
	p.maintenance, p.configured = everything, everything
	p.tearsDown, p.keepsMetaKeys = true, true
	p.forwarded = []string{"context", "runtime"}

	return p
}

func protocol113() *protocol {
	everything := door{
		services: (*server).serveEverything, messageLimit: constants.GRPCMaxMessageSize, drain: 10 * time.Second,
	}

	return &protocol{
		maintenance: everything,
		configured:  everything,
		fanOutRefusal: func(method string) string {
			return "one-2-many proxying is not supported for method " + method
		},
		checkLimit: func(string) time.Duration { return 0 },
	}
}

func protocol112() *protocol {
	return &protocol{
		maintenance: door{
			services: (*server).serveMaintenance112, unguarded: true, messageLimit: 4 << 20, drain: 5 * time.Second,
		},
		configured: door{
			services: (*server).serveConfigured112, messageLimit: constants.GRPCMaxMessageSize, drain: 10 * time.Second,
		},
		refusals: map[string]error{
			"bootstrap": status.Error(codes.FailedPrecondition,
				"bootstrap can only be performed on a control plane node"),
			"etcd alarm disarm": status.Error(codes.Unimplemented,
				"etcd alarm list is only available on control plane nodes"),
			"generate client configuration": status.Error(codes.FailedPrecondition,
				"client configuration (talosconfig) can't be generated on worker nodes"),
		},
		fanOutRefusal:         func(string) string { return "one-2-many proxying is not supported for COSI methods" },
		checkLimit:            checkLimit112,
		checksNodesWithoutCNI: true,
	}
}

// checkLimit112 is how long Talos 1.12 gives each check of the cluster's health.
func checkLimit112(check string) time.Duration {
	switch check {
	case clusterhealth.NoDiagnostics:
		return time.Minute
	case clusterhealth.NodesReady:
		return 10 * time.Minute
	default:
		return 5 * time.Minute
	}
}
