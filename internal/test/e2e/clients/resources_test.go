package clients_test

import (
	"context"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// Every type that a node knows can be listed and watched: by administrators all, by others those that are not
// sensitive.
func TestEveryResourceTypeIsListedAndWatched(t *testing.T) {
	t.Parallel()

	for name, connect := range map[string]func(*testing.T) *client.Client{
		"configured": func(t *testing.T) *client.Client { t.Helper(); return secure(t, sharedCluster(t), "cp1") },
		"maintenance": func(t *testing.T) *client.Client {
			t.Helper()

			made, err := labcluster.New(t.TempDir(), labcluster.Options{ControlPlanes: 1, Workers: -1})
			require.NoError(t, err)
			t.Cleanup(func() { made.Close() })

			require.NoError(t, made.Nodes[0].WaitFor(t.Context(), inMaintenance))

			api, err := insecure(t.Context(), made.Nodes[0])
			require.NoError(t, err)
			t.Cleanup(func() { api.Close() })

			return api
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := connect(t)

			types, err := safe.StateListAll[*meta.ResourceDefinition](t.Context(), api.COSI)
			require.NoError(t, err)
			require.Greater(t, types.Len(), 160)

			for definition := range types.All() {
				spec := definition.TypedSpec()
				kind := resource.NewMetadata(spec.DefaultNamespace, spec.Type, "", resource.VersionUndefined)

				listed, listErr := list(t.Context(), api, kind)
				watched, watchErr := watch(t.Context(), api, kind)

				if name == "maintenance" && spec.Sensitivity == meta.Sensitive {
					require.Equal(t, codes.PermissionDenied, client.StatusCode(listErr), spec.Type)
					require.ErrorContains(t, watchErr, "not authorized", spec.Type)

					continue
				}

				require.NoError(t, listErr, spec.Type)
				require.NoError(t, watchErr, spec.Type)
				require.Subset(t, watched, listed, spec.Type)
			}
		})
	}
}

// list is the ids of the resources of a kind, whatever is in them.
func list(ctx context.Context, api *client.Client, kind resource.Metadata) ([]string, error) {
	found, err := api.COSI.List(ctx, kind, state.WithListUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
	ids := []string{}

	for _, item := range found.Items {
		ids = append(ids, item.Metadata().ID())
	}

	return ids, err
}

// watch is the ids of the resources that a watch of a kind begins with.
func watch(ctx context.Context, api *client.Client, kind resource.Metadata) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, labcluster.Deadline)
	defer cancel()

	events := make(chan state.Event)
	ids := []string{}

	if err := api.COSI.WatchKind(ctx, kind, events, state.WithBootstrapContents(true),
		state.WithWatchKindUnmarshalOptions(state.WithSkipProtobufUnmarshal())); err != nil {
		return nil, err
	}

	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case event := <-events:
			switch event.Type {
			case state.Errored:
				return nil, event.Error
			case state.Bootstrapped:
				return ids, nil
			case state.Created, state.Updated:
				ids = append(ids, event.Resource.Metadata().ID())
			default:
			}
		}
	}
}
