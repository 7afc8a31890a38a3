package clients_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"go.yaml.in/yaml/v4"
	"k8s.io/client-go/util/jsonpath"
)

// get asks for the version, finds the resource type among those that the first node knows, and then asks each node for
// the resources. Resources can't be fanned out, so all releases do that alike.
func (s *invocation) get(ctx context.Context) error {
	lines, hangUp, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp()

	// Releases that fan out take a node that does not answer for one that is up to date.
	if err := s.checkVersion(ctx, lines); err != nil && !s.fansOut {
		return err
	}

	var namespace resource.Namespace

	definition, err := lines[0].ResolveResourceKind(s.toNode(ctx, lines[0].nodes[0]), &namespace, s.words[1])
	if err != nil {
		return err
	}

	view, err := newView(s, definition)
	if err != nil {
		return err
	}

	kind := resource.NewMetadata(namespace, definition.TypedSpec().Type, "", resource.VersionUndefined)
	if len(s.words) > 2 {
		kind = resource.NewMetadata(namespace, definition.TypedSpec().Type, s.words[2], resource.VersionUndefined)
	}

	var all error

	for _, p := range lines {
		for _, node := range p.nodes {
			fetch := s.list
			if s.watch {
				fetch = s.watchKind
			}

			if err := fetch(s.toNode(ctx, node), p.Client, kind, view.of(node)); err != nil {
				all = errors.Join(all, fmt.Errorf("error from node %s: %w", node, err))
			}
		}
	}

	return all
}

// toNode addresses a node; without credentials the connection is to the node already.
func (s *invocation) toNode(ctx context.Context, node string) context.Context {
	if s.insecure && !s.fansOut {
		return ctx
	}

	return client.WithNode(ctx, node)
}

func (s *invocation) checkVersion(ctx context.Context, lines []line) error {
	for _, p := range lines {
		if s.fansOut {
			if _, err := p.Version(client.WithNodes(ctx, p.nodes...)); err != nil {
				return err
			}

			continue
		}

		for _, node := range p.nodes {
			if _, err := p.Version(s.toNode(ctx, node)); err != nil {
				return fmt.Errorf("%s: error getting server version: %w", node, err)
			}
		}
	}

	return nil
}

func (s *invocation) list(ctx context.Context, api *client.Client, kind resource.Metadata,
	show func(resource.Resource) error) error {
	if kind.ID() != "" {
		found, err := api.COSI.Get(ctx, kind, state.WithGetUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
		if err != nil {
			return err
		}

		return show(found)
	}

	found, err := api.COSI.List(ctx, kind, state.WithListUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
	if err != nil {
		return err
	}

	for _, item := range found.Items {
		if err := show(item); err != nil {
			return err
		}
	}

	return nil
}

func (s *invocation) watchKind(ctx context.Context, api *client.Client, kind resource.Metadata,
	show func(resource.Resource) error) error {
	events := make(chan state.Event)

	var err error

	if kind.ID() != "" {
		err = api.COSI.Watch(ctx, kind, events, state.WithWatchUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
	} else {
		err = api.COSI.WatchKind(ctx, kind, events, state.WithBootstrapContents(true),
			state.WithWatchKindUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
	}

	if err != nil {
		return err
	}

	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-events:
			if event.Type == state.Errored {
				return event.Error
			}

			if event.Resource == nil || event.Type == state.Bootstrapped {
				continue
			}

			if err := show(event.Resource); err != nil {
				return err
			}
		}
	}
}

// view prints resources as YAML, or as a table with the columns that their definition names.
type view struct {
	invocation *invocation
	kind       string
	columns    []*jsonpath.JSONPath
}

func newView(s *invocation, definition *meta.ResourceDefinition) (*view, error) {
	v := &view{invocation: s, kind: definition.TypedSpec().DisplayType}

	s.print("NODE NAMESPACE TYPE ID VERSION")

	for _, column := range definition.TypedSpec().PrintColumns {
		path := jsonpath.New(column.Name)
		if err := path.Parse(column.JSONPath); err != nil {
			return nil, fmt.Errorf("parse column %s: %w", column.Name, err)
		}

		v.columns = append(v.columns, path.AllowMissingKeys(true))

		s.print(" %s", strings.ToUpper(column.Name))
	}

	s.print("\n")

	return v, nil
}

// of prints resources of a node.
func (v *view) of(node string) func(resource.Resource) error {
	return func(r resource.Resource) error {
		if v.invocation.output == "yaml" {
			return v.yaml(node, r)
		}

		return v.row(node, r)
	}
}

func (v *view) yaml(node string, r resource.Resource) error {
	whole, err := resource.MarshalYAML(r)
	if err != nil {
		return err
	}

	text, err := yaml.Marshal(whole)
	if err != nil {
		return err
	}

	v.invocation.print("---\nnode: %s\n%s", node, text)

	return nil
}

func (v *view) row(node string, r resource.Resource) error {
	text, err := yaml.Marshal(r.Spec())
	if err != nil {
		return err
	}

	var spec any
	if err := yaml.Unmarshal(text, &spec); err != nil {
		return err
	}

	v.invocation.print("%s %s %s %s %s", node, r.Metadata().Namespace(), v.kind, r.Metadata().ID(), r.Metadata().Version())

	for _, column := range v.columns {
		var cell bytes.Buffer
		if err := column.Execute(&cell, spec); err != nil {
			return fmt.Errorf("show column: %w", err)
		}

		v.invocation.print(" %s", &cell)
	}

	v.invocation.print("\n")

	return nil
}
