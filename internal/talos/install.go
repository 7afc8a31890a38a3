package talos

import (
	"context"
	"errors"
	"fmt"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/protobuf/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// Install is how far an unattended install is: since Talos 1.14 a node with an UnattendedInstallConfig installs itself
// beside its boot, tries again for as long as it fails, and has no stage of its own for it.
type Install struct {
	// Phase is "pending", "installing", "installed", "waiting-for-reboot" or "failed".
	Phase string
	// Failure is why it does not get any further; empty while nothing is wrong.
	Failure string
	// RebootDue is set once the node has been asked to reboot into what was installed. It reboots by itself.
	RebootDue bool
}

// Written reports whether Talos is on the disk.
func (i Install) Written() bool {
	return i.Phase == runtime.UnattendedInstallPhaseInstalled.String() ||
		i.Phase == runtime.UnattendedInstallPhaseWaitingForReboot.String()
}

// Over reports whether nothing is left to do, a reboot included: Bootstrap waits for that.
func (i Install) Over() bool {
	return i.Phase == runtime.UnattendedInstallPhaseInstalled.String() && !i.RebootDue
}

// Install reads how far the unattended install is. A node that has just got its config may not say anything yet: its
// install is pending.
func (c *Conn) Install(ctx context.Context) (Install, error) {
	var install Install

	status, err := get[*runtime.UnattendedInstallStatus](ctx, c, runtime.NewUnattendedInstallStatus().Metadata())
	switch {
	case errors.Is(err, ErrNotFound):
		install.Phase = runtime.UnattendedInstallPhasePending.String()
	case err != nil:
		return Install{}, err
	default:
		install = readInstall(status)
	}

	_, err = get[*runtime.RebootRequest](ctx, c, runtime.NewRebootRequest().Metadata())
	switch {
	case errors.Is(err, ErrNotFound):
		return install, nil
	case err != nil:
		return Install{}, err
	default:
		install.RebootDue = true
		return install, nil
	}
}

func readInstall(status *runtime.UnattendedInstallStatus) Install {
	spec := status.TypedSpec()
	return Install{Phase: spec.Phase.String(), Failure: oneLine(scrub(spec.Error))}
}

// UnattendedFailure follows an unattended install, and is the first reason why it does not get any further; empty if it
// succeeds. It lets go of the node before it reboots. A failure shows for less than a second before the next try, so
// that reading now and then would miss it. The error is that of a node that can't be followed.
func (c *Conn) UnattendedFailure(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	watcher := state.WrapCore(client.NewAdapter(cosiv1alpha1.NewStateClient(c.api.Conn()), client.WithDisableWatchRetry()))
	events := make(chan safe.WrappedStateEvent[*runtime.UnattendedInstallStatus])

	if err := safe.StateWatch(ctx, watcher, runtime.NewUnattendedInstallStatus().Metadata(), events); err != nil {
		return "", c.failure(OpWatch, nil, fmt.Errorf("watch the install: %w", err))
	}

	for {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case event := <-events:
			status, err := seenIn(event)
			if err != nil {
				return "", c.failure(OpWatch, nil, fmt.Errorf("watch the install: %w", err))
			}

			if status == nil {
				continue
			}

			if install := readInstall(status); install.Failure != "" || install.Written() {
				return install.Failure, nil
			}
		}
	}
}

// BootID tells the machine's boots apart; empty before Talos 1.14, which does not say it.
func (c *Conn) BootID(ctx context.Context) (string, error) {
	boot, err := get[*runtime.BootID](ctx, c, runtime.NewBootID().Metadata())
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrNotAllowed):
		return "", nil
	case err != nil:
		return "", err
	default:
		return boot.TypedSpec().BootID, nil
	}
}
