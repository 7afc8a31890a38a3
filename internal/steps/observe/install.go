package observe

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/talos"
)

// readInstall reads how far the install is that the node's config asks for. One that was over is over until the machine
// boots again.
func (o *Observer) readInstall(ctx context.Context, seen *Observation, conn *talos.Conn) error {
	if seen.Config == nil || !seen.Config.IsUnattended() {
		return nil
	}

	if facts := o.Facts(seen.Node); facts.installed != nil && facts.installedIn == seen.Boot {
		seen.Install = facts.installed
		return nil
	}

	install, err := conn.Install(ctx)
	if err == nil {
		seen.Install = &install
	}

	return err //nolint:wrapcheck // it says what was read where
}

// TellsFailure reports whether the next thing that a node tells of its install may be why it failed. What an
// observation has seen need not be listened for.
func (s Observation) TellsFailure() bool {
	return s.State == talos.Ours && s.Installing() && (s.Install == nil || !s.Install.Written() && s.Install.Failure == "")
}

// ListenForFailure follows the install that a node was seen in, and notes why it fails, if it does.
func (o *Observer) ListenForFailure(ctx context.Context, seen Observation) {
	conn, err := o.Dialer().Secure(ctx, seen.Address)
	if err != nil {
		return
	}
	defer conn.Close()

	failure := conn.InstallFailure
	if seen.Install != nil {
		failure = conn.UnattendedFailure
	}

	if reason, err := failure(ctx); err == nil && reason != "" {
		o.Note(seen.Node, func(facts *Facts) { facts.NoteFailure(reason, o.Clock.Now()) })
	}
}

// ListenToInstall listens for a moment to a node that installs unattended: a failure shows for less than a second
// before the next try.
func (o *Observer) ListenToInstall(ctx context.Context, seen Observation) Observation {
	if seen.Install == nil || !seen.TellsFailure() {
		return seen
	}

	listening, stop := o.Clock.WithTimeout(ctx, o.Settings.ReachabilityDelay)
	defer stop()

	o.ListenForFailure(listening, seen)
	seen.InstallFailure = o.Facts(seen.Node).InstallFailure

	return seen
}
