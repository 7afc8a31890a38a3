package recording

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// kind is one that the stand-in knows.
type kind struct {
	prefix, version, plural, kind string
	namespaced                    bool
}

var kinds = []kind{
	{"/api/v1", "v1", "namespaces", "Namespace", false},
	{"/api/v1", "v1", "secrets", "Secret", true},
	{"/api/v1", "v1", "configmaps", "ConfigMap", true},
	{"/apis/apps/v1", "apps/v1", "deployments", "Deployment", true},
	{"/apis/apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition",
		false},
}

// standIn is as much of a Kubernetes API as kubectl and helm ask of one: objects that are applied on the server, by
// Kubernetes' own code, without nodes or controllers.
type standIn struct {
	mu       sync.Mutex
	revision int
	objects  map[string]*unstructured.Unstructured
}

func startStandIn() (*standIn, *httptest.Server) {
	s := &standIn{objects: map[string]*unstructured.Unstructured{}}
	s.keep("namespaces//default", object("v1", "Namespace", "", "default"))

	return s, httptest.NewTLSServer(s)
}

func object(version, kind, namespace, name string) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
	made.SetNamespace(namespace)
	made.SetName(name)

	return made
}

// ServeHTTP implements http.Handler.
func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()

	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token != admin && token != Guest {
		refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
		return
	}

	if s.tell(w, r.URL.Path) {
		return
	}

	for _, kind := range kinds {
		rest, ok := strings.CutPrefix(r.URL.Path, kind.prefix+"/")
		if !ok {
			continue
		}

		namespace := ""
		if within, ok := strings.CutPrefix(rest, "namespaces/"); ok && kind.namespaced {
			namespace, rest, _ = strings.Cut(within, "/")
		}

		plural, name, _ := strings.Cut(rest, "/")
		if plural != kind.plural || strings.Contains(name, "/") {
			continue
		}

		if token == Guest {
			refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, kind.forbidden(r, namespace, name))
			return
		}

		s.serve(w, r, kind, namespace, name)

		return
	}

	refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

func (k kind) group() string {
	group, _, grouped := strings.Cut(k.version, "/")
	if !grouped {
		return ""
	}

	return group
}

func (k kind) forbidden(r *http.Request, namespace, name string) string {
	verb := map[string]string{http.MethodGet: "get", http.MethodPatch: "patch", http.MethodPost: "create",
		http.MethodPut: "update", http.MethodDelete: "delete"}[r.Method]
	if name == "" && verb == "get" {
		verb = "list"
	}

	scope := "at the cluster scope"
	if k.namespaced {
		scope = fmt.Sprintf("in the namespace %q", namespace)
	}

	subject := k.plural
	if name != "" {
		subject += fmt.Sprintf(" %q", name)
	}

	return fmt.Sprintf("%s is forbidden: User \"guest\" cannot %s resource %q in API group %q %s", subject, verb, k.plural,
		k.group(), scope)
}

// tell answers what is asked of the API itself.
func (s *standIn) tell(w http.ResponseWriter, path string) bool {
	groups := []any{}
	for _, group := range []string{"apps", "apiextensions.k8s.io"} {
		version := map[string]any{"groupVersion": group + "/v1", "version": "v1"}
		groups = append(groups, map[string]any{"name": group, "versions": []any{version}, "preferredVersion": version})
	}

	answers := map[string]map[string]any{
		"/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.3"},
		"/readyz":  {}, "/livez": {},
		"/api":  {"kind": "APIVersions", "versions": []any{"v1"}},
		"/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
	}
	index := map[string]any{}

	for _, kind := range kinds {
		list := answers[kind.prefix]
		if list == nil {
			list = map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": kind.version,
				"resources": []any{}}
			answers[kind.prefix] = list
			answers["/openapi/v3"+kind.prefix] = map[string]any{"openapi": "3.0.0",
				"info": map[string]any{"title": "Kubernetes", "version": "v1.36.3"}, "paths": map[string]any{}}
			index[strings.TrimPrefix(kind.prefix, "/")] = map[string]any{"serverRelativeURL": "/openapi/v3" + kind.prefix}
		}

		list["resources"] = append(list["resources"].([]any), map[string]any{"name": kind.plural, "kind": kind.kind,
			"namespaced": kind.namespaced, "singularName": strings.ToLower(kind.kind),
			"verbs": []any{"create", "delete", "get", "list", "patch", "update", "watch"}})
		answers["/openapi/v3"+kind.prefix]["paths"].(map[string]any)[kind.prefix+"/"+kind.plural+"/{name}"] = kind.document()
	}

	answers["/openapi/v3"] = map[string]any{"paths": index}

	answer, known := answers[strings.TrimSuffix(path, "/")]
	if known {
		write(w, http.StatusOK, answer)
	}

	return known
}

// document says that fields of objects are validated by the server.
func (k kind) document() map[string]any {
	return map[string]any{"patch": map[string]any{
		"parameters":                      []any{map[string]any{"name": "fieldValidation", "in": "query"}},
		"responses":                       map[string]any{"200": map[string]any{"description": "OK"}},
		"x-kubernetes-group-version-kind": map[string]any{"group": k.group(), "version": "v1", "kind": k.kind},
	}}
}

func (s *standIn) serve(w http.ResponseWriter, r *http.Request, kind kind, namespace, name string) {
	if _, there := s.objects["namespaces//"+namespace]; namespace != "" && !there && r.Method != http.MethodGet {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("namespaces %q not found", namespace))
		return
	}

	body, err := readBody(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}

	if r.Method == http.MethodPost {
		var posted unstructured.Unstructured
		if json.Unmarshal(body, &posted.Object) == nil {
			name = posted.GetName()
		}
	}

	key := kind.plural + "/" + namespace + "/" + name
	live, there := s.objects[key]

	switch {
	case r.Method == http.MethodGet && name == "":
		s.list(w, r, kind, namespace)
	case (r.Method == http.MethodGet || r.Method == http.MethodDelete || r.Method == http.MethodPut) && !there:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", kind.full(), name))
	case r.Method == http.MethodGet:
		write(w, http.StatusOK, live.Object)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		write(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	case r.Method == http.MethodPost && there:
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists,
			fmt.Sprintf("%s %q already exists", kind.full(), name))
	default:
		s.change(w, r, kind, key, live, body)
	}
}

// core knows the objects that clients of Go send in Kubernetes' own form.
var core = sync.OnceValue(func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	_ = corev1.AddToScheme(scheme)

	return serializer.NewCodecFactory(scheme)
})

// readBody is the object that a request has, as JSON or YAML.
func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Content-Type") != runtime.ContentTypeProtobuf {
		return body, err //nolint:wrapcheck // it is told as it is
	}

	known, _, err := core().UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err //nolint:wrapcheck // it is told as it is
	}

	return json.Marshal(known) //nolint:wrapcheck // as above
}

func (k kind) full() string {
	if k.group() == "" {
		return k.plural
	}

	return k.plural + "." + k.group()
}

// change makes, replaces or applies an object.
func (s *standIn) change(w http.ResponseWriter, r *http.Request, kind kind, key string, live *unstructured.Unstructured,
	body []byte) {
	var wanted unstructured.Unstructured
	if err := utiljson.Unmarshal(body, &wanted.Object); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}

	wanted.SetAPIVersion(kind.version)
	wanted.SetKind(kind.kind)

	parts := strings.Split(key, "/")
	wanted.SetNamespace(parts[1])
	wanted.SetName(parts[2])

	if problems := invalid(&wanted); len(problems) > 0 {
		refuseAs(w, apierrors.NewInvalid(wanted.GroupVersionKind().GroupKind(), wanted.GetName(), problems))
		return
	}

	made := &wanted

	if r.Method == http.MethodPatch {
		var err error
		if made, err = s.applied(kind, live, &wanted, r); err != nil {
			var refused *apierrors.StatusError
			if !errors.As(err, &refused) {
				refused = apierrors.NewInternalError(err)
			}

			refuseAs(w, refused)

			return
		}
	}

	encode(made)

	code := http.StatusOK
	if live == nil {
		code = http.StatusCreated

		made.SetUID("00000000-0000-4000-8000-000000000000")
		made.SetCreationTimestamp(metav1.Now())
	}

	if r.URL.Query().Get("dryRun") == "" {
		s.keep(key, made)
	}

	write(w, code, made.Object)
}

// encode has a Secret's plain values where its encoded ones are.
func encode(object *unstructured.Unstructured) {
	plain, found, _ := unstructured.NestedStringMap(object.Object, "stringData")
	if !found || object.GetKind() != "Secret" {
		return
	}

	for key, value := range plain {
		_ = unstructured.SetNestedField(object.Object, base64.StdEncoding.EncodeToString([]byte(value)), "data", key)
	}

	unstructured.RemoveNestedField(object.Object, "stringData")
}

// invalid says as Kubernetes does that a Secret has a key that it can't have.
func invalid(object *unstructured.Unstructured) field.ErrorList {
	var problems field.ErrorList

	for _, name := range []string{"data", "stringData"} {
		entries, _, _ := unstructured.NestedMap(object.Object, name)
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			for _, problem := range validation.IsConfigMapKey(key) {
				problems = append(problems, field.Invalid(field.NewPath(name).Key(key), key, problem))
			}
		}
	}

	return problems
}

// applied is an object after an apply on the server, which Kubernetes' own code merges.
func (s *standIn) applied(kind kind, live, wanted *unstructured.Unstructured,
	r *http.Request) (*unstructured.Unstructured, error) {
	gvk := wanted.GroupVersionKind()

	manager, err := managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), same{}, same{},
		same{}, gvk, gvk.GroupVersion(), "", nil)
	if err != nil {
		return nil, err //nolint:wrapcheck // it is told as it is
	}

	if live == nil {
		live = object(kind.version, kind.kind, wanted.GetNamespace(), wanted.GetName())
	}

	query := r.URL.Query()
	force, _ := strconv.ParseBool(query.Get("force"))

	made, err := manager.Apply(live.DeepCopy(), wanted, query.Get("fieldManager"), force)
	if err != nil {
		return nil, err //nolint:wrapcheck // it is told as it is
	}

	return made.(*unstructured.Unstructured), nil //nolint:forcetypeassert // as it was given
}

// same converts nothing: each kind has one version.
type same struct{ runtime.ObjectConvertor }

func (same) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}
func (same) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(gvk)

	return made, nil
}
func (same) Default(runtime.Object) {}

func (s *standIn) keep(key string, object *unstructured.Unstructured) {
	s.revision++
	object.SetResourceVersion(strconv.Itoa(s.revision))

	if kind := object.GetKind(); kind == "CustomResourceDefinition" {
		_ = unstructured.SetNestedSlice(object.Object, []any{
			map[string]any{"type": "Established", "status": "True"}, map[string]any{"type": "NamesAccepted", "status": "True"},
		}, "status", "conditions")
	}

	s.objects[key] = object
}

// list answers a list or a watch, which tells what is there and no more.
func (s *standIn) list(w http.ResponseWriter, r *http.Request, kind kind, namespace string) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}

	items := []any{}

	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		found := s.objects[key]
		if strings.HasPrefix(key, kind.plural+"/"+namespace) && selector.Matches(labels.Set(found.GetLabels())) {
			items = append(items, found.Object)
		}
	}

	if r.URL.Query().Get("watch") == "" {
		write(w, http.StatusOK, map[string]any{"apiVersion": kind.version, "kind": kind.kind + "List",
			"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.revision)}, "items": items})

		return
	}

	w.Header().Set("Content-Type", "application/json")

	encoder := json.NewEncoder(w)

	if r.URL.Query().Get("sendInitialEvents") != "" {
		for _, found := range items {
			_ = encoder.Encode(map[string]any{"type": "ADDED", "object": found})
		}

		_ = encoder.Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{
			"apiVersion": kind.version, "kind": kind.kind, "metadata": map[string]any{
				"resourceVersion": strconv.Itoa(s.revision), "annotations": map[string]any{"k8s.io/initial-events-end": "true"}}}})
	}

	w.(http.Flusher).Flush() //nolint:forcetypeassert // a server's can
	s.mu.Unlock()
	<-r.Context().Done()
	s.mu.Lock()
}

func refuseAs(w http.ResponseWriter, err *apierrors.StatusError) {
	err.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	write(w, int(err.ErrStatus.Code), err.ErrStatus)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, text string) {
	write(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
		Code: int32(code), Reason: reason, Message: text}) //nolint:gosec // a code of HTTP
}

func write(w http.ResponseWriter, code int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}
