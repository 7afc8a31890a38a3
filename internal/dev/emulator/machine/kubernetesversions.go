package machine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
)

// RuntimeValidate is machinery's validation against the running machine. Machinery takes its own Talos version for the
// machine's when it judges the versions of Kubernetes, so these judgements are made again here.
func (m *machineConfig) RuntimeValidate(provider talosconfig.Provider, mode validation.RuntimeMode) ([]string, error) {
	warnings, err := provider.RuntimeValidate(m.boot.Context, m.boot.Resources.Own, mode)

	if config := provider.RawV1Alpha1(); config != nil {
		warnings = append(m.bootWarnings(config), warnings...)
		err = rejudge(err, kubernetesProblems(config, m.boot.Version))
	}

	return warnings, err
}

// bootWarnings are those of a machine that was booted from a unified kernel image, which machinery takes the system
// that it runs on for.
func (m *machineConfig) bootWarnings(config *v1alpha1.Config) []string {
	if !m.boot.Node.options.UKI || len(config.Machine().Install().ExtraKernelArgs()) == 0 {
		return nil
	}

	return []string{"extra kernel arguments are not supported when booting using SDBoot"}
}

// kubernetesProblems is what a Talos version has against the versions of Kubernetes that a machine config asks for.
func kubernetesProblems(config *v1alpha1.Config, talosVersion string) []error {
	if config.MachineConfig == nil {
		return nil
	}

	images := []struct{ name, reference string }{{"kubelet", config.K8sKubeletConfig().Image()}}

	if config.ClusterConfig != nil && config.Machine().Type().IsControlPlane() {
		images = append(images, []struct{ name, reference string }{
			{"kube-apiserver", config.K8sAPIServerConfig().Image()},
			{"kube-controller-manager", config.K8sControllerManagerConfig().Image()},
			{"kube-scheduler", config.K8sSchedulerConfig().Image()},
		}...)
	}

	var problems []error

	for _, image := range images {
		if err := supported(image.reference, talosVersion); err != nil {
			problems = append(problems, fmt.Errorf("%s image is not valid: %w", image.name, err))
		}
	}

	return problems
}

func supported(image, talosVersion string) error {
	talos, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: talosVersion})
	if err != nil {
		return fmt.Errorf("failed to parse Talos version: %w", err)
	}

	kubernetes, err := compatibility.KubernetesVersionFromImageRef(image)
	if err != nil {
		return fmt.Errorf("failed to parse Kubernetes version from image reference %q: %w", image, err)
	}

	return kubernetes.SupportedWith(talos)
}

// rejudge replaces what a validation has against versions of Kubernetes; its other problems stay, in its order and its
// form.
func rejudge(validated error, problems []error) error {
	const prefix = "v1alpha1.Config: "

	var all, ofMain, ofOthers []error

	if found, ok := errors.AsType[*multierror.Error](validated); ok {
		all = found.Errors
	}

	for _, problem := range all {
		inner, ok := errors.AsType[*multierror.Error](problem)

		switch {
		case !strings.HasPrefix(problem.Error(), prefix):
			ofOthers = append(ofOthers, problem)
		case ok:
			ofMain = append(ofMain, inner.Errors...)
		default:
			ofMain = append(ofMain, errors.Unwrap(problem))
		}
	}

	ofMain = slices.DeleteFunc(ofMain,
		func(problem error) bool { return strings.Contains(problem.Error(), " image is not valid: ") })
	ofMain = append(ofMain, problems...)

	var result *multierror.Error

	if len(ofMain) > 0 {
		result = multierror.Append(result, fmt.Errorf("%s%w", prefix, multierror.Append(nil, ofMain...)))
	}

	return multierror.Append(result, ofOthers...).ErrorOrNil()
}
