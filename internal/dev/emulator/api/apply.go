package api

import (
	"context"
	"fmt"
	"reflect"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// ApplyConfiguration checks a machine config and lets it take effect, in the order that a node does both.
func (s *machineService) ApplyConfiguration(ctx context.Context,
	request *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
	b := s.boot

	if b.Node.Options().Agent {
		return nil, errAgent
	}

	if b.Release.OneApply {
		leave, err := b.Config.EnterApply()
		if err != nil {
			return nil, err
		}
		defer leave()
	}

	active := b.Config.Active()
	if active != nil && !rolesOf(ctx).Includes(role.Admin) {
		return nil, errNotAuthorized
	}

	keepsTry := request.GetMode() == machine.ModeTry
	if !keepsTry && !b.Release.NeverReboots {
		b.Config.CancelRollback()
	}

	provider, warnings, mode, err := s.judge(request, active)
	if err != nil {
		return nil, err
	}

	mode, details, obstacle, err := s.effectiveMode(mode, active, provider)
	if err != nil {
		return nil, err
	}

	if request.GetDryRun() {
		return dryRun(active, provider, mode, details)
	}

	if !keepsTry && b.Release.NeverReboots {
		b.Config.CancelRollback()
	}

	b.Log("apply config request: mode %s", mode)

	// From here on the caller's patience does not matter: what it gave up on happens all the same.
	if err := b.Sleep(b.Context, b.Node.Options().Timing.Apply); err != nil {
		return nil, err
	}

	details, err = b.Config.TakeEffect(provider, active, mode, details, request.GetTryModeTimeout().AsDuration())
	if err != nil {
		return nil, err
	}

	return &machineapi.ApplyConfigurationResponse{
		Messages: []*machineapi.ApplyConfiguration{{Mode: mode, Warnings: warnings, ModeDetails: details + obstacle}},
	}, nil
}

// judge loads and validates a machine config, and says in which mode it is to be applied.
func (s *machineService) judge(request *machineapi.ApplyConfigurationRequest, active talosconfig.Provider) (
	provider talosconfig.Provider, warnings []string, mode machineapi.ApplyConfigurationRequest_Mode, err error,
) {
	mode = request.GetMode()

	provider, err = s.boot.Config.Load(request.GetData(), active)
	if err != nil {
		return nil, nil, mode, err
	}

	if mode == machine.ModeReboot && s.boot.Release.NeverReboots {
		if active != nil {
			return nil, nil, mode, status.Error(codes.Unimplemented,
				"the REBOOT mode is not supported, please use AUTO or NO_REBOOT modes instead")
		}

		mode = machine.ModeNoReboot
	}

	warnings, err = s.boot.Config.Validate(provider)

	return provider, warnings, mode, err
}

// effectiveMode is what an apply in a mode does to this node, with the text that tells so, and with the text of what
// makes a reboot necessary.
func (s *machineService) effectiveMode(mode machineapi.ApplyConfigurationRequest_Mode,
	active, provider talosconfig.Provider) (
	effective machineapi.ApplyConfigurationRequest_Mode, details, obstacle string, err error,
) {
	if s.boot.Release.NeverReboots {
		effective, details, err = modeWithoutReboot(mode)

		return effective, details, "", err
	}

	return modeWithReboot(mode, active, provider)
}

// modeWithoutReboot is what an apply in a mode does to a node that never reboots for one.
func modeWithoutReboot(mode machineapi.ApplyConfigurationRequest_Mode) (
	effective machineapi.ApplyConfigurationRequest_Mode, details string, err error,
) {
	switch mode {
	case machine.ModeAuto:
		return machine.ModeNoReboot, withoutReboot, nil
	case machine.ModeNoReboot, machine.ModeTry:
		return mode, withoutReboot, nil
	case machine.ModeStaged:
		return mode, staged, nil
	default:
		return mode, "", status.Errorf(codes.InvalidArgument, "incorrect mode '%s' specified for the apply config call", mode)
	}
}

// modeWithReboot is what an apply in a mode does to a node that reboots for what it can't take over.
func modeWithReboot(mode machineapi.ApplyConfigurationRequest_Mode, active, provider talosconfig.Provider) (
	effective machineapi.ApplyConfigurationRequest_Mode, details, obstacle string, err error,
) {
	if active != nil && (mode == machine.ModeAuto || mode == machine.ModeNoReboot || mode == machine.ModeTry) {
		difference, err := rebootNeeded(active, provider)
		if err != nil {
			return mode, "", "", err
		}

		if difference != "" {
			obstacle = "this config change can't be applied in immediate mode\ndiff:\n" + difference
		}
	}

	switch {
	case mode == machine.ModeReboot && active == nil:
		return machine.ModeNoReboot, withoutReboot, "", nil
	case mode == machine.ModeReboot:
		return machine.ModeReboot, withReboot, "", nil
	case mode == machine.ModeStaged:
		return machine.ModeStaged, staged, "", nil
	case mode == machine.ModeAuto && obstacle != "":
		return machine.ModeReboot, withReboot, ": " + obstacle, nil
	case mode == machine.ModeAuto:
		return machine.ModeNoReboot, withoutReboot, "", nil
	case obstacle != "":
		return mode, "", "", status.Error(codes.InvalidArgument, obstacle)
	case mode == machine.ModeNoReboot, mode == machine.ModeTry:
		return mode, withoutReboot, "", nil
	default:
		return mode, "", "", fmt.Errorf("incorrect mode '%s' specified for the apply config call", mode)
	}
}

const (
	withReboot    = "Applied configuration with a reboot"
	withoutReboot = "Applied configuration without a reboot"
	staged        = "Staged configuration to be applied after the next reboot"
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
