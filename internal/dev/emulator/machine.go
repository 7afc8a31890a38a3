package emulator

import (
	"archive/tar"
	"bytes"
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
)

// machineService is the machine API of one boot, put together from the APIs of its subjects.
type machineService struct {
	unimplemented
	etcdAPI
	fileAPI
	logAPI
	sequenceAPI
	statsAPI

	boot *boot
}

// unimplemented has what no subject has. As a type of its own it is embedded deeper than they are, and gives way.
type unimplemented struct {
	machineapi.UnimplementedMachineServiceServer
}

// Each is the part of the machine API about its subject.
type (
	// etcdAPI looks after the node's etcd and its cluster.
	etcdAPI struct{ boot *boot }
	// fileAPI shows files and folders, and writes the META partition.
	fileAPI struct{ boot *boot }
	// logAPI shows logs and events.
	logAPI struct{ boot *boot }
	// sequenceAPI starts sequences that end the boot.
	sequenceAPI struct{ boot *boot }
	// statsAPI shows figures.
	statsAPI struct{ boot *boot }
)

func newMachineService(b *boot) *machineService {
	return &machineService{
		etcdAPI: etcdAPI{b}, fileAPI: fileAPI{b}, logAPI: logAPI{b}, sequenceAPI: sequenceAPI{b}, statsAPI: statsAPI{b},
		boot: b,
	}
}

// onlyOnControlPlane is the answer to a call that other nodes do not serve.
func (b *boot) onlyOnControlPlane(what string) error {
	if !b.config.role().IsControlPlane() {
		if refusal, own := b.release.refusals[what]; own {
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
			Tag: s.boot.version, Sha: "emulated", Built: "", GoVersion: runtime.Version(), Os: "linux", Arch: runtime.GOARCH,
		},
		Platform: &machineapi.PlatformInfo{Name: "metal", Mode: s.boot.node.options.platformMode()},
	}

	if s.boot.config.active() != nil {
		version.Features = &machineapi.FeaturesInfo{Rbac: true}
	}

	return &machineapi.VersionResponse{Messages: []*machineapi.Version{version}}, nil
}

// Hostname tells the machine's name.
func (s *machineService) Hostname(context.Context, *emptypb.Empty) (*machineapi.HostnameResponse, error) {
	name := s.boot.config.hostname()
	setDefault(&name, "localhost")

	return &machineapi.HostnameResponse{Messages: []*machineapi.Hostname{{Hostname: name}}}, nil
}

// ServiceList tells all services with their history.
func (s *machineService) ServiceList(context.Context, *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{Services: s.boot.services.list()}}}, nil
}

// ServiceStart starts kubelet, and refuses the others. What runs already is left alone.
func (s *machineService) ServiceStart(_ context.Context,
	request *machineapi.ServiceStartRequest) (*machineapi.ServiceStartResponse, error) {
	if err := s.boot.services.refusal(request.GetId(), "start"); err != nil {
		return nil, err
	}

	return &machineapi.ServiceStartResponse{Messages: []*machineapi.ServiceStart{{Resp: fmt.Sprintf("Service %q started",
		request.GetId())}}}, nil
}

// ServiceStop refuses: the services that a node has can't be stopped by hand.
func (s *machineService) ServiceStop(_ context.Context,
	request *machineapi.ServiceStopRequest) (*machineapi.ServiceStopResponse, error) {
	if err := s.boot.services.refusal(request.GetId(), "stop"); err != nil {
		return nil, err
	}

	return &machineapi.ServiceStopResponse{Messages: []*machineapi.ServiceStop{{Resp: fmt.Sprintf("Service %q stopped",
		request.GetId())}}}, nil
}

// ServiceRestart restarts kubelet, and refuses the others.
func (s *machineService) ServiceRestart(_ context.Context,
	request *machineapi.ServiceRestartRequest) (*machineapi.ServiceRestartResponse, error) {
	if err := s.boot.services.refusal(request.GetId(), "restart"); err != nil {
		return nil, err
	}

	s.boot.mu.Lock()
	restart := s.boot.kubelet.restart
	s.boot.mu.Unlock()

	if restart != nil {
		restart()
	}

	return &machineapi.ServiceRestartResponse{Messages: []*machineapi.ServiceRestart{{Resp: fmt.Sprintf(
		"Service %q restarted", request.GetId())}}}, nil
}

// refusal is why a service can't be started, stopped or restarted by hand; nil if it can, or if that would
// change nothing.
func (s *services) refusal(id, operation string) error {
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()

	svc := s.byID[id]
	if svc == nil {
		return fmt.Errorf("service %q not defined", id)
	}

	ended := svc.state == stateFinished || svc.state == stateFailed

	switch {
	case operation == "start" && !ended, operation == "stop" && ended:
		return nil
	case operation != "stop" && id == serviceKubelet:
		return nil
	case operation == "restart" && ended: // what does not run is to be started
		operation = "start"
	}

	return fmt.Errorf("service %q doesn't support %s operation via API", id, operation)
}

// Reboot answers, then reboots.
func (s *sequenceAPI) Reboot(_ context.Context, request *machineapi.RebootRequest) (*machineapi.RebootResponse,
	error) {
	actor := s.boot.sequences.act("reboot", seqReboot, false, s.boot.phases.reboot(request.GetMode()))

	return &machineapi.RebootResponse{Messages: []*machineapi.Reboot{{ActorId: actor}}}, nil
}

// Shutdown answers, then ends whatever runs and switches the machine off.
func (s *sequenceAPI) Shutdown(_ context.Context, request *machineapi.ShutdownRequest) (*machineapi.ShutdownResponse,
	error) {
	actor := s.boot.sequences.act("shutdown", seqShutdown, true, s.boot.phases.shutdown(request.GetForce()))

	return &machineapi.ShutdownResponse{Messages: []*machineapi.Shutdown{{ActorId: actor}}}, nil
}

// Kubeconfig signs a kubeconfig from the machine config; it tells nothing about the cluster. The archive has no end, as
// on a node.
func (s *machineService) Kubeconfig(_ *emptypb.Empty, stream machineapi.MachineService_KubeconfigServer) error {
	if err := s.boot.onlyOnControlPlane("kubeconfig"); err != nil {
		return err
	}

	cluster := s.boot.config.settings().Cluster()

	pems := [][]byte{cluster.IssuingCA().Crt}
	for _, ca := range cluster.AcceptedCAs() {
		pems = append(pems, ca.Crt)
	}

	file, err := kubernetes.AdminKubeconfig(kubernetes.AdminOptions{
		ClusterName:  cluster.Name(),
		Endpoint:     cluster.Endpoint().String(),
		IssuingCA:    cluster.IssuingCA(),
		AcceptedCAs:  bytes.Join(pems, nil),
		CommonName:   cluster.AdminKubeconfig().CommonName(),
		Organization: cluster.AdminKubeconfig().CertOrganization(),
		Lifetime:     cluster.AdminKubeconfig().CertLifetime(),
		Now:          s.boot.wallNow,
	})
	if err != nil {
		return err
	}

	archive, err := unfinishedArchive("kubeconfig", file, s.boot.wallNow())
	if err != nil {
		return err
	}

	return stream.Send(&common.Data{Bytes: archive})
}

// GenerateClientConfiguration signs a client certificate from the machine config, and makes a talosconfig of it,
// without endpoints.
func (s *machineService) GenerateClientConfiguration(_ context.Context,
	request *machineapi.GenerateClientConfigurationRequest) (
	*machineapi.GenerateClientConfigurationResponse, error,
) {
	if err := s.boot.onlyOnControlPlane("generate client configuration"); err != nil {
		return nil, err
	}

	lifetime := request.GetCrtTtl().AsDuration()
	if lifetime <= 0 {
		return nil, status.Error(codes.InvalidArgument, "crt_ttl should be positive")
	}

	roles, _ := role.Parse(request.GetRoles())
	config := s.boot.config.settings()

	bundle := secrets.NewBundleFromConfig(secrets.NewFixedClock(s.boot.wallNow()), config)

	certificate, err := bundle.GenerateTalosAPIClientCertificateWithTTL(roles, lifetime)
	if err != nil {
		return nil, err
	}

	name := config.Cluster().Name()
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

// bootIDPath is the one file that clients read to tell boots apart.
const bootIDPath = "/proc/sys/kernel/random/boot_id"

// Read gives a file's content.
func (s *fileAPI) Read(request *machineapi.ReadRequest, stream machineapi.MachineService_ReadServer) error {
	if content, ok := s.boot.files.read(request.GetPath()); ok {
		return stream.Send(&common.Data{Bytes: []byte(content)})
	}

	if _, ok := s.boot.files.directory(request.GetPath()); ok {
		return status.Error(codes.InvalidArgument, "path must be a regular file")
	}

	return status.Errorf(codes.NotFound, "stat %s: no such file or directory", request.GetPath())
}

// MetaWrite writes a key of the META partition.
func (s *fileAPI) MetaWrite(_ context.Context,
	request *machineapi.MetaWriteRequest) (*machineapi.MetaWriteResponse, error) {
	key, err := metaKey(request.GetKey())
	if err != nil {
		return nil, err
	}

	s.boot.node.editDrive(func(d *drive) { d.meta[key] = string(request.GetValue()) })
	s.boot.resources.showMeta(key, string(request.GetValue()))

	return &machineapi.MetaWriteResponse{Messages: []*machineapi.MetaWrite{{}}}, nil
}

// MetaDelete removes a key of the META partition.
func (s *fileAPI) MetaDelete(_ context.Context,
	request *machineapi.MetaDeleteRequest) (*machineapi.MetaDeleteResponse, error) {
	key, err := metaKey(request.GetKey())
	if err != nil {
		return nil, err
	}

	if _, ok := s.boot.node.readDrive().meta[key]; !ok {
		return nil, status.Error(codes.NotFound, "meta key not found")
	}

	s.boot.node.editDrive(func(d *drive) { delete(d.meta, key) })
	s.boot.resources.removeMeta(key)

	return &machineapi.MetaDeleteResponse{Messages: []*machineapi.MetaDelete{{}}}, nil
}

func metaKey(key uint32) (uint8, error) {
	const largest = 255

	if key > largest {
		return 0, status.Error(codes.InvalidArgument, "key must be a uint8")
	}

	return uint8(key), nil
}
