package emulator_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// sensitiveTypes are for administrators, and so is every type of the group secrets.
var sensitiveTypes = []string{
	"APIServerConfigs.kubernetes.talos.dev", "AuditPolicyConfigs.kubernetes.talos.dev",
	"AuthorizationConfigs.kubernetes.talos.dev",
	"DeviceConfigSpecs.net.talos.dev", "DiscoveryConfigs.cluster.talos.dev", "EtcFileSpecs.files.talos.dev",
	"ExtensionServiceConfigs.runtime.talos.dev",
	"KubeSpanConfigs.kubespan.talos.dev", "KubeSpanIdentities.kubespan.talos.dev", "KubeletConfigs.kubernetes.talos.dev",
	"KubeletSpecs.kubernetes.talos.dev",
	"LinkSpecs.net.talos.dev", "MachineConfigs.config.talos.dev", "NodeAnnotationSpecs.k8s.talos.dev",
	"NodeCordonedSpecs.k8s.talos.dev",
	"NodeLabelSpecs.k8s.talos.dev", "NodeTaintSpecs.k8s.talos.dev", "OOMActions.talos.dev", "OperatorSpecs.net.talos.dev",
	"RegistryConfigs.cri.talos.dev",
	"SiderolinkConfigs.siderolink.talos.dev", "SiderolinkTunnels.siderolink.talos.dev", "VolumeConfigs.block.talos.dev",
}

func kindOf(namespace, kind string) resource.Kind {
	return resource.NewMetadata(namespace, kind, "", resource.VersionUndefined)
}

func TestClaim_1_08_ResourcesAreGuardedInFourSteps(t *testing.T) {
	t.Parallel()

	cluster, node := waiting(t)
	_, maintenance := idle(t)

	callers := map[string]*client.Client{
		"anybody": insecure(t, maintenance),
		"reader":  signed(t, cluster, node, x509.Organization(string(role.Reader))),
		"admin":   secure(t, cluster.Talosconfig(), node),
	}

	const (
		unknownType      = `resource type "Nonsense.talos.dev" is not supported`
		unknownNamespace = `namespace "nowhere" is not supported`
		readOnly         = "write access is not allowed"
		notAuthorized    = "not authorized"
	)

	for name, test := range map[string]struct {
		caller, namespace, kind string
		write                   bool
		want                    string
	}{
		"writes need an administrator": {"anybody", "runtime", "MachineStatuses.runtime.talos.dev", true,
			notAuthorized},
		"readers may not write either": {"reader", "runtime", "MachineStatuses.runtime.talos.dev", true,
			notAuthorized},
		"administrators may not either":       {"admin", "runtime", "MachineStatuses.runtime.talos.dev", true, readOnly},
		"writes come before the type":         {"admin", "nowhere", "Nonsense.talos.dev", true, readOnly},
		"unknown types":                       {"anybody", "runtime", "Nonsense.talos.dev", false, unknownType},
		"unknown types for administrators":    {"admin", "runtime", "Nonsense.talos.dev", false, unknownType},
		"the type comes before the namespace": {"reader", "nowhere", "Nonsense.talos.dev", false, unknownType},
		"sensitive types": {"anybody", "config", "MachineConfigs.config.talos.dev", false,
			notAuthorized},
		"sensitive types for readers": {"reader", "config", "MachineConfigs.config.talos.dev", false,
			notAuthorized},
		"sensitivity comes before the namespace": {"reader", "nowhere", "MachineConfigs.config.talos.dev", false,
			notAuthorized},
		"unknown namespaces": {"anybody", "nowhere", "Disks.block.talos.dev", false, unknownNamespace},
		"unknown namespaces for administrators": {"admin", "nowhere", "MachineConfigs.config.talos.dev", false,
			unknownNamespace},
		"administrators read what is sensitive":    {"admin", "config", "MachineConfigs.config.talos.dev", false, ""},
		"everybody reads the rest":                 {"anybody", "runtime", "Disks.block.talos.dev", false, ""},
		"types are found however they are written": {"anybody", "runtime", "DISKS.block.talos.dev", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := callers[test.caller]

			if test.write {
				err := c.COSI.Destroy(deadline(t),
					resource.NewMetadata(test.namespace, test.kind, "machine", resource.VersionUndefined))
				require.ErrorContains(t, err, test.want)
				require.Equal(t, codes.Unknown, client.StatusCode(err), "the state client hides the code")

				return
			}

			for verb, read := range map[string]func() error{
				"List": func() error { _, err := c.COSI.List(deadline(t), kindOf(test.namespace, test.kind)); return err },
				"Get": func() error {
					_, err := c.COSI.Get(deadline(t),
						resource.NewMetadata(test.namespace, test.kind, "nobody", resource.VersionUndefined))
					if state.IsNotFoundError(err) {
						return nil
					}

					return err
				},
				"Watch": func() error {
					return c.COSI.WatchKind(deadline(t), kindOf(test.namespace, test.kind), make(chan state.Event, 100))
				},
			} {
				err := read()
				if test.want == "" {
					require.NoError(t, err, verb)

					continue
				}

				require.Equal(t, codes.PermissionDenied, client.StatusCode(err), "%s: %v", verb, err)
				require.ErrorContains(t, err, test.want, verb)
			}
		})
	}
}

func TestClaim_1_21_WhatIsSensitiveIsClosedAndAllElseOpen(t *testing.T) {
	t.Parallel()

	_, node := idle(t)
	c := insecure(t, node)

	definitions, err := safe.StateListAll[*meta.ResourceDefinition](deadline(t), c.COSI)
	require.NoError(t, err)
	require.Greater(t, definitions.Len(), 150)

	var closed []string

	for definition := range definitions.All() {
		spec := definition.TypedSpec()

		_, err := c.COSI.List(deadline(t), kindOf(spec.DefaultNamespace, spec.Type))
		if err == nil {
			continue
		}

		require.Equal(t, codes.PermissionDenied, client.StatusCode(err), spec.Type)
		require.ErrorContains(t, err, "not authorized", spec.Type)

		if !strings.HasSuffix(spec.Type, ".secrets.talos.dev") {
			closed = append(closed, spec.Type)
		}
	}

	slices.Sort(closed)
	require.Equal(t, sensitiveTypes, closed)
}

func TestClaim_1_22_WhatAClientNeedsToKnowIsReadable(t *testing.T) {
	t.Parallel()

	_, maintenance := idle(t)
	whole := wholeLab.use(t)
	running := secure(t, whole.Talosconfig(), whole.Node("cp1"))
	address := maintenance.Address().String()

	for _, test := range []struct {
		where               *client.Client
		kind, namespace, id string
	}{
		{insecure(t, maintenance), "MachineStatuses.runtime.talos.dev", "runtime", "machine"},
		{insecure(t, maintenance), "Disks.block.talos.dev", "runtime", "vda"},
		{insecure(t, maintenance), "DiscoveredVolumes.block.talos.dev", "runtime", "vda"},
		{insecure(t, maintenance), "LinkStatuses.net.talos.dev", "network", "eth0"},
		{insecure(t, maintenance), "AddressStatuses.net.talos.dev", "network", "eth0/" + address + "/24"},
		{insecure(t, maintenance), "NodeAddresses.net.talos.dev", "network", "default"},
		{insecure(t, maintenance), "NodeAddresses.net.talos.dev", "network", "current"},
		{insecure(t, maintenance), "NodeAddresses.net.talos.dev", "network", "accumulative"},
		{insecure(t, maintenance), "NetworkStatuses.net.talos.dev", "network", "status"},
		{insecure(t, maintenance), "SystemInformations.hardware.talos.dev", "hardware", "systeminformation"},
		{insecure(t, maintenance), "SecurityStates.talos.dev", "runtime", "securitystate"},
		{insecure(t, maintenance), "Versions.runtime.talos.dev", "runtime", "version"},
		{insecure(t, maintenance), "KernelCmdlines.runtime.talos.dev", "runtime", "cmdline"},
		{insecure(t, maintenance), "PlatformMetadatas.talos.dev", "runtime", "platformmetadata"},
		{insecure(t, maintenance), "MachineTypes.config.talos.dev", "config", "machine-type"},
		{insecure(t, maintenance), "TimeStatuses.v1alpha1.talos.dev", "runtime", "node"},
		{insecure(t, maintenance), "Services.v1alpha1.talos.dev", "runtime", "apid"},
		{running, "SystemDisks.block.talos.dev", "runtime", "system-disk"},
		{running, "DiscoveredVolumes.block.talos.dev", "runtime", "vda1"},
		{running, "VolumeStatuses.block.talos.dev", "runtime", "META"},
		{running, "VolumeStatuses.block.talos.dev", "runtime", "STATE"},
		{running, "VolumeStatuses.block.talos.dev", "runtime", "EPHEMERAL"},
		{running, "HostnameStatuses.net.talos.dev", "network", "hostname"},
		{running, "Members.cluster.talos.dev", "cluster", "cp1"},
		{running, "EtcdMembers.etcd.talos.dev", "etcd", "local"},
		{running, "Services.v1alpha1.talos.dev", "runtime", "etcd"},
		{running, "StaticPodStatuses.kubernetes.talos.dev", "k8s", "kube-system/kube-apiserver-cp1"},
		{running, "Nodenames.kubernetes.talos.dev", "k8s", "nodename"},
	} {
		_, err := test.where.COSI.Get(deadline(t),
			resource.NewMetadata(test.namespace, test.kind, test.id, resource.VersionUndefined))
		require.NoError(t, err, "%s %s", test.kind, test.id)
	}

	for _, kind := range []string{"Diagnostics.runtime.talos.dev", "MetaKeys.runtime.talos.dev",
		"ExtensionStatuses.runtime.talos.dev"} {
		_, err := insecure(t, maintenance).COSI.List(deadline(t), kindOf("runtime", kind))
		require.NoError(t, err, kind)
	}
}

func TestClaim_1_23_TheActiveConfigIsThereAndThePersistentOneAfterAnApply(t *testing.T) {
	t.Parallel()

	cluster, _, c := ready(t, labcluster.Options{Endpoint: labcluster.FirstControlPlane})

	_, err := safe.StateGetByID[*config.MachineConfig](deadline(t), c.COSI, "persistent")
	require.True(t, state.IsNotFoundError(err), "a boot from the disk does not show it")

	_, err = apply(t, c, edited(t, cluster, "cp1", patchedSysctl("1")), modeNoReboot)
	require.NoError(t, err)

	for _, id := range []string{"v1alpha1", "persistent"} {
		found, err := safe.StateGetByID[*config.MachineConfig](deadline(t), c.COSI, id)
		require.NoError(t, err, id)
		require.Equal(t, "controlplane", found.Config().Machine().Type().String())
	}

	_, err = safe.StateGetByID[*config.MachineConfig](deadline(t), c.COSI, "maintenance")
	require.True(t, state.IsNotFoundError(err))
}

func TestClaim_4_11_OnlyRunningServicesAreResources(t *testing.T) {
	t.Parallel()

	cluster, node := waiting(t)
	c := secure(t, cluster.Talosconfig(), node)

	list, err := c.ServiceList(deadline(t))
	require.NoError(t, err)

	var running []string

	for _, service := range list.GetMessages()[0].GetServices() {
		if service.GetState() == "Running" {
			running = append(running, service.GetId())
		}
	}

	require.NotContains(t, running, "etcd")

	found, err := safe.StateListAll[*v1alpha1.Service](deadline(t), c.COSI)
	require.NoError(t, err)

	var resources []string
	for service := range found.All() {
		resources = append(resources, service.Metadata().ID())
	}

	slices.Sort(resources)
	require.Equal(t, running, resources)
}

func TestClaim_1_30_VolumesAreMissingBeforeAnInstall(t *testing.T) {
	t.Parallel()

	_, node := idle(t)
	c := insecure(t, node)

	for _, id := range []string{"META", "STATE"} {
		volume, err := safe.StateGetByID[*block.VolumeStatus](deadline(t), c.COSI, id)
		require.NoError(t, err)
		require.Equal(t, block.VolumePhaseMissing, volume.TypedSpec().Phase, id)
	}

	_, err := safe.StateGetByID[*block.VolumeStatus](deadline(t), c.COSI, "EPHEMERAL")
	require.True(t, state.IsNotFoundError(err))
}

func TestClaim_1_31_TheResourcesOfAControlPlaneAreFilled(t *testing.T) {
	t.Parallel()

	cluster, node := waiting(t)
	c := secure(t, cluster.Talosconfig(), node)

	name, err := safe.StateGetByID[*k8s.Nodename](deadline(t), c.COSI, k8s.NodenameID)
	require.NoError(t, err)
	require.NotEmpty(t, name.TypedSpec().HostnameVersion)

	manifests, err := safe.StateGetByID[*k8s.BootstrapManifestsConfig](deadline(t), c.COSI, k8s.BootstrapManifestsConfigID)
	require.NoError(t, err)
	require.Equal(t, "https://127.0.0.1:7445", manifests.TypedSpec().Server)
	require.Equal(t, "cluster.local", manifests.TypedSpec().ClusterDomain)
	require.Equal(t, []string{"10.244.0.0/16"}, manifests.TypedSpec().PodCIDRs)
	require.Equal(t, "10.96.0.10", manifests.TypedSpec().DNSServiceIP)
	require.True(t, manifests.TypedSpec().ProxyEnabled)
	require.Contains(t, manifests.TypedSpec().ProxyImage, "kube-proxy:v")
	require.True(t, manifests.TypedSpec().CoreDNSEnabled)
	require.Contains(t, manifests.TypedSpec().CoreDNSImage, "coredns:")
	require.False(t, manifests.TypedSpec().FlannelEnabled)
	require.Equal(t, "none", manifests.TypedSpec().CNIName)

	_, err = safe.StateGetByID[*runtimeres.UniqueMachineToken](deadline(t), c.COSI, runtimeres.UniqueMachineTokenID)
	require.NoError(t, err)
}
