package talos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
)

// changeTimeout bounds a call that changes a node when its context has no earlier deadline.
const changeTimeout = time.Minute

// Modes in which a machine config takes effect, under talosctl's names. In maintenance every one but staged means: take
// it now.
const (
	ModeAuto     = "auto"
	ModeNoReboot = "no-reboot"
	ModeReboot   = "reboot"
	ModeStaged   = "staged"
	ModeTry      = "try"
)

var applyModes = map[string]machine.ApplyConfigurationRequest_Mode{
	ModeAuto:     machine.ApplyConfigurationRequest_AUTO,
	ModeNoReboot: machine.ApplyConfigurationRequest_NO_REBOOT,
	ModeReboot:   machine.ApplyConfigurationRequest_REBOOT, //nolint:staticcheck // nodes up to 1.13 know it
	ModeStaged:   machine.ApplyConfigurationRequest_STAGED,
	ModeTry:      machine.ApplyConfigurationRequest_TRY,
}

// ApplyOptions are the choices of Apply.
type ApplyOptions struct {
	// Mode is always sent, ModeAuto when empty: the protocol's own default would reboot a configured node.
	Mode string
	// DryRun only checks the config and tells the effective mode.
	DryRun bool
}

// Applied is what a node answers to Apply. Its free text is left out, because it may carry both configs in the clear.
type Applied struct {
	// Mode is the effective mode: ModeReboot or ModeNoReboot for auto. Talos 1.12 in maintenance always says ModeReboot.
	Mode string
	// Warnings of the config's validation. Talos 1.13 gives none in a dry run.
	Warnings []string
}

// RejectedError says why a node doesn't take a machine config: one line a problem, without secrets.
type RejectedError struct {
	Problems []string
}

func (e *RejectedError) Error() string {
	return "the node refuses the machine config: " + strings.Join(e.Problems, "; ")
}

// Apply sends a machine config, unless it was made with throwaway secrets. After an error, Classify tells whether the
// node may have taken it all the same.
func (c *Conn) Apply(ctx context.Context, data []byte, options ApplyOptions) (Applied, error) {
	name := options.Mode
	if name == "" {
		name = ModeAuto
	}

	mode, ok := applyModes[name]
	if !ok {
		return Applied{}, c.failure(OpApply, nil, fmt.Errorf("unknown apply mode %q", name))
	}

	if throwaway.Made(data) {
		return Applied{}, c.failure(OpApply, nil, throwaway.ErrMarked)
	}

	op := OpApply
	if options.DryRun {
		op = OpDryRun
	}

	var applied Applied

	err := c.call(ctx, op, changeTimeout, func(ctx context.Context) error {
		reply, err := c.api.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{
			Data:           data,
			Mode:           mode,
			DryRun:         options.DryRun,
			TryModeTimeout: durationpb.New(constants.ConfigTryTimeout),
		})
		if err != nil {
			return rejection(err)
		}

		applied = readApplied(reply)

		return nil
	})

	return applied, err
}

func readApplied(reply *machine.ApplyConfigurationResponse) Applied {
	var applied Applied
	for _, message := range reply.GetMessages() {
		for name, mode := range applyModes {
			if mode == message.GetMode() {
				applied.Mode = name
			}
		}

		for _, warning := range message.GetWarnings() {
			applied.Warnings = append(applied.Warnings, oneLine(scrub(warning)))
		}
	}

	return applied
}

// parseFailure is how Talos 1.12 in maintenance begins its complaints about YAML; their code is Unknown.
const parseFailure = "failed to parse config: "

// rejection adds a RejectedError to a node's complaint about the config itself.
func rejection(err error) error {
	status := client.Status(err)
	if status == nil {
		return err
	}

	text := status.Message()
	if status.Code() != codes.InvalidArgument && !strings.HasPrefix(text, parseFailure) {
		return err
	}

	for _, prefix := range []string{parseFailure, "configuration validation failed: ",
		"runtime configuration validation failed: "} {
		text = strings.TrimPrefix(text, prefix)
	}

	return fmt.Errorf("%w: %w", &RejectedError{Problems: problems(text)}, err)
}

// Bootstrap starts a new etcd cluster on a control plane. The node guards only against data of its own: exactly one
// node of a cluster may ever be sent this, and after a lost reply none before etcd was looked at. AlreadyExists
// (Classify: Done) means that the node has etcd data, not that etcd is healthy.
func (c *Conn) Bootstrap(ctx context.Context) error {
	return c.call(ctx, OpBootstrap, changeTimeout, func(ctx context.Context) error {
		return c.api.Bootstrap(ctx, &machine.BootstrapRequest{})
	})
}

// Reboot asks the node to reboot. The reply comes before the node does anything.
func (c *Conn) Reboot(ctx context.Context) error {
	return c.call(ctx, OpReboot, changeTimeout, func(ctx context.Context) error {
		return c.api.Reboot(ctx)
	})
}
