package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Service is one of a node's system services.
type Service struct {
	ID string
	// State is "Initialized", "Preparing", "Waiting", "Running", "Stopping", "Finished", "Failed", "Skipped" or
	// "Starting".
	State string
	// Healthy means something only when State is Running and HealthUnknown isn't set.
	Healthy bool
	// HealthUnknown is set until the first check, and for ever for services without one.
	HealthUnknown bool
	// LastMessage is what the last health check said.
	LastMessage string
	// Events is the history since the service was last created, oldest first, at most 64.
	Events []ServiceEvent
}

// Running reports whether the service runs and, as far as it is checked, is healthy.
func (s Service) Running() bool { return s.State == "Running" && (s.HealthUnknown || s.Healthy) }

// LastEvent is what last happened to it, in Talos' words.
func (s Service) LastEvent() string {
	if len(s.Events) == 0 {
		return ""
	}

	return s.Events[len(s.Events)-1].Message
}

// ServiceEvent is one change of a service's state.
type ServiceEvent struct {
	State, Message string
	Time           time.Time
}

// Services reads the node's services, sorted by id. Not allowed on Talos 1.12 in maintenance.
func (c *Conn) Services(ctx context.Context) ([]Service, error) {
	var services []Service

	err := c.read(ctx, OpRead, func(ctx context.Context) error {
		reply, err := c.api.ServiceList(ctx)
		if err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			for _, info := range message.GetServices() {
				services = append(services, readService(info))
			}
		}

		return nil
	})

	return services, err
}

func readService(info *machine.ServiceInfo) Service {
	service := Service{
		ID:            info.GetId(),
		State:         info.GetState(),
		Healthy:       info.GetHealth().GetHealthy(),
		HealthUnknown: info.GetHealth() == nil || info.GetHealth().GetUnknown(),
		LastMessage:   oneLine(scrub(info.GetHealth().GetLastMessage())),
	}

	for _, event := range info.GetEvents().GetEvents() {
		service.Events = append(service.Events, ServiceEvent{
			State: event.GetState(), Message: oneLine(scrub(event.GetMsg())), Time: event.GetTs().AsTime(),
		})
	}

	return service
}

// ListDir lists the names in a directory of the node. A missing directory is ErrNotFound.
func (c *Conn) ListDir(ctx context.Context, path string) ([]string, error) {
	var names []string

	err := c.read(ctx, OpList, func(ctx context.Context) error {
		stream, err := c.api.LS(ctx, &machine.ListRequest{Root: path})
		if err != nil {
			return err
		}

		for {
			entry, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}

			if err != nil {
				return missing(err)
			}

			// The directory itself comes first, as ".".
			if name := entry.GetRelativeName(); name != "" && name != "." {
				names = append(names, name)
				continue
			}

			if entry.GetError() != "" {
				return fmt.Errorf("list %s: %s", path, scrub(entry.GetError()))
			}
		}
	})
	if err != nil {
		return nil, err
	}

	return names, nil
}

// missing gives a missing file the code NotFound: Talos passes the system's error on as text, with code Unknown.
func missing(err error) error {
	if message := status.Convert(err).Message(); strings.HasSuffix(message, "no such file or directory") {
		return fmt.Errorf("%w: %w", status.Error(codes.NotFound, message), err)
	}

	return err
}
