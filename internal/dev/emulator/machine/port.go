package machine

import (
	"context"
	"time"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/certs"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/network"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

// APIKind is how the API port is served.
type APIKind int

// The API is closed, or serves maintenance, configured nodes, or something that is no Talos.
const (
	ClosedAPI APIKind = iota
	MaintenanceAPI
	SecureAPI
	ImpostorAPI
)

// Wish is what the API port should be; the server follows it.
type Wish struct {
	Kind        APIKind
	Certificate *certs.API
	Impostor    faults.Impostor
}

// APIHandler serves the API at an open port in one way.
type APIHandler interface {
	// Drain closes the port at once, waits for open calls as long as a node does, and cuts the rest.
	Drain()
	// Abort ends everything without a farewell.
	Abort()
}

// ServeAPI serves the API of a boot at an open port, or something else in its place.
type ServeAPI func(b *Boot, wish Wish, port *network.Port) APIHandler

// served is one listener on the API port, from open to drained.
type served struct {
	APIHandler

	wish Wish
	gone chan struct{} // closed when every call has ended
}

// apiPort is the port that the API of a boot listens on. Guarded by boot.mu.
type apiPort struct {
	boot *Boot

	ready    bool    // the API of configured nodes can be served
	current  *served // what listens
	draining *served // what waits for its open calls to end
}

// serve keeps the API port the way the boot wants it. Between two ways the port is closed, for as long as open calls
// take to end; but something else that takes the address of a machine does not wait for those.
func (a *apiPort) serve() {
	a.boot.Certificates.renewMaintenance()

	a.boot.Tasks.Go(a.boot.Certificates.keep)

	for {
		changed, nodeChanged := a.boot.changed.Wait(), a.boot.Node.changed.Wait()

		a.boot.mu.Lock()
		current := a.current
		a.boot.mu.Unlock()

		want := a.wish()

		if current != nil && current.wish != want {
			a.boot.mu.Lock()
			a.current, a.draining = nil, current
			a.boot.mu.Unlock()

			if want.Kind == ImpostorAPI {
				current.Abort()
			} else {
				current.Drain()
			}

			close(current.gone)

			a.boot.mu.Lock()
			a.draining = nil
			a.boot.mu.Unlock()

			a.boot.status.refresh()

			continue
		}

		if current == nil && want.Kind != ClosedAPI && a.boot.Context.Err() == nil {
			a.listen(want)

			continue
		}

		select {
		case <-a.boot.Context.Done():
			if current != nil {
				current.Abort()
				close(current.gone)
			}

			return
		case <-changed:
		case <-nodeChanged:
		}
	}
}

// wish is what the API port should be now.
func (a *apiPort) wish() Wish {
	impostor := a.boot.Node.Faults().Impostor
	config := a.boot.Config.Active()

	a.boot.mu.Lock()
	defer a.boot.mu.Unlock()

	switch {
	case a.boot.Phases.stopping || !a.boot.addressed || a.boot.Config.withdrawn != nil:
		return Wish{}
	case impostor != faults.NoImpostor:
		return Wish{Kind: ImpostorAPI, Impostor: impostor}
	case config == nil:
		return Wish{Kind: MaintenanceAPI}
	case a.boot.Certificates.own != nil && a.ready:
		return Wish{Kind: SecureAPI, Certificate: a.boot.Certificates.own}
	default:
		return Wish{}
	}
}

// listen opens the port.
func (a *apiPort) listen(wish Wish) {
	port, err := a.boot.Node.NIC.Listen(APIPort)
	if err != nil {
		a.boot.Log("failed to listen: %s", err)

		if a.boot.Sleep(a.boot.Context, time.Second) == nil {
			a.boot.status.notify()
		}

		return
	}

	opened := &served{a.boot.Node.Lab.serve(a.boot, wish, port), wish, make(chan struct{})}

	a.boot.mu.Lock()
	a.current = opened
	a.boot.mu.Unlock()

	a.boot.status.refresh()
}

// start starts what serves the API of configured nodes.
func (a *apiPort) start(ctx context.Context) error {
	if err := a.boot.Services.Run(ctx, service.APId, 0); err != nil {
		return err
	}

	a.boot.mu.Lock()
	a.ready = true
	a.boot.mu.Unlock()

	a.boot.status.notify()

	return nil
}

// inMaintenance reports whether the maintenance API listens, or still has open calls.
func (a *apiPort) inMaintenance() bool {
	a.boot.mu.Lock()
	defer a.boot.mu.Unlock()

	return (a.current != nil && a.current.wish.Kind == MaintenanceAPI) ||
		(a.draining != nil && a.draining.wish.Kind == MaintenanceAPI)
}

// impostor is what listens in Talos' place.
func (a *apiPort) impostor() faults.Impostor {
	a.boot.mu.Lock()
	defer a.boot.mu.Unlock()

	if a.current == nil {
		return faults.NoImpostor
	}

	return a.current.wish.Impostor
}

func (a *apiPort) isOpen() bool {
	a.boot.mu.Lock()
	defer a.boot.mu.Unlock()

	return a.current != nil
}
