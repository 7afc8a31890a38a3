package clients_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/sourcegraph/conc/pool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
)

// lookAgain is how long talosctl waits before it looks again at a node that it can't reach.
const lookAgain = time.Second

func (s *invocation) reboot(ctx context.Context) error {
	if s.noWait {
		return s.ask(ctx, func(ctx context.Context, api *client.Client, _ string) error {
			if _, err := api.Version(ctx); err != nil {
				return err
			}

			return api.Reboot(ctx, client.WithRebootMode(machineapi.RebootRequest_DEFAULT))
		})
	}

	// Keepalive more often than a node allows: it cuts such connections, and talosctl goes on.
	lines, hangUp, err := s.connect(ctx,
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{}, MinConnectTimeout: 20 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
	if err != nil {
		return err
	}
	defer hangUp()

	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()

	api := lines[0].Client

	if _, err := api.Version(client.WithNodes(ctx, lines[0].nodes...)); err != nil {
		return err
	}

	nodes := pool.New().WithErrors()

	for _, node := range lines[0].nodes {
		nodes.Go(func() error { return s.rebootAndWatch(client.WithNode(ctx, node), api) })
	}

	return nodes.Wait()
}

// rebootAndWatch reboots a node and follows its events until it is ready, and in another boot than before.
func (s *invocation) rebootAndWatch(ctx context.Context, api *client.Client) error {
	actors := make(chan string, 1)
	watched := make(chan error, 1)

	go func() { watched <- s.untilReady(ctx, api, actors) }()

	before, err := bootID(ctx, api)
	if err != nil {
		return err
	}

	reply, err := api.RebootWithResponse(ctx, client.WithRebootMode(machineapi.RebootRequest_DEFAULT))
	if err != nil {
		return err
	}

	if len(reply.GetMessages()) == 0 {
		return errors.New("no messages returned from action run")
	}

	actors <- reply.GetMessages()[0].GetActorId()

	if err := <-watched; err != nil {
		return err
	}

	return again(ctx, func() (bool, error) {
		now, err := bootID(ctx, api)
		if err == nil && now == before {
			return true, errors.New("didn't reboot yet")
		}

		return unreachable(err), err
	})
}

func bootID(ctx context.Context, api *client.Client) (string, error) {
	file, err := api.Read(ctx, "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	defer file.Close()

	text, err := io.ReadAll(file)

	return strings.TrimSpace(string(text)), err
}

// unreachable errors come from a node that is on its way down or up.
func unreachable(err error) bool {
	code := client.StatusCode(err)

	return errors.Is(err, io.EOF) || (err != nil && (code == codes.Unavailable || code == codes.Canceled))
}

// again calls something until it is done with it, or the context ends.
func again(ctx context.Context, call func() (retry bool, err error)) error {
	for {
		retry, err := call()
		if err == nil || !retry {
			return err
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(lookAgain):
		}
	}
}

// untilReady follows a node's events over its reboot: new ones first, all of the new boot's once the node was away.
func (s *invocation) untilReady(ctx context.Context, api *client.Client, actors <-chan string) error {
	var (
		tail  int32
		actor string
		known bool
	)

	return again(ctx, func() (bool, error) {
		events := make(chan client.EventResult)

		err := api.EventsWatchV2(ctx, events, client.WithTailEvents(tail))

		if err == nil && !known {
			select {
			case actor = <-actors:
				known = true

				s.warn("actor ID: %s", actor)
			case <-ctx.Done():
				return false, ctx.Err()
			}
		}

		var began bool

		if err == nil {
			began, err = s.follow(ctx, events, actor)
		}

		if unreachable(err) {
			tail, actor = -1, ""

			return true, err
		}

		return began, err
	})
}

// follow reads events until the machine is ready. began tells that it ended since the reboot began.
func (s *invocation) follow(ctx context.Context, events <-chan client.EventResult, actor string) (began bool, err error) {
	for {
		var next client.EventResult

		select {
		case next = <-events:
		case <-ctx.Done():
			return false, ctx.Err()
		}

		if next.Error != nil {
			return false, next.Error
		}

		if status, ok := next.Event.Payload.(*machineapi.MachineStatusEvent); ok &&
			status.GetStage() == machineapi.MachineStatusEvent_RUNNING && status.GetStatus().GetReady() {
			s.warn("events check condition met")

			return false, nil
		}

		if next.Event.ActorID != actor {
			continue
		}

		switch event := next.Event.Payload.(type) {
		case *machineapi.TaskEvent:
			if event.GetTask() == "stopAllServices" {
				return true, errors.New("stopAllServices task completed")
			}
		case *machineapi.SequenceEvent:
			if event.GetSequence() == "reboot" {
				return true, errors.New("reboot sequence completed")
			}

			if text := event.GetError().GetMessage(); text != "" {
				return false, fmt.Errorf("sequence error: %s", text)
			}
		}
	}
}
