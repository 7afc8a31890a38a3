package emulator_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/documents"
)

const criVolumes = "volumes /var/lib, /var/lib/cni, CRI, /var/run, /var/run/lock, /opt to be mounted"

// serviceNames are the services that a machine lists.
func serviceNames(t *testing.T, c *client.Client) []string {
	t.Helper()

	list, err := c.ServiceList(deadline(t))
	require.NoError(t, err)

	var names []string
	for _, service := range list.GetMessages()[0].GetServices() {
		names = append(names, service.GetId())
	}

	return names
}

// unready is what keeps a machine from being ready; empty if it is.
func unready(t *testing.T, c *client.Client) string {
	t.Helper()

	var status *runtimeres.MachineStatus

	eventually(t, func() (err error) {
		status, err = safe.StateGetByID[*runtimeres.MachineStatus](deadline(t), c.COSI, runtimeres.MachineStatusID)

		return err
	})

	var reasons []string
	for _, condition := range status.TypedSpec().Status.UnmetConditions {
		reasons = append(reasons, condition.Name+": "+condition.Reason)
	}

	return strings.Join(reasons, "; ")
}

func TestClaim_11_14_TheContainerRuntimeWaitsInMaintenance(t *testing.T) {
	t.Parallel()

	_, node := alone(t, on114(labcluster.Options{}))
	c := insecure(t, node)

	require.Equal(t, []string{"apid", "auditd", "containerd", "cri", "dashboard", "machined", "syslogd", "udevd"},
		serviceNames(t, c))

	cri := serviceInfo(t, c, "cri")
	require.Equal(t, "Waiting", cri.GetState())
	require.Equal(t, []string{"Starting: Starting service", "Waiting: Waiting for " + criVolumes + ", network"},
		history(cri))
	require.Empty(t, unready(t, c))
}

func TestClaim_11_15_ContainersCanRunInASandbox(t *testing.T) {
	t.Parallel()

	sandbox := `Waiting: Waiting for ` + criVolumes + `, service "sandboxd" to be "up"`

	for name, test := range map[string]struct {
		edits   []documents.Edit
		knows   bool
		present bool
	}{
		"wanted":               {present: true},
		"wanted, and named":    {present: true, knows: true},
		"not wanted":           {edits: []documents.Edit{documents.NoIsolation}, knows: true},
		"not wanted, silently": {edits: []documents.Edit{documents.NoIsolation}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			options := labcluster.Options{LabOptions: emulator.LabOptions{
				Unsettled: emulator.Unsettled{CRIKnowsConfig: test.knows},
			}}
			_, _, c := unattended(t, options, append(test.edits, noReboot)...)
			awaitInstall(t, c, "installed")
			eventually(t, func() error { return until(serviceInfo(t, c, "cri").GetHealth().GetHealthy()) })

			require.Equal(t, test.present, slices.Contains(serviceNames(t, c), "sandboxd"))

			lines := strings.Join(history(serviceInfo(t, c, "cri")), "\n")
			require.Equal(t, test.present && test.knows, strings.Contains(lines, sandbox), lines)
			require.Equal(t, test.knows, strings.Contains(lines, "unattended install"), lines)

			if test.present {
				require.True(t, serviceInfo(t, c, "sandboxd").GetHealth().GetHealthy())
			}
		})
	}
}

func TestClaim_11_16_AMachineIsAskedForWhatItsConfigHas(t *testing.T) {
	t.Parallel()

	_, node := alone(t, on114(labcluster.Options{}))
	told := statuses(t, insecure(t, node), inStage(machineapi.MachineStatusEvent_MAINTENANCE))

	var asked []string
	for _, status := range told {
		asked = append(asked, reasons(status)...)
	}

	require.Contains(t, strings.Join(asked, "; "), "apid not running, machined not running")
	require.NotContains(t, strings.Join(asked, "; "), "kubelet")
}

func TestClaim_11_17_WithoutAnEtcdCAThereIsNoEtcd(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, on114(labcluster.Options{}))
	_, err := apply(t, insecure(t, node), edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
		c.ClusterConfig.EtcdConfig = nil
	}), modeAuto)
	require.NoError(t, err)
	installed(t, node)

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error {
		err := bootstrap(t, c)

		return until(client.StatusCode(err) == codes.InvalidArgument)
	})
	requireStatus(t, bootstrap(t, c), codes.InvalidArgument, "etcd is not configured, bootstrap is not possible")
	waitStage(t, node, "running")
	require.NotContains(t, serviceNames(t, c), "etcd")
	require.Contains(t, unready(t, c), "services: etcd not running")
}

func TestClaim_11_18_WithoutAClusterNetworkThereIsNoKubelet(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, on114(labcluster.Options{}))
	_, err := apply(t, insecure(t, node), edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
		c.ClusterConfig.ClusterNetwork = nil
	}), modeAuto)
	require.NoError(t, err)
	installed(t, node)

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
	waitStage(t, node, "running")
	eventually(t, func() error { return until(serviceInfo(t, c, "etcd").GetHealth().GetHealthy()) })

	require.NotContains(t, serviceNames(t, c), "kubelet")
	require.Contains(t, unready(t, c), "services: kubelet not running")
	require.NotContains(t, unready(t, c), "staticPods")
}

func TestClaim_11_19_ABootMayNotWaitForKubelet(t *testing.T) {
	t.Parallel()

	for name, late := range map[string]bool{"kubelet is known": false, "kubelet comes late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster, node := alone(t, on114(labcluster.Options{
				LabOptions: emulator.LabOptions{Unsettled: emulator.Unsettled{KubeletAfterBoot: late}},
				Edit:       func(o *emulator.NodeOptions) { o.Faults.KubeletDown = true },
			}))
			applyOwn(t, cluster, "cp1")
			installed(t, node)

			c := secure(t, cluster.Talosconfig(), node)
			eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
			eventually(t, func() error { return until(serviceInfo(t, c, "etcd").GetHealth().GetHealthy()) })

			if late {
				waitStage(t, node, "running")
			} else {
				require.Equal(t, "booting", node.Stage())
			}
		})
	}
}

func TestClaim_11_20_SequencesHaveOtherPhases(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, on114(leisurely(labcluster.Options{})))
	applyOwn(t, cluster, "cp1")
	installed(t, node)

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })
	eventually(t, func() error { return until(strings.Contains(console(node), "phase startEverything (9/9)")) })

	events := follow(t, c)

	reply, err := c.RebootWithResponse(deadline(t))
	require.NoError(t, err)
	require.Equal(t, []string{
		"cleanup", "preShutdown", "dbus", "denyNewServices", "stopContainers", "stopServices", "umount", "unmountBind",
		"unmountPromotable", "unmountSystem", "volumeFinalize", "stopEverything",
	}, phasesIn(events.of(t, reply.GetMessages()[0].GetActorId())))

	rebooted(t, node, 3)
	eventually(t, func() error { return until(strings.Contains(console(node), "phase startEverything (9/9)")) })

	text := console(node)
	for _, phase := range []string{
		"systemRequirements (1/5)", "earlyServices (2/5)", "meta (3/5)", "dashboard (4/5)", "config (5/5)",
		"ephemeral (5/9)", "promotableVolumes (6/9)", "userDisks (7/9)", "userSetup (8/9)",
	} {
		require.Contains(t, text, "phase "+phase)
	}
}

// withoutKubernetes is what remains of documents if all that are about Kubernetes are left out, and etcd with them.
func withoutKubernetes(t *testing.T, data []byte) []byte {
	t.Helper()

	var kept []string

	for _, document := range strings.Split(string(data), "\n---\n") {
		if !strings.Contains(document, "\nkind: Kube") {
			kept = append(kept, document)
		}
	}

	provider, err := configloader.NewFromBytes([]byte(strings.Join(kept, "\n---\n")))
	require.NoError(t, err)

	less, err := provider.PatchV1Alpha1(func(c *v1alpha1.Config) error {
		c.ClusterConfig.EtcdConfig = nil

		return nil
	})
	require.NoError(t, err)

	text, err := less.Bytes()
	require.NoError(t, err)

	return text
}

func TestClaim_11_21_AMachineNeedsNoKubernetes(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, on114(labcluster.Options{}))
	_, err := apply(t, insecure(t, node), withoutKubernetes(t, inDocuments(t, cluster, "cp1")), modeAuto)
	require.NoError(t, err)
	installed(t, node)

	c := secure(t, cluster.Talosconfig(), node)
	waitStage(t, node, "running")
	require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).Ready))
	require.Empty(t, unready(t, c))

	for _, id := range []string{"etcd", "kubelet"} {
		require.NotContains(t, serviceNames(t, c), id)
	}

	requireStatus(t, bootstrap(t, c), codes.InvalidArgument, "etcd is not configured, bootstrap is not possible")
}
