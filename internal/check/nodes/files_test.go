package nodes_test

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// filesTest spoils the fixture in one way and says what is found.
type filesTest struct {
	spoil       func(*testing.T, *fixture)
	id          diagnosis.ID
	severity    diagnosis.Severity
	node        string
	cause, next string
	exit        diagnosis.ExitCode // of failures; default 2
}

func runFilesTests(t *testing.T, tests map[string]filesTest) {
	t.Helper()

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f := newFixture(t)
			test.spoil(t, f)

			findings := f.checkCluster(t)
			finding := the(t, findings, test.id)

			require.Equal(t, test.severity.String(), finding.Severity.String(), finding.Cause)
			require.Equal(t, test.node, finding.Node)
			require.Contains(t, finding.Cause, test.cause)
			require.Contains(t, finding.Next, test.next)

			if test.severity != diagnosis.Failure {
				require.Empty(t, failures(findings), "%+v", findings)

				return
			}

			require.Equal(t, []diagnosis.ID{test.id}, failures(findings), "%+v", findings)
			require.NotEmpty(t, finding.Next)

			if test.exit == diagnosis.ExitOK {
				test.exit = diagnosis.ExitBadInput
			}

			require.Equal(t, test.exit, finding.ExitCode())
		})
	}
}

func TestInvalidFiles(t *testing.T) {
	t.Parallel()

	runFilesTests(t, map[string]filesTest{
		"config that every machine refuses": {
			spoil: func(t *testing.T, f *fixture) {
				f.patch(t, "w1", func(config *v1alpha1.Config) { config.MachineConfig.MachineType = "master" })
			},
			id: diagnosis.ConfigInvalid, severity: diagnosis.Failure, node: "w1", cause: "unknown machine type",
			next: "config:generate",
		},
		"versions that don't go together": {
			spoil: func(_ *testing.T, f *fixture) { f.cluster.KubernetesVersion = "v1.10.0" },
			id:    diagnosis.KubernetesUnsupported, severity: diagnosis.Failure,
			cause: "talosVersion v1.13.9 and kubernetesVersion v1.10.0",
		},
	})
}

func TestAddressesInTheClustersOwnSubnets(t *testing.T) {
	t.Parallel()

	runFilesTests(t, map[string]filesTest{
		"declared address in the default service subnet": {
			spoil: func(_ *testing.T, f *fixture) { f.cluster.Node("w1").Address = "10.100.0.21" },
			id:    diagnosis.AddressInClusterSubnet, severity: diagnosis.Failure, node: "w1",
			cause: "10.100.0.21 lies in the service subnet 10.96.0.0/12",
		},
		"static address in the pod subnet": {
			spoil: func(t *testing.T, f *fixture) { f.replace(t, "w1", "192.0.2.14/24", "10.244.3.1/24") },
			id:    diagnosis.AddressInClusterSubnet, severity: diagnosis.Failure, node: "w1",
			cause: "10.244.3.1 lies in the pod subnet",
		},
		"IPv6 address in an IPv6 service subnet": {
			spoil: func(_ *testing.T, f *fixture) {
				f.cluster.ServiceSubnets = append(f.cluster.ServiceSubnets, netip.MustParsePrefix("2001:db8:96::/112"))
				f.cluster.Node("w1").Address = "2001:db8:96::21"
			},
			id: diagnosis.AddressInClusterSubnet, severity: diagnosis.Failure, node: "w1", cause: "2001:db8:96::21",
		},
		"valid subnets that leave the node out": {
			spoil: func(t *testing.T, f *fixture) {
				f.patch(t, "w1", func(config *v1alpha1.Config) {
					config.MachineConfig.MachineKubelet.KubeletNodeIP = &v1alpha1.KubeletNodeIPConfig{
						KubeletNodeIPValidSubnets: []string{"198.51.100.0/24"}}
				})
			},
			id: diagnosis.NodeIPExcluded, severity: diagnosis.Failure, node: "w1", cause: "leaves out 192.0.2.14",
		},
		"valid subnets that exclude the node": {
			spoil: func(t *testing.T, f *fixture) {
				f.patch(t, "w1", func(config *v1alpha1.Config) {
					config.MachineConfig.MachineKubelet.KubeletNodeIP = &v1alpha1.KubeletNodeIPConfig{
						KubeletNodeIPValidSubnets: []string{"0.0.0.0/0", "!192.0.2.0/24"},
					}
				})
			},
			id: diagnosis.NodeIPExcluded, severity: diagnosis.Failure, node: "w1",
		},
		"valid subnets that exclude others": {
			spoil: func(t *testing.T, f *fixture) {
				f.patch(t, "w1", func(config *v1alpha1.Config) {
					config.MachineConfig.MachineKubelet.KubeletNodeIP = &v1alpha1.KubeletNodeIPConfig{
						KubeletNodeIPValidSubnets: []string{"!198.51.100.0/24"}}
				})
			},
			id: diagnosis.AddressInClusterSubnet, severity: diagnosis.OK,
		},
	})
}

func TestVIP(t *testing.T) {
	t.Parallel()

	move := func(vip string) func(*testing.T, *fixture) {
		return func(t *testing.T, f *fixture) {
			t.Helper()

			for _, node := range f.cluster.ControlPlanes() {
				node.VIPs = []netip.Addr{netip.MustParseAddr(vip)}
				f.replace(t, node.Name, "name: 192.0.2.10", "name: "+vip)
			}

			f.cluster.Endpoint.Host = vip + ":6443"
		}
	}

	answers := func(answered, ours bool, err error) func(*testing.T, *fixture) {
		return func(_ *testing.T, f *fixture) {
			f.resolve(nil)
			f.options.VIPAnswers = func(_ context.Context, address netip.Addr) (bool, bool, error) {
				if address != netip.MustParseAddr("192.0.2.10") {
					return false, false, errors.New("asked at " + address.String())
				}

				return answered, ours, err
			}
		}
	}

	runFilesTests(t, map[string]filesTest{
		"gateway": {
			spoil: func(t *testing.T, f *fixture) {
				move("192.0.2.1")(t, f)
				f.replace(t, "cp2", "gateway: 192.0.2.1", "gateway: 192.0.2.2")
				f.replace(t, "cp3", "gateway: 192.0.2.1", "gateway: 192.0.2.2")
				f.replace(t, "w1", "gateway: 192.0.2.1", "gateway: 192.0.2.2")
			},
			id: diagnosis.VIPTaken, severity: diagnosis.Failure, node: "cp1", cause: "the VIP 192.0.2.1 is the node's gateway",
		},
		"outside of one control plane's subnet": {
			spoil: func(t *testing.T, f *fixture) {
				f.replace(t, "cp3", "192.0.2.13/24", "198.51.100.13/24")
				f.cluster.Node("cp3").Address = "198.51.100.13"
			},
			id: diagnosis.VIPOutsideSubnet, severity: diagnosis.Failure, node: "cp3",
			cause: "outside the node's subnets (198.51.100.0/24)",
		},
		"in a service subnet": {
			spoil: func(_ *testing.T, f *fixture) {
				f.cluster.ServiceSubnets = []netip.Prefix{netip.MustParsePrefix("192.0.2.10/32")}
			},
			id: diagnosis.AddressInClusterSubnet, severity: diagnosis.Failure,
			cause: "the VIP 192.0.2.10 lies in the service subnet",
		},
		"nobody answers": {
			spoil: answers(false, false, nil), id: diagnosis.VIPForeign, severity: diagnosis.OK, cause: "nobody answers",
		},
		"ours answers": {
			spoil: answers(true, true, nil), id: diagnosis.VIPForeign, severity: diagnosis.OK,
			cause: "this cluster's Kubernetes API",
		},
		"something else answers": {
			spoil: answers(true, false, nil), id: diagnosis.VIPForeign, severity: diagnosis.Failure,
			cause: "something answers on the VIP 192.0.2.10",
			exit:  diagnosis.ExitPreflight,
		},
		"it could not be asked": {
			spoil: answers(false, false, errors.New("no route to host")), id: diagnosis.VIPForeign, severity: diagnosis.Warning,
		},
	})
}

// In the old fields nothing says that the links besides have no DHCP; the VIP's own link is what counts.
func TestVIPOutsideTheSubnetOfItsInterface(t *testing.T) {
	t.Parallel()

	f := newFixture(t, func(options *clusterfiles.Options) { options.TalosVersion = "v1.11.6" })
	f.replace(t, "cp3", "192.0.2.13/24", "198.51.100.13/24")
	f.cluster.Node("cp3").Address = "198.51.100.13"

	finding := the(t, f.checkCluster(t), diagnosis.VIPOutsideSubnet)
	require.Equal(t, diagnosis.Failure, finding.Severity)
	require.Equal(t, "cp3", finding.Node)

	f.replace(t, "cp3", "- interface: eth0", "- interface: eth0\n        dhcp: true")
	require.Equal(t, diagnosis.OK, the(t, f.checkCluster(t), diagnosis.VIPOutsideSubnet).Severity,
		"it may get an address in the VIP's subnet")
}

// What another link got from the network does not bring the VIP's own link into its subnet.
func TestVIPOutsideTheSubnetOfItsLinkDocument(t *testing.T) {
	t.Parallel()

	f := newFixture(t)
	f.replace(t, "cp3", "192.0.2.13/24", "198.51.100.13/24")
	f.setConfig(t, "cp3", append(f.configs["cp3"].Bytes, "---\napiVersion: v1alpha1\nkind: DHCPv4Config\nname: eth9\n"...))
	f.cluster.Node("cp3").Address = "198.51.100.13"

	finding := the(t, f.checkCluster(t), diagnosis.VIPOutsideSubnet)
	require.Equal(t, diagnosis.Failure, finding.Severity)
	require.Equal(t, "cp3", finding.Node)
}

func TestVIPThatIsANodesAddress(t *testing.T) {
	t.Parallel()

	f := newFixture(t)
	f.cluster.Node("w1").Address = "192.0.2.10"

	finding := the(t, f.checkCluster(t), diagnosis.VIPTaken)

	require.Equal(t, diagnosis.Failure, finding.Severity)
	require.Equal(t, "w1", finding.Node)
}

func TestVIPIsJudgedByLiveAddressesWithDHCP(t *testing.T) {
	t.Parallel()

	f := newFixture(t, func(options *clusterfiles.Options) {
		options.Nodes[0].Address, options.Nodes[0].Declared = netip.Prefix{}, "192.0.2.11"
	})

	require.Empty(t, failures(f.checkCluster(t)), "without an answer there is nothing to compare with")
	require.Empty(t, failures(f.checkNode(t, "cp1", goodFacts())))

	elsewhere := goodFacts()
	elsewhere.Addresses = []netip.Prefix{netip.MustParsePrefix("198.51.100.11/24")}

	finding := the(t, f.checkNode(t, "cp1", elsewhere), diagnosis.VIPOutsideSubnet)

	require.Equal(t, diagnosis.Failure, finding.Severity)
	require.Equal(t, diagnosis.ExitPreflight, finding.ExitCode())
}

func TestVIPOfAnotherFamilyThanTheStaticAddresses(t *testing.T) {
	t.Parallel()

	f := newFixture(t)

	for _, node := range f.cluster.ControlPlanes() {
		node.VIPs = []netip.Addr{netip.MustParseAddr("2001:db8::10")}
		f.replace(t, node.Name, "name: 192.0.2.10", "name: 2001:db8::10")
	}

	require.Empty(t, failures(f.checkCluster(t)), "the nodes may get IPv6 addresses from the network")

	facts := goodFacts()
	require.Equal(t, []diagnosis.ID{diagnosis.VIPOutsideSubnet}, failures(f.checkNode(t, "cp1", facts)),
		"this one did not")

	facts.Addresses = append(facts.Addresses, netip.MustParsePrefix("2001:db8::11/64"))
	require.Empty(t, failures(f.checkNode(t, "cp1", facts)))
}

func TestEndpoint(t *testing.T) {
	t.Parallel()

	endpoint := func(text string) func(*testing.T, *fixture) {
		return func(t *testing.T, f *fixture) {
			t.Helper()

			parsed, err := url.Parse(text)
			require.NoError(t, err)

			f.cluster.Endpoint = parsed
			f.resolve(map[string][]string{
				"vip.example.net":      {"192.0.2.10"},
				"cp1.example.net":      {"192.0.2.11"},
				"worker.example.net":   {"192.0.2.14"},
				"balancer.example.net": {"203.0.113.7", "203.0.113.8"},
			})
		}
	}

	runFilesTests(t, map[string]filesTest{
		"VIP": {spoil: endpoint("https://192.0.2.10:6443"), id: diagnosis.EndpointUnusable,
			cause: "is the VIP"},
		"control plane": {spoil: endpoint("https://192.0.2.12:6443"), id: diagnosis.EndpointUnusable,
			cause: "is the control plane cp2"},
		"name of the VIP": {spoil: endpoint("https://vip.example.net:6443"), id: diagnosis.EndpointUnusable,
			cause: "is the VIP"},
		"name of a control plane": {spoil: endpoint("https://cp1.example.net:6443"), id: diagnosis.EndpointUnusable,
			cause: "is the control plane cp1"},
		"balancer": {spoil: endpoint("https://203.0.113.7:443"), id: diagnosis.EndpointElsewhere,
			cause: "taken for a balancer"},
		"name of a balancer": {spoil: endpoint("https://balancer.example.net"), id: diagnosis.EndpointElsewhere,
			cause: "taken for a balancer"},
		"worker": {
			spoil: endpoint("https://192.0.2.14:6443"), id: diagnosis.EndpointUnusable, severity: diagnosis.Failure, node: "w1",
			cause: "a worker",
		},
		"name of a worker": {
			spoil: endpoint("https://worker.example.net:6443"), id: diagnosis.EndpointUnusable, severity: diagnosis.Failure,
			node: "w1",
		},
		"not https": {
			spoil: endpoint("http://192.0.2.10:6443"), id: diagnosis.EndpointUnusable, severity: diagnosis.Failure,
			cause: "not https",
		},
		"no host": {
			spoil: endpoint("https:///"), id: diagnosis.EndpointUnusable, severity: diagnosis.Failure, cause: "no host",
		},
		"name that does not resolve": {
			spoil: endpoint("https://nowhere.example.net:6443"), id: diagnosis.EndpointUnusable, severity: diagnosis.Failure,
			cause: "does not resolve",
			exit:  diagnosis.ExitPreflight,
		},
		"VIP with the port of a balancer": {
			spoil: endpoint("https://192.0.2.10"), id: diagnosis.EndpointUnusable, severity: diagnosis.Failure,
			cause: "port 6443, not 443",
		},
	})
}

func TestHostnames(t *testing.T) {
	t.Parallel()

	rename := func(to string) func(*testing.T, *fixture) {
		return func(t *testing.T, f *fixture) {
			t.Helper()

			f.replace(t, "w1", "hostname: w1", "hostname: "+to)
			f.cluster.Node("w1").Hostname = to
		}
	}

	tests := make(map[string]filesTest)

	// Talos makes node names of most.
	for hostname, want := range map[string]struct {
		next, called string
		severity     diagnosis.Severity
	}{
		"Node_1": {"use node-1;", "the Kubernetes node will be called node-1", diagnosis.Warning},
		"CP9":    {"use cp9;", "the Kubernetes node will be called cp9", diagnosis.Warning},
		"-edge-": {"use edge;", "the Kubernetes node will be called edge", diagnosis.Warning},
		"кп-1":   {"use 1;", "the Kubernetes node will be called 1", diagnosis.Warning},
		"кп":     {"use a name like cp1;", "hostname кп is no RFC 1123 name", diagnosis.Failure},
		"a..b":   {"use a.b;", "hostname a..b is no RFC 1123 name", diagnosis.Failure},
	} {
		tests[hostname] = filesTest{
			spoil: rename(hostname), id: diagnosis.HostnameInvalid, severity: want.severity, node: "w1", cause: want.called,
			next: want.next,
		}
	}

	tests["capitals before Talos 1.6"] = filesTest{
		spoil: func(t *testing.T, f *fixture) {
			t.Helper()
			rename("CP9")(t, f)

			f.cluster.TalosVersion, f.cluster.KubernetesVersion = "v1.5.5", "v1.28.0"
		},
		id: diagnosis.HostnameInvalid, severity: diagnosis.Failure, node: "w1", cause: "hostname CP9 is no RFC 1123 name",
	}
	tests["taken, but for an underscore"] = filesTest{
		spoil: func(t *testing.T, f *fixture) {
			t.Helper()
			rename("node-1")(t, f)
			f.replace(t, "cp1", "hostname: cp1", "hostname: node_1")
		},
		id: diagnosis.HostnameNotUnique, severity: diagnosis.Failure, node: "w1",
		cause: "would both be the Kubernetes node node-1",
	}

	tests["w1.example.net"] = filesTest{spoil: rename("w1.example.net"), id: diagnosis.HostnameInvalid,
		severity: diagnosis.OK}
	tests["taken, but for the domain"] = filesTest{
		spoil: rename("cp1.example.net"), id: diagnosis.HostnameNotUnique, severity: diagnosis.Failure, node: "w1",
		cause: "cp1 and w1 would both be",
	}

	runFilesTests(t, tests)
}

func TestHostnamesHaveAtMost63Characters(t *testing.T) {
	t.Parallel()

	f := newFixture(t)
	f.configs = nil // Talos' own validation finds it in a machine config, too
	f.cluster.Node("w1").Hostname = strings.Repeat("n", 64)

	finding := the(t, f.checkCluster(t), diagnosis.HostnameInvalid)

	require.Equal(t, diagnosis.Failure, finding.Severity)
	require.Contains(t, finding.Cause, "64 characters")
	require.Contains(t, finding.Next, "use "+strings.Repeat("n", 63)+";")

	f.cluster.Node("w1").Hostname = strings.Repeat("n", 63)
	require.Empty(t, failures(f.checkCluster(t)))
}

func TestHostnamesAreComparedInLowerCase(t *testing.T) {
	t.Parallel()

	f := newFixture(t)
	f.replace(t, "w1", "hostname: w1", "hostname: CP1")

	require.Equal(t, []diagnosis.ID{diagnosis.HostnameNotUnique}, failures(f.checkCluster(t)))
}

func TestTalosconfigEndpoints(t *testing.T) {
	t.Parallel()

	with := func(endpoint string) func(*testing.T, *fixture) {
		return func(t *testing.T, f *fixture) {
			t.Helper()

			spoiled := strings.Replace(string(f.generated.Talosconfig), "- 192.0.2.11", "- "+endpoint, 1)

			f.talosconfig = []byte(spoiled)
		}
	}

	runFilesTests(t, map[string]filesTest{
		"worker": {
			spoil: with("192.0.2.14"), id: diagnosis.TalosconfigEndpoint, severity: diagnosis.Failure, node: "w1",
			next: "talosctl config endpoint 192.0.2.11 192.0.2.12 192.0.2.13",
		},
		"worker by name and port": {
			spoil: with("w1:50000"), id: diagnosis.TalosconfigEndpoint, severity: diagnosis.Failure, node: "w1",
		},
		"VIP": {spoil: with("192.0.2.10"), id: diagnosis.TalosconfigEndpoint, severity: diagnosis.Warning,
			cause: "is the VIP"},
		"balancer": {spoil: with("203.0.113.7"), id: diagnosis.TalosconfigEndpoint, severity: diagnosis.OK},
	})
}

func TestClientCertificateDates(t *testing.T) {
	t.Parallel()

	at := func(moment func(*talos.Credentials) time.Time) func(*testing.T, *fixture) {
		return func(t *testing.T, f *fixture) {
			t.Helper()

			credentials, err := talos.ParseCredentials(f.talosconfig)
			require.NoError(t, err)

			f.options.Now = moment(credentials)
		}
	}

	runFilesTests(t, map[string]filesTest{
		"in date": {
			spoil: at(func(c *talos.Credentials) time.Time { return c.NotAfter().Add(-31 * 24 * time.Hour) }),
			id:    diagnosis.ClientCertificate, severity: diagnosis.OK,
		},
		"soon out of date": {
			spoil: at(func(c *talos.Credentials) time.Time { return c.NotAfter().Add(-24 * time.Hour) }),
			id:    diagnosis.ClientCertificate, severity: diagnosis.Warning, cause: "expires on",
		},
		"out of date": {
			spoil: at(func(c *talos.Credentials) time.Time { return c.NotAfter().Add(time.Hour) }),
			id:    diagnosis.ClientCertificate, severity: diagnosis.Failure, cause: "expired on",
		},
		"not yet valid": {
			spoil: at(func(c *talos.Credentials) time.Time { return c.NotBefore().Add(-time.Hour) }),
			id:    diagnosis.ClientCertificate, severity: diagnosis.Failure, cause: "clock", next: "set this computer's clock",
		},
	})
}

func TestEvenNumberOfControlPlanes(t *testing.T) {
	t.Parallel()

	runFilesTests(t, map[string]filesTest{
		"two": {
			spoil: func(_ *testing.T, f *fixture) { f.cluster.Nodes = append(f.cluster.Nodes[:2:2], f.cluster.Nodes[3]) },
			id:    diagnosis.EvenControlPlanes, severity: diagnosis.Warning, cause: "2 control planes bear the loss of 0",
			next: "use 1 or 3",
		},
		"four": {
			spoil: func(_ *testing.T, f *fixture) {
				f.cluster.Nodes = append(f.cluster.Nodes,
					&inventory.Node{Name: "cp4", Hostname: "cp4", Role: machine.TypeControlPlane, Address: "192.0.2.15"})
			},
			id: diagnosis.EvenControlPlanes, severity: diagnosis.Warning, cause: "4 control planes bear the loss of 1",
		},
	})
}

func TestNodesDeclaredByName(t *testing.T) {
	t.Parallel()

	const name = "w1.tail.example.net"

	byName := func(certified bool, addresses ...string) func(*testing.T, *fixture) {
		return func(t *testing.T, f *fixture) {
			t.Helper()

			f.cluster.Node("w1").Address = name
			f.resolve(map[string][]string{name: addresses})

			if certified {
				f.patch(t, "w1", func(config *v1alpha1.Config) {
					config.MachineConfig.MachineCertSANs = append(config.MachineConfig.MachineCertSANs, name)
				})
			}
		}
	}

	runFilesTests(t, map[string]filesTest{
		"one address": {
			spoil: byName(true, "192.0.2.14"), id: diagnosis.NameUnresolved, severity: diagnosis.OK, node: "w1",
			cause: name + " is 192.0.2.14",
		},
		"no address": {
			spoil: byName(true), id: diagnosis.NameUnresolved, severity: diagnosis.Failure, node: "w1",
			cause: "does not resolve", next: "DNS record",
			exit: diagnosis.ExitPreflight,
		},
		"several addresses": {
			spoil: byName(true, "192.0.2.14", "2001:db8::14"), id: diagnosis.NameAmbiguous, severity: diagnosis.Warning,
			node:  "w1",
			cause: "192.0.2.14, 2001:db8::14",
		},
		"the endpoint's address": {
			spoil: byName(true, "192.0.2.10"), id: diagnosis.NameAmbiguous, severity: diagnosis.Failure, node: "w1",
			cause: "the cluster's endpoint",
			exit:  diagnosis.ExitPreflight,
		},
		"not in certSANs": {
			spoil: byName(false, "192.0.2.14"), id: diagnosis.NameNotCertified, severity: diagnosis.Failure, node: "w1",
			cause: name, next: "certSANs",
		},
	})
}

func TestNameThatAWildcardCoversIsCertified(t *testing.T) {
	t.Parallel()

	f := newFixture(t)
	f.cluster.Node("w1").Address = "w1.tail.example.net"
	f.patch(t, "w1", func(config *v1alpha1.Config) {
		config.MachineConfig.MachineCertSANs = []string{"*.tail.example.net"}
	})

	require.Empty(t, failures(f.checkCluster(t)))

	f.cluster.Node("w1").Address = "w1.rack.tail.example.net"
	require.Equal(t, []diagnosis.ID{diagnosis.NameNotCertified}, failures(f.checkCluster(t)), "it stands for one label")
}

func TestNameThatIsTheHostnameIsCertified(t *testing.T) {
	t.Parallel()

	f := newFixture(t)
	f.cluster.Node("w1").Address = "w1"
	f.resolve(map[string][]string{"w1": {"192.0.2.14"}})

	require.Empty(t, failures(f.checkCluster(t)))
}

func TestInstallerImages(t *testing.T) {
	t.Parallel()

	schematic := strings.Repeat("0123456789abcdef", 4)

	for reference, cause := range map[string]string{
		"factory.talos.dev/installer/" + schematic + ":v1.13.9":                       "",
		"factory.talos.dev/metal-installer-secureboot/" + schematic + ":v1.13.9":      "",
		"registry.example.net:5000/factory/metal-installer/" + schematic + ":v1.13.9": "",
		"factory.talos.dev/installer/" + schematic + "@sha256:" + schematic:           "",
		"ghcr.io/siderolabs/installer:v1.13.9":                                        "",
		"registry.example.net/own/talos:stable":                                       "",
		"":                                                                            "",
		"factory.talos.dev/installer/:v1.13.9":                                        "the schematic id is missing",
		"factory.talos.dev/installer:v1.13.9":                                         "the schematic id is missing",
		"factory.talos.dev/installer/" + schematic[1:] + ":v1.13.9":                   "not 64 hexadecimal digits",
		"factory.talos.dev/installer/" + strings.ToUpper(schematic) + ":v1.13.9":      "not 64 hexadecimal digits",
		"factory.talos.dev/installer/" + schematic + ":1.13.9":                        "the tag 1.13.9 is not a version",
		"factory.talos.dev/installer/" + schematic:                                    "the tag is missing",
		"registry.example.net:5000/own/talos":                                         "the tag is missing",
		"ghcr.io/siderolabs/installer:latest":                                         "the tag latest is not a version",
		"ghcr.io/siderolabs/installer:v1.14.0":                                        "published up to v1.13 only",
	} {
		t.Run(reference, func(t *testing.T) {
			t.Parallel()

			f := newFixture(t)
			f.patch(t, "w1", func(config *v1alpha1.Config) { config.MachineConfig.MachineInstall.InstallImage = reference })

			finding := the(t, f.checkCluster(t), diagnosis.InstallerReference)

			if cause == "" {
				require.Equal(t, diagnosis.OK, finding.Severity, finding.Cause)

				return
			}

			require.Equal(t, diagnosis.Failure, finding.Severity)
			require.Equal(t, "w1", finding.Node)
			require.Contains(t, finding.Cause, cause)
		})
	}
}

func TestInstallerImageOfAnotherVersion(t *testing.T) {
	t.Parallel()

	runFilesTests(t, map[string]filesTest{
		"newer than declared": {
			spoil: func(_ *testing.T, f *fixture) {
				f.cluster.TalosVersion = "v1.13.2"
				f.cluster.Nodes = f.cluster.Nodes[:1]
			},
			id: diagnosis.InstallerVersion, severity: diagnosis.Warning, node: "cp1", cause: "the node will run v1.13.9",
		},
	})
}

func TestLinkConfiguredTwice(t *testing.T) {
	t.Parallel()

	runFilesTests(t, map[string]filesTest{
		"in both ways": {
			spoil: func(t *testing.T, f *fixture) {
				f.patch(t, "w1", func(config *v1alpha1.Config) {
					//nolint:staticcheck // what is tested
					config.MachineConfig.MachineNetwork = &v1alpha1.NetworkConfig{
						NetworkInterfaces: []*v1alpha1.Device{{DeviceInterface: "eth0", DeviceDHCP: new(true)}},
					}
				})
			},
			id: diagnosis.LinkDeclaredTwice, severity: diagnosis.Warning, node: "w1", cause: "eth0",
		},
	})
}

func TestMissingFilesAreLeftToOthers(t *testing.T) {
	t.Parallel()

	f := newFixture(t)
	f.configs, f.talosconfig = nil, nil

	require.Empty(t, failures(f.checkCluster(t)))
	require.Empty(t, failures(f.checkNode(t, "cp1", goodFacts())))
}
