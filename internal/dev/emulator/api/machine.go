package api

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/sequence"
)

// machineService is the machine API of one boot, put together from the APIs of its subjects.
type machineService struct {
	unimplemented
	etcdAPI
	fileAPI
	logAPI
	sequenceAPI
	statsAPI

	boot *machine.Boot
}

// unimplemented has what no subject has. As a type of its own it is embedded deeper than they are, and gives way.
type unimplemented struct {
	machineapi.UnimplementedMachineServiceServer
}

// Each is the part of the machine API about its subject.
type (
	// etcdAPI looks after the node's etcd and its cluster.
	etcdAPI struct{ boot *machine.Boot }
	// fileAPI shows files and folders, and writes the META partition.
	fileAPI struct{ boot *machine.Boot }
	// logAPI shows logs and events.
	logAPI struct{ boot *machine.Boot }
	// sequenceAPI starts sequences that end the boot.
	sequenceAPI struct{ boot *machine.Boot }
	// statsAPI shows figures.
	statsAPI struct{ boot *machine.Boot }
)

func newMachineService(b *machine.Boot) *machineService {
	return &machineService{
		etcdAPI: etcdAPI{b}, fileAPI: fileAPI{b}, logAPI: logAPI{b}, sequenceAPI: sequenceAPI{b}, statsAPI: statsAPI{b},
		boot: b,
	}
}

// onlyOnControlPlane is the answer to a call that other nodes do not serve.
func onlyOnControlPlane(b *machine.Boot, what string) error {
	if !b.Config.Role().IsControlPlane() {
		if refusal, own := protocolOf(b).refusals[what]; own {
			return refusal
		}

		return status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", what)
	}

	return nil
}

// Version tells the Talos version, and RBAC once a complete machine config is active.
func (s *machineService) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	version := &machineapi.Version{
		Version: &machineapi.VersionInfo{
			Tag: s.boot.Version, Sha: "emulated", Built: "", GoVersion: runtime.Version(), Os: "linux", Arch: runtime.GOARCH,
		},
		Platform: &machineapi.PlatformInfo{Name: "metal", Mode: platformMode(s.boot.Node.Options().Agent)},
	}

	if s.boot.Config.Active() != nil {
		version.Features = &machineapi.FeaturesInfo{Rbac: true}
	}

	return &machineapi.VersionResponse{Messages: []*machineapi.Version{version}}, nil
}

// Hostname tells the machine's name.
func (s *machineService) Hostname(context.Context, *emptypb.Empty) (*machineapi.HostnameResponse, error) {
	name := cmp.Or(s.boot.Config.Hostname(), "localhost")

	return &machineapi.HostnameResponse{Messages: []*machineapi.Hostname{{Hostname: name}}}, nil
}

// ServiceList tells all services with their history.
func (s *machineService) ServiceList(context.Context, *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{Services: s.boot.Services.List()}}}, nil
}

// ServiceStart starts kubelet, and refuses the others. What runs already is left alone.
func (s *machineService) ServiceStart(_ context.Context,
	request *machineapi.ServiceStartRequest) (*machineapi.ServiceStartResponse, error) {
	if err := s.boot.Services.Refusal(request.GetId(), "start"); err != nil {
		return nil, err
	}

	return &machineapi.ServiceStartResponse{Messages: []*machineapi.ServiceStart{{Resp: fmt.Sprintf("Service %q started",
		request.GetId())}}}, nil
}

// ServiceStop refuses: the services that a node has can't be stopped by hand.
func (s *machineService) ServiceStop(_ context.Context,
	request *machineapi.ServiceStopRequest) (*machineapi.ServiceStopResponse, error) {
	if err := s.boot.Services.Refusal(request.GetId(), "stop"); err != nil {
		return nil, err
	}

	return &machineapi.ServiceStopResponse{Messages: []*machineapi.ServiceStop{{Resp: fmt.Sprintf("Service %q stopped",
		request.GetId())}}}, nil
}

// ServiceRestart restarts kubelet, and refuses the others.
func (s *machineService) ServiceRestart(_ context.Context,
	request *machineapi.ServiceRestartRequest) (*machineapi.ServiceRestartResponse, error) {
	if err := s.boot.Services.Refusal(request.GetId(), "restart"); err != nil {
		return nil, err
	}

	s.boot.Kubelet.EndRun()

	return &machineapi.ServiceRestartResponse{Messages: []*machineapi.ServiceRestart{{Resp: fmt.Sprintf(
		"Service %q restarted", request.GetId())}}}, nil
}

// Reboot answers, then reboots.
func (s *sequenceAPI) Reboot(_ context.Context, request *machineapi.RebootRequest) (*machineapi.RebootResponse,
	error) {
	actor := s.boot.Sequences.Act("reboot", sequence.Reboot, false, s.boot.Phases.Reboot(request.GetMode()))

	return &machineapi.RebootResponse{Messages: []*machineapi.Reboot{{ActorId: actor}}}, nil
}

// Shutdown answers, then ends whatever runs and switches the machine off.
func (s *sequenceAPI) Shutdown(_ context.Context, request *machineapi.ShutdownRequest) (*machineapi.ShutdownResponse,
	error) {
	actor := s.boot.Sequences.Act("shutdown", sequence.Shutdown, true, s.boot.Phases.Shutdown(request.GetForce()))

	return &machineapi.ShutdownResponse{Messages: []*machineapi.Shutdown{{ActorId: actor}}}, nil
}

// Kubeconfig signs a kubeconfig from the machine config; it tells nothing about the cluster. The archive has no end, as
// on a node.
func (s *machineService) Kubeconfig(_ *emptypb.Empty, stream machineapi.MachineService_KubeconfigServer) error {
	if err := onlyOnControlPlane(s.boot, "kubeconfig"); err != nil {
		return err
	}

	config := s.boot.Config.Settings()
	admin, cluster := config.Cluster().AdminKubeconfig(), config.K8sClusterConfig()

	authority := config.K8sAPIServerCAConfig()
	if authority == nil {
		return status.Error(codes.FailedPrecondition, "k8s API server CA config is not set")
	}

	if cluster == nil {
		return errNoCluster
	}

	var pems [][]byte

	for _, ca := range authority.AcceptedCAs() {
		pems = append(pems, ca.Crt)
	}

	file, err := kubernetes.AdminKubeconfig(kubernetes.AdminOptions{
		ClusterName:  cluster.ClusterName(),
		Endpoint:     cluster.ClusterEndpoint().String(),
		IssuingCA:    authority.IssuingCA(),
		AcceptedCAs:  bytes.Join(pems, nil),
		CommonName:   admin.CommonName(),
		Organization: admin.CertOrganization(),
		Lifetime:     admin.CertLifetime(),
		Now:          s.boot.WallNow,
	})
	if err != nil {
		return err
	}

	archive, err := unfinishedArchive("kubeconfig", file, s.boot.WallNow())
	if err != nil {
		return err
	}

	return stream.Send(&common.Data{Bytes: archive})
}

// errNoCluster is the answer to calls that need what a machine config without Kubernetes leaves out. Before Talos 1.14
// there are no such configs.
var errNoCluster = status.Error(codes.FailedPrecondition,
	"cluster name and endpoint are not configured (.cluster.controlPlane.endpoint or KubeClusterConfig document)")

// GenerateClientConfiguration signs a client certificate from the machine config, and makes a talosconfig of it,
// without endpoints.
func (s *machineService) GenerateClientConfiguration(_ context.Context,
	request *machineapi.GenerateClientConfigurationRequest) (
	*machineapi.GenerateClientConfigurationResponse, error,
) {
	if err := onlyOnControlPlane(s.boot, "generate client configuration"); err != nil {
		return nil, err
	}

	lifetime := request.GetCrtTtl().AsDuration()
	if lifetime <= 0 {
		return nil, status.Error(codes.InvalidArgument, "crt_ttl should be positive")
	}

	roles, _ := role.Parse(request.GetRoles())
	config := s.boot.Config.Settings()

	bundle, err := secrets.NewBundleFromConfig(secrets.NewFixedClock(s.boot.WallNow()), config)
	if err != nil {
		return nil, err
	}

	certificate, err := bundle.GenerateTalosAPIClientCertificateWithTTL(roles, lifetime)
	if err != nil {
		return nil, err
	}

	cluster := config.K8sClusterConfig()
	if cluster == nil {
		return nil, errNoCluster
	}

	name := cluster.ClusterName()
	if names := roles.Strings(); len(names) == 1 {
		name = strings.TrimPrefix(names[0], role.Prefix) + "@" + name
	}

	talosconfig, err := clientconfig.NewConfig(name, nil, bundle.Certs.OS.Crt, certificate).Bytes()
	if err != nil {
		return nil, err
	}

	return &machineapi.GenerateClientConfigurationResponse{Messages: []*machineapi.GenerateClientConfiguration{{
		Ca: bundle.Certs.OS.Crt, Crt: certificate.Crt, Key: certificate.Key, Talosconfig: talosconfig,
	}}}, nil
}

// unfinishedArchive is a tar.gz whose tar never got its trailer.
func unfinishedArchive(name string, file []byte, modified time.Time) ([]byte, error) {
	var buffer bytes.Buffer

	zipper := gzip.NewWriter(&buffer)
	archive := tar.NewWriter(zipper)

	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(file)), ModTime: modified,
		Mode: 0o600}); err != nil {
		return nil, err
	}

	if _, err := io.Copy(archive, bytes.NewReader(file)); err != nil {
		return nil, err
	}

	if err := zipper.Close(); err != nil {
		return nil, err
	}

	return buffer.Bytes(), nil
}
