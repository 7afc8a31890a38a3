package machine

import (
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
)

// newResources is the empty state of a boot.
func (r *release) newResources() (state.CoreState, error) {
	shared, err := r.definitions()
	if err != nil {
		return nil, err
	}

	return namespaced.NewState(func(namespace resource.Namespace) state.CoreState {
		if namespace == meta.NamespaceName {
			return shared
		}

		return inmem.NewStateWithOptions(
			inmem.WithHistoryInitialCapacity(8),
			inmem.WithHistoryMaxCapacity(1024),
			inmem.WithHistoryGap(4),
		)(namespace)
	}), nil
}
