package machine

import (
	"crypto/tls"
	"fmt"
	"regexp"
	"strings"

	"github.com/cosi-project/runtime/pkg/state"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/configrules"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/cosi"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// release is what the machines of one line of Talos, such as v1.12.x, do in their own way. What it does not tell, all
// lines do alike.
type release struct {
	// Line is how the names of its releases begin: "v1.13.".
	Line string
	// OldestTLS is the oldest version of TLS that the API speaks.
	OldestTLS uint16
	// apidFirst reports whether one apid serves the API without and with a machine config, from the first sequence of a
	// boot on. Otherwise maintenance mode has a service of its own, whose end the machine waits for before it does
	// anything else, and apid starts with the boot sequence: a machine has no API while it installs.
	apidFirst bool
	// OneApply reports whether a machine handles one ApplyConfiguration at a time, and none once it is about to reboot for
	// one.
	OneApply bool
	// NeverReboots reports whether no ApplyConfiguration makes a machine reboot: what needs a reboot waits for the next.
	NeverReboots bool
	// UnattendedInstall reports whether a document of the machine config can ask for an install beside the boot sequence.
	UnattendedInstall bool
	// EarlyCRI reports whether the containers' runtime is loaded with the first services, before there is a machine
	// config, and whether it can run in a sandbox.
	EarlyCRI bool
	// OptionalParts reports whether a machine config can leave out Kubernetes, or etcd alone, and with it what only that
	// needs.
	OptionalParts bool
	// NestedVolumes reports whether a Reset takes a volume that is a directory of another, if that is wiped too.
	NestedVolumes bool
	// finalConfigs reports whether static pods are made from resources of their own, with all defaults filled in.
	finalConfigs bool
	// inventory reports whether a cluster's first control plane keeps a list of the objects that it applied.
	inventory bool
	// registersTaints reports whether kubelet makes its node with the taints of the machine config.
	registersTaints bool
	// laterPhases reports whether the sequences have the phases of Talos 1.14.
	laterPhases bool

	// flannelOrNone reports whether a cluster's CNI is told as one of the two, so that a custom one reads as none.
	flannelOrNone bool

	// Rules are what these releases make of machine configs.
	Rules *configrules.Rules
	// waitEnded is the last entry in the history of an etcd that a Bootstrap replaces while it waits for a cluster to
	// join.
	waitEnded serviceEntry
	// definitions is the namespace "meta": the resource types and namespaces that there are.
	definitions func() (state.CoreState, error)
}

// serviceEntry is an entry in the history of a service.
type serviceEntry struct {
	state   service.State
	message string
}

// The releases that can be played, newest first.
var releases = []*release{
	{
		Line:              "v1.14.",
		OldestTLS:         tls.VersionTLS13,
		apidFirst:         true,
		OneApply:          true,
		NeverReboots:      true,
		UnattendedInstall: true,
		EarlyCRI:          true,
		OptionalParts:     true,
		NestedVolumes:     true,
		finalConfigs:      true,
		inventory:         true,
		registersTaints:   true,
		laterPhases:       true,
		flannelOrNone:     true,
		Rules:             configrules.Talos114,
		waitEnded:         serviceEntry{service.Finished, "Service finished successfully"},
		definitions:       cosi.DefinitionsOf(cosi.ResourceNamespaces114(), cosi.ResourceSpecs114),
	},
	{
		Line:        "v1.13.",
		OldestTLS:   tls.VersionTLS13,
		apidFirst:   true,
		OneApply:    true,
		inventory:   true,
		Rules:       configrules.Talos113,
		waitEnded:   serviceEntry{service.Finished, "Service finished successfully"},
		definitions: cosi.DefinitionsOf(cosi.ResourceNamespaces, cosi.ResourceSpecs),
	},
	{
		Line:      "v1.12.",
		OldestTLS: tls.VersionTLS12,
		Rules:     configrules.Talos112,
		waitEnded: serviceEntry{service.Failed,
			"Failed to run pre stage: failed to build initial etcd cluster: failed to build cluster arguments: " +
				"1 error(s) occurred:\n\terror getting etcd member list: context canceled"},
		definitions: cosi.DefinitionsOf(cosi.ResourceNamespaces112(), cosi.ResourceSpecs112),
	},
}

var fullVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// releaseOf finds the line that plays a Talos version, as in "v1.12.4".
func releaseOf(version string) (*release, error) {
	var lines []string

	for _, candidate := range releases {
		if fullVersion.MatchString(version) && strings.HasPrefix(version, candidate.Line) {
			return candidate, nil
		}

		lines = append(lines, candidate.Line+"x")
	}

	return nil, fmt.Errorf("TalosVersion %q can't be played, only %s can", version, strings.Join(lines, ", "))
}

// CanPlay says why nodes of a Talos version can't be played; nil if they can.
func CanPlay(version string) error {
	_, err := releaseOf(version)

	return err
}
