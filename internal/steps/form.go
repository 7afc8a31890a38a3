package steps

import (
	"github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
)

// admitForm keeps a config from a configured node whose running Talos does not know its documents.
func (a *applier) admitForm(seen observe.Observation, version string) error {
	cause, next := nodes.UnknownForm(a.Cluster, a.Configs[seen.Node.Name], version,
		"mage preflight -node="+seen.Node.Name)
	if cause == "" {
		return nil
	}

	return a.problem(seen, diagnosis.TalosVersionMismatch, cause, next)
}
