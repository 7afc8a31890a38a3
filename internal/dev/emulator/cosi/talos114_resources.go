package cosi

import (
	"maps"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/containers"
	"github.com/siderolabs/talos/pkg/machinery/resources/cri"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/storage"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
)

// newTypes114 are the resource types that Talos 1.14 brought.
var newTypes114 = []meta.ResourceWithRD{
	&block.FSScrubSchedule{}, &block.FSScrubStatus{}, &block.VolumeTrimSchedule{},

	&containers.ContainerImageStatus{}, &containers.ContainerInstanceSpec{}, &containers.ContainerInstanceStatus{},
	&containers.ContainerLifecycle{}, &containers.ContainerMountStatus{}, &containers.ContainerSpec{},

	&cri.BaseRuntimeSpecConfig{}, &cri.CustomizationConfig{}, &hardware.CPUCore{},

	&k8s.AuthenticationConfig{}, &k8s.EtcdEncryptionConfig{}, &k8s.KubeletStatus{},

	&network.BGPInstanceConfig{}, &network.BGPPeerStatus{}, &network.StaticHost{},

	&runtimeres.BootID{}, &runtimeres.ImageFactorySchematic{}, &runtimeres.KernelModuleStatus{},
	&runtimeres.RebootRequest{}, &runtimeres.UnattendedInstallStatus{},

	&storage.LVMLogicalVolumeSpec{}, &storage.LVMLogicalVolumeStatus{}, &storage.LVMPhysicalVolumeSpec{},
	&storage.LVMPhysicalVolumeStatus{}, &storage.LVMRefreshRequest{}, &storage.LVMValidationError{},
	&storage.LVMVolumeGroupSpec{}, &storage.LVMVolumeGroupStatus{}, &storage.MDArraySpec{}, &storage.MDArrayStatus{},
	&storage.MDRefreshRequest{},

	&timeres.NTPStatus{},
}

// ResourceSpecs114 are the resource types of Talos 1.14.
func ResourceSpecs114() []meta.ResourceDefinitionSpec {
	return specsOf(slices.Concat(resourceTypes, newTypes114))
}

// ResourceNamespaces114 are the namespaces of Talos 1.14.
func ResourceNamespaces114() map[resource.Namespace]string {
	namespaces := maps.Clone(ResourceNamespaces)
	namespaces[containers.NamespaceName] = "Containers that Talos runs by itself."
	namespaces[storage.NamespaceName] = "Volume groups and arrays of disks."

	return namespaces
}
