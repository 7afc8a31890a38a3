package emulator

import (
	"crypto/tls"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/clusterhealth"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/cosi"
)

// release is what the releases of one line of Talos, such as v1.12.x, do in their own way. What it does not tell, all
// lines do alike.
type release struct {
	// line is how the names of its releases begin: "v1.13.".
	line string
	// oldestTLS is the oldest version of TLS that the API speaks.
	oldestTLS uint16
	// maintenance and configured are how the API is served without and with a machine config.
	maintenance, configured door
	// apidFirst reports whether one apid serves both, from the first sequence of a boot on. Otherwise maintenance mode has
	// a service of its own, whose end the machine waits for before it does anything else, and apid starts with the boot
	// sequence: a machine has no API while it installs.
	apidFirst bool
	// oneApply reports whether a machine handles one ApplyConfiguration at a time, and none once it is about to reboot for
	// one.
	oneApply bool

	// load reads a machine config, or says why it can't in the words of these releases.
	load func([]byte) (talosconfig.Provider, error)
	// refusals are the answers of nodes that are no control plane, by what was asked of them, where they differ from the
	// usual one.
	refusals map[string]error
	// fanOutRefusal is what is said of a method that can't be asked of several nodes at once.
	fanOutRefusal func(method string) string
	// waitEnded is the last entry in the history of an etcd that a Bootstrap replaces while it waits for a cluster to
	// join.
	waitEnded serviceEntry
	// checkLimit is how long a check of the cluster's health may take by itself; 0 for as long as all of them together.
	checkLimit func(check string) time.Duration
	// checksNodesWithoutCNI reports whether the cluster's health needs Ready nodes even when the machine config says that
	// there is no CNI.
	checksNodesWithoutCNI bool
	// definitions is the namespace "meta": the resource types and namespaces that there are.
	definitions func() (state.CoreState, error)
}

// door is how the API port is served in one way.
type door struct {
	// services registers what is served.
	services func(*apiServer, *grpc.Server)
	// unguarded doors leave it to the methods whom they serve; otherwise a table of roles decides.
	unguarded bool
	// messageLimit is the size of the largest message that is read, in bytes.
	messageLimit int
	// drain is how long open calls may go on once the port has closed.
	drain time.Duration
}

// serviceEntry is an entry in the history of a service.
type serviceEntry struct {
	state   serviceState
	message string
}

// The releases that can be played, newest first.
var releases = []*release{
	{
		line:      "v1.13.",
		oldestTLS: tls.VersionTLS13,
		maintenance: door{
			services: (*apiServer).serveEverything, messageLimit: constants.GRPCMaxMessageSize, drain: 10 * time.Second,
		},
		configured: door{
			services: (*apiServer).serveEverything, messageLimit: constants.GRPCMaxMessageSize, drain: 10 * time.Second,
		},
		apidFirst: true,
		oneApply:  true,
		load:      func(data []byte) (talosconfig.Provider, error) { return configloader.NewFromBytes(data) },
		fanOutRefusal: func(method string) string {
			return "one-2-many proxying is not supported for method " + method
		},
		waitEnded:   serviceEntry{stateFinished, "Service finished successfully"},
		checkLimit:  func(string) time.Duration { return 0 },
		definitions: cosi.DefinitionsOf(cosi.ResourceNamespaces, cosi.ResourceSpecs),
	},
	{
		line:      "v1.12.",
		oldestTLS: tls.VersionTLS12,
		maintenance: door{
			services: (*apiServer).serveMaintenance112, unguarded: true, messageLimit: 4 << 20, drain: 5 * time.Second,
		},
		configured: door{
			services: (*apiServer).serveConfigured112, messageLimit: constants.GRPCMaxMessageSize, drain: 10 * time.Second,
		},
		load: load112,
		refusals: map[string]error{
			"bootstrap": status.Error(codes.FailedPrecondition,
				"bootstrap can only be performed on a control plane node"),
			"etcd alarm disarm": status.Error(codes.Unimplemented,
				"etcd alarm list is only available on control plane nodes"),
			"generate client configuration": status.Error(codes.FailedPrecondition,
				"client configuration (talosconfig) can't be generated on worker nodes"),
		},
		fanOutRefusal: func(string) string { return "one-2-many proxying is not supported for COSI methods" },
		waitEnded: serviceEntry{stateFailed,
			"Failed to run pre stage: failed to build initial etcd cluster: failed to build cluster arguments: " +
				"1 error(s) occurred:\n\terror getting etcd member list: context canceled"},
		checkLimit:            checkLimit112,
		checksNodesWithoutCNI: true,
		definitions:           cosi.DefinitionsOf(cosi.ResourceNamespaces112(), cosi.ResourceSpecs112),
	},
}

var fullVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// releaseOf finds the line that plays a Talos version, as in "v1.12.4".
func releaseOf(version string) (*release, error) {
	var lines []string

	for _, candidate := range releases {
		if fullVersion.MatchString(version) && strings.HasPrefix(version, candidate.line) {
			return candidate, nil
		}

		lines = append(lines, candidate.line+"x")
	}

	return nil, fmt.Errorf("TalosVersion %q can't be played, only %s can", version, strings.Join(lines, " and "))
}

// CanPlay says why nodes of a Talos version can't be played; nil if they can.
func CanPlay(version string) error {
	_, err := releaseOf(version)

	return err
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
