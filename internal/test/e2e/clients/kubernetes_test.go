package clients_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// asTable is what kubectl accepts for what it shows in columns.
const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// The calls that `kubectl get nodes`, `get pods -A` and `get --raw /readyz` make, with the kubeconfig that a control
// plane gave.
func TestKubernetesIsThereForTheKubeconfigOfAControlPlane(t *testing.T) {
	t.Parallel()

	c := sharedCluster(t)

	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig(t, c))
	require.NoError(t, err)

	api, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	ask := func(path, accept string) string {
		t.Helper()

		body, err := api.RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).DoRaw(t.Context())
		require.NoError(t, err)

		return string(body)
	}

	require.Equal(t, "ok", ask("/readyz", "*/*"))

	for path, columns := range map[string][]string{
		"/api/v1/nodes": {"Name", "Status", "Roles", "Age", "Version"},
		"/api/v1/pods":  {"Name", "Ready", "Status", "Restarts", "Age"},
	} {
		table := ask(path, asTable)
		require.Contains(t, table, `"kind":"Table"`)

		for _, column := range columns {
			require.Contains(t, table, `"name":"`+column+`"`)
		}
	}

	for _, path := range []string{"/api", "/apis", "/api/v1", "/apis/apps/v1", "/version"} {
		require.NotEmpty(t, ask(path, "application/json"))
	}

	nodes, err := api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, nodes.Items, len(c.Nodes))

	for _, node := range nodes.Items {
		require.Equal(t, c.Node(node.Name).Address().String(), node.Status.Addresses[0].Address)
	}

	pods, err := api.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	running := map[string]bool{}
	for _, pod := range pods.Items {
		running[pod.Name] = pod.Status.Phase == corev1.PodRunning
	}

	for _, name := range []string{"cp1", "cp2", "cp3"} {
		for _, pod := range []string{"kube-apiserver-", "kube-controller-manager-", "kube-scheduler-"} {
			require.True(t, running[pod+name], pod+name)
		}
	}

	// Somebody without a certificate is nobody, even for the health of the API.
	config.CertData, config.KeyData = nil, nil

	anonymous, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	var code int

	anonymous.RESTClient().Get().AbsPath("/readyz").Do(t.Context()).StatusCode(&code)
	require.Equal(t, http.StatusUnauthorized, code)
	require.True(t, strings.HasPrefix(config.Host, "https://"+c.VIP.String()))
}
