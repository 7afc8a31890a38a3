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

// tracked is something that a node does after it has answered, and how talosctl follows it: by the node's events, over
// a reboot if need be.
type tracked struct {
	// act asks for it, and returns the actor whose events tell of it.
	act func(ctx context.Context, api *client.Client) (actor string, err error)
	// done tells by which event it is over.
	done func(event client.EventResult) bool
	// proven looks at the node afterwards; nil for no look.
	proven func(ctx context.Context, api *client.Client, bootBefore string) error
}

// track does something to every node of the command and follows it.
func (s *invocation) track(ctx context.Context, what tracked) error {
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

	// Only a warning would come of the versions.
	_, _ = api.Version(client.WithNodes(ctx, lines[0].nodes...)) //nolint:errcheck // as talosctl does

	nodes := pool.New().WithErrors()

	for _, node := range lines[0].nodes {
		nodes.Go(func() error { return s.trackNode(client.WithNode(ctx, node), api, what) })
	}

	return nodes.Wait()
}

func (s *invocation) trackNode(ctx context.Context, api *client.Client, what tracked) error {
	actors := make(chan string, 1)
	watched := make(chan error, 1)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	go func() { watched <- s.watchEvents(ctx, api, actors, what.done) }()

	var before string

	if what.proven != nil {
		var err error

		if before, err = bootID(ctx, api); err != nil {
			return err
		}
	}

	actor, err := what.act(ctx, api)
	if err != nil {
		return err
	}

	actors <- actor

	if err := <-watched; err != nil || what.proven == nil {
		return err
	}

	return again(ctx, func() (bool, error) {
		err := what.proven(ctx, api, before)

		return unreachable(err) || errors.Is(err, errSameBoot), err
	})
}

var errSameBoot = errors.New("didn't reboot yet")

// otherBoot is an error while a node still is in the same boot.
func otherBoot(ctx context.Context, api *client.Client, before string) error {
	now, err := bootID(ctx, api)
	if err == nil && now == before {
		return errSameBoot
	}

	return err
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

// machineReady is the event of a machine that runs and is ready.
func machineReady(event client.EventResult) bool {
	status, ok := event.Event.Payload.(*machineapi.MachineStatusEvent)

	return ok && status.GetStage() == machineapi.MachineStatusEvent_RUNNING && status.GetStatus().GetReady()
}

// servicesStop is the event of a machine whose services all stop.
func servicesStop(event client.EventResult) bool {
	task, ok := event.Event.Payload.(*machineapi.TaskEvent)

	return ok && task.GetTask() == "stopAllServices"
}

// watchEvents follows a node's events until one says that it is over: new ones first, all of the new boot's once the
// node was away.
func (s *invocation) watchEvents(ctx context.Context, api *client.Client, actors <-chan string,
	done func(client.EventResult) bool) error {
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
			began, err = s.follow(ctx, events, actor, done)
		}

		if unreachable(err) {
			tail, actor = -1, ""

			return true, err
		}

		return began, err
	})
}

// follow reads events until one says that it is over. began tells that they ended since the node is on its way down.
func (s *invocation) follow(ctx context.Context, events <-chan client.EventResult, actor string,
	done func(client.EventResult) bool) (began bool, err error) {
	for {
		var next client.EventResult

		select {
		case next = <-events:
		case <-ctx.Done():
			return false, ctx.Err()
		}

		if done(next) {
			s.warn("events check condition met")

			return false, nil
		}

		if next.Error != nil {
			return false, next.Error
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
