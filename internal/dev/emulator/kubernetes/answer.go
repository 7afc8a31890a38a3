package kubernetes

import (
	"encoding/json"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// writeJSON answers with a document. A client that hangs up meanwhile has no use for an error.
func writeJSON(w http.ResponseWriter, code int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(document)
}

// writeStatus answers with a failure in the API server's form.
func writeStatus(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	writeJSON(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Message:  message,
		Reason:   reason,
		Code:     int32(code),
	})
}

func joinOrUnset(values []string) string {
	if len(values) == 0 {
		return "<unset>"
	}

	return strings.Join(values, ",")
}
