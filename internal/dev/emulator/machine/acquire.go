package machine

import (
	"context"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
)

// How long a machine waits until it looks again at a machine config on its disk that it can't use, in node time.
const (
	firstReload = time.Second
	lastReload  = time.Minute
)

// acquire takes the machine config from the disk, or waits for one in maintenance mode: also if the one on the
// disk is not complete.
func (m *machineConfig) acquire(ctx context.Context) error {
	// The config on disk comes before the network: a machine that has one never shows the maintenance API, not even for a
	// moment.
	if data := m.boot.Node.ReadDrive().config; len(data) > 0 {
		if err := m.boot.holdWhile(ctx, faults.LostDisk); err != nil {
			return err
		}

		if err := m.load(data); err != nil {
			return m.refuse(ctx, err)
		}
	} else {
		m.ownLease()
	}

	m.boot.networkUp()

	if m.Active() != nil {
		return nil
	}

	return m.maintenance(ctx)
}

// ownLease gives a machine without a config the address that it had before it got one: what a config gave it is gone
// with the config.
func (m *machineConfig) ownLease() {
	address := m.boot.Node.options.Address

	if addresses := m.boot.Addresses(); len(addresses) == 1 && addresses[0] == address {
		return
	}

	if err := m.boot.Node.NIC.SetAddresses(address); err != nil {
		m.boot.Log("failed to assign address %s: %s", address, err)
	}
}

// diskMode is what the validation of a config on the disk is told: the machine that has it is installed.
type diskMode struct{ ValidationMode }

// String implements validation.RuntimeMode.
func (diskMode) String() string { return "diskConfig" }

// load activates the machine config of the disk.
func (m *machineConfig) load(data []byte) error {
	provider, err := m.boot.Release.Rules.Load(data)
	if err != nil {
		return fmt.Errorf("failed to load on-disk config: %w", err)
	}

	if _, err := m.boot.Release.Rules.Validate(provider, diskMode{ValidationMode{installed: true}}); err != nil {
		return fmt.Errorf("failed to validate on-disk config: %w", err)
	}

	m.boot.mu.Lock()
	m.persistent = provider
	m.boot.mu.Unlock()

	m.activate(provider)

	return nil
}

// refuse is what becomes of a machine whose config on the disk can't be used: it tries again for ever, and never
// opens its API.
func (m *machineConfig) refuse(ctx context.Context, reason error) error {
	for wait := firstReload; ; wait = min(2*wait, lastReload) {
		m.boot.Events.Publish(m.boot.Now(), "", &machineapi.ConfigLoadErrorEvent{Error: reason.Error()})
		m.boot.Log(`controller failed {"component": "controller-runtime", `+
			`"controller": "config.AcquireController", "error": %q}`, reason)

		if err := m.boot.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// maintenance waits until somebody applies a machine config.
func (m *machineConfig) maintenance(ctx context.Context) error {
	if err := m.boot.changed.Until(ctx, m.boot.api.isOpen); err != nil {
		return err
	}

	m.boot.Sequences.TaskEvent(ctx, "runningMaintenance", machineapi.TaskEvent_START)
	m.boot.status.setStage(runtimeres.MachineStageMaintenance)
	m.boot.Log("entering maintenance service")
	m.boot.Certificates.inform()

	renewing, stop := context.WithCancel(ctx)
	defer stop()

	m.boot.Tasks.Go(func() { m.boot.Certificates.keepMaintenance(renewing) })

	err := m.boot.changed.Until(ctx, func() bool { return m.Active() != nil })
	if err == nil && !m.boot.Release.apidFirst {
		err = m.boot.changed.Until(ctx, func() bool { return !m.boot.api.inMaintenance() })
	}

	m.boot.Sequences.TaskEvent(ctx, "runningMaintenance", machineapi.TaskEvent_STOP)

	if err == nil && m.boot.Node.Installed() {
		m.boot.status.setStage(runtimeres.MachineStageBooting)
	}

	return err
}

// inform tells a person at the console how to send the machine its config, and again each fingerprint that the API's
// certificate gets.
func (c *certificates) inform() {
	c.boot.mu.Lock()
	stage, told := c.boot.status.stage, c.toldFingerprint
	c.boot.mu.Unlock()

	if stage != runtimeres.MachineStageMaintenance {
		return
	}

	leaf, err := c.trust.Current()
	if err != nil {
		c.boot.Log("failed to make the maintenance certificate: %s", err)

		return
	}

	fingerprint := x509.SPKIFingerprint(leaf.Leaf).String()
	if fingerprint == told {
		return
	}

	c.boot.mu.Lock()
	c.toldFingerprint = fingerprint
	c.boot.mu.Unlock()

	c.boot.Log("this machine is reachable at:")

	for _, address := range c.boot.Addresses() {
		c.boot.Log("\t%s", address)
	}

	c.boot.Log(`server certificate issued {"component": "controller-runtime", `+
		`"controller": "runtime.MaintenanceServiceInformController", "fingerprint": %q}`, fingerprint)

	if told != "" || c.boot.Node.options.Agent {
		return
	}

	c.boot.Log("upload configuration using talosctl:")
	c.boot.Log("\ttalosctl apply-config --insecure --nodes %s --file <config.yaml>", c.boot.Node.Address())
	c.boot.Log("optionally with node fingerprint check:")
	c.boot.Log("\ttalosctl apply-config --insecure --nodes %s --cert-fingerprint '%s' --file <config.yaml>",
		c.boot.Node.Address(), fingerprint)
}
