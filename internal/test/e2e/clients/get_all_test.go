package clients_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// typesOf are the resource types that a node knows.
func typesOf(t *testing.T, api *client.Client) []*meta.ResourceDefinition {
	t.Helper()

	found, err := safe.StateListAll[*meta.ResourceDefinition](t.Context(), api.COSI)
	require.NoError(t, err)
	require.Greater(t, found.Len(), 160)

	return slices.Collect(found.All())
}

// connected is the connection of a command.
func connected(t *testing.T, asked command) (*invocation, *client.Client) {
	t.Helper()

	s := &invocation{calls: oneByOne, command: asked, stdout: &screen{}}

	lines, hangUp, err := s.connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(hangUp)

	return s, lines[0].Client
}

func sensitive(definition *meta.ResourceDefinition) bool {
	return definition.TypedSpec().Sensitivity == meta.Sensitive
}

// Every type that a node knows can be listed, shown as YAML and watched: by administrators all, by others those that
// are not sensitive. The calls are made on one connection, since for each command talosctl asks for all types again.
func TestEveryResourceTypeIsListedAndWatched(t *testing.T) {
	t.Parallel()

	maintenance := newCluster(t, 1, 0, nil)

	for name, asked := range map[string]func(*testing.T) command{
		"configured":  func(t *testing.T) command { t.Helper(); return sharedCluster(t).on("cp1", "get") },
		"maintenance": func(*testing.T) command { return maintenance.insecurely("cp1", "get") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s, api := connected(t, asked(t))
			ctx := s.toNode(t.Context(), s.nodes[0])

			for _, definition := range typesOf(t, api) {
				kind := resource.NewMetadata(definition.TypedSpec().DefaultNamespace, definition.TypedSpec().Type, "",
					resource.VersionUndefined)

				view, err := newView(s, definition)
				require.NoError(t, err, definition.Metadata().ID())

				listed := idsOf(func(show func(resource.Resource) error) error { return s.list(ctx, api, kind, show) }, view,
					s.nodes[0])
				watched := idsOf(func(show func(resource.Resource) error) error { return watchAll(ctx, api, kind, show) }, view,
					s.nodes[0])

				if s.insecure && sensitive(definition) {
					require.Equal(t, codes.PermissionDenied, client.StatusCode(listed.err), definition.Metadata().ID())
					require.ErrorContains(t, watched.err, "not authorized", definition.Metadata().ID())

					continue
				}

				require.NoError(t, listed.err, definition.Metadata().ID())
				require.NoError(t, watched.err, definition.Metadata().ID())
				require.Subset(t, watched.ids, listed.ids, definition.Metadata().ID())
			}
		})
	}
}

// gotten are the resources of one type.
type gotten struct {
	ids []string
	err error
}

// idsOf gets resources, shows each in both ways, and tells which there are.
func idsOf(get func(show func(resource.Resource) error) error, view *view, node string) gotten {
	ids := []string{}

	err := get(func(r resource.Resource) error {
		ids = append(ids, r.Metadata().ID())

		if err := view.yaml(node, r); err != nil {
			return err
		}

		return view.row(node, r)
	})

	return gotten{ids, err}
}

// watchAll shows what a watch begins with.
func watchAll(ctx context.Context, api *client.Client, kind resource.Metadata,
	show func(resource.Resource) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	events := make(chan state.Event)

	if err := api.COSI.WatchKind(ctx, kind, events, state.WithBootstrapContents(true),
		state.WithWatchKindUnmarshalOptions(state.WithSkipProtobufUnmarshal())); err != nil {
		return err
	}

	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event := <-events:
			switch event.Type {
			case state.Errored:
				return event.Error
			case state.Bootstrapped:
				return nil
			case state.Created, state.Updated:
				if err := show(event.Resource); err != nil {
					return err
				}
			default:
			}
		}
	}
}

func TestTalosctlGetsEveryResourceType(t *testing.T) {
	t.Parallel()

	ctl := realTalosctl(t)
	c, maintenance := sharedCluster(t), newCluster(t, 1, 0, nil)

	_, api := connected(t, maintenance.insecurely("cp1", "get"))

	workers := pool.New().WithMaxGoroutines(4)
	defer workers.Wait()

	for _, definition := range typesOf(t, api) {
		workers.Go(func() {
			name := definition.Metadata().ID()

			yaml := c.on("cp1", "get", name)
			yaml.output = "yaml"

			shown := ctl.run(t, yaml)
			if shown.code != 0 {
				t.Errorf("%s:\n%s", yaml, shown.text())
			}

			// Nothing is printed of a type of which there is nothing, and the watch would not end.
			if strings.Contains(shown.stdout, "metadata:") {
				watch := c.on("cp1", "get", name)
				watch.watch = true
				watch.enough = func(stdout string) bool { return strings.Count(stdout, "\n") > 1 }

				if r := ctl.run(t, watch); r.code != 0 {
					t.Errorf("%s:\n%s", watch, r.text())
				}
			}

			table := maintenance.insecurely("cp1", "get", strings.ToUpper(name))

			switch r := ctl.run(t, table); {
			case sensitive(definition) && (r.code != 1 || !strings.Contains(r.stderr, "not authorized")):
				t.Errorf("%s reveals a sensitive resource:\n%s", table, r.text())
			case !sensitive(definition) && r.code != 0:
				t.Errorf("%s:\n%s", table, r.text())
			}
		})
	}
}
