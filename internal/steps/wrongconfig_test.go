package steps_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/discover/match"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// swapped is a lab whose machines stand anywhere: each has the MAC address of a node drawn at random, or of none.
type swapped struct {
	*lab

	drawing sync.Mutex
	random  *rand.Rand
	// owner is the node that declares a machine, by the machine's name.
	owner map[string]string
}

// draw is a number below n. Connections draw at the same time.
func (s *swapped) draw(n int) int {
	s.drawing.Lock()
	defer s.drawing.Unlock()

	return s.random.IntN(n)
}

func newSwapped(t *testing.T, seed uint64) *swapped {
	t.Helper()

	random := rand.New(rand.NewPCG(seed, 12)) //nolint:gosec // for the test's cases alone
	names := []string{"cp1", "cp2", "worker1", "worker2"}
	places := random.Perm(len(names))
	macs := map[string][]emulator.Link{}
	s := &swapped{random: random, owner: map[string]string{}}

	s.lab = newLab(t, 2, 2, func(options *labcluster.Options) {
		options.DHCP, options.Off = true, true
	})
	for i, name := range names {
		macs[name] = []emulator.Link{{Name: "eth0", MAC: s.Generated.Options.Nodes[i].MAC}}
	}

	for i, name := range names {
		owner := names[places[i]]
		options := emulator.NodeOptions{Name: name, Address: s.Lab.MachineAddress(i), Links: macs[owner]}

		if random.IntN(5) == 0 {
			owner, options.Links = "", []emulator.Link{{Name: "eth0", MAC: fmt.Sprintf("52:54:00:ff:ff:%02x", i)}}
		}

		s.owner[name] = owner

		node, err := s.Lab.Start(options)
		require.NoError(t, err)

		s.Nodes = append(s.Nodes, node)
	}

	s.untilMaintenance(t)

	return s
}

// requireOwnConfigs holds that no machine was ever sent another node's config, whether it took it or not.
func (s *swapped) requireOwnConfigs(t *testing.T) {
	t.Helper()

	for _, node := range s.Nodes {
		owner := s.owner[node.Name()]

		for _, call := range node.Calls() {
			if call.Name() != "ApplyConfiguration" {
				continue
			}

			require.NotEmpty(t, owner, "%s is no node's machine, and was sent a config", node.Name())

			config, err := s.Config(owner)
			require.NoError(t, err)

			sum := sha256.Sum256(config)
			require.Equal(t, hex.EncodeToString(sum[:]), call.ConfigSHA256, "the machine of %s was sent another config", owner)
		}
	}
}

// served are the machines that got their config.
func (s *swapped) served() int {
	count := 0

	for _, node := range s.Nodes {
		count += min(applied(node), 1)
	}

	return count
}

// found are the pairs of a search at the machines' addresses.
func (s *swapped) found(t *testing.T, run *session) match.Result {
	t.Helper()

	var addresses []string
	for _, node := range s.Nodes {
		addresses = append(addresses, node.Address().String())
	}

	networks, err := discover.ParseNetworks(addresses, false)
	require.NoError(t, err)

	machines, err := discover.Search{Networks: networks, Dialer: &talos.Dialer{Timeout: time.Minute}}.Machines(t.Context())
	require.NoError(t, err)

	return match.Match(run.Cluster.Nodes, machines, match.Options{})
}

// apply sends configs for a while, and does not mind what comes of it.
func (s *swapped) apply(t *testing.T, limit time.Duration, addresses []string) {
	t.Helper()

	run := s.session(t, "NODE_ADDRESSES="+strings.Join(addresses, ","), "NO_WAIT=true", "MAX_PARALLEL=100%")

	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()

	_ = steps.Execute(ctx, run.Run, steps.Apply{Parallel: true}) // it can't go well everywhere

	require.NoError(t, run.Recorder.Close())
}

// Machines stand where others belong, and get each other's addresses between the search and the apply.
func TestNoMachineGetsAnotherNodesConfigWhenLeasesMove(t *testing.T) {
	t.Parallel()

	served := 0

	for seed := range uint64(3) {
		s := newSwapped(t, seed)
		result := s.found(t, s.session(t))

		for _, pair := range result.Pairs {
			require.Equal(t, match.ByMAC, pair.By)
			at := slices.IndexFunc(s.Nodes, func(node *emulator.Node) bool { return node.Address() == pair.Address })
			require.Equal(t, pair.Node.Name, s.owner[s.Nodes[at].Name()])
		}

		// Some leases move, others stay.
		var addresses []string
		for i, pair := range result.Pairs {
			taken := pair.Address
			if s.draw(2) == 0 {
				taken = result.Pairs[(i+1)%len(result.Pairs)].Address
			}

			addresses = append(addresses, pair.Node.Name+"="+taken.String())
		}

		s.apply(t, patience, addresses)
		s.requireOwnConfigs(t)

		served += s.served()
	}

	require.Positive(t, served, "nothing was tried")
}

// flapping is an address behind which another machine answers at each connection, and whose connections break.
func (s *swapped) flapping(t *testing.T) string {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	var copies sync.WaitGroup

	forward := func(from net.Conn) {
		defer from.Close() //nolint:errcheck // a broken one is meant to be

		to, err := net.Dial("tcp", s.Nodes[s.draw(len(s.Nodes))].Endpoint())
		if err != nil {
			return
		}
		defer to.Close() //nolint:errcheck // as above

		if s.draw(3) == 0 {
			cut := time.AfterFunc(time.Duration(s.draw(60))*time.Millisecond, func() {
				from.Close() //nolint:errcheck,gosec // as above
				to.Close()   //nolint:errcheck,gosec // as above
			})
			defer cut.Stop()
		}

		copies.Go(func() {
			_, _ = io.Copy(to, from)
			to.Close() //nolint:errcheck,gosec // as above
		})
		_, _ = io.Copy(from, to)
	}

	copies.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}

			copies.Go(func() { forward(from) })
		}
	})

	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		copies.Wait()
	})

	return listener.Addr().String()
}

// Each connection reaches another machine, so that whatever is read on one and sent on the next goes wrong.
func TestNoMachineGetsAnotherNodesConfigBehindAnAddressThatFlaps(t *testing.T) {
	t.Parallel()

	served := 0

	for seed := range uint64(3) {
		s := newSwapped(t, seed)

		var addresses []string
		for _, name := range []string{"cp1", "cp2", "worker1", "worker2"} {
			addresses = append(addresses, name+"="+s.flapping(t))
		}

		// On a machine that is busy, few get so far.
		for round := 0; round < 4 || served+s.served() == 0 && round < 40; round++ {
			s.apply(t, 3*time.Second, addresses)
		}

		s.requireOwnConfigs(t)

		served += s.served()
	}

	require.Positive(t, served, "nothing was tried")
}
