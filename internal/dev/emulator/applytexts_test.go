package emulator_test

import (
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// refusal is why a machine does not take a config; empty if it does.
func refusal(t *testing.T, c *client.Client, data []byte) string {
	t.Helper()

	var text string

	// Others may ask the same machine just now, which takes one at a time.
	eventually(t, func() error {
		_, err := c.ApplyConfiguration(deadline(t),
			&machineapi.ApplyConfigurationRequest{Data: data, Mode: modeAuto, DryRun: true})

		switch client.StatusCode(err) {
		case codes.FailedPrecondition:
			return err
		case codes.OK:
			text = ""
		default:
			require.Equal(t, codes.InvalidArgument, client.StatusCode(err), "%v", err)

			text = client.Status(err).Message()
		}

		return nil
	})

	return text
}

func TestClaim_2_01_BrokenConfigsAreRefusedWithTheLoadersText(t *testing.T) {
	t.Parallel()

	cluster, node := idle(t)
	c := insecure(t, node)
	good, err := cluster.Config("cp1")
	require.NoError(t, err)

	for name, test := range map[string]struct{ data, want string }{
		"empty":  {"", `^config not found$`},
		"scalar": {"just text", `^expected a YAML document at line 1$`},
		"broken": {"machine: [a\nb: c",
			`^decode error: yaml: while parsing a flow sequence at .*: did not find expected ',' or ']'$`},
		"tab": {"machine:\n\ttype: worker",
			`^decode error: yaml: while scanning for the next token at line 2.*: found character that cannot start any token$`},
		"unknown key": {"version: v1alpha1\nmachine:\n  foo: bar\n",
			`^error decoding document /v1alpha1/ \(line 1\): unknown keys found during decoding:\nmachine:\n    foo: bar\n$`},
		"wrong type": {
			"version: v1alpha1\ndebug: [1]\n",
			`^error decoding document /v1alpha1/ \(line 1\): error decoding  to \*v1alpha1.Config: yaml: construct errors:\n  line 2: cannot construct !!seq into bool$`,
		},
		"unknown kind": {
			string(good) + "\n---\napiVersion: v1alpha1\nkind: FooConfig\n",
			`^error decoding document v1alpha1/FooConfig/ \(line \d+\): "FooConfig" "v1alpha1": not registered$`,
		},
		"document without a kind": {string(good) + "\n---\nfoo: bar\n",
			`^duplicate document /v1alpha1/ is not allowed \(line \d+\)$`},
		"endpoint without a scheme": {
			"version: v1alpha1\ncluster:\n  controlPlane:\n    endpoint: 10.0.0.10:6443\n",
			`line \d+: parse "10.0.0.10:6443": first path segment in URL cannot contain colon$`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			require.Regexp(t, test.want, refusal(t, c, []byte(test.data)))
		})
	}
}

func TestClaim_2_02_InvalidConfigsAreRefusedWithAllReasons(t *testing.T) {
	t.Parallel()

	cluster, node := idle(t)
	c := insecure(t, node)

	install := func(change func(*v1alpha1.InstallConfig)) func(*v1alpha1.Config) {
		return func(c *v1alpha1.Config) { change(c.MachineConfig.MachineInstall) }
	}

	selector := func(selector v1alpha1.InstallDiskSelector) func(*v1alpha1.Config) {
		return install(func(i *v1alpha1.InstallConfig) { i.InstallDisk, i.InstallDiskSelector = "", &selector })
	}

	const (
		one  = "1 error occurred:\n\t* v1alpha1.Config: 1 error occurred:\n\t* "
		tail = "\n\n\n\n"
	)

	for name, test := range map[string]struct {
		change func(*v1alpha1.Config)
		want   string
	}{
		"unknown type": {wrongType,
			"1 error occurred:\n\t* v1alpha1.Config: 3 errors occurred:\n\t* etcd config is only allowed on control plane " +
				"machines\n\t* " +
				"cluster CA key is not allowed on non-controlplane nodes (.cluster.ca)\n\t* unknown machine type " +
				"\"master\"\n\n\n\n"},
		"a control plane's secrets on a worker": {
			func(c *v1alpha1.Config) { c.MachineConfig.MachineType = "worker" },
			"1 error occurred:\n\t* v1alpha1.Config: 4 errors occurred:\n\t* etcd config is only allowed on control plane " +
				"machines\n\t* " +
				"cluster CA key is not allowed on non-controlplane nodes (.cluster.ca)\n\t* issuing Talos API CA key is not " +
				"allowed on non-controlplane nodes (.machine.ca)\n\t* " +
				"issuing Kubernetes API CA key is not allowed on non-controlplane nodes (.cluster.ca)\n\n\n\n",
		},
		"arguments of two kinds": {
			install(func(i *v1alpha1.InstallConfig) {
				yes := true
				i.InstallExtraKernelArgs, i.InstallGrubUseUKICmdline = []string{"a=b"}, &yes
			}),
			one + "install.extraKernelArgs and install.grubUseUKICmdline can't be used together" + tail,
		},
		"a selector that matches nothing": {
			selector(v1alpha1.InstallDiskSelector{Model: "NOPE*"}),
			one + `no disks matched the expression: glob("NOPE*", disk.model) && disk.transport != "" && !disk.readonly && !disk.cdrom` + tail,
		},
		"a type of disk that there is not": {selector(v1alpha1.InstallDiskSelector{Type: "floppy"}),
			`install disk selector is invalid: unsupported disk type "floppy"`},
		"a selector by name": {selector(v1alpha1.InstallDiskSelector{Name: "vda"}),
			"install disk selector is invalid: selector on name is not supported"},
		"no install section": {
			func(c *v1alpha1.Config) { c.MachineConfig.MachineInstall = nil },
			`install instructions are required in "metal" mode`,
		},
		"a kubelet that is too old": {oldKubelet,
			"kubelet image is not valid: version of Kubernetes 1.10.0 is too old to be used with Talos 1.13.9"},
		"two static names": {
			func(c *v1alpha1.Config) {
				c.MachineConfig.MachineNetwork = &v1alpha1.NetworkConfig{NetworkHostname: "other"}
			},
			"1 error occurred:\n\t* static hostname is already set in v1alpha1 config\n\n",
		},
		"a disk that there is not": {install(func(i *v1alpha1.InstallConfig) { i.InstallDisk = "/dev/nope" }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			text := refusal(t, c, edited(t, cluster, "cp1", test.change))

			if test.want == "" {
				require.Empty(t, text, "found out by the installer")

				return
			}

			require.Contains(t, text, test.want)
		})
	}

	t.Run("two kinds of host name", func(t *testing.T) {
		t.Parallel()

		require.Equal(t, "1 error occurred:\n\t* HostnameConfig: 'auto' and 'hostname' cannot be set at the same time\n\n",
			refusal(t, c, []byte(conflictingNames)))
	})
}

func TestClaim_2_25_AConfigWithoutAMachineTypeIsAWorkers(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{ControlPlanes: 1, Endpoint: labcluster.FirstControlPlane})

	_, err := apply(t, insecure(t, node), edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
		c.MachineConfig.MachineType = ""
		c.ClusterConfig.EtcdConfig, c.ClusterConfig.ClusterCA.Key = nil, nil
		c.MachineConfig.MachineCA.Key = nil
	}), modeAuto)
	require.NoError(t, err)
	require.NoError(t, node.WaitFor(deadline(t),
		func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "running" }))
}

func TestClaim_2_26_PatchesOfTheOldKindDoNotFitGeneratedConfigs(t *testing.T) {
	t.Parallel()

	cluster, _ := idle(t)
	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	patches, err := configpatcher.LoadPatches(
		[]string{`[{"op": "replace", "path": "/machine/install/disk", "value": "/dev/sdb"}]`})
	require.NoError(t, err)

	_, err = configpatcher.Apply(configpatcher.WithBytes(data), patches)
	require.ErrorContains(t, err, "JSON6902 patches are not supported for multi-document machine configuration")
}

func TestClaim_2_27_WarningsComeWithTheAnswer(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Installed, o.UKI = true, true }})

	old := edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
		c.MachineConfig.MachineInstall.InstallExtensions = []v1alpha1.InstallExtensionConfig{
			{ExtensionImage: "ghcr.io/siderolabs/iscsi-tools:v0.2.0"}}
		c.MachineConfig.MachineInstall.InstallExtraKernelArgs = []string{"a=b"}
	})

	dry, err := insecure(t, node).ApplyConfiguration(deadline(t),
		&machineapi.ApplyConfigurationRequest{Data: old, Mode: modeAuto, DryRun: true})
	require.NoError(t, err)
	require.Empty(t, dry.GetMessages()[0].GetWarnings(), "but not with that to a dry run")

	reply, err := apply(t, insecure(t, node), old, modeAuto)
	require.NoError(t, err)

	const deprecated = ".machine.install.extensions is deprecated, please see " +
		"https://docs.siderolabs.com/talos/latest/platform-specific-installations/boot-assets"

	require.Equal(t, []string{deprecated, "extra kernel arguments are not supported when booting using SDBoot",
		deprecated}, reply.GetWarnings(),
		"both validations warn")
}

func TestClaim_2_28_TheFirstDiskThatASelectorMatchesIsInstalledTo(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) {
		o.Disks = []emulator.Disk{
			{Name: "sda", Size: 20_000_000_000, Transport: "sata"}, {Name: "sdb", Size: 200_000_000_000, Transport: "sata"},
			{Name: "sdc", Size: 300_000_000_000, Transport: "sata"},
		}
	}})

	size := &v1alpha1.InstallDiskSizeMatcher{}
	require.NoError(t, size.UnmarshalYAML(func(into any) error { *into.(*string) = ">= 100GB"; return nil }))

	_, err := apply(t, insecure(t, node), edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
		c.MachineConfig.MachineInstall.InstallDisk = ""
		c.MachineConfig.MachineInstall.InstallDiskSelector = &v1alpha1.InstallDiskSelector{Size: size}
	}), modeAuto)
	require.NoError(t, err)
	installed(t, node)

	c := secure(t, cluster.Talosconfig(), node)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })
	require.Equal(t, "sdb", systemDisk(t, c))
}

// systemDisk is the disk that Talos is on.
func systemDisk(t *testing.T, c *client.Client) string {
	t.Helper()

	found, err := safe.StateGetByID[*block.SystemDisk](deadline(t), c.COSI, block.SystemDiskID)
	require.NoError(t, err)

	return found.TypedSpec().DiskID
}
