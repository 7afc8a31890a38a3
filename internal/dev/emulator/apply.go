package emulator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Modes of an ApplyConfiguration, shorter.
const (
	modeAuto     = machineapi.ApplyConfigurationRequest_AUTO
	modeReboot   = machineapi.ApplyConfigurationRequest_REBOOT
	modeNoReboot = machineapi.ApplyConfigurationRequest_NO_REBOOT
	modeStaged   = machineapi.ApplyConfigurationRequest_STAGED
	modeTry      = machineapi.ApplyConfigurationRequest_TRY
)

// validationMode is what a machine tells machinery's validation about itself.
type validationMode struct{ installed bool }

// String implements validation.RuntimeMode.
func (validationMode) String() string { return "metal" }

// RequiresInstall implements validation.RuntimeMode.
func (m validationMode) RequiresInstall() bool { return !m.installed }

// InContainer implements validation.RuntimeMode.
func (validationMode) InContainer() bool { return false }

// ApplyConfiguration checks a machine config and lets it take effect, in the order that a node does both.
func (s *machineService) ApplyConfiguration(ctx context.Context,
	request *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
	b := s.boot

	if b.node.options.Agent {
		return nil, errAgent
	}

	if b.release.oneApply {
		leave, err := b.config.enterApply()
		if err != nil {
			return nil, err
		}
		defer leave()
	}

	active := b.config.active()
	if active != nil && !rolesOf(ctx).Includes(role.Admin) {
		return nil, errNotAuthorized
	}

	if request.GetMode() != modeTry {
		b.config.cancelRollback()
	}

	provider, warnings, err := b.config.check(request.GetData(), active)
	if err != nil {
		return nil, err
	}

	mode, details, obstacle, err := effectiveMode(request.GetMode(), active, provider)
	if err != nil {
		return nil, err
	}

	if request.GetDryRun() {
		return dryRun(active, provider, mode, details)
	}

	b.log("apply config request: mode %s", mode)

	// From here on the caller's patience does not matter: what it gave up on happens all the same.
	if err := b.sleep(b.ctx, b.node.options.Timing.Apply); err != nil {
		return nil, err
	}

	details, err = b.config.takeEffect(provider, active, mode, details, request.GetTryModeTimeout().AsDuration())
	if err != nil {
		return nil, err
	}

	return &machineapi.ApplyConfigurationResponse{
		Messages: []*machineapi.ApplyConfiguration{{Mode: mode, Warnings: warnings, ModeDetails: details + obstacle}},
	}, nil
}

// enterApply takes the turn of the one ApplyConfiguration that the node handles at a time; leave gives it back.
func (m *machineConfig) enterApply() (leave func(), err error) {
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

// check loads and validates. Whether the machine is installed is known once its META volume is; no caller's
// deadline cuts that wait short.
func (m *machineConfig) check(data []byte, active talosconfig.Provider) (talosconfig.Provider, []string, error) {
	provider, err := m.boot.release.load(data)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	if active != nil && provider.RawV1Alpha1() == nil {
		return nil, nil, status.Error(codes.InvalidArgument,
			"the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config "+
				"instead?")
	}

	m.awaitMeta()

	mode := validationMode{installed: m.boot.node.Installed()}

	warnings, err := provider.Validate(mode)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	more, err := m.runtimeValidate(provider, mode)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	return provider, append(warnings, more...), nil
}

// awaitMeta waits until the state of the META volume is known, or for long enough.
func (m *machineConfig) awaitMeta() {
	ctx, cancel := m.boot.node.lab.clock.WithTimeout(m.boot.ctx, metaWait)
	defer cancel()

	m.boot.node.changed.Until(ctx, func() bool { return !m.boot.node.Faults().MetaNotReady }) //nolint:errcheck // then it goes on without
}

// effectiveMode is what an apply in a mode does to this node, with the text that tells so, and with the text of what
// makes a reboot necessary.
func effectiveMode(mode machineapi.ApplyConfigurationRequest_Mode, active, provider talosconfig.Provider) (
	effective machineapi.ApplyConfigurationRequest_Mode, details, obstacle string, err error,
) {
	if active != nil && (mode == modeAuto || mode == modeNoReboot || mode == modeTry) {
		difference, err := rebootNeeded(active, provider)
		if err != nil {
			return mode, "", "", err
		}

		if difference != "" {
			obstacle = "this config change can't be applied in immediate mode\ndiff:\n" + difference
		}
	}

	switch {
	case mode == modeReboot && active == nil:
		return modeNoReboot, withoutReboot, "", nil
	case mode == modeReboot:
		return modeReboot, withReboot, "", nil
	case mode == modeStaged:
		return modeStaged, "Staged configuration to be applied after the next reboot", "", nil
	case mode == modeAuto && obstacle != "":
		return modeReboot, withReboot, ": " + obstacle, nil
	case mode == modeAuto:
		return modeNoReboot, withoutReboot, "", nil
	case obstacle != "":
		return mode, "", "", status.Error(codes.InvalidArgument, obstacle)
	case mode == modeNoReboot, mode == modeTry:
		return mode, withoutReboot, "", nil
	default:
		return mode, "", "", fmt.Errorf("incorrect mode '%s' specified for the apply config call", mode)
	}
}

const (
	withReboot    = "Applied configuration with a reboot"
	withoutReboot = "Applied configuration without a reboot"
)

// rebootNeeded is the difference that can't take effect in the running system; empty when everything can.
func rebootNeeded(active, wanted talosconfig.Provider) (string, error) {
	before, after := active.RawV1Alpha1(), wanted.RawV1Alpha1().DeepCopy()

	after.ConfigDebug = before.ConfigDebug //nolint:staticcheck // an old field that may still be there
	after.ClusterConfig = before.ClusterConfig

	if before.MachineConfig != nil && after.MachineConfig != nil {
		forgiveMachine(before.MachineConfig, after.MachineConfig)
	}

	if reflect.DeepEqual(before, after) {
		return "", nil
	}

	difference, err := configdiff.DiffConfigs(container.NewV1Alpha1(before), container.NewV1Alpha1(after))
	if err != nil {
		return "", fmt.Errorf("compare machine configs: %w", err)
	}

	return difference, nil
}

// forgiveMachine makes the parts of the machine section equal that a running system takes over.
func forgiveMachine(before, after *v1alpha1.MachineConfig) {
	after.MachineCA = before.MachineCA
	after.MachineAcceptedCAs = before.MachineAcceptedCAs
	after.MachineCertSANs = before.MachineCertSANs
	after.MachineControlPlane = before.MachineControlPlane
	after.MachineInstall = before.MachineInstall
	after.MachineKernel = before.MachineKernel
	after.MachineKubelet = before.MachineKubelet
	after.MachineLogging = before.MachineLogging
	after.MachineNetwork = before.MachineNetwork //nolint:staticcheck // still what old configs have
	after.MachineNodeAnnotations = before.MachineNodeAnnotations
	after.MachineNodeLabels = before.MachineNodeLabels
	after.MachineNodeTaints = before.MachineNodeTaints
	after.MachinePods = before.MachinePods
	after.MachineRegistries = before.MachineRegistries //nolint:staticcheck // as above
	after.MachineSeccompProfiles = before.MachineSeccompProfiles
	after.MachineSysctls = before.MachineSysctls
	after.MachineSysfs = before.MachineSysfs
	after.MachineTime = before.MachineTime

	if before.MachineFeatures != nil && after.MachineFeatures != nil {
		after.MachineFeatures.HostDNSSupport = before.MachineFeatures.HostDNSSupport
		after.MachineFeatures.ImageCacheSupport = before.MachineFeatures.ImageCacheSupport
		after.MachineFeatures.KubePrismSupport = before.MachineFeatures.KubePrismSupport
		after.MachineFeatures.KubernetesTalosAPIAccessConfig = before.MachineFeatures.KubernetesTalosAPIAccessConfig
		after.MachineFeatures.FeatureNodeAddressSortAlgorithm = before.MachineFeatures.FeatureNodeAddressSortAlgorithm
	}
}

// dryRun is the answer to a dry run. Like a node's it carries the machine configs' secrets in the clear, and no
// warnings.
func dryRun(active, provider talosconfig.Provider, mode machineapi.ApplyConfigurationRequest_Mode,
	details string) (*machineapi.ApplyConfigurationResponse, error) {
	var before talosconfig.Encoder
	if active != nil {
		before = active
	}

	difference, err := configdiff.DiffConfigs(before, provider)
	if err != nil {
		return nil, fmt.Errorf("failed to generate diff: %w", err)
	}

	if difference == "" {
		difference = "No changes."
	}

	return &machineapi.ApplyConfigurationResponse{
		Messages: []*machineapi.ApplyConfiguration{{
			Mode:        mode,
			ModeDetails: fmt.Sprintf("Dry run summary:\n%s (skipped in dry-run).\nConfig diff:\n\n%s", details, difference),
		}},
	}, nil
}

// takeEffect saves and activates what the mode asks for.
func (m *machineConfig) takeEffect(provider, active talosconfig.Provider,
	mode machineapi.ApplyConfigurationRequest_Mode, details string, try time.Duration) (string, error) {
	switch mode {
	case modeTry:
		if try <= 0 {
			try = constants.ConfigTryTimeout
		}

		m.rollbackAfter(try)
		m.activate(provider)

		details += fmt.Sprintf("\nThe config is applied in 'try' mode and will be automatically reverted back in %s", try)
	case modeStaged:
		m.persist(provider)
	case modeReboot:
		m.persist(provider)

		m.boot.mu.Lock()
		m.rebooting = true
		m.boot.mu.Unlock()

		m.boot.sequences.follow(m.boot.ctx, "apply configuration", seqReboot, true,
			m.boot.phases.reboot(machineapi.RebootRequest_DEFAULT))
	case modeNoReboot:
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
	linger := m.boot.node.Faults().Lingers
	if linger == 0 {
		m.persist(provider)
		m.activate(provider)

		return
	}

	m.boot.tasks.Go(func() {
		lingering, cancel := m.boot.node.lab.clock.WithTimeout(m.boot.ctx, linger)
		defer cancel()

		m.boot.node.changed.Until(lingering, func() bool { return m.boot.node.Faults().Lingers == 0 }) //nolint:errcheck // either way it is over

		if m.boot.ctx.Err() == nil {
			m.persist(provider)
			m.activate(provider)
		}
	})
}

// rollbackAfter puts the config of now back when the time of a try is over.
func (m *machineConfig) rollbackAfter(after time.Duration) {
	m.cancelRollback()

	ctx, cancel := context.WithCancel(m.boot.ctx)

	m.boot.mu.Lock()
	m.rollback = cancel
	former := m.current
	m.boot.mu.Unlock()

	m.boot.tasks.Go(func() {
		defer cancel()

		if m.boot.sleep(ctx, after) == nil {
			m.boot.log("rolling back the configuration")
			m.putBack(former)
		}
	})
}

// putBack makes a former config the active one. If it was none, or not complete, a machine that has left maintenance
// mode then has none: its port closes until the next boot, and an install that runs goes on.
func (m *machineConfig) putBack(former talosconfig.Provider) {
	switch complete := former != nil && former.CompleteForBoot(); {
	case !complete && m.active() != nil:
		m.withdraw()
	case former == nil:
		m.forget()
	default:
		m.activate(former)
	}
}

func (m *machineConfig) cancelRollback() {
	m.boot.mu.Lock()
	defer m.boot.mu.Unlock()

	if m.rollback != nil {
		m.rollback()
		m.rollback = nil
	}
}
