package cosi

import (
	"maps"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/cri"
	"github.com/siderolabs/talos/pkg/machinery/resources/files"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/security"
)

// unknown112 are the resource types that Talos 1.12 does not have.
var unknown112 = []resource.Type{
	k8s.KubeletKubeconfigType, network.RoutingRuleSpecType, network.RoutingRuleStatusType, runtimeres.APIServiceConfigType,
	runtimeres.EnvironmentType, runtimeres.ServicePIDType, security.ImageVerificationRuleType, security.TUFTrustedRootType,
}

// open112 are the resource types that every reader may read with Talos 1.12, and administrators alone since.
var open112 = []resource.Type{
	cri.RegistriesConfigType, files.EtcFileSpecType, k8s.APIServerConfigType, k8s.AuthorizationConfigType,
	k8s.KubeletConfigType, k8s.KubeletSpecType,
	runtimeres.ExtensionServiceConfigType,
}

// ResourceSpecs112 are the resource types of Talos 1.12.
func ResourceSpecs112() []meta.ResourceDefinitionSpec {
	var specs []meta.ResourceDefinitionSpec

	for _, spec := range ResourceSpecs() {
		if slices.Contains(unknown112, spec.Type) {
			continue
		}

		if slices.Contains(open112, spec.Type) {
			spec.Sensitivity = meta.NonSensitive
		}

		specs = append(specs, spec)
	}

	return append(specs, meta.ResourceDefinitionSpec{
		Type: "MaintenanceServiceCertificates.secrets.talos.dev", DefaultNamespace: secrets.NamespaceName,
		Sensitivity: meta.Sensitive,
	})
}

// ResourceNamespaces112 are the namespaces of Talos 1.12.
func ResourceNamespaces112() map[resource.Namespace]string {
	namespaces := maps.Clone(ResourceNamespaces)
	delete(namespaces, security.NamespaceName)

	return namespaces
}
