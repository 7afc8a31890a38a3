package chaos

import (
	"bytes"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// heal ends everything that is wrong, as the people on the spot would, and gives the nodes that ran another node's
// config or etcd new machines.
func (w *world) heal() error {
	for _, planned := range w.plan.Machines {
		w.cure(planned.Name)

		if !w.misplaced(planned.Name) {
			w.revive(planned.Name)

			continue
		}

		w.takeOut(planned.Name)

		if err := w.start(planned, false); err != nil {
			return err
		}
	}

	return nil
}

// healUp is heal for a cluster that was up: all machines are the declared ones, and what is gone stays so.
func (w *world) healUp() {
	for _, planned := range w.plan.Machines {
		if !w.isGone(planned.Name) {
			w.cure(planned.Name)
			w.revive(planned.Name)
		}
	}
}

// attend has somebody on the spot switch on what goes off late, as after a reset that was under way, until it is
// stopped.
func (w *world) attend(ctx context.Context) (stop func()) {
	const round = 20 * time.Second // in the machines' time

	ctx, cancel := context.WithCancel(ctx)

	var attending sync.WaitGroup

	attending.Go(func() {
		for w.lab.Clock().Sleep(ctx, round) == nil {
			for _, planned := range w.plan.Machines {
				if !w.isGone(planned.Name) {
					w.node(planned.Name).PowerOn()
				}
			}
		}
	})

	return func() {
		cancel()
		attending.Wait()
	}
}

// cure takes a machine's faults back.
func (w *world) cure(name string) {
	w.node(name).Set(func(f *emulator.Faults) {
		address := f.AddressAfter
		*f = emulator.Faults{}

		// A lease that is given back: the machine is at its address again after it has booted.
		if address.IsValid() {
			f.AddressAfter = w.address(name)
		}
	})
}

// revive switches a machine on, off before if it needs that.
func (w *world) revive(name string) {
	if w.needsBoot(name) {
		w.node(name).PowerOff()
	}

	w.node(name).PowerOn()
}

// misplaced tells of a machine that no healing of its faults makes the declared one.
func (w *world) misplaced(name string) bool {
	node := w.node(name)
	config := node.Config()

	return node.Options().Links[0].MAC != w.links(name)[0].MAC ||
		len(config) > 0 && !bytes.Equal(config, w.config(name)) ||
		node.Options().EtcdData == emulator.LostEtcdData || node.Options().EtcdData == emulator.WholeEtcdData &&
		w.aloneInEtcd(name)
}

// aloneInEtcd tells of a control plane whose etcd no other control plane has joined.
func (w *world) aloneInEtcd(name string) bool {
	return len(w.plan.ControlPlanes()) > 1 && !slices.ContainsFunc(w.plan.ControlPlanes(), func(other string) bool {
		return other != name && w.node(other).EtcdClusterID() == w.node(name).EtcdClusterID()
	})
}

// needsBoot tells of a machine that is wrong until it boots: at another address, with certificates of another time,
// with an etcd that a second Bootstrap stopped, or in an install that may have failed already.
func (w *world) needsBoot(name string) bool {
	node := w.node(name)
	signers := w.plan.ControlPlanes()

	failing := node.Stage() == "installing" && slices.ContainsFunc(w.struck(), func(strike Strike) bool {
		return strike.Node == name && strike.Class.Name == installFailed.Name
	})

	// A control plane signs its own certificates and those of the workers.
	wrongTime := slices.ContainsFunc(w.struck(), func(strike Strike) bool {
		return strike.Kind == "wrong clock" && (strike.Node == name || slices.Contains(signers, strike.Node) &&
			!slices.Contains(signers, name))
	})

	return node.Faults().AddressAfter != (netip.Addr{}) || wrongTime || failing ||
		node.EtcdClusterID() != 0 && !node.EtcdVoter()
}
