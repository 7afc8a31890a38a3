package talos

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// InstallerError tells of an installer that ran on the node and failed; to gRPC that is no error.
type InstallerError struct {
	Code int32
	// Last is what it printed last.
	Last string
}

func (e *InstallerError) Error() string {
	if e.Last == "" {
		return fmt.Sprintf("the installer ended with code %d", e.Code)
	}

	return fmt.Sprintf("the installer ended with code %d: %s", e.Code, e.Last)
}

// errNoExitCode is of an installer whose end nobody saw.
var errNoExitCode = errors.New("the node stopped telling before the installer ended")

// systemImages is where a node keeps the images of Talos itself; they outlive a reboot.
func systemImages() *common.ContainerdInstance {
	return &common.ContainerdInstance{Driver: common.ContainerDriver_CRI,
		Namespace: common.ContainerdNamespace_NS_SYSTEM}
}

// PullImage has a node (Talos 1.13 or later) fetch an image, unless it has it, and tells how many of how many bytes it
// has so far. The node itself tries once.
func (c *Conn) PullImage(ctx context.Context, image string, tell func(done, total int64)) error {
	return c.work(ctx, OpPull, func(ctx context.Context, moved func()) error {
		stream, err := c.api.ImageClient.Pull(ctx, &machine.ImageServicePullRequest{Containerd: systemImages(),
			ImageRef: image})
		if err != nil {
			return err
		}

		layers := map[string]*machine.ImageServicePullLayerProgress{}

		return receive(stream.Recv, func(reply *machine.ImageServicePullResponse) {
			if progress := reply.GetPullProgress(); progress != nil {
				before, now := layers[progress.GetLayerId()], progress.GetProgress()
				layers[progress.GetLayerId()] = now

				// The node goes on telling of a download that stands still.
				if !proto.Equal(before, now) {
					moved()
				}

				tell(sum(layers))
			}
		})
	})
}

func sum(layers map[string]*machine.ImageServicePullLayerProgress) (done, total int64) {
	for _, layer := range layers {
		done += layer.GetOffset()
		total += layer.GetTotal()
	}

	return done, total
}

// InstallUpgrade has a node (Talos 1.13 or later) write the system of an installer image, which it has pulled, beside
// the one that it runs, and tells what the installer prints. The next reboot starts the new system. An installer that
// fails is an *InstallerError; it goes on by itself when the connection breaks.
func (c *Conn) InstallUpgrade(ctx context.Context, image string, tell func(line string)) error {
	return c.work(ctx, OpUpgrade, func(ctx context.Context, _ func()) error {
		stream, err := c.api.LifecycleClient.Upgrade(ctx, &machine.LifecycleServiceUpgradeRequest{
			Containerd: systemImages(), Source: &machine.InstallArtifactsSource{ImageName: image},
		})
		if err != nil {
			return err
		}

		ended, last := errNoExitCode, ""

		err = receive(stream.Recv, func(reply *machine.LifecycleServiceUpgradeResponse) {
			switch progress := reply.GetProgress().GetResponse().(type) {
			case *machine.LifecycleServiceInstallProgress_Message:
				for line := range strings.Lines(progress.Message) {
					if line = oneLine(scrub(line)); line != "" {
						last = line
						tell(line)
					}
				}
			case *machine.LifecycleServiceInstallProgress_ExitCode:
				ended = nil
				if progress.ExitCode != 0 {
					ended = &InstallerError{progress.ExitCode, last}
				}
			}
		})
		// What the node said of the end counts, whatever became of the connection after it.
		if err != nil && errors.Is(ended, errNoExitCode) {
			return err
		}

		return ended
	})
}

// UpgradeAtOnce is how a node before Talos 1.13 is upgraded: it pulls the image, replies, and then installs it and
// reboots by itself. Data is preserved, which also leaves out the node's own look at etcd.
func (c *Conn) UpgradeAtOnce(ctx context.Context, image string) error {
	return c.work(ctx, OpUpgrade, func(ctx context.Context, _ func()) error {
		_, err := c.api.UpgradeWithOptions(ctx, //nolint:staticcheck // what these releases know
			client.WithUpgradeImage(image), client.WithUpgradePreserve(true))

		return err
	})
}

// IsInstallerBusy reports whether a node refused to install since it installs something already, as after a reply that
// was lost.
func IsInstallerBusy(err error) bool {
	return client.StatusCode(err) == codes.FailedPrecondition &&
		strings.Contains(client.Status(err).Message(), installerBusy)
}

const installerBusy = "another installation/upgrade is already in progress"

// pullFailed is in what a node says of an image that it could not pull.
const pullFailed = "failed to pull image"

// IsImageMissing reports whether no registry that the node asks has the image.
func IsImageMissing(err error) bool {
	return err != nil && (client.StatusCode(err) == codes.NotFound || strings.HasSuffix(err.Error(), ": not found"))
}
