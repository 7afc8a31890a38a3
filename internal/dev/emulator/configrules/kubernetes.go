package configrules

import (
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// kubernetesProblems is what a Talos version has against the versions of Kubernetes that a main document asks for. What
// it does not name has a version that fits.
func kubernetesProblems(config *v1alpha1.Config, talosVersion string) []error {
	if config == nil || config.MachineConfig == nil {
		return nil
	}

	var problems []error

	for _, image := range imagesOf(config) {
		if image.reference == "" {
			continue
		}

		if err := supported(image.reference, talosVersion); err != nil {
			problems = append(problems, fmt.Errorf("%s image is not valid: %w", image.name, err))
		}
	}

	return problems
}

type image struct{ name, reference string }

// imagesOf are the images of Kubernetes' parts that the machine runs, as far as its main document names them.
//
//nolint:staticcheck // the fields that releases before Talos 1.14 have
func imagesOf(config *v1alpha1.Config) []image {
	var images []image

	if kubelet := config.MachineConfig.MachineKubelet; kubelet != nil {
		images = append(images, image{"kubelet", kubelet.KubeletImage})
	}

	cluster := config.ClusterConfig
	if cluster == nil || !config.Machine().Type().IsControlPlane() {
		return images
	}

	if part := cluster.APIServerConfig; part != nil {
		images = append(images, image{"kube-apiserver", part.ContainerImage})
	}

	if part := cluster.ControllerManagerConfig; part != nil {
		images = append(images, image{"kube-controller-manager", part.ContainerImage})
	}

	if part := cluster.SchedulerConfig; part != nil {
		images = append(images, image{"kube-scheduler", part.ContainerImage})
	}

	return images
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
