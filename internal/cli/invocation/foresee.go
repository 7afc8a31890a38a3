package invocation

import (
	"context"
	"errors"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
)

// load reads the settings of a call. Before that it judges all that mage was called for: mage itself knows neither
// nodes nor what may be lost, and runs its targets one after the other.
func (i Invocation) load(ctx context.Context, flags settings.Overrides) (*settings.Settings, error) {
	for _, call := range settings.CallsIn(i.Words, i.Alias, Targets) {
		if err := i.foresee(ctx, call); err != nil {
			return nil, err
		}
	}

	return settings.Load(i.Environ, flags, i.Workdir) //nolint:wrapcheck // it names the setting
}

// Foresee refuses a call before any other is made: one with a value that no setting takes, one that may lose data and
// that nobody agrees to, and one that names nodes, or a cluster, which the files do not declare.
func (i Invocation) Foresee(ctx context.Context, call settings.Call) error {
	if err := i.foresee(ctx, call); err != nil {
		return errors.New(i.told(err.Error()))
	}

	return nil
}

func (i Invocation) foresee(ctx context.Context, call settings.Call) error {
	mayLoseData := settings.MayLoseData(call.Target)
	if !mayLoseData && len(call.Given) == 0 {
		return nil
	}

	loaded, err := settings.Load(i.Environ, call.Given, i.Workdir)
	if err == nil {
		err = loaded.RefuseUnasked(call.Target, i.In != nil)
	}

	if err != nil || !mayLoseData && !call.NamesNodes() {
		return err //nolint:wrapcheck // it names the setting
	}

	cluster, err := workspace.New(ctx, loaded, i.Environ).Inventory()

	switch {
	case err == nil:
		return steps.CheckNames(loaded, cluster) //nolint:wrapcheck // it names the setting
	case mayLoseData:
		return err //nolint:wrapcheck // it names the file
	default:
		return nil // some targets do without a cluster
	}
}
