package steps_test

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/discover/leases"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// leased machines have another address in maintenance than the files declare: the first one 50 addresses further, and
// so on.
func leased(options *labcluster.Options) {
	before := options.Edit
	options.Edit = func(node *emulator.NodeOptions) {
		if before != nil {
			before(node)
		}

		node.Address = further(node.Address.As4(), 50)
	}
}

// byDHCP leaves the addresses out of the machine configs.
func byDHCP(options *labcluster.Options) { options.DHCP = true }

// unnamed leaves the MACs out of the files.
func unnamed(options *labcluster.Options) { options.NoMACs = true }

func further(address [4]byte, by byte) netip.Addr {
	address[3] += by

	return netip.AddrFrom4(address)
}

// keep writes what mage discover -save would have: where machines answer.
func (l *lab) keep(t *testing.T, entries ...leases.Entry) {
	t.Helper()

	text, err := leases.Leases(entries).Encode()
	require.NoError(t, err)

	path := leases.Path(l.Dir)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

// lease is an entry for a machine as it is.
func (l *lab) lease(name, address string) leases.Entry {
	return leases.Entry{Node: name, Address: address, MAC: l.Node(name).Options().Links[0].MAC,
		At: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}
}

func (l *lab) addressOf(name string) string { return l.Node(name).Address().String() }

func TestTheRecipeFindsMachinesWhereverDHCPPutThem(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1, leased, throughFirst)
	l.untilMaintenance(t)

	now := l.addressOf("cp1")
	s := l.session(t, "DISCOVER=1")
	s.succeeds(t, s.recipe()...)

	require.Equal(t, report.OK, s.status("discover", "cp1"))
	require.Contains(t, s.out.String(), now)
	require.NotEqual(t, now, l.addressOf("cp1"), "its config gives it another one")
	require.Contains(t, s.detail("verify", "cp1"), "was "+now+", now "+l.addressOf("cp1"))
	require.NoFileExists(t, leases.Path(l.Dir))
}

func TestAMachineWithANewLeaseIsFoundAgain(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1, throughFirst, byDHCP)
	l.untilMaintenance(t)

	before, elsewhere := l.addressOf("worker1"), l.Lab.Address(77)
	l.Node("worker1").Set(func(f *emulator.Faults) { f.AddressAfter = elsewhere })

	s := l.session(t, "DISCOVER=1")
	s.succeeds(t, s.recipe()...)
	require.Contains(t, s.detail("verifyWorkers", "worker1"), "was "+before+", now "+elsewhere.String())
}

func TestWithoutASearchTheDiagnosisProposesOne(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, byDHCP, throughFirst)
	l.untilMaintenance(t)
	l.Node("cp1").PowerOff()

	problem := l.session(t, "NO_WAIT=1").fails(t, diagnosis.ExitVerify, diagnosis.NodeSilent, steps.Verify{})
	require.Contains(t, problem.Next, "mage verify -node=cp1 -discover")
}

func TestKeptAddressesAreUsed(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, leased)
	l.untilMaintenance(t)
	l.keep(t, l.lease("cp1", l.addressOf("cp1")))

	s := l.session(t)
	s.succeeds(t, s.recipe()...)
	require.NotContains(t, s.out.String(), "looking for its machine")
}

func TestAnAddressThatIsGivenGoesOverAKeptOne(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, leased)
	l.untilMaintenance(t)
	l.keep(t, l.lease("cp1", l.Lab.Address(99).String()))

	s := l.session(t, "NODE_ADDRESSES=cp1="+l.addressOf("cp1"))
	s.succeeds(t, s.recipe()...)
	require.NotContains(t, s.out.String(), "where it was found on")
}

func TestAMachineThatAppearsLateIsFoundWhileItIsWaitedFor(t *testing.T) {
	t.Parallel()

	l := newLab(t, 2, 0, leased, throughFirst)
	l.untilMaintenance(t)
	l.Node("cp2").PowerOff()

	var later sync.WaitGroup

	later.Go(func() {
		if l.Lab.Clock().Sleep(t.Context(), 3*time.Minute) == nil {
			l.Node("cp2").PowerOn()
		}
	})

	s := l.session(t, "DISCOVER=1")
	s.succeeds(t, s.recipe()...)
	later.Wait()
	require.Equal(t, report.Warned, s.status("discover", "cp2"))
	require.Equal(t, report.Applied, s.status("applySequential", "cp2"))
}

func TestStaleAddressesAreFoundOut(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change []func(*labcluster.Options)
		says   string
	}{
		"nobody is there": {[]func(*labcluster.Options){leased}, "it does not answer at"},
		"another machine is there, MACs are declared": {[]func(*labcluster.Options){leased},
			"another machine answers at"},
		"another machine is there, no MAC is declared": {[]func(*labcluster.Options){leased, unnamed},
			"another machine answers at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0, test.change...)
			l.untilMaintenance(t)

			stale := l.Lab.Address(99).String()
			if test.says != "it does not answer at" {
				other, err := l.Lab.Start(emulator.NodeOptions{Name: "other", Address: l.Lab.Address(99)})
				require.NoError(t, err)
				wait(t, other, inStage("maintenance"))
			}

			l.keep(t, l.lease("cp1", stale))

			s := l.session(t)
			s.succeeds(t, s.recipe()...)
			require.Contains(t, s.out.String(), test.says+" "+stale+", where it was found on ")
			require.Contains(t, s.out.String(), "was at "+stale+", now at ")
		})
	}
}

// A lease that moves between the search and the apply never leads to a config on another machine.
func TestALeaseThatMovesBeforeTheApplyIsFollowed(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*labcluster.Options){"MACs are declared": byDHCP, "none is": unnamed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 0, leased, change)
			l.untilMaintenance(t)

			s := l.session(t, "DISCOVER=1")
			if name == "none is" {
				l.keep(t, l.lease("cp1", l.addressOf("cp1")))
				s = l.session(t, "DISCOVER=1")
			}

			s.do(t, steps.Locate{})
			require.NoError(t, s.err)

			// Another machine has its address by now, and it has the next one.
			options := l.Node("cp1").Options()
			l.Lab.Remove(l.Node("cp1"))

			before := options.Address
			options.Address = before.Next()
			moved, err := l.Lab.Start(options)
			require.NoError(t, err)

			other, err := l.Lab.Start(emulator.NodeOptions{Name: "other", Address: before})
			require.NoError(t, err)
			wait(t, moved, inStage("maintenance"))
			wait(t, other, inStage("maintenance"))

			s.succeeds(t, steps.Apply{})
			require.Equal(t, 1, applied(moved))
			require.Zero(t, applied(other))
		})
	}
}

func TestWhatWasFoundIsKept(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1, leased)
	l.untilMaintenance(t)

	elsewhere := leases.Entry{Node: "worker9", Address: "192.0.2.9", At: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}
	l.keep(t, elsewhere)

	l.session(t, "-save=true", "DRY_RUN=1").do(t, &steps.Discover{})

	kept, err := leases.Read(nil, leases.Path(l.Dir))
	require.NoError(t, err)
	require.Equal(t, leases.Leases{elsewhere}, kept)

	l.session(t, "-save=true").succeeds(t, &steps.Discover{})

	kept, err = leases.Read(nil, leases.Path(l.Dir))
	require.NoError(t, err)
	require.Len(t, kept, 3)
	require.Contains(t, kept, elsewhere, "of a node that was not found")

	for _, node := range l.Nodes {
		lease, known := kept.Of(node.Name())
		require.True(t, known)
		require.Equal(t, node.Address().String(), lease.Address)
		require.Equal(t, node.Options().Links[0].MAC, lease.MAC)
	}

	info, err := os.Stat(leases.Path(l.Dir))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	s := l.session(t)
	s.succeeds(t, steps.Preflight{})
}

func TestAFolderThatCannotBeWrittenToIsAnError(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0)
	l.untilMaintenance(t)
	// A folder stands where a file is to be.
	require.NoError(t, os.MkdirAll(filepath.Join(filepath.Dir(leases.Path(l.Dir)), ".gitignore"), 0o700))

	s := l.session(t, "-save=true").do(t, &steps.Discover{})
	require.ErrorContains(t, s.err, ".talos-mage")
	require.Equal(t, diagnosis.ExitBadInput, steps.CodeOf(s.err))
}

func TestASearchThatIsInterruptedKeepsNothing(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, leased)
	l.untilMaintenance(t)

	ctx, stop := context.WithCancel(t.Context())
	stop()

	s := l.session(t, "-save=true")
	require.Error(t, steps.Execute(ctx, s.Run, &steps.Discover{}))
	require.NoFileExists(t, leases.Path(l.Dir))

	err := steps.Execute(ctx, s.Run, steps.Locate{}, steps.Apply{})
	require.Equal(t, diagnosis.ExitInterrupt, steps.CodeOf(err))
	require.Zero(t, applied(l.Node("cp1")))
}
