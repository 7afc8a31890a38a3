package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// served is one kind of object that the API server knows.
type served struct {
	groupVersion string // "v1", or "group/version"
	name         string // plural, as in paths
	singular     string
	kind         string
	short        []string
	namespaced   bool
	written      bool // kept as clients write it
	columns      []metav1.TableColumnDefinition
	items        func(snapshot) []item
}

const appsGroup = "apps/v1"

var resources = []served{
	{
		groupVersion: "v1", name: "namespaces", singular: "namespace", kind: "Namespace", short: []string{"ns"},
		columns: columns("Name", "Status", "Age"), items: snapshot.listNamespaces,
	},
	{
		groupVersion: "v1", name: "nodes", singular: "node", kind: "Node", short: []string{"no"},
		columns: columns("Name", "Status", "Roles", "Age", "Version", "+Internal-IP", "+External-IP", "+OS-Image",
			"+Kernel-Version", "+Container-Runtime"),
		items: snapshot.listNodes,
	},
	{
		groupVersion: "v1", name: "pods", singular: "pod", kind: "Pod", short: []string{"po"}, namespaced: true,
		columns: columns("Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"),
		items:   snapshot.listPods,
	},
	{
		groupVersion: "v1", name: "configmaps", singular: "configmap", kind: "ConfigMap", short: []string{"cm"},
		namespaced: true, written: true, columns: columns("Name", "Data", "Age"), items: snapshot.listConfigMaps,
	},
	{
		groupVersion: appsGroup, name: "daemonsets", singular: "daemonset", kind: "DaemonSet", short: []string{"ds"},
		namespaced: true, written: true,
		columns: columns("Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age"),
		items:   snapshot.listDaemonSets,
	},
	{
		groupVersion: appsGroup, name: "replicasets", singular: "replicaset", kind: "ReplicaSet", short: []string{"rs"},
		namespaced: true, columns: columns("Name", "Desired", "Current", "Ready", "Age"),
		items: func(snapshot) []item { return nil },
	},
	{
		groupVersion: appsGroup, name: "deployments", singular: "deployment", kind: "Deployment", short: []string{"deploy"},
		namespaced: true, written: true,
		columns: columns("Name", "Ready", "Up-to-date", "Available", "Age"), items: snapshot.listDeployments,
	},
	{
		groupVersion: "policy/v1", name: "poddisruptionbudgets", singular: "poddisruptionbudget",
		kind: "PodDisruptionBudget", short: []string{"pdb"}, namespaced: true,
		columns: columns("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"),
		items:   snapshot.listBudgets,
	},
	{
		groupVersion: "discovery.k8s.io/v1", name: "endpointslices", singular: "endpointslice", kind: "EndpointSlice",
		namespaced: true,
		columns:    columns("Name", "AddressType", "Ports", "Endpoints", "Age"), items: snapshot.listEndpointSlices,
	},
}

// columns defines a table's columns; those with a plus are shown only wide.
func columns(names ...string) []metav1.TableColumnDefinition {
	definitions := make([]metav1.TableColumnDefinition, 0, len(names))

	for _, name := range names {
		short, wide := strings.CutPrefix(name, "+")
		definition := metav1.TableColumnDefinition{Name: short, Type: "string"}

		switch {
		case wide:
			definition.Priority = 1
		case name == "Name":
			definition.Format = "name"
		}

		definitions = append(definitions, definition)
	}

	return definitions
}

// group is the resource's API group; empty for the core.
func (r served) group() string {
	group, _, grouped := strings.Cut(r.groupVersion, "/")
	if !grouped {
		return ""
	}

	return group
}

// callKind is what a path asks for.
type callKind int

const (
	unknownCall callKind = iota
	healthCall
	documentCall
	metricsCall
	resourceCall
)

// call is a request for objects: a resource, a namespace or all, a name or a list.
type call struct {
	resource        served
	known           bool
	namespace, name string
	subresource     string
}

// evictionName is the one subresource that there is.
const evictionName = "eviction"

// route reads a path, as in /api/v1/namespaces/default/pods/web.
func route(path string) (call, callKind) {
	parts := strings.Split(strings.Trim(path, "/"), "/")

	if _, health := checks["/"+parts[0]]; health {
		return call{}, healthCall
	}

	var groupVersion string

	switch {
	case len(parts) == 1 && parts[0] == "metrics":
		return call{}, metricsCall
	case parts[0] == "api" && len(parts) > 2:
		groupVersion, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		groupVersion, parts = parts[1]+"/"+parts[2], parts[3:]
	case slices.Contains(documents(), "/"+strings.Join(parts, "/")):
		return call{}, documentCall
	default:
		return call{}, unknownCall
	}

	var found call

	if parts[0] == "namespaces" && len(parts) > 2 {
		found.namespace, parts = parts[1], parts[2:]
	}

	found.resource = served{groupVersion: groupVersion, name: parts[0]}

	for _, known := range resources {
		if known.groupVersion == groupVersion && known.name == parts[0] {
			found.resource, found.known = known, true
		}
	}

	switch len(parts) {
	case 1:
	case 2:
		found.name = parts[1]
	case 3: //nolint:mnd // as in pods/web/eviction
		found.name, found.subresource = parts[1], parts[2]
	default:
		found.known = false
	}

	return found, resourceCall
}

// forbidden is the API server's text for a user who may not do this.
func (c call) forbidden(user string) string {
	verb, subject, scope := "list", c.resource.name+" is", "at the cluster scope"

	if c.name != "" {
		verb, subject = "get", fmt.Sprintf("%s %q is", c.resource.name, c.name)
	}

	if c.namespace != "" {
		scope = fmt.Sprintf("in the namespace %q", c.namespace)
	}

	return fmt.Sprintf("%s forbidden: User %q cannot %s resource %q in API group %q %s", subject, user, verb,
		c.resource.name, c.resource.group(), scope)
}

// serveResource answers get, list and watch.
func (s *Server) serveResource(w http.ResponseWriter, request *http.Request, c call, state snapshot) {
	query := request.URL.Query()

	match, err := selection(c, query)
	asTable := wantsTable(request)

	switch {
	case !c.known, c.subresource != "":
		writeStatus(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case err != nil:
		writeStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		s.watch(w, request, c, match, asTable)
	case !state.quorum:
		// What etcd's client reports when no leader answers.
		writeStatus(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcdserver: request timed out")
	case c.name != "":
		items := keep(c.resource.items(state), match)
		if len(items) == 0 {
			writeStatus(w, http.StatusNotFound, metav1.StatusReasonNotFound,
				fmt.Sprintf("%s %q not found", c.resource.name, c.name))

			return
		}

		writeJSON(w, http.StatusOK, present(c.resource, items[0], asTable, query.Get("includeObject")))
	default:
		items := keep(c.resource.items(state), match)
		revision := strconv.FormatUint(state.revision, 10)

		if asTable {
			writeJSON(w, http.StatusOK, table(c.resource, items, revision, query.Get("includeObject")))

			return
		}

		writeJSON(w, http.StatusOK, list(c.resource, items, revision))
	}
}

// selection is the filter that a request's path and selectors make.
func selection(c call, query url.Values) (func(item) bool, error) {
	labelSelector, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, fmt.Errorf("parse label selector: %w", err)
	}

	fieldSelector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, fmt.Errorf("parse field selector: %w", err)
	}

	return func(one item) bool {
		set := fields.Set{"metadata.name": one.GetName(), "metadata.namespace": one.GetNamespace()}
		for name, value := range one.fields {
			set[name] = value
		}

		return (c.name == "" || c.name == one.GetName()) &&
			(c.namespace == "" || c.namespace == one.GetNamespace()) &&
			labelSelector.Matches(labels.Set(one.GetLabels())) && fieldSelector.Matches(set)
	}, nil
}

func keep(items []item, match func(item) bool) []item {
	return slices.DeleteFunc(items, func(one item) bool { return !match(one) })
}

// objectList is a list of any kind.
type objectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []object `json:"items"`
}

func list(r served, items []item, revision string) objectList {
	found := objectList{
		TypeMeta: metav1.TypeMeta{APIVersion: r.groupVersion, Kind: r.kind + "List"},
		ListMeta: metav1.ListMeta{ResourceVersion: revision},
		Items:    make([]object, 0, len(items)),
	}

	for _, one := range items {
		found.Items = append(found.Items, one.object)
	}

	return found
}

// wantsTable is true for clients that let the API server make the rows, as kubectl does.
func wantsTable(request *http.Request) bool {
	first, _, _ := strings.Cut(request.Header.Get("Accept"), ",")

	return strings.Contains(first, "as=Table") && strings.Contains(first, "v=v1") &&
		strings.Contains(first, "g="+metav1.GroupName)
}

func table(r served, items []item, revision, include string) *metav1.Table {
	rows := &metav1.Table{
		TypeMeta:          metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "Table"},
		ListMeta:          metav1.ListMeta{ResourceVersion: revision},
		ColumnDefinitions: r.columns,
		Rows:              make([]metav1.TableRow, 0, len(items)),
	}

	for _, one := range items {
		row := metav1.TableRow{Cells: one.cells}

		switch metav1.IncludeObjectPolicy(include) {
		case metav1.IncludeNone:
		case metav1.IncludeObject:
			row.Object = runtime.RawExtension{Object: one.object}
		default:
			row.Object = runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadata"},
				ObjectMeta: metav1.ObjectMeta{
					Name: one.GetName(), Namespace: one.GetNamespace(), UID: one.GetUID(), Labels: one.GetLabels(),
					ResourceVersion: one.GetResourceVersion(), CreationTimestamp: one.GetCreationTimestamp(),
				},
			}}
		}

		rows.Rows = append(rows.Rows, row)
	}

	return rows
}

// present is one object, or a table of its one row.
func present(r served, one item, asTable bool, include string) any {
	if asTable {
		return table(r, []item{one}, one.GetResourceVersion(), include)
	}

	return one.object
}

// watch streams the changes since the request's resource version. There is no history: what was deleted before the
// watch began is not told.
func (s *Server) watch(w http.ResponseWriter, request *http.Request, c call, match func(item) bool, asTable bool) {
	query := request.URL.Query()

	ctx, cancel := watchContext(request.Context(), query.Get("timeoutSeconds"))
	defer cancel()

	// "" and "0" ask for everything there is.
	since, _ := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	known := map[string]item{}
	initial := query.Get("sendInitialEvents") == "true"
	stream := json.NewEncoder(w)
	flush := http.NewResponseController(w)

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)

	for first := true; ; first = false {
		state := s.cluster.snapshot()
		events := difference(known, keep(c.resource.items(state), match), first, since)

		for _, event := range events {
			message := watchEvent{Type: event.kind, Object: present(c.resource, event.item, asTable, query.Get("includeObject"))}
			if stream.Encode(message) != nil {
				return // the client has gone
			}
		}

		if first && initial {
			if stream.Encode(bookmark(c.resource, state.revision)) != nil {
				return
			}
		}

		if flush.Flush() != nil {
			return
		}

		select {
		case <-ctx.Done():
			return
		case <-state.changed:
		}
	}
}

func watchContext(ctx context.Context, seconds string) (context.Context, context.CancelFunc) {
	if limit, err := strconv.Atoi(seconds); err == nil && limit > 0 {
		return context.WithTimeout(ctx, time.Duration(limit)*time.Second)
	}

	return context.WithCancel(ctx)
}

type watchEvent struct {
	Type   watch.EventType `json:"type"`
	Object any             `json:"object"`
}

type change struct {
	kind watch.EventType
	item item
}

// difference brings known up to date with the current items and tells what changed. The first time, items that are no
// newer than since are taken as known to the client.
func difference(known map[string]item, current []item, first bool, since uint64) []change {
	var changes []change

	present := map[string]bool{}

	for _, one := range current {
		key := one.GetNamespace() + "/" + one.GetName()
		present[key] = true
		before, seen := known[key]
		known[key] = one

		switch revision, _ := strconv.ParseUint(one.GetResourceVersion(), 10, 64); {
		case first && since > 0 && revision <= since, seen && before.GetResourceVersion() == one.GetResourceVersion():
		case seen:
			changes = append(changes, change{watch.Modified, one})
		default:
			changes = append(changes, change{watch.Added, one})
		}
	}

	for key, last := range known {
		if !present[key] {
			changes = append(changes, change{watch.Deleted, last})
			delete(known, key)
		}
	}

	return changes
}

// bookmark ends the initial events of a streaming list.
func bookmark(r served, revision uint64) watchEvent {
	return watchEvent{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: r.groupVersion, Kind: r.kind},
		ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.FormatUint(revision, 10),
			Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		},
	}}
}
