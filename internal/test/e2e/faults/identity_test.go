package faults_test

import (
	"crypto/tls"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/discover/leases"
)

// two control planes that get their addresses from DHCP.
var twoLeases = labcluster.Options{ControlPlanes: 2, DHCP: true}

// identityFaults are those of machines that are not where, or not what, they are said to be.
func identityFaults() []fault {
	undeclared := twoLeases
	undeclared.NoMACs = true

	return []fault{
		{
			title: "a node of another cluster is at the address", class: "a certificate of another CA",
			knob: "NodeOptions.Config",
			edit: ofAnotherCluster, inject: func(t *testing.T, w *world) { t.Helper(); w.listens(t, cp1) },
			code: diagnosis.ExitPreflight, id: diagnosis.ForeignNode, node: cp1,
			seen: "with another cluster's certificate authority",
			heal: reset,
		},
		{
			title: "two machines stand at each other's addresses, MACs are declared",
			class: "another machine's hardware addresses", knob: "NodeOptions.Address",
			cluster: twoLeases, edit: exchanged,
			inject: func(t *testing.T, w *world) { t.Helper(); w.inMaintenance(t, cp1, cp2) },
			code:   diagnosis.ExitPreflight, id: diagnosis.WrongMachine, node: cp1, says: "this is cp2's machine",
			seen: "this is cp2's machine",
			heal: func(_ *testing.T, w *world) { w.answersAt(cp1, cp2) },
		},
		{
			title: "two machines exchange their leases after the apply, MACs are declared",
			class: "another machine's hardware addresses", knob: "AddressAfter",
			cluster: twoLeases, inject: exchangeLeases,
			code: diagnosis.ExitVerify, id: diagnosis.WrongMachine, node: cp1, says: "this is cp2's machine",
			seen: "config sent",
			heal: func(_ *testing.T, w *world) { w.answersAt(cp1, cp2) },
		},
		{
			title: "two machines exchange their leases after the apply, no MAC is declared",
			class: "another node's machine config", knob: "AddressAfter, labcluster.Options.NoMACs",
			cluster: undeclared, inject: exchangeLeases,
			code: diagnosis.ExitVerify, id: diagnosis.NodesSwapped, node: cp1, seen: "config sent",
			heal: func(_ *testing.T, w *world) { w.answersAt(cp1, cp2) },
		},
		{
			title: "a machine gets another lease after the apply",
			class: "connection refused; on a network of one's own no answer", knob: "AddressAfter",
			cluster: labcluster.Options{DHCP: true},
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1)
				w.Node(cp1).Set(func(f *emulator.Faults) { f.AddressAfter = w.Lab.Address(77) })
			},
			// On loopback an address that nobody has refuses connections.
			settings: []string{"INSTALL_TIMEOUT=2m"},
			code:     diagnosis.ExitVerify, id: diagnosis.NodeRefused, node: cp1, seen: "config sent",
			heal: func(_ *testing.T, w *world) {
				w.settings = append(w.settings, "NODE_ADDRESSES=cp1="+w.Lab.Address(77).String())
			},
		},
		{
			title: "a worker gets another lease after the apply, and discovery sees it",
			class: "connection refused; on a network of one's own no answer", knob: "AddressAfter, LabOptions.Discovery",
			cluster: labcluster.Options{
				Workers: 1, DHCP: true, Endpoint: labcluster.FirstControlPlane, LabOptions: emulator.LabOptions{Discovery: true},
			},
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1, worker1)
				w.Node(worker1).Set(func(f *emulator.Faults) { f.AddressAfter = w.Lab.Address(77) })
			},
			settings: []string{"INSTALL_TIMEOUT=2m"},
			code:     diagnosis.ExitVerify, id: diagnosis.NodeRefused, node: worker1, seen: "config sent",
			also: func(t *testing.T, w *world, got outcome) {
				t.Helper()
				require.Contains(t, got.message, "NODE_ADDRESSES=worker1="+w.Lab.Address(77).String())
			},
			heal: func(_ *testing.T, w *world) {
				w.settings = append(w.settings, "NODE_ADDRESSES=worker1="+w.Lab.Address(77).String())
			},
		},
		{
			title: "a machine has another address in maintenance than its config gives it",
			class: "connection refused, then another address", knob: "NodeOptions.Address, NODE_ADDRESSES",
			edit: func(_ *testing.T, w *world, machine *emulator.NodeOptions) {
				machine.Address = w.Lab.Address(78)
				w.settings = append(w.settings, "NODE_ADDRESSES=cp1="+machine.Address.String())
			},
			inject: func(t *testing.T, w *world) { t.Helper(); w.inMaintenance(t, cp1) },
			seen:   "booting, at", node: cp1,
		},
		{
			title: "the same, and the reply to the apply is lost", class: "a reply is lost, then another address",
			knob: "NodeOptions.Address, Calls: Cut, AfterEffect",
			edit: func(_ *testing.T, w *world, machine *emulator.NodeOptions) {
				machine.Address = w.Lab.Address(78)
				w.settings = append(w.settings, "NODE_ADDRESSES=cp1="+machine.Address.String())
			},
			inject: onCalls(emulator.CallFault{Method: "ApplyConfiguration", When: emulator.AfterEffect, Do: emulator.Cut,
				Times: 1}),
			seen: "reply lost", node: cp1, also: applied(1),
		},
		{
			title: "talconfig.yaml declares an address that the machine config does not have", class: "files alone",
			knob: "talconfig.yaml: ipAddress",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.retype(t, `ipAddress: "`+w.Node(cp1).Address().String(), `ipAddress: "`+w.Lab.Address(79).String())
			},
			code: diagnosis.ExitBadInput, id: diagnosis.ConfigAddress, node: cp1, seen: "is none of the static ones",
			heal: func(t *testing.T, w *world) {
				t.Helper()
				w.retype(t, `ipAddress: "`+w.Lab.Address(79).String(), `ipAddress: "`+w.Node(cp1).Address().String())
			},
		},
		{
			title: "a machine is reached through an address that its certificate does not name",
			class: "a certificate for other names", knob: "Lab.Balance, NODE_ADDRESSES",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1)
				require.NoError(t, w.Lab.Balance(w.Lab.Address(99), []uint16{emulator.APIPort}, w.Node(cp1)))
			},
			// An address with a port is a forwarded one: nothing else is tried.
			edit: func(_ *testing.T, w *world, _ *emulator.NodeOptions) {
				w.settings = append(w.settings, "NODE_ADDRESSES=cp1="+w.Lab.Address(99).String()+":50000")
			},
			code: diagnosis.ExitVerify, id: diagnosis.CertificateName, node: cp1,
			says: "the node's certificate doesn't name this address", seen: "config sent",
			heal: func(_ *testing.T, w *world) { w.settings = append(w.settings, "NODE_ADDRESSES=") },
		},
		{
			title: "somebody else sends the same config meanwhile", class: "maintenance, then configured",
			knob: "another client",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1)
				// The run is held up by its first read.
				w.fault(cp1, emulator.CallFault{Method: "Get", Do: emulator.Hang, Times: 1})
			},
			settings: []string{"DIAL_TIMEOUT=3s"},
			during: func(t *testing.T, w *world) {
				t.Helper()
				eventually(t, func() bool { return w.count(cp1, "Get") > 0 })
				w.configure(t, cp1)
			},
			also: applied(1),
		},
		{
			title: "a machine is at another address than the kept one", class: "connection refused, then another address",
			knob: "NodeOptions.Address, discover -save",
			edit: leased,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1)
				w.keeps(t, cp1, w.Lab.Address(99))
			},
			seen: "it does not answer at", also: applied(1),
		},
		{
			title: "another machine is at the kept address", class: "another machine's hardware addresses",
			knob: "NodeOptions.Address, discover -save",
			edit: leased,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1)
				w.stranger(t, emulator.NodeOptions{Address: w.Lab.Address(99)})
				w.keeps(t, cp1, w.Lab.Address(99))
			},
			seen: "another machine answers at", also: applied(1),
		},
		{
			title: "two machines have the MAC address of one node", class: "another machine's hardware addresses",
			knob: "NodeOptions.Links, DISCOVER",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1)
				w.stranger(t, emulator.NodeOptions{Address: w.Lab.Address(99), Links: w.Node(cp1).Options().Links})
			},
			settings: []string{"DISCOVER=true"},
			code:     diagnosis.ExitPreflight, id: diagnosis.MachineAmbiguous, node: cp1, says: "its machine can't be told",
			seen: "its machine can't be told", also: applied(0),
			heal: func(_ *testing.T, w *world) { w.Lab.Remove(w.Node(stranger)) },
		},
		{
			title: "no machine is found", class: "no answer", knob: "PowerOff, DISCOVER",
			inject:   func(_ *testing.T, w *world) { w.Node(cp1).PowerOff() },
			settings: []string{"DISCOVER=true", "NODE_WAIT=30s"},
			code:     diagnosis.ExitApply, id: diagnosis.NodeSilent, node: cp1, seen: "its machine was not found",
			heal: func(_ *testing.T, w *world) { w.Node(cp1).PowerOn() },
		},
	}
}

// leased machines have another address than the declared one until they have their config.
func leased(_ *testing.T, w *world, machine *emulator.NodeOptions) {
	machine.Address = w.Lab.Address(78)
}

// keeps writes what discover -save would have, if a node's machine had been at an address.
func (w *world) keeps(t *testing.T, name string, address netip.Addr) {
	t.Helper()

	text, err := leases.Leases{{Node: name, Address: address.String(), MAC: w.Node(name).Options().Links[0].MAC,
		At: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}}.Encode()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(leases.Path(w.Dir)), 0o700))
	require.NoError(t, os.WriteFile(leases.Path(w.Dir), text, 0o600))
}

// stranger is the name of a machine that is no node's.
const stranger = "stranger"

// stranger switches a machine on that the inventory does not know.
func (w *world) stranger(t *testing.T, options emulator.NodeOptions) {
	t.Helper()

	options.Name = stranger
	w.others = append(w.others, stranger)

	_, err := w.Lab.Start(options)
	require.NoError(t, err)
	w.inMaintenance(t, stranger)
}

// exchanged machines stand where the other one belongs.
func exchanged(t *testing.T, w *world, machine *emulator.NodeOptions) {
	t.Helper()

	for i, spec := range w.Generated.Options.Nodes {
		if spec.Name == machine.Name {
			machine.Address = w.Lab.MachineAddress(1 - i)
		}
	}
}

// exchangeLeases gives each of two machines the other's address once they have their configs.
func exchangeLeases(t *testing.T, w *world) {
	t.Helper()
	w.inMaintenance(t, cp1, cp2)

	one, two := w.Node(cp1), w.Node(cp2)
	addressOfOne, addressOfTwo := one.Address(), two.Address()

	one.Set(func(f *emulator.Faults) { f.AddressAfter = addressOfTwo })
	two.Set(func(f *emulator.Faults) { f.AddressAfter = addressOfOne })
}

// answersAt tells the runs to come that two machines answer at each other's addresses.
func (w *world) answersAt(one, two string) {
	w.settings = append(w.settings,
		"NODE_ADDRESSES="+one+"="+w.Lab.MachineAddress(1).String()+","+two+"="+w.Lab.MachineAddress(0).String())
}

// retype replaces a text in talconfig.yaml.
func (w *world) retype(t *testing.T, before, after string) {
	t.Helper()

	path := filepath.Join(w.Dir, "talconfig.yaml")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), before)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(data), before, after, 1)), 0o600))
}

// configure sends a machine in maintenance its own config, as another tool would.
func (w *world) configure(t *testing.T, name string) {
	t.Helper()

	data, err := w.Config(name)
	require.NoError(t, err)

	other, err := client.New(t.Context(), client.WithEndpoints(w.Node(name).Endpoint()),
		client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true})) //nolint:gosec // a node in maintenance has a certificate of its own
	require.NoError(t, err)

	defer other.Close()

	_, err = other.ApplyConfiguration(t.Context(),
		&machineapi.ApplyConfigurationRequest{Data: data, Mode: machineapi.ApplyConfigurationRequest_AUTO})
	require.NoError(t, err)
}

// otherFiles are those of a cluster with other CAs, for the same addresses.
func (w *world) otherFiles(t *testing.T) *labcluster.Cluster {
	t.Helper()

	bundle, err := clusterfiles.ForeignSecrets()
	require.NoError(t, err)

	other, err := labcluster.New(filepath.Join(w.root, "other"), labcluster.Options{
		Name: "other", Lab: w.Lab, Off: true, Secrets: bundle, ControlPlanes: 1, Workers: -1,
		Endpoint: labcluster.FirstControlPlane,
	})
	require.NoError(t, err)

	w.secrets = append(w.secrets, secretsOf(t, other)...)

	return other
}

// ofAnotherCluster machines are configured, with other CAs.
func ofAnotherCluster(t *testing.T, w *world, machine *emulator.NodeOptions) {
	t.Helper()

	var err error

	machine.Config, err = w.otherFiles(t).Config(machine.Name)
	require.NoError(t, err)
}

// configured machines run with their config already.
func configured(t *testing.T, w *world, machine *emulator.NodeOptions) {
	t.Helper()

	var err error

	machine.Config, err = w.Config(machine.Name)
	require.NoError(t, err)
}

// reset wipes the control plane with the other cluster's talosconfig, as the program advises.
func reset(t *testing.T, w *world) {
	t.Helper()

	other, err := client.New(t.Context(),
		client.WithConfigFromFile(filepath.Join(w.root, "other", "clusterconfig", "talosconfig")),
		client.WithEndpoints(w.Node(cp1).Endpoint()))
	require.NoError(t, err)

	defer other.Close()

	require.NoError(t, other.Reset(t.Context(), false, true))
	w.inMaintenance(t, cp1)
}

// certificateFaults are those of certificates, of nodes and of the operator's.
func certificateFaults() []fault {
	clock := func(title string, offset time.Duration) fault {
		return fault{
			title: title, class: "a certificate that is not valid now", knob: "ClockOffset",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1)
				w.Node(cp1).Set(func(f *emulator.Faults) { f.ClockOffset = offset })
			},
			settings: []string{"STAGE_TIMEOUT=1m"},
			code:     diagnosis.ExitVerify, id: diagnosis.NodeClock, node: cp1, seen: "config sent",
			heal: calm,
		}
	}

	files := func(title, class, knob string, id diagnosis.ID, seen string, spoil func(t *testing.T, w *world)) fault {
		return fault{
			title: title, class: class, knob: knob,
			inject: func(t *testing.T, w *world) {
				t.Helper()

				data, err := os.ReadFile(w.Talosconfig())
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(w.Talosconfig()+".good", data, 0o600))
				spoil(t, w)
			},
			code: diagnosis.ExitBadInput, id: id, seen: seen,
			heal: func(t *testing.T, w *world) {
				t.Helper()
				require.NoError(t, os.Rename(w.Talosconfig()+".good", w.Talosconfig()))
			},
		}
	}

	refused := func(title string, rude bool) fault {
		f := files(title, "the node hangs up after the handshake", "talosconfig: crt, key", "", "", withAnotherClient)
		f.edit = func(t *testing.T, w *world, machine *emulator.NodeOptions) {
			t.Helper()
			configured(t, w, machine)

			machine.Faults.ResetRefused = rude
		}
		f.settings = []string{"STAGE_TIMEOUT=1m", "SKIP_CHECKS=" + string(diagnosis.ClientNotSigned)}
		f.code, f.id, f.node, f.seen = diagnosis.ExitApply, diagnosis.ClientRefused, cp1,
			"doesn't accept this client certificate"

		if rude {
			f.knob += "; ResetRefused"
		}

		return f
	}

	return []fault{
		clock("a node's clock is two days ahead", 48*time.Hour),
		clock("a node's clock is two days behind", -48*time.Hour),
		{
			title: "bootstrap meets a node whose clock is two days ahead", class: "a certificate that is not valid now",
			knob: "ClockOffset",
			edit: configured,
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.Node(cp1).Set(func(f *emulator.Faults) { f.ClockOffset = 48 * time.Hour })
				w.listens(t, cp1)
			},
			run: "bootstrap", settings: []string{"STAGE_TIMEOUT=1m"},
			code: diagnosis.ExitBootstrap, id: diagnosis.NodeClock, node: cp1, seen: "becomes valid only in",
			heal: calm,
		},
		files("the talosconfig's client certificate has expired", "files alone", "talosconfig: crt",
			diagnosis.ClientCertificate, "client certificate expired", withExpiredClient),
		files("the talosconfig is another cluster's", "files alone", "talosconfig", diagnosis.TalosconfigForeign,
			"trusts another certificate authority", func(t *testing.T, w *world) {
				t.Helper()

				data, err := os.ReadFile(w.otherFiles(t).Talosconfig())
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(w.Talosconfig(), data, 0o600))
			}),
		refused("the node refuses the talosconfig's client certificate, with an alert", false),
		refused("the node refuses the talosconfig's client certificate, with a reset", true),
		{
			title: "a node in maintenance shows a new certificate on every connection", class: "certificates that change",
			knob: "NewCertificates",
			inject: func(t *testing.T, w *world) {
				t.Helper()
				w.inMaintenance(t, cp1)
				w.Node(cp1).Set(func(f *emulator.Faults) { f.NewCertificates = true })
			},
			also: applied(1), heal: calm,
		},
		{
			title: "a node in maintenance has another certificate than CERT_FINGERPRINTS says", class: "another certificate",
			knob:     "CERT_FINGERPRINTS",
			inject:   func(t *testing.T, w *world) { t.Helper(); w.inMaintenance(t, cp1) },
			settings: []string{"CERT_FINGERPRINTS=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},
			code:     diagnosis.ExitPreflight, id: diagnosis.FingerprintMismatch, node: cp1,
			seen: "has none of the given fingerprints",
			also: applied(0),
		},
	}
}
