package kubernetes

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// largestBody is how much of a request's body is read, in bytes.
const largestBody = 1 << 20

// serveWrite does the two things that a drain does: it cordons nodes, and evicts or deletes pods.
func (s *Server) serveWrite(w http.ResponseWriter, request *http.Request, c call, state snapshot) {
	switch {
	case !state.quorum:
		writeStatus(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcdserver: request timed out")
	case request.Method == http.MethodPatch && c.resource.name == "nodes" && c.name != "" && c.subresource == "":
		s.patchNode(w, request, c)
	case request.Method == http.MethodPost && c.resource.name == "pods" && c.subresource == evictionName,
		request.Method == http.MethodDelete && c.resource.name == "pods" && c.name != "" && c.subresource == "":
		s.deletePod(w, c, state)
	case c.writes(request):
		s.writeObject(w, request, c)
	default:
		writeStatus(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"the server does not allow this method on the requested resource")
	}
}

// patchNode takes over what a patch says of the node being schedulable; there is nothing else to change on a node here.
func (s *Server) patchNode(w http.ResponseWriter, request *http.Request, c call) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, largestBody))

	var patch struct {
		Spec struct {
			Unschedulable json.RawMessage `json:"unschedulable"`
		} `json:"spec"`
	}

	if err == nil {
		err = json.Unmarshal(body, &patch)
	}

	if err != nil {
		writeStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("read patch: %s", err))

		return
	}

	// A null takes it back.
	if wanted := string(patch.Spec.Unschedulable); wanted != "" {
		s.cluster.cordon(c.name, wanted == "true", false)
	}

	s.serveResource(w, request, c, s.cluster.snapshot())
}

// deletePod replaces a pod that the scheduler has placed; the others come back as they were, under the same name.
func (s *Server) deletePod(w http.ResponseWriter, c call, state snapshot) {
	for n, pod := range state.dns {
		if pod.name(n) == c.name {
			s.cluster.evict(func(other int, _ dnsPod) bool { return other == n })
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
