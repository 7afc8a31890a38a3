package kube_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
)

var (
	loopback = netip.MustParseAddr("127.0.0.1")
	cp1      = kubernetes.Node{Name: "cp1", Address: netip.MustParseAddr("192.0.2.11"), ControlPlane: true,
		TalosVersion: "v1.13.9"}
	worker1 = kubernetes.Node{Name: "worker1", Address: netip.MustParseAddr("192.0.2.21"), TalosVersion: "v1.13.9"}
)

func TestClientReadsACluster(t *testing.T) {
	t.Parallel()

	api := newAPI(t, kubernetes.Options{Version: "v1.36.1", CNI: "none"})
	api.cluster.Register(worker1)
	api.cluster.Register(cp1)

	client, err := kube.Open(api.kubeconfig(t, kubernetes.AdminOptions{}), kube.Options{})
	require.NoError(t, err)

	require.NoError(t, client.Ready(t.Context()))

	nodes, err := client.Nodes(t.Context())
	require.NoError(t, err)

	noNetwork := "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network " +
		"plugin returns error: cni plugin not initialized"
	require.Equal(t, []kube.Node{
		{Name: "cp1", ControlPlane: true, Reason: "KubeletNotReady", Message: noNetwork,
			InternalIPs: []netip.Addr{cp1.Address}, KubeletVersion: "v1.36.1",
			Labels: map[string]string{"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "cp1",
				"kubernetes.io/os": "linux", "node-role.kubernetes.io/control-plane": ""}},
		{Name: "worker1", Reason: "KubeletNotReady", Message: noNetwork, InternalIPs: []netip.Addr{worker1.Address},
			KubeletVersion: "v1.36.1", Labels: map[string]string{"kubernetes.io/arch": "amd64",
				"kubernetes.io/hostname": "worker1", "kubernetes.io/os": "linux"}},
	}, nodes)

	api.cluster.InstallCNI()

	nodes, err = client.Nodes(t.Context())
	require.NoError(t, err)
	require.True(t, nodes[0].Ready && nodes[1].Ready)
}

func TestClientAsksAnotherAddressInTheServersName(t *testing.T) {
	t.Parallel()

	api := newAPI(t, kubernetes.Options{})

	// The endpoint is a VIP that nobody holds yet; the API server's certificate is valid for it all the same.
	kubeconfig := api.kubeconfig(t, kubernetes.AdminOptions{Endpoint: "https://vip.example:6443"})
	own := api.serve(t, api.cluster, kubernetes.ServerOptions{IssuingCA: api.ca, Names: []string{"vip.example"}})

	client, err := kube.Open(kubeconfig, kube.Options{Address: own})
	require.NoError(t, err)
	require.NoError(t, client.Ready(t.Context()))
}

// Not parallel: it looks at the goroutines of the whole process.
func TestClientLeavesNoGoroutine(t *testing.T) {
	api := newAPI(t, kubernetes.Options{})

	client, err := kube.Open(api.kubeconfig(t, kubernetes.AdminOptions{}), kube.Options{})
	require.NoError(t, err)

	before := goleak.IgnoreCurrent()

	for range 5 {
		require.NoError(t, client.Ready(t.Context()))
	}

	goleak.VerifyNone(t, before)
}

func TestFailuresAreExplained(t *testing.T) {
	t.Parallel()

	api := newAPI(t, kubernetes.Options{})
	foreign := newAPI(t, kubernetes.Options{})

	down := newAPI(t, kubernetes.Options{})
	down.cluster.Available(false)

	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)

	for _, test := range []struct {
		name       string
		kubeconfig []byte
		address    string
		ask        func(context.Context, *kube.Client) error
		text       string
		id         diagnosis.ID
	}{
		{
			name: "no quorum, ready", kubeconfig: down.kubeconfig(t, kubernetes.AdminOptions{}),
			text: "it answers, but is not ready: failing checks etcd, etcd-readiness", id: diagnosis.APINotReady,
		},
		{
			name: "no quorum, nodes", kubeconfig: down.kubeconfig(t, kubernetes.AdminOptions{}),
			ask: func(ctx context.Context, client *kube.Client) error {
				_, err := client.Nodes(ctx)

				return err
			},
			text: "it answers with an error (500): etcdserver: request timed out", id: diagnosis.APINotReady,
		},
		{
			name: "connection refused", address: closedPort(t), text: " refuses connections: nothing listens there",
			id: diagnosis.APINotReady,
		},
		{
			name: "silence", address: silent(t), text: " did not answer in time", id: diagnosis.APINotReady,
		},
		{
			name: "hangs up", address: hangsUp(t), text: " closed the connection without an answer", id: diagnosis.APINotReady,
		},
		{
			name: "another cluster", address: foreign.address, text: "a certificate of another CA", id: diagnosis.APIForeign,
		},
		{
			name: "no TLS", address: plain.Listener.Addr().String(), text: "something answers there, but not with TLS",
			id: diagnosis.APINotReady,
		},
		{
			name:       "name that the certificate lacks",
			kubeconfig: api.kubeconfig(t, kubernetes.AdminOptions{Endpoint: "https://vip.example:6443"}), address: api.address,
			text: "its certificate is not valid for vip.example", id: diagnosis.APINotReady,
		},
		{
			name:       "name that does not resolve",
			kubeconfig: api.kubeconfig(t, kubernetes.AdminOptions{Endpoint: "https://endpoint.invalid:6443"}),
			text:       "the name endpoint.invalid does not resolve", id: diagnosis.APINotReady,
		},
		{
			name: "client of another cluster", kubeconfig: api.kubeconfig(t, kubernetes.AdminOptions{IssuingCA: foreign.ca}),
			text: "it does not accept the kubeconfig's client certificate (401)", id: diagnosis.APIRefusesClient,
		},
		{
			name:       "user with few rights",
			kubeconfig: api.kubeconfig(t, kubernetes.AdminOptions{CommonName: "jane", Organization: "viewers"}),
			ask: func(ctx context.Context, client *kube.Client) error {
				_, err := client.Nodes(ctx)

				return err
			},
			text: "it knows the kubeconfig's user, who may not do this (403)", id: diagnosis.APIRefusesClient,
		},
		{
			name: "not Kubernetes", kubeconfig: api.kubeconfig(t,
				kubernetes.AdminOptions{Endpoint: "https://" + api.address + "/elsewhere"}),
			text: "it answers, but not like a Kubernetes API (404)", id: diagnosis.APINotReady,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			kubeconfig := test.kubeconfig
			if kubeconfig == nil {
				kubeconfig = api.kubeconfig(t, kubernetes.AdminOptions{})
			}

			timeout := kube.DefaultTimeout
			if test.name == "silence" {
				timeout = 50 * time.Millisecond
			}

			client, err := kube.Open(kubeconfig, kube.Options{Address: test.address, Timeout: timeout})
			require.NoError(t, err)

			ask := test.ask
			if ask == nil {
				ask = func(ctx context.Context, client *kube.Client) error { return client.Ready(ctx) }
			}

			err = ask(t.Context(), client)
			require.Error(t, err)
			require.Contains(t, kube.Explain(err), test.text)
			require.Equal(t, test.id, kube.Diagnose(err))
			require.Equal(t, test.id == diagnosis.APINotReady && !strings.Contains(test.text, "its certificate is not valid"),
				kube.MayPass(err))
		})
	}
}

func TestExpiredServerIsExplained(t *testing.T) {
	t.Parallel()

	api := newAPI(t, kubernetes.Options{Now: func() time.Time { return time.Now().AddDate(-3, 0, 0) }})

	client, err := kube.Open(api.kubeconfig(t, kubernetes.AdminOptions{}), kube.Options{})
	require.NoError(t, err)
	require.Contains(t, kube.Explain(client.Ready(t.Context())), "it has expired, or a clock is wrong")
}

func TestCancelledRequestIsExplained(t *testing.T) {
	t.Parallel()

	api := newAPI(t, kubernetes.Options{})

	client, err := kube.Open(api.kubeconfig(t, kubernetes.AdminOptions{}), kube.Options{})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	require.Equal(t, "the request was cancelled", kube.Explain(client.Ready(ctx)))
	require.Empty(t, kube.Explain(nil))
}

func TestOpenRefusesBrokenKubeconfigs(t *testing.T) {
	t.Parallel()

	for _, test := range []struct{ name, kubeconfig string }{
		{name: "empty"},
		{name: "no YAML", kubeconfig: ":\n\t:"},
		{name: "no context", kubeconfig: "apiVersion: v1\nkind: Config\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			_, err := kube.Open([]byte(test.kubeconfig), kube.Options{})
			require.ErrorContains(t, err, "read kubeconfig")
		})
	}
}

func TestServesCA(t *testing.T) {
	t.Parallel()

	api := newAPI(t, kubernetes.Options{})
	expired := newAPI(t, kubernetes.Options{Now: func() time.Time { return time.Now().AddDate(-3, 0, 0) }})
	foreign := newAPI(t, kubernetes.Options{})

	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)

	for _, test := range []struct {
		name    string
		address string
		ca      []byte
		want    kube.Server
	}{
		{name: "ours", address: api.address, ca: api.ca.Crt, want: kube.OwnServer},
		{name: "ours, after a CA rotation", address: api.address,
			ca: append(append([]byte{}, foreign.ca.Crt...), api.ca.Crt...), want: kube.OwnServer},
		{name: "ours, expired", address: expired.address, ca: expired.ca.Crt, want: kube.OwnServer},
		{name: "another cluster's", address: foreign.address, ca: api.ca.Crt, want: kube.OtherServer},
		{name: "no CA given", address: api.address, want: kube.OtherServer},
		{name: "no TLS", address: plain.Listener.Addr().String(), ca: api.ca.Crt, want: kube.NotTLS},
		{name: "refused", address: closedPort(t), ca: api.ca.Crt, want: kube.NoServer},
		{name: "unresolved", address: "vip.invalid:6443", ca: api.ca.Crt, want: kube.NoServer},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			server, err := kube.ServesCA(t.Context(), test.address, test.ca)
			require.NoError(t, err)
			require.Equal(t, test.want, server)
		})
	}
}

func TestServesCAEndsWithItsContext(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	server, err := kube.ServesCA(ctx, silent(t), nil)
	require.NoError(t, err)
	require.Equal(t, kube.MuteServer, server)

	ctx, cancel = context.WithCancel(t.Context())
	cancel()

	_, err = kube.ServesCA(ctx, silent(t), nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestServesCARefusesBrokenArguments(t *testing.T) {
	t.Parallel()

	_, err := kube.ServesCA(t.Context(), "192.0.2.10", nil)
	require.ErrorContains(t, err, "read address")

	_, err = kube.ServesCA(t.Context(), "192.0.2.10:6443",
		[]byte("-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"))
	require.ErrorContains(t, err, "parse CA certificate")
}

// api is a cluster with one API server.
type api struct {
	cluster *kubernetes.Cluster
	ca      *x509.PEMEncodedCertificateAndKey
	address string
}

func newAPI(t *testing.T, options kubernetes.Options) *api {
	t.Helper()

	a := &api{cluster: kubernetes.NewCluster(options), ca: newCA(t, options.Now)}
	a.address = a.serve(t, a.cluster, kubernetes.ServerOptions{IssuingCA: a.ca, Addresses: []netip.Addr{loopback}})

	return a
}

func (a *api) serve(t *testing.T, cluster *kubernetes.Cluster, options kubernetes.ServerOptions) (address string) {
	t.Helper()

	listener := listen(t)

	server, err := cluster.Serve(listener, options)
	require.NoError(t, err)
	t.Cleanup(server.Close)

	return listener.Addr().String()
}

// kubeconfig makes one; by default this cluster's administrator's. Whoever signs the client, the CA to trust is this
// cluster's.
func (a *api) kubeconfig(t *testing.T, options kubernetes.AdminOptions) []byte {
	t.Helper()

	if options.ClusterName == "" {
		options.ClusterName = "home"
	}

	if options.Endpoint == "" {
		options.Endpoint = "https://" + a.address
	}

	if options.IssuingCA == nil {
		options.IssuingCA = a.ca
	}

	options.AcceptedCAs = a.ca.Crt

	data, err := kubernetes.AdminKubeconfig(options)
	require.NoError(t, err)

	_, err = clientcmd.Load(data)
	require.NoError(t, err)

	return data
}

func newCA(t *testing.T, now func() time.Time) *x509.PEMEncodedCertificateAndKey {
	t.Helper()

	if now == nil {
		now = time.Now
	}

	ca, err := secrets.NewKubernetesCA(now(), config.TalosVersionCurrent)
	require.NoError(t, err)

	return x509.NewCertificateAndKeyFromCertificateAuthority(ca)
}

func listen(t *testing.T) net.Listener {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	return listener
}

// closedPort is an address where nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()

	listener := listen(t)
	require.NoError(t, listener.Close())

	return listener.Addr().String()
}

// silent is an address that takes connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()

	listener := listen(t)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })

	return listener.Addr().String()
}

// hangsUp is an address that reads what a client first says and closes the connection.
func hangsUp(t *testing.T) string {
	t.Helper()

	listener := listen(t)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			_, _ = conn.Read(make([]byte, 1<<16))
			_ = conn.Close()
		}
	}()

	return listener.Addr().String()
}
