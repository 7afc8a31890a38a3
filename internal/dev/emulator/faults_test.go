package emulator_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// silence is how long a test listens to silence.
const silence = 150 * time.Millisecond

// sick is a machine with a fault, and its cluster.
type sick struct {
	*labcluster.Cluster

	node *emulator.Node
}

// heal takes all faults away.
func (s *sick) heal() { s.node.Set(func(f *emulator.Faults) { *f = emulator.Faults{} }) }

func (s *sick) api(t *testing.T) *client.Client {
	t.Helper()

	return secure(t, s.Talosconfig(), s.node)
}

// dial connects to a port of the machine.
func (s *sick) dial(port uint16, limit time.Duration) error {
	conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(s.node.Address(), port).String(), limit)
	if err == nil {
		conn.Close() //nolint:errcheck // it was only a look
	}

	return err
}

// shake tries a TLS handshake.
func (s *sick) shake(limit time.Duration) error {
	conn, err := net.DialTimeout("tcp", s.node.Endpoint(), labcluster.Deadline)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it was only a look

	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()

	return tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).HandshakeContext(ctx) //nolint:gosec // it was only a look
}

// serial is that of the certificate that the machine shows.
func (s *sick) serial(t *testing.T) string {
	t.Helper()

	state, _, err := handshake(t, s.node, 0)
	require.NoError(t, err)

	return state.PeerCertificates[0].SerialNumber.String()
}

func (s *sick) answers(t *testing.T) {
	t.Helper()

	eventually(t, func() error { _, err := insecure(t, s.node).Version(deadline(t)); return err })
}

func (s *sick) install(t *testing.T) {
	t.Helper()

	applyOwn(t, s.Cluster, s.node.Name())
	installed(t, s.node)
}

func (s *sick) bootstrap(t *testing.T) {
	t.Helper()

	eventually(t, func() error { return s.api(t).Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
}

// says waits for a line on the machine's console.
func (s *sick) says(t *testing.T, text string) {
	t.Helper()

	eventually(t, func() error { return until(strings.Contains(strings.Join(s.node.Console(), "\n"), text)) })
}

// unmet waits until a condition of the machine's status is unmet for this reason, or is met when the reason is empty.
func (s *sick) unmet(t *testing.T, condition, reason string) {
	t.Helper()

	eventually(t, func() error {
		status, err := safe.StateGetByID[*runtimeres.MachineStatus](deadline(t), s.api(t).COSI, runtimeres.MachineStatusID)
		if err != nil {
			return err
		}

		for _, unmet := range status.TypedSpec().Status.UnmetConditions {
			if unmet.Name == condition {
				return until(reason != "" && strings.Contains(unmet.Reason, reason))
			}
		}

		return until(reason == "")
	})
}

func impostor(kind emulator.Impostor, shows func(t *testing.T, s *sick)) faultTest {
	return faultTest{
		faults: emulator.Faults{Impostor: kind},
		shows:  shows,
		healed: func(t *testing.T, s *sick) { t.Helper(); s.answers(t) },
	}
}

// failingInstall fails with this text on the console; then the machine is in maintenance mode again, and the next
// install works.
func failingInstall(faults emulator.Faults, text string) faultTest {
	return faultTest{
		faults: faults,
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			applyOwn(t, s.Cluster, s.node.Name())
			s.says(t, text)
			require.NoError(t, s.node.WaitFor(deadline(t),
				func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" }))
			require.False(t, s.node.Installed())
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			applyOwn(t, s.Cluster, s.node.Name())
			require.NoError(t, s.node.WaitFor(deadline(t), (*emulator.Node).Installed))
		},
	}
}

// lost is a machine that nobody hears of once it has its config.
func lost(loss emulator.Loss) faultTest {
	return faultTest{
		faults: emulator.Faults{Lost: loss},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			applyOwn(t, s.Cluster, s.node.Name())
			s.says(t, loss.String())
			eventually(t, func() error { return until(errors.Is(s.dial(emulator.APIPort, silence), os.ErrDeadlineExceeded)) })
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			installed(t, s.node)
		},
	}
}

// faultTest is a fault of the machine cp1, or of cp2 when a second one is needed.
type faultTest struct {
	faults emulator.Faults
	second bool
	shows  func(t *testing.T, s *sick)
	healed func(t *testing.T, s *sick)
}

// Every knob does what it says, and taking it back heals the machine. A key is the knob's name, with a colon and its
// value if it has several.
var faultTests = map[string]faultTest{ //nolint:gochecknoglobals // a table
	"Refuse": {
		faults: emulator.Faults{Refuse: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			require.ErrorContains(t, s.dial(emulator.APIPort, labcluster.Deadline), "connection refused")
		},
		healed: func(t *testing.T, s *sick) { t.Helper(); s.answers(t) },
	},
	"Silence": {
		faults: emulator.Faults{Silence: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			require.ErrorContains(t, s.dial(emulator.APIPort, silence), "i/o timeout")
		},
		healed: func(t *testing.T, s *sick) { t.Helper(); s.answers(t) },
	},
	"StallAfter": {
		faults: emulator.Faults{StallAfter: 100},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			require.NoError(t, s.dial(emulator.APIPort, labcluster.Deadline), "the connection stands")
			require.ErrorIs(t, s.shake(silence), context.DeadlineExceeded, "and goes dead in the middle of the first message")
		},
		healed: func(t *testing.T, s *sick) { t.Helper(); s.answers(t) },
	},
	"Impostor: HTTPS": impostor(emulator.HTTPSImpostor, func(t *testing.T, s *sick) {
		t.Helper()
		eventually(t, func() error {
			state, asked, err := handshake(t, s.node, 0)
			if err != nil {
				return err
			}

			return until(!asked && state.PeerCertificates[0].Subject.CommonName == "appliance.example")
		})
	}),
	"Impostor: SSH": impostor(emulator.SSHImpostor, func(t *testing.T, s *sick) {
		t.Helper()
		require.ErrorContains(t, s.shake(labcluster.Deadline), "first record does not look like a TLS handshake")
	}),
	"Impostor: plain HTTP": impostor(emulator.PlainHTTPImpostor, func(t *testing.T, s *sick) {
		t.Helper()
		require.ErrorContains(t, s.shake(labcluster.Deadline), "first record does not look like a TLS handshake")
	}),
	"Impostor: mute": impostor(emulator.MuteImpostor, func(t *testing.T, s *sick) {
		t.Helper()
		require.ErrorIs(t, s.shake(silence), context.DeadlineExceeded)
	}),
	"Impostor: hang up": impostor(emulator.HangUpImpostor, func(t *testing.T, s *sick) {
		t.Helper()
		require.NoError(t, s.dial(emulator.APIPort, labcluster.Deadline), "the connection stands")
		require.Error(t, s.shake(labcluster.Deadline), "and ends before anything is said")
	}),
	"NewCertificates": {
		faults: emulator.Faults{NewCertificates: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			require.NotEqual(t, s.serial(t), s.serial(t))
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			require.Equal(t, s.serial(t), s.serial(t))
		},
	},
	"ResetRefused": {
		faults: emulator.Faults{ResetRefused: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			eventually(t, func() error { _, err := s.api(t).Version(deadline(t)); return err })

			_, err := insecure(t, s.node).Version(deadline(t))
			require.ErrorContains(t, err, "connection reset by peer")
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()

			_, err := insecure(t, s.node).Version(deadline(t))
			require.NotContains(t, err.Error(), "connection reset by peer")
		},
	},
	"AddressAfter": {
		faults: emulator.Faults{AddressAfter: netip.AddrFrom4([4]byte{127, 0, 0, 77})}, // in the lab's block
		shows: func(t *testing.T, s *sick) {
			t.Helper()

			before := s.node.Address()
			s.node.Set(func(f *emulator.Faults) { f.AddressAfter = s.Lab.Address(77) })
			s.install(t)
			require.Equal(t, s.Lab.Address(77), s.node.Address())
			eventually(t, func() error { _, err := s.api(t).Version(deadline(t)); return err })

			_, err := net.DialTimeout("tcp", netip.AddrPortFrom(before, emulator.APIPort).String(), labcluster.Deadline)
			require.ErrorContains(t, err, "connection refused")
		},
	},
	"Lost: link": lost(emulator.LostLink),
	"Lost: disk": lost(emulator.LostDisk),
	"Lingers": {
		faults: emulator.Faults{Lingers: 1000 * time.Hour},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			applyOwn(t, s.Cluster, s.node.Name())
			require.Equal(t, "maintenance", s.node.Stage())
			require.Nil(t, s.node.Config())
		},
		healed: func(t *testing.T, s *sick) { t.Helper(); installed(t, s.node) },
	},
	"Forgets": {
		faults: emulator.Faults{Forgets: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			applyOwn(t, s.Cluster, s.node.Name())
			waitStage(t, s.node, "installing")
			require.NoError(t, s.node.WaitFor(deadline(t),
				func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "maintenance" }))
			require.False(t, s.node.Installed())
		},
		healed: func(t *testing.T, s *sick) { t.Helper(); s.install(t) },
	},
	"Install: no disk": failingInstall(emulator.Faults{Install: emulator.InstallDiskMissing},
		"lstat /dev/vda: no such file or directory"),
	"Install: no image": failingInstall(emulator.Faults{Install: emulator.InstallImagePull}, "failed to pull image"),
	"Install: bad disk": failingInstall(emulator.Faults{Install: emulator.InstallDiskWrite}, "input/output error"),
	"Install: slow image": failingInstall(emulator.Faults{Install: emulator.InstallImageSlow},
		"context deadline exceeded"),
	"InstallTimes": {
		faults: emulator.Faults{Install: emulator.InstallImagePull, InstallTimes: 2},
		shows: func(t *testing.T, s *sick) {
			t.Helper()

			for boots := 2; boots <= 3; boots++ {
				applyOwn(t, s.Cluster, s.node.Name())
				require.NoError(t, s.node.WaitFor(deadline(t),
					func(n *emulator.Node) bool { return n.Boots() == boots && n.Stage() == "maintenance" }))
				require.False(t, s.node.Installed())
			}

			applyOwn(t, s.Cluster, s.node.Name())
			require.NoError(t, s.node.WaitFor(deadline(t), (*emulator.Node).Installed), "the third works by itself")
		},
	},
	"InstallStall": {
		faults: emulator.Faults{InstallStall: 1000 * time.Hour},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			applyOwn(t, s.Cluster, s.node.Name())
			waitStage(t, s.node, "installing")
			s.says(t, "installing Talos to disk")

			short, cancel := context.WithTimeout(t.Context(), 2*silence)
			defer cancel()

			require.Error(t, s.node.WaitFor(short, func(n *emulator.Node) bool { return n.Stage() != "installing" }),
				"nothing happens any more")
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			installed(t, s.node)
		},
	},
	"BootLoop": {
		faults: emulator.Faults{BootLoop: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			applyOwn(t, s.Cluster, s.node.Name())
			require.NoError(t, s.node.WaitFor(deadline(t), func(n *emulator.Node) bool { return n.Boots() >= 4 }))
			require.True(t, s.node.Installed())
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			s.bootstrap(t)
			require.NoError(t, s.node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
		},
	},
	"MetaNotReady": {
		faults: emulator.Faults{MetaNotReady: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()

			data, err := s.Config("cp1")
			require.NoError(t, err)

			giveUpOnApply(t, s.node, data)

			_, err = apply(t, insecure(t, s.node), data, modeAuto)
			require.ErrorContains(t, err, "another apply configuration is already in progress")
			require.Nil(t, s.node.Config())
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			installed(t, s.node) // with the config whose sender gave up
		},
	},
	"TimeUnsynced": {
		faults: emulator.Faults{TimeUnsynced: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			s.unmet(t, "time", "time is not synced")
		},
		healed: func(t *testing.T, s *sick) { t.Helper(); s.unmet(t, "time", "") },
	},
	"NameServersDown": {
		faults: emulator.Faults{NameServersDown: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			s.nameServers(t, false)
		},
		healed: func(t *testing.T, s *sick) { t.Helper(); s.nameServers(t, true) },
	},
	"ClockOffset": {
		faults: emulator.Faults{ClockOffset: 1000 * time.Hour},
		shows: func(t *testing.T, s *sick) {
			t.Helper()

			state, _, err := handshake(t, s.node, 0)
			require.NoError(t, err)
			require.True(t, state.PeerCertificates[0].NotBefore.After(time.Now().Add(999*time.Hour)))
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			eventually(t, func() error { _, err := s.api(t).Version(deadline(t)); return err })
		},
	},
	"ClockOffset: of a configured machine": {
		faults: emulator.Faults{ClockOffset: 1000 * time.Hour},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			eventually(t, func() error {
				_, err := s.api(t).Version(deadline(t))

				return until(err != nil && strings.Contains(err.Error(), "certificate has expired or is not yet valid"))
			})
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			eventually(t, func() error { _, err := s.api(t).Version(deadline(t)); return err })
		},
	},
	"TrustdDown": {
		faults: emulator.Faults{TrustdDown: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			s.unmet(t, "services", "trustd not running")
			require.ErrorContains(t, s.dial(emulator.TrustdPort, labcluster.Deadline), "connection refused")
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			eventually(t, func() error { return s.dial(emulator.TrustdPort, labcluster.Deadline) })
			s.unmet(t, "services", "etcd not running")
		},
	},
	"Bootstrap: type unset": failingBootstrap(emulator.BootstrapTypeUnset, codes.Unimplemented,
		"machine type is not set, cannot use bootstrap API"),
	"Bootstrap: etcd stuck": failingBootstrap(emulator.BootstrapEtcdStuck, codes.Unknown, "failed to stop etcd: "),
	"Bootstrap: start fails": failingBootstrap(emulator.BootstrapEtcdStartFails, codes.Unknown,
		"error starting etcd in bootstrap mode: "),
	"EtcdImage": {
		faults: emulator.Faults{EtcdImage: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			s.bootstrap(t)

			// Bootstrapped, so the boot is over; but there is no etcd yet.
			require.NoError(t, s.node.WaitFor(deadline(t), func(node *emulator.Node) bool { return node.Stage() == "running" }))
			eventually(t, func() error { return until(serviceInfo(t, s.api(t), "etcd").GetState() == "Preparing") })
			require.Zero(t, s.Lab.EtcdClusters())
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			require.NoError(t, s.node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
			require.Equal(t, 1, s.Lab.EtcdClusters())
		},
	},
	"EtcdNever": {
		faults: emulator.Faults{EtcdNever: true}, second: true,
		shows: func(t *testing.T, s *sick) {
			t.Helper()

			nags := func() int {
				return strings.Count(strings.Join(s.node.Console(), "\n"), "etcd is waiting to join the cluster")
			}
			before := nags()
			eventually(t, func() error { return until(nags() > before+1) })
			require.Len(t, s.members(t), 1)
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			require.NoError(t, s.node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
			require.Len(t, s.members(t), 2)
		},
	},
	"EtcdJoin": {
		faults: emulator.Faults{EtcdJoin: 1000 * time.Hour}, second: true,
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			eventually(t, func() error {
				members := s.members(t)

				return until(len(members) == 2 && members[1].GetIsLearner() && members[1].GetHostname() == "cp2")
			})
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			s.node.PowerOff()
			s.node.PowerOn()
			require.NoError(t, s.node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
		},
	},
	"SnapshotEnd": {
		faults: emulator.Faults{SnapshotEnd: 1000},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			s.bootstrap(t)
			require.NoError(t, s.node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
			require.Len(t, s.snapshot(t), 1000)
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			require.Equal(t, sha256.Size, len(s.snapshot(t))%512)
		},
	},
	"Reset: wipe fails": {
		faults: emulator.Faults{Reset: emulator.ResetWipeFails},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)

			boots := s.node.Boots()
			s.reset(t)
			require.NoError(t, s.node.WaitFor(deadline(t), func(n *emulator.Node) bool {
				return n.Boots() > boots && n.Stage() == "booting" && n.Config() != nil
			}))
		},
		healed: func(t *testing.T, s *sick) { t.Helper(); s.reset(t); waitStage(t, s.node, "maintenance") },
	},
	"Reset: powers off": {
		faults: emulator.Faults{Reset: emulator.ResetPowersOff},
		shows:  func(t *testing.T, s *sick) { t.Helper(); s.install(t); s.reset(t); waitStage(t, s.node, "off") },
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			require.Nil(t, s.node.Config())
			s.node.PowerOn()
			waitStage(t, s.node, "maintenance")
		},
	},
	"NewSystemFails": {
		faults: emulator.Faults{NewSystemFails: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)

			before := versionOf(t, s.api(t))
			s.upgrade(t, 2)
			require.Equal(t, before, versionOf(t, s.api(t)))
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()

			before := versionOf(t, s.api(t))
			s.upgrade(t, 1)
			require.NotEqual(t, before, versionOf(t, s.api(t)))
		},
	},
	"RestoreFails": {
		faults: emulator.Faults{RestoreFails: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			s.restore(t)

			api := s.api(t)
			eventually(t, func() error {
				etcd := serviceInfo(t, api, "etcd")
				return until(etcd.GetState() == "Failed" && strings.Contains(history(etcd)[len(history(etcd))-1], "recovering"))
			})
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			s.restore(t)
			require.NoError(t, s.node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
		},
	},
	"Says": {
		faults: emulator.Faults{Says: []emulator.Saying{{Line: "I/O error, dev vda"}}},
		shows:  func(t *testing.T, s *sick) { t.Helper(); s.says(t, "I/O error, dev vda") },
		healed: func(t *testing.T, s *sick) {
			t.Helper()

			s.install(t)
			require.NotContains(t, console(s.node), "I/O error, dev vda", "of the boot that followed")
		},
	},
	"Diagnostics": {
		faults: emulator.Faults{Diagnostics: []emulator.Diagnostic{{ID: "address-overlap", Message: "they overlap",
			Details: []string{"all"}}}},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)

			api := s.api(t)
			eventually(t, func() error { return found(deadline(t), api.COSI) })
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()

			api := s.api(t)
			eventually(t, func() error { return until(state.IsNotFoundError(found(deadline(t), api.COSI))) })
		},
	},
	"FailedVolumes": {
		faults: emulator.Faults{FailedVolumes: []emulator.FailedVolume{{ID: "u-data", Message: "no disk matches"}}},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			s.volumeFails(t, "no disk matches")
		},
		healed: func(t *testing.T, s *sick) { t.Helper(); s.volumeFails(t, "") },
	},
	"EtcdUnhealthy": {
		faults: emulator.Faults{EtcdUnhealthy: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			s.bootstrap(t)
			eventually(t, func() error {
				etcd := serviceInfo(t, s.api(t), "etcd")

				return until(etcd.GetState() == "Running" && !etcd.GetHealth().GetUnknown() && !etcd.GetHealth().GetHealthy())
			})
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			eventually(t, func() error { return until(serviceInfo(t, s.api(t), "etcd").GetHealth().GetHealthy()) })
		},
	},
	"KubernetesDown": {
		faults: emulator.Faults{KubernetesDown: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			s.bootstrap(t)
			s.unmet(t, "staticPods", "kube-system/kube-apiserver-cp1 not ready")
			require.ErrorContains(t, s.dial(emulator.KubernetesPort, labcluster.Deadline), "connection refused")
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			eventually(t, func() error { return s.dial(emulator.KubernetesPort, labcluster.Deadline) })
			s.unmet(t, "staticPods", "")
		},
	},
	"KubeletDown": {
		faults: emulator.Faults{KubeletDown: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			s.unmet(t, "services", "kubelet not healthy")
		},
		healed: func(t *testing.T, s *sick) { t.Helper(); s.unmet(t, "services", "etcd not running") },
	},
	"BudgetBlocks": {
		faults: emulator.Faults{BudgetBlocks: true},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			s.bootstrap(t)
			require.NoError(t, s.node.WaitFor(deadline(t), (*emulator.Node).Registered))
			s.Lab.InstallCNI()
			require.NoError(t, s.node.WaitFor(deadline(t), (*emulator.Node).Ready))
			eventually(t, func() error {
				err := s.evict(t)

				return until(apierrors.IsTooManyRequests(err) && apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause))
			})

			budgets, err := kubernetesAPI(t, s.Cluster).PolicyV1().PodDisruptionBudgets("kube-system").List(deadline(t),
				metav1.ListOptions{})
			require.NoError(t, err)
			require.Len(t, budgets.Items, 1)
			require.Equal(t, int32(2), budgets.Items[0].Status.DesiredHealthy, "all that CoreDNS has")
		},
		healed: func(t *testing.T, s *sick) { t.Helper(); eventually(t, func() error { return s.evict(t) }) },
	},
	"Calls": {
		faults: emulator.Faults{Calls: []emulator.CallFault{{Method: "Version", Do: emulator.Fail, Code: codes.Aborted,
			Text: "not now", After: 1, Times: 2}}},
		shows: func(t *testing.T, s *sick) {
			t.Helper()

			c := insecure(t, s.node)

			for _, want := range []codes.Code{codes.OK, codes.Aborted, codes.Aborted, codes.OK} {
				_, err := c.Version(deadline(t))
				require.Equal(t, want, client.StatusCode(err))
			}
		},
	},
	"Calls: of one resource": {
		faults: emulator.Faults{Calls: []emulator.CallFault{
			{Method: "/cosi.resource.State/List", Resource: "Disks.block.talos.dev", Do: emulator.Fail, Code: codes.Aborted,
				Text: "not now"},
		}},
		shows: func(t *testing.T, s *sick) {
			t.Helper()

			cosi := insecure(t, s.node).COSI

			_, err := safe.StateListAll[*block.Disk](deadline(t), cosi)
			require.Equal(t, codes.Aborted, client.StatusCode(err))

			_, err = safe.StateListAll[*network.LinkStatus](deadline(t), cosi)
			require.NoError(t, err)

			calls := s.node.Calls()
			require.Equal(t, "LinkStatuses.net.talos.dev", calls[len(calls)-1].Resource)
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()

			_, err := safe.StateListAll[*block.Disk](deadline(t), insecure(t, s.node).COSI)
			require.NoError(t, err)
		},
	},
}

func failingBootstrap(fault emulator.BootstrapFault, code codes.Code, text string) faultTest {
	return faultTest{
		faults: emulator.Faults{Bootstrap: fault},
		shows: func(t *testing.T, s *sick) {
			t.Helper()
			s.install(t)
			eventually(t, func() error {
				err := s.api(t).Bootstrap(deadline(t), &machineapi.BootstrapRequest{})
				require.Error(t, err)

				return until(client.StatusCode(err) == code && strings.HasPrefix(client.Status(err).Message(), text))
			})
			require.Zero(t, s.Lab.EtcdClusters())
		},
		healed: func(t *testing.T, s *sick) {
			t.Helper()
			s.bootstrap(t)
			require.NoError(t, s.node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
		},
	}
}

// reset asks the machine to go back to maintenance mode.
func (s *sick) reset(t *testing.T) {
	t.Helper()

	eventually(t, func() error {
		return s.api(t).ResetGeneric(deadline(t), &machineapi.ResetRequest{Reboot: true,
			SystemPartitionsToWipe: partitions(constants.StatePartitionLabel, constants.EphemeralPartitionLabel)})
	})
}

// evict has Kubernetes evict a pod of CoreDNS from the machine's node.
func (s *sick) evict(t *testing.T) error {
	t.Helper()

	api := kubernetesAPI(t, s.Cluster)

	pods, err := api.CoreV1().Pods("kube-system").List(deadline(t),
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + s.node.Name()})
	require.NoError(t, err)

	i := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool { return strings.HasPrefix(pod.Name, "coredns-") })
	if i < 0 {
		return errors.New("CoreDNS runs elsewhere")
	}

	return api.PolicyV1().Evictions("kube-system").Evict(deadline(t), &policyv1.Eviction{ //nolint:wrapcheck // it is judged
		ObjectMeta: metav1.ObjectMeta{Name: pods.Items[i].Name, Namespace: "kube-system"},
	})
}

// snapshot is what the machine's etcd hands out.
func (s *sick) snapshot(t *testing.T) []byte {
	t.Helper()

	stream, err := s.api(t).EtcdSnapshot(deadline(t), &machineapi.EtcdSnapshotRequest{})
	require.NoError(t, err)

	data, err := io.ReadAll(stream)
	require.NoError(t, err)

	return data
}

// restore sends the node another etcd's snapshot, and has it restore that.
func (s *sick) restore(t *testing.T) {
	t.Helper()

	whole := wholeLab.use(t)
	snapshot := snapshotOf(t, secure(t, whole.Talosconfig(), whole.Node("cp1")))

	api := s.api(t)
	eventually(t, func() error {
		_, err := api.EtcdRecover(deadline(t), bytes.NewReader(snapshot))
		return err
	})
	require.NoError(t, api.Bootstrap(deadline(t), &machineapi.BootstrapRequest{RecoverEtcd: true}))
}

// volumeFails waits until the volume u-data fails for this reason; for none, until there is no such volume.
func (s *sick) volumeFails(t *testing.T, reason string) {
	t.Helper()

	eventually(t, func() error {
		volume, err := safe.StateGetByID[*block.VolumeStatus](deadline(t), s.api(t).COSI, "u-data")

		switch {
		case state.IsNotFoundError(err):
			return until(reason == "")
		case err != nil:
			return err
		default:
			return until(volume.TypedSpec().ErrorMessage == reason && reason != "")
		}
	})
}

// nameServers waits until the node's name servers answer it, or do not.
func (s *sick) nameServers(t *testing.T, answer bool) {
	t.Helper()

	eventually(t, func() error {
		found, err := safe.StateList[*protobuf.Resource](deadline(t), s.api(t).COSI,
			network.NewDNSUpstream("").Metadata(), state.WithListUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
		if err != nil {
			return err
		}

		said := 0

		for upstream := range found.All() {
			shown, err := yaml.Marshal(upstream.Spec())
			if err != nil {
				return err
			}

			if strings.Contains(string(shown), "healthy: "+strconv.Quote(strconv.FormatBool(answer))) {
				said++
			}
		}

		return until(said == 2)
	})
}

// members are what the first control plane's etcd tells.
func (s *sick) members(t *testing.T) []*machineapi.EtcdMember {
	t.Helper()

	reply, err := secure(t, s.Talosconfig(), s.Node("cp1")).EtcdMemberList(deadline(t),
		&machineapi.EtcdMemberListRequest{QueryLocal: true})
	require.NoError(t, err)

	return reply.GetMessages()[0].GetMembers()
}

func TestEveryFaultShowsAndHeals(t *testing.T) {
	t.Parallel()

	for _, version := range []string{emulator.DefaultTalosVersion, talos114} {
		for name, test := range faultTests {
			t.Run(version+"/"+name, func(t *testing.T) {
				t.Parallel()
				test.run(t, version)
			})
		}
	}
}

// run shows the fault and its healing on machines that run a Talos version.
func (f faultTest) run(t *testing.T, version string) {
	t.Helper()

	count, patient := 1, "cp1"
	if f.second {
		count, patient = 2, "cp2"
	}

	cluster := newCluster(t, labcluster.Options{ControlPlanes: count, Workers: -1, Edit: func(o *emulator.NodeOptions) {
		o.TalosVersion = version

		if o.Name == patient {
			o.Faults = f.faults
		}
	}})
	s := &sick{Cluster: cluster, node: cluster.Node(patient)}

	for _, node := range cluster.Nodes {
		waitStage(t, node, "maintenance")
	}

	if f.second {
		first := &sick{Cluster: cluster, node: cluster.Node("cp1")}
		first.install(t)
		first.bootstrap(t)
		require.NoError(t, first.node.WaitFor(deadline(t), (*emulator.Node).EtcdVoter))
		s.install(t)
	}

	f.shows(t, s)

	if f.healed != nil {
		s.heal()
		f.healed(t, s)
	}
}

func TestEveryFaultHasATest(t *testing.T) {
	t.Parallel()

	tested := map[string]bool{}

	for name := range faultTests {
		knob, _, _ := strings.Cut(name, ":")
		tested[knob] = true
	}

	for field := range reflect.TypeFor[emulator.Faults]().Fields() {
		require.True(t, tested[field.Name], field.Name)
	}

	require.Len(t, tested, reflect.TypeFor[emulator.Faults]().NumField(), "tests of faults that are no more")
}

// upgrade has the node upgraded, and waits until it has booted so often for it.
func (s *sick) upgrade(t *testing.T, boots int) {
	t.Helper()

	boots += s.node.Boots()
	_, err := upgrade(t, s.api(t), client.WithUpgradeImage("factory.talos.dev/metal-installer/"+schematic+":v1.14.2"),
		client.WithUpgradePreserve(true))
	require.NoError(t, err)
	rebooted(t, s.node, boots)
}

// Whoever changes a machine's power or faults meets those who carry out an earlier change.
func TestTheLastChangeOfAMachinesPowerCounts(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})

	for pause := range 100 {
		node.PowerOff()
		time.Sleep(time.Duration(pause) * 3 * time.Microsecond) //nolint:forbidigo // of the wall's time: the machine is just letting go of its boot
		node.PowerOn()
		require.NoError(t, node.WaitFor(deadline(t), func(n *emulator.Node) bool { return n.Stage() != "off" }))
	}

	waitStage(t, node, "maintenance")
	eventually(t, func() error {
		conn, err := net.DialTimeout("tcp", node.Endpoint(), time.Second)
		if err != nil {
			return err
		}

		return conn.Close()
	})
}
