package kubernetes_test

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	emulated "github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
)

var (
	loopback = netip.MustParseAddr("127.0.0.1")
	cp1      = emulated.Node{Name: "cp1", Address: netip.MustParseAddr("192.0.2.11"), ControlPlane: true,
		TalosVersion: "v1.13.9"}
	worker1 = emulated.Node{Name: "worker1", Address: netip.MustParseAddr("192.0.2.21"), TalosVersion: "v1.13.9"}
)

func TestClientCertificateIsDemanded(t *testing.T) {
	t.Parallel()

	lab := newLab(t, emulated.Options{})
	foreign := newCA(t)

	for _, test := range []struct {
		name       string
		kubeconfig []byte
		path       string
		code       int
		text       string
	}{
		{name: "anonymous, objects", path: "/api/v1/nodes", code: http.StatusUnauthorized, text: `"reason":"Unauthorized"`},
		{name: "anonymous, version", path: "/version", code: http.StatusUnauthorized, text: "Unauthorized"},
		{name: "anonymous, health", path: "/readyz", code: http.StatusUnauthorized, text: "Unauthorized"},
		{name: "client of another cluster", kubeconfig: lab.admin(t, emulated.AdminOptions{IssuingCA: foreign}),
			path: "/readyz", code: http.StatusUnauthorized},
		{
			name: "expired", path: "/readyz", code: http.StatusUnauthorized,
			kubeconfig: lab.admin(t, emulated.AdminOptions{Now: func() time.Time { return time.Now().AddDate(-2, 0, 0) }}),
		},
		{
			name: "no administrator, health", path: "/readyz", code: http.StatusOK, text: "ok",
			kubeconfig: lab.admin(t, emulated.AdminOptions{CommonName: "jane", Organization: "viewers"}),
		},
		{
			name: "no administrator, objects", path: "/api/v1/nodes", code: http.StatusForbidden,
			text:       `nodes is forbidden: User \"jane\" cannot list resource \"nodes\" in API group \"\" at the cluster scope`,
			kubeconfig: lab.admin(t, emulated.AdminOptions{CommonName: "jane", Organization: "viewers"}),
		},
		{
			name: "no administrator, one object", path: "/api/v1/namespaces/kube-system/pods/x", code: http.StatusForbidden,
			text:       `pods \"x\" is forbidden: User \"jane\" cannot get resource \"pods\" in API group \"\" in the namespace \"kube-system\"`,
			kubeconfig: lab.admin(t, emulated.AdminOptions{CommonName: "jane", Organization: "viewers"}),
		},
		{name: "administrator", kubeconfig: lab.kubeconfig, path: "/api/v1/nodes", code: http.StatusOK,
			text: `"kind":"NodeList"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			code, body := lab.get(t, test.kubeconfig, test.path)
			require.Equal(t, test.code, code, body)
			require.Contains(t, body, test.text)
		})
	}
}

func TestOnlyReadingIsServed(t *testing.T) {
	t.Parallel()

	lab := newLab(t, emulated.Options{})
	err := lab.client(t).CoreV1().Namespaces().Delete(t.Context(), "default", metav1.DeleteOptions{})
	require.ErrorContains(t, err, "does not allow this method")
}

func TestHealthFollowsQuorum(t *testing.T) {
	t.Parallel()

	lab := newLab(t, emulated.Options{})

	code, body := lab.get(t, lab.kubeconfig, "/readyz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok", body)

	_, body = lab.get(t, lab.kubeconfig, "/readyz?verbose")
	require.True(t, strings.HasPrefix(body, "[+]ping ok\n"), body)
	require.True(t, strings.HasSuffix(body, "\nreadyz check passed\n"), body)

	lab.cluster.Available(false)

	for _, path := range []string{"/readyz", "/livez", "/healthz", "/readyz/etcd"} {
		code, body = lab.get(t, lab.kubeconfig, path)
		require.Equal(t, http.StatusInternalServerError, code, path)
		require.Contains(t, body, "[-]etcd failed: reason withheld\n", path)
		require.Contains(t, body, strings.Split(path, "/")[1]+" check failed\n")
	}

	code, _ = lab.get(t, lab.kubeconfig, "/readyz/ping")
	require.Equal(t, http.StatusOK, code)

	code, body = lab.get(t, lab.kubeconfig, "/readyz?exclude=etcd&exclude=etcd-readiness")
	require.Equal(t, http.StatusOK, code, body)

	code, body = lab.get(t, lab.kubeconfig, "/api/v1/nodes")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Contains(t, body, "etcdserver: request timed out")

	code, _ = lab.get(t, lab.kubeconfig, "/version")
	require.Equal(t, http.StatusOK, code, "the version needs no etcd")

	lab.cluster.Available(true)

	code, _ = lab.get(t, lab.kubeconfig, "/readyz")
	require.Equal(t, http.StatusOK, code)
}

func TestNodeConditionsFollowNetwork(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name    string
		cni     string
		after   func(*emulated.Cluster)
		status  corev1.ConditionStatus
		reason  string
		message string
	}{
		{
			name: "CNI none", cni: "none", status: corev1.ConditionFalse, reason: "KubeletNotReady",
			message: "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady " +
				"message:Network plugin returns error: cni plugin not initialized",
		},
		{
			name: "CNI none, then installed", cni: "none", after: (*emulated.Cluster).InstallCNI,
			status: corev1.ConditionTrue, reason: "KubeletReady", message: "kubelet is posting ready status",
		},
		{name: "flannel", cni: "flannel", status: corev1.ConditionTrue, reason: "KubeletReady",
			message: "kubelet is posting ready status"},
		{
			name: "kubelet stopped", cni: "flannel", after: func(c *emulated.Cluster) { c.Silence("cp1") },
			status: corev1.ConditionUnknown, reason: "NodeStatusUnknown", message: "Kubelet stopped posting node status.",
		},
		{
			name: "kubelet came back", cni: "flannel", after: func(c *emulated.Cluster) { c.Silence("cp1"); c.Register(cp1) },
			status: corev1.ConditionTrue, reason: "KubeletReady", message: "kubelet is posting ready status",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			lab := newLab(t, emulated.Options{CNI: test.cni})
			lab.cluster.Register(cp1)

			if test.after != nil {
				test.after(lab.cluster)
			}

			node, err := lab.client(t).CoreV1().Nodes().Get(t.Context(), "cp1", metav1.GetOptions{})
			require.NoError(t, err)

			ready := node.Status.Conditions[len(node.Status.Conditions)-1]
			require.Equal(t, corev1.NodeReady, ready.Type)
			require.Equal(t, test.status, ready.Status)
			require.Equal(t, test.reason, ready.Reason)
			require.Equal(t, test.message, ready.Message)
			require.Contains(t, node.Labels, "node-role.kubernetes.io/control-plane")
			require.Equal(t, "192.0.2.11", node.Status.Addresses[0].Address)
		})
	}
}

func TestSelectors(t *testing.T) {
	t.Parallel()

	lab := newLab(t, emulated.Options{CNI: "flannel"})
	lab.cluster.Register(cp1)
	lab.cluster.Register(worker1)
	core := lab.client(t).CoreV1()

	nodes, err := core.Nodes().List(t.Context(),
		metav1.ListOptions{LabelSelector: "!node-role.kubernetes.io/control-plane"})
	require.NoError(t, err)
	require.Len(t, nodes.Items, 1)
	require.Equal(t, "worker1", nodes.Items[0].Name)

	pods, err := core.Pods("kube-system").List(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.nodeName=worker1,status.phase=Running", LabelSelector: "k8s-app=kube-proxy"})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)

	pods, err = core.Pods("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, pods.Items)

	_, err = core.Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "a=b=c"})
	require.ErrorContains(t, err, "label selector")

	_, err = core.Nodes().Get(t.Context(), "cp9", metav1.GetOptions{})
	require.ErrorContains(t, err, `nodes "cp9" not found`)

	lab.cluster.Remove("worker1")
	require.Equal(t, []string{"cp1"}, lab.cluster.Nodes())
}

func TestWatchTellsEveryChange(t *testing.T) {
	t.Parallel()

	lab := newLab(t, emulated.Options{CNI: "none"})
	lab.cluster.Register(cp1)
	core := lab.client(t).CoreV1()

	before, err := core.Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	events, err := core.Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	require.NoError(t, err)
	t.Cleanup(events.Stop)

	lab.cluster.Register(worker1)
	requireEvent(t, events, watch.Added, "worker1")

	lab.cluster.Silence("cp1")
	requireEvent(t, events, watch.Modified, "cp1")

	lab.cluster.Remove("worker1")
	requireEvent(t, events, watch.Deleted, "worker1")

	yes := true
	all, err := core.Nodes().Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	require.NoError(t, err)
	t.Cleanup(all.Stop)

	requireEvent(t, all, watch.Added, "cp1")
	require.Equal(t, watch.Bookmark, (<-all.ResultChan()).Type)
}

// Not parallel: it looks at the goroutines of the whole process.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()

	lab := newLab(t, emulated.Options{})

	events, err := lab.client(t).CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	lab.server.Close()

	for event := range events.ResultChan() {
		require.Equal(t, watch.Error, event.Type, "nothing else happened")
	}

	goleak.VerifyNone(t, before)
}

func TestEndpointsAreTheServedControlPlanes(t *testing.T) {
	t.Parallel()

	lab := newLab(t, emulated.Options{})

	addresses := func() []string {
		slices, err := lab.client(t).DiscoveryV1().EndpointSlices("default").List(t.Context(),
			metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
		require.NoError(t, err)
		require.Len(t, slices.Items, 1)

		var found []string
		for _, endpoint := range slices.Items[0].Endpoints {
			found = append(found, endpoint.Addresses...)
		}

		return found
	}

	require.Equal(t, []string{"192.0.2.11"}, addresses())

	second := lab.serve(t, emulated.ServerOptions{IssuingCA: lab.ca, Advertise: netip.MustParseAddr("192.0.2.12")})
	require.Equal(t, []string{"192.0.2.11", "192.0.2.12"}, addresses())

	second.Close()
	require.Equal(t, []string{"192.0.2.11"}, addresses())
}

func TestDiscoveryDocuments(t *testing.T) {
	t.Parallel()

	lab := newLab(t, emulated.Options{Version: "v1.35.7"})
	discovery := lab.client(t).Discovery()

	version, err := discovery.ServerVersion()
	require.NoError(t, err)
	require.Equal(t, "v1.35.7", version.GitVersion)
	require.Equal(t, "35", version.Minor)

	_, lists, err := discovery.ServerGroupsAndResources()
	require.NoError(t, err)

	var found []string

	for _, list := range lists {
		for _, resource := range list.APIResources {
			found = append(found, list.GroupVersion+" "+resource.Name)
		}
	}

	require.ElementsMatch(t, []string{"v1 namespaces", "v1 nodes", "v1 pods", "v1 pods/eviction", "v1 configmaps",
		"apps/v1 daemonsets", "apps/v1 replicasets", "apps/v1 deployments", "policy/v1 poddisruptionbudgets",
		"discovery.k8s.io/v1 endpointslices"}, found)

	for _, path := range []string{"/apis/discovery.k8s.io", "/apis/discovery.k8s.io/v1", "/apis/"} {
		code, _ := lab.get(t, lab.kubeconfig, path)
		require.Equal(t, http.StatusOK, code, path)
	}

	for _, path := range []string{"/apis/batch/v1/jobs", "/api/v1/secrets", "/api/v1/nodes/cp1/status",
		"/readyz/none"} {
		code, _ := lab.get(t, lab.kubeconfig, path)
		require.Equal(t, http.StatusNotFound, code, path)
	}
}

func TestTheCertificateIsMadeAgainWhenTheNodesClockIsSet(t *testing.T) {
	t.Parallel()

	var offset atomic.Int64

	l := &lab{cluster: emulated.NewCluster(emulated.Options{}), ca: newCA(t)}
	l.serve(t, emulated.ServerOptions{IssuingCA: l.ca, Addresses: []netip.Addr{loopback}, Now: func() time.Time {
		return time.Now().Add(time.Duration(offset.Load()))
	}})

	served := func() *stdx509.Certificate {
		conn, err := tls.Dial("tcp", l.address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is looked at
		require.NoError(t, err)

		defer conn.Close()

		return conn.ConnectionState().PeerCertificates[0]
	}

	first := served()
	require.Equal(t, first.SerialNumber, served().SerialNumber, "it is kept")

	const year = 365 * 24 * time.Hour

	for _, set := range []time.Duration{-400 * 24 * time.Hour, 0, 3 * year / 5} {
		offset.Store(int64(set))

		again := served()
		require.WithinDuration(t, time.Now().Add(set), again.NotBefore, time.Minute)
		require.Equal(t, again.SerialNumber, served().SerialNumber)
	}
}

func TestServeNeedsTheClustersCA(t *testing.T) {
	t.Parallel()

	cluster := emulated.NewCluster(emulated.Options{})

	_, err := cluster.Serve(nil, emulated.ServerOptions{})
	require.ErrorContains(t, err, "no issuing CA")

	_, err = cluster.Serve(nil, emulated.ServerOptions{IssuingCA: newCA(t), AcceptedCAs: []byte("x")})
	require.ErrorContains(t, err, "no certificate in PEM form")

	_, err = cluster.Serve(nil,
		emulated.ServerOptions{IssuingCA: &x509.PEMEncodedCertificateAndKey{}, AcceptedCAs: newCA(t).Crt})
	require.ErrorContains(t, err, "read issuing CA")

	_, err = emulated.AdminKubeconfig(emulated.AdminOptions{})
	require.ErrorContains(t, err, "issuing CA is not set")
}

func TestKubectl(t *testing.T) {
	t.Parallel()

	program, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("SKIP: no kubectl")
	}

	lab := newLab(t, emulated.Options{CNI: "none"})
	lab.cluster.Register(cp1)
	lab.cluster.Register(worker1)

	home := t.TempDir()
	kubeconfig := filepath.Join(home, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, lab.kubeconfig, 0o600))

	kubectl := func(arguments ...string) string {
		t.Helper()

		command := exec.CommandContext(t.Context(), program, arguments...)
		command.Env = []string{"KUBECONFIG=" + kubeconfig, "HOME=" + home, "PATH=" + os.Getenv("PATH")}

		output, err := command.CombinedOutput()
		require.NoError(t, err, string(output))

		return string(output)
	}

	require.Equal(t, "ok", kubectl("get", "--raw", "/readyz"))
	require.Regexp(t, `(?m)^NAME +STATUS +ROLES +AGE +VERSION\ncp1 +NotReady +control-plane +\d+s +v1\.\d+\.\d+\nworker1 +NotReady +<none> `, kubectl("get", "nodes"))
	require.Regexp(t, `cp1 .*192\.0\.2\.11 .*Talos \(v1\.13\.9\)`, kubectl("get", "no", "-o", "wide"))

	pods := kubectl("get", "pods", "-A")
	require.Regexp(t, `kube-system +kube-apiserver-cp1 +1/1 +Running`, pods)
	require.Regexp(t, `kube-system +coredns-\w+ +0/1 +Pending`, pods)
	require.NotContains(t, pods, "kube-apiserver-worker1")

	require.Regexp(t, `kubernetes +IPv4 +\d+ +192\.0\.2\.11`, kubectl("get", "endpointslices"))
	require.Regexp(t, `kube-system +Active`, kubectl("get", "namespaces"))
	require.Contains(t, kubectl("get", "node", "cp1", "-o", "yaml"), "cni plugin not initialized")
	require.Contains(t, kubectl("version"), "Server Version: v1.")
	require.Contains(t, kubectl("api-resources"), "endpointslices")

	lab.cluster.InstallCNI()
	require.Contains(t, kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=10s"),
		"node/worker1 condition met")
}

// lab is one cluster with one API server.
type lab struct {
	cluster    *emulated.Cluster
	server     *emulated.Server
	ca         *x509.PEMEncodedCertificateAndKey
	address    string
	kubeconfig []byte
}

func newLab(t *testing.T, options emulated.Options) *lab {
	t.Helper()

	l := &lab{cluster: emulated.NewCluster(options), ca: newCA(t)}
	l.server = l.serve(t, emulated.ServerOptions{IssuingCA: l.ca, Addresses: []netip.Addr{loopback},
		Advertise: cp1.Address})
	l.kubeconfig = l.admin(t, emulated.AdminOptions{})

	return l
}

func (l *lab) serve(t *testing.T, options emulated.ServerOptions) *emulated.Server {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	server, err := l.cluster.Serve(listener, options)
	require.NoError(t, err)
	t.Cleanup(server.Close)

	if l.address == "" {
		l.address = listener.Addr().String()
	}

	return server
}

// admin makes a kubeconfig; by default an administrator's of this cluster.
func (l *lab) admin(t *testing.T, options emulated.AdminOptions) []byte {
	t.Helper()

	options.ClusterName, options.Endpoint, options.AcceptedCAs = "lab", "https://"+l.address, l.ca.Crt
	if options.IssuingCA == nil {
		options.IssuingCA = l.ca
	}

	data, err := emulated.AdminKubeconfig(options)
	require.NoError(t, err)

	return data
}

func (l *lab) client(t *testing.T) *kubernetes.Clientset {
	t.Helper()

	rest, err := clientcmd.RESTConfigFromKubeConfig(l.kubeconfig)
	require.NoError(t, err)

	client, err := kubernetes.NewForConfig(rest)
	require.NoError(t, err)

	return client
}

// get asks for a path with a kubeconfig's client certificate, or with none.
func (l *lab) get(t *testing.T, kubeconfig []byte, path string) (code int, body string) {
	t.Helper()

	roots := stdx509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(l.ca.Crt))

	settings := &tls.Config{RootCAs: roots}

	if kubeconfig != nil {
		rest, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		require.NoError(t, err)

		certificate, err := tls.X509KeyPair(rest.CertData, rest.KeyData)
		require.NoError(t, err)

		// Sent even if the server asks for certificates of another CA.
		settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &certificate,
				nil
		}
	}

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}}

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://%s%s", l.address, path),
		nil)
	require.NoError(t, err)

	response, err := client.Do(request)
	require.NoError(t, err)

	defer response.Body.Close()

	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)

	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		require.True(t, json.Valid(data))
	}

	return response.StatusCode, string(data)
}

func newCA(t *testing.T) *x509.PEMEncodedCertificateAndKey {
	t.Helper()

	ca, err := secrets.NewKubernetesCA(time.Now(), config.TalosVersionCurrent)
	require.NoError(t, err)

	return x509.NewCertificateAndKeyFromCertificateAuthority(ca)
}

func requireEvent(t *testing.T, events watch.Interface, kind watch.EventType, name string) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	select {
	case event := <-events.ResultChan():
		require.Equal(t, kind, event.Type)

		object, ok := event.Object.(metav1.Object)
		require.True(t, ok)
		require.Equal(t, name, object.GetName())
	case <-ctx.Done():
		require.Fail(t, "no event", "%s %s", kind, name)
	}
}
