package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/configrules"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/sequence"
)

// Modes of an ApplyConfiguration, shorter.
const (
	ModeAuto     = machineapi.ApplyConfigurationRequest_AUTO
	ModeReboot   = machineapi.ApplyConfigurationRequest_REBOOT
	ModeNoReboot = machineapi.ApplyConfigurationRequest_NO_REBOOT
	ModeStaged   = machineapi.ApplyConfigurationRequest_STAGED
	ModeTry      = machineapi.ApplyConfigurationRequest_TRY
)

// ValidationMode is what a machine tells machinery's validation about itself.
type ValidationMode struct{ installed bool }

// String implements validation.RuntimeMode.
func (ValidationMode) String() string { return "metal" }

// RequiresInstall implements validation.RuntimeMode.
func (m ValidationMode) RequiresInstall() bool { return !m.installed }

// InContainer implements validation.RuntimeMode.
func (ValidationMode) InContainer() bool { return false }

// EnterApply takes the turn of the one ApplyConfiguration that the node handles at a time; leave gives it back.
func (m *machineConfig) EnterApply() (leave func(), err error) {
	if !m.applying.TryLock() {
		return nil, status.Error(codes.FailedPrecondition, "another apply configuration is already in progress")
	}

	m.boot.mu.Lock()
	rebooting := m.rebooting
	m.boot.mu.Unlock()

	if rebooting {
		m.applying.Unlock()

		return nil, status.Error(codes.FailedPrecondition,
			"configuration was already applied and node is rebooting, cannot apply more configuration changes until next reboot")
	}

	return m.applying.Unlock, nil
}

// metaWait is how long an ApplyConfiguration waits for the META volume, in node time.
const metaWait = 15 * time.Minute

// Load reads a machine config that a node with an active one, or without any, can be sent.
func (m *machineConfig) Load(data []byte, active talosconfig.Provider) (talosconfig.Provider, error) {
	provider, err := m.boot.Release.Rules.Load(data)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}

	if active != nil && provider.RawV1Alpha1() == nil {
		return nil, status.Error(codes.InvalidArgument,
			"the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config "+
				"instead?")
	}

	return provider, nil
}

// Validate judges a machine config by itself and on this machine, and warns. Whether the machine is installed is known
// once its META volume is; no caller's deadline cuts that wait short.
func (m *machineConfig) Validate(provider talosconfig.Provider) (warnings []string, err error) {
	m.awaitMeta()

	warnings, err = m.boot.Release.Rules.ValidateAtRuntime(m.boot.Context,
		m.Judged(ValidationMode{installed: m.boot.Node.Installed()}), provider)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}

	return warnings, nil
}

// Judged is the machine that a config is validated for.
func (m *machineConfig) Judged(mode ValidationMode) configrules.Machine {
	return configrules.Machine{
		Version: m.boot.Version, Mode: mode, Resources: m.boot.Resources.Own, UKI: m.boot.Node.options.UKI,
	}
}

// awaitMeta waits until the state of the META volume is known, or for long enough.
func (m *machineConfig) awaitMeta() {
	ctx, cancel := m.boot.Node.Lab.clock.WithTimeout(m.boot.Context, metaWait)
	defer cancel()

	m.boot.Node.changed.Until(ctx, func() bool { return !m.boot.Node.Faults().MetaNotReady }) //nolint:errcheck // then it goes on without
}

// TakeEffect saves and activates what the mode asks for.
func (m *machineConfig) TakeEffect(provider, active talosconfig.Provider,
	mode machineapi.ApplyConfigurationRequest_Mode, details string, try time.Duration) (string, error) {
	switch mode {
	case ModeTry:
		if try <= 0 {
			try = constants.ConfigTryTimeout
		}

		m.rollbackAfter(try)
		m.activate(provider)

		details += fmt.Sprintf("\nThe config is applied in 'try' mode and will be automatically reverted back in %s", try)
	case ModeStaged:
		m.persist(provider)
	case ModeReboot:
		m.persist(provider)

		m.boot.mu.Lock()
		m.rebooting = true
		m.boot.mu.Unlock()

		m.boot.Sequences.Follow(m.boot.Context, "apply configuration", sequence.Reboot, true,
			m.boot.Phases.Reboot(machineapi.RebootRequest_DEFAULT))
	case ModeNoReboot:
		if active == nil {
			m.leaveMaintenance(provider)

			break
		}

		m.persist(provider)
		m.activate(provider)
	default:
		return "", errors.New("apply in mode " + mode.String())
	}

	return details, nil
}

// leaveMaintenance gives the machine its first config, if a fault asks for it only after a while or once the fault is
// taken back.
func (m *machineConfig) leaveMaintenance(provider talosconfig.Provider) {
	linger := m.boot.Node.Faults().Lingers
	if linger == 0 {
		m.persist(provider)
		m.activate(provider)

		return
	}

	m.boot.Tasks.Go(func() {
		lingering, cancel := m.boot.Node.Lab.clock.WithTimeout(m.boot.Context, linger)
		defer cancel()

		m.boot.Node.changed.Until(lingering, func() bool { return m.boot.Node.Faults().Lingers == 0 }) //nolint:errcheck // either way it is over

		if m.boot.Context.Err() == nil {
			m.persist(provider)
			m.activate(provider)
		}
	})
}

// rollbackAfter puts the config of now back when the time of a try is over.
func (m *machineConfig) rollbackAfter(after time.Duration) {
	m.CancelRollback()

	ctx, cancel := context.WithCancel(m.boot.Context)

	m.boot.mu.Lock()
	m.rollback = cancel
	former := m.current
	m.boot.mu.Unlock()

	m.boot.Tasks.Go(func() {
		defer cancel()

		if m.boot.Sleep(ctx, after) == nil {
			m.boot.Log("rolling back the configuration")
			m.putBack(former)
		}
	})
}

// putBack makes a former config the active one. If it was none, or not complete, a machine that has left maintenance
// mode then has none: its port closes until the next boot, and an install that runs goes on.
func (m *machineConfig) putBack(former talosconfig.Provider) {
	switch complete := former != nil && former.CompleteForBoot(); {
	case !complete && m.Active() != nil:
		m.withdraw()
	case former == nil:
		m.forget()
	default:
		m.activate(former)
	}
}

// CancelRollback ends a try: its config stays.
func (m *machineConfig) CancelRollback() {
	m.boot.mu.Lock()
	defer m.boot.mu.Unlock()

	if m.rollback != nil {
		m.rollback()
		m.rollback = nil
	}
}

// Receive takes a machine config over. After a complete one nobody does any more.
func (m *machineConfig) Receive(provider talosconfig.Provider) bool {
	m.boot.mu.Lock()
	received := m.received
	m.received = received || provider.CompleteForBoot()
	m.boot.mu.Unlock()

	switch {
	case received:
		return false
	case provider.CompleteForBoot():
		m.leaveMaintenance(provider)

		return true
	default:
		return true // and it stays without effect
	}
}
