// Package kube asks a cluster's Kubernetes API what a bring-up needs to know, explains why it does not answer, and
// merges a cluster's kubeconfig into the user's file.
package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// DefaultTimeout bounds one request when Options name no other limit.
const DefaultTimeout = 10 * time.Second

// labelControlPlane marks the nodes of the control plane.
const labelControlPlane = "node-role.kubernetes.io/control-plane"

// quietKlog keeps client-go's own log lines off the terminal: what they say comes back as errors.
var quietKlog = sync.OnceFunc(func() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
})

// Options say how to reach the API.
type Options struct {
	// Address is asked instead of the kubeconfig's server: "192.0.2.11:6443". Certificates are still checked for the
	// server's name, which every control plane's certificate holds. Empty for the kubeconfig's server.
	Address string
	// Timeout bounds one request from dialling to the last byte; DefaultTimeout if zero.
	Timeout time.Duration
}

// Client asks one Kubernetes API. Each request has a connection of its own, so that a VIP that moved is noticed, and
// nothing needs closing.
type Client struct {
	api     *rest.RESTClient
	timeout time.Duration
}

// Open reads the kubeconfig's current context. It does not connect.
func Open(kubeconfig []byte, options Options) (*Client, error) {
	quietKlog()

	settings, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}

	if options.Timeout <= 0 {
		options.Timeout = DefaultTimeout
	}

	if options.Address != "" {
		if err := redirect(settings, options.Address); err != nil {
			return nil, err
		}
	}

	secure, err := rest.TLSConfigFor(settings)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig's certificates: %w", err)
	}

	transport, err := rest.HTTPWrappersForConfig(settings, newTransport(settings, secure))
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig's credentials: %w", err)
	}

	settings.QPS = -1 // the caller waits between its requests
	settings.WarningHandlerWithContext = rest.NoWarnings{}

	// The types of one group are enough: client-go's clientset knows them all, and makes the program a third larger.
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("make Kubernetes client: %w", err)
	}

	settings.APIPath = "/api"
	settings.GroupVersion = &corev1.SchemeGroupVersion
	settings.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()

	api, err := rest.RESTClientForConfigAndClient(settings, &http.Client{Transport: transport})
	if err != nil {
		return nil, fmt.Errorf("make Kubernetes client: %w", err)
	}

	return &Client{api: api, timeout: options.Timeout}, nil
}

// redirect asks another address in the name of the kubeconfig's server.
func redirect(settings *rest.Config, address string) error {
	server, err := url.Parse(settings.Host)
	if err != nil {
		return fmt.Errorf("read kubeconfig's server: %w", err)
	}

	if settings.ServerName == "" {
		settings.ServerName = server.Hostname()
	}

	server.Host = address
	settings.Host = server.String()

	return nil
}

func newTransport(settings *rest.Config, secure *tls.Config) *http.Transport {
	proxy := settings.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}

	return &http.Transport{
		Proxy:             proxy,
		DialContext:       new(net.Dialer).DialContext,
		TLSClientConfig:   secure,
		DisableKeepAlives: true,
	}
}

// Ready asks /readyz. An API that answers but is not ready yet gives a *NotReadyError.
func (c *Client) Ready(ctx context.Context) error {
	body, err := c.get(ctx, "/readyz")

	if failing := failedChecks(body); len(failing) > 0 {
		return &NotReadyError{Failing: failing}
	}

	if err != nil {
		return fmt.Errorf("ask whether the Kubernetes API is ready: %w", err)
	}

	return nil
}

// NotReadyError is an API server that answers and says that some of its checks fail.
type NotReadyError struct {
	// Failing are the names of the checks: "etcd", "etcd-readiness".
	Failing []string
}

func (e *NotReadyError) Error() string {
	return "the Kubernetes API is not ready, failing checks: " + strings.Join(e.Failing, ", ")
}

// failedChecks reads the names of the lines "[-]etcd failed: reason withheld".
func failedChecks(body []byte) []string {
	var failing []string

	for line := range strings.Lines(string(body)) {
		if check, failed := strings.CutPrefix(line, "[-]"); failed {
			name, _, _ := strings.Cut(strings.TrimSpace(check), " ")
			failing = append(failing, name)
		}
	}

	return failing
}

func (c *Client) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	// client-go would repeat a request for ten seconds after a broken connection: the caller knows better when to ask
	// again.
	return c.api.Get().AbsPath(path).MaxRetries(0).DoRaw(ctx)
}

// Node is a node as Kubernetes sees it.
type Node struct {
	Name         string
	ControlPlane bool
	// Ready is the node's Ready condition; Reason and Message say why it is what it is.
	Ready           bool
	Reason, Message string
	InternalIPs     []netip.Addr
	// KubeletVersion is like "v1.36.3".
	KubeletVersion string
	Labels         map[string]string
	Annotations    map[string]string
	// Unschedulable nodes are cordoned: they take no new pods.
	Unschedulable bool
	// ProviderID is set by a cloud controller manager; Uninitialized nodes wait for one.
	ProviderID    string
	Uninitialized bool
}

// taintUninitialized is on nodes whose kubelet was told that a cloud controller manager will look after them.
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// Nodes lists the registered nodes in the order of their names.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	var list corev1.NodeList
	if err := c.api.Get().Resource("nodes").MaxRetries(0).Do(ctx).Into(&list); err != nil {
		return nil, fmt.Errorf("list Kubernetes nodes: %w", err)
	}

	nodes := make([]Node, 0, len(list.Items))
	for i := range list.Items {
		nodes = append(nodes, newNode(&list.Items[i]))
	}

	return nodes, nil
}

func newNode(from *corev1.Node) Node {
	node := Node{Name: from.Name, KubeletVersion: from.Status.NodeInfo.KubeletVersion, Labels: from.Labels,
		Annotations: from.Annotations, Unschedulable: from.Spec.Unschedulable, ProviderID: from.Spec.ProviderID}
	_, node.ControlPlane = from.Labels[labelControlPlane]

	for _, condition := range from.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			node.Ready = condition.Status == corev1.ConditionTrue
			node.Reason, node.Message = condition.Reason, condition.Message
		}
	}

	for _, taint := range from.Spec.Taints {
		node.Uninitialized = node.Uninitialized || taint.Key == taintUninitialized
	}

	for _, address := range from.Status.Addresses {
		if ip, err := netip.ParseAddr(address.Address); err == nil && address.Type == corev1.NodeInternalIP {
			node.InternalIPs = append(node.InternalIPs, ip)
		}
	}

	return node
}
