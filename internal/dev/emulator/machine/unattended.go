package machine

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configtypes "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block/blockhelpers"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/sequence"
)

// unattendedRetry is how long a node waits before it tries an unattended install again that failed, in node time.
const unattendedRetry = time.Second

// unattendedInstall installs Talos beside the boot sequence, as a document of the machine config asks for it.
type unattendedInstall struct {
	boot *Boot

	// What follows is guarded by boot.mu.
	status *runtimeres.UnattendedInstallStatusSpec // nil while no document asks for an install
	// rebootDue is set once the machine is about to reboot into what was installed.
	rebootDue bool
}

// document is what asks for an unattended install; nil if nothing does, and where there is none.
func (u *unattendedInstall) document() configtypes.UnattendedInstallConfig {
	u.boot.mu.Lock()
	current := u.boot.Config.current
	u.boot.mu.Unlock()

	if current == nil || !u.boot.Release.UnattendedInstall {
		return nil
	}

	return current.UnattendedInstallConfig()
}

// follow does what the document of the moment asks for, until the boot ends.
func (u *unattendedInstall) follow() {
	for {
		changed, nodeChanged := u.boot.changed.Wait(), u.boot.Node.changed.Wait()

		if err := u.reconcile(u.boot.Stopped); err != nil {
			u.boot.Log(`controller failed {"component": "controller-runtime", `+
				`"controller": "runtime.UnattendedInstallController", "error": "failed to run installer: %s"}`, err)

			if u.boot.Sleep(u.boot.Stopped, unattendedRetry) != nil {
				return
			}

			continue
		}

		select {
		case <-u.boot.Stopped.Done():
			return
		case <-changed:
		case <-nodeChanged:
		}
	}
}

// reconcile does what the document asks for. An installer that fails is tried again.
func (u *unattendedInstall) reconcile(ctx context.Context) error {
	document := u.document()

	switch {
	case document == nil:
		u.hide()
	case u.phase() == runtimeres.UnattendedInstallPhaseInstalled,
		u.phase() == runtimeres.UnattendedInstallPhaseWaitingForReboot: // whatever the document asks for now
		u.show(document, u.phase(), nil)
	case u.boot.Node.Installed():
		u.show(document, runtimeres.UnattendedInstallPhaseInstalled, nil)
	default:
		return u.install(ctx, document)
	}

	return nil
}

// install installs Talos if there are a disk and an image for it; else a change of either is waited for.
func (u *unattendedInstall) install(ctx context.Context, document configtypes.UnattendedInstallConfig) error {
	disk, err := u.disk(ctx, document)
	if err != nil {
		u.show(document, runtimeres.UnattendedInstallPhasePending, err)

		return nil
	}

	image, err := u.image(ctx, document)
	if err != nil {
		u.show(document, runtimeres.UnattendedInstallPhaseFailed, fmt.Errorf("failed to determine installer image: %w", err))

		return nil
	}

	u.show(document, runtimeres.UnattendedInstallPhaseInstalling, nil)

	if err := u.boot.Installer.run(ctx, "/dev/"+disk, image); err != nil {
		u.show(document, runtimeres.UnattendedInstallPhaseFailed, err)

		return err
	}

	return u.finish(document, disk, image)
}

// finish makes the disk that was installed to the machine's own, and has the machine reboot if the document does not
// spare it that.
func (u *unattendedInstall) finish(document configtypes.UnattendedInstallConfig, disk, image string) error {
	reboot := rebootsAfter(document)

	// The name and the id of a node that is about to reboot are the next boot's to make.
	identity := u.boot.Installer.newIdentity()
	if reboot && !u.boot.Node.Lab.options.Unsettled.StateBeforeReboot {
		identity = ""
	}

	if err := u.boot.Installer.write(disk, image, identity); err != nil {
		return err
	}

	u.boot.Log("install successful")
	u.boot.Config.showNames()

	if !reboot {
		u.show(document, runtimeres.UnattendedInstallPhaseInstalled, nil)

		return nil
	}

	u.boot.mu.Lock()
	u.rebootDue = true
	u.boot.mu.Unlock()

	u.boot.Resources.put(runtimeres.NewRebootRequest())
	u.show(document, runtimeres.UnattendedInstallPhaseWaitingForReboot, nil)

	if err := u.boot.Sleep(u.boot.Stopped, u.boot.Node.options.Timing.Flush); err != nil {
		return nil //nolint:nilerr // the boot ends in another way
	}

	u.boot.Sequences.Follow(u.boot.Context, "reboot", sequence.Reboot, false,
		u.boot.Phases.Reboot(machineapi.RebootRequest_DEFAULT))

	return nil
}

// rebootsAfter reports whether a machine reboots after the install: as the document says, else if it names an image.
func rebootsAfter(document configtypes.UnattendedInstallConfig) bool {
	if asked := document.RebootAfterInstall(); asked != nil {
		return *asked
	}

	return document.InstallerImage() != ""
}

// disk is the first one that the document selects.
func (u *unattendedInstall) disk(ctx context.Context, document configtypes.UnattendedInstallConfig) (string, error) {
	selector := document.VolumeSelector()

	matched, err := blockhelpers.MatchDisks(ctx, u.boot.Resources.Own, &selector)
	if err != nil {
		return "", fmt.Errorf("failed to match install disk: %w", err)
	}

	if len(matched) == 0 ||
		u.boot.Node.takeInstallFault(faults.InstallDiskMissing) == faults.InstallDiskMissing {
		return "", errors.New("no disk matched the selector")
	}

	return matched[0].Metadata().ID(), nil
}

// image is the installer that the document names, or else the one of the image that the machine was booted from.
func (u *unattendedInstall) image(ctx context.Context, document configtypes.UnattendedInstallConfig) (string, error) {
	if image := document.InstallerImage(); image != "" {
		return image, nil
	}

	schematic, err := safe.StateGetByID[*runtimeres.ImageFactorySchematic](ctx, u.boot.Resources.Own,
		runtimeres.ImageFactorySchematicID)
	if err != nil {
		return "", fmt.Errorf("failed to get image factory schematic: %w", err)
	}

	factory, err := url.Parse(schematic.TypedSpec().APIURL)
	if err != nil {
		return "", fmt.Errorf("failed to parse image factory API URL: %w", err)
	}

	return factory.Host + "/metal-installer/" + schematic.TypedSpec().SchematicID + ":" + u.boot.Version, nil
}

// show shows how far the install is.
func (u *unattendedInstall) show(document configtypes.UnattendedInstallConfig, phase runtimeres.UnattendedInstallPhase,
	problem error) {
	now := runtimeres.UnattendedInstallStatusSpec{Image: document.InstallerImage(), Phase: phase}
	if problem != nil {
		now.Error = problem.Error()
	}

	u.boot.mu.Lock()
	same := u.status != nil && *u.status == now
	u.status = &now
	u.boot.mu.Unlock()

	if same {
		return
	}

	shown := runtimeres.NewUnattendedInstallStatus()
	*shown.TypedSpec() = now
	u.boot.Resources.put(shown)
	u.boot.status.notify()
}

// hide takes away what was shown for a document that is gone.
func (u *unattendedInstall) hide() {
	u.boot.mu.Lock()
	shown := u.status != nil
	u.status = nil
	u.boot.mu.Unlock()

	if shown {
		u.boot.Resources.remove(runtimeres.NewUnattendedInstallStatus())
		u.boot.status.notify()
	}
}

// phase is how far the install is; pending where nothing asks for one.
func (u *unattendedInstall) phase() runtimeres.UnattendedInstallPhase {
	u.boot.mu.Lock()
	defer u.boot.mu.Unlock()

	if u.status == nil {
		return runtimeres.UnattendedInstallPhasePending
	}

	return u.status.Phase
}

// Unfinished reports whether a document asks for an install that is not over, the reboot after it included.
func (u *unattendedInstall) Unfinished() bool {
	u.boot.mu.Lock()
	defer u.boot.mu.Unlock()

	return u.rebootDue || u.status != nil && u.status.Phase != runtimeres.UnattendedInstallPhaseInstalled
}
