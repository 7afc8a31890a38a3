package steps_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// diagnose is what the target finds, and the code that it ends with.
func (l *lab) diagnose(t *testing.T, environ ...string) (steps.Diagnosis, diagnosis.ExitCode) {
	t.Helper()

	step := &steps.Diagnose{}
	s := l.session(t, append(environ, seconds("CLOCK_SCALE", scale))...).do(t, step)
	require.NotNil(t, step.Found, s.out)

	return *step.Found, steps.CodeOf(s.err)
}

// A learner waits for nobody but etcd, which promotes it.
func TestALearnerIsNoFailureOfADiagnosis(t *testing.T) {
	t.Parallel()

	l := newLab(t, 2, 0)
	l.installed(t)
	l.Node("cp2").Set(func(f *emulator.Faults) { f.EtcdJoin = 1000 * time.Hour })

	s := l.session(t, seconds("ETCD_TIMEOUT", 60))
	s.fails(t, diagnosis.ExitBootstrap, diagnosis.EtcdIncomplete, steps.Bootstrap{})

	found, _ := l.diagnose(t)
	require.NotContains(t, found.Text(), "not supported for learner")

	learner := found.Nodes[1]
	require.Equal(t, "cp2", learner.Seen.Node.Name)
	require.Equal(t, diagnosis.EtcdNotHealthy, learner.Causes[0].ID, found.Text())
	require.Equal(t, "etcd is a learner, catching up", learner.Causes[0].Cause)

	for _, cause := range learner.Causes {
		require.Equal(t, diagnosis.Warning, cause.Severity, found.Text())
	}
}

// instants are times and what follows from them, which differ each time.
var instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|\d+h\d+m\d+s|\b\d+m\d+s\b`)

// page is a diagnosis as people read it, with the lab's addresses as documentation addresses.
func (l *lab) page(found steps.Diagnosis) string {
	return l.plain(found.Text() + "next: " + found.Next + "\n")
}

// plain is a text without what differs each time.
func (l *lab) plain(text string) string {
	text = strings.ReplaceAll(text, l.folder, "/home/op/lab")
	text = strings.ReplaceAll(text, strings.TrimSuffix(l.Lab.Prefix().Addr().String(), "0"), "192.0.2.")

	return instants.ReplaceAllString(text, "…")
}

// firstOf is the id of the most likely cause for a node, or for the cluster.
func firstOf(found steps.Diagnosis, name string) diagnosis.ID {
	causes := found.Cluster
	for _, node := range found.Nodes {
		if node.Seen.Node.Name == name {
			causes = node.Causes
		}
	}

	if len(causes) == 0 {
		return ""
	}

	return causes[0].ID
}

func TestADiagnosisNamesTheCauseInEveryState(t *testing.T) {
	t.Parallel()

	shows := func(t *testing.T, l *lab, name string, code diagnosis.ExitCode, environ ...string) {
		t.Helper()

		found, got := l.diagnose(t, environ...)
		require.Equal(t, code, got, found.Text())
		golden.Assert(t, filepath.Join("testdata", "diagnose", name+".txt"), l.page(found))
	}

	t.Run("on the way up", func(t *testing.T) {
		t.Parallel()

		l := newLab(t, 1, 1)
		l.Node("cp1").Set(func(f *emulator.Faults) { f.TimeUnsynced = true })

		l.Node("worker1").PowerOff()
		wait(t, l.Node("cp1"), inStage("maintenance"))
		require.Eventually(t, func() bool {
			return strings.Contains(strings.Join(l.Node("cp1").Console(), "\n"), "time query error")
		}, labcluster.Deadline, labcluster.Deadline/1000)
		shows(t, l, "off", diagnosis.ExitVerify)

		l.Node("worker1").PowerOn()
		l.untilMaintenance(t)
		shows(t, l, "maintenance", diagnosis.ExitOK)

		l.installed(t)
		require.Eventually(t, func() bool {
			found, _ := l.diagnose(t)
			return firstOf(found, "cp1") == diagnosis.TimeNotSynced
		}, labcluster.Deadline, labcluster.Deadline/100)
		shows(t, l, "unsynced", diagnosis.ExitVerify, "NODE=cp1")

		l.Node("cp1").Set(func(f *emulator.Faults) { f.TimeUnsynced = false })
		l.waitForEtcdToAsk(t)
		shows(t, l, "before-bootstrap", diagnosis.ExitVerify, "NODE=cp1")

		l.session(t).succeeds(t, steps.Bootstrap{}, steps.VerifyWorkers{}, steps.Kubeconfig{})
		shows(t, l, "up", diagnosis.ExitOK)

		shows(t, l, "no-talosconfig", diagnosis.ExitVerify, "TALOSCONFIG="+filepath.Join(l.folder, "missing"))

		found, _ := l.diagnose(t, "TALOSCONFIG="+filepath.Join(l.folder, "missing"))

		var document struct {
			Nodes []struct {
				Node   string
				Causes []struct{ ID, Next string }
			}
			Next string
		}

		golden.Assert(t, filepath.Join("testdata", "diagnose", "no-talosconfig.json"), l.plain(found.JSON()))
		require.NoError(t, json.Unmarshal([]byte(found.JSON()), &document))
		require.Len(t, document.Nodes, 2)
		require.Equal(t, string(diagnosis.UnknownNodeCA), document.Nodes[0].Causes[0].ID)
		require.Equal(t, document.Next, document.Nodes[0].Causes[0].Next)
	})
}

// Behind a VIP no worker opens its API before bootstrap, which is nothing to look for.
func TestAWorkerThatWaitsForBootstrapIsNotLookedFor(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1)
	l.Node("cp1").Set(func(f *emulator.Faults) { f.TrustdDown = true })
	l.installed(t)
	l.waitForEtcdToAsk(t)

	found, code := l.diagnose(t)
	require.Equal(t, diagnosis.ExitVerify, code)
	require.Equal(t, diagnosis.WorkerJoining, firstOf(found, "worker1"), found.Text())
	require.Equal(t, diagnosis.EtcdNotBootstrapped, firstOf(found, ""), found.Text())
	require.Equal(t, "mage bootstrap", found.Next)
}

// What nodes say of themselves is read in every release; what one does not let anybody read is named.
func TestADiagnosisReadsWhatNodesOfEachReleaseSay(t *testing.T) {
	t.Parallel()

	for _, version := range []string{"v1.12.1", "v1.13.9", "v1.14.1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0, func(options *labcluster.Options) { options.TalosVersion = version })
			l.untilMaintenance(t)

			found, code := l.diagnose(t)
			require.Equal(t, diagnosis.ExitOK, code, found.Text())

			if strings.HasPrefix(version, "v1.12.") {
				require.Contains(t, found.Text(), "not read: dmesg, events")
			} else {
				require.NotContains(t, found.Text(), "not read")
			}

			l.up(t)
			l.Node("cp1").Set(func(f *emulator.Faults) {
				f.Says = []emulator.Saying{{Line: "I/O error, dev vda, sector 2048 op 0x0:(READ)"}}
				f.Diagnostics = []emulator.Diagnostic{{ID: "address-overlap",
					Message: "host and Kubernetes pod/service CIDR addresses overlap", Details: []string{"pods 10.244.0.0/16"}}}
			})

			require.Eventually(t, func() bool {
				found, code = l.diagnose(t)
				return len(found.Nodes[0].Causes) == 2
			}, labcluster.Deadline, labcluster.Deadline/100)

			require.Equal(t, diagnosis.ExitVerify, code)
			require.Equal(t, diagnosis.StorageFails, firstOf(found, "cp1"))
			require.Equal(t, diagnosis.AddressInClusterSubnet, found.Nodes[0].Causes[1].ID)
			require.Contains(t, l.page(found), `cp1 (192.0.2.11): configured, running, Talos `+version+`
  1. failure TM418  A disk or a volume of the node can't be used: I/O error, dev vda, sector 2048 op 0x0:(READ)
       dmesg: kern: err: […]: I/O error, dev vda, sector 2048 op 0x0:(READ)
     next: replace the disk; talosctl -n 192.0.2.11 -e 192.0.2.11 dmesg
`)
		})
	}
}

// What a node finds by itself counts, each source alone, whatever else it says.
func TestEverySourceOfADiagnosisCounts(t *testing.T) {
	t.Parallel()

	// All that was signed is good for an hour already.
	l := newLab(t, 1, 0, func(options *labcluster.Options) { options.Secrets = secretsOf(t, 2*time.Hour) })
	l.signClient(t, role.MakeSet(role.Admin), time.Hour, year)
	l.up(t)

	cp1 := l.Node("cp1")

	for _, test := range []struct {
		name    string
		fault   emulator.Faults
		environ []string
		id      diagnosis.ID
		says    string
	}{
		{name: "what it has found", fault: emulator.Faults{Diagnostics: []emulator.Diagnostic{{ID: "kubelet-csr",
			Message: "CSR is not approved"}}}, id: diagnosis.ServingCertificate,
			says: "diagnostic: kubelet-csr: CSR is not approved"},
		{name: "its volumes", fault: emulator.Faults{FailedVolumes: []emulator.FailedVolume{{ID: "u-data",
			Message: "no disks matched for volume"}}}, id: diagnosis.StorageFails,
			says: "volume: u-data failed: no disks matched for volume"},
		{name: "its clock", fault: emulator.Faults{ClockOffset: -10 * time.Minute}, id: diagnosis.NodeClock,
			says: "its clock is 10m0s behind its time server time.example"},
		// That of this computer does not run as fast as the lab's, which is nothing in a rehearsal alone.
		{name: "this computer's clock", environ: []string{"CLOCK_SCALE=1"}, id: diagnosis.NodeClock,
			says: "this computer's clock is "},
		// The last: what was said stays said.
		{name: "its console", fault: emulator.Faults{Says: []emulator.Saying{{Line: "I/O error, dev vda, sector 2048"}}},
			id: diagnosis.StorageFails, says: "dmesg: kern: err: […]: I/O error, dev vda, sector 2048"},
	} {
		cp1.Set(func(f *emulator.Faults) { *f = test.fault })

		require.Eventually(t, func() bool {
			step := &steps.Diagnose{}
			l.session(t, append([]string{seconds("CLOCK_SCALE", scale)}, test.environ...)...).do(t, step)

			return firstOf(*step.Found, "cp1") == test.id &&
				strings.Contains(l.plain(step.Found.Text()), instants.ReplaceAllString(test.says, "…"))
		}, labcluster.Deadline, labcluster.Deadline/100, test.name)
	}

	// A talosconfig that has expired is the cause, and when it did so its evidence.
	l.signClient(t, role.MakeSet(role.Admin), 48*time.Hour, time.Hour)

	found, code := l.diagnose(t)
	require.Equal(t, diagnosis.ExitVerify, code)
	require.Equal(t, diagnosis.TalosconfigExpired, firstOf(found, "cp1"), found.Text())
	require.Contains(t, l.page(found), "certificate: the talosconfig's is good until …")
}
