package kubernetes

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// largestBody is how much of a request's body is read, in bytes.
const largestBody = 1 << 20

// serveWrite does what a drain does, which cordons nodes and evicts or deletes pods, and deletes nodes.
func (s *Server) serveWrite(w http.ResponseWriter, request *http.Request, c call, state snapshot) {
	switch {
	case !state.quorum:
		writeStatus(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcdserver: request timed out")
	case request.Method == http.MethodPatch && c.resource.name == "nodes" && c.name != "" && c.subresource == "":
		s.patchNode(w, request, c)
	case request.Method == http.MethodDelete && c.resource.name == "nodes" && c.name != "" && c.subresource == "":
		s.deleteNode(w, c)
	case request.Method == http.MethodPost && c.resource.name == "pods" && c.subresource == evictionName:
		s.evictPod(w, c, state)
	case request.Method == http.MethodDelete && c.resource.name == "pods" && c.name != "" && c.subresource == "":
		s.deletePod(w, c, state)
	case c.writes(request):
		s.writeObject(w, request, c)
	default:
		writeStatus(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"the server does not allow this method on the requested resource")
	}
}

// nodePatch is what of a node can be changed here.
type nodePatch struct {
	Metadata struct {
		ResourceVersion string             `json:"resourceVersion"`
		Annotations     map[string]*string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Unschedulable json.RawMessage `json:"unschedulable"`
	} `json:"spec"`
}

// patchNode takes over what a patch says of the node's cordon and its annotations.
func (s *Server) patchNode(w http.ResponseWriter, request *http.Request, c call) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, largestBody))

	var patch nodePatch
	if err == nil {
		err = json.Unmarshal(body, &patch)
	}

	if err != nil {
		writeStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("read patch: %s", err))

		return
	}

	current := true

	s.cluster.changeNode(c.name, func(node *nodeState) bool {
		version := patch.Metadata.ResourceVersion
		if current = version == "" || version == strconv.FormatUint(node.revision, 10); current {
			patch.apply(node)
		}

		return current
	})

	if !current {
		writeStatus(w, http.StatusConflict, metav1.StatusReasonConflict, fmt.Sprintf("Operation cannot be fulfilled on "+
			"nodes %q: the object has been modified; please apply your changes to the latest version and try again", c.name))

		return
	}

	s.serveResource(w, request, c, s.cluster.snapshot())
}

// deleteNode takes a node out. A kubelet that runs registers it again only when it starts anew.
func (s *Server) deleteNode(w http.ResponseWriter, c call) {
	if !slices.Contains(s.cluster.Nodes(), c.name) {
		writeStatus(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("nodes %q not found", c.name))

		return
	}

	s.cluster.Remove(c.name)
	writeJSON(w, http.StatusOK,
		metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
}

// apply changes a node; a null takes a field back.
func (p nodePatch) apply(node *nodeState) {
	if wanted := string(p.Spec.Unschedulable); wanted != "" {
		node.cordoned = wanted == "true"
	}

	for key, value := range p.Metadata.Annotations {
		if value == nil {
			node.annotate(key, "")
		} else {
			node.annotate(key, *value)
		}
	}
}

// deletePod replaces a pod that the scheduler has placed; the others come back as they were, under the same name.
func (s *Server) deletePod(w http.ResponseWriter, c call, state snapshot) {
	for _, pod := range state.pods {
		if pod.name() == c.name && pod.work.Namespace == c.namespace {
			s.cluster.evict(pod.same)
			writeJSON(w, http.StatusCreated,
				metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})

			return
		}
	}

	for _, pod := range c.resource.items(state) {
		if pod.GetName() == c.name && pod.GetNamespace() == c.namespace {
			writeJSON(w, http.StatusCreated,
				metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})

			return
		}
	}

	writeStatus(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("pods %q not found", c.name))
}
