package machineconfig

import (
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
)

var _ validation.RuntimeMode = Mode{}

// Mode says what kind of machine a config is validated for.
type Mode struct {
	// Installed machines ignore the install section.
	Installed bool
	// Metal machines install Talos on a disk; clouds boot an image that holds it already.
	Metal bool
	// Release is the Talos that judges; nil for the newest that is known here.
	Release *config.VersionContract
}

// String is the platform mode's name as Talos puts it in its messages.
func (m Mode) String() string {
	if m.Metal {
		return "metal"
	}

	return "cloud"
}

// RequiresInstall is true for a metal machine without Talos on a disk.
func (m Mode) RequiresInstall() bool { return m.Metal && !m.Installed }

// InContainer is always false: containers can't be brought up over the network.
func (m Mode) InContainer() bool { return false }

// newRules are what Talos says from 1.14 on of configs that it took before.
var newRules = []string{
	"etcd encryption config is required for control plane machines running kube-apiserver",
	"cluster name and endpoint are required when Kubernetes is configured",
	".cluster.serviceAccount requires the cluster endpoint",
}

// itsOwn leaves of a validation's problems those that the release that judges would find, too.
func (m Mode) itsOwn(problems []string) []string {
	if m.Release == nil || m.Release.Greater(config.TalosVersion1_13) {
		return problems
	}

	return slices.DeleteFunc(problems, func(problem string) bool {
		return slices.ContainsFunc(newRules, func(rule string) bool { return strings.Contains(problem, rule) })
	})
}
