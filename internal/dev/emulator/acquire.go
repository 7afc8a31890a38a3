package emulator

import (
	"context"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// How long a machine waits until it looks again at a machine config on its disk that it can't use, in node time.
const (
	firstReload = time.Second
	lastReload  = time.Minute
)

// acquireConfig takes the machine config from the disk, or waits for one in maintenance mode: also if the one on the
// disk is not complete.
func (b *boot) acquireConfig(ctx context.Context) error {
	// The config on disk comes before the network: a machine that has one never shows the maintenance API, not even for a
	// moment.
	if data := b.node.readDrive().config; len(data) > 0 {
		if err := b.holdWhile(ctx, LostDisk); err != nil {
			return err
		}

		if err := b.loadConfig(data); err != nil {
			return b.refuseConfig(ctx, err)
		}
	} else {
		b.ownLease()
	}

	b.networkUp()

	if b.activeConfig() != nil {
		return nil
	}

	return b.maintenance(ctx)
}

// ownLease gives a machine without a config the address that it had before it got one: what a config gave it is gone
// with the config.
func (b *boot) ownLease() {
	address := b.node.options.Address

	if addresses := b.addresses(); len(addresses) == 1 && addresses[0] == address {
		return
	}

	if err := b.node.nic.setAddresses(address); err != nil {
		b.print("failed to assign address %s: %s", address, err)
	}
}

// diskMode is what the validation of a config on the disk is told: the machine that has it is installed.
type diskMode struct{ validationMode }

// String implements validation.RuntimeMode.
func (diskMode) String() string { return "diskConfig" }

// loadConfig activates the machine config of the disk.
func (b *boot) loadConfig(data []byte) error {
	provider, err := configloader.NewFromBytes(data)
	if err != nil {
		return fmt.Errorf("failed to load on-disk config: %w", err)
	}

	if _, err := provider.Validate(diskMode{validationMode{installed: true}}); err != nil {
		return fmt.Errorf("failed to validate on-disk config: %w", err)
	}

	b.persist(provider)
	b.activate(provider)

	return nil
}

// refuseConfig is what becomes of a machine whose config on the disk can't be used: it tries again for ever, and never
// opens its API.
func (b *boot) refuseConfig(ctx context.Context, reason error) error {
	for wait := firstReload; ; wait = min(2*wait, lastReload) {
		b.events.publish(b.now(), "", &machineapi.ConfigLoadErrorEvent{Error: reason.Error()})
		b.print(`controller failed {"component": "controller-runtime", "controller": "config.AcquireController", "error": %q}`, reason)

		if err := b.sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// maintenance waits until somebody applies a machine config.
func (b *boot) maintenance(ctx context.Context) error {
	if err := b.changed.until(ctx, b.apiOpen); err != nil {
		return err
	}

	b.taskEvent(ctx, "runningMaintenance", machineapi.TaskEvent_START)
	b.setStage(runtimeres.MachineStageMaintenance)
	b.print("entering maintenance service")
	b.inform()

	renewing, stop := context.WithCancel(ctx)
	defer stop()

	b.tasks.Go(func() { b.keepMaintenanceCertificate(renewing) })

	err := b.changed.until(ctx, func() bool { return b.activeConfig() != nil })
	if err == nil && !b.release.apidFirst {
		err = b.changed.until(ctx, func() bool { return !b.inMaintenance() })
	}

	b.taskEvent(ctx, "runningMaintenance", machineapi.TaskEvent_STOP)

	if err == nil && b.node.Installed() {
		b.setStage(runtimeres.MachineStageBooting)
	}

	return err
}

// inform tells a person at the console how to send the machine its config, and again each fingerprint that the API's
// certificate gets.
func (b *boot) inform() {
	b.mu.Lock()
	stage, told := b.stage, b.toldFingerprint
	b.mu.Unlock()

	if stage != runtimeres.MachineStageMaintenance {
		return
	}

	leaf, err := b.trust.current()
	if err != nil {
		b.print("failed to make the maintenance certificate: %s", err)

		return
	}

	fingerprint := x509.SPKIFingerprint(leaf.Leaf).String()
	if fingerprint == told {
		return
	}

	b.mu.Lock()
	b.toldFingerprint = fingerprint
	b.mu.Unlock()

	b.print("this machine is reachable at:")

	for _, address := range b.addresses() {
		b.print("\t%s", address)
	}

	b.print(`server certificate issued {"component": "controller-runtime", "controller": "runtime.MaintenanceServiceInformController", "fingerprint": %q}`, fingerprint)

	if told != "" || b.node.options.Agent {
		return
	}

	b.print("upload configuration using talosctl:")
	b.print("\ttalosctl apply-config --insecure --nodes %s --file <config.yaml>", b.node.Address())
	b.print("optionally with node fingerprint check:")
	b.print("\ttalosctl apply-config --insecure --nodes %s --cert-fingerprint '%s' --file <config.yaml>", b.node.Address(),
		fingerprint)
}
