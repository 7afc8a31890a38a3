package clients_test

import (
	"context"
	"crypto/tls"
	"errors"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
)

// acted is the actor of an answer; errors and answers without one are passed on.
func acted[M interface{ GetActorId() string }](messages []M, err error) (string, error) {
	switch {
	case err != nil:
		return "", err
	case len(messages) == 0:
		return "", errors.New("no messages returned from action run")
	default:
		return messages[0].GetActorId(), nil
	}
}

func (s *invocation) reboot(ctx context.Context) error {
	if s.noWait {
		return s.ask(ctx, func(ctx context.Context, api *client.Client, _ string) error {
			if _, err := api.Version(ctx); err != nil {
				return err
			}

			return api.Reboot(ctx, client.WithRebootMode(rebootModes[s.mode]))
		})
	}

	return s.rebootAndWait(ctx)
}

var rebootModes = map[string]machineapi.RebootRequest_Mode{
	"": machineapi.RebootRequest_DEFAULT, "default": machineapi.RebootRequest_DEFAULT,
	"powercycle": machineapi.RebootRequest_POWERCYCLE, "force": machineapi.RebootRequest_FORCE,
}

// rebootAndWait reboots nodes until each is ready, and in another boot than before.
func (s *invocation) rebootAndWait(ctx context.Context) error {
	return s.track(ctx, tracked{
		act: func(ctx context.Context, api *client.Client) (string, error) {
			reply, err := api.RebootWithResponse(ctx, client.WithRebootMode(rebootModes[s.mode]))

			return acted(reply.GetMessages(), err)
		},
		done:   machineReady,
		proven: otherBoot,
	})
}

func (s *invocation) shutdown(ctx context.Context) error {
	return s.track(ctx, tracked{
		act: func(ctx context.Context, api *client.Client) (string, error) {
			reply, err := api.ShutdownWithResponse(ctx, client.WithShutdownForce(s.force))

			return acted(reply.GetMessages(), err)
		},
		done: servicesStop,
	})
}

var wipeModes = map[string]machineapi.ResetRequest_WipeMode{
	"": machineapi.ResetRequest_ALL, "all": machineapi.ResetRequest_ALL,
	"system-disk": machineapi.ResetRequest_SYSTEM_DISK, "user-disks": machineapi.ResetRequest_USER_DISKS,
}

// reset wipes nodes. One that reboots afterwards is looked for in maintenance mode, or in another boot.
func (s *invocation) reset(ctx context.Context) error {
	request := &machineapi.ResetRequest{Graceful: !s.ungraceful, Reboot: s.reboots, UserDisksToWipe: s.disks,
		Mode: wipeModes[s.mode]}
	for _, label := range s.labels {
		request.SystemPartitionsToWipe = append(request.SystemPartitionsToWipe,
			&machineapi.ResetPartitionSpec{Label: label, Wipe: true})
	}

	if s.noWait {
		return s.ask(ctx, func(ctx context.Context, api *client.Client, _ string) error {
			if _, err := api.Version(ctx); err != nil {
				return err
			}

			return api.ResetGeneric(ctx, request)
		})
	}

	what := tracked{
		act: func(ctx context.Context, api *client.Client) (string, error) {
			reply, err := api.ResetGenericWithResponse(ctx, request)

			return acted(reply.GetMessages(), err)
		},
		done: servicesStop,
	}

	if s.reboots {
		what.proven = func(ctx context.Context, api *client.Client, before string) error {
			if s.inMaintenance(ctx) == nil {
				return nil
			}

			return otherBoot(ctx, api, before)
		}
	}

	return s.track(ctx, what)
}

// inMaintenance is an error unless the nodes of the command answer to anybody.
func (s *invocation) inMaintenance(ctx context.Context) error {
	api, err := client.New(ctx, client.WithDefaultGRPCDialOptions(),
		client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}), client.WithEndpoints(s.nodes...))
	if err != nil {
		return err
	}
	defer api.Close()

	_, err = api.Disks(ctx)

	return err
}

func (s *invocation) rollback(ctx context.Context) error {
	return s.ask(ctx, func(ctx context.Context, api *client.Client, _ string) error { return api.Rollback(ctx) })
}
