package emulator_test

import (
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// alone114 is a control plane of Talos 1.14 in maintenance mode.
func alone114(t *testing.T) (*labcluster.Cluster, *client.Client) {
	t.Helper()

	cluster, node := alone(t, on114(labcluster.Options{}))

	return cluster, insecure(t, node)
}

func TestClaim_12_01_AllReasonsComeInOneList(t *testing.T) {
	t.Parallel()

	cluster, c := alone114(t)

	wrong := edited(t, cluster, "cp1", both(badSelector, func(c *v1alpha1.Config) { c.ClusterConfig.EtcdConfig = nil }))
	other := edited(t, cluster, "cp1", both(badSelector, wrongType))

	text := refusal(t, c, other)
	require.Contains(t, text, `unknown machine type "master"`)
	require.Contains(t, text, "no disks matched the expression", "of the running machine, in the same list")
	require.True(t, strings.HasPrefix(text, "2 errors occurred:\n\t* v1alpha1.Config: "), text)

	require.True(t, strings.HasPrefix(refusal(t, c, wrong), "1 error occurred:\n\t* v1alpha1.Config: 1 error occurred:"))

	_, older := idle(t)
	require.NotContains(t, refusal(t, insecure(t, older), other), "no disks matched")
}

func TestClaim_12_02_BrokenConfigsAreRefusedInOtherWords(t *testing.T) {
	t.Parallel()

	cluster, c := alone114(t)
	good, err := cluster.Config("cp1")
	require.NoError(t, err)

	for name, test := range map[string]struct{ data, want string }{
		"empty":  {"", `^config not found$`},
		"scalar": {"just text", `^expected a YAML document at line 1$`},
		"broken": {"machine: [a\nb: c",
			`^decode error: go-yaml load error in parser \(while parsing a flow sequence\) at L1\.C\d+-L2\.C\d+: ` +
				`did not find expected ',' or '\]'$`},
		"tab": {"machine:\n\ttype: worker",
			`^decode error: go-yaml load error in scanner \(while scanning for the next token\) at L2\.C1: ` +
				`found character that cannot start any token$`},
		"unknown key": {"version: v1alpha1\nmachine:\n  foo: bar\n",
			`^error decoding document /v1alpha1/ \(line 1\): unknown keys found during decoding:\nmachine:\n    foo: bar\n$`},
		"wrong types": {"version: v1alpha1\ndebug: [1]\npersist: [2]\n",
			`^error decoding document /v1alpha1/ \(line 1\): error decoding  to \*v1alpha1.Config: yaml: construct errors: ` +
				`line 2: cannot construct !!seq into bool; line 3: cannot construct !!seq into bool$`},
		"unknown kind": {string(good) + "\n---\napiVersion: v1alpha1\nkind: FooConfig\n",
			`^error decoding document v1alpha1/FooConfig/ \(line \d+\): "FooConfig" "v1alpha1": not registered$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			require.Regexp(t, test.want, refusal(t, c, []byte(test.data)))
		})
	}
}

func TestClaim_12_03_NullsAreRefusedWhereTheyWouldHarm(t *testing.T) {
	t.Parallel()

	cluster, c := alone114(t)

	require.Equal(t, `error decoding document /v1alpha1/ (line 1): null value is not allowed at "machine.disks[0]" (line 5)`,
		refusal(t, c, []byte("version: v1alpha1\nmachine:\n  type: worker\n  disks:\n    - null\n")))

	good, err := cluster.Config("cp1")
	require.NoError(t, err)

	withNulls := strings.Replace(string(good), "\nmachine:\n", "\nmachine:\n  sysctls: {vm.swappiness: null}\n", 1)
	require.NotEqual(t, string(good), withNulls)
	require.Empty(t, refusal(t, c, []byte(withNulls)))
}

// withKubernetes makes a control plane run a version of Kubernetes.
func withKubernetes(version string) func(*v1alpha1.Config) {
	return func(c *v1alpha1.Config) {
		c.MachineConfig.MachineKubelet.KubeletImage = "ghcr.io/siderolabs/kubelet:v" + version
		c.ClusterConfig.APIServerConfig.ContainerImage = "registry.k8s.io/kube-apiserver:v" + version
		c.ClusterConfig.ControllerManagerConfig.ContainerImage = "registry.k8s.io/kube-controller-manager:v" + version
		c.ClusterConfig.SchedulerConfig.ContainerImage = "registry.k8s.io/kube-scheduler:v" + version
	}
}

func TestClaim_12_04_ItTakesKubernetes132To137(t *testing.T) {
	t.Parallel()

	cluster, c := alone114(t)

	for version, want := range map[string]string{
		"1.31.9": "too old to be used with Talos 1.14.1", "1.32.0": "", "1.37.4": "",
		"1.38.0": "too new to be used with Talos 1.14.1",
	} {
		text := refusal(t, c, edited(t, cluster, "cp1", withKubernetes(version)))

		if want == "" {
			require.Empty(t, text, version)

			continue
		}

		for _, image := range []string{"kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			require.Contains(t, text, "* "+image+" image is not valid: version of Kubernetes "+version+" is "+want)
		}
	}
}

const (
	flannelDocument = "\n---\napiVersion: v1alpha1\nkind: KubeFlannelCNIConfig\n"
	coreDNSDocument = "\n---\napiVersion: v1alpha1\nkind: KubeCoreDNSConfig\n"
)

func TestClaim_12_05_WorkersRefuseDocumentsOfControlPlanes(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, on114(labcluster.Options{ControlPlanes: 1, Workers: 1}))
	node := cluster.Node("worker1")
	waitStage(t, node, "maintenance")

	data, err := cluster.Config("worker1")
	require.NoError(t, err)

	require.Contains(t, refusal(t, insecure(t, node), []byte(string(data)+flannelDocument+coreDNSDocument)),
		"the following document kinds are only allowed on control plane machines: [KubeCoreDNSConfig KubeFlannelCNIConfig]")
}

func TestClaim_12_06_OlderReleasesKnowNeitherItsKindsNorItsFields(t *testing.T) {
	t.Parallel()

	const (
		field   = "\n---\napiVersion: v1alpha1\nkind: TimeSyncConfig\nntp:\n  servers: [time.example]\n  useNTS: true\n"
		listed  = "\n---\napiVersion: v1alpha1\nkind: ResolverConfig\nnameservers:\n  - address: 192.0.2.1\n    protocol: Do53\n"
		volume  = "\n---\napiVersion: v1alpha1\nkind: VolumeConfig\nname: ETCD\nprovisioning:\n  minSize: 10GiB\n"
		install = "\n---\napiVersion: v1alpha1\nkind: UnattendedInstallConfig\n"
	)

	cluster, older := idle(t)
	_, newer := alone114(t)

	good, err := cluster.Config("cp1")
	require.NoError(t, err)

	for name, test := range map[string]struct{ document, want string }{
		"a kind": {install, `^error decoding document v1alpha1/UnattendedInstallConfig/ \(line \d+\): ` +
			`"UnattendedInstallConfig" "v1alpha1": not registered$`},
		"a volume": {volume, `\t\* VolumeConfig/ETCD: only \["STATE" "EPHEMERAL" "IMAGECACHE"\] volumes are supported\n`},
		"a field":  {field, `unknown keys found during decoding:\nntp:\n    useNTS: true\n$`},
		"a field in a list": {listed,
			`unknown keys found during decoding:\nnameservers:\n    - protocol: Do53\n$`},
	} {
		data := []byte(string(good) + test.document)

		require.Regexp(t, test.want, refusal(t, insecure(t, older), data), name)
		require.NotRegexp(t, test.want, refusal(t, newer, data), name)
	}
}

// kubeSpanAlone turns KubeSpan on, and off what it needs.
func kubeSpanAlone(c *v1alpha1.Config) {
	c.MachineConfig.MachineNetwork = &v1alpha1.NetworkConfig{ //nolint:staticcheck // the old form
		NetworkKubeSpan: &v1alpha1.NetworkKubeSpan{KubeSpanEnabled: new(true)}, //nolint:staticcheck // as above
	}
	c.ClusterConfig.ClusterDiscoveryConfig = nil //nolint:staticcheck // as above
}

// staged stages a config on a machine that others may ask just now, which takes one at a time.
func staged(t *testing.T, c *client.Client, data []byte) *machineapi.ApplyConfiguration {
	t.Helper()

	var reply *machineapi.ApplyConfiguration

	eventually(t, func() (err error) {
		reply, err = apply(t, c, data, modeStaged)

		return err
	})

	return reply
}

func TestClaim_12_07_OlderReleasesDemandWhatItDoesNot(t *testing.T) {
	t.Parallel()

	cluster, node := idle(t)
	older := insecure(t, node)
	_, newer := alone114(t)

	for name, test := range map[string]struct {
		change       func(*v1alpha1.Config)
		older, newer string
	}{
		"a disk to install to": {func(c *v1alpha1.Config) { c.MachineConfig.MachineInstall = nil },
			`install instructions are required in "metal" mode`, ""},
		"the cluster's endpoint": {func(c *v1alpha1.Config) { c.ClusterConfig.ControlPlane = nil },
			"* cluster controlplane endpoint is required\n",
			"cluster name and endpoint are required when Kubernetes is configured"},
		"a secret for etcd": {func(c *v1alpha1.Config) { c.ClusterConfig.ClusterSecretboxEncryptionSecret = "" },
			"", "etcd encryption config is required for control plane machines running kube-apiserver"},
		"a secret for discovery": {func(c *v1alpha1.Config) { c.ClusterConfig.ClusterSecret = "" },
			"1 error occurred:\n\t* cluster discovery service requires .cluster.secret\n",
			"cluster secret (.cluster.secret or DiscoveryIdentityConfig) should be set"},
		"discovery for KubeSpan": {kubeSpanAlone,
			"* .cluster.discovery should be enabled when .machine.network.kubespan is enabled\n",
			"* KubeSpan requires cluster discovery to be enabled\n"},
	} {
		data := edited(t, cluster, "cp1", test.change)

		for want, c := range map[string]*client.Client{test.older: older, test.newer: newer} {
			if text := refusal(t, c, data); want == "" {
				require.Empty(t, text, name)
			} else {
				require.Contains(t, text, want, name)
			}
		}
	}

	data := edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
		c.MachineConfig.MachineFiles = []*v1alpha1.MachineFile{{FilePath: "/var/a", FileOp: "create"}} //nolint:staticcheck // it warns
	})

	require.Empty(t, staged(t, older, data).GetWarnings())
	require.Contains(t, staged(t, newer, data).GetWarnings(),
		".machine.files is deprecated; use dedicated configuration documents instead")
}

func TestClaim_12_08_ACustomCNIReadsAsNone(t *testing.T) {
	t.Parallel()

	for cni, want := range map[string]string{
		constants.FlannelCNI: constants.FlannelCNI, constants.CustomCNI: constants.NoneCNI,
		constants.NoneCNI: constants.NoneCNI,
	} {
		t.Run(cni, func(t *testing.T) {
			t.Parallel()

			cluster, node := alone(t, labcluster.Options{CNI: cni, Edit: func(o *emulator.NodeOptions) {
				o.TalosVersion, o.Installed = talos114, true
			}})
			applyOwn(t, cluster, "cp1")

			c := secure(t, cluster.Talosconfig(), node)

			eventually(t, func() error {
				manifests, err := safe.StateGetByID[*k8s.BootstrapManifestsConfig](deadline(t), c.COSI,
					k8s.BootstrapManifestsConfigID)
				if err != nil {
					return err
				}

				require.Equal(t, want, manifests.TypedSpec().CNIName)
				require.Equal(t, want == constants.FlannelCNI, manifests.TypedSpec().FlannelEnabled)

				return nil
			})
		})
	}
}
