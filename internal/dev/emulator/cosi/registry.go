// Package cosi has the types of resources that each release of Talos knows, and watches that resume at a bookmark.
package cosi

import (
	"context"
	"fmt"
	"sync"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/registry"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/cri"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/files"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubeaccess"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/perf"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/security"
	"github.com/siderolabs/talos/pkg/machinery/resources/siderolink"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

// ResourceNamespaces are the namespaces that nodes of Talos 1.13 register, with their descriptions.
var ResourceNamespaces = map[resource.Namespace]string{
	v1alpha1.NamespaceName:        "State of the running system.",
	cluster.NamespaceName:         "The cluster and its members.",
	cluster.RawNamespaceName:      "What is known of the cluster, before it is merged.",
	config.NamespaceName:          "The machine config.",
	cri.NamespaceName:             "Container runtime.",
	etcd.NamespaceName:            "etcd.",
	files.NamespaceName:           "Files in /etc.",
	hardware.NamespaceName:        "Hardware.",
	k8s.NamespaceName:             "Kubernetes, on all nodes.",
	k8s.ControlPlaneNamespaceName: "Kubernetes, on control planes.",
	kubespan.NamespaceName:        "KubeSpan.",
	network.NamespaceName:         "Network.",
	network.ConfigNamespaceName:   "Network settings, before they are merged.",
	perf.NamespaceName:            "Load.",
	secrets.NamespaceName:         "Secrets.",
	security.NamespaceName:        "Security.",
}

// resourceTypes are the types that nodes of Talos 1.13 register: what `talosctl get` can name, and what the access policy
// knows.
var resourceTypes = []meta.ResourceWithRD{
	&block.Device{}, &block.DiscoveredVolume{}, &block.DiscoveryRefreshRequest{}, &block.DiscoveryRefreshStatus{},
	&block.Disk{},
	&block.MountRequest{}, &block.MountStatus{}, &block.SwapStatus{}, &block.Symlink{}, &block.SystemDisk{},
	&block.UserDiskConfigStatus{},
	&block.VolumeConfig{}, &block.VolumeLifecycle{}, &block.VolumeMountRequest{}, &block.VolumeMountStatus{},
	&block.VolumeStatus{}, &block.ZswapStatus{},

	&cluster.Affiliate{}, &cluster.Config{}, &cluster.Identity{}, &cluster.Info{}, &cluster.Member{},

	&config.MachineConfig{}, &config.MachineType{},

	&cri.ImageCacheConfig{}, &cri.RegistriesConfig{}, &cri.SeccompProfile{},

	&etcd.Config{}, &etcd.Member{}, &etcd.PKIStatus{}, &etcd.Spec{},

	&files.EtcFileSpec{}, &files.EtcFileStatus{},

	&hardware.MemoryModule{}, &hardware.PCIDevice{}, &hardware.PCIDriverRebindConfig{}, &hardware.PCIDriverRebindStatus{},
	&hardware.PCRStatus{},
	&hardware.Processor{}, &hardware.SystemInformation{},

	&k8s.AdmissionControlConfig{}, &k8s.APIServerConfig{}, &k8s.AuditPolicyConfig{}, &k8s.AuthorizationConfig{},
	&k8s.BootstrapManifestsConfig{},
	&k8s.ConfigStatus{}, &k8s.ControllerManagerConfig{}, &k8s.Endpoint{}, &k8s.ExtraManifestsConfig{},
	&k8s.KubeletConfig{}, &k8s.KubeletKubeconfig{},
	&k8s.KubeletLifecycle{}, &k8s.KubeletSpec{}, &k8s.KubePrismConfig{}, &k8s.KubePrismEndpoints{},
	&k8s.KubePrismStatuses{}, &k8s.Manifest{},
	&k8s.ManifestStatus{}, &k8s.NodeAnnotationSpec{}, &k8s.NodeCordonedSpec{}, &k8s.NodeIP{}, &k8s.NodeIPConfig{},
	&k8s.NodeLabelSpec{},
	&k8s.Nodename{}, &k8s.NodeStatus{}, &k8s.NodeTaintSpec{}, &k8s.SchedulerConfig{}, &k8s.SecretsStatus{},
	&k8s.StaticPod{},
	&k8s.StaticPodServerStatus{}, &k8s.StaticPodStatus{},

	&kubeaccess.Config{}, &kubespan.Config{}, &kubespan.Endpoint{}, &kubespan.Identity{}, &kubespan.PeerSpec{},
	&kubespan.PeerStatus{},

	&network.AddressSpec{}, &network.AddressStatus{}, &network.DeviceConfigSpec{}, &network.DNSResolveCache{},
	&network.DNSUpstream{},
	&network.EthernetSpec{}, &network.EthernetStatus{}, &network.HardwareAddr{}, &network.HostDNSConfig{},
	&network.HostnameSpec{},
	&network.HostnameStatus{}, &network.LinkAliasSpec{}, &network.LinkRefresh{}, &network.LinkSpec{},
	&network.LinkStatus{}, &network.NfTablesChain{},
	&network.NodeAddress{}, &network.NodeAddressFilter{}, &network.NodeAddressSortAlgorithm{}, &network.OperatorSpec{},
	&network.PlatformConfig{},
	&network.ProbeSpec{}, &network.ProbeStatus{}, &network.ResolverSpec{}, &network.ResolverStatus{}, &network.RouteSpec{},
	&network.RouteStatus{},
	&network.RoutingRuleSpec{}, &network.RoutingRuleStatus{}, &network.Status{}, &network.TimeServerSpec{},
	&network.TimeServerStatus{},

	&perf.CPU{}, &perf.Memory{},

	&runtimeres.APIServiceConfig{}, &runtimeres.BootedEntry{}, &runtimeres.DevicesStatus{}, &runtimeres.Diagnostic{},
	&runtimeres.Environment{},
	&runtimeres.EventSinkConfig{}, &runtimeres.ExtensionServiceConfig{}, &runtimeres.ExtensionServiceConfigStatus{},
	&runtimeres.ExtensionStatus{},
	&runtimeres.KernelCmdline{}, &runtimeres.KernelModuleSpec{}, &runtimeres.KernelParamDefaultSpec{},
	&runtimeres.KernelParamSpec{},
	&runtimeres.KernelParamStatus{}, &runtimeres.KmsgLogConfig{}, &runtimeres.LoadedKernelModule{},
	&runtimeres.MachineResetSignal{},
	&runtimeres.MachineStatus{}, &runtimeres.MaintenanceServiceConfig{}, &runtimeres.MaintenanceServiceRequest{},
	&runtimeres.MetaKey{},
	&runtimeres.MetaLoaded{}, &runtimeres.MountStatus{}, &runtimeres.OOMAction{}, &runtimeres.PlatformMetadata{},
	&runtimeres.SBOMItem{},
	&runtimeres.SecurityState{}, &runtimeres.ServicePID{}, &runtimeres.UniqueMachineToken{}, &runtimeres.Version{},
	&runtimeres.WatchdogTimerConfig{},
	&runtimeres.WatchdogTimerStatus{},

	&secrets.API{}, &secrets.CertSAN{}, &secrets.EncryptionSalt{}, &secrets.Etcd{}, &secrets.EtcdRoot{},
	&secrets.Kubelet{}, &secrets.Kubernetes{},
	&secrets.KubernetesDynamicCerts{}, &secrets.KubernetesRoot{}, &secrets.MaintenanceRoot{}, &secrets.OSRoot{},
	&secrets.Trustd{},

	&security.ImageVerificationRule{}, &security.TUFTrustedRoot{}, &siderolink.Config{}, &siderolink.Status{},
	&siderolink.Tunnel{},

	&timeres.AdjtimeStatus{}, &timeres.Status{}, &v1alpha1.AcquireConfigSpec{}, &v1alpha1.AcquireConfigStatus{},
	&v1alpha1.Service{},
}

// DefinitionsOf makes the namespace "meta" of a release from its resource types. It is the same on all nodes and never
// changes: one for the whole process.
func DefinitionsOf(namespaces map[resource.Namespace]string,
	types func() []meta.ResourceDefinitionSpec) func() (state.CoreState, error) {
	return sync.OnceValues(func() (state.CoreState, error) {
		core := inmem.NewState(meta.NamespaceName)
		all := state.WrapCore(namespaced.NewState(func(resource.Namespace) state.CoreState { return core }))
		ctx := context.Background()

		registered := registry.NewNamespaceRegistry(all)

		if err := registered.RegisterDefault(ctx); err != nil {
			return nil, fmt.Errorf("register default namespaces: %w", err)
		}

		if err := registry.NewResourceRegistry(all).RegisterDefault(ctx); err != nil {
			return nil, fmt.Errorf("register default resource types: %w", err)
		}

		for name, description := range namespaces {
			if err := registered.Register(ctx, name, description); err != nil {
				return nil, fmt.Errorf("register namespace %s: %w", name, err)
			}
		}

		for _, spec := range types() {
			definition, err := meta.NewResourceDefinition(spec)
			if err != nil {
				return nil, fmt.Errorf("define resource type: %w", err)
			}

			if err := all.Create(ctx, definition, state.WithCreateOwner(meta.Owner)); err != nil {
				return nil, fmt.Errorf("register resource type %s: %w", spec.Type, err)
			}
		}

		return core, nil
	})
}

// ResourceSpecs are what there is to know of the resource types of Talos 1.13.
func ResourceSpecs() []meta.ResourceDefinitionSpec {
	specs := specsOf(resourceTypes)

	for i := range specs {
		if specs[i].Type == runtimeres.LoadedKernelModuleType { //nolint:staticcheck // what nodes have
			specs[i].Aliases = []resource.Type{"module", "modules"} // another type's since Talos 1.14
		}
	}

	return specs
}

func specsOf(types []meta.ResourceWithRD) []meta.ResourceDefinitionSpec {
	specs := make([]meta.ResourceDefinitionSpec, 0, len(types))
	for _, kind := range types {
		specs = append(specs, kind.ResourceDefinition())
	}

	return specs
}
