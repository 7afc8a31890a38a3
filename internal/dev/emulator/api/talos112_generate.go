package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// machineService112 is the machine API with the method that Talos 1.13 has no more.
func machineService112() *grpc.ServiceDesc {
	description := machineapi.MachineService_ServiceDesc
	description.Methods = append(slices.Clone(description.Methods), grpc.MethodDesc{
		MethodName: "GenerateConfiguration", Handler: handleGenerateConfiguration,
	})

	return &description
}

// configGenerator is what serves GenerateConfiguration.
type configGenerator interface {
	generateConfiguration(request *generateRequest) (config, talosconfig []byte, err error)
}

// handleGenerateConfiguration serves a method whose messages machinery has dropped: they travel as the unknown fields
// of an empty one.
//
//nolint:revive // the parameters are in gRPC's order
func handleGenerateConfiguration(service any, ctx context.Context, decode func(any) error,
	interceptor grpc.UnaryServerInterceptor) (any, error) {
	raw := new(emptypb.Empty)
	if err := decode(raw); err != nil {
		return nil, err
	}

	handler := func(context.Context, any) (any, error) {
		generator, ok := service.(configGenerator)
		if !ok {
			return nil, errors.New("no generator")
		}

		request, err := readGenerateRequest(raw.ProtoReflect().GetUnknown())
		if err != nil {
			return nil, err
		}

		config, client, err := generator.generateConfiguration(request)
		if err != nil {
			return nil, err
		}

		return generateReply(config, client), nil
	}

	info := &grpc.UnaryServerInfo{Server: service,
		FullMethod: "/" + machineapi.MachineService_ServiceDesc.ServiceName + "/GenerateConfiguration"}

	return interceptor(ctx, raw, info, handler)
}

// generateRequest is the request of GenerateConfiguration.
type generateRequest struct {
	configVersion string
	cluster       *machineapi.ClusterConfig
	machine       *machineapi.MachineConfig
	at            *timestamppb.Timestamp
}

// readGenerateRequest decodes the request's fields, which are all strings or messages.
func readGenerateRequest(raw []byte) (*generateRequest, error) {
	request := new(generateRequest)

	for len(raw) > 0 {
		number, kind, length := protowire.ConsumeTag(raw)
		if length < 0 {
			return nil, fmt.Errorf("read request: %w", protowire.ParseError(length))
		}

		raw = raw[length:]

		if kind != protowire.BytesType {
			return nil, errors.New("invalid generate request")
		}

		value, length := protowire.ConsumeBytes(raw)
		if length < 0 {
			return nil, fmt.Errorf("read request: %w", protowire.ParseError(length))
		}

		raw = raw[length:]

		var into proto.Message

		switch number {
		case 1:
			request.configVersion = string(value)

			continue
		case 2:
			request.cluster = new(machineapi.ClusterConfig)
			into = request.cluster
		case 3:
			request.machine = new(machineapi.MachineConfig)
			into = request.machine
		case 4:
			request.at = new(timestamppb.Timestamp)
			into = request.at
		default:
			continue
		}

		if err := proto.Unmarshal(value, into); err != nil {
			return nil, fmt.Errorf("read request: %w", err)
		}
	}

	return request, nil
}

// generateReply is a reply of one message, with a machine config and a talosconfig.
func generateReply(config, client []byte) *emptypb.Empty {
	message := protowire.AppendTag(nil, 2, protowire.BytesType)
	message = protowire.AppendBytes(message, config)
	message = protowire.AppendTag(message, 3, protowire.BytesType)
	message = protowire.AppendBytes(message, client)

	reply := new(emptypb.Empty)
	reply.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), message))

	return reply
}

// generateConfiguration makes a cluster's first machine config. Workers would need the secrets of one that exists.
func (*maintenanceService112) generateConfiguration(request *generateRequest) (config, client []byte, err error) {
	if request.machine == nil {
		return nil, nil, errors.New("invalid generate request")
	}

	if machine.Type(request.machine.GetType()) == machine.TypeWorker {
		return nil, nil, errors.New("join config can't be generated in the maintenance mode")
	}

	return request.generate(nil)
}

// generateConfiguration makes a machine config for the node's own cluster.
func (s *machineService) generateConfiguration(request *generateRequest) (config, client []byte, err error) {
	if s.boot.Config.Role() == machine.TypeWorker {
		return nil, nil, errors.New("config can't be generated on worker nodes")
	}

	return request.generate(s.boot.Config.Settings())
}

// generate makes a machine config and a talosconfig; with the secrets of a cluster's machine config, or with new ones.
func (r *generateRequest) generate(base talosconfig.Provider) (config, client []byte, err error) {
	if r.machine == nil || r.cluster.GetControlPlane() == nil {
		return nil, nil, errors.New("invalid generate request")
	}

	if r.configVersion != "v1alpha1" {
		return nil, nil, fmt.Errorf("unsupported config version %s", r.configVersion)
	}

	bundle, err := r.secrets(base)
	if err != nil {
		return nil, nil, err
	}

	options := append(r.options(), generate.WithSecretsBundle(bundle),
		generate.WithVersionContract(talosconfig.TalosVersion1_11))

	input, err := generate.NewInput(r.cluster.GetName(), r.cluster.GetControlPlane().GetEndpoint(),
		r.machine.GetKubernetesVersion(), options...)
	if err != nil {
		return nil, nil, err
	}

	provider, err := input.Config(machine.Type(r.machine.GetType()))
	if err != nil {
		return nil, nil, err
	}

	if cni := r.cluster.GetClusterNetwork().GetCniConfig(); cni != nil {
		provider.RawV1Alpha1().ClusterConfig.ClusterNetwork.CNI =
			&v1alpha1.CNIConfig{CNIName: cni.GetName(), CNIUrls: cni.GetUrls()}
	}

	if config, err = provider.Bytes(); err != nil {
		return nil, nil, err
	}

	talos, err := input.Talosconfig()
	if err != nil {
		return nil, nil, err
	}

	endpoint, err := url.Parse(r.cluster.GetControlPlane().GetEndpoint())
	if err != nil {
		return nil, nil, err
	}

	talos.Contexts[talos.Context].Endpoints = []string{endpoint.Hostname()}

	client, err = talos.Bytes()

	return config, client, err
}

func (r *generateRequest) secrets(base talosconfig.Provider) (*secrets.Bundle, error) {
	now := time.Now()
	if r.at != nil {
		now = r.at.AsTime()
	}

	clock := secrets.NewFixedClock(now)
	if base != nil {
		return secrets.NewBundleFromConfig(clock, base)
	}

	return secrets.NewBundle(clock, talosconfig.TalosVersion1_11)
}

// options are the choices that the request makes.
func (r *generateRequest) options() []generate.Option {
	options := []generate.Option{generate.WithAllowSchedulingOnControlPlanes(
		r.cluster.GetAllowSchedulingOnControlPlanes())}

	if name := r.machine.GetNetworkConfig().GetHostname(); name != "" {
		options = append(options,
			generate.WithNetworkOptions(v1alpha1.WithNetworkConfig(&v1alpha1.NetworkConfig{NetworkHostname: name})))
	}

	if disk := r.machine.GetInstallConfig().GetInstallDisk(); disk != "" {
		options = append(options, generate.WithInstallDisk(disk))
	}

	if image := r.machine.GetInstallConfig().GetInstallImage(); image != "" {
		options = append(options, generate.WithInstallImage(image))
	}

	if domain := r.cluster.GetClusterNetwork().GetDnsDomain(); domain != "" {
		options = append(options, generate.WithDNSDomain(domain))
	}

	return options
}
