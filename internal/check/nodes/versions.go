package preflight

import (
	"context"
	"errors"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// checkTalosVersion compares what the node runs with what its machine config is made for. Only the minor version
// counts.
func checkTalosVersion(_ context.Context, s subject) []diagnosis.Finding {
	running, err := talosconfig.ParseContractFromVersion(s.facts.Version)
	if err != nil {
		return nil // unread, or a development build without a version
	}

	madeFor, why := s.contract()

	if s.config != nil {
		if needed := s.config.TalosContract(); needed.Greater(running) && (madeFor == nil || needed.Greater(madeFor)) {
			madeFor, why = needed, "by its fields"
		}
	}

	switch {
	case madeFor == nil:
		return s.ok(diagnosis.TalosVersionMismatch, "runs Talos %s", s.facts.Version)
	case madeFor.Greater(running):
		return s.fail(diagnosis.TalosVersionMismatch,
			"boot the node from a "+madeFor.String()+" image, or "+s.regenerate("set talosVersion to "+running.String()),
			"the node runs Talos %s, its machine config is made for %s (%s): it would refuse what it does not know",
			s.facts.Version, madeFor, why)
	case running.Greater(madeFor):
		return s.warn(diagnosis.TalosVersionMismatch, s.regenerate("set talosVersion to "+running.String()),
			"the node runs Talos %s, its machine config is made for the older %s (%s)", s.facts.Version, madeFor, why)
	default:
		return s.ok(diagnosis.TalosVersionMismatch, "runs Talos %s, machine config for %s", s.facts.Version, madeFor)
	}
}

// contract is the Talos minor version that the node's machine config is made for, and where that is said; nil when
// nothing says it.
func (s subject) contract() (contract *talosconfig.VersionContract, why string) {
	if declared, err := talosconfig.ParseContractFromVersion(s.cluster.TalosVersion); err == nil {
		return declared, "talosVersion " + s.cluster.TalosVersion
	}

	if s.config == nil {
		return nil, ""
	}

	if tagged, err := talosconfig.ParseContractFromVersion(s.config.InstallerVersion()); err == nil {
		return tagged, "installer image " + s.config.InstallerVersion()
	}

	return nil, ""
}

// checkKubernetesVersion asks machinery whether the node's Talos version runs the Kubernetes version of its machine
// config.
func checkKubernetesVersion(_ context.Context, s subject) []diagnosis.Finding {
	if s.config == nil || s.facts.Version == "" {
		return nil
	}

	var kubelet *compatibility.KubernetesVersion

	for _, image := range kubernetesImages(s.config) {
		kubernetes, err := v1alpha1.KubernetesVersionFromImageRef(image)
		if err != nil {
			continue // validation refuses such an image reference
		}

		switch err := supported(kubernetes, s.facts.Version); {
		case err == nil && kubelet == nil:
			kubelet = kubernetes
		case err == nil:
		case errors.Is(err, errUnknownTalos):
			return s.warn(diagnosis.KubernetesUnsupported, "compare with the support matrix of Talos "+s.facts.Version,
				"Talos %s is newer than this program knows, or a development build: it can't tell whether Kubernetes v%s goes "+
					"with it", s.facts.Version, kubernetes)
		default:
			return s.fail(diagnosis.KubernetesUnsupported, s.regenerate("change kubernetesVersion"),
				"%s: %s, which the node runs", image, err)
		}
	}

	if kubelet == nil {
		return nil
	}

	return s.ok(diagnosis.KubernetesUnsupported, "Kubernetes v%s goes with Talos %s", kubelet, s.facts.Version)
}

// kubernetesImages are the images whose tags are Kubernetes versions, the kubelet's first: those that Talos itself
// judges.
func kubernetesImages(config *machineconfig.Config) []string {
	images := []string{config.Provider.Machine().Kubelet().Image()}

	if config.Role() == inventory.ControlPlane {
		cluster := config.Provider.Cluster()
		images = append(images, cluster.APIServer().Image(), cluster.ControllerManager().Image(), cluster.Scheduler().Image())
	}

	return images
}

// checkDeclaredKubernetes finds a pair of declared versions that no machine could run.
func checkDeclaredKubernetes(_ context.Context, w whole) []diagnosis.Finding {
	if w.cluster.TalosVersion == "" || w.cluster.KubernetesVersion == "" {
		return nil
	}

	kubernetes, err := compatibility.ParseKubernetesVersion(strings.TrimPrefix(w.cluster.KubernetesVersion, "v"))
	if err != nil {
		return nil // the inventory refuses what is no version
	}

	err = supported(kubernetes, w.cluster.TalosVersion)
	if err == nil || errors.Is(err, errUnknownTalos) {
		return nil
	}

	findings := w.about(nil, diagnosis.KubernetesUnsupported, diagnosis.Failure,
		w.regenerate("change kubernetesVersion or talosVersion"),
		"talosVersion %s and kubernetesVersion %s don't go together: %s", w.cluster.TalosVersion, w.cluster.KubernetesVersion,
		err)
	findings[0].Exit = diagnosis.ExitBadInput

	return findings
}

// errUnknownTalos is for Talos versions that machinery's table has no row for.
var errUnknownTalos = errors.New("this Talos version is not known")

// supported asks machinery's table of the Kubernetes versions that a Talos version runs.
func supported(kubernetes *compatibility.KubernetesVersion, talos string) error {
	version, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: talos})
	if err != nil {
		return errUnknownTalos
	}

	err = kubernetes.SupportedWith(version)
	if err != nil && strings.HasPrefix(err.Error(), "compatibility with version") {
		return errUnknownTalos
	}

	return err
}
