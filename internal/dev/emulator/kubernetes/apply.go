package kubernetes

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
)

// writes reports whether a request writes an object of a kind that is kept as it is written.
func (c call) writes(request *http.Request) bool {
	if !c.resource.written || c.subresource != "" {
		return false
	}

	switch request.Method {
	case http.MethodPost:
		return c.name == ""
	case http.MethodPatch:
		return c.name != "" && request.Header.Get("Content-Type") == string(types.ApplyPatchType)
	case http.MethodPut, http.MethodDelete:
		return c.name != ""
	default:
		return false
	}
}

// writeObject makes, replaces, applies or deletes an object. A dry run only shows what would come of it.
func (s *Server) writeObject(w http.ResponseWriter, request *http.Request, c call) {
	content, err := readObject(w, request, c)
	if err != nil {
		writeStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())

		return
	}

	var (
		refusal *refusal
		code    = http.StatusOK
		shown   snapshot
		dryRun  = request.URL.Query().Get("dryRun") != ""
		change  = s.cluster.change
	)

	if content != nil {
		c.name = keyOf(content).name
	}

	if dryRun {
		change = s.cluster.imagine
	}

	key := objectKey{c.resource.groupVersion, c.resource.kind, c.namespace, c.name}

	change(func(revision uint64) {
		former, exists := s.cluster.objects[key]
		refusal = refused(request.Method, c, exists)

		if refusal != nil {
			return
		}

		if !exists {
			code = http.StatusCreated
		}

		if request.Method == http.MethodPatch {
			content = merged(former.content, content)
		}

		objects := maps.Clone(s.cluster.objects)

		switch {
		case request.Method == http.MethodDelete:
			delete(objects, key)
		case dryRun && !exists:
			objects[key] = former.with(content, 0, s.cluster.now())
		default:
			objects[key] = former.with(content, revision, s.cluster.now())
		}

		if !dryRun {
			s.cluster.objects = objects
		}

		shown = s.cluster.look()
		shown.objects = objects
	})

	switch {
	case refusal != nil:
		writeStatus(w, refusal.code, refusal.reason, refusal.text)
	case request.Method == http.MethodDelete:
		writeJSON(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status: metav1.StatusSuccess})
	default:
		written := slices.IndexFunc(c.resource.items(shown),
			func(one item) bool { return one.GetName() == key.name && one.GetNamespace() == key.namespace })
		writeJSON(w, code, c.resource.items(shown)[written].object)
	}
}

// readObject reads the object that a request writes, and takes what the path says over what it leaves out.
func readObject(w http.ResponseWriter, request *http.Request, c call) (map[string]any, error) {
	if request.Method == http.MethodDelete {
		return nil, nil
	}

	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, largestBody))
	if err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}

	object := unstructured.Unstructured{}

	if request.Header.Get("Content-Type") == runtime.ContentTypeProtobuf {
		object.Object, err = decodeProtobuf(body)
	} else {
		err = object.UnmarshalJSON(body)
	}

	if err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}

	object.SetGroupVersionKind(schema.FromAPIVersionAndKind(c.resource.groupVersion, c.resource.kind))
	object.SetNamespace(c.namespace)

	typed := map[string]any{"DaemonSet": &appsv1.DaemonSet{}, "Deployment": &appsv1.Deployment{}}[c.resource.kind]
	if typed != nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
			return nil, fmt.Errorf("read object: %w", err)
		}
	}

	return object.Object, nil
}

// codecs knows the core's objects, in the form that client-go's own clients write.
var codecs = sync.OnceValues(func() (serializer.CodecFactory, error) {
	scheme := runtime.NewScheme()
	err := corev1.AddToScheme(scheme)

	return serializer.NewCodecFactory(scheme), err
})

func decodeProtobuf(body []byte) (map[string]any, error) {
	known, err := codecs()
	if err != nil {
		return nil, err
	}

	object, _, err := known.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err //nolint:wrapcheck // its caller wraps it
	}

	return runtime.DefaultUnstructuredConverter.ToUnstructured(object) //nolint:wrapcheck // as above
}

// refusal is why an object is not written.
type refusal struct {
	code   int
	reason metav1.StatusReason
	text   string
}

func refused(method string, c call, exists bool) *refusal {
	switch {
	case method == http.MethodPost && exists:
		return &refusal{http.StatusConflict, metav1.StatusReasonAlreadyExists,
			fmt.Sprintf("%s %q already exists", c.resource.name, c.name)}
	case (method == http.MethodPut || method == http.MethodDelete) && !exists:
		return &refusal{http.StatusNotFound, metav1.StatusReasonNotFound,
			fmt.Sprintf("%s %q not found", c.resource.name, c.name)}
	default:
		return nil
	}
}
