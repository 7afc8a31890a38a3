package nodes_test

import (
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// nodeTest spoils the fixture or the facts of cp1 and says what is found.
type nodeTest struct {
	spoil    func(*testing.T, *fixture, *check.Facts)
	id       diagnosis.ID
	severity diagnosis.Severity
	// cause is part of the finding's cause, next of what to do.
	cause, next string
}

func runNodeTests(t *testing.T, tests map[string]nodeTest) {
	t.Helper()

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f, facts := newFixture(t), goodFacts()
			test.spoil(t, f, &facts)

			findings := f.checkNode(t, "cp1", facts)
			finding := the(t, findings, test.id)

			require.Equal(t, test.severity.String(), finding.Severity.String(), finding.Cause)
			require.Contains(t, finding.Cause, test.cause)
			require.Contains(t, finding.Next, test.next)

			if test.severity == diagnosis.Failure {
				require.Equal(t, []diagnosis.ID{test.id}, failures(findings), "%+v", findings)
				require.Equal(t, diagnosis.ExitPreflight, finding.ExitCode())
				require.NotEmpty(t, finding.Next)
			} else {
				require.Empty(t, failures(findings), "%+v", findings)
			}
		})
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()

	runNodeTests(t, map[string]nodeTest{
		"another patch level": {
			spoil: func(_ *testing.T, _ *fixture, facts *check.Facts) { facts.Version = "v1.13.2" },
			id:    diagnosis.TalosVersionMismatch, severity: diagnosis.OK, cause: "v1.13.2",
		},
		"pre-release of the same minor": {
			spoil: func(_ *testing.T, _ *fixture, facts *check.Facts) { facts.Version = "v1.13.0-beta.1" },
			id:    diagnosis.TalosVersionMismatch, severity: diagnosis.OK,
		},
		"config older than the node": {
			spoil: func(t *testing.T, f *fixture, _ *check.Facts) {
				f.cluster.TalosVersion = "v1.12.1"
				f.patch(t, "cp1", func(config *v1alpha1.Config) {
					config.MachineConfig.MachineInstall.InstallImage = clusterfiles.DefaultImage + ":v1.12.1"
				})
			},
			id: diagnosis.TalosVersionMismatch, severity: diagnosis.Warning, cause: "made for the older v1.12",
			next: "set talosVersion to v1.13",
		},
		"nothing declared, image older": {
			spoil: func(t *testing.T, f *fixture, _ *check.Facts) {
				f.cluster.TalosVersion = ""
				f.patch(t, "cp1", func(config *v1alpha1.Config) {
					config.MachineConfig.MachineInstall.InstallImage = clusterfiles.DefaultImage + ":v1.12.1"
				})
			},
			id: diagnosis.TalosVersionMismatch, severity: diagnosis.Warning, cause: "installer image v1.12.1",
		},
		"nothing says a version": {
			spoil: func(t *testing.T, f *fixture, _ *check.Facts) {
				f.cluster.TalosVersion = ""
				f.patch(t, "cp1", func(config *v1alpha1.Config) { config.MachineConfig.MachineInstall.InstallImage = "" })
			},
			id: diagnosis.TalosVersionMismatch, severity: diagnosis.OK, cause: "runs Talos v1.13.9",
		},
		"Kubernetes too new for the node": {
			spoil: func(t *testing.T, f *fixture, _ *check.Facts) {
				f.patch(t, "cp1", func(config *v1alpha1.Config) {
					config.MachineConfig.MachineKubelet.KubeletImage = "ghcr.io/siderolabs/kubelet:v1.99.0"
				})
			},
			id: diagnosis.KubernetesUnsupported, severity: diagnosis.Failure, cause: "too new", next: "kubernetesVersion",
		},
		"Kubernetes too old for the node": {
			spoil: func(t *testing.T, f *fixture, _ *check.Facts) {
				f.patch(t, "cp1", func(config *v1alpha1.Config) {
					config.MachineConfig.MachineKubelet.KubeletImage = "ghcr.io/siderolabs/kubelet:v1.10.0"
				})
			},
			id: diagnosis.KubernetesUnsupported, severity: diagnosis.Failure, cause: "too old",
		},
		"API server too new for the node": {
			spoil: func(t *testing.T, f *fixture, _ *check.Facts) {
				f.patch(t, "cp1", func(config *v1alpha1.Config) {
					config.ClusterConfig.APIServerConfig.ContainerImage = "registry.k8s.io/kube-apiserver:v1.99.0"
				})
			},
			id: diagnosis.KubernetesUnsupported, severity: diagnosis.Failure, cause: "1.99.0",
		},
		"Talos that this program does not know": {
			spoil: func(_ *testing.T, f *fixture, facts *check.Facts) {
				f.cluster.TalosVersion = "v1.99.0"
				facts.Version = "v1.99.0"
			},
			id: diagnosis.KubernetesUnsupported, severity: diagnosis.Warning, cause: "can't tell",
		},
	})
}

func TestConfigNewerThanTheNodeIsRefused(t *testing.T) {
	t.Parallel()

	for name, spoil := range map[string]func(*fixture){
		"declared":      func(*fixture) {},
		"by its fields": func(f *fixture) { f.cluster.TalosVersion = "v1.11.6" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f, facts := newFixture(t), goodFacts()
			spoil(f)

			facts.Version = "v1.11.6"

			finding := the(t, f.checkNode(t, "cp1", facts), diagnosis.TalosVersionMismatch)

			require.Equal(t, diagnosis.Failure, finding.Severity, finding.Cause)
			require.Contains(t, finding.Cause, "the node runs Talos v1.11.6")
			require.Contains(t, finding.Next, "boot the node from a v1.1")
			require.Contains(t, finding.Next, "set talosVersion to v1.11")
		})
	}
}

func TestSecureBoot(t *testing.T) {
	t.Parallel()

	secureImage := func(t *testing.T, f *fixture) {
		t.Helper()

		f.patch(t, "cp1", func(config *v1alpha1.Config) {
			config.MachineConfig.MachineInstall.InstallImage = strings.Replace(clusterfiles.DefaultImage, "metal-installer",
				"metal-installer-secureboot", 1) + ":v1.13.9"
		})
	}

	runNodeTests(t, map[string]nodeTest{
		"ordinary image on a SecureBoot machine": {
			spoil: func(_ *testing.T, _ *fixture, facts *check.Facts) {
				facts.Security = &talos.Security{SecureBoot: true, UKI: true}
			},
			id: diagnosis.InstallerSecureBoot, severity: diagnosis.Failure, cause: "not boot again", next: "-secureboot",
		},
		"SecureBoot image on an ordinary machine": {
			spoil: func(t *testing.T, f *fixture, _ *check.Facts) { secureImage(t, f) },
			id:    diagnosis.InstallerSecureBoot, severity: diagnosis.Failure, cause: "without SecureBoot",
			next: "enable SecureBoot",
		},
		"SecureBoot on both sides": {
			spoil: func(t *testing.T, f *fixture, facts *check.Facts) {
				secureImage(t, f)

				facts.Security = &talos.Security{SecureBoot: true, UKI: true}
			},
			id: diagnosis.InstallerSecureBoot, severity: diagnosis.OK,
		},
		"mismatch on a machine that does not install": {
			spoil: func(_ *testing.T, _ *fixture, facts *check.Facts) {
				facts.Security = &talos.Security{SecureBoot: true, UKI: true}
				facts.Installed, facts.SystemDisk = true, "/dev/vda"
			},
			id: diagnosis.InstallerSecureBoot, severity: diagnosis.Warning,
		},
	})
}

func TestDiskKeysInATPM(t *testing.T) {
	t.Parallel()

	sealed := func(t *testing.T, f *fixture) {
		t.Helper()

		//nolint:staticcheck // the old field is what most files have
		f.patch(t, "cp1", func(config *v1alpha1.Config) {
			config.MachineConfig.MachineSystemDiskEncryption = &v1alpha1.SystemDiskEncryptionConfig{
				StatePartition: &v1alpha1.EncryptionConfig{
					EncryptionKeys: []*v1alpha1.EncryptionKey{{KeyTPM: &v1alpha1.EncryptionKeyTPM{}}},
				},
			}
		})
	}

	for name, test := range map[string]struct {
		security talos.Security
		severity diagnosis.Severity
		cause    string
	}{
		"neither SecureBoot nor UKI": {talos.Security{}, diagnosis.Warning, "without SecureBoot and a unified kernel image"},
		"UKI without SecureBoot":     {talos.Security{UKI: true}, diagnosis.Warning, "without SecureBoot:"},
		"SecureBoot and UKI":         {talos.Security{SecureBoot: true, UKI: true}, diagnosis.OK, "TPM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f, facts := newFixture(t), goodFacts()
			sealed(t, f)

			facts.Security = &test.security

			finding := the(t, f.checkNode(t, "cp1", facts), diagnosis.TPMUnsealed)

			require.Equal(t, test.severity, finding.Severity)
			require.Contains(t, finding.Cause, test.cause)
		})
	}
}

func TestConfigThatOnlyThisMachineRefuses(t *testing.T) {
	t.Parallel()

	clash := func(t *testing.T, f *fixture) {
		t.Helper()

		f.patch(t, "cp1", func(config *v1alpha1.Config) {
			config.MachineConfig.MachineInstall.InstallExtraKernelArgs = []string{"quiet"} //nolint:staticcheck // what is tested
			config.MachineConfig.MachineInstall.InstallGrubUseUKICmdline = new(true)
		})
	}

	runNodeTests(t, map[string]nodeTest{
		"a bare machine": {
			spoil: func(t *testing.T, f *fixture, _ *check.Facts) { clash(t, f) },
			id:    diagnosis.ConfigRefusedHere, severity: diagnosis.Failure, cause: "can't be used together",
			next: "config:generate",
		},
		"an installed machine": {
			spoil: func(t *testing.T, f *fixture, facts *check.Facts) {
				clash(t, f)

				facts.Installed, facts.SystemDisk = true, "/dev/vda"
			},
			id: diagnosis.ConfigRefusedHere, severity: diagnosis.OK,
		},
		"a bare machine without install section": {
			spoil: func(t *testing.T, f *fixture, _ *check.Facts) {
				f.patch(t, "cp1", func(config *v1alpha1.Config) { config.MachineConfig.MachineInstall = nil })
			},
			id: diagnosis.ConfigRefusedHere, severity: diagnosis.Failure, cause: "nothing says how Talos is to be installed",
		},
	})
}

func TestKernelArgumentsThatAUKIIgnores(t *testing.T) {
	t.Parallel()

	runNodeTests(t, map[string]nodeTest{
		"UKI": {
			spoil: func(t *testing.T, f *fixture, facts *check.Facts) {
				f.patch(t, "cp1", extraKernelArgs("quiet"))

				facts.Security = &talos.Security{UKI: true}
			},
			id: diagnosis.KernelArgsIgnored, severity: diagnosis.Warning, cause: "quiet", next: "schematic",
		},
	})

	f := newFixture(t)
	f.patch(t, "cp1", extraKernelArgs("quiet"))
	require.Empty(t, warnings(f.checkNode(t, "cp1", goodFacts())), "GRUB takes them")
}

func extraKernelArgs(args ...string) func(*v1alpha1.Config) {
	return func(config *v1alpha1.Config) {
		config.MachineConfig.MachineInstall.InstallExtraKernelArgs = args //nolint:staticcheck // what is tested
		config.MachineConfig.MachineInstall.InstallGrubUseUKICmdline = nil
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()

	renamed := func(facts *check.Facts) {
		facts.Links = []talos.Link{{Name: "ens18", MAC: "02:00:00:00:00:11", Physical: true}}
	}
	image := func(t *testing.T, f *fixture, reference string) {
		t.Helper()

		f.patch(t, "cp1", func(config *v1alpha1.Config) { config.MachineConfig.MachineInstall.InstallImage = reference })
	}
	customized := "factory.talos.dev/metal-installer/" + strings.Repeat("ab", 32)

	runNodeTests(t, map[string]nodeTest{
		"absent, and the names will stay": {
			spoil: func(_ *testing.T, _ *fixture, facts *check.Facts) { renamed(facts) },
			id:    diagnosis.LinkAbsent, severity: diagnosis.Failure,
			cause: "no link eth0; the node has ens18 02:00:00:00:00:11", next: "MAC",
		},
		"absent, and the machine config asks for other names": {
			spoil: func(t *testing.T, f *fixture, facts *check.Facts) {
				renamed(facts)
				f.patch(t, "cp1", extraKernelArgs("net.ifnames=0"))
			},
			id: diagnosis.LinkAbsent, severity: diagnosis.Warning, cause: "booted without net.ifnames=0",
		},
		"absent, and the node booted as the machine config asks": {
			spoil: func(t *testing.T, f *fixture, facts *check.Facts) {
				renamed(facts)
				f.patch(t, "cp1", extraKernelArgs("net.ifnames=0"))

				facts.Cmdline += " net.ifnames=1 net.ifnames=0"
			},
			id: diagnosis.LinkAbsent, severity: diagnosis.Failure,
		},
		"absent, and the plain image will not have the arguments of this boot": {
			spoil: func(_ *testing.T, _ *fixture, facts *check.Facts) {
				renamed(facts)

				facts.Cmdline += " net.ifnames=0"
			},
			id: diagnosis.LinkAbsent, severity: diagnosis.Warning, cause: "booted with net.ifnames=0",
		},
		"absent, and the image has a schematic of its own": {
			spoil: func(t *testing.T, f *fixture, facts *check.Facts) {
				renamed(facts)
				image(t, f, customized+":v1.13.9")
			},
			id: diagnosis.LinkAbsent, severity: diagnosis.Warning, cause: "may have arguments of its own",
		},
		"absent, and the node booted from the image's schematic": {
			spoil: func(t *testing.T, f *fixture, facts *check.Facts) {
				renamed(facts)
				image(t, f, customized+":v1.13.9")

				facts.Schematic = strings.Repeat("ab", 32)
			},
			id: diagnosis.LinkAbsent, severity: diagnosis.Failure,
		},
		"absent, and the image is somebody's own": {
			spoil: func(t *testing.T, f *fixture, facts *check.Facts) {
				renamed(facts)
				image(t, f, "registry.example.net/own/talos:stable")
			},
			id: diagnosis.LinkAbsent, severity: diagnosis.Warning, cause: "may have arguments of its own",
		},
		"absent, and the node booted with what is the default": {
			spoil: func(_ *testing.T, _ *fixture, facts *check.Facts) {
				renamed(facts)

				facts.Cmdline += " net.ifnames=1"
			},
			id: diagnosis.LinkAbsent, severity: diagnosis.Failure,
		},
		"absent on a machine that runs from its disk": {
			spoil: func(t *testing.T, f *fixture, facts *check.Facts) {
				renamed(facts)
				image(t, f, customized+":v1.13.9")

				facts.Installed, facts.SystemDisk = true, "/dev/vda"
			},
			id: diagnosis.LinkAbsent, severity: diagnosis.Failure,
		},
		"present under another name": {
			spoil: func(_ *testing.T, _ *fixture, facts *check.Facts) {
				facts.Links = []talos.Link{{Name: "ens18", Physical: true, Aliases: []string{"eth0"}}}
			},
			id: diagnosis.LinkAbsent, severity: diagnosis.OK,
		},
		"absent, and the kernel arguments are not known": {
			spoil: func(_ *testing.T, _ *fixture, facts *check.Facts) {
				renamed(facts)

				facts.Cmdline = ""
				facts.Unread = []check.Unread{{What: "kernel arguments", Err: talos.ErrNotAllowed}}
			},
			id: diagnosis.LinkAbsent, severity: diagnosis.Warning, cause: "not known",
		},
		"one of the declared MACs absent": {
			spoil: func(_ *testing.T, f *fixture, _ *check.Facts) {
				f.cluster.Node("cp1").MACs = []string{"02:00:00:00:00:11", "02:00:00:00:00:99"}
			},
			id: diagnosis.LinkAbsent, severity: diagnosis.Failure,
			cause: "no physical link has the MAC address 02:00:00:00:00:99",
		},
		"unread": {
			spoil: func(_ *testing.T, _ *fixture, facts *check.Facts) {
				facts.Links = nil
				facts.Unread = []check.Unread{{What: "links", Err: talos.ErrNotAllowed}}
			},
			id: diagnosis.FactUnread, severity: diagnosis.Warning, cause: "links",
		},
	})
}

func TestProxyIsShown(t *testing.T) {
	t.Parallel()

	runNodeTests(t, map[string]nodeTest{
		"HTTPS_PROXY": {
			spoil: func(_ *testing.T, _ *fixture, facts *check.Facts) {
				facts.Proxy = &talos.Proxy{Variable: "HTTPS_PROXY", Host: "203.0.113.9:3128"}
			},
			id: diagnosis.ThroughProxy, severity: diagnosis.OK, cause: "HTTPS_PROXY=203.0.113.9:3128",
		},
	})
}

func TestHostnameFromElsewhere(t *testing.T) {
	t.Parallel()

	runNodeTests(t, map[string]nodeTest{
		"not a node name": {
			spoil: func(_ *testing.T, f *fixture, facts *check.Facts) {
				f.cluster.Node("cp1").IgnoreHostname = true
				facts.Hostname = "talos_1"
			},
			id: diagnosis.HostnameInvalid, severity: diagnosis.Warning, cause: "talos_1", next: "use talos-1",
		},
		"a node name": {
			spoil: func(_ *testing.T, f *fixture, facts *check.Facts) {
				f.cluster.Node("cp1").IgnoreHostname = true
				facts.Hostname = "talos-1"
			},
			id: diagnosis.HostnameInvalid, severity: diagnosis.OK, cause: "talos-1",
		},
	})
}
