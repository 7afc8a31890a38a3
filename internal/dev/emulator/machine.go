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

// machineService is the machine API of one boot.
type machineService struct {
	machineapi.UnimplementedMachineServiceServer

	boot *boot
}

// onlyOnControlPlane is the answer to a call that other nodes do not serve.
func (b *boot) onlyOnControlPlane(what string) error {
	if !b.role().IsControlPlane() {
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

	if s.boot.activeConfig() != nil {
		version.Features = &machineapi.FeaturesInfo{Rbac: true}
	}

	return &machineapi.VersionResponse{Messages: []*machineapi.Version{version}}, nil
}

// Hostname tells the machine's name.
func (s *machineService) Hostname(context.Context, *emptypb.Empty) (*machineapi.HostnameResponse, error) {
	name := s.boot.hostname()
	setDefault(&name, "localhost")

	return &machineapi.HostnameResponse{Messages: []*machineapi.Hostname{{Hostname: name}}}, nil
}

// ServiceList tells all services with their history.
func (s *machineService) ServiceList(context.Context, *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{Services: s.boot.serviceList()}}}, nil
}

// ServiceStart starts kubelet, and refuses the others. What runs already is left alone.
func (s *machineService) ServiceStart(_ context.Context,
	request *machineapi.ServiceStartRequest) (*machineapi.ServiceStartResponse, error) {
	if err := s.boot.serviceRefusal(request.GetId(), "start"); err != nil {
		return nil, err
	}

	return &machineapi.ServiceStartResponse{Messages: []*machineapi.ServiceStart{{Resp: fmt.Sprintf("Service %q started",
		request.GetId())}}}, nil
}

// ServiceStop refuses: the services that a node has can't be stopped by hand.
func (s *machineService) ServiceStop(_ context.Context,
	request *machineapi.ServiceStopRequest) (*machineapi.ServiceStopResponse, error) {
	if err := s.boot.serviceRefusal(request.GetId(), "stop"); err != nil {
		return nil, err
	}

	return &machineapi.ServiceStopResponse{Messages: []*machineapi.ServiceStop{{Resp: fmt.Sprintf("Service %q stopped",
		request.GetId())}}}, nil
}

// ServiceRestart restarts kubelet, and refuses the others.
func (s *machineService) ServiceRestart(_ context.Context,
	request *machineapi.ServiceRestartRequest) (*machineapi.ServiceRestartResponse, error) {
	if err := s.boot.serviceRefusal(request.GetId(), "restart"); err != nil {
		return nil, err
	}

	s.boot.mu.Lock()
	restart := s.boot.restartKubelet
	s.boot.mu.Unlock()

	if restart != nil {
		restart()
	}

	return &machineapi.ServiceRestartResponse{Messages: []*machineapi.ServiceRestart{{Resp: fmt.Sprintf(
		"Service %q restarted", request.GetId())}}}, nil
}

// serviceRefusal is why a service can't be started, stopped or restarted by hand; nil if it can, or if that would
// change nothing.
func (b *boot) serviceRefusal(id, operation string) error {
	b.mu.Lock()
	defer b.mu.Unlock()

	svc := b.services[id]
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
func (s *machineService) Reboot(_ context.Context, request *machineapi.RebootRequest) (*machineapi.RebootResponse,
	error) {
	actor := s.boot.act("reboot", seqReboot, false, s.boot.rebootPhases(request.GetMode()))

	return &machineapi.RebootResponse{Messages: []*machineapi.Reboot{{ActorId: actor}}}, nil
}

// Shutdown answers, then ends whatever runs and switches the machine off.
func (s *machineService) Shutdown(_ context.Context, request *machineapi.ShutdownRequest) (*machineapi.ShutdownResponse,
	error) {
	actor := s.boot.act("shutdown", seqShutdown, true, s.boot.shutdownPhases(request.GetForce()))

	return &machineapi.ShutdownResponse{Messages: []*machineapi.Shutdown{{ActorId: actor}}}, nil
}

// Kubeconfig signs a kubeconfig from the machine config; it tells nothing about the cluster. The archive has no end, as
// on a node.
func (s *machineService) Kubeconfig(_ *emptypb.Empty, stream machineapi.MachineService_KubeconfigServer) error {
	if err := s.boot.onlyOnControlPlane("kubeconfig"); err != nil {
		return err
	}

	cluster := s.boot.settings().Cluster()

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
	config := s.boot.settings()

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
func (s *machineService) Read(request *machineapi.ReadRequest, stream machineapi.MachineService_ReadServer) error {
	if content, ok := s.boot.file(request.GetPath()); ok {
		return stream.Send(&common.Data{Bytes: []byte(content)})
	}

	if _, ok := s.boot.directory(request.GetPath()); ok {
		return status.Error(codes.InvalidArgument, "path must be a regular file")
	}

	return status.Errorf(codes.NotFound, "stat %s: no such file or directory", request.GetPath())
}

// MetaWrite writes a key of the META partition.
func (s *machineService) MetaWrite(_ context.Context,
	request *machineapi.MetaWriteRequest) (*machineapi.MetaWriteResponse, error) {
	key, err := metaKey(request.GetKey())
	if err != nil {
		return nil, err
	}

	s.boot.node.editDrive(func(d *drive) { d.meta[key] = string(request.GetValue()) })
	s.boot.showMeta(key, string(request.GetValue()))

	return &machineapi.MetaWriteResponse{Messages: []*machineapi.MetaWrite{{}}}, nil
}

// MetaDelete removes a key of the META partition.
func (s *machineService) MetaDelete(_ context.Context,
	request *machineapi.MetaDeleteRequest) (*machineapi.MetaDeleteResponse, error) {
	key, err := metaKey(request.GetKey())
	if err != nil {
		return nil, err
	}

	if _, ok := s.boot.node.readDrive().meta[key]; !ok {
		return nil, status.Error(codes.NotFound, "meta key not found")
	}

	s.boot.node.editDrive(func(d *drive) { delete(d.meta, key) })
	s.boot.removeMeta(key)

	return &machineapi.MetaDeleteResponse{Messages: []*machineapi.MetaDelete{{}}}, nil
}

func metaKey(key uint32) (uint8, error) {
	const largest = 255

	if key > largest {
		return 0, status.Error(codes.InvalidArgument, "key must be a uint8")
	}

	return uint8(key), nil
}
