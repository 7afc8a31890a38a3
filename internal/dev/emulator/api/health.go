package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/clusterhealth"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// clusterService checks the cluster for a client, from a control plane.
type clusterService struct {
	clusterapi.UnimplementedClusterServiceServer

	boot *machine.Boot
}

// checkInterval is between two attempts of a check that fails, in node time.
const checkInterval = 5 * time.Second

// HealthCheck runs the checks of a cluster, and streams what comes of each. The control plane asks its own API for
// that, with the caller's roles.
func (s *clusterService) HealthCheck(request *clusterapi.HealthCheckRequest,
	stream clusterapi.ClusterService_HealthCheckServer) error {
	b := s.boot

	if err := onlyOnControlPlane(b, "cluster health check"); err != nil {
		return err
	}

	ctx, cancel := b.Node.Lab.Clock().WithTimeout(stream.Context(), request.GetWaitTimeout().AsDuration())
	defer cancel()

	api, err := s.ownAPI(ctx, rolesOf(ctx))
	if err != nil {
		return err
	}
	defer api.Close() //nolint:errcheck // the call is over

	kube := &kubernetesAccess{boot: b, talos: api, endpoint: request.GetClusterInfo().GetForceEndpoint()}
	defer kube.close()

	checked := &clusterhealth.Cluster{Talos: api, Kubernetes: kube.client}
	if err := s.find(ctx, checked, request.GetClusterInfo()); err != nil {
		return err
	}

	tell := func(line string) error {
		return stream.Send(&clusterapi.HealthCheckProgress{Message: strings.TrimSpace(line)})
	}

	if err := tell(fmt.Sprintf("discovered nodes: %q", checked.Addresses())); err != nil {
		return err
	}

	return clusterhealth.Wait(ctx, checked, clusterhealth.Options{
		Interval: func(ctx context.Context) error { return b.Sleep(ctx, checkInterval) },
		Limit:    s.checkLimit,
		NeedsCNI: protocolOf(b).checksNodesWithoutCNI,
		Optional: b.Release.OptionalParts,
	}, tell)
}

// checkLimit limits a single check, where the release does.
func (s *clusterService) checkLimit(ctx context.Context, check string) (context.Context, context.CancelFunc) {
	if limit := protocolOf(s.boot).checkLimit(check); limit > 0 {
		return s.boot.Node.Lab.Clock().WithTimeout(ctx, limit)
	}

	return context.WithCancel(ctx)
}

// find settles whom to check: whom the caller names, whom the node has discovered, or at last whom Kubernetes
// knows.
func (s *clusterService) find(ctx context.Context, checked *clusterhealth.Cluster,
	named *clusterapi.ClusterInfo) error {
	if len(named.GetControlPlaneNodes())+len(named.GetWorkerNodes()) > 0 {
		var err error

		if checked.ControlPlanes, err = namedNodes(named.GetControlPlaneNodes()); err == nil {
			checked.Workers, err = namedNodes(named.GetWorkerNodes())
		}

		return err
	}

	members, err := safe.StateListAll[*cluster.Member](ctx, s.boot.Resources.Own)
	if err != nil {
		return err
	}

	if members.Len() == 0 {
		return checked.FromKubernetes(ctx)
	}

	for member := range members.All() {
		spec := member.TypedSpec()
		if len(spec.Addresses) == 0 {
			return fmt.Errorf("no IP address found for member: %s", member.Metadata().ID())
		}

		node := clusterhealth.Node{InternalIP: spec.Addresses[0], IPs: slices.Clone(spec.Addresses)}

		if spec.MachineType == machinetype.TypeWorker {
			checked.Workers = append(checked.Workers, node)
		} else {
			checked.ControlPlanes = append(checked.ControlPlanes, node)
		}
	}

	return nil
}

func namedNodes(names []string) ([]clusterhealth.Node, error) {
	nodes := make([]clusterhealth.Node, 0, len(names))

	for _, name := range names {
		address, err := netip.ParseAddr(name)
		if err != nil {
			return nil, err
		}

		nodes = append(nodes, clusterhealth.Node{InternalIP: address, IPs: []netip.Addr{address}})
	}

	return nodes, nil
}

// ownCertificate is how long the certificate lives that a control plane gives itself to ask its own API.
const ownCertificate = 10 * time.Minute

// ownAPI is a connection to the node's own API, with a certificate of these roles.
func (s *clusterService) ownAPI(ctx context.Context, roles role.Set) (*client.Client, error) {
	b := s.boot

	bundle, err := secrets.NewBundleFromConfig(secrets.NewFixedClock(b.WallNow()), b.Config.Settings())
	if err != nil {
		return nil, fmt.Errorf("failed to read the secrets: %w", err)
	}

	signed, err := bundle.GenerateTalosAPIClientCertificateWithTTL(roles, ownCertificate)
	if err != nil {
		return nil, fmt.Errorf("failed to generate client certificate: %w", err)
	}

	pair, err := tls.X509KeyPair(signed.Crt, signed.Key)
	if err != nil {
		return nil, fmt.Errorf("failed to generate client certificate: %w", err)
	}

	roots, err := b.Certificates.AcceptedCAs()
	if err != nil {
		return nil, err
	}

	self := netip.AddrPortFrom(b.Node.Address(), machine.APIPort)

	return client.New(ctx,
		client.WithEndpoints(self.String()),
		client.WithTLSConfig(&tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair},
			ServerName: self.Addr().String(), Time: b.WallNow,
		}),
		client.WithGRPCDialOptions(grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return b.Node.NIC.Dial(ctx, self) })),
	)
}

// kubernetesAccess connects to Kubernetes with the kubeconfig that the node gives. It is fetched when it is first
// needed.
type kubernetesAccess struct {
	boot     *machine.Boot
	talos    *client.Client
	endpoint string // in the place of the kubeconfig's

	known     rest.Interface
	transport *http.Transport
}

func (k *kubernetesAccess) client(ctx context.Context) (rest.Interface, error) {
	if k.known != nil {
		return k.known, nil
	}

	kubeconfig, err := k.talos.Kubeconfig(ctx)
	if err != nil {
		return nil, err
	}

	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}

	security, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}

	security.Time = k.boot.WallNow
	config.QPS = -1 // node time can be so fast that a limit on calls a second would be felt

	if k.endpoint != "" {
		config.Host = "https://" + withPort(strings.TrimPrefix(k.endpoint, "https://"))
	}

	k.transport = &http.Transport{TLSClientConfig: security, DialContext: k.dial}

	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}

	config.GroupVersion = &corev1.SchemeGroupVersion // any: every request names the whole path
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()

	api, err := rest.RESTClientForConfigAndClient(config, &http.Client{Transport: k.transport})
	if err != nil {
		return nil, err
	}

	k.known = api

	return api, nil
}

func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}

	return fmt.Sprintf("%s:%d", host, machine.KubernetesPort)
}

func (k *kubernetesAccess) dial(ctx context.Context, _, to string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		host, _, _ := net.SplitHostPort(to) //nolint:errcheck // then it is empty

		return nil, fmt.Errorf("dial tcp: lookup %s: no such host", host)
	}

	return k.boot.Node.NIC.Dial(ctx, at)
}

func (k *kubernetesAccess) close() {
	if k.transport != nil {
		k.transport.CloseIdleConnections()
	}
}
