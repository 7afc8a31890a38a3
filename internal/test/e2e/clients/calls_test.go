package clients_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	etcdres "github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/sourcegraph/conc/pool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/durationpb"
)

// calls makes the calls that a release of talosctl makes for a command line, in the same order, and prints the facts
// that it prints. Releases up to v1.13 send one call that the endpoint fans out to several nodes, later ones a call for
// each node.
type calls struct {
	release string
	fansOut bool
}

func (c calls) run(t *testing.T, asked command) result {
	t.Helper()

	return c.do(t.Context(), asked)
}

// do is run for where there is no test.
func (c calls) do(ctx context.Context, asked command) result {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	stdout := &screen{enough: asked.enough, interrupt: cancel}
	s := &invocation{calls: c, command: asked, stdout: stdout}

	err := s.run(ctx)

	switch {
	case stdout.hadEnough() || err == nil:
		return result{0, stdout.String(), s.stderr.String()}
	default:
		return result{1, stdout.String(), s.stderr.String() + err.Error() + "\n"}
	}
}

// invocation is one command that runs.
type invocation struct {
	calls
	command

	stdout *screen

	mu     sync.Mutex
	stderr strings.Builder
}

func (s *invocation) print(format string, values ...any) { fmt.Fprintf(s.stdout, format, values...) }

func (s *invocation) warn(format string, values ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()

	fmt.Fprintf(&s.stderr, format+"\n", values...)
}

func (s *invocation) run(ctx context.Context) error {
	commands := map[string]func(context.Context) error{
		"version": s.version, "get": s.get, "apply-config": s.applyConfig, "bootstrap": s.bootstrap,
		"kubeconfig": s.kubeconfig,
		"service":    s.service, "etcd members": s.etcdMembers, "etcd status": s.etcdStatus, "etcd alarm": s.etcdAlarms,
		"dmesg": s.dmesg, "events": s.events, "reboot": s.reboot, "health": s.health, "shutdown": s.shutdown,
		"reset": s.reset, "upgrade": s.upgrade,
		"rollback": s.rollback, "image": s.images, "etcd snapshot": s.etcdSnapshot,
	}

	name := s.words[0]
	if name == "etcd" {
		name = strings.Join(s.words[:2], " ")
	}

	command, ok := commands[name]
	if !ok {
		return fmt.Errorf("unknown command %q", name)
	}

	return command(ctx)
}

// line is a connection, and the nodes that calls on it are for.
type line struct {
	*client.Client

	nodes []string
}

// connect opens the connections of a command: with --insecure straight to the nodes, else to the endpoints.
func (s *invocation) connect(ctx context.Context, options ...grpc.DialOption) ([]line, func(), error) {
	var lines []line

	hangUp := func() {
		for _, p := range lines {
			p.Close()
		}
	}

	add := func(nodes []string, with ...client.OptionFunc) error {
		c, err := client.New(ctx,
			append(with, client.WithDefaultGRPCDialOptions(), client.WithGRPCDialOptions(options...))...)
		if err != nil {
			return err
		}

		if nodes == nil {
			nodes = c.GetConfigContext().Nodes
		}

		lines = append(lines, line{c, nodes})

		return nil
	}

	err := s.open(add)
	if err == nil && !s.insecure && len(lines[0].nodes) == 0 {
		err = errors.New("nodes are not set for the command: please use `--nodes` flag or configuration file")
	}

	if err != nil {
		hangUp()

		return nil, nil, err
	}

	return lines, hangUp, nil
}

func (s *invocation) open(add func(nodes []string, with ...client.OptionFunc) error) error {
	if !s.insecure {
		config, err := clientconfig.Open(s.talosconfig)
		if err != nil {
			return err
		}

		with := []client.OptionFunc{client.WithConfig(config)}
		if len(s.endpoints) > 0 {
			with = append(with, client.WithEndpoints(s.endpoints...))
		}

		return add(s.nodes, with...)
	}

	anyone, err := s.maintenanceTLS()
	if err != nil {
		return err
	}

	if s.fansOut { // all nodes are endpoints of one connection
		return add([]string{""}, client.WithTLSConfig(anyone), client.WithEndpoints(s.nodes...))
	}

	for _, node := range s.nodes {
		if err := add([]string{node}, client.WithTLSConfig(anyone), client.WithEndpoints(node)); err != nil {
			return err
		}
	}

	return nil
}

func (s *invocation) maintenanceTLS() (*tls.Config, error) {
	config := &tls.Config{InsecureSkipVerify: true}

	if len(s.fingerprints) == 0 {
		return config, nil
	}

	wanted := make([]x509.Fingerprint, 0, len(s.fingerprints))

	for _, text := range s.fingerprints {
		fingerprint, err := x509.ParseFingerprint(text)
		if err != nil {
			return nil, fmt.Errorf("error parsing certificate fingerprint %q: %w", text, err)
		}

		wanted = append(wanted, fingerprint)
	}

	config.VerifyConnection = x509.MatchSPKIFingerprints(wanted...)

	return config, nil
}

// ask makes a call for all nodes: one that is fanned out, or one for each. node is who answers where the answer itself
// does not say.
func (s *invocation) ask(ctx context.Context,
	call func(ctx context.Context, api *client.Client, node string) error) error {
	lines, hangUp, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp()

	if s.fansOut {
		p := lines[0]
		if !s.insecure {
			ctx = client.WithNodes(ctx, p.nodes...)
		}

		return call(ctx, p.Client, "")
	}

	all := pool.New().WithErrors()

	for _, p := range lines {
		for _, node := range p.nodes {
			all.Go(func() error {
				ctx := ctx
				if !s.insecure {
					ctx = client.WithNode(ctx, node)
				}

				if err := call(ctx, p.Client, node); err != nil {
					return fmt.Errorf("error from node %s: %w", node, err)
				}

				return nil
			})
		}
	}

	return all.Wait()
}

// askOne is ask for commands that refuse several nodes.
func (s *invocation) askOne(ctx context.Context, call func(ctx context.Context, api *client.Client) error) error {
	if len(s.nodes) > 1 {
		return fmt.Errorf("command %q is not supported with multiple nodes", s.words[0])
	}

	return s.ask(ctx, func(ctx context.Context, api *client.Client, _ string) error { return call(ctx, api) })
}

// partly makes an error a warning if some nodes have answered.
func (s *invocation) partly(answered bool, err error) error {
	if err != nil && answered {
		s.warn("WARNING: %s", err)

		return nil
	}

	return err
}

// who names the node that an answer is from.
func who(mark *common.Metadata, node string) string {
	if name := mark.GetHostname(); name != "" {
		return name
	}

	return node
}

func (s *invocation) version(ctx context.Context) error {
	s.print("Client:\nServer:\n")

	return s.ask(ctx, func(ctx context.Context, api *client.Client, node string) error {
		var from peer.Peer

		reply, err := api.Version(ctx, grpc.Peer(&from))
		if err := s.partly(reply != nil, err); err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			if node == "" {
				node = client.AddrFromPeer(&from)
			}

			s.print("\tNODE: %s\n\tTag: %s\n", who(message.GetMetadata(), node), message.GetVersion().GetTag())

			if message.GetFeatures().GetRbac() {
				s.print("\tEnabled: RBAC\n")
			}
		}

		return nil
	})
}

var modes = map[string]machineapi.ApplyConfigurationRequest_Mode{
	"":          machineapi.ApplyConfigurationRequest_AUTO,
	"auto":      machineapi.ApplyConfigurationRequest_AUTO,
	"no-reboot": machineapi.ApplyConfigurationRequest_NO_REBOOT,
	"reboot":    machineapi.ApplyConfigurationRequest_REBOOT,
	"staged":    machineapi.ApplyConfigurationRequest_STAGED,
	"try":       machineapi.ApplyConfigurationRequest_TRY,
}

func (s *invocation) applyConfig(ctx context.Context) error {
	data, err := os.ReadFile(s.file)
	if err != nil {
		return err
	}

	return s.ask(ctx, func(ctx context.Context, api *client.Client, _ string) error {
		reply, err := api.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: data, Mode: modes[s.mode], DryRun: s.dryRun, TryModeTimeout: durationpb.New(time.Minute),
		})
		if err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			for _, warning := range message.GetWarnings() {
				s.warn("WARNING: %s", warning)
			}

			s.warn("%s", message.GetModeDetails())
		}

		return nil
	})
}

func (s *invocation) bootstrap(ctx context.Context) error {
	return s.askOne(ctx, func(ctx context.Context, api *client.Client) error {
		return api.Bootstrap(ctx, &machineapi.BootstrapRequest{})
	})
}

// kubeconfig writes a file that does not exist yet: what becomes of one that does is no node's business.
func (s *invocation) kubeconfig(ctx context.Context) error {
	return s.askOne(ctx, func(ctx context.Context, api *client.Client) error {
		stream, err := api.KubeconfigRaw(ctx)
		if err != nil {
			return err
		}
		defer stream.Close()

		unzipped, err := gzip.NewReader(stream)
		if err != nil {
			return err
		}

		archive := tar.NewReader(unzipped)

		for {
			header, err := archive.Next()
			if err != nil {
				return fmt.Errorf("find kubeconfig in the archive: %w", err)
			}

			if header.Name != "kubeconfig" {
				continue
			}

			data, err := io.ReadAll(archive)
			if err != nil {
				return err
			}

			return os.WriteFile(s.words[1], data, 0o600)
		}
	})
}

func (s *invocation) service(ctx context.Context) error {
	const all, one = 1, 2

	switch len(s.words) {
	case all:
		return s.services(ctx)
	case one:
		return s.serviceInfo(ctx, s.words[1])
	default:
		return s.serviceDo(ctx, s.words[1], s.words[2])
	}
}

func health(service *machineapi.ServiceInfo) string {
	switch {
	case service.GetHealth().GetUnknown():
		return "?"
	case service.GetHealth().GetHealthy():
		return "OK"
	default:
		return "Fail"
	}
}

func (s *invocation) services(ctx context.Context) error {
	return s.ask(ctx, func(ctx context.Context, api *client.Client, node string) error {
		reply, err := api.ServiceList(ctx)
		if err := s.partly(reply != nil, err); err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			for _, service := range message.GetServices() {
				s.print("%s %s %s %s\n", who(message.GetMetadata(), node), service.GetId(), service.GetState(), health(service))
			}
		}

		return nil
	})
}

func (s *invocation) serviceInfo(ctx context.Context, id string) error {
	var found atomic.Bool

	err := s.ask(ctx, func(ctx context.Context, api *client.Client, node string) error {
		services, err := api.ServiceInfo(ctx, id)
		if err := s.partly(services != nil, err); err != nil {
			return err
		}

		for _, answer := range services {
			found.Store(true)

			s.print("NODE %s\nID %s\nSTATE %s\nHEALTH %s\n", who(answer.Metadata, node), id, answer.Service.GetState(),
				health(answer.Service))

			for _, event := range answer.Service.GetEvents().GetEvents() {
				s.print("[%s]: %s\n", event.GetState(), event.GetMsg())
			}
		}

		return nil
	})

	if err == nil && !found.Load() {
		return fmt.Errorf("service %q is not registered on any nodes", id)
	}

	return err
}

func (s *invocation) serviceDo(ctx context.Context, id, action string) error {
	return s.ask(ctx, func(ctx context.Context, api *client.Client, node string) error {
		switch action {
		case "start":
			reply, err := api.ServiceStart(ctx, id)
			for _, message := range reply.GetMessages() {
				s.print("%s %s\n", who(message.GetMetadata(), node), message.GetResp())
			}

			return err
		case "stop":
			reply, err := api.ServiceStop(ctx, id)
			for _, message := range reply.GetMessages() {
				s.print("%s %s\n", who(message.GetMetadata(), node), message.GetResp())
			}

			return err
		default:
			reply, err := api.ServiceRestart(ctx, id)
			for _, message := range reply.GetMessages() {
				s.print("%s %s\n", who(message.GetMetadata(), node), message.GetResp())
			}

			return err
		}
	})
}

func (s *invocation) etcdMembers(ctx context.Context) error {
	return s.ask(ctx, func(ctx context.Context, api *client.Client, node string) error {
		reply, err := api.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{QueryLocal: true})
		if err := s.partly(reply != nil, err); err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			for _, member := range message.GetMembers() {
				s.print("%s %s %s %s %s %v\n", who(message.GetMetadata(), node), etcdres.FormatMemberID(member.GetId()),
					member.GetHostname(),
					strings.Join(member.GetPeerUrls(), ","), strings.Join(member.GetClientUrls(), ","), member.GetIsLearner())
			}
		}

		return nil
	})
}

func (s *invocation) etcdStatus(ctx context.Context) error {
	return s.ask(ctx, func(ctx context.Context, api *client.Client, node string) error {
		reply, err := api.EtcdStatus(ctx)
		if err := s.partly(reply != nil, err); err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			status := message.GetMemberStatus()
			s.print("%s %s %s %s\n", who(message.GetMetadata(), node), etcdres.FormatMemberID(status.GetMemberId()),
				etcdres.FormatMemberID(status.GetLeader()), strings.Join(status.GetErrors(), ", "))
		}

		return nil
	})
}

func (s *invocation) etcdAlarms(ctx context.Context) error {
	return s.ask(ctx, func(ctx context.Context, api *client.Client, node string) error {
		reply, err := api.EtcdAlarmList(ctx)
		if err := s.partly(reply != nil, err); err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			for _, alarm := range message.GetMemberAlarms() {
				s.print("%s %s %s\n", who(message.GetMetadata(), node), etcdres.FormatMemberID(alarm.GetMemberId()),
					alarm.GetAlarm())
			}
		}

		return nil
	})
}

// frame is a message of a stream that may have been fanned out.
type frame interface{ GetMetadata() *common.Metadata }

// read hands on every frame of a stream until it ends; errors in frames are kept for the end.
func read[T any, M interface {
	*T
	frame
}](stream grpc.ServerStreamingClient[T], show func(M) error) error {
	var inFrames error

	for {
		next, err := stream.Recv()
		if errors.Is(err, io.EOF) || client.StatusCode(err) == codes.Canceled {
			return inFrames
		} else if err != nil {
			return err
		}

		if text := M(next).GetMetadata().GetError(); text != "" {
			inFrames = errors.Join(inFrames, errors.New(text))

			continue
		}

		if err := show(next); err != nil {
			return err
		}
	}
}

func (s *invocation) dmesg(ctx context.Context) error {
	return s.ask(ctx, func(ctx context.Context, api *client.Client, node string) error {
		stream, err := api.Dmesg(ctx, false, false)
		if err != nil {
			return err
		}

		return read(stream, func(data *common.Data) error {
			s.print("%s: %s", who(data.GetMetadata(), node), data.GetBytes())

			return nil
		})
	})
}

func (s *invocation) events(ctx context.Context) error {
	return s.ask(ctx, func(ctx context.Context, api *client.Client, node string) error {
		stream, err := api.Events(ctx, client.WithTailEvents(int32(s.tail)))
		if err != nil {
			return err
		}

		return read(stream, func(message *machineapi.Event) error {
			event, err := client.UnmarshalEvent(message)

			var unknown client.EventNotSupportedError

			if errors.As(err, &unknown) {
				return nil
			} else if err != nil {
				return err
			}

			s.print("%s %s %s %s %s\n", who(message.GetMetadata(), node), event.ID, event.TypeURL, event.ActorID, event.Payload)

			return nil
		})
	})
}

func (s *invocation) health(ctx context.Context) error {
	if s.local {
		return s.healthFromHere(ctx)
	}

	return s.askOne(ctx, func(ctx context.Context, api *client.Client) error {
		stream, err := api.ClusterHealthCheck(ctx, s.limit, &clusterapi.ClusterInfo{})
		if err != nil {
			return err
		}

		if err := stream.CloseSend(); err != nil {
			return err
		}

		return read(stream, func(progress *clusterapi.HealthCheckProgress) error {
			s.warn("%s", progress.GetMessage())

			return nil
		})
	})
}
